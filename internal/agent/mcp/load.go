package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	maxFileBytes = 1 << 20
	maxServers   = 64
)

// Load reads the servers of a file in the common format:
//
//	{"mcpServers": {
//	    "files": {"command": "mcp-files", "args": ["--root", "."], "env": {"LEVEL": "${LEVEL:-info}"}, "cwd": "tools"},
//	    "notes": {"type": "http", "url": "https://notes.example/mcp", "headers": {"Authorization": "Bearer ${NOTES_TOKEN}"}}
//	}}
//
// They are returned in the order of the file. A server with "disabled": true is
// left out, and unknown keys are ignored. ${NAME} and ${NAME:-text} are
// replaced with environment variables in every text of a server. A file may
// have at most 1 MiB and 64 servers.
func Load(path string) ([]Server, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read MCP servers: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("it has more than %d bytes", maxFileBytes)
	}
	var servers []Server
	if err == nil {
		servers, err = parse(text, os.LookupEnv)
	}
	if err != nil {
		return nil, fmt.Errorf("read MCP servers of %s: %w", path, err)
	}
	return servers, nil
}

func parse(text []byte, lookup func(string) (string, bool)) ([]Server, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			at := min(max(int(bad.Offset), 0), len(text))
			return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), err)
		}
		return nil, err
	}
	top, err := members(whole)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(top, func(m member) bool { return m.key == "mcpServers" })
	if at < 0 {
		return nil, errors.New(`there is no "mcpServers"`)
	}
	found, err := members(top[at].value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mcpServers: %w", err)
	case len(found) > maxServers:
		return nil, fmt.Errorf("there are more than %d servers", maxServers)
	}
	var servers []Server
	for _, m := range found {
		e := entry{lookup: lookup}
		server, disabled := e.server(m)
		if e.err != nil {
			return nil, fmt.Errorf("server %q: %w", m.key, e.err)
		}
		if !disabled {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

type member struct {
	key   string
	value json.RawMessage
}

// members returns the members of a JSON object, in order. A duplicate key is an
// error, because it is not clear which one counts.
func members(text json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("want an object")
	}
	var found []member
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: key.(string)} // keys of a valid object are strings
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		if seen[m.key] {
			return nil, fmt.Errorf("%q is there twice", m.key)
		}
		seen[m.key] = true
		found = append(found, m)
	}
	return found, nil
}

// An entry reads the keys of one server. It keeps the first error.
type entry struct {
	lookup func(string) (string, bool)
	keys   map[string]json.RawMessage
	err    error
}

// fail keeps an error about a key.
func (e *entry) fail(key, format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%s: %w", key, fmt.Errorf(format, args...))
	}
}

// server reads a server, unless it is disabled.
func (e *entry) server(m member) (s Server, disabled bool) {
	var found []member
	found, e.err = members(m.value)
	e.keys = map[string]json.RawMessage{}
	for _, f := range found {
		if string(f.value) != "null" { // the same as absent
			e.keys[f.key] = f.value
		}
	}
	if e.read("disabled", &disabled, "true or false"); disabled || e.err != nil {
		return s, disabled
	}
	s.Name = m.key
	if e.program() {
		s.Command, s.Args, s.Env, s.Dir = e.text("command"), e.list("args"), e.table("env"), e.text("cwd")
		if s.Command == "" {
			e.fail("command", "is missing")
		}
	} else {
		s.URL, s.Headers = e.text("url"), e.table("headers")
	}
	if e.err == nil {
		e.err = s.check()
	}
	return s, false
}

// program reports whether the server is a program; otherwise it has a URL.
func (e *entry) program() bool {
	_, command := e.keys["command"]
	_, url := e.keys["url"]
	switch kind := e.text("type"); {
	case kind == "stdio":
		return true
	case slices.Contains([]string{"http", "streamable-http", "streamableHttp"}, kind):
		return false
	case kind == "sse":
		e.fail("type", `"sse" is the transport that streamable HTTP has replaced, and is not supported; if the server has an address for the newer one, use it with "http"`)
	case kind != "":
		e.fail("type", "%q is unknown, want stdio or http", kind)
	case e.err != nil:
	case command && url:
		e.err = errors.New(`has a command and a url, want one of them, or a "type" that says which one counts`)
	case !command && !url:
		e.err = errors.New("has no command and no url")
	}
	return command
}

// read decodes the value of key if it exists.
func (e *entry) read(key string, into any, want string) {
	if raw, ok := e.keys[key]; ok && json.Unmarshal(raw, into) != nil {
		e.fail(key, "want %s", want)
	}
}

func (e *entry) text(key string) (text string) {
	e.read(key, &text, "a text")
	return e.expand(key, text)
}

func (e *entry) list(key string) (list []string) {
	e.read(key, &list, "a list of texts")
	for i := range list {
		list[i] = e.expand(fmt.Sprintf("%s[%d]", key, i), list[i])
	}
	return list
}

func (e *entry) table(key string) map[string]string {
	raw, ok := e.keys[key]
	if !ok {
		return nil
	}
	found, err := members(raw)
	if err != nil {
		e.fail(key, "%w", err)
	}
	table := map[string]string{}
	for _, m := range found {
		var text *string
		if json.Unmarshal(m.value, &text) != nil || text == nil {
			e.fail(key+"."+m.key, "want a text")
			return nil
		}
		table[m.key] = e.expand(key+"."+m.key, *text)
	}
	return table
}

// variable matches ${NAME} and ${NAME:-text}. Any other dollar sign is literal.
var variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// expand replaces variables with their values. As in a shell, the text after :-
// is used if the variable is unset or empty. A variable that is unset and has
// no such text is an error: otherwise the program would start with an
// incomplete configuration and fail later with a less clear error.
func (e *entry) expand(key, text string) string {
	text = variable().ReplaceAllStringFunc(text, func(match string) string {
		parts := variable().FindStringSubmatch(match)
		value, set := e.lookup(parts[1])
		if fallback, ok := strings.CutPrefix(parts[2], ":-"); ok && value == "" {
			return fallback
		}
		if !set {
			e.fail(key, "the variable %s is not set", parts[1])
		}
		return value
	})
	if len(text) > maxPartBytes {
		e.fail(key, "is longer than %d bytes", maxPartBytes)
	}
	return text
}
