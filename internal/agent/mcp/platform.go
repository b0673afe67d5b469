package mcp

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/launcher"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// The paths of the platform's manifest and of its endpoint.
const (
	manifestPath = "/.well-known/evalops/agent-mcp.json"
	endpointPath = "/mcp"
)

const (
	platformName = "evalops"
	maxScopes    = 64
	maxIDBytes   = 256
)

// addressVariables name the platform's server; the first one that is set
// counts.
var addressVariables = []string{
	"MAESTRO_PLATFORM_MCP_URL", "MAESTRO_EVALOPS_AGENT_MCP_URL", "MAESTRO_PLATFORM_MCP_MANIFEST_URL",
}

// plainVariable allows a URL without TLS to another machine.
const plainVariable = "MAESTRO_PLATFORM_MCP_ALLOW_HTTP"

// forwarded are the headers for ids, by the key of the id.
var forwarded = map[string]string{
	launcher.Workspace: "X-EvalOps-Workspace-Id",
	launcher.Session:   sessionHeader,
	launcher.Agent:     "X-EvalOps-Agent-Id",
	launcher.AgentRun:  "X-EvalOps-Agent-Run-Id",
	launcher.Trace:     "X-EvalOps-Trace-Id",
}

// Headers that this package sets.
const (
	sessionHeader = "X-EvalOps-Session-Id"
	requestHeader = "X-EvalOps-Request-Id"
	scopesHeader  = "X-EvalOps-Scopes"
)

var scope = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/*-]{0,127}$`)

// Platform returns the platform's MCP server as set in the environment, or nil
// if it is not set. The URL may be that of the platform, of its endpoint or of
// its manifest.
func Platform(getenv func(string) string) (*Server, error) {
	for _, name := range addressVariables {
		address := strings.TrimSpace(getenv(name))
		if address == "" {
			continue
		}
		endpoint, err := endpoint(address, getenv(plainVariable) == "1")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		headers, err := platformHeaders(getenv)
		if err != nil {
			return nil, err
		}
		return &Server{Name: platformName, URL: endpoint, Headers: headers, Platform: true}, nil
	}
	return nil, nil
}

// endpoint returns the URL of the MCP endpoint for address. It keeps the query
// of an endpoint's URL and drops that of the other forms. Without TLS the
// server must be on this machine, unless plain is set, because others on the
// network could read scopes and ids.
func endpoint(address string, plain bool) (string, error) {
	u, err := parseURL(address)
	if err != nil {
		return "", err
	}
	if u.Scheme == "http" && !plain && !loopback(u.Hostname()) {
		return "", fmt.Errorf("want https, or %s=1 for a network that nobody else listens on", plainVariable)
	}
	p := path.Clean("/" + u.Path)
	if !strings.HasSuffix(p, endpointPath) {
		p, u.RawQuery = strings.TrimSuffix(strings.TrimSuffix(p, manifestPath), "/")+endpointPath, ""
	}
	u.Path, u.RawPath = p, ""
	u.Fragment, u.RawFragment, u.ForceQuery = "", "", false
	return u.String(), nil
}

func loopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

func platformHeaders(getenv func(string) string) (map[string]string, error) {
	headers := map[string]string{}
	for _, id := range launcher.IDs(getenv) {
		header, wanted := forwarded[id.Key]
		if !wanted {
			continue
		}
		if len(id.Value) > maxIDBytes || strings.ContainsFunc(id.Value, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return nil, fmt.Errorf("%s: want an id of at most %d visible ASCII characters", id.Variable, maxIDBytes)
		}
		headers[header] = id.Value
	}
	if parent, _ := launcher.Traceparent(getenv); parent != "" {
		headers["Traceparent"] = parent
	}
	for _, name := range []string{"MAESTRO_CEREBRO_MCP_SCOPES", "MAESTRO_PLATFORM_MCP_SCOPES"} {
		scopes, err := scopeList(getenv(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if scopes != "" {
			headers[scopesHeader] = scopes
			break
		}
	}
	return headers, nil
}

// scopeList returns scopes separated by single spaces.
func scopeList(text string) (string, error) {
	scopes := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\r\n,", c) })
	if len(scopes) > maxScopes {
		return "", fmt.Errorf("more than %d scopes", maxScopes)
	}
	for _, s := range scopes {
		if !scope().MatchString(s) {
			return "", errors.New("want scopes such as cerebro:read, separated by spaces or commas")
		}
	}
	return strings.Join(scopes, " "), nil
}
