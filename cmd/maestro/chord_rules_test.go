//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// A chordWorld is a Chord client of a process with a model that plays its prompts.
type chordWorld struct {
	*chordPeer
	model *localmodel.Server
	flags []string
}

// slowly makes a model stream for seconds.
const slowly = 20 * time.Millisecond

func newChordWorld(t *testing.T, pause time.Duration, args ...string) *chordWorld {
	m, flags := chordModel(t, pause)
	flags = append(flags, args...)
	w := &chordWorld{chordProcess(t, flags...), m, flags}
	if l := w.next(); l.Type != "ready" || l.text("session_id") == "" {
		t.Fatalf("got %s, want ready (C1)", l.raw)
	}
	return w
}

// says sends a message.
func (w *chordWorld) says(content string) {
	w.t.Helper()
	w.do("send", "content", content)
}

// idle reads up to idle and checks the outcome. It returns what came before.
func (w *chordWorld) idle(outcome string) []chordLine {
	w.t.Helper()
	l, before := w.until("idle")
	if l.text("last_outcome") != outcome {
		w.t.Errorf("got %s, want the outcome %s", l.raw, outcome)
	}
	return before
}

// confirms reads up to a confirm request and returns its id.
func (w *chordWorld) confirms() string {
	w.t.Helper()
	l, _ := w.until("confirm_request")
	return l.text("request_id")
}

// texts returns the texts of the messages.
func texts(all []chordLine) (found []string) {
	for _, l := range find(all, "assistant_message") {
		found = append(found, l.text("text"))
	}
	return found
}

// runs returns a prompt that makes the model run command lines, one in each turn, and
// say the last result.
func runs(commands ...string) string {
	var turns []string
	for _, c := range commands {
		args, _ := json.Marshal(map[string]string{"command": c})
		turns = append(turns, "call bash "+string(args))
	}
	return strings.Join(turns, "\nthen\n")
}

// quiet checks that nothing more is on the way: only the answer to status comes.
func (w *chordWorld) quiet() {
	w.t.Helper()
	if _, before := w.status(); len(before) > 0 {
		w.t.Errorf("got %q, want nothing", chordKinds(before))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A chordRule is the test of one rule. Its model pauses between two events.
type chordRule struct {
	name  string
	pause time.Duration
	play  func(t *testing.T, w *chordWorld)
}

var chordCommandRules = []chordRule{
	{"C3 without subscribe all types are delivered", 0, func(t *testing.T, w *chordWorld) {
		w.says("say a")
		if got := chordKinds(w.idle("completed")); !slices.Contains(got, "activity") || !slices.Contains(got, "assistant_message") {
			t.Errorf("got %q", got)
		}
	}},
	{"C4 subscribe idle yields only idle", 0, func(t *testing.T, w *chordWorld) {
		w.do("subscribe", "events", []string{"idle"})
		w.until("subscribe_response")
		w.says("say a")
		if got := w.idle("completed"); len(got) > 0 {
			t.Errorf("got %q, want only idle", chordKinds(got))
		}
	}},
	{"C5 a later subscribe replaces", 0, func(t *testing.T, w *chordWorld) {
		w.do("subscribe", "events", []string{"idle", "activity"})
		w.do("subscribe", "events", []string{"idle", "assistant_message"})
		w.until("subscribe_response")
		w.until("subscribe_response")
		w.says("say a")
		if got := chordKinds(w.idle("completed")); !slices.Equal(got, []string{"assistant_message"}) {
			t.Errorf("got %q, want only the message", got)
		}
	}},
	{"C6 unknown names are echoed", 0, func(t *testing.T, w *chordWorld) {
		w.do("subscribe", "events", []string{"notification", "bogus"})
		l, before := w.until("subscribe_response")
		if len(before) > 0 || l.text("events") != "[notification bogus]" || l.text("effective") != "[]" {
			t.Errorf("got %s after %q", l.raw, chordKinds(before))
		}
		w.says("say a")
		for s, before := w.status(); s.text("busy") == "true" || s.text("last_outcome") == ""; s, before = w.status() {
			if len(before) > 0 {
				t.Errorf("got %q, want nothing", chordKinds(before))
			}
		}
	}},
	{"C7 an empty subscribe delivers only replies", 0, func(t *testing.T, w *chordWorld) {
		w.send(`{"type":"subscribe","events":[]}`)
		if l, _ := w.until("subscribe_response"); l.text("events") != "[]" {
			t.Errorf("got %s", l.raw)
		}
		w.send(`{"type":"subscribe"}`)
		if l, _ := w.until("subscribe_response"); l.Payload["events"] != nil {
			t.Errorf("got %s, want null", l.raw)
		}
		w.send(`{"type":"bogus"}`)
		w.fails("", "unknown command type: bogus")
		w.quiet()
	}},
	{"C8 subscribe with a non-array keeps the previous set", 0, func(t *testing.T, w *chordWorld) {
		w.do("subscribe", "events", []string{"idle"})
		w.until("subscribe_response")
		w.send(`{"type":"subscribe","events":"all"}`)
		w.fails("", "invalid JSON command")
		w.says("say a")
		if got := w.idle("completed"); len(got) > 0 {
			t.Errorf("got %q, want only idle", chordKinds(got))
		}
	}},
	{"C9 junk is refused", 0, func(t *testing.T, w *chordWorld) {
		for _, junk := range []string{"{not json", "[1,2]", "5", "null", `"status"`, "{\"type\":\"status\"} x", `{"type":5}`, `{"type":"send","content":7}`, "\xff\xfe"} {
			w.send(junk)
			w.fails("", "invalid JSON command")
		}
		w.quiet()
	}},
	{"C10 empty lines produce nothing", 0, func(t *testing.T, w *chordWorld) {
		w.send("", "\r", "   ", "\t")
		w.quiet()
		w.send("{\"type\":\"status\"}\r")
		w.until("status_response")
	}},
	{"C11 unknown and missing types", 0, func(t *testing.T, w *chordWorld) {
		w.send(`{"type":"bogus"}`, `{"content":"x"}`)
		w.fails("", "unknown command type: bogus")
		w.fails("", "unknown command type: ")
	}},
	{"C12 extra members are ignored", 0, func(t *testing.T, w *chordWorld) {
		w.send(`{"type":"status","extra":{"a":[1]},"worktree":true}`)
		if l := w.next(); l.Type != "status_response" {
			t.Errorf("got %s", l.raw)
		}
	}},
	{"C13 long lines", 0, func(t *testing.T, w *chordWorld) {
		w.do("send", "content", strings.Repeat("x", 1<<20))
		w.fails("stdin_line_too_long", "1048576")
		w.quiet()
		w.send(`{"type":"x` + strings.Repeat("y", 10<<20) + `"}`)
		w.fails("stdin_line_too_long", "1048576")
		w.quiet()
	}},
	{"C14 the initial status", 0, func(t *testing.T, w *chordWorld) {
		s, _ := w.status()
		for name, want := range map[string]any{"busy": false, "phase": "", "phase_detail": "", "pending_confirm": nil, "pending_question": nil, "pending_handoff": nil, "last_outcome": "", "last_error": ""} {
			if got, ok := s.Payload[name]; !ok || got != want {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	}},
	{"C15 status while streaming", slowly, func(t *testing.T, w *chordWorld) {
		w.says("say " + strings.Repeat("long ", 500))
		if s, _ := w.status(); s.text("busy") != "true" || s.text("phase") == "" {
			t.Errorf("got %s", s.raw)
		}
	}},
	{"C16 status while a confirm is pending, C21 the pending confirm", 0, func(t *testing.T, w *chordWorld) {
		w.do("subscribe", "events", []string{"confirm_request", "idle"})
		w.says(runs("echo one"))
		id := w.confirms()
		s, _ := w.status()
		pending, _ := s.Payload["pending_confirm"].(map[string]any)
		if pending["request_id"] != id || pending["tool_name"] != "bash" {
			t.Errorf("got %s, want the request %s", s.raw, id)
		}
		w.do("confirm", "request_id", id, "action", "allow")
		if s, _ := w.status(); s.Payload["pending_confirm"] != nil {
			t.Errorf("got %s, want nothing pending", s.raw)
		}
		w.idle("completed")
	}},
	{"C2 C17 C20 a text turn", 0, func(t *testing.T, w *chordWorld) {
		w.says("say Hello there")
		before := w.idle("completed")
		got := slices.Compact(chordKinds(before))
		m := find(before, "assistant_message")
		if !slices.Equal(got, []string{"activity", "assistant_message"}) || len(m) != 1 || m[0].text("text") != "Hello there" || m[0].text("tool_calls") != "0" {
			t.Errorf("got %q", before)
		}
		w.quiet()
	}},
	{"C18 one message for each round, C19 before the confirm request", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("echo one", "echo two"))
		for range 2 {
			l, before := w.until("confirm_request")
			m := find(before, "assistant_message")
			if len(m) != 1 || m[0].text("text") != "" || m[0].Payload["tool_calls"].(float64) < 1 {
				t.Errorf("got %q before the request, want one message", before)
			}
			w.do("confirm", "request_id", l.text("request_id"), "action", "allow")
		}
		if m := find(w.idle("completed"), "assistant_message"); len(m) != 1 || !strings.Contains(m[0].text("text"), "two") {
			t.Errorf("got %q, want the last message", m)
		}
	}},
	{"C22 allow runs and deny does not", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("touch ran", "touch denied"))
		w.do("confirm", "request_id", w.confirms(), "action", "allow_once")
		w.do("confirm", "request_id", w.confirms(), "action", "deny", "deny_reason", "not on a Monday")
		w.idle("completed")
		if !exists(filepath.Join(w.cmd.Dir, "ran")) || exists(filepath.Join(w.cmd.Dir, "denied")) {
			t.Error("got the wrong files, want only the allowed call to run")
		}
		if body := lastBody(t, w.model); !strings.Contains(body, "not on a Monday") {
			t.Errorf("the model was not told the reason: %s", body)
		}
	}},
	{"C23 an unknown id changes nothing", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("echo one"))
		id := w.confirms()
		w.do("confirm", "request_id", "other", "action", "allow")
		w.fails("no_pending_request", "pending")
		w.do("question", "request_id", id, "answers", []string{"x"})
		w.fails("no_pending_request", "pending")
		w.do("confirm", "request_id", id, "action", "maybe")
		w.fails("", "unsupported confirm action: maybe")
		w.do("confirm", "request_id", id, "action", "allow")
		w.idle("completed")
		w.do("confirm", "request_id", id, "action", "allow")
		w.fails("no_pending_request", "pending")
	}},
	{"C24 bad rules leave the request pending", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("echo one"))
		id := w.confirms()
		w.do("confirm", "request_id", id, "action", "allow", "rule_pattern", "x", "rule_scope", "galaxy")
		w.fails("", `invalid rule_scope "galaxy" (expected session|project|user_global)`)
		w.do("confirm", "request_id", id, "action", "allow", "rule_scope", "session")
		w.fails("", "confirm rule intent requires non-empty rule_pattern")
		if s, _ := w.status(); s.Payload["pending_confirm"] == nil {
			t.Errorf("got %s, want it pending", s.raw)
		}
		w.do("confirm", "request_id", id, "action", "allow")
		w.idle("completed")
	}},
	{"C25 a rule of the session, C26 writes no file", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("git --version", "git --version --build-options", "git --version; touch bad"))
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "rule_pattern", "bash:git *", "rule_scope", "session")
		l, _ := w.until("confirm_request") // the second call has run, and the third runs another program
		if got := l.text("needs_approval"); got != "[git --version; touch bad]" {
			t.Errorf("got a request for %s", got)
		}
		w.do("cancel")
		w.idle("cancelled")
		w.says("/rules")
		if l, _ := w.until("info"); !strings.Contains(l.raw, "git *") {
			t.Errorf("got %s, want the rule", l.raw)
		}
		w.says("/new")
		if l, _ := w.until("info"); !strings.Contains(l.raw, "new session") {
			t.Errorf("got %s", l.raw)
		}
		w.says(runs("git --version"))
		w.confirms()
		found := 0
		_ = filepath.WalkDir(stateOf(w), func(path string, _ os.DirEntry, _ error) error {
			if strings.Contains(path, chordRulesFile) {
				found++
			}
			return nil
		})
		if found > 0 {
			t.Error("got a file of rules, want none")
		}
	}},
	{"C26 rules of the project and of the user persist", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("echo project", "echo user 1"))
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "rule_pattern", "echo project", "rule_scope", "project")
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "rule_pattern", "echo user ?", "rule_scope", "User-Global")
		w.idle("completed")
		again := program(t, append([]string{"headless", "--protocol", "chord"}, w.flags...)...)
		again.Dir, again.Env = w.cmd.Dir, w.cmd.Env
		w2 := &chordWorld{chordStart(t, again), w.model, nil}
		w2.says(runs("echo project", "echo user 2", "echo other"))
		if l, _ := w2.until("confirm_request"); l.text("needs_approval") != "[echo other]" {
			t.Errorf("got %s, want only the last call to ask", l.raw)
		}
		w.says("/rules undo")
		if l, _ := w.until("info"); !strings.Contains(l.raw, "removed: bash allow") {
			t.Errorf("got %s, want that the rule of the user was removed", l.raw)
		}
		if text, err := os.ReadFile(filepath.Join(stateOf(w), "maestro", chordRulesFile)); err != nil || string(text) != "[]" {
			t.Errorf("got %s, %v in the file of the user, want no rule", text, err)
		}
	}},
	{"C27 changed arguments", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("touch one", "touch two", "touch three"))
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "final_args_json", ` { "command" : "touch one" } `)
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "final_args_json", `{"command":"touch other"}`)
		w.until("error")
		w.do("confirm", "request_id", w.confirms(), "action", "allow", "final_args_json", "not JSON")
		w.fails("final_args_unsupported", "not run")
		w.idle("completed")
		for name, want := range map[string]bool{"one": true, "two": false, "three": false, "other": false} {
			if exists(filepath.Join(w.cmd.Dir, name)) != want {
				t.Errorf("the file %s: got %v, want %v", name, !want, want)
			}
		}
	}},
}

// askSize makes the model ask a question.
const askSize = `call ask_user {"questions":[{"header":"Size","question":"Which size?","options":[{"label":"S","description":""},{"label":"L","description":""}]}]}`

// stateOf returns the folder of a process's state.
func stateOf(w *chordWorld) string {
	for _, v := range w.cmd.Env {
		if dir, ok := strings.CutPrefix(v, "XDG_STATE_HOME="); ok {
			return dir
		}
	}
	return ""
}

func TestChordRules(t *testing.T) {
	for _, tt := range slices.Concat(chordCommandRules, chordTurnRules) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play(t, newChordWorld(t, tt.pause))
		})
	}
}
