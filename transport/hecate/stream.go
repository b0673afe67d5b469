package hecate

import (
	"context"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/ratelimit"
	"github.com/seed-028515a8/maestro/transport/sse"
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
	s := &stream{reader: r, by: c.by, opts: &v.opts}
	return v.opts.Streams.Serve(c.w, c.r, s, contracts.StreamRequest{}, contracts.Caller{Principal: c.by})
}

// A stream sends events to one client. Its position is that of its reader: a slow client
// costs a cursor, and reads from the log when it is ready.
type stream struct {
	reader *reader
	by     contracts.Principal
	opts   *Options
	wrote  time.Time // when something was last written
}

// Epoch implements [sse.Session].
func (s *stream) Epoch() string { return s.reader.log.journal.Epoch() }

// MayStream implements [sse.Session].
func (s *stream) MayStream(contracts.StreamRequest, contracts.Caller) error { return nil }

// Stream implements [sse.Session].
func (s *stream) Stream(ctx context.Context, conn *sse.Conn, _ contracts.StreamRequest, _ contracts.Caller) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the connection, which is closed when Stream returns
		_, _ = conn.ReadFrame() // its error says that the client has gone
		stop()
	}()
	if err := s.write(conn, []byte(": hecate\n\n")); err != nil {
		return err
	}
	for s.opts.Alive(s.by) {
		moved := s.reader.log.change()
		more, err := s.send(conn)
		if err != nil {
			return err
		}
		if more {
			continue
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
	var out []byte
	more, err = s.reader.read(func(ev record) bool {
		if len(out) > 0 && len(out)+len(ev.line) > maxWrite {
			return false
		}
		out = strconv.AppendUint(append(out, "id: "...), s.reader.cursor(ev), 10)
		out = append(append(append(out, "\ndata: "...), ev.line...), "\n\n"...)
		return true
	})
	if len(out) > 0 {
		if failed := s.write(conn, out); failed != nil {
			return false, failed
		}
	}
	return more, err
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
