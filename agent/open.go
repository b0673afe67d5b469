package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/agent/acp"
	"github.com/seed-028515a8/maestro/agent/llm"
	"github.com/seed-028515a8/maestro/agent/mcp"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// An Agent is a runtime as [Open] returns it. Start is called once, then Run
// once at a time, Configure at any time, and Close last.
type Agent interface {
	// Start makes the agent ready for prompts. host must stay valid until
	// Close returns; ctx bounds the start only.
	Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error)

	// Configure applies an accepted init. It does not block.
	Configure(init *contracts.Init)

	// Run serves one prompt to its end. Once ctx has ended it returns soon and
	// leaves open responses and tools to the host.
	Run(ctx context.Context, work contracts.Work) error

	// Close ends the agent and every process it started.
	Close(ctx context.Context) error
}

// Options are what an agent gets from its operator. The zero value works in
// the current directory.
type Options struct {
	// Dir is the workspace root, where processes start. Empty means the
	// current directory.
	Dir string

	// Shell runs command lines. Empty means $SHELL if it exists, else
	// /bin/bash, else sh. Windows always uses cmd.
	Shell string

	// EnvPass names environment variables that processes get although their
	// names look like credentials or Hosted would withhold them.
	EnvPass []string

	// Hosted withholds every environment variable that is not known to be
	// needed.
	Hosted bool

	// Profile decides what a child that speaks the headless protocol is told.
	Profile contracts.Profile

	// StateDir is where an agent keeps what it needs to go on after a restart.
	// Empty keeps nothing.
	StateDir string

	// SessionID and Version are told to providers of models and to MCP servers, and
	// Version to acp: agents. Empty ones are not.
	SessionID, Version string

	// Servers are the MCP servers that agents may use.
	Servers []mcp.Server

	// The rest is for llm: agents. Allow, Ask and Deny are rules about calls, as
	// [llm.ParseRules] reads them. ModelURL is where the provider's service is;
	// empty means what the environment says, else the provider's own. The numbers
	// and the price are those of [llm.Options].
	Allow, Ask, Deny         []string
	ModelURL                 string
	MaxIterations            int
	ContextTokens, MaxTokens int64
	Price                    llm.Price

	// Log receives faults and the output of children meant for operators. Nil
	// discards it.
	Log *slog.Logger
}

// Open returns the agent that spec names:
//
//	shell          each prompt is a command line run in the workspace
//	script:FILE    a deterministic scenario read from FILE
//	conformance    the triggers that the conformance suite expects
//	headless:CMD   a child process that speaks the headless protocol on stdio
//	acp:CMD        a child process that speaks the Agent Client Protocol on stdio
//	llm:P/MODEL    our own loop on a model of the provider P
//
// Nothing is started before Start. The words of CMD may be quoted as in a
// shell; nothing in them is expanded.
func Open(spec string, o Options) (Agent, error) {
	if err := Check(spec, o); err != nil {
		return nil, fmt.Errorf("agent %q: %w", spec, err)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find workspace %q: %w", o.Dir, err)
	}
	o.Dir = dir
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	kind, rest, _ := strings.Cut(spec, ":")
	switch kind {
	case "shell":
		return newShell(o), nil
	case "conformance":
		return newConformance(o), nil
	case "script":
		return newScript(rest, o)
	case "llm":
		a, err := newNative(rest, o)
		if err != nil {
			return nil, fmt.Errorf("agent %q: %w", spec, err)
		}
		return a, nil
	}
	argv, err := proc.SplitWords(rest)
	if err != nil {
		return nil, fmt.Errorf("agent %q: %w", spec, err)
	}
	if kind == "headless" {
		return newHeadless(argv, o), nil
	}
	return acp.New(argv, acp.Options{
		Dir: o.Dir, Shell: o.Shell, EnvPass: o.EnvPass, Hosted: o.Hosted,
		StateDir: o.StateDir, Version: o.Version, Servers: handed(o), Log: o.Log,
	}), nil
}

// Check returns what is wrong with a spec and with what the options say for llm:
// agents, as far as the texts alone show it: no file, environment or network is
// asked.
func Check(spec string, o Options) error {
	kind, rest, hasRest := strings.Cut(spec, ":")
	switch {
	case spec == "shell", spec == "conformance", kind == "script" && strings.TrimSpace(rest) != "":
		return nil
	case (kind == "headless" || kind == "acp") && hasRest:
		_, err := proc.SplitWords(rest)
		return err
	case kind == "llm" && hasRest:
		return checkNative(rest, o)
	}
	return errUnknownSpec
}

var errUnknownSpec = errors.New("unknown, want shell, script:FILE, conformance, headless:CMD, acp:CMD or llm:PROVIDER/MODEL")
