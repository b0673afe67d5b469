package hosted

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A part is a setting of the listening address. It gives the host, the port or,
// as listen, either or both.
type part struct{ what, name, value string }

// listenAddress chooses host and port independently, each from the first part
// that gives it. Parts that are not needed are not checked.
//
// If listen gives a port only, and no host is given, the host is loopback, as
// in every command. With port or the default port, the host is every interface,
// because pods are given only their port.
func listenAddress(parts []part) (string, error) {
	var host, port, otherwise string
	for _, p := range parts {
		if p.what == "host" && host != "" || p.what == "port" && port != "" {
			continue
		}
		h, n, err := p.split()
		if err != nil {
			return "", err
		}
		if p.what == "listen" && isNumber(p.value) {
			otherwise = "127.0.0.1"
		}
		host, port = cmp.Or(host, h), cmp.Or(port, n)
	}
	return net.JoinHostPort(cmp.Or(host, otherwise), cmp.Or(port, defaultPort)), nil
}

// split returns the host and the port that the part gives; each may be empty.
func (p part) split() (host, port string, err error) {
	switch {
	case p.value == "":
		return "", "", nil
	case p.what == "host":
		return strings.TrimSuffix(strings.TrimPrefix(p.value, "["), "]"), "", nil
	case p.what == "port" || isNumber(p.value):
		port, err = p.number(p.value)
		return "", port, err
	}
	host, port, err = net.SplitHostPort(p.value)
	if err != nil {
		return "", "", fmt.Errorf("%s %q must be <host:port> or <port>", p.name, p.value)
	}
	port, err = p.number(port)
	return host, port, err
}

// number checks a port and returns it without leading zeros.
func (p part) number(port string) (string, error) {
	n, err := strconv.Atoi(port)
	if !isNumber(port) || err != nil || n > 65535 {
		return "", fmt.Errorf("%s %q must be a TCP port between 1 and 65535, or 0 for any free one", p.name, p.value)
	}
	return strconv.Itoa(n), nil
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
