package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/acp"
	"github.com/seed-028515a8/maestro/internal/agent/chord"
	"github.com/seed-028515a8/maestro/internal/agent/heddle"
	"github.com/seed-028515a8/maestro/internal/agent/llm"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Options are the operator's settings for an agent. The zero value works in the
// current directory.
type Options struct {
	// Dir is the workspace root, where processes start. Empty means the
	// current directory.
	Dir string

	// Shell runs command lines. Empty means $SHELL if it exists, else
	// /bin/bash, else sh. Windows always uses cmd.
	Shell string

	// EnvPass names environment variables that processes get even if their names
	// look like credentials or Hosted would withhold them.
	EnvPass []string

	// Hosted withholds all environment variables except those known to be
	// needed.
	Hosted bool

	// Profile is the wire profile that the conformance agent follows. Other
	// agents ignore it.
	Profile contracts.Profile

	// StateDir is where an agent stores its state for a restart. Empty stores
	// nothing.
	StateDir string

	// SessionID and Version are sent to model providers and MCP servers, and
	// Version to acp: agents. Empty ones are not sent.
	SessionID, Version string

	// Servers are the MCP servers that agents may use.
	Servers []mcp.Server

	// The rest is for llm: agents. Allow, Ask and Deny are rules about calls in
	// the form of [llm.ParseRules]. ModelURL is the URL of the provider's
	// service; empty means the one in the environment, else the provider's own.
	// The numbers and the price are those of [llm.Options].
	Allow, Ask, Deny         []string
	Tools                    []string // the only tools that the model gets, if Limited
	Limited                  bool
	ModelURL                 string
	CompleteURL              bool // nothing is added to ModelURL
	NoRetries                bool
	MaxIterations            int
	ContextTokens, MaxTokens int64
	Price                    llm.Price

	// Log receives errors and the output of children for operators. Nil discards
	// it.
	Log *slog.Logger
}

// Open returns the agent that spec names:
//
//	shell          each prompt is a command line run in the workspace
//	script:FILE    a deterministic scenario read from FILE
//	conformance    the triggers that the conformance suite expects
//	headless:CMD   a child process that speaks the headless protocol on stdio
//	acp:CMD        a child process that speaks the Agent Client Protocol on stdio
//	heddle:CMD     a child process that speaks the Heddle protocol on stdio
//	chord:CMD      a child process that speaks the Chord protocol on stdio
//	llm:P/MODEL    our own loop on a model of the provider P
//
// Open starts no process. The words of CMD may be quoted as in a shell; nothing
// in them is expanded.
func Open(spec string, o Options) (contracts.Agent, error) {
	open, err := parse(spec, o)
	if err != nil {
		return nil, fmt.Errorf("agent %q: %w", spec, err)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find workspace %q: %w", o.Dir, err)
	}
	o.Dir = dir
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return open(o)
}

// Check returns the errors of a spec and of the options for llm: agents that
// their texts alone show. It reads no file or environment and uses no network.
func Check(spec string, o Options) error {
	_, err := parse(spec, o)
	return err
}

// parse is [Check], and returns what opens the agent.
func parse(spec string, o Options) (func(Options) (contracts.Agent, error), error) {
	kind, rest, hasRest := strings.Cut(spec, ":")
	switch {
	case spec == "shell":
		return func(o Options) (contracts.Agent, error) { return &shell{Options: o}, nil }, nil
	case spec == "conformance":
		return func(o Options) (contracts.Agent, error) { return newConformance(o), nil }, nil
	case kind == "script" && strings.TrimSpace(rest) != "":
		return func(o Options) (contracts.Agent, error) { return newScript(rest, o) }, nil
	case kind == "headless" && hasRest:
		argv, err := proc.SplitWords(rest)
		return func(o Options) (contracts.Agent, error) { return newHeadless(argv, o), nil }, err
	case kind == "acp" && hasRest:
		argv, err := proc.SplitWords(rest)
		return func(o Options) (contracts.Agent, error) {
			return acp.New(argv, acp.Options{
				Dir: o.Dir, Shell: o.Shell, EnvPass: o.EnvPass, Hosted: o.Hosted,
				StateDir: o.StateDir, Version: o.Version, Servers: handedServers(o), Log: o.Log,
			}), nil
		}, err
	case (kind == "heddle" || kind == "chord") && hasRest:
		return parseProgram(kind, rest)
	case kind == "llm" && hasRest:
		rules, err := checkNative(rest, o)
		return func(o Options) (contracts.Agent, error) {
			a, err := newNative(rest, rules, o)
			if err != nil {
				return nil, fmt.Errorf("agent %q: %w", spec, err)
			}
			return a, nil
		}, err
	}
	return nil, errors.New("unknown, want shell, script:FILE, conformance, headless:CMD, acp:CMD, heddle:CMD, chord:CMD or llm:PROVIDER/MODEL")
}

// parseProgram is parse for programs that speak Heddle or Chord.
func parseProgram(kind, command string) (func(Options) (contracts.Agent, error), error) {
	argv, err := proc.SplitWords(command)
	var config heddle.Config
	if err == nil && kind == "heddle" {
		config, argv, err = heddle.Parse(argv)
	}
	return func(o Options) (contracts.Agent, error) {
		p := program.Options{Argv: argv, Dir: o.Dir, EnvPass: o.EnvPass, Hosted: o.Hosted, StateDir: o.StateDir, Log: o.Log}
		if kind == "heddle" {
			return heddle.New(p, config), nil
		}
		return chord.New(p), nil
	}, err
}

// unconfigured is a part of agents that have no configuration, and nothing that
// outlives a run.
type unconfigured struct{}

func (unconfigured) Configure(*contracts.Init) {}

func (unconfigured) Close(context.Context) error { return nil }
