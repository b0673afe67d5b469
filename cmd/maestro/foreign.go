package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/dialect"
	"github.com/seed-028515a8/maestro/dialect/heddle"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/transport/foreign"
	"github.com/seed-028515a8/maestro/transport/stdio"
	"github.com/seed-028515a8/maestro/transport/ws"
)

// A protocol is one that clients of other programs speak, as lines of JSON.
type protocol struct {
	name      string
	maxLine   int  // longest line of a client in bytes, without its end
	endsWell  bool // a signal ends the process with exit status 0
	ownModel  bool // without --agent, the client on standard input names the model
	translate func(s *settings, getenv func(string) string) dialect.Translator
}

var protocols = []protocol{{name: "heddle", maxLine: heddle.MaxLine, ownModel: true, translate: translateHeddle}, chordProtocol}

// translateHeddle returns a translator for a Heddle client. The variables are those of
// Heddle servers.
func translateHeddle(s *settings, getenv func(string) string) dialect.Translator {
	return heddle.New(heddle.Options{
		Version:      getenv("HEDDLE_PROTOCOL_VERSION"),
		Own:          s.protocol == "heddle" && !s.shares() && (s.agent == "" || strings.HasPrefix(s.agent, "llm:")),
		Heartbeat:    milliseconds(getenv("HEDDLE_HEARTBEAT_INTERVAL")),
		ApprovalWait: milliseconds(getenv("HEDDLE_APPROVAL_WAIT")),
		ControlWait:  milliseconds(getenv("HEDDLE_CONTROL_WAIT")),
		ShutdownWait: milliseconds(getenv("HEDDLE_SHUTDOWN_WAIT")),
	})
}

// milliseconds reads a time. It is negative for 0, and 0 for a text that is no positive
// number of milliseconds, which stands for the default.
func milliseconds(text string) time.Duration {
	switch n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); {
	case err != nil || n < 0:
		return 0
	case n == 0:
		return -1
	default:
		return time.Duration(n) * time.Millisecond
	}
}

// protocolNamed returns the protocol with a name, or nil for the program's own.
func protocolNamed(name string) *protocol {
	i := slices.IndexFunc(protocols, func(p protocol) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &protocols[i]
}

// protocolNames are the values of --protocol.
func protocolNames() []string {
	names := []string{"maestro"}
	for _, p := range protocols {
		names = append(names, p.name)
	}
	return names
}

// serveForeign returns the function that attaches a client to h. It is the client of
// principal p.
func serveForeign(h *hub.Hub, p contracts.Principal) func(context.Context, *foreign.Port) error {
	return func(ctx context.Context, port *foreign.Port) error {
		return h.Serve(ctx, port, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater, Principal: p})
	}
}

// An alone has the sessions of the one client on standard input: at most one at a time.
// The client may replace it.
type alone struct {
	sessions *sessions
	mu       sync.Mutex
	hub      *hub.Hub // nil before the first
}

// open opens a session with what the client asked for, and ends the one before.
func (a *alone) open(ctx context.Context, _ contracts.Principal, start dialect.Start) (func(context.Context, *foreign.Port) error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hub != nil {
		if err := a.hub.Close(ctx); err != nil {
			return nil, err
		}
		a.hub = nil
	}
	spec, run := a.sessions.agent, a.sessions.runtime
	run.Tools, run.Limited = start.Tools, start.Limited
	if start.MaxIterations > 0 {
		run.MaxIterations, run.NoRetries = start.MaxIterations, true // a retry would be one call more
	}
	if spec == "" {
		spec = defaultModel + start.Model
		if url := os.Getenv("HEDDLE_BASE_URL"); run.ModelURL == "" && url != "" {
			run.ModelURL, run.CompleteURL = url, true
		}
	}
	options := hub.OpenOptions{Create: start.SessionID == ""}
	if start.SystemPrompt != nil {
		options.Init = &contracts.Init{SystemPrompt: start.SystemPrompt}
	}
	h, err := a.sessions.openAs(ctx, hub.Key{ID: cmp.Or(start.SessionID, "sess_"+uuid.NewString())}, options, spec, run)
	if err != nil {
		return nil, lockedElsewhere(err)
	}
	a.hub = h
	return serveForeign(h, contracts.Principal{}), nil
}

// defaultModel begins the agent of a client that names its model.
const defaultModel = "llm:openai-chat/"

// close ends the session.
func (a *alone) close(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hub == nil {
		return nil
	}
	return a.hub.Close(ctx)
}

// maxSocketClients bounds the clients of one Unix socket.
const maxSocketClients = 32

// A socket serves clients of one protocol on a Unix socket. Whoever may open the file is
// the owner of the server.
type socket struct {
	net.Listener
	path     string
	protocol protocol
	settings *settings
	open     opener
	log      *slog.Logger
	work     sync.WaitGroup
	end      context.CancelFunc
}

// listenSocket listens at path, which must not be in use. A file that an ended process
// left is replaced.
func listenSocket(path string) (net.Listener, error) {
	conn, err := net.Dial("unix", path)
	switch info, missing := os.Lstat(path); {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("listen on %s: another process serves it", path), conn.Close())
	case missing != nil:
	case info.Mode()&fs.ModeSocket == 0 || !errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("listen on %s: it is in use: %w", path, err)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// The socket is made in a directory that nobody else can enter, so that it is never
	// open to others.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".socket-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(dir) }() // empty by now
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return nil, err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(filepath.Join(dir, "s"), 0o600); err == nil {
		err = os.Rename(filepath.Join(dir, "s"), path)
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// accept serves clients until close.
func (s *socket) accept() {
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	free := make(chan struct{}, maxSocketClients)
	s.work.Go(func() { // ends when the listener is closed
		for {
			conn, err := s.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				s.log.Error("accept on the socket", "protocol", s.protocol.name, "err", err)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				continue
			}
			select {
			case free <- struct{}{}:
			default:
				s.log.Warn("too many clients on the socket", "protocol", s.protocol.name, "most", maxSocketClients)
				_ = conn.Close() // it was never served
				continue
			}
			s.work.Go(func() { // ends with the client, or with close
				defer func() { _ = conn.Close(); <-free }()
				s.serve(ctx, conn)
			})
		}
	})
}

func (s *socket) serve(ctx context.Context, conn net.Conn) {
	_, err := foreign.Serve(ctx, stdio.NewText(conn, conn, s.protocol.maxLine), foreign.Options{
		Translator: s.protocol.translate(s.settings, os.Getenv),
		Open:       s.open.as(contracts.Principal{}, s.log), Log: s.log,
	})
	if err != nil {
		s.log.Debug("client on the socket", "protocol", s.protocol.name, "err", err)
	}
}

// close ends all clients.
func (s *socket) close(context.Context) error {
	err := errors.Join(os.Remove(s.path), s.Listener.Close())
	s.end()
	s.work.Wait()
	return err
}

// A foreignVisit is one client of another protocol on a WebSocket.
type foreignVisit struct {
	protocol protocol
	settings *settings
	open     func(context.Context, dialect.Start) (func(context.Context, *foreign.Port) error, error)
}

func (v *foreignVisit) Serve(ctx context.Context, conn *ws.Conn) error {
	_, err := foreign.Serve(ctx, conn, foreign.Options{
		Translator: v.protocol.translate(v.settings, func(string) string { return "" }), Open: v.open, Pings: true, Handshake: v.settings.session.HandshakeTimeout,
	})
	return err
}

// socketPath returns the absolute path in unix:PATH.
func socketPath(addr string) (string, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok || path == "" {
		return "", errors.New("want unix:PATH")
	}
	return filepath.Abs(path)
}

// An opener opens sessions for the clients of other protocols.
type opener func(context.Context, contracts.Principal, dialect.Start) (func(context.Context, *foreign.Port) error, error)

// as returns the function that opens sessions for one principal, and logs its failures.
func (o opener) as(p contracts.Principal, log *slog.Logger) func(context.Context, dialect.Start) (func(context.Context, *foreign.Port) error, error) {
	return func(ctx context.Context, start dialect.Start) (func(context.Context, *foreign.Port) error, error) {
		serve, err := o(ctx, p, start)
		if err != nil {
			log.Error("session not opened", "session", start.SessionID, "err", err)
		}
		return serve, err
	}
}

// A sockets is the Unix sockets of one process.
type sockets []*socket

// listenSockets listens on the sockets of the settings. Clients that connect wait until
// accept is called.
func listenSockets(s *settings, open opener, log *slog.Logger) (sockets, error) {
	var all sockets
	for _, p := range protocols {
		path := s.sockets[p.name]
		if path == "" {
			continue
		}
		ln, err := listenSocket(path)
		if err != nil {
			return nil, errors.Join(err, all.close(context.Background()))
		}
		all = append(all, &socket{Listener: ln, path: path, protocol: p, settings: s, open: open, log: log, end: func() {}})
	}
	return all, nil
}

func (all sockets) accept() {
	for _, s := range all {
		s.accept()
	}
}

func (all sockets) close(ctx context.Context) (err error) {
	for _, s := range all {
		err = errors.Join(err, s.close(ctx))
	}
	return err
}

// headlessForeign serves a client of another protocol on standard input and output.
func headlessForeign(s settings, p *protocol) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // as in headless
	log := s.log()
	ctx, started := untilSignal()
	m, err := newSessions(s, log)
	if err != nil {
		return err
	}
	if s.stateDir != "" {
		m.dir = m.workspaceDir(s.stateDir)
	}
	if err := s.openChord(m); err != nil {
		return failure{err}
	}
	own := &alone{sessions: m}
	open, steps := opener(own.open), []func(context.Context) error{own.close}
	if s.shares() {
		h, end, err := shareHeadless(ctx, s, m, log)
		if err != nil {
			return err
		}
		open, steps = theOnly(h), end
	}
	started()
	code, err := foreign.Serve(ctx, stdio.NewText(os.Stdin, os.Stdout, p.maxLine), foreign.Options{
		Translator: p.translate(&s, os.Getenv), Open: open.as(contracts.Principal{}, log), Log: log,
	})
	if err != nil {
		log.Debug("local client", "err", err)
	}
	leave(log, append(steps, m.observer.Shutdown)...)
	switch {
	case ctx.Err() != nil && p.endsWell:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code != 0:
		return exit(code)
	}
	return nil
}

// theOnly opens the session of a process that has one.
func theOnly(h *hub.Hub) opener {
	return func(_ context.Context, p contracts.Principal, start dialect.Start) (func(context.Context, *foreign.Port) error, error) {
		if start.SessionID != "" && start.SessionID != h.SessionID() {
			return nil, hub.ErrUnknownSession
		}
		return serveForeign(h, p), nil
	}
}
