package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/transport/gate"
	"github.com/seed-028515a8/maestro/transport/ws"
)

// A network is the listening side of the program.
type network struct {
	ln      net.Listener
	server  *http.Server
	sockets *ws.Handler
	token   string // path of the token file; empty with authentication off
	done    chan struct{}
}

// find returns the session an attachment is for.
type find func(ctx context.Context, att contracts.Attach) (*hub.Hub, error)

// attached is one attachment to one session.
type attached struct {
	hub *hub.Hub
	att contracts.Attach
}

func (a attached) Serve(ctx context.Context, conn *ws.Conn) error {
	return a.hub.Serve(ctx, conn, hub.WireEnvelope, a.att)
}

// listen takes the address. Clients that connect wait until accept is called.
func listen(s settings, root string, find find, log *slog.Logger) (*network, error) {
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		return nil, err
	}
	n := &network{ln: ln, done: make(chan struct{})}
	if err := n.open(s, root, find, log); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return n, nil
}

// accept lets clients in until close.
func (n *network) accept(log *slog.Logger) {
	go func() { // ends when the server is shut down; close waits for it
		defer close(n.done)
		if err := n.server.Serve(n.ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("listener failed", "err", err)
		}
	}()
}

func (n *network) open(s settings, root string, find find, log *slog.Logger) error {
	addr, ok := n.ln.Addr().(*net.TCPAddr)
	if s.auth == "off" && (!ok || !addr.IP.IsLoopback()) {
		return fmt.Errorf("--auth off is accepted on a loopback address only, not on %s", n.ln.Addr())
	}
	opts := gate.Options{Off: s.auth == "off", Hosts: s.hosts, Origins: s.origins}
	if s.auth != "off" {
		n.token = tokenFile(root)
		token, err := gate.LoadOrCreateToken(n.token)
		if err != nil {
			return err
		}
		opts.Token = token
	}
	if host, _, err := net.SplitHostPort(s.listen); err == nil && host != "" && net.ParseIP(host) == nil {
		opts.Hosts = append(opts.Hosts, host)
	}
	g, err := gate.New(opts)
	if err != nil {
		return err
	}
	n.sockets, err = ws.New(ws.Options{
		Authorize: g.Authorize,
		Open: func(ctx context.Context, att contracts.Attach) (ws.Session, error) {
			h, err := find(ctx, att)
			if err != nil {
				return nil, err
			}
			return attached{h, att}, h.Admit(att)
		},
		MaxFrameBytes: s.limits.frameBytes, MaxConnections: s.limits.connections, WriteTimeout: s.limits.write,
		AttachRate: s.limits.attachRate, AttachBurst: s.limits.attachBurst, Log: log,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api/headless/ws", n.sockets)
	mux.Handle("GET /api/headless/sessions/{id}/ws", n.sockets)
	mux.Handle("POST /api/headless/ws-tickets", g.Tickets())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`)) // a client that left needs no answer
	})
	n.server = &http.Server{Handler: g.Wrap(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10}
	return nil
}

// A readiness says where the server is, for harnesses.
type readiness struct {
	BaseURL   string `json:"baseUrl"`
	WSURL     string `json:"wsUrl"`
	SessionID string `json:"sessionId"`
	PID       int    `json:"pid"`
	TokenFile string `json:"tokenFile,omitempty"`
}

func (n *network) readiness(session string) readiness {
	addr := n.ln.Addr().String()
	if tcp, ok := n.ln.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() { // everywhere, so on loopback too
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return readiness{
		BaseURL: "http://" + addr, WSURL: "ws://" + addr + "/api/headless/ws?sessionId=" + session,
		SessionID: session, PID: os.Getpid(), TokenFile: n.token,
	}
}

// attachLine is the command that attaches a terminal. It calls this program as
// this program was called.
func (r readiness) attachLine() string {
	line := os.Args[0] + " attach " + r.BaseURL
	if r.TokenFile != "" && r.TokenFile != tokenFile(defaultStateRoot()) {
		line += " --token-file " + r.TokenFile
	}
	return line
}

// writeReady writes the file atomically: whoever sees it sees all of it.
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
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// close ends every connection and the listener, which has been accepting.
func (n *network) close(ctx context.Context) error {
	err := errors.Join(n.sockets.Close(ctx), n.server.Shutdown(ctx))
	<-n.done
	return err
}
