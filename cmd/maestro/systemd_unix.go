//go:build unix

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	firstPassed = 3   // descriptor of the first socket that systemd passes
	maxPassed   = 256 // sockets that a unit may pass
)

// passedSocket returns the listening TCP socket that systemd passed under the name, see
// sd_listen_fds(3), or the only one if the name is empty. The agent's processes inherit
// neither the sockets nor the variables.
func passedSocket(name string) (net.Listener, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	if count == "" || pid == "" {
		return nil, errors.New("no socket was passed: LISTEN_FDS is not set. Start the service with its .socket unit")
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("no socket was passed: LISTEN_PID is %s, another process", pid)
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxPassed {
		return nil, fmt.Errorf("LISTEN_FDS is %q: want a number from 1 to %d", count, maxPassed)
	}
	chosen := 0
	switch {
	case name != "":
		if chosen = slices.Index(names, name); chosen < 0 || chosen >= n {
			return nil, fmt.Errorf("no socket named %q was passed, only %q: see FileDescriptorName= of the .socket unit", name, names)
		}
	case n > 1:
		return nil, fmt.Errorf("%d sockets were passed, %q: name one with --listen systemd:NAME", n, names)
	}
	for fd := firstPassed; fd < firstPassed+n; fd++ {
		syscall.CloseOnExec(fd)
	}
	for _, variable := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		err = errors.Join(err, os.Unsetenv(variable))
	}
	if err != nil {
		return nil, err
	}
	return listenerOf(firstPassed + chosen)
}

// listenerOf returns a listener on a passed descriptor, which must be a TCP socket that
// listens.
func listenerOf(fd int) (net.Listener, error) {
	const want = "want a TCP socket that listens, such as ListenStream=127.0.0.1:8787"
	accepts, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	switch {
	case err != nil:
		return nil, fmt.Errorf("passed descriptor %d: %w: %s", fd, err, want)
	case accepts == 0:
		return nil, fmt.Errorf("passed descriptor %d does not listen: %s, without Accept=yes", fd, want)
	}
	f := os.NewFile(uintptr(fd), "systemd")
	defer f.Close() // the listener has a copy that child processes do not inherit
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("passed descriptor %d: %w: %s", fd, err, want)
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		return nil, errors.Join(fmt.Errorf("passed descriptor %d is a socket of the kind %s: %s", fd, ln.Addr().Network(), want), ln.Close())
	}
	return ln, nil
}
