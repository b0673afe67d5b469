package acp

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/mcp"
)

// servers returns the servers of list that a program with these capabilities
// supports, in the form of the protocol, and for each other one why it is left
// out.
func servers(list []mcp.Server, can acp.McpCapabilities) (taken []acp.McpServer, left []string) {
	taken = []acp.McpServer{} // the protocol requires a list, not null
	for _, s := range list {
		switch {
		case s.Command != "":
			command, args := start(&s)
			taken = append(taken, acp.McpServer{Stdio: &acp.McpServerStdio{
				Name: s.Name, Command: command, Args: args, Env: sorted(s.Env, func(name, value string) acp.EnvVariable { return acp.EnvVariable{Name: name, Value: value} }),
			}})
			if s.Dir != "" && runtime.GOOS == "windows" {
				left = append(left, fmt.Sprintf("MCP server %s starts where the agent has it start, not in %s: the protocol has no word for it", s.Name, s.Dir))
			}
		case s.URL == "":
			left = append(left, fmt.Sprintf("MCP server %s is left out: it has neither a command nor a URL", s.Name))
		case can.Http:
			taken = append(taken, acp.McpServer{Http: &acp.McpServerHttpInline{
				Type: "http", Name: s.Name, Url: s.URL,
				Headers: sorted(s.Headers, func(name, value string) acp.HttpHeader { return acp.HttpHeader{Name: name, Value: value} }),
			}})
		default:
			left = append(left, fmt.Sprintf("MCP server %s is left out: the agent reaches no servers over HTTP", s.Name))
		}
	}
	return taken, left
}

// start returns the command that starts a server. The protocol has no field for
// a working directory, so a shell changes to it first.
func start(s *mcp.Server) (command string, args []string) {
	if s.Dir == "" || runtime.GOOS == "windows" {
		return s.Command, append([]string{}, s.Args...)
	}
	return "/bin/sh", append([]string{"-c", `cd "$1" && shift && exec "$@"`, "sh", s.Dir, s.Command}, s.Args...)
}

// sorted returns the variables or headers in a map in the form of the protocol, by name.
func sorted[T any](values map[string]string, of func(name, value string) T) []T {
	list := []T{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, of(name, values[name]))
	}
	return list
}
