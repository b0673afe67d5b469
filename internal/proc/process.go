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

// Bounds on what waits for a process, and on what is kept and logged of what it
// tells people.
const (
	maxQueueBytes = 64 << 20         // in lines that it has not read, each with lineCost
	lineCost      = 64               // bytes that a line takes beside its own
	maxWaiting    = 256              // lines that may wait for ever; with more it has to read within stallTime
	stallTime     = 10 * time.Second // a pipe tells of what is read in pages of 4 KiB
	maxStderrLine = 4 << 10          // bytes of a line of standard error
	maxStderrRate = 100              // lines of it in stderrWindow
	stderrWindow  = 10 * time.Second
)

// DrainTime is how long what a process said is still listened to after its end,
// and how long a process may go on that nobody listens to.
const DrainTime = time.Second

// termGrace is the time between being asked to end by a signal and being killed.
const termGrace = time.Second

// ProcessOptions are what a process needs beside its command.
type ProcessOptions struct {
	Name string // what errors and the log call it, such as "agent process"

	// Log receives what it writes to standard error, at debug: the beginning of
	// each line, and of a flood of lines the first ones.
	Log *slog.Logger

	stall time.Duration // stallTime if zero
}

// A Process is a command that is spoken to on its standard streams, line by line.
// It leads a group of its own, which ends with it. Start is called once; the
// other methods may be called from any goroutine.
//
// Five goroutines serve it: one waits for its exit, three serve its streams, and
// bury, which closes Done, sees to it that all end when the process does.
type Process struct {
	cmd     *exec.Cmd
	opts    ProcessOptions
	group   *Group
	streams sync.WaitGroup // the three

	stdin, stdout, stderr *os.File

	more    chan struct{} // 1-buffered; a token means that there are lines for stdin; never closed
	written chan struct{} // closed when no more of them are passed on

	ends, kills sync.Once
	grace       time.Duration // until it is made to end; valid once ending is closed
	late        error         // why, then; likewise
	ending      chan struct{} // closed when it is to end, or nobody listens to it
	killed      chan struct{} // closed when it is to end at once

	life context.Context
	die  context.CancelFunc
	done chan struct{}

	mu          sync.Mutex
	queue       [][]byte // lines for stdin
	queuedBytes int      // in them, and in the one that is being written; at most maxQueueBytes
	cause       error
	lastWords   string
}

// NewProcess returns a process that is to run cmd, whose streams are not set.
func NewProcess(cmd *exec.Cmd, o ProcessOptions) *Process {
	o.stall = cmp.Or(o.stall, stallTime)
	p := &Process{
		cmd: cmd, opts: o, more: make(chan struct{}, 1), written: make(chan struct{}),
		ending: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{}),
	}
	p.life, p.die = context.WithCancel(context.Background())
	return p
}

// Start starts the process. listen reads its output, in a goroutine of the
// process, until that ends or what it says is of no use any more. While listen
// does not read, the process may have to wait.
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
	p.streams.Go(p.write)                     // ends with the process, or when that is to end
	p.streams.Go(func() { p.listen(listen) }) // ends at end of file, which bury sees to
	p.streams.Go(p.readStderr)                // likewise
	go p.bury()                               // ends with the process
	return nil
}

// pipes makes the three streams and returns the process's ends of them.
//
// They are not the pipes of [exec.Cmd], because its Wait would close them under
// the reader before the last lines were read.
func (p *Process) pipes() (theirs []*os.File, err error) {
	var ours []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...))
			return nil, err
		}
		if len(ours) == 0 {
			r, w = w, r // stdin is the one we write
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing unwritten is behind them, and there may be none
	}
}

// bury waits for the end of the process, or brings it about once that is wanted,
// and then waits for the end of the streams.
func (p *Process) bury() {
	select {
	case <-p.group.Exited():
		p.exited()
		p.group.Stop(0, nil) // what it left behind could hold the streams open
	case <-p.ending:
		p.stop()
	}
	until := time.Now().Add(DrainTime)
	_ = p.stdout.SetReadDeadline(until) // pipes have deadlines where there are process groups
	_ = p.stderr.SetReadDeadline(until)
	p.die()
	_ = p.stdin.Close() // frees a write that blocks
	p.streams.Wait()
	closeAll([]*os.File{p.stdout, p.stderr})
	close(p.done)
}

// stop sees to the end of the process, whose input ends: it has its grace, is then
// asked by a signal, and killed in the end.
func (p *Process) stop() {
	late := time.NewTimer(p.grace)
	defer late.Stop()
	grace := termGrace
	select {
	case <-p.group.Exited():
		p.exited()
	case <-p.killed:
		grace = 0
	case <-late.C:
		p.note(p.late)
	}
	p.group.Stop(grace, p.killed)
}

// exited notes that the process has ended by itself.
func (p *Process) exited() {
	p.note(fmt.Errorf("%s exited: %s", p.opts.Name, p.cmd.ProcessState))
}

// note keeps why the process ends.
func (p *Process) note(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = cause
	}
}

// Send queues a line, with its end, for the process. It does not block. A process
// that leaves 64 MiB unread is killed, and so is one that has more than 256 lines
// to read and reads nothing for 10 s. Lines for one that has ended, or whose input
// has because it is to end, are dropped.
func (p *Process) Send(line []byte) error {
	if p.closed() {
		return nil
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
	default: // the writer looks anyhow
	}
	return nil
}

// killDeaf kills a process that does not read its input, and returns why.
func (p *Process) killDeaf() error {
	err := fmt.Errorf("%s does not read its input", p.opts.Name)
	p.Kill(err)
	return err
}

// closed reports whether the process is to end and its input has ended.
func (p *Process) closed() bool {
	select {
	case <-p.written:
	default:
		return false
	}
	select {
	case <-p.ending:
		return true
	default: // it closed its input itself, and goes on
		return false
	}
}

// End has the process end: its input ends after what is queued, which asks it to,
// and if it has not ended after grace it is ended, and late is why. The first
// call counts. It does not wait.
func (p *Process) End(grace time.Duration, late error) {
	p.ends.Do(func() {
		p.grace, p.late = grace, late
		close(p.ending)
	})
}

// Kill ends the process and all that it started without asking. The first cause
// is kept, and an exit is one. It does not wait.
func (p *Process) Kill(cause error) {
	p.note(cause)
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

// Ending is closed when the process is to end, or nobody listens to it any more.
func (p *Process) Ending() <-chan struct{} { return p.ending }

// Life ends when the process has ended, before Done.
func (p *Process) Life() context.Context { return p.life }

// Done is closed when nothing of the process is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Failure says why the process ended: how it exited, or why it was made to. It is
// meant for after that, and nil before.
func (p *Process) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Account is Failure for those who do not see the log. What the process told
// people may hold secrets, so that it only says where that is.
func (p *Process) Account() error {
	cause := p.Failure()
	if p.LastWords() != "" {
		return fmt.Errorf("%w; what it said on standard error is in the server's log", cause)
	}
	return cause
}

// LastWords returns the newest line that the process wrote to standard error and
// that is not blank, at most 4 KiB of it.
func (p *Process) LastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastWords
}

// write passes the queue on to the process and closes its input in the end.
func (p *Process) write() {
	defer p.stdin.Close()
	defer close(p.written)
	for {
		line, ok := p.next()
		if !ok {
			return
		}
		if err := p.pass(line); err != nil {
			p.opts.Log.Debug("write to "+p.opts.Name, "error", err)
			return
		}
		p.mu.Lock()
		p.queuedBytes -= len(line) + lineCost
		p.mu.Unlock()
	}
}

// next returns the next line to be written. Once the process is to end, there are
// those that were queued.
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

// pass writes a line to the process, which may take its time, unless too many
// other lines wait. Where pipes have no deadlines it may do so in any case.
func (p *Process) pass(line []byte) error {
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

// listen has the output read, and ends a process that nobody listens to any more,
// unless it is about to exit anyway. What it still writes is swallowed.
func (p *Process) listen(listen func(io.Reader)) {
	listen(p.stdout)
	p.End(DrainTime, fmt.Errorf("%s closed its output", p.opts.Name))
	_, _ = io.Copy(io.Discard, p.stdout) // ends with the process
}

// readStderr logs what the process tells people.
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
