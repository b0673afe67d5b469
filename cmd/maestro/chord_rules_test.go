//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
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

var chordRuleTests = []struct {
	name  string
	pause time.Duration
	play  func(t *testing.T, w *chordWorld)
}{
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
	{"C28 answers to a multiple question", 0, func(t *testing.T, w *chordWorld) {
		w.says(`call ask_user {"questions":[{"header":"Fruit","question":"Which fruit?","options":[{"label":"Apple","description":"red"},{"label":"Pear","description":""},{"label":"Plum","description":""}],"multiSelect":true},{"header":"Size","question":"Which size?","options":[{"label":"S","description":""},{"label":"L","description":""}]}]}`)
		l, _ := w.until("question_request")
		if l.text("question") != "Which fruit?" || l.text("options") != "[Apple Pear Plum]" || l.text("option_details") != "[red  ]" || l.text("multiple") != "true" || l.text("default_answer") != "Apple" {
			t.Errorf("got %s", l.raw)
		}
		if s, _ := w.status(); s.Payload["pending_question"] == nil {
			t.Errorf("got %s, want the question", s.raw)
		}
		w.do("question", "request_id", l.text("request_id"), "answers", []string{"Plum", "Apple"})
		second, _ := w.until("question_request")
		if second.text("question") != "Which size?" || second.text("request_id") == l.text("request_id") {
			t.Errorf("got %s", second.raw)
		}
		w.do("question", "request_id", second.text("request_id"), "answers", []string{"L"})
		w.idle("completed")
		if body := lastBody(t, w.model); !strings.Contains(body, `Fruit: Plum, Apple\nSize: L`) {
			t.Errorf("the model was told something else: %s", body)
		}
	}},
	{"C29 a cancelled question lets the turn go on", 0, func(t *testing.T, w *chordWorld) {
		w.says(askSize)
		l, _ := w.until("question_request")
		w.do("question", "request_id", l.text("request_id"), "cancelled", true)
		if m := texts(w.idle("completed")); len(m) != 1 {
			t.Errorf("got %q, want one more answer", m)
		}
	}},
	{"C30 a message denies a pending confirm", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("touch ran"))
		w.confirms()
		w.says("say The new text")
		if m := texts(w.idle("completed")); !slices.Contains(m, "The new text") {
			t.Errorf("got %q, want the answer to the new text", m)
		}
		if exists(filepath.Join(w.cmd.Dir, "ran")) {
			t.Error("the tool ran")
		}
		w.quiet()
	}},
	{"C31 a message cancels a pending question", 0, func(t *testing.T, w *chordWorld) {
		w.says(askSize)
		w.until("question_request")
		w.says("say The new text")
		if m := texts(w.idle("completed")); !slices.Contains(m, "The new text") {
			t.Errorf("got %q, want the answer to the new text", m)
		}
	}},
	{"C32 rejected local commands dismiss nothing", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("echo one"))
		id := w.confirms()
		for _, text := range []string{"/export x", "/resume", "/mcp", "/compact", "/yolo", ""} {
			w.says(text)
			w.until("error")
		}
		if s, _ := w.status(); s.Payload["pending_confirm"] == nil {
			t.Errorf("got %s, want it pending", s.raw)
		}
		w.do("confirm", "request_id", id, "action", "allow")
		w.idle("completed")
	}},
	{"C33 cancel while streaming, C36 the next turn works", slowly, func(t *testing.T, w *chordWorld) {
		w.says("say " + strings.Repeat("long ", 500))
		for l := w.next(); l.Payload["type"] != "streaming"; l = w.next() {
		}
		w.do("cancel")
		if got := w.idle("cancelled"); len(find(got, "assistant_message")) > 0 || len(find(got, "error")) > 0 {
			t.Errorf("got %q, want only idle", chordKinds(got))
		}
		if s, before := w.status(); len(before) > 0 || s.text("last_outcome") != "cancelled" || s.text("busy") != "false" {
			t.Errorf("got %s after %q", s.raw, chordKinds(before))
		}
		w.says("say b")
		if m := texts(w.idle("completed")); !slices.Equal(m, []string{"b"}) {
			t.Errorf("got %q", m)
		}
	}},
	{"C34 cancel clears a pending confirm", 0, func(t *testing.T, w *chordWorld) {
		w.says(runs("touch ran"))
		id := w.confirms()
		w.do("cancel")
		w.idle("cancelled")
		if s, _ := w.status(); s.Payload["pending_confirm"] != nil {
			t.Errorf("got %s, want nothing pending", s.raw)
		}
		w.do("confirm", "request_id", id, "action", "allow")
		w.fails("no_pending_request", "")
		w.quiet()
		if exists(filepath.Join(w.cmd.Dir, "ran")) {
			t.Error("the tool ran")
		}
	}},
	{"C35 cancel while idle does nothing", 0, func(t *testing.T, w *chordWorld) {
		w.do("cancel")
		w.quiet()
		w.says("say a")
		w.idle("completed")
		w.do("cancel")
		w.quiet()
	}},
	{"cancel directly after send", slowly, func(t *testing.T, w *chordWorld) {
		w.says("say " + strings.Repeat("long ", 500))
		w.says("say never")
		w.do("cancel")
		if got := w.idle("cancelled"); len(texts(got)) > 0 {
			t.Errorf("got %q", texts(got))
		}
		w.quiet()
	}},
	{"C37 messages while busy", slowly, func(t *testing.T, w *chordWorld) {
		w.says("say one one one one")
		w.says("say two")
		w.says("say three")
		if m := texts(w.idle("completed")); !slices.Equal(m, []string{"one one one one", "two", "three"}) {
			t.Errorf("got %q", m)
		}
		w.quiet()
	}},
	{"C38 runtime errors", 0, func(t *testing.T, w *chordWorld) {
		w.says("fault unauthorized 0\nsay a")
		l, _ := w.until("error")
		if _, runtime := l.Payload["agent_id"]; !runtime || l.text("message") == "" {
			t.Errorf("got %s, want an error of the runtime", l.raw)
		}
		w.idle("error")
		if s, _ := w.status(); s.text("last_error") != "" || s.text("last_outcome") != "error" {
			t.Errorf("got %s", s.raw)
		}
		w.says("say b")
		w.idle("completed")
		w.do("subscribe", "events", []string{"idle"})
		w.until("subscribe_response")
		w.says("fault unauthorized 0\nsay a")
		if got := w.idle("error"); len(got) > 0 {
			t.Errorf("got %q, want errors of the runtime filtered", chordKinds(got))
		}
	}},
	{"C39 models", 0, func(t *testing.T, w *chordWorld) {
		for _, tt := range []struct {
			action, pool string
			ok           bool
			message      string
		}{
			{"", "", true, ""}, {"status", "", true, ""}, {"set_current_model_pool", "", false, "requires pool"},
			{"set_current_model_pool", "nope", false, "unknown model pool: nope"}, {"bogus", "", false, "unsupported models action: bogus"},
		} {
			w.do("models", "action", tt.action, "pool", tt.pool)
			l := w.next()
			status, _ := l.Payload["status"].(string)
			if l.Payload["ok"] != tt.ok || tt.ok != strings.Contains(status, "openai-chat/some") || !strings.Contains(l.raw, tt.message) {
				t.Errorf("%+v: got %s", tt, l.raw)
			}
		}
		w.do("models", "action", "set_current_model_pool", "pool", "default")
		w.until("models_response")
		if l := w.next(); l.Type != "idle" || l.text("suppress_user_notification") != "true" || l.text("last_outcome") != "" {
			t.Errorf("got %s", l.raw)
		}
	}},
	{"C40 /models, and other local commands", 0, func(t *testing.T, w *chordWorld) {
		var answers []string
		for _, text := range []string{"/models", "/models status", "/help", "/stats", "/rules"} {
			w.says(text)
			answers = append(answers, w.next().raw)
		}
		if answers[0] != answers[1] || !strings.Contains(answers[0], "openai-chat/some") || !strings.Contains(answers[2], "/take") || !strings.Contains(answers[3], "0 turns") {
			t.Errorf("got %q", answers)
		}
		w.quiet()
		if n := len(w.model.Requests()); n > 0 {
			t.Errorf("got %d model calls, want none", n)
		}
	}},
	{"C41 commands of a screen", 0, func(t *testing.T, w *chordWorld) {
		for _, text := range []string{"/export x", "/export", "/resume", " /mcp "} {
			w.says(text)
			w.fails("", strings.Fields(text)[0]+" is only available in local TUI mode")
		}
		for _, text := range []string{"", "  \n"} {
			w.says(text)
			w.fails("empty_message", "empty")
		}
		if w.quiet(); len(w.model.Requests()) > 0 {
			t.Error("the model was called")
		}
	}},
	{"handoff and local_shell", 0, func(t *testing.T, w *chordWorld) {
		w.do("handoff", "request_id", "x", "action", "accept")
		w.fails("", "no matching pending handoff")
		w.do("local_shell", "command", "touch ran")
		if l := w.next(); l.Type != "local_shell_result" || l.text("failed") != "true" || l.text("error") != "local_shell is disabled" || l.text("command") != "touch ran" {
			t.Errorf("got %s", l.raw)
		}
	}},
	{"C44 todos", 0, func(t *testing.T, w *chordWorld) {
		w.says(`call todo_write {"todos":[{"id":"a","content":"Look","status":"in_progress","active_form":"looking"},{"content":"Act","status":"pending"}]}`)
		l, _ := w.until("todos")
		if got := l.text("todos"); got != "[map[active_form:looking content:Look id:a status:in_progress] map[content:Act id:2 status:pending]]" {
			t.Errorf("got %s", l.raw)
		}
		w.idle("completed")
	}},
	{"C46 long texts are cut with a mark", 0, func(t *testing.T, w *chordWorld) {
		script := scripted(t, `{"prompts":[{"steps":[{"say":"`+strings.Repeat(`\u0001x`, 200_000)+`"},{"say":"`+strings.Repeat(`ab`, 500_000)+`"}]}]}`)
		p := &chordWorld{chordProcess(t, "--agent", script), nil, nil}
		p.says("go")
		m := texts(p.idle("completed"))
		if len(m) != 1 || !strings.HasSuffix(m[0], "…") || len(m[0]) < 100_000 {
			t.Errorf("got %d messages of %d bytes, want one with a mark", len(m), len(strings.Join(m, "")))
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
	for _, tt := range chordRuleTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play(t, newChordWorld(t, tt.pause))
		})
	}
}

// Commands that come before the session is ready wait for it.
func TestChordC1ReadyIsFirst(t *testing.T) {
	t.Parallel()
	p := chordProcess(t, "--agent", scripted(t, recordedScript))
	for i := range 50 {
		p.send(fmt.Sprintf(`{"type":"x%d"}`, i))
	}
	if l := p.next(); l.Type != "ready" || l.text("session_id") == "" {
		t.Fatalf("got %s, want ready", l.raw)
	}
	for i := range 50 {
		p.fails("", fmt.Sprintf("unknown command type: x%d", i))
	}
}

// The end of the input, or a signal, ends the process and all that it started.
func TestChordEndsWithItsInput(t *testing.T) {
	for _, how := range []string{"C42 idle", "C42 running", "C42 signal"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newChordWorld(t, 0)
			pids := filepath.Join(w.cmd.Dir, "pid")
			if how != "C42 idle" {
				w.says(runs("echo $$ > pid.new; mv pid.new pid; sleep 600 & sleep 600"))
				w.do("confirm", "request_id", w.confirms(), "action", "allow")
				eventually(t, "the tool to run", func() bool { return exists(pids) })
			}
			if how == "C42 signal" {
				if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			} else if err := w.in.Close(); err != nil {
				t.Fatal(err)
			}
			w.ends(0)
			if how == "C42 idle" {
				return
			}
			pid, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the group of the tool to end", func() bool { return !groupLives(string(pid)) })
		})
	}
}

// groupLives reports whether a process group has processes.
func groupLives(leader string) bool {
	pid, err := strconv.Atoi(strings.TrimSpace(leader))
	return err != nil || syscall.Kill(-pid, 0) == nil
}

// A start that fails says so on standard error only.
func TestChordStartFails(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"C43 agent": {"--agent", "script:/missing.json"}, "C43 workspace": {"-d", "/missing"}, "C45 unknown session": {"--resume", "sess_unknown"},
		"C45 bad id": {"-r", "../x"}, "C43 both": {"-c", "-r", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"headless", "--protocol", "chord"}, args...)...)
			var log strings.Builder
			cmd.Stderr = &log
			out, err := cmd.Output()
			if exitCode(t, err) == 0 || len(out) > 0 || log.Len() == 0 {
				t.Errorf("got %v, %q and %q, want a failure with a reason", err, out, &log)
			}
		})
	}
}

// A session is resumed by its id, or because it was the last one.
func TestChordC45Resumes(t *testing.T) {
	t.Parallel()
	w := newChordWorld(t, 0)
	w.says("say a")
	w.idle("completed")
	w.says("/new")
	l, _ := w.until("info")
	s, _ := w.status()
	second := s.text("session_id")
	if !strings.HasSuffix(l.text("message"), second) {
		t.Errorf("got %s and %s, want the id of the new session", l.raw, s.raw)
	}
	w.says("say b")
	w.idle("completed")

	again := func(args ...string) *chordPeer {
		cmd := program(t, append(append([]string{"headless", "--protocol", "chord"}, w.flags...), args...)...)
		cmd.Dir, cmd.Env = w.cmd.Dir, w.cmd.Env
		return chordStart(t, cmd)
	}
	locked := again("--resume", second)
	if err := locked.cmd.Wait(); exitCode(t, err) == 0 || !strings.Contains(locked.log.String(), "acquire session lock") {
		t.Errorf("got %v and %s, want that the session is locked", err, locked.log)
	}
	_ = w.in.Close()
	w.ends(0)
	for _, args := range [][]string{{"-c"}, {"--resume", second}} {
		p := again(args...)
		if l := p.next(); l.text("session_id") != second {
			t.Errorf("%q: got %s, want %s", args, l.raw, second)
		}
		_ = p.in.Close()
		p.ends(0)
	}
	p := &chordWorld{again("-r", second), w.model, nil}
	p.says("say c")
	p.idle("completed")
	if body := lastBody(t, w.model); !strings.Contains(body, "say b") {
		t.Errorf("the model does not know what was said before: %s", body)
	}
}

// TestChordBesideOthers has a Chord client and a native controller on one session.
func TestChordBesideOthers(t *testing.T) {
	t.Parallel()
	_, flags := chordModel(t, 0)
	path := filepath.Join(shortDir(t), "s")
	r := serving(t, append(flags, "--listen-chord", "unix:"+path)...)
	native := r.attend("native", contracts.RoleController, []contracts.RequestType{contracts.RequestApproval})
	connected(t, native.Client)
	w := &chordWorld{chordSocket(t, path), nil, nil}
	w.until("ready")

	native.prompts(runs("echo one"))
	id := w.confirms()
	for _, cmd := range []string{"send", "confirm", "cancel"} {
		w.do(cmd, "content", "say x", "request_id", id, "action", "allow")
		if l, _ := w.until("error"); l.text("code") != "not_in_control" || !strings.Contains(l.raw, "/take") {
			t.Errorf("%s: got %s, want not_in_control", cmd, l.raw)
		}
	}
	native.asked()
	if _, err := native.Approve(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	if l, _ := w.until("info"); !strings.Contains(l.raw, "resolved by user") {
		t.Errorf("got %s, want that another client has answered", l.raw)
	}
	w.idle("completed")
	w.says("/release")
	w.fails("not_in_control", "")
	w.says("/take")
	w.until("info")
	w.says("/new")
	w.fails("unsupported", "/new")
	w.says("say mine")
	if m := texts(w.idle("completed")); !slices.Equal(m, []string{"mine"}) {
		t.Errorf("got %q", m)
	}
	native.takes()
	if l, _ := w.until("info"); !strings.Contains(l.raw, "taken control") {
		t.Errorf("got %s, want that control was taken", l.raw)
	}
	native.prompts(runs("echo two"))
	late := &chordWorld{chordSocket(t, path), nil, nil}
	late.until("ready")
	w.confirms()
	late.confirms() // a client that comes later is asked too
	native.takes()
	w.says("/take")
	w.until("info")
	w.says("/release")
	w.until("info")
	w.says("say free") // a free lease is taken by a command
	w.idle("completed")
}
