package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/seed-028515a8/maestro/contracts"
	proc "github.com/seed-028515a8/maestro/internal/child"
)

// Bounds on a program and what it says.
const (
	maxQueue      = 256      // messages that the program has not read yet
	maxQueueBytes = 32 << 20 // likewise
	maxBadLines   = 16       // lines in a row that are no message; the next one ends the program
	maxStderrLine = 4 << 10  // bytes of a line of stderr that are logged
	maxStderrRate = 100      // lines of stderr that are logged in stderrWindow
)

// Times of a program's end.
const (
	stderrWindow = 10 * time.Second
	exitGrace    = time.Second // between the end of its input and being asked to end
	killDelay    = time.Second // between that and being killed
	drainTime    = time.Second // for what it still says after its end
)

var errQueueFull = errors.New("does not read its input")

// A program is one run of a server on its standard streams. Its process leads a
// group of its own, which ends with it.
//
// Six goroutines serve it: one waits for its process, four serve its streams, and
// bury, which closes done, sees to it that all end when the process does.
type program struct {
	cmd     *exec.Cmd
	group   *proc.Group
	streams sync.WaitGroup // the goroutines other than bury
	log     *slog.Logger
	receive func(jsonrpc.Message) bool // called for each message, by one goroutine; false ends the reading

	stdin, stdout, stderr *os.File

	queue  chan []byte // lines for stdin; never closed
	queued atomic.Int64

	unwanted  chan struct{} // closed when nobody wants the program any more
	discard   sync.Once     // closes unwanted
	quiet     chan struct{} // closed when nothing more is read from it
	ended     chan struct{} // closed when the process has ended, before done
	done      chan struct{} // closed when nothing of the program is left
	lastWords atomic.Pointer[string]

	mu    sync.Mutex
	cause error // why it was ended, or how it exited
}

// startProgram starts the program of a server in the workspace dir. receive is
// called until done is closed; while it blocks the program may have to wait.
func startProgram(s *Server, dir string, env []string, log *slog.Logger, receive func(jsonrpc.Message) bool) (*program, error) {
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		dir = filepath.Join(dir, s.Dir)
	} else if s.Dir != "" {
		dir = s.Dir
	}
	path, err := proc.FindProgram(s.Command, dir, env)
	if err != nil {
		return nil, unstarted(err)
	}
	p := &program{
		cmd: exec.Command(path, s.Args...), log: log, receive: receive,
		queue: make(chan []byte, maxQueue), unwanted: make(chan struct{}), quiet: make(chan struct{}),
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	p.cmd.Args[0] = s.Command
	p.cmd.Dir, p.cmd.Env = dir, env
	if err := p.start(); err != nil {
		return nil, unstarted(err)
	}
	return p, nil
}

// unstarted is why a program was not started.
func unstarted(err error) error {
	return &fault{"its program does not start: " + cmp.Or(systemWords(err), "see the server's log"), err}
}

func (p *program) start() error {
	theirs, err := p.pipes()
	if err != nil {
		return err
	}
	p.group, err = proc.Start(p.cmd)
	closeAll(theirs)
	if err != nil {
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
		return err
	}
	p.streams.Go(p.write)      // ends with the process, or when it is unwanted
	p.streams.Go(p.read)       // ends at end of file, which bury sees to
	p.streams.Go(p.readStderr) // likewise
	go p.bury()                // ends with the process
	return nil
}

// pipes makes the three streams and returns the program's ends of them.
func (p *program) pipes() (theirs []*os.File, err error) {
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

// bury waits for the end of the process, or brings it about once nobody wants the
// program: its input ends first, as the protocol has it. Then it waits for the
// end of the streams.
func (p *program) bury() {
	select {
	case <-p.group.Exited():
		p.note(nil)
		p.group.Stop(0, nil) // what it left behind could hold the streams open
	case <-p.unwanted:
		late := time.NewTimer(exitGrace)
		select {
		case <-p.group.Exited():
			p.note(nil)
		case <-late.C:
			p.note(errors.New("the program closed its output"))
		}
		late.Stop()
		p.group.Stop(killDelay, nil)
	}
	until := time.Now().Add(drainTime)
	_ = p.stdout.SetReadDeadline(until) // pipes have deadlines where there are process groups
	_ = p.stderr.SetReadDeadline(until)
	close(p.ended)
	p.streams.Wait()
	closeAll([]*os.File{p.stdout, p.stderr})
	close(p.done)
}

// end ends a program that nobody wants any more. It does not wait for that.
func (p *program) end() { p.discard.Do(func() { close(p.unwanted) }) }

// kill ends the program without asking it. The first cause is kept, and an exit
// is one.
func (p *program) kill(cause error) {
	p.note(cause)
	p.end()
	p.group.Kill()
}

// note keeps why the program ends; nil stands for its own exit.
func (p *program) note(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cause != nil:
	case cause != nil:
		p.cause = cause
	default:
		p.cause = fmt.Errorf("the program ended: %s", p.cmd.ProcessState)
	}
}

// failure says why the program ended, with the last line that it told people as
// the detail. It is meant for after that.
func (p *program) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		return nil
	}
	f := &fault{words: p.cause.Error()}
	if words := p.lastWords.Load(); words != nil {
		f.words += "; what it said is in the server's log"
		f.detail = errors.New(label(*words))
	}
	return f
}

// send queues a line for the program. It does not block: a program that leaves
// too much unread is ended.
func (p *program) send(line []byte) error {
	size := int64(len(line))
	if p.queued.Add(size) <= maxQueueBytes {
		select {
		case p.queue <- line:
			return nil
		default:
		}
	}
	p.queued.Add(-size)
	p.kill(errQueueFull)
	return errQueueFull
}

// write passes the queue on to the program and closes its input in the end.
func (p *program) write() {
	over := make(chan struct{})
	freed := make(chan struct{})
	go func() { // ends with write, and frees one that blocks when the process has ended
		defer close(freed)
		select {
		case <-p.ended:
			_ = p.stdin.Close()
		case <-over:
		}
	}()
	defer func() { close(over); <-freed; _ = p.stdin.Close() }()
	for {
		select {
		case line := <-p.queue:
			_, err := p.stdin.Write(line)
			p.queued.Add(-int64(len(line)))
			if err != nil {
				p.log.Debug("write to MCP server", "error", err)
				return
			}
		case <-p.unwanted:
			return
		case <-p.ended:
			return
		}
	}
}

// read passes on what the program writes, line by line. Lines that are no
// messages are logged: many programs greet, or warn, where they should not.
func (p *program) read() {
	defer close(p.quiet)
	lines := bufio.NewReaderSize(p.stdout, 64<<10)
	bad := 0
	for {
		line, err := readLine(lines, contracts.MaxLineBytes)
		if errors.Is(err, errLongLine) {
			p.kill(fmt.Errorf("wrote a %w", err))
			return
		}
		if err != nil {
			return
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		messages, err := decode(line)
		if err != nil {
			p.log.Debug("MCP server wrote a line that is no message", "line", label(string(line[:min(len(line), maxLabel)])))
			if bad++; bad > maxBadLines {
				p.kill(fmt.Errorf("wrote %d lines in a row that are no messages", bad))
				return
			}
			continue
		}
		bad = 0
		for _, m := range messages {
			if !p.receive(m) {
				return
			}
		}
	}
}

// readStderr logs what the program tells people: the beginning of each line, and
// of a flood of lines the first ones.
func (p *program) readStderr() {
	lines := bufio.NewReaderSize(p.stderr, maxStderrLine)
	var since time.Time
	said := 0
	for {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return
		}
		text := string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		if len(bytes.TrimSpace(line)) > 0 {
			p.lastWords.Store(&text)
		}
		if now := time.Now(); now.Sub(since) > stderrWindow {
			since, said = now, 0
		}
		if said++; said <= maxStderrRate {
			p.log.Debug("MCP server says", "stderr", text)
		} else if said == maxStderrRate+1 {
			p.log.Debug("MCP server says more than is logged")
		}
		for isPrefix && err == nil {
			_, isPrefix, err = lines.ReadLine()
		}
	}
}

// errLongLine says that a line was too long and is gone.
var errLongLine = fmt.Errorf("line longer than %d bytes", contracts.MaxLineBytes)

// readLine returns the next line without its end, valid until the next call. It
// fails at a line longer than limit. A last line that has no end counts.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit+1 {
			return nil, errLongLine
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if full || line != nil {
			line = append(line, part...)
			part = line
		}
		switch {
		case full:
		case err != nil && len(part) == 0:
			return nil, err
		default:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
	}
}
