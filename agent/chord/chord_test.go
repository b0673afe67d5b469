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

	"github.com/seed-028515a8/maestro/agent/program"
	"github.com/seed-028515a8/maestro/contracts"
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

func confirm(id string) string {
	return say("confirm_request", `"request_id":"`+id+`","tool_name":"shell","args_json":"{\"command\":\"echo one\"}","needs_approval":["echo one"],"already_allowed":null,"timeout_ms":0`)
}

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

// patient are waits that no test reaches, except for an interrupt.
var patient = waits{interrupt: 300 * time.Millisecond, poll: time.Hour, local: time.Hour, silence: time.Hour}

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

func TestApprovalsAreAnswered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  contracts.Outcome
		mode    contracts.ApprovalMode
		members []string
		success bool
		status  string
	}{
		{"C22 allowed", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}, "", []string{`"request_id":"q1"`, `"action":"allow"`}, true, ""},
		{"C22 denied", contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Reason: "not now"}, "", []string{`"action":"deny"`, `"deny_reason":"not now"`}, false, ""},
		{"C25 remembered", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`}, "", []string{`"rule_pattern":"echo one","rule_scope":"session"`}, true, ""},
		{"C25 a rule", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session","rule":"echo *"}`}, "", []string{`"rule_pattern":"echo *","rule_scope":"session"`}, true, ""},
		{"a denial is not remembered", contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`}, "", []string{`"action":"deny"`}, false, "cannot remember"},
		{"a note that is not understood", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"option_id":"x"}`}, "", []string{`"action":"deny"`}, false, "counts as a denial"},
		{"by policy", contracts.Outcome{}, contracts.ApprovalAuto, []string{`"action":"allow"`}, true, ""},
		{"refused by policy", contracts.Outcome{}, contracts.ApprovalFail, []string{`"action":"deny"`}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(toolOnly, executing, confirm("q1"), "<confirm", connecting, hi, idle))
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.answer }
			if tt.mode != "" {
				s.host.Mode = tt.mode
			}
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "confirm", tt.members...)
			asked, ends := s.host.Asked()[0], hosttest.As[*contracts.ToolEnd](s.host)
			if asked.Tool != "shell" || string(asked.Args) != `{"command":"echo one"}` || asked.ActionDescription != "echo one" {
				t.Errorf("got question %+v, want the call", asked)
			}
			if len(ends) != 1 || ends[0].Success != tt.success || ends[0].CallID != asked.CallID {
				t.Errorf("got ends %+v, want one with success %v", ends, tt.success)
			}
			if !strings.Contains(s.statuses(), tt.status) {
				t.Errorf("got %q, want %q", s.statuses(), tt.status)
			}
		})
	}
}

func TestOddApprovalsAreShownAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct{ args, want, reason string }{
		"no JSON":  {`rm -rf`, `{"input":"rm -rf"}`, "permission"},
		"a list":   {`[1]`, `{"input":"[1]"}`, "permission"},
		"nothing":  {``, `{"input":""}`, "permission"},
		"too long": {`{"a":"` + long + `"}`, `{"omitted_bytes":204808}`, "204808 bytes of input are left out"},
	} {
		t.Run(name, func(t *testing.T) {
			quoted, _ := json.Marshal(tt.args)
			s := start(t, patient, served(say("confirm_request", `"request_id":"q1","args_json":`+string(quoted)), "<confirm", hi, idle))
			hosttest.Must(t, s.run(t, "go"))
			if q := s.host.Asked()[0]; string(q.Args) != tt.want || !strings.Contains(q.Reason, tt.reason) || q.Tool == "" {
				t.Errorf("got %+v, want %s", q, tt.want)
			}
		})
	}
}

func TestHandoffsAreApprovals(t *testing.T) {
	for verdict, action := range map[contracts.Verdict]string{contracts.VerdictApproved: `"action":"accept"`, contracts.VerdictDenied: `"action":"deny"`} {
		t.Run(string(verdict), func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(say("handoff_request", `"request_id":"h1","plan_path":"plan.md","plan_text":"First","agents":[{"name":"coder","default":true}]`), "<handoff", hi, idle))
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser}
			}
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "handoff", `"request_id":"h1"`, action)
			if q := s.host.Asked()[0]; q.Tool != "handoff" || !strings.Contains(string(q.Args), `"plan_text":"First"`) {
				t.Errorf("got %+v, want the plan", q)
			}
		})
	}
}

func TestQuestionsAreAnswered(t *testing.T) {
	text := func(texts ...string) (blocks []contracts.ContentBlock) {
		for _, s := range texts {
			blocks = append(blocks, contracts.ContentBlock{Type: "text", Text: s})
		}
		return blocks
	}
	const options = `"options":["red","blue"],"option_details":["warm"],"default_answer":"red"`
	for _, tt := range []struct {
		name, members string
		answer        contracts.Outcome
		want          string
	}{
		{"one option", options, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("blue")}, `"answers":["blue"]`},
		{"C28 several options", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red, blue")}, `"answers":["red","blue"]`},
		{"C28 several texts", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red", "blue")}, `"answers":["red","blue"]`},
		{"C28 own words", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red, or so")}, `"answers":["red, or so"]`},
		{"free text", `"options":[]`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("a", "b")}, `"answers":["a\nb"]`},
		{"C29 no answer", options, contracts.Outcome{Verdict: contracts.VerdictFailed}, `"cancelled":true`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(toolOnly, say("question_request", `"request_id":"q1","tool_name":"question","question":"Which?",`+tt.members), "<question", hi, idle))
			tt.answer.By = contracts.ResolvedByUser
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.answer }
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "question", `"request_id":"q1"`, tt.want)
			asked := contracts.UserQuestions(s.host.Asked()[0].Args)
			if len(asked) != 1 || asked[0].Question != "Which?" || asked[0].MultiSelect != strings.Contains(tt.members, "multiple") {
				t.Errorf("got %+v, want the question", asked)
			}
			if ends := hosttest.As[*contracts.ToolEnd](s.host); len(ends) != 1 {
				t.Errorf("got %d ends, want one", len(ends))
			}
		})
	}
}

func TestQuestionsOutsideOfRunsAreRefused(t *testing.T) {
	s := start(t, patient, []string{ready, confirm("q0"), "<confirm", say("question_request", `"request_id":"q1"`), "<question", say("handoff_request", `"request_id":"h1"`), "<handoff", "<send", hi, idle})
	eventually(t, "the refusals", func() bool { return len(s.program.Sent("handoff")) == 1 })
	hosttest.Must(t, s.run(t, "go"))
	s.wantSent(t, "confirm", `"request_id":"q0"`, `"action":"deny"`, "outside of a run")
	s.wantSent(t, "question", `"cancelled":true`)
	s.wantSent(t, "handoff", `"action":"deny"`)
	if n := len(s.host.Asked()); n != 0 {
		t.Errorf("got %d questions, want none", n)
	}
}

func TestAnotherQuestionReplacesTheFirst(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "!every 100ms 1 "+confirm("q2"), "<confirm", hi, idle))
	s.host.Answer = nil
	s.start(t)
	done := make(chan error, 1)
	go func() { done <- s.run(t, "go") }() // ends with the run
	eventually(t, "the second question", func() bool {
		asked := s.host.Asked()
		return len(asked) == 2 && s.host.Resolve(asked[1].RequestID, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser})
	})
	hosttest.Must(t, <-done)
	s.wantSent(t, "confirm", `"request_id":"q2"`, `"action":"allow"`)
}

func TestIdleWithdrawsWhatIsOpen(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "!every 100ms 1 "+idle))
	s.host.Answer = nil
	s.start(t)
	hosttest.Must(t, s.run(t, "go"))
	if got := s.program.Sent("confirm"); len(got) > 0 {
		t.Errorf("got %q, want no answer", got)
	}
	if s.host.Resolve(s.host.Asked()[0].RequestID, contracts.Outcome{Verdict: contracts.VerdictApproved}) {
		t.Error("the question is still open, want it withdrawn")
	}
}

// interrupted runs a prompt and interrupts it once an event of the type was published.
func (s *stand) interrupted(t *testing.T, typ string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted by the test")
	go func() { s.host.AwaitType(typ); stop(cause) }() // ends with the event
	if err := s.Run(ctx, contracts.Work{Content: "go"}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestAnInterruptCancels(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "<cancel", say("idle", `"last_outcome":"cancelled"`), "<send", hi, idle))
	s.host.Answer = nil
	s.start(t)
	s.interrupted(t, "server_request")
	if got := s.program.Sent("confirm"); len(got) > 0 { // C34
		t.Errorf("got %q, want no answer", got)
	}
	t.Run("C36 the next prompt works", func(t *testing.T) {
		hosttest.Must(t, s.run(t, "go"))
		s.wantSent(t, "cancel")
		if got := s.program.Starts(); len(got) != 1 {
			t.Errorf("got %q, want the same process", got)
		}
	})
}

func TestAProgramThatIgnoresACancelIsReplacedAndResumes(t *testing.T) {
	s := start(t, patient, served(connecting, "<cancel", "!hang"), served(hi, idle))
	s.interrupted(t, "status")
	hosttest.Must(t, s.run(t, "go"))
	if got := s.program.Starts(); !slices.Equal(got, []string{"program ", "program --resume s1"}) {
		t.Errorf("got starts %q, want a second one that resumes", got)
	}
	if got := s.statuses(); !strings.Contains(got, "restarted") || strings.Contains(got, "new conversation") {
		t.Errorf("got %q, want a restart of the same conversation", got)
	}
}

func TestProgramsThatMisbehaveAreReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		text  string
	}{
		"exit":          {[]string{connecting, "!exit 3"}, "exit status 3"},
		"stderr":        {[]string{"!stderr secret", "!exit 1"}, "standard error"},
		"garbage":       {[]string{"!repeat 101 this is not JSON"}, "101 lines in a row"},
		"no type":       {[]string{`!repeat 101 {"payload":{}}`}, "101 lines in a row"},
		"long line":     {[]string{"!long 1048577"}, "too long"},
		"no more signs": {[]string{connecting, "!hang"}, "did not tell its status"},
	} {
		t.Run(name, func(t *testing.T) {
			w := patient
			w.poll, w.silence = 100*time.Millisecond, 3*time.Second
			s := start(t, w, served(tt.lines...), served(hi, idle))
			wantError(t, s.run(t, "go"), contracts.ErrorTransient, tt.text)
			hosttest.Must(t, s.run(t, "go"))
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

func TestARestartedServerResumes(t *testing.T) {
	dir := t.TempDir()
	s := newStand(t, dir, patient, served(hi, idle))
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	hosttest.Must(t, s.run(t, "go"))
	hosttest.Must(t, s.Close(context.Background()))

	t.Run("C45 with the stored id", func(t *testing.T) {
		again := newStand(t, dir, patient, []string{say("ready", `"session_id":"$RESUME"`), "<send", hi, idle})
		again.host.Earlier = true
		again.start(t)
		hosttest.Must(t, again.run(t, "go"))
		if got := again.program.Starts(); !slices.Equal(got, []string{"program --resume s1"}) || strings.Contains(again.statuses(), "new conversation") {
			t.Errorf("got starts %q and %q, want one that resumes", got, again.statuses())
		}
	})
	t.Run("C45 not if the program does not know it", func(t *testing.T) {
		again := newStand(t, dir, patient, []string{"!stderr unknown session s1", "!exit 1"}, served(hi, idle))
		again.host.Earlier = true
		again.start(t)
		hosttest.Must(t, again.run(t, "go"))
		if got := again.program.Starts(); len(got) != 2 || got[1] != "program " || !strings.Contains(again.statuses(), "new conversation") {
			t.Errorf("got starts %q and %q, want a second one without the id", got, again.statuses())
		}
	})
	t.Run("not while another process has it", func(t *testing.T) {
		other := newStand(t, dir, patient, []string{"!stderr acquire session lock: held", "!exit 1"})
		if _, err := other.Start(t.Context(), other.host); err == nil || len(other.program.Starts()) != 1 {
			t.Errorf("got error %v and starts %q, want an error after one", err, other.program.Starts())
		}
	})
}

func TestProgramsThatCannotStart(t *testing.T) {
	for name, tt := range map[string]struct {
		script []string
		text   string
	}{
		"C43 exit":         {[]string{"!stderr no model", "!exit 1"}, "exit status 1"},
		"not our protocol": {[]string{"!repeat 200 Usage: program", "!hang"}, "no messages of Chord"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, tt.script)
			if _, err := s.Start(t.Context(), s.host); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got error %v, want one with %q", err, tt.text)
			}
		})
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	a := New(program.Options{Argv: []string{"/does/not/exist"}, Dir: "/"})
	if _, err := a.Start(t.Context(), hosttest.New(t)); err == nil || !strings.Contains(err.Error(), "start agent exist") {
		t.Errorf("got error %v, want that the program cannot be started", err)
	}
	goleak.VerifyNone(t, leaks)
}

func TestASessionThatCannotBeStoredIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	hosttest.Must(t, os.WriteFile(file, nil, 0o600))
	s := newStand(t, file, patient, served(hi, idle, "<send", hi, idle))
	s.start(t)
	hosttest.Must(t, s.run(t, "go"))
	hosttest.Must(t, s.run(t, "go"))
	if got := strings.Count(s.statuses(), "session cannot be kept"); got != 1 {
		t.Errorf("got %q, want that the session cannot be kept, once", s.statuses())
	}
}

// recorded returns a script that plays what a Chord server said in a recorded connection,
// and waits for an answer to each of its questions. Answers to other commands are left
// out.
func recorded(t *testing.T, name string) (script []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../cmd/maestro/testdata/chord", name))
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

func TestOddSessionIDsAreNotResumed(t *testing.T) {
	for _, id := range []string{"", "--help", strings.Repeat("x", 257)} {
		t.Run(fmt.Sprintf("%.10s", id), func(t *testing.T) {
			s := start(t, patient, []string{say("ready", `"session_id":"`+id+`"`), "<send", hi, idle, "!exit 0"}, served(hi, idle))
			hosttest.Must(t, s.run(t, "go"))
			s.host.AwaitType("error") // the exit
			hosttest.Must(t, s.run(t, "go"))
			if got := s.program.Starts(); len(got) != 2 || got[1] != "program " {
				t.Errorf("got starts %q, want a second one without the id", got)
			}
		})
	}
}
