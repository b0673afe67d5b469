package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
	"github.com/seed-028515a8/maestro/internal/transport/foreign"
	"github.com/seed-028515a8/maestro/internal/transport/stdio"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// maxSocketClients bounds the clients of one Unix socket.
const maxSocketClients = 32

// A socket serves clients of one protocol on a Unix socket. Whoever may open the file is
// the owner of the server.
type socket struct {
	net.Listener
	path     string
	protocol protocol
	settings *settings
	open     wiring.Opener
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
				_ = sleep.For(ctx, time.Second) // close ends it
				continue
			}
			select {
			case free <- struct{}{}:
			default:
				s.log.Warn("too many clients on the socket", "protocol", s.protocol.name, "most", maxSocketClients)
				_, _ = io.WriteString(conn, s.protocol.full+"\n") // a new connection has room; the client may have gone
				_ = conn.Close()
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
		Open:       s.open.As(contracts.Principal{}, s.log), Log: s.log,
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

// socketPath returns the absolute path in unix:PATH.
func socketPath(addr string) (string, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok || path == "" {
		return "", errors.New("want unix:PATH")
	}
	return filepath.Abs(path)
}

// A sockets is the Unix sockets of one process.
type sockets []*socket

// listenSockets listens on the sockets of the settings. Clients that connect wait until
// accept is called.
func listenSockets(s *settings, open wiring.Opener, log *slog.Logger) (sockets, error) {
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
