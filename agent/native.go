package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/launcher"
	"github.com/seed-028515a8/maestro/internal/agent/llm"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/provider"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A native is the built-in loop with its parts: a provider's model, the
// workspace tools and the tools of MCP servers.
type native struct {
	*llm.Agent
	work    *workspace.Workspace
	servers mcp.Options

	// Set by Start.
	host contracts.Host
	set  *mcp.Set
}

// checkNative is [Check] for the text after llm: and the options for it. It returns
// the rules in them.
func checkNative(name string, o Options) (llm.Rules, error) {
	service, named, ok := strings.Cut(name, "/")
	if !ok || service == "" || named == "" {
		return llm.Rules{}, errors.New("want llm:PROVIDER/MODEL, such as llm:anthropic/claude-sonnet-4-5")
	}
	texts := provider.Options{Provider: service, Model: named, Key: "any", BaseURL: o.ModelURL}
	if _, err := provider.Open(texts); err != nil { // with a key, only the texts can be wrong
		return llm.Rules{}, err
	}
	return llm.ParseRules(o.Allow, o.Ask, o.Deny)
}

// newNative opens the model PROVIDER/MODEL, which has been checked.
func newNative(name string, rules llm.Rules, o Options) (contracts.Agent, error) {
	service, named, _ := strings.Cut(name, "/")
	variables := "OPENAI_"
	if service == provider.Anthropic {
		variables = "ANTHROPIC_"
	}
	m, err := provider.Open(provider.Options{
		Provider: service, Model: named,
		Key: os.Getenv(variables + "API_KEY"), BaseURL: cmp.Or(o.ModelURL, os.Getenv(variables+"BASE_URL")),
		Complete: o.CompleteURL,
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range o.Servers {
		names = append(names, s.Name)
	}
	for _, d := range rules.Doubts(names) {
		o.Log.Warn("a rule may match nothing", slog.String("rule", d.Rule), slog.String("why", d.Why))
	}
	work, err := workspace.Open(o.Dir)
	if err != nil {
		return nil, err
	}
	n := &native{work: work, servers: mcp.Options{
		Servers: o.Servers, Dir: o.Dir, EnvPass: o.EnvPass, Hosted: o.Hosted,
		SessionID: o.SessionID, Version: o.Version, Log: o.Log,
	}}
	kit := tool.Kit{Workspace: work, Shell: o.Shell, EnvPass: o.EnvPass, Hosted: o.Hosted}
	n.Agent = llm.New(llm.Options{
		Name: name, Model: m,
		Tools: kit.Tools(), ServerTools: n.serverTools, ClientTools: n.clientTools,
		Offers:    func(name string) bool { return !o.Limited || slices.Contains(o.Tools, name) },
		Workspace: work, StateDir: o.StateDir, Rules: rules, Metadata: metadata(o.SessionID, os.Getenv),
		MaxIterations: o.MaxIterations, NoRetries: o.NoRetries, ContextTokens: o.ContextTokens, MaxTokens: o.MaxTokens, Price: o.Price, Log: o.Log,
	})
	return n, nil
}

func (n *native) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	n.host = host
	info, err := n.Agent.Start(ctx, host)
	if err != nil {
		return info, fmt.Errorf("start model: %w", err)
	}
	n.servers.Host = host
	n.set = mcp.Open(n.servers)
	info.Requests = append(info.Requests, contracts.RequestMCPElicitation)
	return info, nil
}

func (n *native) Close(ctx context.Context) error {
	if n.set != nil {
		n.set.Close()
	}
	return errors.Join(n.Agent.Close(ctx), n.work.Close())
}

// clientTools returns the tools that the controlling client runs for the model.
func (n *native) clientTools() []model.Tool {
	var tools []model.Tool
	for _, t := range n.host.ClientTools() {
		tools = append(tools, model.Tool{Name: t.Name, Description: t.Description, Schema: t.InputSchema})
	}
	return tools
}

// metadata returns the known ids by which a provider or gateway attributes the
// work of a session: those of the session and those that a launcher put into
// the environment.
func metadata(sessionID string, getenv func(string) string) map[string]string {
	known := map[string]string{launcher.Surface: "maestro"}
	if sessionID != "" {
		known["session_id"], known[launcher.Session] = sessionID, sessionID
	}
	for _, id := range launcher.IDs(getenv) {
		known[id.Key] = id.Value
	}
	return known
}

// serverTools returns the tools of MCP servers. A server's claim that a tool is
// harmless is used only to decide whether a repeated call is allowed: each call is
// asked about unless a rule decides. The tools of slow servers appear when they are
// ready.
func (n *native) serverTools(ctx context.Context) []tool.Tool {
	var tools []tool.Tool
	n.set.Await(ctx)
	for _, t := range n.set.Tools() {
		label := t.Server + ": " + t.Title
		tools = append(tools, tool.Tool{
			Tool:  model.Tool{Name: t.FullName, Description: t.Description, Schema: t.Schema},
			Title: label, Gated: true, Repeats: t.ReadOnly || t.Idempotent,
			Brief: func(json.RawMessage) (string, string) { return "Called " + label, "Calling " + label },
			Run: func(ctx context.Context, args json.RawMessage, out func(string) error) (tool.Result, error) {
				return n.callServer(ctx, t.FullName, args, out)
			},
		})
	}
	return tools
}

func (n *native) callServer(ctx context.Context, name string, args json.RawMessage, out func(string) error) (tool.Result, error) {
	res, err := n.set.Call(ctx, name, args, func(text string) { _ = out(text + "\n") }) // the end of a run also ends the call
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

// handedServers returns the servers for an agent that connects to them itself.
func handedServers(o Options) []mcp.Server {
	all := slices.Clone(o.Servers)
	for i, s := range all {
		if s.Dir != "" && !filepath.IsAbs(s.Dir) {
			all[i].Dir = filepath.Join(o.Dir, s.Dir)
		}
		all[i].Headers = s.HeadersFor(o.SessionID)
	}
	return all
}
