package connlimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// Guard applies the limits to a server. Call it before the server serves. It
// bounds the server's connections and requests and the time for writing an
// answer, and lets [Limiter.Close] end them.
func (d *Limiter) Guard(s *http.Server) {
	s.ConnContext, s.ConnState = d.accepted, d.changed
	s.Handler = d.Wrap(s.Handler)
}

// Wrap applies the limits to the requests of a handler. Unlike Guard it does not bound
// the connections of the server.
func (d *Limiter) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(httpConnKey{}).(*httpConn)
		q := &request{limiter: d, control: http.NewResponseController(w), conn: conn}
		hasBody := r.Body != http.NoBody
		d.mu.Lock()
		refused := d.closed
		if !refused {
			d.wg.Add(1)
		}
		if !refused && hasBody {
			d.incoming[q] = struct{}{}
		}
		d.mu.Unlock()
		if refused {
			w.Header().Set("Connection", "close")
			httperr.Write(w, GoingAway)
			return
		}
		defer q.end()
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
		if hasBody {
			r.Body = &body{r.Body, q}
			q.unread = r.ProtoMajor == 1
		}
		next.ServeHTTP(&answer{w, q, r}, r)
	})
}

type requestKey struct{}

// A request is an HTTP request under way.
type request struct {
	limiter *Limiter
	control *http.ResponseController
	conn    *httpConn
	slot    *Slot // nil until Identify
	unread  bool  // some of the body has not been read
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
		q.conn.identified++
		d.http.stopWaiting(q.conn)
	}
	return nil
}

func (q *request) end() {
	q.slot.Leave()
	d := q.limiter
	d.mu.Lock()
	delete(d.incoming, q)
	if c := q.conn; c != nil {
		if q.slot != nil {
			if c.identified--; c.identified == 0 && d.http.byConn[c.conn] == c {
				d.http.wait(c)
			}
		}
		if c.unread = q.unread; d.closed && c.unread {
			c.closeUnlessAnswering()
		}
	}
	d.mu.Unlock()
	d.wg.Done()
}

// A body is the body of a request. Reading it fails when the limiter is closed.
type body struct {
	io.ReadCloser
	of *request
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	d := b.of.limiter
	if err == io.EOF {
		b.of.unread = false
		d.mu.Lock()
		delete(d.incoming, b.of)
		d.mu.Unlock()
	} else if err != nil && d.ctx.Err() != nil {
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
	if r.ContentLength > int64(most) {
		return nil, errTooLarge
	}
	text, err := slotOf(r).ReadAll(http.MaxBytesReader(w, r.Body, int64(most)), nil, most)
	_, large := errors.AsType[*http.MaxBytesError](err)
	refusal, refused := errors.AsType[*contracts.Error](err)
	switch {
	case err == nil:
		return text, nil
	case large:
		return nil, errTooLarge
	case refused:
		return nil, refusal
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &contracts.Error{Code: contracts.CodeTimeout, Message: "the body took too long"}
	}
	return nil, &contracts.Error{Code: contracts.CodeBadRequest, Message: "the body could not be read"}
}

var errTooLarge = &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "Payload too large"}
