// Package command runs the command lines of agents and ends what they leave behind.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	// killDelay is how long processes have between being asked to end and
	// being killed.
	killDelay = time.Second

	// lingerDelay is how long a command's output stays open after its exit, for
	// what its background processes still say.
	lingerDelay = 2 * time.Second
)

// A Command is a line for the shell. Its standard input is empty and its two
// outputs are one pipe, so that they arrive in the order they were written in.
type Command struct {
	Shell string // as in Options
	Line  string
	Dir   string
	Env   []string
}

// An Exit is how a command ended.
type Exit struct {
	Code   int           // -1 when a signal ended it
	Signal string        // such as SIGKILL; "" when none did
	Took   time.Duration // until its output had ended, too
}

// Success reports whether the command ended on its own with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == "" }

// Run runs the command and passes what it writes to emit, in pieces of at most
// [contracts.MaxTextBytes] bytes of valid UTF-8. emit is called by Run's own
// goroutine; while it blocks the command's writes do too, once the pipe is full.
//
// When ctx ends or emit fails the command and all of its process group are asked
// to end and, a second later, killed; so is what a command leaves in the
// background when it exits. No process of the group and no goroutine is left
// when Run returns. The error is that of starting, of emit, or the cause of ctx.
func (c Command) Run(ctx context.Context, emit func(text string) error) (Exit, error) {
	output, input, err := os.Pipe()
	if err != nil {
		return Exit{}, fmt.Errorf("open pipe: %w", err)
	}
	defer output.Close()
	cmd := proc.ShellCommand(c.Shell, c.Line)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = input, input

	began := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	g, err := proc.Start(cmd)
	_ = input.Close() // the group has its own
	if err != nil {
		return Exit{}, err
	}
	drained := make(chan struct{})
	wg.Go(func() { supervise(ctx, g, drained, output) }) // ends when the group has, or after ctx
	if err := pump(output, emit); err != nil {
		stop(err)
	}
	close(drained)
	wg.Wait()

	code, signal := g.Status()
	return Exit{Code: code, Signal: signal, Took: time.Since(began)}, context.Cause(ctx)
}

// supervise sees the group to its end, which comes when the leader has exited
// and the output was drained, or when ctx ends. It then closes output, which
// ends the reading of a pipe that a process outside the group still holds.
func supervise(ctx context.Context, g *proc.Group, drained <-chan struct{}, output io.Closer) {
	select {
	case <-g.Exited():
		linger(ctx, drained)
	case <-ctx.Done():
	}
	g.Stop(killDelay, nil)
	_ = output.Close() // it is only read
}

// linger waits for the output of processes that outlive the leader.
func linger(ctx context.Context, drained <-chan struct{}) {
	late := time.NewTimer(lingerDelay)
	defer late.Stop()
	select {
	case <-drained:
	case <-late.C:
	case <-ctx.Done():
	}
}
