package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

const (
	greetTimeout = 20 * time.Second // for a server to start
	stopTimeout  = 5 * time.Second  // for a server to end once its input has
	maxStderr    = 4 << 10          // bytes of a server's complaints that are kept
)

// A server is a server under measurement, in a process of its own.
type server struct {
	addr    string
	session string // of the built program
	pid     int
	dialect dialect

	ctx     context.Context // ends the process and what is asked of it
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	orders  *json.Encoder
	reports *json.Decoder
	stderr  *tail
}

// launch starts a program that ends when its input does, or when ctx or this
// process ends. It must be called from the main goroutine: the kernel takes the
// death of the starting thread for that of the process.
func launch(ctx context.Context, path string, args ...string) (*server, error) {
	s := &server{ctx: ctx, stderr: &tail{}}
	s.cmd = exec.CommandContext(ctx, path, args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.cmd.Cancel = func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }
	s.cmd.WaitDelay = stopTimeout
	s.cmd.Stderr = s.stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	s.pid, s.stdin = s.cmd.Process.Pid, stdin
	s.orders, s.reports = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return s, nil
}

// launch starts a program that has been built, for as long as the trial lasts.
func (t *trial) launch(program string, args ...string) *server {
	s := must(launch(t.ctx, t.built[program], args...))
	t.atEnd(s.stop)
	return s
}

// launchControlled starts a server that speaks package control.
func launchControlled(ctx context.Context, d dialect, path string, args ...string) (*server, error) {
	s, err := launch(ctx, path, args...)
	if err != nil {
		return nil, err
	}
	s.dialect = d
	var hello control.Greeting
	if err := s.greeted(&hello); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.addr = hello.Addr
	return s, nil
}

// greeted waits for the first thing that a server says. One that hangs before it
// does is killed.
func (s *server) greeted(greeting any) error {
	hung := time.AfterFunc(greetTimeout, s.kill)
	defer hung.Stop()
	if err := s.reports.Decode(greeting); err != nil {
		return fmt.Errorf("wait for %s: %w", s.cmd.Path, err)
	}
	return nil
}

// kill ends the process and what it started.
func (s *server) kill() { _ = syscall.Kill(-s.pid, syscall.SIGKILL) } // fails only if it has ended

// stop ends the server, politely at first, and returns its complaints if it did
// not end well.
func (s *server) stop() error {
	_ = s.stdin.Close() // fails only if the server is gone
	hung := time.AfterFunc(stopTimeout, s.kill)
	defer hung.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", s.cmd.Path, err, s.stderr)
	}
	return nil
}

// send gives an order without waiting for its report, which must be read with
// report before the next order.
func (s *server) send(o control.Order) error {
	if err := s.orders.Encode(o); err != nil {
		return fmt.Errorf("order %s: %w", o.Op, err)
	}
	return nil
}

// report waits for the answer to the last order.
func (s *server) report() (control.Report, error) {
	hung := time.AfterFunc(patience, s.kill)
	defer hung.Stop()
	var rep control.Report
	if err := s.reports.Decode(&rep); err != nil {
		return rep, fmt.Errorf("wait for a report: %w: %s", err, s.stderr)
	}
	if rep.Error != "" {
		return rep, errors.New(rep.Error)
	}
	if rep.Dropped > 0 {
		return rep, fmt.Errorf("the server dropped %d messages", rep.Dropped)
	}
	return rep, nil
}

// ask gives an order and waits for its report.
func (s *server) ask(op control.Op) (control.Report, error) {
	if err := s.send(control.Order{Op: op}); err != nil {
		return control.Report{}, err
	}
	return s.report()
}

// registered waits until the server counts want viewers.
func (s *server) registered(ctx context.Context, want int) error {
	deadline := time.Now().Add(greetTimeout)
	for {
		rep, err := s.ask(control.OpStatus)
		if err != nil || rep.Viewers == want {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server counts %d viewers, want %d", rep.Viewers, want)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps the last maxStderr bytes.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxStderr):]
	return len(p), nil
}

// String is what was kept, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ReplaceAll(bytes.TrimSpace(t.b), []byte("\n"), []byte("; ")))
}
