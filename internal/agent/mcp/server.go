package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxNameBytes = 64       // name of a server
	maxParts     = 256      // arguments, variables or headers of one server
	maxPartBytes = 64 << 10 // one of those, or a URL
)

// A Server is a configured MCP server: a program on its standard streams, or a
// URL. Exactly one of Command and URL is set. It may contain credentials, so
// its text form is its name only.
type Server struct {
	Name string // unique in a set; at most 64 bytes

	// A program.
	Command string
	Args    []string
	Env     map[string]string // in addition to the environment of every child
	Dir     string            // working directory, relative to the workspace; empty means the workspace

	// A URL of the streamable HTTP transport.
	URL     string
	Headers map[string]string // sent with every request

	// Platform says that each request gets an id, and the session's id unless
	// Headers has one.
	Platform bool
}

// String returns the name.
func (s Server) String() string { return s.Name }

// LogValue returns the name.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.Name) }

// check returns an error in the configuration of a server, with its key.
func (s *Server) check() error {
	switch {
	case s.Name == "":
		return errors.New("a server needs a name")
	case len(s.Name) > maxNameBytes:
		return fmt.Errorf("a name has at most %d bytes", maxNameBytes)
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return errors.New("a name has printable characters only")
	case s.Command != "":
		return s.checkProgram()
	}
	if _, err := parseURL(s.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if len(s.Headers) > maxParts {
		return fmt.Errorf("headers: more than %d", maxParts)
	}
	for name, value := range s.Headers {
		if !headerName(name) {
			return fmt.Errorf("headers: %q is no name of a header", name)
		}
		if !headerValue(value) {
			return fmt.Errorf("headers.%s: has a character that no header may have, or is too long", name)
		}
	}
	return nil
}

func (s *Server) checkProgram() error {
	if len(s.Args) > maxParts {
		return fmt.Errorf("args: more than %d", maxParts)
	}
	if len(s.Env) > maxParts {
		return fmt.Errorf("env: more than %d", maxParts)
	}
	for key, text := range map[string]string{"command": s.Command, "args": strings.Join(s.Args, ""), "cwd": s.Dir} {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%s: has a NUL character", key)
		}
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env: %q is no variable that a program could get", name)
		}
	}
	return nil
}

// parseURL parses a URL, or returns what is wrong with it. The error does not
// contain the URL, because URLs may contain credentials.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxPartBytes:
		return nil, errors.New("is no address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("want http:// or https:// and a host")
	case u.User != nil:
		return nil, errors.New("has a name or password in it, want a header instead")
	}
	return u, nil
}

// headerName reports whether name is a token as HTTP defines it.
func headerName(name string) bool {
	return name != "" && len(name) <= 256 && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// headerValue reports whether value may be sent as a header.
func headerValue(value string) bool {
	return len(value) <= maxPartBytes && !strings.ContainsFunc(value, func(c rune) bool {
		return c < ' ' && c != '\t' || c == 0x7f
	})
}

// HeadersFor returns the headers of a server for another program that connects
// to it in a session: the configured ones and, for the platform's server, the
// session's id. They do not include a per-request id.
func (s Server) HeadersFor(sessionID string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.Headers)
	if s.Platform && all[sessionHeader] == "" && sessionID != "" && headerValue(sessionID) {
		all[sessionHeader] = sessionID
	}
	return all
}
