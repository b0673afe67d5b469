package utility

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/pty"
)

// maxUnread bounds the bytes that wait for a command to read them. One message
// may exceed it if none waits.
const maxUnread = 1 << 20

// pieceCost is what each waiting piece counts besides its bytes.
const pieceCost = 64

// endOfTransmission at the beginning of a line ends the input for the reader of
// a terminal. More input may follow.
const endOfTransmission = "\x04"

// A stdin is a command's input: a pipe or a terminal, and a queue of input that
// has not been written yet. A nil stdin is for a command without input.
type stdin struct {
	to    io.WriteCloser // set by open, before the first event
	typed bool           // a terminal, whose input does not end

	mu     sync.Mutex
	more   *sync.Cond // of mu: unread, eof or broken has changed
	unread []string
	size   int  // bytes and piece costs of unread, including the piece being written; see maxUnread
	eof    bool // no more input follows
	broken bool // the command does not read any more
}

func newStdin(typed bool) *stdin {
	s := &stdin{typed: typed}
	s.more = sync.NewCond(&s.mu)
	return s
}

// open makes a pipe and returns the command's end.
func (s *stdin) open() (*os.File, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.opened(ours)
	return theirs, nil
}

// opened sets the writer of the input.
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

// Close interrupts a waiting Write. The terminal stays open.
func (k keyboard) Close() error { return k.SetWriteDeadline(time.Now()) }

// put adds a client's input to the queue, or refuses it.
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
	s.more.Signal()
	return nil
}

// run writes the queued input until its end or close.
func (s *stdin) run() {
	defer s.close()
	for text, ok := s.next(); ok; text, ok = s.next() {
		_, err := io.WriteString(s.to, text)
		s.wrote(len(text), err)
	}
}

// next waits for the next piece to write. It returns false if none will follow.
func (s *stdin) next() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unread) == 0 && !s.eof && !s.broken {
		s.more.Wait()
	}
	if s.broken || len(s.unread) == 0 {
		return "", false
	}
	text := s.unread[0]
	s.unread = s.unread[1:]
	return text, true
}

func (s *stdin) wrote(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size -= n + pieceCost
	s.broken = s.broken || err != nil // an error says that the command closed its end
}

// close ends the input and drops the queue.
func (s *stdin) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.unread, s.size = nil, 0
	if s.to != nil {
		_ = s.to.Close() // an error leaves nothing to do
	}
	s.more.Signal()
}
