package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/hub/overview"
	"github.com/seed-028515a8/maestro/observe"
	"github.com/seed-028515a8/maestro/transport/auth"
	"github.com/seed-028515a8/maestro/transport/connlimit"
	"github.com/seed-028515a8/maestro/transport/httpapi"
	"github.com/seed-028515a8/maestro/transport/httperr"
	"github.com/seed-028515a8/maestro/transport/notify"
	"github.com/seed-028515a8/maestro/transport/ratelimit"
	"github.com/seed-028515a8/maestro/transport/sse"
	"github.com/seed-028515a8/maestro/transport/ws"
	"github.com/seed-028515a8/maestro/web"
)

// A network is the listening side of the program.
type network struct {
	net.Listener
	log       *slog.Logger
	server    *http.Server
	connLimit *connlimit.Limiter
	scheme    string // http or https
	token     string // path of the token file; empty with authentication off
	tokenText string // the token
	control   string // path of the control token's file; empty if there is none
	acp       *acpSockets
	auth      *auth.Authenticator
	debug     *http.Server  // profiles, on a listener of their own; nil unless asked for
	failed    atomic.Uint64 // failures to accept because no descriptor was left
	said      time.Time     // when such a failure was last logged
	done      chan struct{}
}

// A backend has the sessions that a network serves.
type backend struct {
	// find opens a session. opened reports whether this call started its runtime.
	find func(ctx context.Context, want httpapi.Wanted) (h *hub.Hub, opened bool, err error)

	list      func(contracts.Principal) *contracts.SessionList // nil lists nothing
	admit     func(*auth.Authenticator)                        // receives what admits clients
	evict     func(principalID string)                         // ends the connections of a principal to sessions
	ready     func() (ready, draining bool)
	workspace string      // directory of the agent, without symbolic links
	session   string      // the only session; empty if there can be several
	dir       string      // for the shares; empty keeps them in memory
	runner    interface { // nil unless the process is a hosted runner
		httpapi.Fence
		httpapi.Runner
	}
	observer *observe.Observer
	overview *overview.Overview // nil has none
	notifier *notify.Notifier   // nil notifies nobody
	page     http.Handler       // for browsers; nil has none
	pages    http.Handler       // pages of the operator; nil has none

	// more adds routes; nil adds none.
	more func(mux *http.ServeMux, g *auth.Authenticator, token string, streams *sse.Streams, limiter *ratelimit.Limiter) error
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

// listen opens the listener. Clients that connect wait until accept is called.
func listen(s settings, root string, h backend, log *slog.Logger) (*network, error) {
	ln, err := listenOn("listen", s.listen)
	if err != nil {
		return nil, err
	}
	n := &network{Listener: ln, log: log, scheme: "http", done: make(chan struct{})}
	if err := n.open(s, root, h); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return n, nil
}

// accept serves clients until close.
func (n *network) accept() {
	n.acp.accept()
	go func() { // ends when the server is shut down; close waits for it
		defer close(n.done)
		serve := n.server.Serve
		if n.scheme == "https" {
			serve = func(ln net.Listener) error { return n.server.ServeTLS(ln, "", "") }
		}
		if err := serve(n); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("listener failed", "err", err)
		}
	}()
}

// Accept implements [net.Listener]. If no descriptor is left, it logs that and closes a
// connection that waits for a request. The server calls it again after a pause.
func (n *network) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		n.failed.Add(1)
		n.connLimit.MakeRoom()
		if time.Since(n.said) > refusalSpan {
			n.said = time.Now()
			n.log.Error("connections cannot be accepted: raise the limit of open files, or lower --max-connections", "err", err)
		}
	}
	return conn, err
}

// measure reports the metrics of the network.
func (n *network) measure(gauge, counter observe.Measure) {
	c := n.connLimit.Counts()
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
	counter("accept_failures_total", "Times that no connection could be accepted for want of descriptors.", float64(n.failed.Load()))
}

func (n *network) open(s settings, root string, h backend) error {
	if s.auth == "off" && !isLoopback(n.Addr()) {
		return errNotLoopback("--auth off", n.Addr().String())
	}
	refusals := &refusalLog{log: n.log, now: time.Now}
	s.clients.Refused, s.clients.Evicted = refusals.request, refusals.evicted
	n.connLimit = connlimit.New(s.clients)
	limiter := ratelimit.New(s.rates)
	g, err := n.authenticator(s, root, h, limiter)
	if err != nil {
		return err
	}
	n.auth = g
	h.admit(g)
	mux, err := n.routes(s, g, h, limiter, refusals)
	if err != nil {
		return err
	}
	n.server = &http.Server{
		Handler: h.observer.Routes(g.Wrap(mux)), ReadHeaderTimeout: s.header, ReadTimeout: s.read,
		IdleTimeout: s.idle, MaxHeaderBytes: s.headerBytes,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // errors of clients
		HTTP2:    &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
	}
	n.connLimit.Guard(n.server)
	h.observer.Collect(n.measure)
	if s.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
		if err != nil {
			return fmt.Errorf("load the TLS certificate: %w", err)
		}
		n.scheme = "https"
		n.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	return n.profile(s.pprof)
}

// profile serves the profiles of the process on a loopback address of their own.
func (n *network) profile(addr string) error {
	if addr == "" {
		return nil
	}
	ln, err := listenOn("pprof", addr)
	if err != nil {
		return err
	}
	if !isLoopback(ln.Addr()) {
		return errors.Join(errNotLoopback("--pprof", addr), ln.Close())
	}
	n.debug = &http.Server{Handler: observe.Debug(), ReadHeaderTimeout: 5 * time.Second}
	n.log.Info("profiles", "url", "http://"+ln.Addr().String()+"/debug/pprof/")
	go func() { // ends with close
		if err := n.debug.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("profiles", "err", err)
		}
	}()
	return nil
}

func (n *network) authenticator(s settings, root string, h backend, limiter *ratelimit.Limiter) (*auth.Authenticator, error) {
	opts := s.access
	opts.Off, opts.Identified, opts.RateLimit, opts.Log = s.auth == "off", n.connLimit.Identify, limiter, n.log
	opts.Refuse = refuse
	opts.Revoked = func(principalID string) {
		n.acp.evict(principalID) // first, so that the client is told the reason
		h.evict(principalID)
	}
	opts.Session = func(ctx context.Context, p contracts.Principal, id string) error {
		_, _, err := h.find(ctx, httpapi.Wanted{ID: id, Principal: p})
		return err
	}
	if host, _, err := net.SplitHostPort(s.listen); err == nil && host != "" && net.ParseIP(host) == nil {
		opts.Hosts = append(slices.Clip(opts.Hosts), host)
	}
	opts.Version, opts.WebPush = version(), h.notifier != nil && h.notifier.WebPush()
	if opts.Off {
		return auth.New(opts)
	}
	n.token = tokenFile(root)
	if h.dir != "" { // shares and cookies name sessions of this workspace
		opts.ShareFile, opts.CookieFile = filepath.Join(h.dir, "shares.json"), filepath.Join(h.dir, "cookies.json")
	}
	token, err := auth.LoadOrCreateToken(n.token)
	if err != nil {
		return nil, err
	}
	opts.Token, n.tokenText = token, token
	if h.runner != nil {
		n.control = cmp.Or(s.controlTokenFile, filepath.Join(root, "control-token"))
		if opts.ControlToken, err = auth.LoadOrCreateToken(n.control); err != nil {
			return nil, err
		}
	}
	if s.metricsTokenFile != "" {
		if opts.MetricsToken, err = auth.LoadOrCreateToken(s.metricsTokenFile); err != nil {
			return nil, err
		}
	}
	if s.jwtKey != "" {
		if opts.Keys, err = auth.LoadKeys(s.jwtKey); err != nil {
			return nil, err
		}
	}
	return auth.New(opts)
}

func (n *network) routes(s settings, g *auth.Authenticator, h backend, limiter *ratelimit.Limiter, refusals *refusalLog) (*http.ServeMux, error) {
	options := ws.Options{
		Authorize: func(r *http.Request) (contracts.Principal, error) {
			p, err := g.Authorize(r)
			if err == nil && h.runner != nil { // only clients with a credential see the fence's errors
				err = httpapi.FenceUpgrade(h.runner, r)
			}
			return p, err
		},
		Explain:   func(r *http.Request) bool { return r.Header.Get("Origin") != "" && g.CheckSender(r) == nil },
		ConnLimit: n.connLimit, RateLimit: limiter,
		MaxFrameBytes: s.session.MaxFrameBytes, WriteTimeout: s.clients.WriteTimeout, Refused: refusals.attachment, Log: n.log,
	}
	find := func(ctx context.Context, att contracts.Attach) (*hub.Hub, error) {
		session, _, err := h.find(ctx, httpapi.Wanted{ID: att.SessionID, Create: att.Create, Socket: true, Principal: att.Principal})
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
		return nil, err
	}
	mux := http.NewServeMux()
	if err := n.serveACP(&s, mux, g, h, options); err != nil {
		return nil, err
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
		return nil, err
	}
	options.Foreign = true
	for _, p := range protocols {
		options.Open = func(ctx context.Context, att contracts.Attach) (ws.Session, error) {
			if err := att.Principal.CheckRole(contracts.RoleController); err != nil {
				return nil, err
			}
			att.Role, att.Takeover = contracts.RoleController, contracts.TakeoverLater
			session, err := find(ctx, att)
			return &foreignVisit{p, &s, onlySession(session).as(att.Principal, n.log)}, err
		}
		others, err := ws.New(options)
		if err != nil {
			return nil, err
		}
		mux.Handle("/api/"+p.name+"/ws", others)
	}
	var overview httpapi.Overview
	if h.overview != nil {
		overview = overviewOverHTTP{h.overview}
	}
	var notifier httpapi.Notifier
	if h.notifier != nil {
		notifier = h.notifier
	}
	streams := sse.New(sse.Options{ConnLimit: n.connLimit, WriteTimeout: s.clients.WriteTimeout, Log: n.log})
	requests, err := httpapi.New(httpapi.Options{
		Authorize: g.Authorize, List: h.list, Overview: overview, Notifier: notifier, Fence: h.runner, Ready: h.ready, Rates: limiter,
		Find: func(ctx context.Context, want httpapi.Wanted) (httpapi.Session, bool, error) {
			session, opened, err := h.find(ctx, want)
			return overHTTP{session}, opened, err
		},
		Page: h.page, Streams: streams,
		MaxBodyBytes: s.session.MaxFrameBytes, Strict: s.session.Strict,
	})
	if err != nil {
		return nil, err
	}
	requests.Routes(mux)
	httpapi.RunnerRoutes(mux, h.runner, g.Control)
	mux.Handle("/api/headless/ws", sockets)
	mux.Handle("/api/headless/sessions/{id}/ws", sockets)
	mux.Handle("/api/headless/lists/ws", listSockets)
	mux.Handle("/api/headless/whoami", g.WhoAmI())
	mux.Handle("/api/headless/ws-tickets", g.Tickets())
	mux.Handle("/api/headless/sessions/{id}/shares", g.Shares())
	mux.Handle("/api/headless/sessions/{id}/shares/{share_id}", g.Shares())
	if h.pages != nil {
		mux.Handle(web.PagesPath, h.pages)
	}
	mux.Handle("/login", g.Login())
	mux.Handle("/logout", g.Logout())
	mux.Handle("/metrics", metricsFor(g, h.observer.Handler()))
	if h.more != nil {
		err = h.more(mux, g, n.tokenText, streams, limiter)
	}
	return mux, err
}

// serveACP adds the route of ACP clients. native serves WebSockets of sessions.
func (n *network) serveACP(s *settings, mux *http.ServeMux, g *auth.Authenticator, h backend, native ws.Options) error {
	outer := native
	native.Authorize = authorizePipe
	inner, err := ws.New(native)
	if err != nil {
		return err
	}
	n.acp = newACPSockets(s, h, n.log, g.Alive, inner)
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

// A readiness has the address of the server, for harnesses.
type readiness struct {
	BaseURL          string `json:"baseUrl"`
	WSURL            string `json:"wsUrl"`
	SessionID        string `json:"sessionId"`
	PID              int    `json:"pid"`
	TokenFile        string `json:"tokenFile,omitempty"`
	ControlTokenFile string `json:"controlTokenFile,omitempty"`
}

func (n *network) readiness(session string) readiness {
	addr := n.Addr().String()
	if tcp, ok := n.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() { // every interface includes loopback
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return readiness{
		BaseURL: n.scheme + "://" + addr, WSURL: "ws" + n.scheme[4:] + "://" + addr + "/api/headless/ws?sessionId=" + session,
		SessionID: session, PID: os.Getpid(), TokenFile: n.token, ControlTokenFile: n.control,
	}
}

// attachLine returns the command line that attaches a terminal. It names this program
// as the user called it.
func (r readiness) attachLine() string {
	line := os.Args[0] + " attach " + r.BaseURL
	if r.TokenFile != "" && r.TokenFile != tokenFile(defaultStateRoot()) {
		line += " --token-file " + r.TokenFile
	}
	return line
}

// writeReady writes the file atomically, so that a reader never sees a part of it.
func writeReady(path string, r readiness) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ready-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(text, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(tmp.Name()))
	}
	return err
}

// answerPatience is how long close waits for answers that are being written. It does
// not wait for incomplete requests.
const answerPatience = 100 * time.Millisecond

// close ends all connections and the listener. Call it after accept.
func (n *network) close(ctx context.Context) error {
	err := n.connLimit.Close(ctx)
	out, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	if n.server.Shutdown(out) != nil { // it has closed the listener
		err = errors.Join(err, n.server.Close())
	}
	err = errors.Join(err, n.acp.close(), n.auth.Close())
	if n.debug != nil {
		err = errors.Join(err, n.debug.Close())
	}
	<-n.done
	return err
}
