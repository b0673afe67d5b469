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

// exitGrace is how long Close waits for a process whose input has ended.
const exitGrace = 5 * time.Second

// A Process is a server started as a child, spoken to on its standard streams.
type Process struct {
	*Lines
	cmd    *exec.Cmd
	stdin  io.Closer
	grace  time.Duration
	exited chan struct{} // closed when the child has ended and err is set
	err    error
	once   sync.Once
}

// Start runs cmd, whose Stdin and Stdout must not be set. ctx bounds the
// start; to end the child with a context, make cmd with exec.CommandContext.
// Close must be called in the end.
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
	p := &Process{Lines: NewLines(stdout, stdin), cmd: cmd, stdin: stdin, grace: exitGrace, exited: make(chan struct{})}
	go p.reap() // ends when the child has closed its output and ended, which Close forces
	return p, nil
}

// reap waits for the end of the output, as the standard library asks, and then
// for the child.
func (p *Process) reap() {
	p.finished.Wait()
	p.err = p.cmd.Wait()
	close(p.exited)
}

// CloseInput ends the child's standard input, which asks it to finish.
func (p *Process) CloseInput() error { return p.stdin.Close() }

// Wait returns how the child ended: nil for exit code 0, an *exec.ExitError for
// another. It waits no longer than ctx. What the child still writes must be
// received meanwhile.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the child's input, discards what it still writes, and kills it
// when it has not ended after five seconds. It returns how the child ended.
func (p *Process) Close() error {
	p.once.Do(func() {
		_ = p.CloseInput() // fails if the child has ended, which is what we want
		grace, cancel := context.WithTimeout(context.Background(), p.grace)
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
