package sse

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// A socket is a hijacked connection. The body is chunked, so that a client can
// tell its end from a broken connection. An HTTP/1.0 client gets it without
// chunks.
//
// Events are not copied: one system call writes the chunk size, the journal's
// bytes and the chunk end.
type socket struct {
	net.Conn
	plain bool        // HTTP/1.0: no chunks
	size  [20]byte    // of the chunk being written
	parts [4][]byte   // backing array of vec
	vec   net.Buffers // being written
}

var (
	newline   = []byte("\r\n")
	lastChunk = []byte("0\r\n\r\n")
)

func (s *socket) begin(header http.Header, first []byte, deadline time.Time) error {
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	if s.plain {
		header.Set("Connection", "close")
	} else {
		header.Set("Connection", "keep-alive")
		header.Set("Transfer-Encoding", "chunked")
	}
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if err := header.Write(&head); err != nil {
		return err
	}
	head.WriteString("\r\n")
	return s.send(head.Bytes(), first, deadline)
}

func (s *socket) write(events []byte, deadline time.Time) error { return s.send(nil, events, deadline) }

// send writes head without a chunk header, and events as a chunk.
func (s *socket) send(head, events []byte, deadline time.Time) error {
	if err := s.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if s.plain {
		s.vec = append(s.parts[:0], head, events)
	} else {
		size := append(strconv.AppendInt(s.size[:0], int64(len(events)), 16), '\r', '\n')
		s.vec = append(s.parts[:0], head, size, events, newline)
	}
	if _, tcp := s.Conn.(*net.TCPConn); tcp {
		_, err := s.vec.WriteTo(s.Conn)
		return err
	}
	// On other connections each part would be a write, or a TLS record, of its
	// own.
	_, err := s.Write(bytes.Join(s.vec, nil))
	return err
}

func (s *socket) finish(deadline time.Time) error {
	defer s.cut()
	if err := s.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if !s.plain {
		if _, err := s.Write(lastChunk); err != nil {
			return err
		}
	}
	return s.sayEnd()
}

// sayEnd sends TLS close_notify, so that the peer knows the body is complete.
func (s *socket) sayEnd() error {
	if secure, ok := s.Conn.(*tls.Conn); ok {
		return secure.CloseWrite()
	}
	return nil
}

func (s *socket) refuse(header http.Header, err error) {
	status, body := httperr.Encode(header, err)
	answer := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Close: true,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	var out bytes.Buffer
	_ = answer.Write(&out) // a buffer cannot fail
	if s.SetWriteDeadline(time.Now().Add(closeTimeout)) == nil {
		_, _ = s.Write(out.Bytes()) // the peer may be gone
		_ = s.sayEnd()
	}
}

func (s *socket) leave() { s.cut() }
func (s *socket) wake()  { _ = s.SetReadDeadline(time.Now()) } // fails if the connection has ended
func (s *socket) cut()   { connlimit.Cut(s.Conn) }

// wait reads until the peer hangs up. It discards what it reads, and fails
// after 64 KiB.
func (s *socket) wait() error {
	const most = 64 << 10 // more than a client sends that pipelines a request
	var buf [64]byte
	for got := 0; got < most; {
		n, err := s.Read(buf[:])
		if err != nil {
			return err
		}
		got += n
	}
	return net.ErrClosed
}

// An answer is a wire through the ResponseWriter, for connections that cannot
// be hijacked. Its handler must not return before the stream ends, because w
// must not be used after the handler has returned.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request
	stop    context.CancelFunc

	mu    sync.Mutex // held while the deadline is set, but not while w is written to
	ended bool       // no deadline may be set any more: the handler returns, or the stream was cut
}

func (a *answer) begin(header http.Header, first []byte, deadline time.Time) error {
	maps.Copy(a.w.Header(), header)
	a.w.WriteHeader(http.StatusOK)
	return a.write(first, deadline)
}

func (a *answer) write(events []byte, deadline time.Time) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if err := a.limit(deadline); err != nil {
		return err
	}
	if _, err := a.w.Write(events); err != nil {
		return err
	}
	if err := a.control.Flush(); err != nil {
		return err
	}
	if a.ctx.Err() != nil && !time.Now().Before(deadline) {
		return os.ErrDeadlineExceeded // a middleware's Flush may return no error
	}
	return a.limit(time.Time{}) // HTTP/2 resets a stream at its deadline even if nothing is being written
}

// limit sets the write deadline; the zero time means none.
func (a *answer) limit(deadline time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return net.ErrClosed
	}
	return a.control.SetWriteDeadline(deadline)
}

func (a *answer) finish(time.Time) error { a.stop(); return nil } // the return of the handler ends the body
func (a *answer) wake()                  { a.stop() }

func (a *answer) refuse(_ http.Header, err error) { httperr.Write(a.w, err) }

// cut interrupts a blocked write and makes the end of the body fail. The
// handler must not return before that.
func (a *answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		_ = a.control.SetWriteDeadline(time.Now()) // it fails if the connection has ended
	}
	a.ended = true
	a.stop()
}

func (a *answer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.stop()
}

func (a *answer) wait() error {
	<-a.ctx.Done()
	return a.ctx.Err()
}
