package door

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/seed-028515a8/maestro/transport/rates"
)

// A lobby holds the TCP connections that speak HTTP, until they become sockets
// or streams. Anybody can open one, so a connection that nobody is known on can
// be closed at any time: when there are too many, the one that has waited
// longest goes. The door's lock guards it.
type lobby struct {
	all, each int // connections; of these, such as wait, of one address

	closed  bool
	callers map[net.Conn]*caller
	waiting *list.List            // of *caller without a known request, the longest first
	byAddr  map[string]*list.List // the same by address; never empty
	evicted uint64
}

// A caller is a TCP connection.
type caller struct {
	conn   net.Conn
	addr   string
	active bool // a request has come, and its answer is not complete
	unread bool // it was answered before its body had come whole, for which HTTP/1 waits
	known  int  // requests under way whose principal is known; while zero, the connection waits

	spot, own *list.Element // in waiting and in its address's list; nil if it is not there
}

func newLobby(all, each int) lobby {
	return lobby{all: all, each: each, callers: map[net.Conn]*caller{}, waiting: list.New(), byAddr: map[string]*list.List{}}
}

// enter takes a connection in, for which another may have to go.
func (l *lobby) enter(conn net.Conn) *caller {
	c := &caller{conn: conn}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		c.addr = rates.Network(tcp.AddrPort().Addr())
	} else {
		c.addr = rates.Network(netip.Addr{})
	}
	l.callers[conn] = c
	l.wait(c)
	switch own := l.byAddr[c.addr]; {
	case l.closed:
		cut(conn)
	case own.Len() > l.each:
		l.evict(own.Front().Value.(*caller))
	case len(l.callers) > l.all:
		l.evictOldest()
	}
	return c
}

// evictOldest closes the connection that has waited longest.
func (l *lobby) evictOldest() {
	if oldest := l.waiting.Front(); oldest != nil {
		l.evict(oldest.Value.(*caller))
	}
}

func (l *lobby) evict(c *caller) {
	l.leave(c.conn)
	l.evicted++
	cut(c.conn)
}

// leave forgets a connection that was closed or hijacked.
func (l *lobby) leave(conn net.Conn) {
	if c := l.callers[conn]; c != nil {
		delete(l.callers, conn)
		l.occupy(c)
	}
}

// wait puts a connection at the end of the list.
func (l *lobby) wait(c *caller) {
	own := l.byAddr[c.addr]
	if own == nil {
		own = list.New()
		l.byAddr[c.addr] = own
	}
	c.spot, c.own = l.waiting.PushBack(c), own.PushBack(c)
}

// occupy takes a connection off the list.
func (l *lobby) occupy(c *caller) {
	if c.spot == nil {
		return
	}
	own := l.byAddr[c.addr]
	l.waiting.Remove(c.spot)
	if own.Remove(c.own); own.Len() == 0 {
		delete(l.byAddr, c.addr)
	}
	c.spot, c.own = nil, nil
}

// begin says that a request of a known principal is under way, and end that it
// is answered.
func (l *lobby) begin(c *caller) {
	c.known++
	l.occupy(c)
}

func (l *lobby) end(c *caller) {
	if c.known--; c.known == 0 && l.callers[c.conn] == c {
		l.wait(c)
	}
}

// close ends the connections on which no request is being answered. An answer
// that is under way is for the server to complete.
func (l *lobby) close() {
	l.closed = true
	for _, c := range l.callers {
		l.dismiss(c)
	}
}

// dismiss ends a connection of a lobby that is closed, once nothing is due on it.
func (l *lobby) dismiss(c *caller) {
	switch {
	case !c.active:
		cut(c.conn)
	case c.unread:
		_ = c.conn.SetReadDeadline(time.Now()) // fails if the connection has ended
	}
}

// cut closes a connection without waiting for the peer, as TLS would.
func cut(conn net.Conn) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	_ = conn.Close() // whatever it says, nothing can be done
}

type callerKey struct{}

// arrived is the server's ConnContext.
func (d *Door) arrived(ctx context.Context, conn net.Conn) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return context.WithValue(ctx, callerKey{}, d.lobby.enter(conn))
}

// changed is the server's ConnState.
func (d *Door) changed(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.lobby.callers[conn]
	switch {
	case c == nil: // it was evicted
	case state == http.StateActive, state == http.StateIdle:
		c.active, c.unread = state == http.StateActive, false
		if d.lobby.closed && !c.active {
			cut(conn)
		}
	case state == http.StateHijacked, state == http.StateClosed:
		d.lobby.leave(conn)
	}
}
