package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxNameBytes = 64       // the name of a server
	maxParts     = 256      // arguments, variables or headers of one server
	maxPartBytes = 64 << 10 // one of those, or an address
)

// A Server is an MCP server as it was configured: a program that speaks on its
// standard streams, or an address. Exactly one of Command and URL is set. It may
// hold credentials, so its text is its name alone.
type Server struct {
	Name string // unique among those that are used together; at most 64 bytes

	// A program.
	Command string
	Args    []string
	Env     map[string]string // beside what every child gets
	Dir     string            // where it starts, counted from the workspace; empty means there

	// An address of the streamable HTTP transport.
	URL     string
	Headers map[string]string // sent with every request

	// Platform says that requests carry the id of the session, if Headers has
	// none, and each an id of its own.
	Platform bool
}

// String returns the name.
func (s Server) String() string { return s.Name }

// LogValue returns the name.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.Name) }

// check says what is wrong with a server, by the key that it is configured with.
func (s *Server) check() error {
	if err := checkName(s.Name); err != nil {
		return err
	}
	if s.Command != "" {
		return s.checkProgram()
	}
	if err := checkURL(s.URL); err != nil {
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

// checkName says what is wrong with the name of a server, which people read.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a server needs a name")
	case len(name) > maxNameBytes:
		return fmt.Errorf("a name has at most %d bytes", maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return errors.New("a name has printable characters only")
	}
	return nil
}

// checkURL says what is wrong with an address. It does not repeat it: addresses
// have been seen to hold credentials.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxPartBytes:
		return errors.New("is no address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		return errors.New("want http:// or https:// and a host")
	case u.User != nil:
		return errors.New("has a name or password in it, want a header instead")
	}
	return nil
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
