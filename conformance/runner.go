package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A runner is a hosted runner that a scenario started, with the environment of
// the process contract.
type runner struct {
	s      *Session
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *bufio.Reader
	stderr *tail

	exited chan struct{} // closed once status is set
	status int           // exit status; -1 if a signal ended it
	drain  sync.WaitGroup

	listen    string         // the address that it was told to listen on
	line      map[string]any // the ready line
	base      string         // from it
	session   string         // from it
	workspace string
	owned     bool // it was given an owner generation
}

// maxReadyLine bounds the ready line.
const maxReadyLine = 64 << 10

// readyTime is how long a runner may take to say that it is ready.
const readyTime = 30 * time.Second

// A start is how a runner is started. Its zero value is the first start of the
// contract, in a fresh workspace.
type start struct {
	workspace string            // empty for a fresh one
	manifest  string            // to restore from; with it the names are those of a restart
	env       map[string]string // beside the contract's; an empty value takes a variable away
	flags     []string          // beside the command's own
}

// The names that the contract gives a runner.
const (
	runnerID         = "mrs_conformance"
	restoredRunnerID = "mrs_conformance_restored"
	boundSession     = "sess_conformance"
	workspaceID      = "ws_conformance"
	agentRunID       = "run_conformance"
)

// environment is what a runner is started with. Variables of an outer runner
// would change how it behaves.
func (o *start) environment(listen string) []string {
	env := map[string]string{
		"MAESTRO_RUNNER_SESSION_ID": runnerID, "MAESTRO_SESSION_ID": boundSession, "MAESTRO_WORKSPACE_ROOT": o.workspace,
		"MAESTRO_HOSTED_RUNNER_LISTEN": listen, "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID": workspaceID, "MAESTRO_AGENT_RUN_ID": agentRunID,
	}
	if o.manifest != "" {
		env["MAESTRO_RUNNER_SESSION_ID"], env["MAESTRO_SESSION_ID"] = restoredRunnerID, ""
		env["MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST"] = o.manifest
	}
	maps.Copy(env, o.env)
	list := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "MAESTRO_") || strings.HasPrefix(name, "REMOTE_RUNNER_") || name == "PORT" || name == "WORKSPACE_ROOT"
	})
	for name, value := range env {
		if value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// scratch makes a directory that is removed with the scenario. Its path is
// real: no part of it is a link.
func (s *Session) scratch() string {
	dir, err := os.MkdirTemp("", "conformance-")
	if err == nil {
		s.dirs = append(s.dirs, dir)
		dir, err = filepath.EvalSymlinks(dir)
	}
	s.require(err == nil, "6.1", "make a workspace: %v", err)
	return dir
}

// freshWorkspace is the workspace of the contract, with its notes.
func (s *Session) freshWorkspace() string {
	dir := s.scratch()
	s.write(filepath.Join(dir, "notes.md"), []byte("alpha\nbeta\ngamma\n"))
	return dir
}

func (s *Session) write(path string, text []byte) {
	err := os.WriteFile(path, text, 0o600)
	s.require(err == nil, "6.1", "%v", err)
}

// launch starts a runner and does not wait for it.
func (s *Session) launch(o start) *runner {
	if o.workspace == "" {
		o.workspace = s.freshWorkspace()
	}
	words, err := splitWords(s.config.Spawn)
	s.require(err == nil, "6.1", "%v", err)
	r := &runner{s: s, stderr: &tail{}, exited: make(chan struct{}), workspace: o.workspace, listen: s.freeAddress()}
	r.owned = o.env["MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID"]+o.env["REMOTE_RUNNER_OWNER_INSTANCE_ID"] != ""
	r.cmd = exec.Command(words[0], append(words[1:], o.flags...)...)
	r.cmd.Env, r.cmd.WaitDelay = o.environment(r.listen), time.Second
	pr, pw := io.Pipe() // Wait would close a StdoutPipe under a reader
	r.out, r.cmd.Stdout, r.cmd.Stderr = bufio.NewReaderSize(pr, maxReadyLine), pw, r.stderr
	if r.stdin, err = r.cmd.StdinPipe(); err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		s.fail("6.1", "start %s: %v", words[0], err)
	}
	s.trace.add(s.now(), "runner", ">", []byte("(started with "+strings.Join(append(o.flags, summaryOf(o)...), " ")+")"))
	s.runners = append(s.runners, r)
	go r.wait(pw) // ends when the process does; close kills it and waits
	return r
}

// freeAddress returns a loopback address whose port is free. The contract knows
// the ports from 1 to 65535, so the runner cannot choose one itself.
func (s *Session) freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.require(err == nil, "6.1", "find a free port: %v", err)
	defer func() { _ = l.Close() }() // nothing was accepted
	return l.Addr().String()
}

// maxPortTries bounds how often a runner is started whose port somebody else
// takes before the runner does.
const maxPortTries = 5

// summaryOf renders what is special about a start.
func summaryOf(o start) []string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(o.env)) {
		parts = append(parts, name+"="+o.env[name])
	}
	if o.manifest != "" {
		parts = append(parts, "a manifest")
	}
	return parts
}

func (r *runner) wait(out *io.PipeWriter) {
	_ = r.cmd.Wait() // the status says it all
	r.status = r.cmd.ProcessState.ExitCode()
	_ = out.Close() // always nil
	close(r.exited)
}

// spawned starts a runner and waits until it is ready. From then on it is the
// scenario's server, and its session the scenario's.
func (s *Session) spawned(o start) *runner {
	r := s.launch(o)
	for try := 1; !r.ready(try < maxPortTries); try++ {
		s.runners = slices.DeleteFunc(s.runners, func(other *runner) bool { return other == r })
		r.close()
		o.workspace = r.workspace
		r = s.launch(o)
	}
	if s.wire != nil {
		s.wire.close()
	}
	s.wire, s.ID, s.opened = newWire(r.base, ""), r.session, true
	return r
}

// ready reads the first line on standard output and leaves the rest to be
// thrown away. If again is true, it reports false for a runner that ended
// because its port was taken.
func (r *runner) ready(again bool) bool {
	type result struct {
		line []byte
		err  error
	}
	first := make(chan result, 1)
	r.drain.Go(func() { // ends when the process does
		line, err := r.out.ReadSlice('\n')
		first <- result{bytes.Clone(line), err}
		_, _ = io.Copy(io.Discard, r.out)
	})
	select {
	case got := <-first:
		r.s.trace.add(r.s.now(), "runner", "<", got.line)
		if got.err != nil {
			<-r.exited
			if again && strings.Contains(strings.ToLower(r.stderr.String()), "address already in use") {
				return false
			}
			r.s.fail("6.1", "expected a ready line, got exit status %d: %s", r.status, strings.TrimSpace(r.stderr.String()))
		}
		if err := json.Unmarshal(got.line, &r.line); err != nil {
			r.s.fail("6.1", "expected the ready line to be a JSON object, got %q", abridge(got.line, 200))
		}
	case <-time.After(readyTime):
		r.s.fail("6.1", "expected a ready line within %s", readyTime)
	case <-r.s.ctx.Done():
		r.s.fail("6.1", "the scenario ran out of time waiting for a ready line")
	}
	r.base, r.session = textOf(r.line, "baseUrl"), textOf(r.line, "sessionId")
	r.s.require(strings.HasPrefix(r.base, "http") && r.session != "",
		"6.1", "expected baseUrl and sessionId in the ready line, got %s", show(r.line))
	return true
}

// exits waits until the process has ended by itself, and returns its status.
func (r *runner) exits(rule string, patience time.Duration) int {
	select {
	case <-r.exited:
		r.s.trace.add(r.s.now(), "runner", "<", fmt.Appendf(nil, "(exit status %d)", r.status))
		return r.status
	case <-time.After(patience):
	case <-r.s.ctx.Done():
	}
	r.s.fail(rule, "expected the runner to end within %s", patience)
	return 0
}

// signal sends the process a signal.
func (r *runner) signal(rule string, sig os.Signal) {
	r.s.trace.add(r.s.now(), "runner", ">", []byte("("+sig.String()+")"))
	err := r.cmd.Process.Signal(sig)
	r.s.require(err == nil || errors.Is(err, os.ErrProcessDone), rule, "signal the runner: %v", err)
}

// stop ends the runner as the contract says, without a drain.
func (r *runner) stop(rule string, patience time.Duration) int {
	r.s.trace.add(r.s.now(), "runner", ">", []byte("(end of input)"))
	_ = r.stdin.Close() // it may be closed, or the process gone
	return r.exits(rule, patience)
}

// fails waits for a start to fail and returns what the runner said for humans.
// It must have said nothing else.
func (r *runner) fails(rule string) string {
	first := make(chan []byte, 1)
	r.drain.Go(func() { // ends when the process does
		line, _ := r.out.ReadSlice('\n')
		first <- bytes.Clone(line)
		_, _ = io.Copy(io.Discard, r.out)
	})
	select {
	case line := <-first:
		r.s.require(len(line) <= 0,
			rule, "expected the start to fail and to say nothing on standard output, got %q", abridge(line, 200))
	case <-time.After(readyTime):
	case <-r.s.ctx.Done():
	}
	status := r.exits(rule, readyTime)
	r.s.require(status != 0, rule, "expected the start to fail, got exit status 0")
	return r.stderr.String()
}

// close ends the process if it has not ended, and what reads from it.
func (r *runner) close() {
	_ = r.stdin.Close() // it may be closed, or the process gone
	select {
	case <-r.exited:
	case <-time.After(graceTime):
		_ = r.cmd.Process.Kill() // it may end on its own meanwhile
		<-r.exited
	}
	if r.s.failure != nil {
		if text := strings.TrimSpace(r.stderr.String()); text != "" {
			r.s.trace.add(r.s.now(), "runner", "stderr", []byte(text))
		}
	}
	r.drain.Wait()
}
