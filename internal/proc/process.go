package proc

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Bounds of the queue for a process, and of its logged standard error.
const (
	maxQueueBytes = 64 << 20         // in unread lines, each with lineCost
	lineCost      = 64               // bytes that a line counts besides its own
	maxWaiting    = 256              // lines that may wait without a limit; with more, the process must read within stallTime
	stallTime     = 10 * time.Second // long, because a pipe reports reads in pages of 4 KiB
	maxStderrLine = 4 << 10          // bytes of a line of standard error
	maxStderrRate = 100              // lines of standard error logged in stderrWindow
	stderrWindow  = 10 * time.Second
)

// DrainTime is how long output is read after a process's end, and how long a
// process may run on after its output is no longer read.
const DrainTime = time.Second

// termGrace is the time between the signal to end and the kill.
const termGrace = time.Second

// ProcessOptions configure a process besides its command.
type ProcessOptions struct {
	Name string // the name in errors and the log, such as "agent process"

	// Log receives standard error at debug: the beginning of each line, and only
	// the first lines of a flood.
	Log *slog.Logger

	stall time.Duration // stallTime if zero
}

// A Process is a command that exchanges lines on its standard streams. It leads
// a group, which ends with it. Start is called once; the other methods may be
// called from any goroutine. Five goroutines serve it until Done is closed.
type Process struct {
	cmd     *exec.Cmd
	opts    ProcessOptions
	group   *Group
	streams sync.WaitGroup // waits for the three stream goroutines

	stdin, stdout, stderr *os.File

	more    chan struct{} // 1-buffered; a token means that there are lines for stdin; never closed
	written chan struct{} // closed when no more lines are written

	ends, kills sync.Once
	grace       time.Duration // time to end by itself; valid after ending is closed
	late        error         // cause if it does not end in grace; likewise
	ending      chan struct{} // closed when the process is to end, or its output is no longer read
	killed      chan struct{} // closed when the process is to be killed

	life context.Context
	die  context.CancelFunc
	done chan struct{}

	mu          sync.Mutex
	queue       [][]byte // lines for stdin
	queuedBytes int      // in queue and in the line being written; at most maxQueueBytes
	cause       error
	lastWords   string
}

// NewProcess returns a process that will run cmd, whose streams must not be
// set.
func NewProcess(cmd *exec.Cmd, o ProcessOptions) *Process {
	o.stall = cmp.Or(o.stall, stallTime)
	p := &Process{
		cmd: cmd, opts: o, more: make(chan struct{}, 1), written: make(chan struct{}),
		ending: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{}),
	}
	p.life, p.die = context.WithCancel(context.Background())
	return p
}

// Start starts the process. listen reads its output in a goroutine of the
// Process. While it does not read, the process may block.
func (p *Process) Start(listen func(stdout io.Reader)) error {
	theirs, err := p.pipes()
	if err == nil {
		p.group, err = Start(p.cmd)
		closeAll(theirs)
	}
	if err != nil {
		p.die()
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
		return fmt.Errorf("start %s: %w", p.opts.Name, err)
	}
	p.streams.Go(p.write)                     // ends with the process, or when the process is to end
	p.streams.Go(func() { p.listen(listen) }) // ends at end of file, at the latest by awaitEnd
	p.streams.Go(p.readStderr)                // likewise
	go p.awaitEnd()                           // ends with the process
	return nil
}

// pipes makes the three streams and returns the process's ends of them. The pipes
// of [exec.Cmd] would be closed by Wait before the last lines were read.
func (p *Process) pipes() (theirs []*os.File, err error) {
	var ours []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...))
			return nil, err
		}
		if len(ours) == 0 {
			r, w = w, r // we write to stdin
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing unwritten is in them; some may be nil
	}
}

// awaitEnd waits for the end of the process, or stops it when it is to end, and
// then waits for the end of the streams.
func (p *Process) awaitEnd() {
	select {
	case <-p.group.Exited():
		p.exited()
		p.group.Stop(0, nil) // its remaining children could hold the streams open
	case <-p.ending:
		p.stop()
	}
	until := time.Now().Add(DrainTime)
	_ = p.stdout.SetReadDeadline(until) // pipes have deadlines on systems with process groups
	_ = p.stderr.SetReadDeadline(until)
	p.die()
	_ = p.stdin.Close() // ends a blocked write
	p.streams.Wait()
	closeAll([]*os.File{p.stdout, p.stderr})
	close(p.done)
}

// stop ends the process after its input has ended: it waits for grace, then
// sends a signal, then kills.
func (p *Process) stop() {
	grace := termGrace
	select {
	case <-p.group.Exited():
		p.exited()
	case <-p.killed:
		grace = 0
	case <-time.After(p.grace):
		p.setCause(p.late)
	}
	p.group.Stop(grace, p.killed)
}

// exited records the exit as the cause.
func (p *Process) exited() {
	p.setCause(fmt.Errorf("%s exited: %s", p.opts.Name, p.cmd.ProcessState))
}

// setCause records why the process ends. The first cause counts.
func (p *Process) setCause(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = cause
	}
}

// Send queues a line, with its end, for the process. It does not block. A
// process that leaves 64 MiB unread is killed, and so is one that has more than
// 256 lines to read and reads nothing for 10 s. If the process or its input has
// ended, the line is dropped.
func (p *Process) Send(line []byte) error {
	select {
	case <-p.written:
		return nil
	default:
	}
	p.mu.Lock()
	room := p.queuedBytes+len(line)+lineCost <= maxQueueBytes
	if room {
		p.queue = append(p.queue, line)
		p.queuedBytes += len(line) + lineCost
	}
	p.mu.Unlock()
	if !room {
		return p.killDeaf()
	}
	select {
	case p.more <- struct{}{}:
	default: // the writer checks the queue anyway
	}
	return nil
}

// killDeaf kills a process that does not read its input, and returns the cause.
func (p *Process) killDeaf() error {
	err := fmt.Errorf("%s does not read its input", p.opts.Name)
	p.Kill(err)
	return err
}

// End asks the process to end by closing its input after the queued lines. If
// it has not ended after grace, it is ended with the cause late. The first call
// counts. End does not wait.
func (p *Process) End(grace time.Duration, late error) {
	p.ends.Do(func() {
		p.grace, p.late = grace, late
		close(p.ending)
	})
}

// Kill kills the process and all that it started. The first cause counts, an
// exit included. Kill does not wait.
func (p *Process) Kill(cause error) {
	p.setCause(cause)
	p.kills.Do(func() { close(p.killed) })
	p.End(0, cause)
}

// Shutdown is End, and Kill if ctx ends first. It returns when nothing of the
// process is left.
func (p *Process) Shutdown(ctx context.Context, grace time.Duration, late error) {
	p.End(grace, late)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	p.Kill(late)
	<-p.done
}

// Ending is closed when the process is to end, or its output is no longer read.
func (p *Process) Ending() <-chan struct{} { return p.ending }

// Life ends when the process has ended, before Done is closed.
func (p *Process) Life() context.Context { return p.life }

// Done is closed when nothing of the process is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Failure returns why the process ended: its exit, or why it was ended. It is
// nil before that.
func (p *Process) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Account is Failure for clients, who do not see the log. Standard error may hold
// secrets, so Account only says where it is.
func (p *Process) Account() error {
	cause := p.Failure()
	if p.LastWords() != "" {
		return fmt.Errorf("%w; what it said on standard error is in the server's log", cause)
	}
	return cause
}

// LastWords returns the last non-blank line of standard error, at most 4 KiB of
// it.
func (p *Process) LastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastWords
}

// write writes the queued lines to the process and finally closes its input.
func (p *Process) write() {
	defer p.stdin.Close()
	defer close(p.written)
	for {
		line, ok := p.next()
		if !ok {
			return
		}
		if err := p.writeLine(line); err != nil {
			p.opts.Log.Debug("cannot write to "+p.opts.Name, "error", err)
			return
		}
		p.mu.Lock()
		p.queuedBytes -= len(line) + lineCost
		p.mu.Unlock()
	}
}

// next returns the next line to write. Once the process is to end, it returns
// only the lines that are queued already.
func (p *Process) next() (line []byte, ok bool) {
	for ending := false; ; {
		p.mu.Lock()
		if ok = len(p.queue) > 0; ok {
			line, p.queue[0] = p.queue[0], nil
			p.queue = p.queue[1:]
		}
		p.mu.Unlock()
		if ok || ending {
			return line, ok
		}
		select {
		case <-p.more:
		case <-p.life.Done():
			return nil, false
		case <-p.ending:
			ending = true
		}
	}
}

// writeLine writes a line to the process. It fails if the process reads nothing
// for the stall time while too many lines wait, on systems whose pipes have deadlines.
func (p *Process) writeLine(line []byte) error {
	for {
		_ = p.stdin.SetWriteDeadline(time.Now().Add(p.opts.stall))
		n, err := p.stdin.Write(line)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		line = line[n:]
		p.mu.Lock()
		waiting := len(p.queue)
		p.mu.Unlock()
		if n == 0 && waiting > maxWaiting {
			return p.killDeaf()
		}
	}
}

// listen runs the listener, discards the rest of the output, and ends the process
// unless it exits by itself within DrainTime.
func (p *Process) listen(listen func(io.Reader)) {
	listen(p.stdout)
	p.End(DrainTime, fmt.Errorf("%s closed its output", p.opts.Name))
	_, _ = io.Copy(io.Discard, p.stdout) // ends with the process
}

// readStderr logs standard error.
func (p *Process) readStderr() {
	lines := bufio.NewReaderSize(p.stderr, maxStderrLine)
	var since time.Time
	said := 0
	for {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return
		}
		text := string(bytes.ToValidUTF8(bytes.TrimSpace(line), []byte("\uFFFD")))
		if now := time.Now(); now.Sub(since) > stderrWindow {
			since, said = now, 0
		}
		if text != "" {
			p.mu.Lock()
			p.lastWords = text
			p.mu.Unlock()
			said++
		}
		switch {
		case text == "":
		case said <= maxStderrRate:
			p.opts.Log.Debug(p.opts.Name+" says", "stderr", text)
		case said == maxStderrRate+1:
			p.opts.Log.Debug(p.opts.Name + " says more than is logged")
		}
		for isPrefix && err == nil {
			_, isPrefix, err = lines.ReadLine()
		}
	}
}
