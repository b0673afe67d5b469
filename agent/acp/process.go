package acp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	proc "github.com/seed-028515a8/maestro/internal/child"
)

// Bounds on what waits for a process and on what is kept of what it says.
const (
	maxQueued      = 256      // lines it has not read yet
	maxQueuedBytes = 64 << 20 // bytes in them; the files of one prompt fit
	maxStderrLine  = 4 << 10  // bytes of a line of stderr that are logged
	drainTime      = time.Second
)

// A process is one run of the agent's program. It leads a group of its own,
// which ends with it.
//
// Five goroutines serve it: one waits for its end, three serve its streams, and
// bury, which closes done, sees to it that all end when the process does.
type process struct {
	cmd     *exec.Cmd
	group   *proc.Group
	streams sync.WaitGroup // the goroutines other than bury
	log     *slog.Logger

	stdin          *os.File
	stdout, stderr *os.File
	queue          chan []byte // lines for stdin; nil closes it; never closed itself
	queued         atomic.Int64

	ended context.Context // ends when the process has, before done
	end   context.CancelFunc
	done  chan struct{} // closed when nothing of the process is left

	mu    sync.Mutex
	cause error // why it was killed, or how it exited

	lastWords atomic.Pointer[string] // newest line of stderr
}

// newProcess returns a process that is to run argv in dir.
func newProcess(argv []string, dir string, env []string, log *slog.Logger) *process {
	p := &process{
		cmd: exec.Command(argv[0], argv[1:]...), log: log,
		queue: make(chan []byte, maxQueued), done: make(chan struct{}),
	}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.ended, p.end = context.WithCancel(context.Background())
	return p
}

// start starts the process. listen reads its output in a goroutine of the
// process; while it does not, the process may have to wait.
func (p *process) start(listen func(io.Reader)) error {
	theirs, err := p.pipes()
	if err != nil {
		p.end()
		return fmt.Errorf("start agent process: %w", err)
	}
	p.group, err = proc.Start(p.cmd)
	closeAll(theirs)
	if err != nil {
		p.end()
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
		return fmt.Errorf("start agent process: %w", err)
	}
	p.streams.Go(p.write)                                 // ends with the process, or at the nil in the queue
	p.streams.Go(func() { listen(p.stdout); p.hangUp() }) // ends at end of file, which bury sees to
	p.streams.Go(p.readStderr)                            // likewise
	go p.bury()                                           // ends with the process
	return nil
}

// pipes makes the three streams and returns the process's ends of them.
//
// They are not the pipes of [exec.Cmd], because its Wait would close them under
// the reader before the last lines were read.
func (p *process) pipes() (theirs []*os.File, err error) {
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
		_ = f.Close() // nothing unwritten is behind them
	}
}

// bury waits for the end of the process and then for that of its streams.
func (p *process) bury() {
	<-p.group.Exited()
	p.mu.Lock()
	if p.cause == nil {
		p.cause = fmt.Errorf("agent process exited: %s", p.cmd.ProcessState)
	}
	p.mu.Unlock()
	p.group.Stop(0, nil) // what it left behind could hold the streams open
	late := time.Now().Add(drainTime)
	_ = p.stdout.SetReadDeadline(late) // pipes have deadlines where there are process groups
	_ = p.stderr.SetReadDeadline(late)
	p.end()
	p.streams.Wait()
	closeAll([]*os.File{p.stdout, p.stderr})
	close(p.done)
}

// send queues a line for the process. It does not block: a process that leaves
// too much unread is killed.
func (p *process) send(line []byte) error {
	if p.queued.Add(int64(len(line))) <= maxQueuedBytes {
		select {
		case p.queue <- line:
			return nil
		default:
		}
	}
	err := errors.New("agent process does not read its input")
	p.kill(err)
	return err
}

// write passes the queue on to the process and closes its input in the end.
func (p *process) write() {
	stop := context.AfterFunc(p.ended, func() { _ = p.stdin.Close() }) // frees a write that blocks
	defer stop()
	defer p.stdin.Close()
	for {
		select {
		case line := <-p.queue:
			if line == nil {
				return
			}
			_, err := p.stdin.Write(line)
			p.queued.Add(-int64(len(line)))
			if err != nil {
				p.log.Debug("write to agent process", "error", err)
				return
			}
		case <-p.ended.Done():
			return
		}
	}
}

// hangUp ends a process that nobody listens to any more, unless it is about to
// exit anyway, and swallows what it still writes.
func (p *process) hangUp() {
	timer := time.AfterFunc(drainTime, func() { p.kill(errors.New("agent process closed its output")) })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, p.stdout) // ends with the process
	<-p.ended.Done()
}

// readStderr logs what the process tells humans. Long lines are cut.
func (p *process) readStderr() {
	lines := bufio.NewReaderSize(p.stderr, maxStderrLine)
	for {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return
		}
		text := string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		if text != "" {
			p.lastWords.Store(&text)
		}
		p.log.Debug("agent process says", "stderr", text)
		for isPrefix && err == nil {
			_, isPrefix, err = lines.ReadLine()
		}
	}
}

// kill ends the process group at once. The first cause is kept, and an exit is
// one.
func (p *process) kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != nil {
		return
	}
	p.cause = cause
	p.group.Kill()
}

// failure says why the process ended; it is meant for after that.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// shutdown ends the process's input, which asks it to end, kills it if ctx or
// wait ends first, and returns when nothing of it is left.
func (p *process) shutdown(ctx context.Context, wait time.Duration) {
	_ = p.send(nil) // a full queue kills the process, which is as good
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	p.kill(errors.New("agent process killed: it did not end with its input"))
	<-p.done
}
