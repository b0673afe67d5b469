package wiring

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/notify"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
	"github.com/seed-028515a8/maestro/web"
)

// NetworkOptions configures [NewNetwork].
type NetworkOptions struct {
	// Auth has the credentials. NewNetwork sets Version, Log and what depends on the
	// sessions: Identified, RateLimit, Refuse, Revoked, Session, WebPush, and with a
	// directory the files.
	Auth auth.Options

	Clients connlimit.Options // NewNetwork sets Refused and Evicted
	Rates   ratelimit.Options

	MaxFrameBytes     int
	Strict            bool
	HeartbeatInterval time.Duration // zero means contracts.DefaultHeartbeatInterval
	HandshakeTimeout  time.Duration // zero means contracts.DefaultHandshakeTimeout

	Protocols []Protocol // of other programs

	Log *slog.Logger // required
}

// A Network answers the requests of clients: it checks their credentials and limits and
// has the routes of all transports. It does not listen.
type Network struct {
	Auth  *auth.Authenticator
	Limit *connlimit.Limiter

	handler http.Handler
	acp     *acpSockets
	end     func(principalID string) // ends the connections of a principal
	log     *slog.Logger
}

// A Backend has the sessions that a network serves.
type Backend struct {
	// Find opens a session. opened reports whether this call started its runtime.
	Find func(ctx context.Context, want httpapi.Wanted) (h *hub.Hub, opened bool, err error)

	List      func(contracts.Principal) *contracts.SessionList // nil lists nothing
	Admit     func(*auth.Authenticator)                        // receives what admits clients
	Evict     func(principalID string)                         // ends the connections of a principal to sessions
	Ready     func() (refusal *contracts.Error, draining bool)
	Workspace string      // directory of the agent, without symbolic links
	Session   string      // the only session; empty if there can be several
	Dir       string      // for the shares; empty keeps them in memory
	Runner    interface { // nil unless the process is a hosted runner
		httpapi.Fence
		httpapi.Runner
	}
	Observer *observe.Observer

	overview *overview.Overview // nil has none
	notifier *notify.Notifier   // nil notifies nobody
	page     http.Handler       // for browsers; nil has none
	pages    http.Handler       // of the operator's own; nil has none

	// more adds routes; nil adds none.
	more func(mux *http.ServeMux, g *auth.Authenticator, streams *sse.Streams, limiter *ratelimit.Limiter) error
}

// A visit is one WebSocket's attachment to a session.
type visit struct {
	hub *hub.Hub
	att contracts.Attach
}

func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.hub.Serve(ctx, conn, hub.WireEnvelope, &v.att)
}

// overHTTP is a hub with the Stream of [httpapi.Session].
type overHTTP struct{ *hub.Hub }

func (o overHTTP) Stream(ctx context.Context, conn *sse.Conn, req contracts.StreamRequest, by contracts.Caller) error {
	return o.Hub.Stream(ctx, conn, req, by)
}

// NewNetwork returns the network of a backend. Close ends it.
func NewNetwork(o NetworkOptions, h Backend) (*Network, error) {
	o.HeartbeatInterval = cmp.Or(o.HeartbeatInterval, contracts.DefaultHeartbeatInterval)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, contracts.DefaultHandshakeTimeout)
	refusals := &refusalLog{log: o.Log, now: time.Now}
	o.Clients.Refused, o.Clients.Evicted = refusals.request, refusals.evicted
	n := &Network{Limit: connlimit.New(o.Clients), log: o.Log}
	n.end = func(principalID string) {
		n.acp.evict(principalID) // first, so that the client is told the reason
		h.Evict(principalID)
	}
	limiter := ratelimit.New(o.Rates)
	g, err := n.authenticator(o.Auth, h, limiter)
	if err != nil {
		return nil, err
	}
	n.Auth = g
	h.Admit(g)
	mux, err := n.routes(&o, g, h, limiter, refusals)
	if err != nil {
		return nil, err
	}
	n.handler = h.Observer.Routes(g.Wrap(mux))
	h.Observer.Collect(n.measure)
	h.Observer.Collect(h.measure)
	n.acp.accept()
	return n, nil
}

// Guard makes s serve the network's clients. It bounds the connections of s.
func (n *Network) Guard(s *http.Server) {
	s.Handler = n.handler
	n.Limit.Guard(s)
}

// Handler returns a handler that serves the network's clients on any server. It bounds
// their requests, WebSockets and streams, but not the TCP connections of the server.
func (n *Network) Handler() http.Handler { return n.Limit.Wrap(n.handler) }

// Close ends all connections and requests of clients, and refuses new ones. If ctx ends
// first, it cuts them. Close may be called again.
func (n *Network) Close(ctx context.Context) error {
	return errors.Join(n.Limit.Close(ctx), n.acp.close(), n.Auth.Close())
}

// Disconnect ends the connections of a principal, and what [auth.Authenticator.SignOut] ends.
func (n *Network) Disconnect(principalID string) {
	n.Auth.SignOut(principalID)
	n.end(principalID)
}

// measure reports the metrics of the sessions.
func (h *Backend) measure(gauge, _ observe.Measure) {
	ready := 0.0
	if refusal, _ := h.Ready(); refusal == nil {
		ready = 1
	}
	gauge("ready", "1 while /readyz answers 200, else 0.", ready)
	if h.overview == nil {
		return
	}
	waiting, oldest := h.overview.AtRest()
	for _, kind := range contracts.RequestTypes() {
		if kind != contracts.RequestClientTool { // a program answers it, and no summary has it
			gauge("stored_requests_pending", "Questions of sessions that are not open.", float64(waiting[kind]), "type", string(kind))
		}
	}
	age := 0.0
	if !oldest.IsZero() {
		age = time.Since(oldest).Seconds()
	}
	gauge("stored_request_age_seconds", "Age of the oldest question of a session that is not open.", age)
}

// measure reports the metrics of the network.
func (n *Network) measure(gauge, counter observe.Measure) {
	c := n.Limit.Counts()
	gauge("waiting_connections", "TCP connections without a request of a known principal.", float64(c.Waiting))
	gauge("requests_in_flight", "Requests of known principals that are being answered.", float64(c.Requests))
	gauge("unfinished_bytes", "Memory of messages and bodies that are not complete.", float64(c.Unfinished))
	gauge("unread_bytes", "Memory of answers that clients have not read.", float64(c.Answers))
	for what, refused := range map[string]connlimit.Refused{"connection": c.Connections, "message": c.Messages, "answer": c.Unread} {
		const help = "What was refused because of a bound of all clients or of one principal."
		counter("limited_total", help, float64(refused.Full), "what", what, "bound", "all")
		counter("limited_total", help, float64(refused.Excess), "what", what, "bound", "principal")
	}
	counter("evicted_connections_total", "Waiting TCP connections that were closed because there were too many.", float64(c.Evicted))
}

func (n *Network) authenticator(opts auth.Options, h Backend, limiter *ratelimit.Limiter) (*auth.Authenticator, error) {
	opts.Version, opts.Identified, opts.RateLimit, opts.Log = Version(), n.Limit.Identify, limiter, n.log
	opts.Refuse, opts.Revoked = refuse, n.end
	opts.Session = func(ctx context.Context, p contracts.Principal, id string) error {
		_, _, err := h.Find(ctx, httpapi.Wanted{ID: id, Principal: p})
		return err
	}
	opts.Page = h.page != nil
	opts.WebPush = h.notifier != nil && h.notifier.WebPush()
	if h.Dir != "" { // shares and cookies name sessions of this workspace
		opts.ShareFile = filepath.Join(h.Dir, "shares.json")
		if opts.Authenticate == nil { // else nothing says whether a cookie's user still has access after a restart
			opts.CookieFile = filepath.Join(h.Dir, "cookies.json")
		}
	}
	return auth.New(opts)
}

func (n *Network) routes(o *NetworkOptions, g *auth.Authenticator, h Backend, limiter *ratelimit.Limiter, refusals *refusalLog) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	if err := n.serveSockets(o, mux, g, h, limiter, refusals); err != nil {
		return nil, err
	}
	var overview httpapi.Overview
	if h.overview != nil {
		overview = overviewOverHTTP{h.overview}
	}
	var notifier httpapi.Notifier
	if h.notifier != nil {
		notifier = h.notifier
	}
	streams := sse.New(sse.Options{ConnLimit: n.Limit, WriteTimeout: o.Clients.WriteTimeout, Log: n.log})
	requests, err := httpapi.New(httpapi.Options{
		Authorize: g.Authorize, List: h.List, Overview: overview, Notifier: notifier, Fence: h.Runner, Ready: h.Ready, Rates: limiter,
		Find: func(ctx context.Context, want httpapi.Wanted) (httpapi.Session, bool, error) {
			session, opened, err := h.Find(ctx, want)
			return overHTTP{session}, opened, err
		},
		Page: h.page, Streams: streams,
		MaxBodyBytes: o.MaxFrameBytes, Strict: o.Strict,
	})
	if err != nil {
		return nil, err
	}
	requests.Routes(mux)
	httpapi.RunnerRoutes(mux, h.Runner, g.Control)
	mux.Handle("/api/headless/whoami", g.WhoAmI())
	mux.Handle("/api/headless/ws-tickets", g.Tickets())
	mux.Handle("/api/headless/sessions/{id}/shares", g.Shares())
	mux.Handle("/api/headless/sessions/{id}/shares/{share_id}", g.Shares())
	if h.pages != nil {
		mux.Handle(web.PagesPath, h.pages)
	}
	mux.Handle("/login", g.Login())
	mux.Handle("/logout", g.Logout())
	mux.Handle("/metrics", metricsFor(g, h.Observer.Handler()))
	if h.more != nil {
		err = h.more(mux, g, streams, limiter)
	}
	return mux, err
}

// serveSockets adds the routes of WebSockets.
func (n *Network) serveSockets(
	o *NetworkOptions, mux *http.ServeMux, g *auth.Authenticator, h Backend, limiter *ratelimit.Limiter, refusals *refusalLog,
) error {
	options := ws.Options{
		Authorize: func(r *http.Request) (contracts.Principal, error) {
			p, err := g.Authorize(r)
			if err == nil && h.Runner != nil { // only clients with a credential see the fence's errors
				err = httpapi.FenceUpgrade(h.Runner, r)
			}
			return p, err
		},
		Explain:   func(r *http.Request) bool { return r.Header.Get("Origin") != "" && g.CheckSender(r) == nil },
		ConnLimit: n.Limit, RateLimit: limiter,
		MaxFrameBytes: o.MaxFrameBytes, WriteTimeout: o.Clients.WriteTimeout, Refused: refusals.attachment, Log: n.log,
	}
	find := func(ctx context.Context, att contracts.Attach) (*hub.Hub, error) {
		session, _, err := h.Find(ctx, httpapi.Wanted{ID: att.SessionID, Create: att.Create, Socket: true, Principal: att.Principal})
		if err != nil {
			return nil, err
		}
		return session, session.Admit(att)
	}
	options.Open = func(ctx context.Context, att contracts.Attach) (ws.Session, error) {
		session, err := find(ctx, att)
		return &visit{session, att}, err
	}
	sockets, err := ws.New(options)
	if err != nil {
		return err
	}
	mux.Handle("/api/headless/ws", sockets)
	mux.Handle("/api/headless/sessions/{id}/ws", sockets)
	if err := n.serveACP(o, mux, g, h, options); err != nil {
		return err
	}
	lists := options
	lists.Open = func(_ context.Context, att contracts.Attach) (ws.Session, error) {
		if h.overview == nil {
			return nil, &contracts.Error{Code: contracts.CodeNotFound, Message: "route not found"}
		}
		return &listVisit{h.overview, contracts.Caller{Principal: att.Principal, Role: att.Role}}, nil
	}
	listSockets, err := ws.New(lists)
	if err != nil {
		return err
	}
	mux.Handle("/api/headless/lists/ws", listSockets)
	options.Foreign = true
	for _, p := range o.Protocols {
		options.Open = func(ctx context.Context, att contracts.Attach) (ws.Session, error) {
			if err := att.Principal.CheckRole(contracts.RoleController); err != nil {
				return nil, err
			}
			att.Role, att.Takeover = contracts.RoleController, contracts.TakeoverLater
			session, err := find(ctx, att)
			return &foreignVisit{p, o.HandshakeTimeout, OnlySession(session).As(att.Principal, n.log)}, err
		}
		others, err := ws.New(options)
		if err != nil {
			return err
		}
		mux.Handle("/api/"+p.Name+"/ws", others)
	}
	return nil
}

// serveACP adds the route of ACP clients. native serves WebSockets of sessions.
func (n *Network) serveACP(o *NetworkOptions, mux *http.ServeMux, g *auth.Authenticator, h Backend, native ws.Options) error {
	outer := native
	native.Authorize = authorizePipe
	inner, err := ws.New(native)
	if err != nil {
		return err
	}
	n.acp = newACPSockets(o, h, g.Alive, inner)
	outer.Foreign, outer.Header = true, nameConnection
	outer.Open = func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &acpVisit{n.acp, att}, nil }
	sockets, err := ws.New(outer)
	mux.Handle("/acp", sockets)
	return err
}

// metricsFor serves the metrics to the owner and to the metrics token.
func metricsFor(g *auth.Authenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Metrics(r); err != nil {
			httperr.Write(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
