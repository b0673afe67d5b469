package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// systemdName returns the name in systemd:NAME. ok reports whether an address of
// --listen stands for a socket that systemd passes.
func systemdName(addr string) (name string, ok bool) {
	kind, name, named := strings.Cut(addr, ":")
	return name, kind == "systemd" && (!named || name != "" && !isPort(name))
}

// listener returns a listener on the address of --listen. For a socket that systemd
// passed, it sets the address.
func (s *settings) listener() (net.Listener, error) {
	name, passed := systemdName(s.listen)
	if !passed {
		return listenOn("listen", s.listen)
	}
	ln, err := passedSocket(name)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", s.listen, err)
	}
	s.listen = ln.Addr().String()
	return ln, nil
}

// notifyPatience bounds a message to systemd.
const notifyPatience = time.Second

// A supervisor is the systemd that started the process, if its unit has Type=notify.
type supervisor struct {
	path string // of the socket; empty without such a unit
	log  *slog.Logger
}

// supervised returns the supervisor in the environment. It removes the variable, so that
// the agent's processes cannot speak for the server.
func supervised(log *slog.Logger) supervisor {
	s := supervisor{path: os.Getenv("NOTIFY_SOCKET"), log: log}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		log.Warn("systemd", "err", err)
	}
	return s
}

// tell sends a state, see sd_notify(3). A failure is logged: systemd ends a service that
// does not become ready.
func (s supervisor) tell(state string) {
	if s.path == "" {
		return
	}
	if err := s.send(state); err != nil {
		s.log.Warn("systemd was not told the state of the service", "state", state, "err", err)
	}
}

func (s supervisor) send(state string) error {
	conn, err := net.DialTimeout("unixgram", s.path, notifyPatience)
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(notifyPatience))
	if err == nil {
		_, err = conn.Write([]byte(state))
	}
	return errors.Join(err, conn.Close())
}
