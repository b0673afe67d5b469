package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// readyWithin bounds a start.
const readyWithin = 30 * time.Second

// Bounds of what is kept of a process's output.
const (
	maxReadyLine   = 64 << 10
	maxDiagnostics = 16 << 10
)

// A Process is a server that was started, says where it is in its first line of
// output, and ends when its standard input does. Its goroutine ends with it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	exited chan struct{} // closed when it has ended
	err    error         // how it ended; readable after exited
}

// A Ready is what the first line of output says. Other keys are allowed.
type Ready struct {
	BaseURL   string `json:"baseUrl"`
	SessionID string `json:"sessionId"`
}

// Start runs a command and waits for its ready line. A process that is not ready
// within 30 s, or when ctx ends, is killed; afterwards ctx means nothing to it. A
// nil env is our own.
func Start(ctx context.Context, command, env []string) (*Process, Ready, error) {
	p := &Process{cmd: exec.Command(command[0], command[1:]...), stderr: &tail{}, exited: make(chan struct{})}
	first := &firstLine{got: make(chan []byte, 1)}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, first, p.stderr
	p.cmd.WaitDelay = time.Second // for what its children hold open
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, Ready{}, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, Ready{}, err
	}
	go func() { // ends when the process does, which stop and kill see to
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	ready, err := p.ready(ctx, first.got)
	if err != nil {
		p.Kill()
		return nil, Ready{}, fmt.Errorf("%w; its diagnostics: %s", err, p.stderr)
	}
	return p, ready, nil
}

func (p *Process) ready(ctx context.Context, got <-chan []byte) (Ready, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	var line []byte
	select {
	case line = <-got:
	case <-p.exited:
		select {
		case line = <-got: // it said so, and ended at once; what follows finds out
		default:
			return Ready{}, fmt.Errorf("the process ended before its ready line: %v", p.err)
		}
	case <-ctx.Done():
		return Ready{}, fmt.Errorf("no ready line within %v: %w", readyWithin, ctx.Err())
	}
	var ready Ready
	if err := json.Unmarshal(line, &ready); err != nil || ready.BaseURL == "" || ready.SessionID == "" {
		return ready, fmt.Errorf("the first line of output is no ready object with baseUrl and sessionId: %q", line)
	}
	return ready, nil
}

// Stop closes the standard input, upon which the process must end in time. One
// that does not is killed.
func (p *Process) Stop(within time.Duration) error {
	_ = p.stdin.Close() // it may have ended already
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.exited:
		return nil
	case <-late.C:
		p.Kill()
		return fmt.Errorf("the process did not end within %v of the end of its standard input", within)
	}
}

// Diagnostics returns the end of what the process wrote to standard error.
func (p *Process) Diagnostics() string { return p.stderr.String() }

// Kill ends the process if it has not ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
}

// A firstLine hands on the first line written to it and drops the rest.
type firstLine struct {
	got  chan []byte // 1-buffered; never closed
	line []byte
	done bool
}

func (f *firstLine) Write(data []byte) (int, error) {
	if f.done {
		return len(data), nil
	}
	f.line = append(f.line, data...)
	if i := bytes.IndexByte(f.line, '\n'); i >= 0 {
		f.line = f.line[:i]
		f.done = true
	} else if len(f.line) > maxReadyLine {
		f.done = true
	}
	if f.done {
		f.got <- f.line
	}
	return len(data), nil
}

// A tail keeps the end of what is written to it. It may be read meanwhile.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, data...)
	if extra := len(t.text) - maxDiagnostics; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
