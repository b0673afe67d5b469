package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	startPatience = 30 * time.Second // until a server listens
	retain        = 64 << 30         // bytes of journal: what is missing from it was lost
)

// A server is the program under trial: one state directory and one port, and
// one process after the other.
type server struct {
	binary string
	dir    string // holds everything it reads and writes
	addr   string // what it listens on; the system chose the port at the first start

	cmd    *exec.Cmd     // nil while there is no process
	exited chan struct{} // closed when the process has ended and exit is set
	exit   error
	stderr tail
}

// newServer writes the script of the agent into dir, which must exist.
func newServer(binary, dir string, events int) (*server, error) {
	s := &server{binary: binary, dir: dir, addr: "127.0.0.1:0"}
	text, err := json.Marshal(scenario(events))
	if err != nil {
		return nil, err
	}
	return s, errors.Join(os.WriteFile(s.path("script.json"), text, 0o600), os.Mkdir(s.path("workspace"), 0o700))
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// base is the server's address for clients.
func (s *server) base() string { return "http://" + s.addr }

// start starts a process and waits until it listens, no longer than ctx. The
// process runs until kill, whatever start returns.
func (s *server) start(ctx context.Context) error {
	if err := os.Remove(s.path("ready.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cmd := exec.Command(s.binary, "serve",
		"--agent", "script:"+s.path("script.json"), "--workspace", s.path("workspace"), "--state-dir", s.path("state"),
		"--listen", s.addr, "--auth", "off", "--ready-file", s.path("ready.json"),
		"--retain-bytes", strconv.FormatInt(retain, 10))
	cmd.Stderr = &s.stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func() { // ends with the process
		defer close(s.exited)
		s.exit = cmd.Wait()
	}()
	return s.awaitReady(ctx)
}

// awaitReady waits for the file that a server writes once it listens.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("the server is not ready after %v", startPatience))
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended (%v): %s", s.exit, &s.stderr)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
		text, err := os.ReadFile(s.path("ready.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var ready struct {
			BaseURL string `json:"baseUrl"`
		}
		if err = errors.Join(err, json.Unmarshal(text, &ready)); err != nil {
			return err
		}
		base, err := url.Parse(ready.BaseURL)
		if err != nil {
			return err
		}
		if _, _, err := net.SplitHostPort(base.Host); err != nil {
			return err
		}
		s.addr = base.Host
		return nil
	}
}

// kill ends the process, if there is one, as a crash does: with no chance to do
// anything more. A process that has ended by itself is an error.
func (s *server) kill() error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Kill()
	s.cmd = nil
	<-s.exited
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("the server ended by itself (%v): %s", s.exit, &s.stderr)
	}
	return err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 4 << 10

// Write keeps the last maxTail bytes.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxTail):]
	return len(p), nil
}

// String is what was kept, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ReplaceAll(bytes.TrimSpace(t.b), []byte("\n"), []byte("; ")))
}
