package conformance

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// A runner is a hosted runner that a scenario started, with the environment of
// the process contract.
type runner struct {
	*process
	s     *Session
	drain sync.WaitGroup

	listen    string         // the address that it was told to listen on
	line      map[string]any // the ready line
	base      string         // from it
	session   string         // from it
	workspace string
	owned     bool // it was given an owner generation
}

// maxReadyLine bounds the ready line.
const maxReadyLine = 64 << 10

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

// Scratch makes a directory that is removed with the scenario. Its path is
// real: no part of it is a link.
func (s *Session) Scratch() string {
	dir, err := os.MkdirTemp("", "conformance-")
	if err == nil {
		s.dirs = append(s.dirs, dir)
		dir, err = filepath.EvalSymlinks(dir)
	}
	s.failIf(err != nil, "6.1", "make a workspace: %v", err)
	return dir
}

// freshWorkspace is the workspace of the contract, with its notes.
func (s *Session) freshWorkspace() string {
	dir := s.Scratch()
	s.write(filepath.Join(dir, "notes.md"), []byte("alpha\nbeta\ngamma\n"))
	return dir
}

func (s *Session) write(path string, text []byte) {
	s.must("6.1", os.WriteFile(path, text, 0o600))
}

// launch starts a runner and does not wait for it.
func (s *Session) launch(o start) *runner {
	if o.workspace == "" {
		o.workspace = s.freshWorkspace()
	}
	words, err := proc.SplitWords(s.config.Spawn)
	s.must("6.1", err)
	r := &runner{s: s, workspace: o.workspace, listen: s.freeAddress(),
		owned: o.env["MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID"]+o.env["REMOTE_RUNNER_OWNER_INSTANCE_ID"] != ""}
	r.process, err = runCommand(slices.Concat(words, o.flags), o.environment(r.listen), "")
	s.must("6.1", err)
	s.trace.add(s.now(), "runner", ">", []byte("(started with "+strings.Join(append(o.flags, summaryOf(o)...), " ")+")"))
	s.runners = append(s.runners, r)
	return r
}

// freeAddress returns a loopback address whose port is free. The contract knows
// the ports from 1 to 65535, so the runner cannot choose one itself.
func (s *Session) freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.failIf(err != nil, "6.1", "find a free port: %v", err)
	defer func() { _ = l.Close() }() // nothing was accepted
	return l.Addr().String()
}

// maxPortTries bounds how often a runner is started whose port somebody else
// takes before the runner does.
const maxPortTries = 5

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

// runner returns a scenario with these needs, about a hosted runner that was just started.
func (n Needs) runner(name, rules, title string, story func(*Session, *runner)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.spawned(start{})) })
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

// firstLine waits for the first line on standard output and leaves the rest to be thrown
// away. It reports false if the runner is silent for the scenario's whole time, and a line
// without an end if the runner ended.
func (r *runner) firstLine() (line []byte, ok bool) {
	first := make(chan []byte, 1)
	r.drain.Go(func() { // ends when the process does
		line, _ := r.out.ReadSlice('\n')
		first <- bytes.Clone(line)
		_, _ = io.Copy(io.Discard, r.out)
	})
	select {
	case line := <-first:
		return line, true
	case <-r.s.ctx.Done():
		return nil, false
	}
}

// ready waits for the ready line. If again is true, it reports false for a runner that
// ended because its port was taken.
func (r *runner) ready(again bool) bool {
	line, ok := r.firstLine()
	r.s.failIf(!ok, "6.1", "expected a ready line, got none")
	r.s.trace.add(r.s.now(), "runner", "<", line)
	if !bytes.HasSuffix(line, []byte("\n")) {
		<-r.exited
		said := strings.TrimSpace(r.stderr.String())
		if again && strings.Contains(strings.ToLower(said), "address already in use") {
			return false
		}
		r.s.fail("6.1", "expected a ready line, got exit status %d: %s", r.status, said)
	}
	err := json.Unmarshal(line, &r.line)
	r.s.failIf(err != nil, "6.1", "expected the ready line to be a JSON object, got %q", abridge(line, 200))
	r.base, r.session = textOf(r.line, "baseUrl"), textOf(r.line, "sessionId")
	r.s.failIf(!strings.HasPrefix(r.base, "http") || r.session == "",
		"6.1", "expected baseUrl and sessionId in the ready line, got %s", show(r.line))
	return true
}

// exits waits until the process has ended by itself, and returns its status.
func (r *runner) exits(rule string, patience time.Duration) int {
	ctx, cancel := r.s.within(patience)
	defer cancel()
	select {
	case <-r.exited:
		r.s.trace.add(r.s.now(), "runner", "<", fmt.Appendf(nil, "(exit status %d)", r.status))
	case <-ctx.Done():
		r.s.fail(rule, "expected the runner to end within %s", patience)
	}
	return r.status
}

func (r *runner) signal(rule string, sig os.Signal) {
	r.s.trace.add(r.s.now(), "runner", ">", []byte("("+sig.String()+")"))
	err := r.cmd.Process.Signal(sig)
	r.s.failIf(err != nil && !errors.Is(err, os.ErrProcessDone), rule, "signal the runner: %v", err)
}

// stop ends the runner as the contract says, without a drain.
func (r *runner) stop(rule string) int {
	r.s.trace.add(r.s.now(), "runner", ">", []byte("(end of input)"))
	_ = r.stdin.Close() // it may be closed, or the process gone
	return r.exits(rule, r.s.exitTime())
}

// fails waits for a start to fail and returns what the runner said for humans.
// It must have said nothing else.
func (r *runner) fails(rule string) string {
	line, _ := r.firstLine()
	r.s.failIf(len(line) != 0,
		rule, "expected the start to fail and to say nothing on standard output, got %q", abridge(line, 200))
	r.s.failIf(r.exits(rule, r.s.config.Timeout) == 0, rule, "expected the start to fail, got exit status 0")
	return r.stderr.String()
}

func (r *runner) close() {
	_ = r.Close() // it may have ended
	if text := strings.TrimSpace(r.stderr.String()); text != "" && r.s.failure != nil {
		r.s.trace.add(r.s.now(), "runner", "stderr", []byte(text))
	}
	r.drain.Wait()
}

// maxDiagnostics bounds what is kept of a server's standard error: its end.
const maxDiagnostics = 8 << 10

// process is a link to a server that speaks on its standard streams.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *bufio.Reader
	pipe   *io.PipeReader // what out reads
	stderr *Tail

	exited chan struct{} // closed once status and waitErr are set
	status int
	err    error
}

// startProcess runs a command line, split as words and not by a shell, with
// variables beside our own.
func startProcess(line string, environ []string) (Link, error) {
	words, err := proc.SplitWords(line)
	if err != nil {
		return nil, err
	}
	return runCommand(words, append(os.Environ(), environ...), "")
}

// StartProcess runs a command with these variables and no others, in a directory. The
// command's path must not be relative. [Link.Close] ends it.
func StartProcess(words, environ []string, dir string) (Link, error) {
	return runCommand(words, environ, dir)
}

func runCommand(words, environ []string, dir string) (*process, error) {
	pr, pw := io.Pipe() // Wait would close a StdoutPipe under a reader
	p := &process{cmd: exec.Command(words[0], words[1:]...), out: bufio.NewReaderSize(pr, maxReadyLine), pipe: pr, stderr: &Tail{}, exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = environ, dir, pw, p.stderr
	p.cmd.WaitDelay = 5 * time.Second // pipes that a grandchild holds open; a busy machine needs seconds to empty one
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", words[0], err)
	}
	go p.wait(pw) // ends when the process does; Close kills it and waits
	return p, nil
}

func (p *process) wait(out *io.PipeWriter) {
	err := p.cmd.Wait()
	p.status = p.cmd.ProcessState.ExitCode()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		p.err = err
	}
	_ = out.Close() // always nil
	close(p.exited)
}

func (p *process) Send(_ context.Context, text []byte) error {
	_, err := p.stdin.Write(append(bytes.Clone(text), '\n'))
	return err
}

func (p *process) SendRaw(_ context.Context, data []byte) error {
	_, err := p.stdin.Write(data)
	return err
}

// Recv does not look at ctx: Close ends the process and thereby the wait.
func (p *process) Recv(context.Context) ([]byte, error) {
	var line []byte
	for {
		part, err := p.out.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case len(line) > contracts.MaxLineBytes+1:
			return nil, fmt.Errorf("a line longer than %d bytes", contracts.MaxLineBytes)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, fmt.Errorf("output ends without a line feed: %q", abridge(line, 80))
		default:
			return nil, err
		}
	}
}

func (p *process) CloseInput() error { return p.stdin.Close() }

func (p *process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.exited:
		return p.status, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (p *process) Diagnostics() string { return p.stderr.String() }

// Close hangs up at both ends, which a server takes for the end of its session
// and its children's, and kills it if it does not.
func (p *process) Close() error {
	_ = p.stdin.Close() // it may be closed, or the process gone
	_ = p.pipe.Close()
	select {
	case <-p.exited:
		return nil
	case <-time.After(graceTime):
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return err
}

// graceTime is how long a process may take to end when a scenario is over.
const graceTime = 2 * time.Second

// A Tail keeps the last 8 KiB of what is written to it. It is safe for concurrent use.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements [io.Writer]. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	t.buf = t.buf[max(0, len(t.buf)-maxDiagnostics):]
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
