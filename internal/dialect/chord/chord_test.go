package chord_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
)

// A stage has a translator, and the frames of its session.
type stage struct {
	t     testing.TB
	tr    *chord.Translator
	out   dialect.Out
	lines []string
	sent  []contracts.Frame
	start *dialect.Start
	wake  time.Time
	ended bool
	code  int
}

// newStage returns a translator whose session is attached. Another connection may hold
// the lease.
func newStage(t testing.TB, holder string, o chord.Options) *stage {
	s := &stage{t: t, tr: chord.New(o)}
	s.step(func(out *dialect.Out) { s.tr.Begin(out) })
	s.attach(holder)
	return s
}

func (s *stage) attach(holder string) {
	s.frame(fmt.Sprintf(`{"type":"ws.attached","session_id":"s1","connection_id":"me","connection_token":"t","subscription_id":"x","role":"controller","controller_lease_granted":false,"controller_connection_id":%q,"lease_expires_at":null,"heartbeat_interval_ms":1,"epoch":"e","resume":"snapshot","limits":{"max_frame_bytes":1,"mailbox":1}}`, holder))
	s.event(`{"type":"hello_ok","protocol_version":"1"}`)
	if last := s.taken(); !strings.Contains(last, `"ready"`) && !strings.Contains(last, "new session") {
		s.t.Fatalf("got %s, want ready", last)
	}
}

// step calls the translator, and checks all it says.
func (s *stage) step(call func(*dialect.Out)) {
	s.out.Now = time.Unix(1_000_000, 0)
	call(&s.out)
	d := s.out.Take()
	for _, l := range d.Lines {
		var e chord.Envelope
		if err := json.Unmarshal(l, &e); err != nil || e.Type == "" || !bytes.HasPrefix(e.Payload, []byte("{")) || len(l) >= chord.MaxLine || bytes.ContainsRune(l, '\n') {
			s.t.Fatalf("got %.200q, want one envelope of less than 1 MiB", l)
		}
		s.lines = append(s.lines, string(l))
	}
	for _, text := range d.Frames {
		var decoder contracts.Decoder
		f, err := decoder.ClientFrame(text)
		if err != nil {
			s.t.Fatalf("got %s for the session: %v", text, err)
		}
		s.sent = append(s.sent, f)
	}
	if d.Start != nil {
		s.start = d.Start
	}
	s.wake = d.Wake
	if d.Ended {
		s.ended, s.code = true, d.Code
	}
}

func (s *stage) line(text string) { s.step(func(out *dialect.Out) { s.tr.Line(out, []byte(text)) }) }

// frame passes a frame of the session. It returns false if there is no such frame.
func (s *stage) frame(text string) bool {
	var decoder contracts.Decoder
	f, err := decoder.ServerFrame([]byte(text))
	if err != nil {
		return false
	}
	var ev contracts.Event
	if m, ok := f.(*contracts.MessageEnvelope); ok {
		if ev, err = decoder.Event(m.Message); err != nil {
			return false
		}
	}
	s.step(func(out *dialect.Out) { s.tr.Frame(out, f, ev) })
	return true
}

func (s *stage) event(text string) {
	s.t.Helper()
	if !s.frame(`{"type":"message","cursor":1,"message":` + text + `}`) {
		s.t.Fatalf("%s is no event", text)
	}
}

// taken returns the lines since the last call.
func (s *stage) taken() string {
	text := strings.Join(s.lines, "\n")
	s.lines = nil
	return text
}

// asked returns the frames since the last call, except hello, and answers them.
func (s *stage) asked(refusal contracts.Code) (texts []string) {
	frames := s.sent
	s.sent = nil
	for _, f := range frames {
		id := ""
		text := f.FrameType()
		switch f := f.(type) {
		case *contracts.Send:
			id, text = f.ID, string(f.Message)
		case *contracts.TakeControl:
			id = f.ID
		case *contracts.Message:
			continue
		}
		texts = append(texts, text)
		if refusal == "" {
			s.frame(fmt.Sprintf(`{"type":"ws.result","id":%q,"seq":1,"cursor":1}`, id))
		} else {
			s.frame(fmt.Sprintf(`{"type":"ws.error","id":%q,"seq":1,"error":"no","code":%q,"error_type":%q,"retryable":false}`, id, refusal, refusal))
		}
	}
	return texts
}

const (
	start    = `{"type":"raw_agent_event","event_type":"agent_start","event":{"type":"agent_start"}}`
	end      = `{"type":"raw_agent_event","event_type":"agent_end","event":{"type":"agent_end"}}`
	opens    = `{"type":"response_start","response_id":"r"}`
	closes   = `{"type":"response_end","response_id":"r","usage":{"input_tokens":1,"output_tokens":1,"cache_read_tokens":0,"cache_write_tokens":0,"total_tokens":2,"total_cost_usd":0,"model_id":"m","provider":"p"},"tools_summary":{"tools_used":[],"calls_succeeded":0,"calls_failed":0},"duration_ms":1}`
	approval = `{"type":"server_request","request_id":"a1","request_type":"approval","call_id":"c1","tool":"bash","args":{"command":"ls"},"reason":"r"}`
	second   = `{"type":"server_request","request_id":"a2","request_type":"approval","call_id":"c3","tool":"bash","args":{"command":"pwd"},"reason":"r"}`
	input    = `{"type":"server_request","request_id":"q1","request_type":"user_input","call_id":"c2","tool":"ask","args":{"question":"Which?","options":["a","b"]},"reason":"r"}`
	retry    = `{"type":"server_request","request_id":"t1","request_type":"tool_retry","call_id":"c4","tool":"bash","args":{},"reason":"r"}`
	aborted  = `{"type":"error","message":"Run interrupted by user","fatal":false,"error_type":"cancelled"}`
)

func chunk(text string) string {
	return fmt.Sprintf(`{"type":"response_chunk","response_id":"r","content":%q,"is_thinking":false}`, text)
}

// snapshotOf returns the state of a session in which nothing goes on.
func snapshotOf(state string) string {
	return `{"protocolVersion":"1","session_id":"s1","cursor":1,"last_init":null,"state":{"connection_count":1,"subscriber_count":1,"connections":[],"pending_requests":[],"pending_approvals":[],"pending_client_tools":[],"pending_mcp_elicitations":[],"pending_user_inputs":[],"pending_tool_retries":[],"active_tools":[],"active_utility_commands":[],"active_file_watches":[],"tracked_tools":[]` + state + `,"is_ready":true,"is_responding":false}}`
}

func contains(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got %s, want %s in it", got, w)
		}
	}
}

func TestOneQuestionOfAKindAtATime(t *testing.T) { // C32
	s := newStage(t, "", chord.Options{})
	for _, ev := range []string{start, approval, second, input} {
		s.event(ev)
	}
	got := s.taken()
	contains(t, got, `"request_id":"a1"`, `"request_id":"q1"`, `"options":["a","b"]`)
	if strings.Contains(got, `"a2"`) {
		t.Errorf("got %s, want one confirm request", got)
	}
	s.line(`{"type":"send","content":"/export x"}`)
	if got := s.asked(""); len(got) > 0 {
		t.Errorf("got %q, want that nothing is dismissed", got)
	}
	s.line(`{"type":"confirm","request_id":"a1","action":"deny","deny_reason":"no"}`)
	contains(t, s.taken(), `"request_id":"a2"`)
	s.asked("")
	s.line(`{"type":"send","content":"hello"}`)
	answers := strings.Join(s.asked(""), "\n")
	contains(t, answers, `"a2","request_type":"approval","approved":false`, `"q1","request_type":"user_input"`, `"is_error":true`)
	s.event(end)
	contains(t, strings.Join(s.asked(""), "\n"), `"type":"prompt","content":"hello"`)
	s.event(start)
	s.event(end)
	if got := s.taken(); strings.Count(got, `"idle"`) != 1 {
		t.Errorf("got %s, want one idle", got)
	}
}

func TestRefusedAnswersStayPending(t *testing.T) {
	s := newStage(t, "", chord.Options{})
	s.event(start)
	s.event(approval)
	s.taken()
	s.line(`{"type":"confirm","request_id":"a1","action":"allow"}`)
	s.asked(contracts.CodeControllerLeaseHeld)
	s.line(`{"type":"status"}`)
	contains(t, s.taken(), "not_in_control", `"pending_confirm":{"request_id":"a1"`)
	s.line(`{"type":"cancel"}`)
	s.asked(contracts.CodeControllerLeaseHeld)
	s.line(`{"type":"status"}`)
	contains(t, s.taken(), "not_in_control", `"pending_confirm":{"request_id":"a1"`)
}

func TestPromptOfAnotherClientComesFirst(t *testing.T) {
	s := newStage(t, "", chord.Options{})
	s.line(`{"type":"send","content":"mine"}`)
	s.asked(contracts.CodeRuntimeBusy)
	s.event(start)
	s.event(`{"type":"raw_agent_event","event_type":"message_start","event":{"type":"message_start","message":{"role":"user","content":"theirs"}}}`)
	contains(t, s.taken(), "another client sent: theirs")
	s.event(end)
	if got := s.asked(""); len(got) != 1 || !strings.Contains(got[0], "mine") {
		t.Errorf("got %q, want the prompt again", got)
	}
	if got := s.taken(); strings.Contains(got, `"idle"`) {
		t.Errorf("got %s, want no idle before the own turn", got)
	}
}

func TestRefusedPromptEndsTheTurn(t *testing.T) {
	s := newStage(t, "", chord.Options{})
	s.line(`{"type":"send","content":"mine"}`)
	s.asked(contracts.CodeRuntimeNotReady)
	contains(t, s.taken(), `"code":"runtime_not_ready"`, `"last_outcome":"error"`)
	for range 70 {
		s.line(`{"type":"send","content":"x"}`)
	}
	contains(t, s.taken(), "queue_full")
}

func TestMessageOfACutResponseIsNotSent(t *testing.T) { // C33
	s := newStage(t, "", chord.Options{})
	for _, ev := range []string{start, opens, chunk("half"), closes, aborted, end} {
		s.event(ev)
	}
	got := s.taken()
	contains(t, got, `"last_outcome":"cancelled"`)
	if strings.Contains(got, "half") || strings.Contains(got, `"error"`) {
		t.Errorf("got %s, want only idle", got)
	}
}

func TestMessageIsHeldForItsCalls(t *testing.T) { // C18, C19
	s := newStage(t, "", chord.Options{})
	for _, ev := range []string{start, opens, chunk("text"), closes} {
		s.event(ev)
	}
	if got := s.taken(); strings.Contains(got, "assistant_message") || s.wake.IsZero() {
		t.Errorf("got %s and %v, want that the message waits", got, s.wake)
	}
	s.event(approval)
	got := s.taken()
	contains(t, got, `"text":"text","tool_calls":1`, `"detail":"1 tools"`)
	if strings.Index(got, "assistant_message") > strings.Index(got, "confirm_request") {
		t.Errorf("got %s, want the message first", got)
	}
	for _, ev := range []string{opens, chunk("more"), closes} {
		s.event(ev)
	}
	s.step(func(out *dialect.Out) { s.tr.Wake(out) })
	contains(t, s.taken(), `"text":"more","tool_calls":0`)
	s.event(end)
	if got := s.taken(); strings.Contains(got, "assistant_message") {
		t.Errorf("got %s, want the message once", got)
	}
}

func TestResetEndsATurnThatIsOver(t *testing.T) {
	s := newStage(t, "", chord.Options{})
	for _, ev := range []string{start, opens, approval} {
		s.event(ev)
	}
	s.taken()
	s.frame(`{"type":"reset","reason":"lagged","snapshot":` + snapshotOf("") + `}`)
	contains(t, s.taken(), "events were lost", `"last_outcome":"completed"`)
	s.line(`{"type":"status"}`)
	contains(t, s.taken(), `"busy":false`, `"pending_confirm":null`)
}

func TestLateClientIsAskedToo(t *testing.T) {
	s := &stage{t: t, tr: chord.New(chord.Options{SessionID: "s1"})}
	s.step(func(out *dialect.Out) { s.tr.Begin(out) })
	if s.start == nil || s.start.SessionID != "s1" {
		t.Errorf("got %+v, want the session", s.start)
	}
	s.line(`{"type":"status"}`)
	s.step(func(out *dialect.Out) { s.tr.LongLine(out); s.tr.EOF(out) })
	if got := s.taken(); got != "" || s.ended {
		t.Errorf("got %s before ready", got)
	}
	if !s.frame(`{"type":"snapshot","snapshot":` + strings.Replace(snapshotOf(""), `"pending_requests":[]`, `"pending_requests":[{"id":"a1","kind":"approval","status":"pending","visibility":"user","tool_call_id":"c","call_id":"c","tool_name":"bash","tool":"bash","args":{"command":"ls"},"source":"local"}]`, 1) + `}`) {
		t.Fatal("no snapshot")
	}
	s.event(`{"type":"hello_ok","protocol_version":"1"}`)
	got := s.lines
	want := []string{`"ready"`, `"confirm_request"`, `"status_response"`, "stdin_line_too_long"}
	for i, w := range want {
		if i >= len(got) || !strings.Contains(got[i], w) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if !s.ended || s.code != 0 {
		t.Error("got no end, want it after the commands that came first")
	}
}

func TestCommandsBeforeReadyAreBounded(t *testing.T) {
	s := &stage{t: t, tr: chord.New(chord.Options{})}
	s.step(func(out *dialect.Out) { s.tr.Begin(out) })
	for range 10 {
		s.line(strings.Repeat(" ", 1<<20))
	}
	s.event(`{"type":"hello_ok","protocol_version":"1"}`)
	contains(t, s.taken(), "too_many_commands")
}

func TestRequestsOfOtherKindsFail(t *testing.T) {
	s := newStage(t, "me", chord.Options{})
	s.event(start)
	s.event(retry)
	contains(t, strings.Join(s.asked(""), ""), `"decision_action":"abort"`)
	s = newStage(t, "other", chord.Options{})
	s.event(start)
	s.event(retry)
	if got := s.asked(""); len(got) > 0 {
		t.Errorf("got %q, want that the holder answers", got)
	}
}

func TestSessionEnds(t *testing.T) {
	s := newStage(t, "", chord.Options{})
	s.event(start)
	s.step(func(out *dialect.Out) { s.tr.Detached(out, nil) })
	contains(t, s.taken(), "session_ended", `"last_outcome":"error"`)
	if !s.ended || s.code != 1 {
		t.Errorf("got the end %v with code %d", s.ended, s.code)
	}
	s = &stage{t: t, tr: chord.New(chord.Options{})}
	s.step(func(out *dialect.Out) { s.tr.Detached(out, errors.New("no such session")) })
	if got := s.taken(); got != "" || s.code != 1 { // C43
		t.Errorf("got %s and %d, want nothing and 1", got, s.code)
	}
	s = &stage{t: t, tr: chord.New(chord.Options{Shared: true})}
	s.step(func(out *dialect.Out) { s.tr.Detached(out, &contracts.Error{Message: "it is full"}) })
	if contains(t, s.taken(), `"code":"session_not_opened"`, "it is full"); s.code != 1 {
		t.Errorf("got the code %d, want 1", s.code)
	}
}

func TestNewSessionForgetsTheOldOne(t *testing.T) {
	s := newStage(t, "", chord.Options{NewSessions: true})
	s.event(start)
	s.event(approval)
	s.start = nil
	s.line(`{"type":"send","content":"/new"}`)
	s.line(`{"type":"status"}`)
	contains(t, s.taken(), `"last_outcome":"cancelled"`)
	if s.start == nil || s.start.SessionID != "" {
		t.Fatalf("got %+v, want a new session", s.start)
	}
	s.event(`{"type":"hello_ok","protocol_version":"1"}`)
	contains(t, s.taken(), "new session", `"pending_confirm":null`)
}

// A shelf keeps rules in memory.
type shelf struct {
	rules []chord.Rule
	full  bool
}

func (s *shelf) Load() []chord.Rule { return s.rules }

func (s *shelf) Add(r chord.Rule) error {
	if s.full {
		return errors.New("full")
	}
	s.rules = append(s.rules, r)
	return nil
}

func (s *shelf) Remove(r chord.Rule) error {
	if s.full {
		return errors.New("not writable")
	}
	s.rules = slices.DeleteFunc(s.rules, func(kept chord.Rule) bool { return kept == r })
	return nil
}

func TestRulesMatchArguments(t *testing.T) { // C25
	for _, tt := range []struct {
		pattern, command string
		asks             bool
	}{
		{"git *", "git status", false}, {"git *", "git", true}, {"git *", "gitk x", true}, {"*", "anything at all", false},
		{"git *", "git log; rm -rf x", true}, {"git *", "git log && rm x", true}, {"git *", "git $(rm x)", true}, {"git *", "git `rm x`", true},
		{"git *", "git log > x", true}, {"git *", "git log\nrm x", true}, {"git log; *", "git log; ls", false}, {"*", "a | b", true},
		{"a?c", "abc", false}, {"a?c", "a;c", true}, {"a*b*c", "axxbyyc", false}, {"a*b*c", "axxbyy", true}, {"shell:ls", "ls", true}, {"ls", "ls -l", true},
	} {
		s := newStage(t, "", chord.Options{Rules: &shelf{rules: []chord.Rule{{Tool: "bash", Pattern: tt.pattern}}}})
		s.event(start)
		args, _ := json.Marshal(map[string]string{"command": tt.command})
		s.event(strings.Replace(approval, `{"command":"ls"}`, string(args), 1))
		if got := s.taken(); strings.Contains(got, "confirm_request") != tt.asks || (len(s.asked("")) == 0) != tt.asks {
			t.Errorf("%q, %q: got %s, want asked: %v", tt.pattern, tt.command, got, tt.asks)
		}
	}
}

// A model must not hide a command line behind another one.
func TestRulesSeeTheCommandThatRuns(t *testing.T) {
	for _, args := range []string{`{"command":"rm x","Command":"git log"}`, `{"command":"rm x","command":"git log"}`, `{"Command":"git log","command":"rm x"}`, `{"command":["git log"]}`} {
		s := newStage(t, "", chord.Options{Rules: &shelf{rules: []chord.Rule{{Tool: "bash", Pattern: "git *"}}}})
		s.event(start)
		s.event(strings.Replace(approval, `{"command":"ls"}`, args, 1))
		contains(t, s.taken(), "confirm_request")
	}
}

func TestRulesThatCannotBeKept(t *testing.T) { // C24, C26
	kept := &shelf{}
	for name, o := range map[string]chord.Options{"no store": {}, "full": {Rules: &shelf{full: true}}, "store": {Rules: kept}} {
		s := newStage(t, "", o)
		s.event(start)
		s.event(approval)
		s.taken()
		for _, members := range []string{`"action":"deny","rule_pattern":"x"`, `"action":"allow","rule_pattern":"` + strings.Repeat("x", 2000) + `"`, `"action":"allow","rule_pattern":" "`} {
			s.line(`{"type":"confirm","request_id":"a1",` + members + `}`)
			contains(t, s.taken(), `"type":"error"`)
		}
		s.line(`{"type":"confirm","request_id":"a1","action":"allow","rule_pattern":"ls","rule_scope":"PROJECT"}`)
		got := s.taken()
		if fails := strings.Contains(got, `"type":"error"`); fails != (name != "store") {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if want := []chord.Rule{{Tool: "bash", Pattern: "ls", Scope: chord.ScopeProject}}; !slices.Equal(kept.rules, want) {
		t.Errorf("got %v, want %v", kept.rules, want)
	}
}

func TestUndoRemovesTheLastRule(t *testing.T) {
	kept := &shelf{rules: []chord.Rule{{Tool: "bash", Pattern: "old", Scope: chord.ScopeProject}}}
	s := newStage(t, "", chord.Options{Rules: kept})
	s.event(start)
	s.event(approval)
	s.line(`{"type":"confirm","request_id":"a1","action":"allow","rule_pattern":"ls","rule_scope":"project"}`)
	kept.full = true
	s.line(`{"type":"send","content":"/rules undo"}`)
	contains(t, s.taken(), `"code":"rule_not_kept"`)
	kept.full = false
	s.line(`{"type":"send","content":"/rules undo"}`)
	contains(t, s.taken(), "removed: bash allow")
	if len(kept.rules) != 1 || kept.rules[0].Pattern != "old" {
		t.Errorf("got %v, want the old rule only", kept.rules)
	}
	s.line(`{"type":"send","content":"/rules undo"}`)
	contains(t, s.taken(), "has made no rule")
}

// A client that returns gets the lease from its earlier connection. It has lost nothing.
func TestOnlyTheLoserIsToldOfATakeover(t *testing.T) {
	for holder, told := range map[string]bool{"me": false, "other": true} {
		s := newStage(t, "me", chord.Options{})
		s.frame(fmt.Sprintf(`{"type":"ws.lease","granted":%v,"controller_connection_id":%q,"generation":2,"reason":"taken_over"}`, !told, holder))
		if got := strings.Contains(s.taken(), "has taken control"); got != told {
			t.Errorf("%s has control: got told %v, want %v", holder, got, told)
		}
	}
}

func TestRulesAnswerOnlyInControl(t *testing.T) {
	s := newStage(t, "other", chord.Options{Rules: &shelf{rules: []chord.Rule{{Tool: "bash", Pattern: "*"}}}})
	s.event(start)
	s.event(approval)
	if got := s.asked(""); len(got) > 0 {
		t.Errorf("got %q, want no answer without control", got)
	}
}

// FuzzLines sends lines of a client and frames of its session in any order. Frames begin
// with <.
func FuzzLines(f *testing.F) {
	f.Add("{\"type\":\"send\",\"content\":\"a\"}\n<" + start + "\n<" + approval + "\n{\"type\":\"confirm\",\"request_id\":\"a1\",\"action\":\"allow\",\"rule_pattern\":\"*\"}\n<" + second + "\n<" + input + "\n{\"type\":\"question\",\"request_id\":\"q1\",\"answers\":[\"x\"]}\n{\"type\":\"cancel\"}\n<" + end)
	f.Add("{\"type\":\"send\",\"content\":\"/new\"}\n{\"type\":\"subscribe\",\"events\":[\"idle\"]}\n{\"type\":\"models\"}\n<" + opens + "\n<" + chunk("x") + "\n<" + closes + "\n<" + aborted)
	f.Add("{\"type\":\"send\",\"content\":\"/take\"}\n{\"type\":\"send\",\"content\":\"/rules undo\"}\n{\"type\":\"local_shell\"}\n{\"type\":\"handoff\"}\nx\n[]\nnull\n<" + retry)
	for _, name := range []string{"basic-lifecycle", "confirm-rules"} {
		text, err := os.ReadFile("../../../cmd/maestro/testdata/chord/" + name + ".jsonl")
		if err != nil {
			f.Fatal(err)
		}
		var all []string
		for line := range strings.Lines(string(text)) {
			var step struct{ Dir, Raw string }
			if err := json.Unmarshal([]byte(line), &step); err != nil {
				f.Fatal(err)
			}
			if step.Dir == "c2s" {
				all = append(all, step.Raw)
			}
		}
		f.Add(strings.Join(all, "\n"))
	}
	f.Fuzz(func(t *testing.T, script string) {
		s := newStage(t, "", chord.Options{NewSessions: true, Rules: &shelf{}})
		for line := range strings.SplitSeq(script, "\n") {
			event, isEvent := strings.CutPrefix(line, "<")
			switch {
			case s.ended:
				return
			case isEvent && !s.frame(`{"type":"message","cursor":1,"message":`+event+`}`):
				s.asked(contracts.CodeRuntimeBusy)
			case isEvent:
				s.asked("")
			case line == "!":
				s.step(func(out *dialect.Out) { s.tr.Wake(out) })
			default:
				s.line(line)
			}
		}
		s.step(func(out *dialect.Out) { s.tr.EOF(out) })
	})
}
