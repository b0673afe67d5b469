package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance/judge"
)

// The fixed names of the contract.
const (
	runnerID         = "mrs_conformance"
	restoredRunnerID = "mrs_conformance_restored"
	sessionID        = "sess_conformance"
	workspaceID      = "ws_conformance"
	agentRunID       = "run_conformance"
	protocolVersion  = "2026-04-02"
)

// exitWithin is how long a runner may take to end when its standard input has.
const exitWithin = time.Second

// A scenario is one test of the suite.
type scenario struct {
	name  string
	title string
	play  func(*stage)
}

// A stage is what one scenario plays on: a fresh workspace and a runner in it.
// All methods but the trace's belong to the scenario's goroutine.
type stage struct {
	command []string
	timeout time.Duration
	parent  context.Context
	trace   *trace

	// While a scenario plays.
	ctx       context.Context
	root      string // holds the workspace and what lies beside it
	workspace string
	secret    string // a file outside the workspace
	process   *judge.Process
	base      string // address of the runner
	client    *http.Client
	streams   []*stream
}

func newStage(ctx context.Context, command []string, timeout time.Duration) *stage {
	return &stage{command: command, timeout: timeout, parent: ctx, trace: &trace{began: time.Now()}}
}

// A failure is what a scenario ends with that is not satisfied. It travels as
// a panic from wherever that is noticed to play.
type failure struct{ error }

// fail ends the scenario.
func (s *stage) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// want fails unless ok.
func (s *stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// play runs a scenario against a runner of its own, and stops that in any case.
func (s *stage) play(sc scenario) (err error) {
	root, err := os.MkdirTemp("", "adapter-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	s.root = root
	if err := s.furnish(); err != nil {
		return err
	}
	s.client = &http.Client{Transport: &http.Transport{Proxy: nil}}
	defer s.client.CloseIdleConnections()
	defer s.leave()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
		if err != nil && s.process != nil {
			s.trace.add("diagnostics of the runner: %s", s.process.Diagnostics())
		}
	}()
	s.begin(s.environment("", runnerID))
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithTimeout(s.parent, s.timeout)
	defer cancel()
	sc.play(s)
	s.end()
	return nil
}

// furnish makes the workspace and the directory beside it.
func (s *stage) furnish() error {
	s.workspace, s.secret = filepath.Join(s.root, "workspace"), filepath.Join(s.root, "outside", "secret.txt")
	for _, dir := range []string{s.workspace, filepath.Dir(s.secret)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	err := os.WriteFile(filepath.Join(s.workspace, "notes.md"), []byte("alpha\nbeta\ngamma\n"), 0o644)
	return errors.Join(err, os.WriteFile(s.secret, []byte("nobody's business\n"), 0o644))
}

// environment is that of the contract: everything inherited but for the names
// in it. A manifest makes it that of a restart.
func (s *stage) environment(manifest, runner string) []string {
	set := map[string]string{
		"PORT":                                   "",
		"MAESTRO_RUNNER_SESSION_ID":              runner,
		"MAESTRO_SESSION_ID":                     sessionID,
		"MAESTRO_WORKSPACE_ROOT":                 s.workspace,
		"MAESTRO_HOSTED_RUNNER_LISTEN":           s.freePort(),
		"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID":     workspaceID,
		"MAESTRO_AGENT_RUN_ID":                   agentRunID,
		"MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST": manifest,
	}
	if manifest != "" {
		set["MAESTRO_SESSION_ID"] = ""
	}
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, named := set[name]
		return named
	})
	for name, value := range set {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// freePort finds an address that nobody listens on.
func (s *stage) freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.fail("find a free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// begin starts a runner.
func (s *stage) begin(env []string) {
	s.trace.add("start %s", strings.Join(s.command, " "))
	p, ready, err := judge.Start(s.parent, s.command, env)
	if err != nil {
		s.fail("start the runner: %w", err)
	}
	s.process, s.base = p, strings.TrimSuffix(ready.BaseURL, "/")
	s.trace.add("ready at %s with session %s", ready.BaseURL, ready.SessionID)
	s.want(ready.SessionID == sessionID, "the ready line names session %q, want %q", ready.SessionID, sessionID)
}

// end stops the runner as the contract says.
func (s *stage) end() {
	s.closeStreams()
	p := s.process
	s.process = nil
	s.trace.add("close the standard input of the runner")
	if err := p.Stop(exitWithin); err != nil {
		s.fail("%w", err)
	}
}

// leave ends what a scenario that failed has left.
func (s *stage) leave() {
	s.closeStreams()
	if s.process != nil {
		s.process.Kill()
	}
}
