// Package command runs the command lines of agents and ends the processes that they
// leave behind.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// MaxLine is the most bytes that a command line should have, below what systems
// accept as one argument: 128 KiB on Linux.
const MaxLine = 100_000

const (
	// killDelay is how long processes have to end before they are killed.
	killDelay = time.Second

	// lingerDelay is how long a command's background processes may write output
	// after the command has exited.
	lingerDelay = 2 * time.Second

	// gatherDelay is how long output waits for more of it, so that a command that
	// writes single bytes does not cost an event each.
	gatherDelay = 20 * time.Millisecond
)

// A Command is a line for the shell. Its standard input is empty. Its two outputs
// are one pipe, so that they arrive in the order of the writes.
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
	Took   time.Duration // until its output had also ended
}

// Success reports whether the command ended on its own with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == "" }

// Run runs the command and passes its output to emit, in pieces of at most
// [contracts.MaxTextBytes] bytes of valid UTF-8. Run's own goroutine calls emit.
// While emit blocks, the command's writes block once the pipe is full.
//
// When ctx ends or emit fails, Run asks all processes of the command's group to end
// and kills them a second later. It does the same to background processes after the
// command has exited. No process of the group and no goroutine is left when Run
// returns. The error is that of starting, of emit, or the cause of ctx.
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
	wg.Go(func() { // ends when the group has, or after ctx
		select {
		case <-g.Exited():
		case <-ctx.Done():
		}
		select {
		case <-drained:
		case <-ctx.Done():
		case <-time.After(lingerDelay):
		}
		g.Stop(killDelay, nil)
		_ = output.Close() // ends the reading of a pipe that a process outside the group holds
	})
	if err := pump(output, emit); err != nil {
		stop(err)
	}
	close(drained)
	wg.Wait()

	code, signal := g.Status()
	return Exit{Code: code, Signal: signal, Took: time.Since(began)}, context.Cause(ctx)
}

// pump passes the output of the pipe to emit until the pipe ends or is closed.
func pump(pipe *os.File, emit func(text string) error) error {
	buf := make([]byte, contracts.MaxTextBytes)
	var text proc.Text
	for {
		n, err := gather(pipe, buf)
		piece := text.Decode(buf[:n], err != nil)
		for _, piece := range contracts.SplitText(piece, contracts.MaxTextBytes) {
			if err := emit(piece); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read output: %w", err)
		}
	}
}

// gather reads until buf is full or gatherDelay has passed since the first bytes
// came. Where pipes have no deadlines it returns the first bytes.
func gather(pipe *os.File, buf []byte) (n int, err error) {
	_ = pipe.SetReadDeadline(time.Time{}) // a pipe without deadlines has none to clear
	n, err = pipe.Read(buf)
	if err != nil || pipe.SetReadDeadline(time.Now().Add(gatherDelay)) != nil {
		return n, err
	}
	for n < len(buf) && err == nil {
		var more int
		more, err = pipe.Read(buf[n:])
		n += more
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}
