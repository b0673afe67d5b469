package connlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

// httpConns are the TCP connections that speak HTTP, until they become sockets
// or streams. A connection waits while it has no request of a known principal.
// Without a credential anybody can open a connection, so a waiting one may be
// closed at any time: if there are too many, the one that has waited longest is
// closed. The limiter's lock guards httpConns.
type httpConns struct {
	all, each int // connections; waiting connections of one address

	byConn  map[net.Conn]*httpConn
	waiting *list.List     // of *httpConn, the longest waiting first
	byAddr  map[string]int // how many of an address wait; none is zero
	evicted uint64
}

type httpConn struct {
	conn       net.Conn
	addr       string
	active     bool // a request has arrived and its answer is not complete
	unread     bool // the request was answered before its whole body arrived; HTTP/1 then reads the rest
	identified int  // requests under way of known principals

	place *list.Element // of waiting; nil while it does not wait
}

func newHTTPConns(all, each int) httpConns {
	return httpConns{all: all, each: each, byConn: map[net.Conn]*httpConn{}, waiting: list.New(), byAddr: map[string]int{}}
}

// add registers a new connection, and returns the connection that it closed to
// make room, if any.
func (h *httpConns) add(conn net.Conn) (c, evicted *httpConn) {
	var from netip.Addr
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		from = tcp.AddrPort().Addr()
	}
	c = &httpConn{conn: conn, addr: ratelimit.Network(from)}
	h.byConn[conn] = c
	h.wait(c)
	switch {
	case h.byAddr[c.addr] > h.each:
		return c, h.evict(c.addr)
	case len(h.byConn) > h.all:
		return c, h.evict("")
	}
	return c, nil
}

// evict closes the connection of an address, or of any if addr is empty, that has
// waited longest and returns it, or nil if none waits.
func (h *httpConns) evict(addr string) *httpConn {
	for e := h.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*httpConn); addr == "" || c.addr == addr {
			h.remove(c.conn)
			h.evicted++
			Cut(c.conn)
			return c
		}
	}
	return nil
}

// remove forgets a connection that was closed or hijacked.
func (h *httpConns) remove(conn net.Conn) {
	if c := h.byConn[conn]; c != nil {
		delete(h.byConn, conn)
		h.stopWaiting(c)
	}
}

func (h *httpConns) wait(c *httpConn) {
	c.place = h.waiting.PushBack(c)
	h.byAddr[c.addr]++
}

func (h *httpConns) stopWaiting(c *httpConn) {
	if c.place == nil {
		return
	}
	h.waiting.Remove(c.place)
	c.place = nil
	if h.byAddr[c.addr]--; h.byAddr[c.addr] == 0 {
		delete(h.byAddr, c.addr)
	}
}

// closeUnlessAnswering ends a connection on which no request is being answered. The
// server completes answers under way.
func (c *httpConn) closeUnlessAnswering() {
	switch {
	case !c.active:
		Cut(c.conn)
	case c.unread:
		_ = c.conn.SetReadDeadline(time.Now()) // fails if the connection has ended
	}
}

// Cut closes a connection at once. It goes below TLS, whose Close waits until the
// peer has taken a close_notify.
func Cut(conn net.Conn) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	_ = conn.Close() // an error leaves nothing to do
}

type httpConnKey struct{}

// accepted is the server's ConnContext hook.
func (d *Limiter) accepted(ctx context.Context, conn net.Conn) context.Context {
	d.mu.Lock()
	c, evicted := d.http.add(conn)
	if d.closed {
		Cut(conn)
	}
	d.mu.Unlock()
	if evicted != nil && d.opts.Evicted != nil {
		d.opts.Evicted(evicted.conn.RemoteAddr().String())
	}
	return context.WithValue(ctx, httpConnKey{}, c)
}

// changed is the server's ConnState hook.
func (d *Limiter) changed(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.http.byConn[conn]
	switch {
	case c == nil: // it was evicted
	case state == http.StateActive, state == http.StateIdle:
		c.active, c.unread = state == http.StateActive, false
		if d.closed && !c.active {
			Cut(conn)
		}
	case state == http.StateHijacked, state == http.StateClosed:
		d.http.remove(conn)
	}
}
