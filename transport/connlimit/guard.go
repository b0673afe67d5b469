package connlimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

// Guard applies the limits to a server. Call it before the server serves. It
// bounds the server's connections and requests and the time for writing an
// answer, and lets [Limiter.Close] end them.
func (d *Limiter) Guard(s *http.Server) {
	s.ConnContext, s.ConnState = d.accepted, d.changed
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.enterRequest() {
			w.Header().Set("Connection", "close")
			httperr.Write(w, GoingAway)
			return
		}
		conn, _ := r.Context().Value(httpConnKey{}).(*httpConn)
		q := &request{limiter: d, control: http.NewResponseController(w), conn: conn}
		defer q.end()
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
		if r.Body != http.NoBody {
			r.Body = &body{r.Body, q}
			q.unread = r.ProtoMajor == 1
		}
		next.ServeHTTP(&answer{w, q, r}, r)
	})
}

func (d *Limiter) enterRequest() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.wg.Add(1)
	}
	return !d.closed
}

type requestKey struct{}

// A request is an HTTP request under way.
type request struct {
	limiter *Limiter
	control *http.ResponseController
	conn    *httpConn
	slot    *Slot // nil until Identify
	unread  bool  // some of the body has not been read

	mu     sync.Mutex
	ended  bool        // control must not be used any more
	unhook func() bool // stops the AfterFunc that interrupts reading the body
}

// Identify names the principal of a request that came through Guard. It refuses
// requests beyond the principal's bounds, as Admit does. The request keeps its
// slot until it is answered.
func (d *Limiter) Identify(r *http.Request, p contracts.Principal) error {
	q, ok := r.Context().Value(requestKey{}).(*request)
	if !ok || q.slot != nil {
		return nil
	}
	slot, err := d.take(&d.requests, p)
	if err != nil {
		return err
	}
	q.slot = slot
	if q.conn != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.http.begin(q.conn)
	}
	return nil
}

func (q *request) end() {
	q.mu.Lock()
	q.ended = true
	if q.unhook != nil {
		q.unhook()
	}
	q.mu.Unlock()
	if q.slot != nil {
		q.slot.Leave()
	}
	d := q.limiter
	d.mu.Lock()
	if c := q.conn; c != nil {
		if q.slot != nil {
			d.http.end(c)
		}
		if c.unread = q.unread; d.closed && c.unread {
			c.closeUnlessAnswering()
		}
	}
	d.mu.Unlock()
	d.wg.Done()
}

// interruptible makes the end of the limiter interrupt reading the body.
func (q *request) interruptible() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unhook == nil && !q.ended {
		q.unhook = context.AfterFunc(q.limiter.ctx, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if !q.ended {
				_ = q.control.SetReadDeadline(time.Now()) // an error says that reading fails as well
			}
		})
	}
}

// A body is the body of a request. Reading it fails when the limiter is closed.
type body struct {
	io.ReadCloser
	of *request
}

func (b *body) Read(p []byte) (int, error) {
	b.of.interruptible()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.of.unread = false
	}
	if err != nil && err != io.EOF && b.of.limiter.ctx.Err() != nil {
		err = GoingAway
	}
	return n, err
}

// An answer gives the client WriteTimeout for each part of it.
type answer struct {
	http.ResponseWriter
	of *request
	r  *http.Request
}

// Refused implements [httperr.RefusalWriter].
func (a *answer) Refused(refusal *contracts.Error) {
	if refused := a.of.limiter.opts.Refused; refused != nil {
		refused(a.r, refusal)
	}
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (n int, err error) {
	for {
		_ = a.of.control.SetWriteDeadline(time.Now().Add(a.of.limiter.opts.WriteTimeout)) // an error says that writing fails as well
		m, err := a.ResponseWriter.Write(p[n:min(len(p), n+contracts.WritePart)])
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// slotOf returns the slot of a request, or nil before Identify.
func slotOf(r *http.Request) *Slot {
	if q, ok := r.Context().Value(requestKey{}).(*request); ok {
		return q.slot
	}
	return nil
}

// ReserveAnswer reserves n bytes of memory for the answer to a request, in
// place of those reserved before, until the request is answered. It refuses
// with overloaded or rate_limited if all principals or the principal of the
// request have too many bytes of unread answers; see [Limiter.Identify].
func ReserveAnswer(r *http.Request, n int) error { return slotOf(r).reserveAnswer(n, false) }

// CountAnswer is ReserveAnswer for an answer that can no longer be refused.
func CountAnswer(r *http.Request, n int) { _ = slotOf(r).reserveAnswer(n, true) }

// ReadBody reads the body of a request, at most most bytes. Its errors are
// refusals. The memory counts for the principal of the request; see
// [Limiter.Identify].
func ReadBody(w http.ResponseWriter, r *http.Request, most int) ([]byte, error) {
	tooLarge := &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "Payload too large"}
	if r.ContentLength > int64(most) {
		return nil, tooLarge
	}
	slot := slotOf(r)
	limited := http.MaxBytesReader(w, r.Body, int64(most))
	var text []byte
	for {
		if len(text) == cap(text) {
			var err error
			if text, err = slot.Grow(text, most); err != nil {
				return nil, err
			}
		}
		n, err := limited.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == nil:
		case err == io.EOF:
			return text, nil
		default:
			return nil, unread(err, tooLarge)
		}
	}
}

// unread returns the refusal for a body that could not be read.
func unread(err error, tooLarge *contracts.Error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge
	}
	if refusal, ok := errors.AsType[*contracts.Error](err); ok {
		return refusal
	}
	if timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && timeout.Timeout() {
		return &contracts.Error{Code: contracts.CodeTimeout, Message: "the body took too long"}
	}
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: "the body could not be read"}
}
