package utility

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/pty"
)

const (
	// killDelay is the time between the request to end a command and the kill of
	// its processes (R87).
	killDelay = time.Second

	// drainDelay is the same when all commands end: by interrupt, cancel, a drain
	// or the end of the session.
	drainDelay = 2 * time.Second

	// lingerDelay is how long a command's output stays open after its exit, for
	// output of its background processes.
	lingerDelay = 2 * time.Second
)

// A command is one utility command, from its start to its last event:
//
//	utility_command_started
//	utility_command_output...     of both streams
//	utility_command_exited
type command struct {
	ownedID
	host  *Host
	spec  spec
	stdin *stdin // nil unless stdin is allowed

	resizing sync.Mutex    // held while a resize is published; locked before all others
	term     *pty.Terminal // guarded by resizing; nil without a terminal, and after the command has ended

	living    context.Context // ends when no process is left
	endLiving context.CancelFunc
	asked     context.Context // ends when the command is asked to end, or with living
	ask       context.CancelFunc
	forced    context.Context // ends when the command is to be killed
	force     context.CancelFunc

	mu     sync.Mutex
	grace  time.Duration // time from asked to the kill; set before asked ends
	reason string        // why the command was ended; "" if it ended by itself
	ended  bool          // the process has exited, so that reason is final
}

// An ending says why and how to end a command.
type ending struct {
	reason string
	ours   bool // reason replaces an earlier one
	force  bool
	grace  time.Duration // unless force
}

// startCommand serves utility_command_start.
func (h *Host) startCommand(c *call, cmd *contracts.UtilityCommandStart) error {
	spec, err := h.newSpec(cmd)
	if err != nil {
		return err
	}
	run := &command{
		ownedID: ownedID{id: cmd.CommandID, owner: c.owner, gone: make(chan struct{})},
		host:    h, spec: spec,
	}
	run.living, run.endLiving = context.WithCancel(h.ctx)
	run.asked, run.ask = context.WithCancel(run.living)
	run.forced, run.force = context.WithCancel(run.living)
	if cmd.AllowStdin {
		run.stdin = newStdin(spec.size != nil)
	}
	if err := register(h, c, &h.commands, run); err != nil {
		run.endLiving()
		return err
	}
	group, outputs, failed := run.launch()
	if failed != nil && spec.size != nil { // without a terminal no event is published
		run.drop()
		return noTerminal(run.id, failed)
	}
	started := spec.started(c.owner)
	if failed == nil {
		started.PID = int64(group.ID())
	}
	if err := h.publish(c.ctx, started); err != nil {
		if failed == nil {
			group.Stop(0, nil)
			closeOutputs(outputs)
			run.stdin.close()
		}
		run.drop()
		return err
	}
	go run.run(group, outputs, failed) // ends with the command, which Disown, Stop and Close end; Host.work counts it
	return nil
}

// drop frees the id of a command of which no event was published.
func (c *command) drop() {
	c.endLiving()
	unregister(c.host, &c.host.commands, c, nil)
}

// terminateCommand serves utility_command_terminate. It does not wait for the
// end.
func (h *Host) terminateCommand(owner string, cmd *contracts.UtilityCommandTerminate) error {
	c, err := owned(h, &h.commands, owner, cmd.CommandID, "command")
	if err != nil || c == nil {
		return err
	}
	reason := "Terminated by controller"
	if cmd.Force {
		reason = "Force terminated by controller"
	}
	c.end(ending{reason: reason, force: cmd.Force, grace: killDelay})
	return nil
}

// writeCommand serves utility_command_stdin. It does not wait until the command
// has read.
func (h *Host) writeCommand(owner string, cmd *contracts.UtilityCommandStdin) error {
	c, err := h.running(owner, cmd.CommandID)
	switch {
	case err != nil:
		return err
	case c.stdin == nil:
		return refuse(contracts.CodeBadRequest, cmd.CommandID, "Utility command stdin is not enabled: "+cmd.CommandID)
	}
	return c.stdin.put(cmd)
}

// resizeCommand serves utility_command_resize.
func (h *Host) resizeCommand(ctx context.Context, owner string, cmd *contracts.UtilityCommandResize) error {
	c, err := h.running(owner, cmd.CommandID)
	switch {
	case err != nil:
		return err
	case c.spec.size == nil:
		return refuse(contracts.CodeBadRequest, cmd.CommandID, "Utility command resize is only supported for PTY commands: "+cmd.CommandID)
	}
	size, text := sizeOf(&cmd.Columns, &cmd.Rows)
	if text != "" {
		return refuse(contracts.CodeBadRequest, cmd.CommandID, text)
	}
	return c.resize(ctx, size)
}

// running returns a command that owner owns.
func (h *Host) running(owner, id string) (*command, error) {
	c, err := owned(h, &h.commands, owner, id, "command")
	if err == nil && c == nil {
		err = notFound(id)
	}
	return c, err
}

func notFound(id string) error {
	return refuse(contracts.CodeNotFound, id, "Utility command not found: "+id)
}

// resize sets the terminal's size and publishes the resulting one. The
// command's last event is published after it.
func (c *command) resize(ctx context.Context, size pty.Size) error {
	c.resizing.Lock()
	defer c.resizing.Unlock()
	if c.term == nil {
		return notFound(c.id)
	}
	size, err := c.term.Resize(size)
	if err != nil {
		return refuse(contracts.CodeInternal, c.id, "Utility command could not be resized: "+c.id)
	}
	return c.host.publish(ctx, &contracts.UtilityCommandResized{CommandID: c.id, Columns: int64(size.Columns), Rows: int64(size.Rows)})
}

// leaveTerminal makes later resizes fail.
func (c *command) leaveTerminal() {
	c.resizing.Lock()
	defer c.resizing.Unlock()
	c.term = nil
}

// halt implements [entry].
func (c *command) halt(reason string, grace time.Duration) {
	c.end(ending{reason: reason + " while utility command was still running", ours: true, grace: grace})
}

// end asks the command to end. The first ending sets the grace period; a later
// one can only force the kill.
func (c *command) end(e ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && (e.ours || c.reason == "") {
		c.reason = e.reason
	}
	if e.force {
		c.force() // before ask, because supervise looks at forced after asked
	}
	if c.asked.Err() == nil {
		c.grace = e.grace
		c.ask()
	}
}

// run is the command's goroutine: it supervises the processes, unless they
// failed to start, and publishes the last event.
func (c *command) run(group *proc.Group, outputs []*output, failed error) {
	defer c.endLiving()
	last := &contracts.UtilityCommandExited{CommandID: c.id}
	if failed != nil {
		last.Reason = failed.Error()
	} else {
		c.supervise(group, outputs)
		c.describe(last, group)
	}
	unregister(c.host, &c.host.commands, c, last)
}

// launch starts the processes. The caller closes the outputs.
func (c *command) launch() (group *proc.Group, outputs []*output, err error) {
	var theirs []*os.File // inherited by the processes
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeOutputs(outputs)
			c.stdin.close()
		}
	}()
	cmd, err := c.spec.command()
	if err != nil {
		return nil, nil, err
	}
	dir, err := c.host.ws.OpenFile(c.spec.rel)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	cmd.Dir = directory(dir, c.spec.dir)
	defer func() { // clients know the directory by its path
		if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Path == cmd.Dir {
			failed.Path = c.spec.dir
		}
	}()
	if c.spec.size != nil {
		term, err := pty.Start(cmd, *c.spec.size)
		if err != nil {
			return nil, nil, err
		}
		c.term = term
		c.stdin.opened(keyboard{term})
		return term.Group(), []*output{{stream: contracts.StreamStdout, from: term}}, nil
	}
	for _, stream := range []contracts.Stream{contracts.StreamStdout, contracts.StreamStderr} {
		ours, their, err := os.Pipe()
		if err != nil {
			return nil, outputs, err
		}
		theirs = append(theirs, their)
		outputs = append(outputs, &output{stream: stream, from: pipe{ours}})
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	if c.stdin != nil {
		their, err := c.stdin.open()
		if err != nil {
			return nil, outputs, err
		}
		theirs = append(theirs, their)
		cmd.Stdin = their
	}
	group, err = proc.Start(cmd)
	return group, outputs, err
}

// noTerminal returns the refusal of a command whose terminal or program could
// not be started.
func noTerminal(id string, err error) error {
	switch {
	case errors.Is(err, pty.ErrUnsupported):
		return refuse(contracts.CodeUnsupportedCapability, id, "PTY utility commands are not supported on Windows")
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return refuse(contracts.CodeNotFound, id, err.Error())
	}
	return refuse(contracts.CodeOverloaded, id, err.Error())
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written through it
	}
}

func closeOutputs(outputs []*output) {
	for _, o := range outputs {
		_ = o.from.Close() // it is only read
	}
}

// supervise waits for the processes and their output. When it returns, no
// process of the group is left, and all output has been published unless
// publishing failed.
func (c *command) supervise(group *proc.Group, outputs []*output) {
	var pumps, input sync.WaitGroup
	for _, o := range outputs {
		pumps.Go(func() { c.pump(o) }) // ends with the stream, or after expire
	}
	if c.stdin != nil {
		input.Go(c.stdin.run) // ends with close
	}
	drained := make(chan struct{})
	go func() { // ends with the pumps
		pumps.Wait()
		close(drained)
	}()
	if limit := c.host.opts.MaxRunTime; limit > 0 {
		timer := time.AfterFunc(limit, func() {
			c.end(ending{reason: "Utility command ran longer than " + limit.String(), ours: true, grace: killDelay})
		})
		defer timer.Stop()
	}

	select {
	case <-group.Exited():
		c.linger(outputs, drained)
	case <-c.asked.Done():
	}
	grace := time.Duration(0)
	if c.forced.Err() == nil {
		grace = c.timeToEnd()
	}
	group.Stop(grace, c.forced.Done())
	c.endLiving()
	for _, o := range outputs {
		o.expire()
	}
	<-drained
	c.leaveTerminal()
	closeOutputs(outputs)
	c.stdin.close()
	input.Wait()
}

// timeToEnd returns the grace period of the processes.
func (c *command) timeToEnd() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.Err() == nil {
		return killDelay // for background processes of a command that exited
	}
	return c.grace
}

// linger waits for output of processes that outlive the command's own. Time
// during which an output waited for the owner to read does not count.
func (c *command) linger(outputs []*output, drained <-chan struct{}) {
	c.mu.Lock()
	c.ended = c.asked.Err() == nil
	c.mu.Unlock()
	ends := make([]time.Time, len(outputs)) // per output: the end of lingerDelay, without the time it waited for the owner
	for i, o := range outputs {
		ends[i] = time.Now().Add(lingerDelay - o.heldFor())
	}
	late := time.NewTimer(lingerDelay)
	defer late.Stop()
	for {
		select {
		case <-drained:
			return
		case <-c.asked.Done():
			return
		case <-late.C:
		}
		left := time.Duration(0)
		for i, o := range outputs {
			left = max(left, time.Until(ends[i].Add(o.heldFor())))
		}
		if left <= 0 {
			return
		}
		late.Reset(left)
	}
}

// describe fills in the exit status and reason of the command.
func (c *command) describe(last *contracts.UtilityCommandExited, group *proc.Group) {
	code, signal := group.Status()
	if signal != "" {
		last.Signal = &signal
	} else {
		last.ExitCode, last.Success = new(int64(code)), code == 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last.Reason = c.reason
}
