package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

const (
	// killDelay is how long processes have between being asked to end and
	// being killed.
	killDelay = time.Second

	// lingerDelay is how long a command's output stays open after its exit, for
	// what its background processes still say.
	lingerDelay = 2 * time.Second

	// pollDelay is how often a group that was asked to end is looked at.
	pollDelay = 10 * time.Millisecond
)

// A command is a line for the shell. Its standard input is empty and its two
// outputs are one pipe, so that they arrive in the order they were written in.
type command struct {
	Shell string // as in Options
	Line  string
	Dir   string
	Env   []string
}

// An exit is how a command ended.
type exit struct {
	Code   int           // -1 when a signal ended it
	Signal string        // such as SIGKILL; "" when none did
	Took   time.Duration // until its output had ended, too
}

// Success reports whether the command ended on its own with code 0.
func (e exit) Success() bool { return e.Code == 0 && e.Signal == "" }

// Run runs the command and passes what it writes to emit, in pieces of at most
// [contracts.MaxTextBytes] bytes of valid UTF-8. emit is called by Run's own
// goroutine; while it blocks the command's writes do too, once the pipe is full.
//
// When ctx ends or emit fails the command and all of its process group are asked
// to end and, a second later, killed; so is what a command leaves in the
// background when it exits. No process of the group and no goroutine is left
// when Run returns. The error is that of starting, of emit, or the cause of ctx.
func (c command) Run(ctx context.Context, emit func(text string) error) (exit, error) {
	output, input, err := os.Pipe()
	if err != nil {
		return exit{}, fmt.Errorf("open pipe: %w", err)
	}
	defer output.Close()
	cmd := shellCommand(c.Shell, c.Line)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = input, input

	began := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	g, err := startGroup(&wg, cmd)
	_ = input.Close() // the group has its own
	if err != nil {
		return exit{}, err
	}
	drained := make(chan struct{})
	wg.Go(func() { g.supervise(ctx, drained, output) }) // ends when the group has, or after ctx
	if err := pump(output, emit); err != nil {
		stop(err)
	}
	close(drained)
	wg.Wait()

	code, signal := exitStatus(cmd.ProcessState)
	return exit{Code: code, Signal: signal, Took: time.Since(began)}, context.Cause(ctx)
}

// A group is a running command with the processes it started, as far as they
// did not leave its process group.
type group struct {
	leader *os.Process   // its id is that of the group
	exited chan struct{} // closed once the leader was waited for
}

// startGroup starts cmd as the leader of a group of its own. The goroutine that
// waits for it is in wg and ends with the leader.
func startGroup(wg *sync.WaitGroup, cmd *exec.Cmd) (*group, error) {
	g := &group{exited: make(chan struct{})}
	cmd.SysProcAttr = groupAttr(cmd.SysProcAttr)
	started := make(chan error)
	wg.Go(func() {
		// Linux kills the leader when the thread that started it ends, so the
		// thread must live as long as the leader does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
			close(g.exited)
		}
	})
	if err := <-started; err != nil {
		wg.Wait()
		return nil, err
	}
	g.leader = cmd.Process
	return g, nil
}

// supervise sees the group to its end, which comes when the leader has exited
// and the output was drained, or when ctx ends. It then closes output, which
// ends the reading of a pipe that a process outside the group still holds.
func (g *group) supervise(ctx context.Context, drained <-chan struct{}, output io.Closer) {
	select {
	case <-g.exited:
		g.linger(ctx, drained)
	case <-ctx.Done():
	}
	g.stop()
	<-g.exited
	_ = output.Close() // it is only read
}

// linger waits for the output of processes that outlive the leader.
func (g *group) linger(ctx context.Context, drained <-chan struct{}) {
	late := time.NewTimer(lingerDelay)
	defer late.Stop()
	select {
	case <-drained:
	case <-late.C:
	case <-ctx.Done():
	}
}

// stop asks every process of the group to end, and kills what is left of it a
// second later. It returns as soon as the group is empty.
//
// The leader may have been waited for already. The group's id is still right: no
// process gets the id of a group that has members, and as systems hand ids out
// in turn, that of an empty group is not seen again soon.
func (g *group) stop() {
	if !terminateGroup(g.leader) {
		return
	}
	late := time.NewTimer(killDelay)
	defer late.Stop()
	look := time.NewTicker(pollDelay)
	defer look.Stop()
	for groupExists(g.leader) {
		select {
		case <-look.C:
		case <-late.C:
			g.kill()
			return
		}
	}
}

// kill ends every process of the group at once. It does not wait for that.
func (g *group) kill() { killGroup(g.leader) }

// findShell returns the shell to run command lines with: preferred, else
// $SHELL, else /bin/bash, of which the first that can be run counts, else sh.
func findShell(preferred string) string {
	for _, path := range []string{preferred, os.Getenv("SHELL"), "/bin/bash"} {
		if path == "" {
			continue
		}
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return "sh"
}
