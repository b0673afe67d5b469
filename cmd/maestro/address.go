package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// completeAddress makes host:port of what a flag says, which may be a port alone
// and is then on loopback. Empty stays empty.
func completeAddress(flag, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	whole := text
	if isPort(text) {
		whole = net.JoinHostPort("127.0.0.1", text)
	}
	host, port, err := net.SplitHostPort(whole)
	if err != nil {
		return "", fmt.Errorf("--%s %q: want HOST:PORT or PORT", flag, text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("--%s %q: want a port from 1 to 65535, or 0 for any free one", flag, text)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// isPort reports whether an address is a port alone.
func isPort(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// mayServe reports whether a server can be at a port. None is that of the scheme.
func mayServe(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// onLoopback reports whether an address can be one that only this machine
// reaches. What a name stands for is seen when it is listened on.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || ip.IsLoopback()
}

// isLoopback reports whether what is listened on can be reached from this machine
// only.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// errOpenDoor is wrong usage: everybody on the network would be let in.
func errOpenDoor(addr string) error {
	return usage{fmt.Errorf("--auth off is accepted on a loopback address only, not on %s", addr)}
}

// errOpenProfiles is wrong usage too.
func errOpenProfiles(addr string) error {
	return usage{fmt.Errorf("--pprof is accepted on a loopback address only, not on %s", addr)}
}

// listenOn takes an address that a flag names.
func listenOn(flag, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: choose another port with --%s", err, flag)
	}
	return ln, err
}
