package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// completeAddress returns host:port for the value of a flag. A port alone is on
// loopback. Empty stays empty.
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

// mayServe reports whether a server can have the port. Empty means the port of the
// scheme.
func mayServe(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// onLoopback reports whether an address may be on loopback. A name is checked
// when the process listens.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || ip.IsLoopback()
}

// isLoopback reports whether only this machine can reach a listening address.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// errNotLoopback refuses a flag that would expose the process to the network.
func errNotLoopback(flag, addr string) error {
	return usage{fmt.Errorf("%s is accepted on a loopback address only, not on %s", flag, addr)}
}

// listenOn listens on the address of a flag.
func listenOn(flag, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: choose another port with --%s", err, flag)
	}
	return ln, err
}
