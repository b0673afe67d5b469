package hecate

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// maxWrite is about how many bytes one write of a stream has.
const maxWrite = 64 << 10

// serveStream answers with a stream of what the reader reads.
func (v *Server) serveStream(c *call, r *reader) error {
	if v.opts.Attach != nil {
		if err := ratelimit.Refusal(c.w.Header(), v.opts.Attach(c.by.ID)); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.hold(c.in) // the stream may live longer than the call
	v.mu.Unlock()
	s := &stream{reader: r, by: c.by, opts: &v.opts, ended: func() { v.release(c.in) }}
	err := v.opts.Streams.Serve(c.w, c.r, s, contracts.StreamRequest{}, contracts.Caller{Principal: c.by})
	if err != nil {
		s.ended() // it has not begun
	}
	return err
}

// A stream sends events to one client. Its position is that of its reader: a slow client
// costs a cursor, and reads from the log when it is ready.
type stream struct {
	reader *reader
	by     contracts.Principal
	opts   *Options
	wrote  time.Time // when something was last written
	ended  func()    // called at the end
}

// Epoch implements [sse.Session].
func (s *stream) Epoch() string { return s.reader.log.journal.Epoch() }

// MayStream implements [sse.Session].
func (s *stream) MayStream(contracts.StreamRequest, contracts.Caller) error { return nil }

// Stream implements [sse.Session].
func (s *stream) Stream(ctx context.Context, conn *sse.Conn, _ contracts.StreamRequest, _ contracts.Caller) error {
	defer s.ended()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the connection, which is closed when Stream returns
		_, _ = conn.ReadFrame() // its error says that the client has gone
		stop()
	}()
	if err := s.write(conn, []byte(": hecate\n\n")); err != nil {
		return err
	}
	for ctx.Err() == nil && s.opts.Alive(s.by) {
		moved := s.reader.log.change()
		more, err := s.send(conn)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if err := s.reader.log.failure(); err != nil {
			return err
		}
		if s.reader.ended() {
			return s.write(conn, []byte(": the run has ended\nretry: 30000\n\n"))
		}
		if err := s.wait(ctx, conn, moved); err != nil {
			return err
		}
	}
	return nil
}

// send writes the next events, about maxWrite bytes.
func (s *stream) send(conn *sse.Conn) (more bool, err error) {
	next := s.reader.log.chunks.share(s.reader, s.encode)
	if len(next.text) > 0 {
		if failed := s.write(conn, next.text); failed != nil {
			return false, failed
		}
	}
	return next.more, next.err
}

// encode reads the next events and returns them as server-sent events.
func (s *stream) encode() (out []byte, more bool, err error) {
	more, err = s.reader.read(func(ev record) bool {
		if len(out) > 0 && len(out)+len(ev.line) > maxWrite {
			return false
		}
		out = strconv.AppendUint(append(out, "id: "...), s.reader.cursor(ev), 10)
		out = append(append(append(out, "\ndata: "...), ev.line...), "\n\n"...)
		return true
	})
	return out, more, err
}

// chunks are the texts that streams were last sent, for others at the same place: they
// are read and encoded once (D2).
type chunks struct {
	mu      sync.Mutex
	visible uint64 // newest entry when they were made
	of      map[place]*chunk
}

// maxChunks bounds the texts that are kept.
const maxChunks = 64

// A place is where a reader without a filter is.
type place struct {
	run   *run
	after int64
	entry uint64
}

// A chunk is a text, and where its reader is after it.
type chunk struct {
	once sync.Once
	text []byte
	to   place
	more bool
	err  error
}

// share returns what follows the place of a reader, and moves it on. encode makes the text
// if no other reader has.
func (c *chunks) share(r *reader, encode func() ([]byte, bool, error)) *chunk {
	next := c.at(r)
	next.once.Do(func() {
		next.text, next.more, next.err = encode()
		next.to = place{r.run, r.after, r.entry}
	})
	r.after, r.entry = next.to.after, next.to.entry
	return next
}

// at returns the chunk for a reader. It is new if the reader has a filter.
func (c *chunks) at(r *reader) *chunk {
	if r.task != "" || r.chat != "" || r.kinds != nil {
		return new(chunk)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if visible := r.log.journal.Visible(); c.of == nil || visible != c.visible || len(c.of) >= maxChunks {
		c.visible, c.of = visible, map[place]*chunk{}
	}
	here := place{r.run, r.after, r.entry}
	next := c.of[here]
	if next == nil {
		next = new(chunk)
		c.of[here] = next
	}
	return next
}

func (s *stream) write(conn *sse.Conn, text []byte) error {
	s.wrote = time.Now()
	return conn.Write(text)
}

// wait waits for the log to move. After each Options.Heartbeat of silence it writes a comment.
func (s *stream) wait(ctx context.Context, conn *sse.Conn, moved <-chan struct{}) error {
	timer := time.NewTimer(time.Until(s.wrote.Add(s.opts.Heartbeat)))
	defer timer.Stop()
	select {
	case <-moved:
		return nil
	case <-timer.C:
		return s.write(conn, []byte(": nothing new\n\n"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
