package sse

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A socket is a hijacked connection. The body is chunked, so that its end can be
// told from a connection that broke; a client of HTTP/1.0 gets it as it is.
//
// Events are not copied: a chunk is its size, the bytes as they lie in the
// journal, and its end, in one system call.
type socket struct {
	net.Conn
	plain bool        // HTTP/1.0: no chunks
	size  [20]byte    // of the chunk being written
	parts [4][]byte   // what vec is made of
	vec   net.Buffers // being written
	once  sync.Once
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

// send writes head as it is and events as a chunk.
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
	// Anything else would get every part in a write, or a TLS record, of its own.
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

// sayEnd tells a peer on TLS that nothing is missing.
func (s *socket) sayEnd() error {
	if secure, ok := s.Conn.(*tls.Conn); ok {
		return secure.CloseWrite()
	}
	return nil
}

func (s *socket) refuse(header http.Header, err error) {
	status, body := refusal(header, err)
	var out bytes.Buffer
	out.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	header.Set("Connection", "close")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_ = header.Write(&out) // a buffer takes everything
	out.WriteString("\r\n")
	out.Write(body)
	if s.SetWriteDeadline(time.Now().Add(closeTimeout)) == nil {
		_, _ = s.Write(out.Bytes()) // the peer may be gone
		_ = s.sayEnd()
	}
}

func (s *socket) leave() { s.cut() }
func (s *socket) wake()  { _ = s.SetReadDeadline(time.Now()) } // fails if the connection has ended

func (s *socket) cut() {
	s.once.Do(func() {
		below := s.Conn
		if secure, ok := below.(*tls.Conn); ok { // whose Close would wait for a peer that reads nothing
			below = secure.NetConn()
		}
		_ = below.Close() // whatever it says, nothing can be done
	})
}

// wait reads until the peer has hung up. What it sends is of no interest, but it
// may not send without end.
func (s *socket) wait() error {
	const most = 64 << 10 // more than any client sends that pipelines a request
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
