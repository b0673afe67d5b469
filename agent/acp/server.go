package acp

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	acp "github.com/coder/acp-go-sdk"
)

// A Server is an MCP server for the program: it starts one with a Command, and
// connects to one with a URL.
type Server struct {
	Name    string
	Command string // a path or a name in PATH; empty for a server with a URL
	Args    []string
	Env     map[string]string
	Dir     string // working directory, absolute; empty leaves it to the program
	URL     string
	SSE     bool // the URL uses the older transport, not streamable HTTP
	Headers map[string]string
}

// servers returns the servers of list that a program with these capabilities
// supports, in the form of the protocol, and for each other one why it is left
// out.
func servers(list []Server, can acp.McpCapabilities) (taken []acp.McpServer, left []string) {
	taken = []acp.McpServer{} // the protocol requires a list, not null
	for _, s := range list {
		switch {
		case s.Command != "":
			command, args := s.start()
			taken = append(taken, acp.McpServer{Stdio: &acp.McpServerStdio{
				Name: s.Name, Command: command, Args: args, Env: variables(s.Env),
			}})
			if s.Dir != "" && runtime.GOOS == "windows" {
				left = append(left, fmt.Sprintf("MCP server %s starts where the agent has it start, not in %s: the protocol has no word for it", s.Name, s.Dir))
			}
		case s.URL == "":
			left = append(left, fmt.Sprintf("MCP server %s is left out: it has neither a command nor a URL", s.Name))
		case s.SSE && can.Sse:
			taken = append(taken, acp.McpServer{Sse: &acp.McpServerSseInline{
				Type: "sse", Name: s.Name, Url: s.URL, Headers: headers(s.Headers),
			}})
		case !s.SSE && can.Http:
			taken = append(taken, acp.McpServer{Http: &acp.McpServerHttpInline{
				Type: "http", Name: s.Name, Url: s.URL, Headers: headers(s.Headers),
			}})
		default:
			left = append(left, fmt.Sprintf("MCP server %s is left out: the agent reaches no servers over %s", s.Name, transport(s.SSE)))
		}
	}
	return taken, left
}

// start returns the command that starts a server. The protocol has no field for
// a working directory, so a shell changes to it first.
func (s Server) start() (command string, args []string) {
	if s.Dir == "" || runtime.GOOS == "windows" {
		return s.Command, append([]string{}, s.Args...)
	}
	return "/bin/sh", append([]string{"-c", `cd "$1" && shift && exec "$@"`, "sh", s.Dir, s.Command}, s.Args...)
}

func transport(sse bool) string {
	if sse {
		return "SSE"
	}
	return "HTTP"
}

func variables(env map[string]string) []acp.EnvVariable {
	list := []acp.EnvVariable{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, acp.EnvVariable{Name: name, Value: env[name]})
	}
	return list
}

func headers(h map[string]string) []acp.HttpHeader {
	list := []acp.HttpHeader{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		list = append(list, acp.HttpHeader{Name: name, Value: h[name]})
	}
	return list
}
