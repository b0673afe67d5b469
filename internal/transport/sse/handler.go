package sse

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
)

// Options configures [New]. A zero field except ConnLimit means the default named
// beside it.
type Options struct {
	ConnLimit    *connlimit.Limiter // counts the streams, together with the connections of other transports; required
	WriteTimeout time.Duration      // for the peer to take a write; contracts.DefaultWriteTimeout
	Log          *slog.Logger       // discards
}

// A Session is the session that a stream shows.
type Session interface {
	// Epoch names the journal that the cursors of the stream's ids belong to. It is empty
	// for a stream without cursors.
	Epoch() string

	// MayStream refuses a request before it is answered, if the reason is known
	// by then. It changes nothing.
	MayStream(req contracts.StreamRequest, by contracts.Caller) error

	// Stream sends the session's events on conn until conn ends. It must return
	// soon after conn's methods fail. ctx ends when the limiter is closed.
	Stream(ctx context.Context, conn *Conn, req contracts.StreamRequest, by contracts.Caller) error
}

// Streams answers requests with streams. It is safe for concurrent use.
type Streams struct{ opts Options }

// New returns Streams.
func New(opts Options) *Streams {
	opts.WriteTimeout = cmp.Or(max(opts.WriteTimeout, 0), contracts.DefaultWriteTimeout)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	return &Streams{opts}
}

// Serve answers a request with a stream of the session's events. If it returns
// an error, it has sent nothing.
//
// If the connection can be hijacked, Serve returns at once and the stream runs
// in a new goroutine. That goroutine holds neither w nor r, so net/http's
// buffers and stack are freed (D3). Otherwise Serve returns when the stream has
// ended.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, session Session, req contracts.StreamRequest, by contracts.Caller) error {
	slot, err := s.opts.ConnLimit.Admit(by.Principal)
	if err != nil {
		return err
	}
	defer func() { slot.Leave() }() // a stream that takes the slot over sets it to nil
	if err := session.MayStream(req, by); err != nil {
		return err
	}
	epoch := session.Epoch()
	if r.ProtoMajor == 1 {
		conn, _, err := http.NewResponseController(w).Hijack() // bytes read after the request are dropped
		switch {
		case err == nil:
			header := w.Header().Clone() // fields that were set before, such as for CORS
			c := newConn(&socket{Conn: conn, plain: r.ProtoMinor == 0}, header, epoch, s.opts.WriteTimeout)
			go s.run(c, slot, session, req, by) // ends with the stream; the limiter waits for it
			slot = nil
			return nil
		case !errors.Is(err, http.ErrNotSupported):
			return err
		}
	}
	ctx, stop := context.WithCancel(r.Context())
	through := &answer{w: w, control: http.NewResponseController(w), ctx: ctx, stop: stop}
	if err := through.limit(time.Time{}); errors.Is(err, http.ErrNotSupported) {
		stop()
		err = errors.New("middleware hides the connection: its http.ResponseWriter needs the method Unwrap")
		s.opts.Log.Error("cannot stream", "error", err)
		return err
	}
	c := newConn(through, http.Header{}, epoch, s.opts.WriteTimeout)
	taken := slot
	slot = nil
	s.run(c, taken, session, req, by)
	return nil
}

// run serves a stream from its start to its end.
func (s *Streams) run(c *Conn, slot *connlimit.Slot, session Session, req contracts.StreamRequest, by contracts.Caller) {
	defer slot.Leave()
	err := slot.Serve(c, s.opts.Log, func(ctx context.Context) error { return session.Stream(ctx, c, req, by) })
	s.report(by.Principal.ID, err)
	c.finishOrRefuse(err)
}

// report logs how a stream ended. It is not part of run, whose frame lies on the
// stack of every idle stream.
//
//go:noinline
func (s *Streams) report(principal string, err error) {
	_, refused := errors.AsType[*contracts.Error](err)
	if err != nil && !refused && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.opts.Log.Debug("stream ended", "principal", principal, "error", err)
	}
}
