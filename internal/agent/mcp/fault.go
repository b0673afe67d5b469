package mcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

// minSecret is the minimum length of a configuration value that is masked in a
// server's texts, in bytes.
const minSecret = 8

// A fault is an error of a server in words for clients. The words contain
// nothing of the configuration except a host, and nothing that the server
// wrote.
type fault struct {
	words  string
	detail error // for the log; may be nil
}

// Error returns the words with the detail, for the log.
func (f *fault) Error() string {
	if f.detail == nil {
		return f.words
	}
	return f.words + ": " + f.detail.Error()
}

func (f *fault) Unwrap() error { return f.detail }

// why returns the words for clients about an error.
func why(err error) string {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.words
	}
	if ended(err) {
		return errEnded.Error()
	}
	if words := systemWords(err); words != "" {
		return words
	}
	return "what it answered was not understood, or refused; the server's log has more"
}

// ended reports whether an error says that a connection ended.
func ended(err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, io.EOF) || errors.Is(err, sdk.ErrConnectionClosed)
}

// systemWords returns the system's text for an error, without the paths and
// addresses in the error, or "" for other errors.
func systemWords(err error) string {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "its host is not found"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not accepted"
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "it does not speak TLS"
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "there is no such program"
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		return "it did not answer in time"
	}
	return ""
}

// redact returns the text of an error for the log, on one line.
func (l *link) redact(err error) string {
	return label(l.hide(err.Error()))
}

// hide masks in a text values of the configuration, and values next to names
// that look like those of credentials.
func (l *link) hide(text string) string {
	for _, secret := range l.secrets {
		text = strings.ReplaceAll(text, secret, mask.Mark)
	}
	return mask.Text(text)
}

// title returns the name of a server for clients: its name and host.
func title(s *Server) string {
	name := "MCP server \"" + s.Name + "\""
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		name += " (" + u.Scheme + "://" + u.Host + ")"
	}
	return name
}

// secretsOf returns the values of a server's configuration that may be
// credentials, longer ones first because they may contain others.
func secretsOf(s *Server) []string {
	var all []string
	add := func(values ...string) {
		for _, v := range values {
			if len(v) >= minSecret {
				all = append(all, v)
			}
		}
	}
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		address := u.EscapedPath()
		if u.RawQuery != "" {
			address += "?" + u.RawQuery
		}
		add(address, u.EscapedPath(), u.Path, u.RawQuery)
		for _, values := range u.Query() {
			add(values...)
		}
	}
	for _, value := range s.Env {
		add(value)
	}
	for _, value := range s.Headers {
		_, token, _ := strings.Cut(value, " ")
		add(value, token)
	}
	for _, arg := range s.Args {
		_, value, assigned := strings.Cut(arg, "=")
		switch {
		case assigned:
			add(value)
		case !strings.HasPrefix(arg, "-"):
			add(arg)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}
