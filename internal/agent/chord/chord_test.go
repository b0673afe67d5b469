package chord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/testkit/fakeprogram"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	fakeprogram.Play()
	goleak.VerifyTestMain(m)
}

// say returns the line of an envelope; members are those of its payload.
func say(typ, members string) string { return `{"type":"` + typ + `","payload":{` + members + `}}` }

var (
	ready      = say("ready", `"session_id":"s1","worktree":null`)
	connecting = say("activity", `"agent_id":"main","type":"connecting","detail":""`)
	streaming  = say("activity", `"agent_id":"main","type":"streaming","detail":""`)
	executing  = say("activity", `"agent_id":"main","type":"executing","detail":"1 tools"`)
	hi         = say("assistant_message", `"agent_id":"","text":"Hi","tool_calls":0,"agent_type":""`)
	toolOnly   = say("assistant_message", `"agent_id":"","text":"","tool_calls":1`)
	idle       = say("idle", `"last_outcome":"completed","suppress_user_notification":false`)
	resting    = say("status_response", `"session_id":"s1","busy":false,"phase":"","pending_confirm":null,"last_outcome":"completed"`)
)

// served returns a script that is ready and answers one prompt with the lines.
func served(lines ...string) []string { return append([]string{ready, "<send"}, lines...) }

// A stand is an agent with its host and its program.
type stand struct {
	*program.Agent
	host    *hosttest.Host
	program fakeprogram.Program
}

// newStand returns an agent whose state is in dir.
func newStand(t *testing.T, dir string, w waits, scripts ...[]string) *stand {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	p := fakeprogram.New(t, scripts...)
	o := program.Options{Argv: p.Argv, Dir: "/", StateDir: dir, Log: slog.New(slog.DiscardHandler)}
	return &stand{program.New(o, dialectOf("/bin/chord", w)), hosttest.New(t), p}
}

// patient are waits that no test reaches.
var patient = waits{interrupt: hosttest.Patience, poll: time.Hour, local: time.Hour, silence: time.Hour}

// start starts an agent whose programs follow the scripts.
func start(t *testing.T, w waits, scripts ...[]string) *stand {
	t.Helper()
	s := newStand(t, t.TempDir(), w, scripts...)
	s.start(t)
	return s
}

func (s *stand) start(t *testing.T) {
	t.Helper()
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hosttest.Must(t, s.Close(context.Background())) })
}

func (s *stand) run(t *testing.T, prompt string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
	defer cancel()
	return s.Run(ctx, contracts.Work{Content: prompt})
}

func wantError(t *testing.T, err error, typ contracts.ErrorType, text string) {
	t.Helper()
	e, ok := errors.AsType[*contracts.Error](err)
	if !ok || e.Type != typ || !strings.Contains(e.Message, text) {
		t.Errorf("got error %#v, want type %s with %q", err, typ, text)
	}
}

func (s *stand) wantTypes(t *testing.T, want ...string) {
	t.Helper()
	if got := s.host.Types(); !slices.Equal(got, want) {
		t.Errorf("published\n got %q\nwant %q", got, want)
	}
}

// wantSent checks the members of the only message of a type that the program got.
func (s *stand) wantSent(t *testing.T, typ string, members ...string) {
	t.Helper()
	sent := s.program.Sent(typ)
	if len(sent) != 1 {
		t.Errorf("got %q, want one %s", sent, typ)
		return
	}
	for _, member := range members {
		if !strings.Contains(sent[0], member) {
			t.Errorf("got %s, want %s in it", sent[0], member)
		}
	}
}

func (s *stand) statuses() string {
	var all []string
	for _, st := range hosttest.As[*contracts.Status](s.host) {
		all = append(all, st.Message)
	}
	return strings.Join(all, "\n")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := time.After(hosttest.Patience); !holds(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			t.Fatalf("got nothing, want %s", what)
		}
	}
}

func TestTheProgramIsSubscribed(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, append([]string{"<subscribe"}, served(hi, idle)...))
	s.Configure(&contracts.Init{SystemPrompt: new("Be brief.")})
	info, err := s.Start(t.Context(), s.host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { hosttest.Must(t, s.Close(context.Background())) }()
	if info.Model != "chord" || !slices.Equal(info.Requests, []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput}) {
		t.Errorf("got %+v, want the program's name, approvals and questions", info)
	}
	hosttest.Must(t, s.run(t, "go"))
	s.wantSent(t, "subscribe", "confirm_request", "question_request", "idle", "assistant_message", "error")
	s.wantSent(t, "send", `"content":"go"`)
	if !strings.Contains(s.statuses(), "system prompt") {
		t.Errorf("got %q, want that the system prompt is not set", s.statuses())
	}
}

func TestRunsAreTranslated(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lines  []string
		types  []string
		said   string
		status string
	}{
		{"C17 a text turn", []string{connecting, connecting, streaming, hi, idle}, []string{"status", "status", "response_start", "response_chunk", "response_end"}, "Hi", "The model answers"},
		{"C18 a round with tools only", []string{connecting, toolOnly, executing, connecting, hi, idle}, []string{"status", "status", "status", "response_start", "response_chunk", "response_end"}, "Hi", "Running tools: 1 tools"},
		{"C44 tasks", []string{say("todos", `"todos":[{"id":"1","content":"a","status":"completed"},{"id":"2","content":"b","status":"in_progress"},{"id":"3","content":"c","status":"pending"}]`), hi, idle},
			[]string{"status", "response_start", "response_chunk", "response_end"}, "Hi", "Plan, 1 of 3 done:\n[x] a\n[>] b\n[ ] c"},
		{"texts for people", []string{say("info", `"agent_id":"","message":"note"`), say("toast", `"agent_id":"a1","message":"bread","level":"warn"`), say("agent_done", `"agent_id":"a1","summary":"found it"`), hi, idle},
			[]string{"status", "status", "status", "response_start", "response_chunk", "response_end"}, "Hi", "note\nAgent a1: bread\nAgent a1: done. found it"},
		{"other agents", []string{say("assistant_message", `"agent_id":"a1","text":"aside"`), say("activity", `"agent_id":"a1","type":"streaming"`), hi, idle},
			[]string{"status", "response_start", "response_chunk", "response_end"}, "Hi", "Agent a1: aside"},
		{"a report", []string{say("done_completion", `"agent_id":"","report":"All done","status":"error"`), idle}, []string{"response_start", "response_chunk", "response_end"}, "All done", ""},
		{"what is unknown or odd", []string{say("news", ""), `{"type":"idle","payload":null}`, `{"type":"activity","payload":[1]}`, say("activity", `"type":"dreaming"`), say("assistant_rollback", ""), say("assistant_message", `"text":7`), hi, idle},
			[]string{"response_start", "response_chunk", "response_end"}, "Hi", ""},
		{"a switch of models is no end", []string{connecting, say("idle", `"last_outcome":"","suppress_user_notification":true`), hi, idle}, []string{"status", "response_start", "response_chunk", "response_end"}, "Hi", "Waiting for the model"},
		{"nothing after idle", []string{hi, idle, hi, connecting, idle}, []string{"response_start", "response_chunk", "response_end"}, "Hi", ""},
		{"an error that the program survives", []string{connecting, say("error", `"agent_id":"","message":"401"`), say("activity", `"type":"cooling"`), hi, idle},
			[]string{"status", "error", "status", "response_start", "response_chunk", "response_end"}, "Hi", "Waiting after an error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, patient, served(tt.lines...))
			hosttest.Must(t, s.run(t, "go"))
			s.wantTypes(t, tt.types...)
			if got := s.host.Said(); got != tt.said {
				t.Errorf("got %q said, want %q", got, tt.said)
			}
			if got := s.statuses(); !strings.Contains(got, tt.status) {
				t.Errorf("got statuses %q, want %q", got, tt.status)
			}
		})
	}
}

func TestFailedRunsSayWhy(t *testing.T) {
	broken := say("idle", `"last_outcome":"error"`)
	for _, tt := range []struct {
		name  string
		lines []string
		typ   contracts.ErrorType
		text  string
	}{
		{"C38 an error", []string{connecting, say("error", `"agent_id":"main","message":"rate limit"`), broken}, contracts.ErrorTransient, "rate limit"},
		{"C38 an error shown before", []string{say("error", `"agent_id":"","message":"rate limit"`), connecting, broken}, contracts.ErrorTransient, "ended the run with an error"},
		{"the program cancels itself", []string{connecting, say("idle", `"last_outcome":"cancelled"`)}, contracts.ErrorCancelled, "itself"},
		{"C41 a refused prompt", []string{say("error", `"message":"/export is only available in local TUI mode"`)}, contracts.ErrorTool, "/export"},
		{"an error without a message", []string{say("error", "")}, contracts.ErrorTool, "without a message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, patient, served(tt.lines...))
			wantError(t, s.run(t, "go"), tt.typ, tt.text)
		})
	}
}

func TestLinesMayHaveOneMebibyte(t *testing.T) {
	const size = 1 << 20
	line := say("assistant_message", `"agent_id":"","text":"$FILL"`)
	s := start(t, patient, served(fmt.Sprintf("!fill %d %s", size, line), idle))
	hosttest.Must(t, s.run(t, "go"))
	if got, want := len(s.host.Said()), size-len(line)+len("$FILL"); got != want {
		t.Errorf("got %d bytes said, want %d", got, want)
	}
}

func TestPromptsThatAreTooLongAreNotSent(t *testing.T) {
	s := start(t, patient, served(hi, idle))
	wantError(t, s.run(t, strings.Repeat("x", 1<<20)), contracts.ErrorTool, "at most 1048576 bytes")
	hosttest.Must(t, s.run(t, "go"))
	s.wantSent(t, "send", `"content":"go"`)
}

func TestCommandsOfTheProgramEndWithoutIdle(t *testing.T) {
	w := patient
	w.local = 100 * time.Millisecond
	s := start(t, w, served(say("info", `"agent_id":"","message":"pool: default"`), "<status", strings.Replace(resting, "s1", "s2", 1), "!exit 0"), served(hi, idle))
	hosttest.Must(t, s.run(t, "/new"))
	s.wantTypes(t, "status")
	s.host.AwaitType("error") // the exit
	t.Run("the session of the status is resumed", func(t *testing.T) {
		hosttest.Must(t, s.run(t, "go"))
		if got := s.program.Starts(); len(got) != 2 || got[1] != "program --resume s2" {
			t.Errorf("got starts %q, want a second one with s2", got)
		}
	})
}

func TestARunEndsWhenTheProgramRests(t *testing.T) {
	w := patient
	w.poll = 100 * time.Millisecond
	busy := strings.Replace(resting, `"busy":false`, `"busy":true`, 1)
	s := start(t, w, served("<status", busy, "<status", resting, "<status", busy, "<status", resting, "<status", resting))
	hosttest.Must(t, s.run(t, "go"))
	if got := len(s.program.Sent("status")); got != 5 {
		t.Errorf("got %d polls, want 5", got)
	}
}

func TestAnIdleOfEarlierWorkIsNoEnd(t *testing.T) {
	s := start(t, patient, served(idle, "<status", resting, connecting, hi, idle))
	hosttest.Must(t, s.run(t, "go"))
	if got := s.host.Said(); got != "Hi" {
		t.Errorf("got %q said, want the answer", got)
	}
}

// recorded returns a script that plays what a Chord server said in a recorded connection,
// and waits for an answer to each of its questions. Answers to other commands are left
// out.
func recorded(t *testing.T, name string) (script []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../cmd/maestro/testdata/chord", name))
	hosttest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		var l struct{ Dir, Raw string }
		hosttest.Must(t, json.Unmarshal([]byte(line), &l))
		var m struct{ Type string }
		_ = json.Unmarshal([]byte(l.Raw), &m) // otherwise it is left out
		switch {
		case l.Dir == "c2s" && m.Type == "send":
			script = append(script, "<send")
		case l.Dir == "s2c" && m.Type == "confirm_request":
			script = append(script, l.Raw, "<confirm")
		case l.Dir == "s2c" && m.Type != "error" && m.Type != "status_response":
			script = append(script, l.Raw)
		}
	}
	return script
}

func TestRecordedConnectionsAreUnderstood(t *testing.T) {
	for name, want := range map[string]struct {
		said    string
		answers []string
	}{
		"basic-lifecycle.jsonl": {"Hello from the stub.", nil},
		"confirm-rules.jsonl":   {"Running a command.All done.", []string{`"action":"allow"`, `"action":"deny","request_id"`, `"action":"allow"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, recorded(t, name))
			s.host.Answer = func(q *contracts.ServerRequest) contracts.Outcome {
				if strings.Contains(string(q.Args), "echo two") {
					return contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Reason: "not now"}
				}
				return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
			}
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			if got := s.host.Said(); got != want.said {
				t.Errorf("got %q said, want %q", got, want.said)
			}
			sent := s.program.Sent("confirm")
			if !slices.EqualFunc(sent, want.answers, strings.Contains) {
				t.Errorf("got answers %q, want %q", sent, want.answers)
			}
		})
	}
}

// No message of a known type, with whatever in it, harms the run.
func TestOddMessagesAreHarmless(t *testing.T) {
	var lines []string
	for _, typ := range []string{"activity", "assistant_message", "done_completion", "confirm_request", "question_request", "handoff_request", "agent_started",
		"agent_notify", "agent_done", "assistant_rollback", "info", "toast", "todos", "local_shell_result", "error", "ready", "subscribe_response", "models_response"} {
		for _, v := range []string{"null", "7", `"x"`, "[{}]", `{"a":[]}`, "-1e300"} {
			var members []string
			for _, name := range []string{"agent_id", "text", "type", "detail", "report", "request_id", "tool_name", "args_json", "needs_approval", "timeout_ms", "question",
				"options", "option_details", "multiple", "plan_text", "agents", "summary", "message", "todos", "session_id", "tool_calls"} {
				members = append(members, `"`+name+`":`+v)
			}
			lines = append(lines, `{"type":"`+typ+`","payload":`+v+`}`, say(typ, strings.Join(members, ",")))
		}
	}
	s := start(t, patient, served(append(append([]string{connecting}, lines...), hi, idle)...))
	hosttest.Must(t, s.run(t, "go"))
	if got := s.host.Said(); !strings.HasSuffix(got, "Hi") {
		t.Errorf("got %q said, want the answer at the end", got)
	}
}
