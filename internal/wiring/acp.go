package wiring

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/acpserver"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// acpSockets serves clients of the Agent Client Protocol on WebSockets. Each of them is
// a client of this server: it attaches to sessions over connections in memory, as a
// native client does over the network.
type acpSockets struct {
	// Static after newACPSockets.
	opts    acpserver.Options // without what depends on the client
	sockets acpserver.SocketOptions
	work    string // directory of the agent
	session string // the only session; empty if there can be several
	list    func(contracts.Principal) *contracts.SessionList
	alive   func(contracts.Principal) bool
	inner   *http.Server // attaches to sessions
	pipes   *pipes       // listener of inner
	done    chan struct{}

	mu     sync.Mutex
	visits map[*acpVisit]context.CancelCauseFunc // as many as there are connections
}

// newACPSockets returns the server of ACP clients. attach serves the connections in memory; their
// principal is that of the context.
func newACPSockets(
	o *NetworkOptions, h Backend, alive func(contracts.Principal) bool, attach http.Handler,
) *acpSockets {
	list := h.List
	if list == nil {
		list = func(contracts.Principal) *contracts.SessionList { return &contracts.SessionList{} }
	}
	return &acpSockets{
		opts:    acpserver.Options{Version: Version(), Log: o.Log},
		sockets: acpserver.SocketOptions{Heartbeat: o.HeartbeatInterval, Handshake: o.HandshakeTimeout},
		work:    h.Workspace, session: h.Session, list: list, alive: alive,
		inner: &http.Server{
			Handler: attach, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, principalKey{}, c.(*pipe).principal)
			},
		},
		pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}, done: make(chan struct{}),
		visits: map[*acpVisit]context.CancelCauseFunc{},
	}
}

// accept serves the connections in memory until close.
func (a *acpSockets) accept() {
	go func() { // ends with close, which waits for it
		defer close(a.done)
		if err := a.inner.Serve(a.pipes); !errors.Is(err, http.ErrServerClosed) {
			a.opts.Log.Error("connections in memory failed", "err", err)
		}
	}()
}

// close ends accept. The limiter of connections has ended the connections.
func (a *acpSockets) close() error {
	err := a.inner.Close()
	<-a.done
	return err
}

// evict ends the connections of a principal.
func (a *acpSockets) evict(principalID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v, end := range a.visits {
		if v.att.Principal.ID == principalID {
			end(hub.ErrExpired)
		}
	}
}

// An acpVisit is one ACP client on a WebSocket.
type acpVisit struct {
	server *acpSockets
	att    contracts.Attach
}

func (v *acpVisit) Serve(ctx context.Context, conn *ws.Conn) error {
	a, p := v.server, v.att.Principal
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !p.Expires.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, p.Expires, hub.ErrExpired)
		defer stop()
	}
	a.mu.Lock()
	a.visits[v] = end
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.visits, v)
	}()
	if !a.alive(p) { // it may have been revoked before evict could find the connection
		end(hub.ErrExpired)
	}
	opts := a.opts
	opts.Session, opts.Create = cmp.Or(v.att.SessionID, a.session), v.att.Create
	opts.View = p.Role == contracts.RoleViewer || v.att.Role == contracts.RoleViewer
	opts.Approve = !opts.View && (p.Role == contracts.RoleApprover || v.att.Role == contracts.RoleApprover)
	opts.Take = v.att.Takeover == contracts.TakeoverForce && !opts.View && !opts.Approve
	opts.Open = func(context.Context, string) (acpserver.Server, error) {
		return acpserver.Server{
			URL: "http://maestro", Workspace: a.work,
			Dial: func(ctx context.Context) (net.Conn, error) { return a.pipes.dial(ctx, p) },
			List: func() *contracts.SessionList { return a.list(p) },
		}, nil
	}
	return acpserver.ServeSocket(ctx, conn, a.sockets, opts)
}

// nameConnection adds the header with the id of an ACP connection.
func nameConnection(h http.Header) { h.Set("Acp-Connection-Id", uuid.NewString()) }

type principalKey struct{} // of the principal in the context of a connection in memory

// authorizePipe returns the principal of a connection in memory.
func authorizePipe(r *http.Request) (contracts.Principal, error) {
	return r.Context().Value(principalKey{}).(contracts.Principal), nil
}

// pipes is a listener for connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// A pipe is the server's end of a connection in memory.
type pipe struct {
	net.Conn
	principal contracts.Principal
}

// dial connects as a principal.
func (l *pipes) dial(ctx context.Context, p contracts.Principal) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- &pipe{far, p}:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
