package conformance

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// A user is a controller that uses utilities, on any transport. It belongs to
// the scenario's goroutine.
type user struct {
	*Peer           // where the messages arrive; sends them too, but over HTTP
	caller  *Caller // who sends over HTTP; else nil
	root    string  // the workspace; set by settle
	home    string  // a directory in it that is the scenario's own; set by settle
	rel     string  // the same, relative to root
	counter int     // of ids made up
}

// user returns a controller of a server that offers the operation the scenario
// needs and those given, or skips.
func (s *Session) user(also ...contracts.UtilityOperation) *user {
	if s.wire != nil {
		c, p := s.toolUser(also...)
		return &user{Peer: p, caller: c}
	}
	return &user{Peer: s.operator(also...)}
}

// using makes a scenario of a story about a user.
func using(story func(*user)) func(*Session) { return func(s *Session) { story(s.user()) } }

// settled is using with a directory in the workspace, which commands make
// and remove. also are operations beside the one the scenario needs.
func settled(story func(*user), also ...contracts.UtilityOperation) func(*Session) {
	return func(s *Session) {
		u := s.user(append(also, contracts.OperationCommandExec)...)
		u.settle()
		defer u.leave()
		story(u)
	}
}

// using and settled return a scenario with these needs, about a user.

func (n Needs) using(name, rules, title string, story func(*user)) Scenario {
	return n.scenario(name, rules, title, using(story))
}

func (n Needs) settled(name, rules, title string, story func(*user)) Scenario {
	return n.scenario(name, rules, title, settled(story))
}

// user is using for stories of several clients. also are operations beside the one needed.
func (n Needs) user(name, rules, title string, story func(*Session, *user), also ...contracts.UtilityOperation) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.user(also...)) })
}

func (u *user) settle() {
	u.rel = "conformance-" + uuid.NewString()[:8]
	u.home = strings.TrimSuffix(u.shell("mkdir "+u.rel+" && cd "+u.rel+" && pwd -P"), "\n")
	u.root = strings.TrimSuffix(u.home, "/"+u.rel)
	u.s.failIf(u.root == u.home, "5.0", "expected commands to run in the workspace, got a directory %q", u.home)
}

// leave removes the directory, also after a failure if the connection and the scenario's
// time still allow a command. Commands that a failed scenario left cannot create files
// while rm runs, because the directory is renamed first.
func (u *user) leave() {
	if u.s.judged() {
		u.s.trace.add(u.s.now(), u.name, ">", []byte("(the suite removes the scenario's directory)"))
	}
	u.shell("mv " + u.rel + " " + u.rel + ".old && rm -rf " + u.rel + ".old")
}

func (u *user) id(kind string) string {
	u.counter++
	return kind + "-" + string(rune('a'+u.counter/26%26)) + string(rune('a'+u.counter%26))
}

// owner is what messages call the user's connection.
func (u *user) owner() string {
	switch {
	case u.caller != nil:
		return u.caller.connection
	case u.s.socket():
		return u.connection
	}
	return "local"
}

// do sends a command that must be accepted, unless the server turns out not to
// offer what was negotiated.
func (u *user) do(rule string, cmd contracts.Command) {
	if u.caller != nil {
		a := u.caller.post(cmd)
		u.s.refusesOperation(a.str("code"), a.str("error"))
		a.ok(rule)
		return
	}
	id := u.command(cmd)
	if u.s.socket() {
		f := u.await(rule, u.pos, u.answer(id))
		u.s.refusesOperation(f.str("code"), f.str("error"))
	}
	u.accepted(rule, id)
}

// refusesOperation skips a scenario whose server refuses an operation that was
// negotiated, for want of it.
func (s *Session) refusesOperation(code, text string) {
	for _, op := range s.operations {
		if code == string(contracts.CodeUnsupportedCapability) && strings.Contains(text, string(op)) || strings.HasSuffix(text, " requires "+string(op)+" capability") {
			s.skipOperation(op)
		}
	}
}

// try sends a command and does not ask what becomes of it.
func (u *user) try(cmd contracts.Command) {
	if u.caller != nil {
		u.caller.post(cmd)
		return
	}
	u.command(cmd)
}

func (u *user) denied(cmd contracts.Command, r refusal) {
	r.kind = contracts.ErrorTool
	if _, reads := cmd.(*contracts.UtilityFileRead); reads {
		r.idRule = "R97"
	}
	if u.caller != nil {
		u.caller.post(cmd).denied(r)
		return
	}
	u.Peer.refused(u.command(cmd), r)
}

func (a *Answer) denied(r refusal) {
	words, code := r.rule, r.rule
	if a.s.published() {
		words, code = "5.1:words", "5.10:code"
	}
	what := r.describe("error")
	a.s.failIf(a.Status < http.StatusBadRequest, r.rule, "%s: expected a refusal with %s %s, got %s", a.what(), r.code, what, a.said())
	a.s.adviseIf(!r.fits(a.str("error")), words, "%s: expected a refusal with %s, got %s", a.what(), what, a.said())
	a.s.adviseIf(r.code != "" && a.str("code") != string(r.code), code, "%s: expected the code %s, got %s", a.what(), r.code, a.said())
}

// state is the session's state, where there are snapshots; else the scenario is
// skipped.
func (u *user) state() *Frame {
	switch {
	case u.caller != nil:
		return u.s.state()
	case u.s.socket():
		return u.s.viewer("vera").last(control("snapshot"))
	}
	u.s.skip("there are no snapshots on stdio")
	return nil
}

// toolError wants what clients are told of a utility that went wrong.
var toolError = message("error").with("error_type", string(contracts.ErrorTool))

// until tries until it succeeds, and fails with what came last once the scenario's
// patience is at its end.
func (s *Session) until(rule, expected string, try func() (ok bool, got string)) {
	for deadline := time.Now().Add(s.config.Patience); ; s.pause(rule, 50*time.Millisecond) {
		ok, got := try()
		if ok {
			return
		}
		s.failIf(time.Now().After(deadline), rule, "expected %s within %s, got %s", expected, s.config.Patience, got)
	}
}

// must fails the scenario for an error of this machine.
func (s *Session) must(rule string, err error) { s.failIf(err != nil, rule, "%v", err) }

func (f *Frame) matches(want fields) bool {
	for key, value := range want {
		if !same(f.at(key), value) {
			return false
		}
	}
	return true
}

// A job is a command of a user, from its start on.
type job struct {
	u       *user
	id      string
	from    int // its messages are in the log from here on
	started *Frame
	exited  *Frame // once exits has seen it
}

func (u *user) start(rule string, cmd *contracts.UtilityCommandStart) *job {
	if cmd.CommandID == "" {
		cmd.CommandID = u.id("cmd")
	}
	j := &job{u: u, id: cmd.CommandID, from: len(u.log)}
	u.do(rule, cmd)
	j.started = j.await(rule, message("utility_command_started"))
	return j
}

func (u *user) sh(rule, command string) *job {
	return u.start(rule, &contracts.UtilityCommandStart{Command: command})
}

// shell runs a shell command to its end and returns what it printed.
func (u *user) shell(command string) string {
	j := u.sh("R84", command)
	j.await("R85", message("utility_command_exited").with("success", true))
	return j.output("stdout")
}

// in is shell in the user's directory.
func (u *user) in(command string) string { return u.shell("cd " + u.rel + " && " + command) }

func (j *job) await(rule string, w want) *Frame {
	return j.u.await(rule, j.from, w.with("command_id", j.id))
}

// exits waits for the last message, which must be as wanted.
func (j *job) exits(rule string, want fields) *job {
	j.exited = j.await(rule, message("utility_command_exited"))
	j.u.s.shows(rule, j.exited, want)
	return j
}

// output is what the command has written by now: all of it once it has exited.
func (j *job) output(stream string) string {
	var text strings.Builder
	for _, f := range j.u.log[j.from:] {
		if f.Type == "utility_command_output" && f.str("command_id") == j.id && f.str("stream") == stream {
			text.WriteString(f.str("content"))
		}
	}
	return text.String()
}

// says waits until the command has written a text, in pieces or not.
func (j *job) says(rule, text string) *job {
	var said strings.Builder
	j.u.await(rule, j.from, message("utility_command_output").with("command_id", j.id).where("saying "+text, func(f *Frame) bool {
		said.WriteString(f.str("content"))
		return strings.Contains(said.String(), text)
	}))
	return j
}

// terminate asks for the end of the command, or kills it.
func (j *job) terminate(rule string, force bool) *job {
	j.u.do(rule, &contracts.UtilityCommandTerminate{CommandID: j.id, Force: force})
	return j
}

// prints fails unless the command wrote a text to standard output, and nothing
// else.
func (j *job) prints(rule, text string) {
	j.await(rule, message("utility_command_exited"))
	j.u.s.equal(rule, "what "+j.id+" writes", j.output("stdout"), text)
}

func (j *job) end() { j.terminate("R86", true).await("R86", message("utility_command_exited")) }

func about(id string) want {
	return want{"a message about " + id, func(f *Frame) bool { return f.Kind == "message" && f.str("command_id") == id }}
}
