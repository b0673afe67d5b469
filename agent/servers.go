package agent

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/seed-028515a8/maestro/agent/acp"
	"github.com/seed-028515a8/maestro/agent/llm"
	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/agent/mcp"
	"github.com/seed-028515a8/maestro/contracts"
)

// servers are the MCP servers of the built-in loop.
type servers struct {
	opts mcp.Options
	set  *mcp.Set // nil before Start
}

func newServers(o Options) *servers {
	return &servers{opts: mcp.Options{
		Servers: o.Servers, Dir: o.Dir, EnvPass: o.EnvPass, Hosted: o.Hosted,
		SessionID: o.SessionID, Version: o.Version, Log: o.Log,
	}}
}

// Start implements [llm.MCP].
func (s *servers) Start(_ context.Context, host contracts.Host) error {
	s.opts.Host = host
	s.set = mcp.Open(s.opts)
	return nil
}

// Close implements [llm.MCP].
func (s *servers) Close() error {
	if s.set != nil {
		s.set.Close()
	}
	return nil
}

// Tools implements [llm.MCP]. A server's claim that a tool is harmless is used
// only to decide whether a repeated call is allowed: each call is asked about
// unless a rule decides. The tools of slow servers appear when they are ready.
func (s *servers) Tools(ctx context.Context) []tool.Tool {
	var tools []tool.Tool
	s.set.Await(ctx)
	for _, t := range s.set.Tools() {
		label := t.Server + ": " + t.Title
		tools = append(tools, tool.Tool{
			Tool:  model.Tool{Name: t.FullName, Description: t.Description, Schema: t.Schema},
			Title: label, Gated: true, Repeats: t.ReadOnly || t.Idempotent,
			Brief: func(json.RawMessage) (string, string) { return "Called " + label, "Calling " + label },
			Run: func(ctx context.Context, args json.RawMessage, out func(string) error) (tool.Result, error) {
				return s.call(ctx, t.FullName, args, out)
			},
		})
	}
	return tools
}

func (s *servers) call(ctx context.Context, name string, args json.RawMessage, out func(string) error) (tool.Result, error) {
	res, err := s.set.Call(ctx, name, args, func(text string) { _ = out(text + "\n") }) // the end of a run also ends the call
	switch {
	case errors.Is(err, mcp.ErrUnavailable):
		return tool.Result{}, llm.Retryable(err)
	case err != nil:
		return tool.Result{}, err
	}
	told := tool.Result{Text: res.Text, IsError: res.IsError}
	for _, image := range res.Images {
		told.Images = append(told.Images, model.Image(image))
	}
	return told, nil
}

// acpServers returns the servers in the form for an ACP agent.
func acpServers(o Options) []acp.Server {
	var all []acp.Server
	for _, s := range o.Servers {
		if s.Dir != "" && !filepath.IsAbs(s.Dir) {
			s.Dir = filepath.Join(o.Dir, s.Dir)
		}
		all = append(all, acp.Server{
			Name: s.Name, Command: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir, URL: s.URL, Headers: s.HeadersFor(o.SessionID),
		})
	}
	return all
}
