package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// exitTimeout is how long Close waits for a process after its input has ended.
const exitTimeout = 5 * time.Second

// A Process is a server that runs as a child process and speaks on its standard
// streams.
type Process struct {
	*Lines
	cmd         *exec.Cmd
	stdin       io.Closer
	exitTimeout time.Duration
	exited      chan struct{} // closed when the child has ended and err is set
	err         error
	once        sync.Once
}

// Start runs cmd, whose Stdin and Stdout must not be set. ctx bounds the start; use
// exec.CommandContext to end the child with a context. The caller must call Close.
func Start(ctx context.Context, cmd *exec.Cmd) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{Lines: NewLines(stdout, stdin), cmd: cmd, stdin: stdin, exitTimeout: exitTimeout, exited: make(chan struct{})}
	go p.reap() // ends when the child has closed its output and ended, which Close forces
	return p, nil
}

// reap waits for the end of the output, as os/exec requires, and then for the
// child.
func (p *Process) reap() {
	p.finished.Wait()
	p.err = p.cmd.Wait()
	close(p.exited)
}

// CloseInput ends the child's standard input, which asks the child to end.
func (p *Process) CloseInput() error { return p.stdin.Close() }

// Wait waits until the child has ended or ctx ends. It returns nil for exit code 0,
// and an *exec.ExitError for another. The caller must receive the child's output
// meanwhile.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the child's input, discards its remaining output, and kills it if it
// has not ended after 5 s. It returns how the child ended, like Wait.
func (p *Process) Close() error {
	p.once.Do(func() {
		_ = p.CloseInput() // fails if the child has ended already
		grace, cancel := context.WithTimeout(context.Background(), p.exitTimeout)
		defer cancel()
		for {
			if _, err := p.ReceiveText(grace); err != nil {
				break
			}
		}
		if err := p.Wait(grace); errors.Is(err, context.DeadlineExceeded) {
			_ = p.cmd.Process.Kill() // fails if the child has just ended
			_ = p.Raw.Close()        // a grandchild may hold the output open
		}
	})
	<-p.exited
	return p.err
}
