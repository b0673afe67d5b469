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

	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// A network is the listening side of the program.
type network struct {
	net.Listener
	clients *wiring.Network // set by open

	log     *slog.Logger
	server  *http.Server
	scheme  string        // http or https
	token   string        // path of the token file; empty with authentication off
	control string        // path of the control token's file; empty if there is none
	debug   *http.Server  // profiles, on a listener of their own; nil unless asked for
	failed  atomic.Uint64 // failures to accept because no descriptor was left
	said    time.Time     // when such a failure was last logged
	done    chan struct{}
}

// listen opens the listener and reads the credentials. Clients that connect wait until
// accept is called.
func listen(s settings, root string, log *slog.Logger) (*network, wiring.NetworkOptions, error) {
	ln, err := s.listener()
	if err != nil {
		return nil, wiring.NetworkOptions{}, err
	}
	n := &network{Listener: ln, log: log, scheme: "http", done: make(chan struct{})}
	opts := wiring.NetworkOptions{
		Clients: s.clients, Rates: s.rates, MaxFrameBytes: s.session.MaxFrameBytes, Strict: s.session.Strict,
		HeartbeatInterval: s.session.HeartbeatInterval, HandshakeTimeout: s.session.HandshakeTimeout, Protocols: s.networkProtocols(), Log: log,
	}
	if opts.Auth, err = n.credentials(s, root); err != nil {
		return nil, opts, errors.Join(err, ln.Close())
	}
	return n, opts, nil
}

// listenFor listens and serves the sessions of h.
func listenFor(s settings, root string, h wiring.Backend, log *slog.Logger) (*network, error) {
	n, opts, err := listen(s, root, log)
	if err != nil {
		return nil, err
	}
	clients, err := wiring.NewNetwork(opts, h)
	if err == nil {
		err = n.open(s, clients, h.Observer)
	}
	if err != nil {
		return nil, errors.Join(err, n.Listener.Close())
	}
	return n, nil
}

// accept serves clients until close.
func (n *network) accept() {
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
		n.clients.Limit.MakeRoom()
		if time.Since(n.said) > 10*time.Second {
			n.said = time.Now()
			n.log.Error("connections cannot be accepted: raise the limit of open files, or lower --max-connections", "err", err)
		}
	}
	return conn, err
}

// open makes the server of the clients. If it fails, it ends clients.
func (n *network) open(s settings, clients *wiring.Network, observer *observe.Observer) error {
	n.clients = clients
	n.server = &http.Server{
		ReadHeaderTimeout: s.header, ReadTimeout: s.read,
		IdleTimeout: s.idle, MaxHeaderBytes: s.headerBytes,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // errors of clients
		HTTP2:    &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
	}
	clients.Guard(n.server)
	observer.Collect(func(_, counter observe.Measure) {
		counter("accept_failures_total", "Times that no connection could be accepted for want of descriptors.", float64(n.failed.Load()))
	})
	err := n.secure(s)
	if err == nil {
		err = n.profile(s.pprof)
	}
	if err != nil {
		err = errors.Join(err, clients.Close(context.Background()))
	}
	return err
}

// secure makes the server serve HTTPS if there is a certificate.
func (n *network) secure(s settings) error {
	if s.tlsCert == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
	if err != nil {
		return fmt.Errorf("load the TLS certificate: %w", err)
	}
	n.scheme = "https"
	n.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	return nil
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

// credentials returns the options of the authenticator. It creates the tokens that are
// missing.
func (n *network) credentials(s settings, root string) (auth.Options, error) {
	opts := s.access
	opts.Off = s.auth == "off"
	if host, _, err := net.SplitHostPort(s.listen); err == nil && host != "" && net.ParseIP(host) == nil {
		opts.Hosts = append(slices.Clip(opts.Hosts), host)
	}
	if opts.Off && !isLoopback(n.Addr()) {
		return opts, errNotLoopback("--auth off", n.Addr().String())
	}
	if opts.Off {
		return opts, nil
	}
	n.token = tokenFile(root)
	if s.hosted {
		n.control = cmp.Or(s.controlTokenFile, filepath.Join(root, "control-token"))
	}
	var err error
	for _, t := range []struct {
		path  string
		token *string
	}{{n.token, &opts.Token}, {n.control, &opts.ControlToken}, {s.metricsTokenFile, &opts.MetricsToken}} {
		if t.path == "" {
			continue
		}
		if *t.token, err = auth.LoadOrCreateToken(t.path); err != nil {
			return opts, err
		}
	}
	if s.jwtKey != "" {
		opts.Keys, err = auth.LoadKeys(s.jwtKey)
	}
	return opts, err
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
	err := n.clients.Close(ctx)
	out, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	if n.server.Shutdown(out) != nil { // it has closed the listener
		err = errors.Join(err, n.server.Close())
	}
	if n.debug != nil {
		err = errors.Join(err, n.debug.Close())
	}
	<-n.done
	return err
}
