//go:build unix

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var chordTurnRules = []chordRule{
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
