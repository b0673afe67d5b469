package utility

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/pty"
)

// maxUnread is how many bytes may wait for a command to read them, beyond the
// content of one message.
const maxUnread = 1 << 20

// pieceCost is what each piece that waits counts beside its bytes.
const pieceCost = 64

// endOfTransmission typed at the beginning of a line is the end of the input to
// whoever reads a terminal, but more can be typed.
const endOfTransmission = "\x04"

// A stdin is what a command reads: a pipe or a terminal, and what does not fit
// into it yet. A nil stdin is that of a command that may not read.
type stdin struct {
	to    io.WriteCloser // set by open, before the command is announced
	typed bool           // on a terminal, whose input has no end
	more  chan struct{}  // 1-buffered; a token means that there is something to do; never closed

	mu     sync.Mutex
	unread []string
	size   int  // what unread counts for, the piece being written included; at most maxUnread beside the newest
	eof    bool // nothing is to follow
	broken bool // nobody reads any more
}

func newStdin(typed bool) *stdin { return &stdin{typed: typed, more: make(chan struct{}, 1)} }

// open makes a pipe and returns the end that the command reads from.
func (s *stdin) open() (*os.File, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.opened(ours)
	return theirs, nil
}

// opened sets what the input is written to.
func (s *stdin) opened(to io.WriteCloser) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

// A keyboard is the input of a terminal.
type keyboard struct{ *pty.Terminal }

// Close ends a Write that waits. The terminal itself lives on.
func (k keyboard) Close() error { return k.SetWriteDeadline(time.Now()) }

// put takes what a client writes, or refuses it.
func (s *stdin) put(cmd *contracts.UtilityCommandStdin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, eof := cmd.Content, cmd.EOF
	if s.typed && eof {
		content, eof = content+endOfTransmission, false
	}
	switch {
	case (s.eof || s.broken) && cmd.Content == "" && cmd.EOF:
		return nil
	case s.eof || s.broken:
		return refuse(contracts.CodeBadRequest, cmd.CommandID, "Utility command stdin is not writable: "+cmd.CommandID)
	case s.size > 0 && s.size+len(content)+pieceCost > maxUnread:
		return refuse(contracts.CodeOverloaded, cmd.CommandID, "Utility command stdin is full: "+cmd.CommandID)
	}
	if content != "" {
		s.unread = append(s.unread, content)
		s.size += len(content) + pieceCost
	}
	s.eof = s.eof || eof
	s.wake()
	return nil
}

func (s *stdin) wake() {
	select {
	case s.more <- struct{}{}:
	default: // it looks again anyhow
	}
}

// run writes what clients wrote, until the end of the input or close.
func (s *stdin) run() {
	defer s.close()
	for {
		text, ok := s.next()
		switch {
		case !ok:
			return
		case text == "":
			<-s.more
			continue
		}
		_, err := io.WriteString(s.to, text)
		s.wrote(len(text), err)
	}
}

// next returns the next piece to write, or "" if there is none yet. It reports
// false when none will follow.
func (s *stdin) next() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken:
		return "", false
	case len(s.unread) == 0:
		return "", !s.eof
	}
	text := s.unread[0]
	s.unread = s.unread[1:]
	return text, true
}

func (s *stdin) wrote(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size -= n + pieceCost
	s.broken = s.broken || err != nil // the command closed its end
}

// close ends the input. What was not written is dropped.
func (s *stdin) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.unread, s.size = nil, 0
	if s.to != nil {
		_ = s.to.Close() // the command has what it read
	}
	s.wake()
}
