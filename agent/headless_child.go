package agent

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

	"github.com/seed-028515a8/maestro/contracts"
	proc "github.com/seed-028515a8/maestro/internal/child"
)

// Bounds on what a child says and on what waits for it.
const (
	maxChildQueue  = 128     // commands the child has not read yet
	maxBadLines    = 4       // unparseable lines in a row; the next one kills
	maxStderrLine  = 4 << 10 // bytes of a line of stderr that are logged
	childDrainTime = time.Second
)

// A child is one run of a program that speaks the headless protocol on its
// standard streams. Its process leads a group of its own, which ends with it.
//
// Five goroutines serve it: one waits for its process, three serve its streams,
// and bury, which closes done, sees to it that all end when the process does.
type child struct {
	cmd     *exec.Cmd
	group   *proc.Group
	streams sync.WaitGroup // the goroutines other than bury
	log     *slog.Logger
	receive func(contracts.Event) // called for each event, by one goroutine
	refuse  func(error)           // called likewise for each line that is no event

	stdin          *os.File
	stdout, stderr *os.File
	queue          chan []byte // lines for stdin; nil closes it; never closed itself

	ended context.Context // ends when the process has, before done
	end   context.CancelFunc
	done  chan struct{} // closed when nothing of the child is left

	mu    sync.Mutex
	cause error // why it was killed, or how it exited

	lastWords atomic.Pointer[string] // newest line of stderr
}

// newChild returns a child that is to run argv in o.Dir.
func newChild(argv []string, o Options) *child {
	c := &child{
		cmd: exec.Command(argv[0], argv[1:]...), log: o.Log,
		queue: make(chan []byte, maxChildQueue), done: make(chan struct{}),
	}
	c.cmd.Dir, c.cmd.Env = o.Dir, proc.Environ(os.Environ(), o.Hosted, o.EnvPass)
	c.ended, c.end = context.WithCancel(context.Background())
	return c
}

// start starts the process. receive and refuse are called until done is closed;
// while they block the child may have to wait.
func (c *child) start(receive func(contracts.Event), refuse func(error)) error {
	c.receive, c.refuse = receive, refuse
	theirs, err := c.pipes()
	if err != nil {
		return fmt.Errorf("start agent process: %w", err)
	}
	c.group, err = proc.Start(c.cmd)
	closeAll(theirs)
	if err != nil {
		c.end()
		closeAll([]*os.File{c.stdin, c.stdout, c.stderr})
		return fmt.Errorf("start agent process: %w", err)
	}
	c.streams.Go(c.write)      // ends with the process, or at the nil in the queue
	c.streams.Go(c.read)       // ends at end of file, which bury sees to
	c.streams.Go(c.readStderr) // likewise
	go c.bury()                // ends with the process
	return nil
}

// pipes makes the three streams and returns the child's ends of them.
//
// They are not the pipes of [exec.Cmd], because its Wait would close them under
// the reader before the child's last lines were read.
func (c *child) pipes() (theirs []*os.File, err error) {
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
	c.stdin, c.stdout, c.stderr = ours[0], ours[1], ours[2]
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

// bury waits for the end of the process and then for that of its streams.
func (c *child) bury() {
	<-c.group.Exited()
	c.mu.Lock()
	if c.cause == nil {
		c.cause = fmt.Errorf("agent process exited: %s", c.cmd.ProcessState)
	}
	c.mu.Unlock()
	c.group.Stop(0, nil) // what it left behind could hold the streams open
	late := time.Now().Add(childDrainTime)
	_ = c.stdout.SetReadDeadline(late) // pipes have deadlines where there are process groups
	_ = c.stderr.SetReadDeadline(late)
	c.end()
	c.streams.Wait()
	closeAll([]*os.File{c.stdout, c.stderr})
	close(c.done)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing unwritten is behind them
	}
}

// send queues a command for the child. It does not block: a child that leaves
// 128 commands unread is killed.
func (c *child) send(command contracts.Command) error {
	line, err := contracts.EncodeCommand(command)
	if err != nil {
		return err
	}
	if len(line) > contracts.MaxLineBytes {
		return fmt.Errorf("%s is longer than a line may be", command.CommandType())
	}
	return c.enqueue(append(line, '\n'))
}

func (c *child) enqueue(line []byte) error {
	select {
	case c.queue <- line:
		return nil
	default:
		err := errors.New("agent process does not read its input")
		c.kill(err)
		return err
	}
}

// write passes the queue on to the child and closes its input in the end.
func (c *child) write() {
	stop := context.AfterFunc(c.ended, func() { _ = c.stdin.Close() }) // frees a write that blocks
	defer stop()
	defer c.stdin.Close()
	for {
		select {
		case line := <-c.queue:
			if line == nil {
				return
			}
			if _, err := c.stdin.Write(line); err != nil {
				c.log.Debug("write to agent process", "error", err)
				return
			}
		case <-c.ended.Done():
			return
		}
	}
}

// read decodes the child's output line by line until it ends.
func (c *child) read() {
	lines := bufio.NewReaderSize(c.stdout, 64<<10)
	var decoder contracts.Decoder
	bad := 0
	for first := true; ; first = false {
		line, err := readLine(lines, contracts.MaxLineBytes)
		if err != nil && !errors.Is(err, errLongLine) {
			break
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if err == nil {
			line = bytes.TrimSpace(line)
			if len(line) == 0 {
				continue
			}
			var ev contracts.Event
			ev, err = decoder.Event(line)
			if err == nil {
				bad = 0
				c.receive(ev)
				continue
			}
			if errors.Is(err, contracts.ErrUnknownType) { // from a newer child
				bad = 0
				continue
			}
		}
		if bad++; bad > maxBadLines {
			c.kill(fmt.Errorf("agent process killed: %d unparseable lines in a row", bad))
			break
		}
		c.refuse(fmt.Errorf("agent process wrote an unparseable line: %w", err))
	}
	c.hangUp()
}

// hangUp ends a child that nobody listens to any more, unless it is about to
// exit anyway, and swallows what it still writes.
func (c *child) hangUp() {
	timer := time.AfterFunc(childDrainTime, func() { c.kill(errors.New("agent process closed its output")) })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, c.stdout) // ends with the process
	<-c.ended.Done()
}

// readStderr logs what the child tells humans. Long lines are cut.
func (c *child) readStderr() {
	lines := bufio.NewReaderSize(c.stderr, maxStderrLine)
	for {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return
		}
		text := string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		c.lastWords.Store(&text)
		c.log.Debug("agent process says", "stderr", text)
		for isPrefix && err == nil {
			_, isPrefix, err = lines.ReadLine()
		}
	}
}

// kill ends the child's process group at once. The first cause is kept, and an
// exit is one.
func (c *child) kill(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	c.cause = cause
	c.group.Kill()
}

// failure says why the child ended; it is meant for after that.
func (c *child) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// shutdown asks the child to end, kills it if ctx or wait ends first, and
// returns when nothing of it is left.
func (c *child) shutdown(ctx context.Context, wait time.Duration) {
	if c.send(&contracts.Shutdown{}) == nil {
		_ = c.enqueue(nil) // a full queue kills the child, which is as good
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-c.done:
		return
	case <-ctx.Done():
	}
	c.kill(errors.New("agent process killed: it did not shut down"))
	<-c.done
}

// errLongLine says that a line was too long and is gone.
var errLongLine = fmt.Errorf("line is longer than %d bytes", contracts.MaxLineBytes)

// readLine returns the next line without its end, valid until the next call if
// it is short. A line longer than limit is skipped without being kept. A last
// line that has no end counts.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit+1 {
			long, line = true, nil
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if !long && (full || line != nil) {
			line = append(line, part...)
			part = line
		}
		switch {
		case full:
		case err != nil && len(part) == 0 && !long:
			return nil, err
		case long:
			return nil, errLongLine
		default:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
	}
}
