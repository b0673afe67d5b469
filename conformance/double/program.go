package double

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/seed-028515a8/maestro/contracts"
)

// A program is a command that was started and has not exited. Server.mu guards
// it, but for what says otherwise.
type program struct {
	room  *room
	owner *client
	id    string
	cmd   *exec.Cmd

	term   *os.File                        // of the program's terminal, our end; nil on pipes
	stdin  io.WriteCloser                  // nil unless allowed; written to by the feeder
	typed  []string                        // waits for the feeder
	more   chan struct{}                   // 1-buffered; tells the feeder to look; never closed
	sealed bool                            // nothing more may be written
	asked  chan struct{}                   // closed once it is to end
	ended  bool                            // asked is closed
	closed bool                            // term is closed, or is about to be
	reason string                          // why it was ended
	held   *contracts.UtilityCommandOutput // what a defect keeps back
	exited chan struct{}                   // closed once its process has exited
}

const (
	maxPrograms = 32
	killTime    = time.Second     // between asking and killing
	lingerTime  = 2 * time.Second // for what background processes hold open
)

func (r *room) program(id string) *program {
	return at(r.programs, func(p *program) bool { return p.id == id })
}

// startCommand starts a program.
func (c *client) startCommand(cmd *contracts.UtilityCommandStart) *contracts.Error {
	r := c.room
	if r.program(cmd.CommandID) != nil || slices.Contains(r.reserved, cmd.CommandID) {
		return noTool(contracts.CodeBadRequest, "Utility command already exists: "+cmd.CommandID)
	}
	args, dir, e := r.check(cmd)
	if e == nil && len(r.programs) >= maxPrograms {
		e = noTool(contracts.CodeOverloaded, "Too many utility commands")
	}
	if e != nil {
		if r.s.has(ReservesRefused) {
			r.reserved = append(r.reserved, cmd.CommandID)
		}
		return e
	}
	p := &program{room: r, owner: c, id: cmd.CommandID, more: make(chan struct{}, 1), asked: make(chan struct{}), exited: make(chan struct{})}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Env = dir, r.s.environment(cmd)
	if cmd.TerminalMode == contracts.TerminalPTY {
		return p.startOnTerminal(cmd)
	}
	p.startOnPipes(cmd)
	return nil
}

// started is the first event.
func (p *program) started(cmd *contracts.UtilityCommandStart) *contracts.UtilityCommandStarted {
	ev := &contracts.UtilityCommandStarted{CommandID: p.id, Command: cmd.Command, Cwd: p.cmd.Dir, ShellMode: shellOf(cmd),
		TerminalMode: contracts.TerminalPipe, OwnerConnectionID: p.owner.id}
	if p.cmd.Process != nil {
		ev.PID = int64(p.cmd.Process.Pid)
	}
	return ev
}

func (p *program) startOnTerminal(cmd *contracts.UtilityCommandStart) *contracts.Error {
	size := pty.Winsize{Cols: uint16(orDefault(cmd.Columns, 80, 1, 65_535)), Rows: uint16(orDefault(cmd.Rows, 24, 1, 65_535))}
	term, err := pty.StartWithSize(p.cmd, &size)
	if err != nil {
		return noTool(contracts.CodeNotFound, err.Error())
	}
	p.term = term
	if cmd.AllowStdin || p.room.s.has(TakesAllInput) {
		p.stdin = term
	}
	ev := p.started(cmd)
	ev.TerminalMode, ev.Columns, ev.Rows = contracts.TerminalPTY, int64(size.Cols), int64(size.Rows)
	p.live(ev, map[contracts.Stream]io.ReadCloser{contracts.StreamStdout: term})
	return nil
}

func (p *program) startOnPipes(cmd *contracts.UtilityCommandStart) {
	outputs, theirs := map[contracts.Stream]io.ReadCloser{}, []*os.File{}
	pipe := func() (*os.File, *os.File) {
		read, write, err := os.Pipe()
		if err != nil {
			panic("double: " + err.Error()) // a test has files to spare
		}
		return read, write
	}
	for _, stream := range []contracts.Stream{contracts.StreamStdout, contracts.StreamStderr} {
		ours, their := pipe()
		outputs[stream], theirs = ours, append(theirs, their)
	}
	p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1]
	if cmd.AllowStdin || p.room.s.has(TakesAllInput) {
		their, ours := pipe()
		p.cmd.Stdin, p.stdin, theirs = their, ours, append(theirs, their)
	}
	groupOf(p.cmd)
	err := p.cmd.Start()
	for _, f := range theirs {
		_ = f.Close() // the program has its own
	}
	if err == nil {
		p.live(p.started(cmd), outputs)
		return
	}
	for _, out := range outputs {
		_ = out.Close() // nothing will come
	}
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	p.room.publish(p.started(cmd))
	p.room.publish(&contracts.UtilityCommandExited{CommandID: p.id, Reason: err.Error()})
}

// live announces a program and sees it to its end.
func (p *program) live(first contracts.Event, outputs map[contracts.Stream]io.ReadCloser) {
	p.room.programs = append(p.room.programs, p)
	p.room.publish(first)
	var readers sync.WaitGroup
	for stream, out := range outputs {
		readers.Go(func() { p.pump(stream, out) }) // ends with the stream, which the end of the program closes
	}
	done := make(chan struct{})
	go func() { // ends with the readers
		readers.Wait()
		close(done)
	}()
	if p.stdin != nil {
		go p.feed() // ends with its input, or with the program
	}
	go p.watch(done, outputs) // ends with the program
}

// watch waits for the end of a program and of what it left behind.
func (p *program) watch(done <-chan struct{}, outputs map[contracts.Stream]io.ReadCloser) {
	_ = p.cmd.Wait() // the state says it all
	s := p.room.s
	if s.has(ExitsEarly) {
		s.mu.Lock()
		p.leave()
		s.mu.Unlock()
	}
	close(p.exited)
	select {
	case <-done:
	case <-p.asked:
	case <-time.After(lingerTime):
	}
	if !s.has(LeavesChildren) {
		p.kill()
	}
	select {
	case <-done:
	case <-time.After(lingerTime):
	}
	s.mu.Lock()
	p.closed = true
	s.mu.Unlock()
	for _, out := range outputs {
		_ = out.Close() // what is still written is lost
	}
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	p.leave()
}

// kill ends the whole group, however far it is.
func (p *program) kill() { signalGroup(p.cmd.Process, true, p.room.s.has(LeavesChildren)) }

// leave tells of the end, once.
func (p *program) leave() {
	r := p.room
	if r.program(p.id) != p {
		return
	}
	if p.held != nil {
		r.publish(p.held)
	}
	r.programs = slices.DeleteFunc(r.programs, func(o *program) bool { return o == p })
	p.sealed = true
	p.wake()
	end := &contracts.UtilityCommandExited{CommandID: p.id, Success: p.cmd.ProcessState.Success(), Reason: p.reason}
	if name := signalOf(p.cmd.ProcessState); name != "" {
		end.Signal = &name
	} else {
		code := int64(p.cmd.ProcessState.ExitCode())
		end.ExitCode = &code
	}
	r.publish(end)
	if r.ending && len(r.programs) == 0 {
		r.finish()
	}
}

// end asks the program to end.
func (p *program) end(reason string, force bool) {
	if p.reason == "" {
		p.reason = reason
	}
	if !p.ended {
		p.ended = true
		close(p.asked)
	}
	force = force || p.room.s.has(KillsAtOnce)
	signalGroup(p.cmd.Process, force, p.room.s.has(LeavesChildren))
	if !force {
		time.AfterFunc(killTime, p.kill) // which does nothing to what is gone
	}
}

// pump tells what a program writes.
func (p *program) pump(stream contracts.Stream, out io.Reader) {
	buf, rest := make([]byte, 32<<10), []byte(nil)
	for {
		n, err := out.Read(buf)
		text := append(rest, buf[:n]...)
		cut := len(text)
		if err == nil && !p.room.s.has(CutsCharacters) {
			cut = wholeText(text)
		}
		rest = slices.Clone(text[cut:])
		p.say(stream, oneByOne(text[:cut]), n == len(buf))
		if err != nil {
			return
		}
	}
}

// say publishes output, of which there is more to come.
func (p *program) say(stream contracts.Stream, text string, more bool) {
	if text == "" {
		return
	}
	s := p.room.s
	if s.has(ExitsEarly) {
		<-p.exited
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ev := &contracts.UtilityCommandOutput{CommandID: p.id, Stream: stream, Content: text}
	if s.has(ReordersOutput) && more && p.held == nil {
		p.held = ev
		return
	}
	p.room.publish(ev)
	if p.held != nil {
		p.room.publish(p.held)
		p.held = nil
	}
}

// wholeText is how much of a text ends with a whole character.
func wholeText(text []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if at := len(text) - i; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}

// oneByOne replaces each byte that is not UTF-8.
func oneByOne(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	return string([]rune(string(text)))
}

// terminateCommand ends a program, if it is there.
func (c *client) terminateCommand(cmd *contracts.UtilityCommandTerminate) *contracts.Error {
	p := c.room.program(cmd.CommandID)
	if p == nil {
		return nil
	}
	if e := c.owns(p.owner, "command", p.id); e != nil {
		return e
	}
	reason := "Terminated by controller"
	if cmd.Force {
		reason = "Force terminated by controller"
	}
	p.end(reason, cmd.Force)
	return nil
}

// resizeCommand sets the size of a terminal.
func (c *client) resizeCommand(cmd *contracts.UtilityCommandResize) *contracts.Error {
	p, e := c.mine(cmd.CommandID)
	switch {
	case e != nil:
		return e
	case p.term == nil:
		return noTool(contracts.CodeBadRequest, "Utility command resize is only supported for PTY commands: "+p.id)
	}
	if e := checkSize(&cmd.Columns, &cmd.Rows); e != nil {
		return e
	}
	if !p.closed && !c.room.s.has(DeafToResizes) {
		if err := pty.Setsize(p.term, &pty.Winsize{Cols: uint16(cmd.Columns), Rows: uint16(cmd.Rows)}); err != nil {
			return noTool(contracts.CodeInternal, err.Error())
		}
	}
	c.room.publish(&contracts.UtilityCommandResized{CommandID: p.id, Columns: cmd.Columns, Rows: cmd.Rows})
	return nil
}

// mine returns a program of the client's.
func (c *client) mine(id string) (*program, *contracts.Error) {
	p := c.room.program(id)
	if p == nil {
		return nil, noTool(contracts.CodeNotFound, "Utility command not found: "+id)
	}
	return p, c.owns(p.owner, "command", id)
}

// feedCommand gives a program something to read.
func (c *client) feedCommand(cmd *contracts.UtilityCommandStdin) *contracts.Error {
	p, e := c.mine(cmd.CommandID)
	switch {
	case e != nil:
		return e
	case p.stdin == nil:
		return noTool(contracts.CodeBadRequest, "Utility command stdin is not enabled: "+p.id)
	case p.sealed && cmd.EOF && cmd.Content == "":
		return nil
	case p.sealed:
		return noTool(contracts.CodeBadRequest, "Utility command stdin is not writable: "+p.id)
	}
	text := cmd.Content
	if p.term != nil && cmd.EOF && !c.room.s.has(NeverTypesEOF) {
		text += "\x04"
	}
	if text != "" {
		p.typed = append(p.typed, text)
	}
	p.sealed = cmd.EOF && p.term == nil
	p.wake()
	return nil
}

func (p *program) wake() {
	select {
	case p.more <- struct{}{}:
	default: // it looks anyhow
	}
}

// feed writes what clients gave, until that was all.
func (p *program) feed() {
	for range p.more {
		p.room.s.mu.Lock()
		typed, sealed := p.typed, p.sealed
		p.typed = nil
		p.room.s.mu.Unlock()
		for _, text := range typed {
			if _, err := io.WriteString(p.stdin, text); err != nil && !errors.Is(err, io.ErrShortWrite) {
				sealed = true // it reads no more
				break
			}
		}
		if sealed {
			if p.term == nil {
				_ = p.stdin.Close() // that is the end of it
			}
			return
		}
	}
}
