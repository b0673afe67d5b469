package double

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// ServeStdio speaks the protocol as lines until EOF or shutdown and returns
// the exit status.
func (s *Server) ServeStdio(in io.Reader, out io.Writer) int {
	s.mu.Lock()
	r := s.open("local", true)
	c := newClient(r, contracts.RoleController)
	c.id = "local"
	r.clients, r.holder = []*client{c}, c
	for _, e := range r.log { // published before anybody was there
		c.out.push(e.body)
	}
	o := c.out
	s.mu.Unlock()

	var wg sync.WaitGroup
	wg.Go(func() { s.writeLines(o, out) }) // ends when the session does
	go func() {                            // ends with the input, or with the process
		s.readLines(c, in)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !r.closed {
			r.shutdown()
		}
	}()
	wg.Wait()
	s.Close()
	if s.has(WrongExitStatus) {
		return 3
	}
	return 0
}

func (s *Server) writeLines(o *outlet, out io.Writer) {
	for range o.wake {
		s.mu.Lock()
		queue, code, _ := o.take()
		s.mu.Unlock()
		for _, text := range queue {
			if _, err := out.Write(append(text, '\n')); err != nil {
				return
			}
		}
		if code != 0 {
			return
		}
	}
}

// readLines handles input until EOF or shutdown.
func (s *Server) readLines(c *client, in io.Reader) {
	b := bufio.NewReaderSize(in, 64<<10)
	for first := true; ; first = false {
		line, long, err := readLine(b, s.has(LongLines))
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if err == nil || len(line) > 0 && !s.has(DropsLastLine) {
			s.line(c, line, long)
		}
		s.mu.Lock()
		closed := c.room.closed || c.room.ending
		s.mu.Unlock()
		if err != nil || closed {
			return
		}
	}
}

// readLine reads to the next line feed, keeping no more than the limit unless any
// length will do.
func readLine(b *bufio.Reader, any bool) (line []byte, long bool, err error) {
	for {
		part, err := b.ReadSlice('\n')
		if len(line)+len(part) <= contracts.MaxLineBytes+1 || any {
			line = append(line, part...)
		} else {
			long = true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), long, err
		}
	}
}

// line handles one line of input.
func (s *Server) line(c *client, line []byte, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(bytes.TrimSpace(line)) == 0 && !s.has(AnswersBlankLines) {
		return
	}
	var e *contracts.Error
	switch {
	case long:
		e = badRequest("the line is too long")
	case !utf8.Valid(line):
		e = badRequest("invalid UTF-8")
	default:
		var cmd contracts.Command
		if cmd, e = s.decode(line); e == nil {
			e = c.admit(cmd)
		}
	}
	if e != nil {
		ev := e.Event()
		if s.has(TypesByText) {
			ev.ErrorType = contracts.Classify(ev.Message, false)
		}
		c.out.push(encode(ev.EventType(), ev))
	}
}
