package heddle

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

const (
	initOK = `{"type":"init_ok","id":"$ID","session_id":"sess-1","protocol_version":"0.5.0","profile":{"fingerprint":"sha256:00","model":"m"},"future":{}}`
	ok     = `{"type":"result","id":"$ID","status":"ok","response":"Hi","tool_calls_made":[],"iterations":1}`
	failed = `{"type":"result","id":"$ID","status":"error","tool_calls_made":[],"iterations":0,"error":{"code":"provider_error","message":"Model error","retryable":true}}`
)

// say returns the line of an event; members are the rest of its payload.
func say(kind, members string) string {
	return `{"type":"event","event":{"event":"` + kind + `"` + members + `},"event_seq":0,"send_id":"$ID","session_id":"sess-1"}`
}

// served returns a script that is initialized and answers one prompt with the lines.
func served(lines ...string) []string {
	return append([]string{"<init", initOK, "<send"}, lines...)
}

// A stand is an agent that has started, with its host and its program.
type stand struct {
	*program.Agent
	host    *hosttest.Host
	program fakeprogram.Program
}

// patient are waits that no test reaches.
var patient = waits{interrupt: hosttest.Patience, silence: hosttest.Patience}

func newStand(t *testing.T, w waits, scripts ...[]string) *stand {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	p := fakeprogram.New(t, scripts...)
	c := Config{Model: "default", Tools: []string{"glob"}, MaxIterations: 7}
	o := program.Options{Argv: p.Argv, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	a := program.New(o, dialectOf(o.Argv[0], c, w))
	return &stand{a, hosttest.New(t), p}
}

// start starts an agent whose programs follow the scripts.
func start(t *testing.T, scripts ...[]string) *stand {
	t.Helper()
	return startWith(t, patient, scripts...)
}

func startWith(t *testing.T, w waits, scripts ...[]string) *stand {
	t.Helper()
	s := newStand(t, w, scripts...)
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hosttest.Must(t, s.Close(context.Background())) })
	return s
}

func (s *stand) run(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
	defer cancel()
	return s.Run(ctx, contracts.Work{Content: "go"})
}

// wantError checks the type and the text of a run's error.
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

func (s *stand) statuses() string {
	var all []string
	for _, st := range hosttest.As[*contracts.Status](s.host) {
		all = append(all, st.Message)
	}
	return strings.Join(all, "\n")
}

func TestTheProgramIsInitialized(t *testing.T) {
	s := newStand(t, patient, served(ok))
	s.Configure(&contracts.Init{SystemPrompt: new("Be brief.")})
	s.Configure(&contracts.Init{AppendSystemPrompt: new("Be kind."), ThinkingLevel: contracts.ThinkingHigh})
	info, err := s.Start(t.Context(), s.host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { hosttest.Must(t, s.Close(context.Background())) }()
	if info.Model != "m" || info.Executor != contracts.ExecutorLive || len(info.Requests) != 0 {
		t.Errorf("got %+v, want the model m and no requests", info)
	}
	hosttest.Must(t, s.run(t))
	if init := s.program.Sent("init"); len(init) != 1 || !strings.Contains(init[0], `"protocol_version":"0.5.0","config":{"model":"default","system_prompt":"Be brief.\n\nBe kind.","tools":["glob"],"max_iterations":7`) {
		t.Errorf("got %q, want one init with the configuration", init)
	}
	if !strings.Contains(s.statuses(), "thinking level") {
		t.Errorf("got %q, want that the thinking level is not set", s.statuses())
	}
}

func TestRunsAreTranslated(t *testing.T) {
	usage := func(members string) string {
		return say("usage", `,"prompt_tokens":42,"completion_tokens":15,"total_tokens":57`+members)
	}
	for _, tt := range []struct {
		name  string
		lines []string
		types []string
		said  string
	}{
		{"tool and text", []string{
			say("turn_state", `,"state":"running"`), say("tool_start", `,"name":"glob","args":{"pattern":"*"}`),
			say("tool_end", `,"name":"glob","result_preview":"a.txt"`), say("content_delta", `,"text":"H"`), say("content_delta", `,"text":"i"`), usage(""), ok,
		}, []string{"tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"one response for each model round", []string{
			say("content_delta", `,"text":"Look"`), usage(""), say("tool_start", `,"name":"glob","args":null`), say("tool_end", `,"name":"glob","result_preview":""`),
			usage(""), say("tool_start", `,"name":"glob","args":[1]`), say("tool_end", `,"name":"glob","result_preview":""`), say("content_delta", `,"text":"Hi"`), ok,
		}, []string{"response_start", "response_chunk", "response_end", "tool_call", "tool_start", "tool_end", "response_start", "response_end",
			"tool_call", "tool_start", "tool_end", "response_start", "response_chunk", "response_end"}, "LookHi"},
		{"text that was not streamed", []string{ok}, []string{"response_start", "response_chunk", "response_end"}, "Hi"},
		{"reasoning", []string{say("content_delta", `,"text":"Hm","thinking":true`), ok}, []string{"response_start", "response_chunk", "response_end"}, "Hi"},
		{"a call that fails", []string{say("tool_start", `,"name":"glob","args":{}`), say("tool_end", `,"name":"glob","result_preview":"Error: no"`), ok},
			[]string{"tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"H40 permission refused", []string{say("permission_request", `,"name":"shell","reason":"rm"`), say("permission_denied", `,"name":"shell","reason":"no"`), ok},
			[]string{"status", "tool_call", "tool_end", "status", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"H40 permission granted", []string{say("permission_request", `,"name":"shell"`), say("tool_start", `,"name":"shell","args":{}`), say("tool_end", `,"name":"shell","result_preview":""`), ok},
			[]string{"status", "tool_call", "tool_start", "tool_end", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"a call that is denied after its start", []string{say("tool_start", `,"name":"shell","args":{}`), say("permission_denied", `,"name":"shell","reason":"no"`), ok},
			[]string{"tool_call", "tool_start", "tool_end", "status", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"context", []string{say("context_prune", `,"messages_pruned":3,"tokens_before":9,"tokens_after":-1`), say("context_compact", ""), say("plan_complete", `,"plan":"First"`), ok},
			[]string{"compaction", "compaction", "status", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"an error that the program survives", []string{say("error", `,"code":"provider_error","message":"busy","retryable":true`), say("heartbeat", `,"duration_ms":5`), ok},
			[]string{"error", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"what is unknown or odd", []string{
			`{"type":"news"}`, say("news", ""), say("tool_end", `,"name":"glob","result_preview":"x"`), say("content_delta", `,"text":7`), say("usage", `,"prompt_tokens":"x"`),
			strings.ReplaceAll(say("content_delta", `,"text":"of another"`), "$ID", "send-0"), `{"type":"result","id":"send-0","status":"ok"}`, `{"type":"result","id":7}`, ok,
		}, []string{"response_start", "response_end", "response_start", "response_chunk", "response_end"}, "Hi"},
		{"nothing after the result", []string{ok, say("content_delta", `,"text":"late"`), say("tool_start", `,"name":"glob","args":{}`), ok}, []string{"response_start", "response_chunk", "response_end"}, "Hi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, served(tt.lines...))
			hosttest.Must(t, s.run(t))
			s.wantTypes(t, tt.types...)
			if got := s.host.Said(); got != tt.said {
				t.Errorf("got %q said, want %q", got, tt.said)
			}
		})
	}
}

func TestUsageIsCountedOnce(t *testing.T) {
	s := start(t, served(
		say("routed_model", `,"model":"routed"`), say("upstream_provider", `,"provider":"far"`), say("content_delta", `,"text":"Hi"`),
		say("usage", `,"prompt_tokens":42,"completion_tokens":15,"total_tokens":57,"cached_tokens":40,"cost_micros":1500000,"cost_currency":"USD"`),
		say("usage", `,"prompt_tokens":10,"completion_tokens":-5,"total_tokens":99,"cached_tokens":7,"cost_micros":5,"cost_currency":"EUR"`),
		strings.Replace(ok, `"iterations"`, `"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"iterations"`, 1)))
	hosttest.Must(t, s.run(t))
	ends := hosttest.As[*contracts.ResponseEnd](s.host)
	want := []contracts.Usage{
		{InputTokens: 2, OutputTokens: 15, CacheReadTokens: 40, TotalTokens: 57, TotalCostUSD: 1.5, ModelID: "routed", Provider: "far"},
		{InputTokens: 10, CacheReadTokens: 7, TotalTokens: 17, ModelID: "routed", Provider: "far"},
	}
	if len(ends) != 2 || ends[0].Usage != want[0] || ends[1].Usage != want[1] {
		t.Errorf("got %+v, want %+v", ends, want)
	}
}

func TestCallsKeepTheirIDs(t *testing.T) {
	s := start(t, served(
		say("tool_start", `,"name":"glob","args":{"n":1},"call_id":"a"`), say("tool_start", `,"name":"glob","args":{"n":2},"call_id":"b"`),
		say("tool_end", `,"name":"glob","result_preview":"two","call_id":"b"`), say("tool_end", `,"name":"glob","result_preview":"one","call_id":"a"`), ok))
	hosttest.Must(t, s.run(t))
	calls, outputs := hosttest.As[*contracts.ToolCall](s.host), hosttest.As[*contracts.ToolOutput](s.host)
	if len(outputs) != 2 || outputs[0].CallID != calls[1].CallID || outputs[0].Content != "two" || outputs[1].CallID != calls[0].CallID {
		t.Errorf("got %+v of %+v, want each output with its call", outputs, calls)
	}
}

func TestFailedRunsSayWhy(t *testing.T) {
	fails := func(envelope string) string {
		return `{"type":"result","id":"$ID","status":"error","error":` + envelope + `}`
	}
	for _, tt := range []struct {
		name   string
		lines  []string
		typ    contracts.ErrorType
		text   string
		events int // errors published before the end
	}{
		{"H32 the result repeats the error", []string{say("error", `,"code":"provider_error","message":"Model error","retryable":true`), failed}, contracts.ErrorTransient, "Model error", 0},
		{"another error came before", []string{say("error", `,"code":"provider_error","message":"busy","retryable":true`), failed}, contracts.ErrorTransient, "Model error", 1},
		{"H35 a loop", []string{fails(`{"code":"loop_detected","message":"again","retryable":false,"details":null}`)}, contracts.ErrorTool, "again", 0},
		{"H34 too many rounds", []string{fails(`{"code":"max_iterations","message":"20 rounds"}`)}, contracts.ErrorTool, "20 rounds", 0},
		{"the program cancels itself", []string{fails(`{"code":"cancelled","message":"cancelled"}`)}, contracts.ErrorCancelled, "cancelled", 0},
		{"no message", []string{fails(`{"code":"protocol_error"}`)}, contracts.ErrorProtocol, "protocol_error", 0},
		{"no reason", []string{`{"type":"result","id":"$ID","status":"error"}`}, contracts.ErrorTool, "no reason", 0},
		{"the prompt could not be read", []string{`{"type":"result","id":"unknown","status":"error","error":{"code":"protocol_error","message":"Invalid JSON"}}`}, contracts.ErrorProtocol, "Invalid JSON", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, served(tt.lines...))
			wantError(t, s.run(t), tt.typ, tt.text)
			if got := len(hosttest.As[*contracts.ErrorEvent](s.host)); got != tt.events {
				t.Errorf("got %d errors before the end, want %d", got, tt.events)
			}
		})
	}
}

func TestPromptsThatAreTooLongAreNotSent(t *testing.T) {
	s := start(t, served(ok))
	err := s.Run(t.Context(), contracts.Work{Content: strings.Repeat("x", maxInput)})
	wantError(t, err, contracts.ErrorTool, "at most 8388608 bytes")
	hosttest.Must(t, s.run(t))
	if got := s.program.Sent("send"); len(got) != 1 {
		t.Errorf("got %d prompts, want one", len(got))
	}
}

func TestAttachmentsAreNamed(t *testing.T) {
	s := start(t, served(ok))
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: "go", Attachments: []contracts.Attachment{{Path: "docs/a.txt"}}}))
	if got := s.program.Sent("send"); len(got) != 1 || !strings.Contains(got[0], `go\n\nAttached files:\n- docs/a.txt`) {
		t.Errorf("got %q, want the path in the prompt", got)
	}
}

// golden returns a script that plays the recorded lines of a Heddle server.
func golden(t *testing.T, name string) (script []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../cmd/maestro/testdata/heddle", name+".out.jsonl"))
	hosttest.Must(t, err)
	ids := strings.NewReplacer(`"id":"1"`, `"id":"$ID"`, `"id":"2"`, `"id":"$ID"`, `"send_id":"2"`, `"send_id":"$ID"`)
	for i, line := range slices.Collect(strings.Lines(string(text))) {
		if i < 2 {
			script = append(script, []string{"<init", "<send"}[i])
		}
		script = append(script, strings.TrimSpace(ids.Replace(line)))
	}
	return script
}

func TestGoldenTranscriptsAreUnderstood(t *testing.T) {
	t.Run("normal", func(t *testing.T) {
		s := start(t, golden(t, "normal"))
		hosttest.Must(t, s.run(t))
		s.wantTypes(t, "tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_chunk", "response_end")
		if end := hosttest.As[*contracts.ResponseEnd](s.host)[0]; end.Usage.InputTokens != 42 || end.Usage.OutputTokens != 15 || s.host.Said() != "Here are the files..." {
			t.Errorf("got %q with %+v, want the answer with its usage", s.host.Said(), end.Usage)
		}
	})
	t.Run("error", func(t *testing.T) {
		s := start(t, golden(t, "error"))
		wantError(t, s.run(t), contracts.ErrorTransient, "Model error")
	})
	t.Run("version-mismatch", func(t *testing.T) {
		s := newStand(t, patient, golden(t, "version-mismatch"))
		if _, err := s.Start(t.Context(), s.host); err == nil || !strings.Contains(err.Error(), "protocol_version_mismatch") {
			t.Errorf("got error %v, want the mismatch", err)
		}
	})
}

func TestToolsWithoutANameGetOne(t *testing.T) {
	s := start(t, served(say("tool_start", ""), say("tool_end", `,"result_preview":"done"`), say("permission_denied", `,"reason":"no"`), ok))
	hosttest.Must(t, s.run(t))
	calls := hosttest.As[*contracts.ToolCall](s.host)
	if len(calls) != 2 || calls[0].Tool != "tool" || calls[1].Tool != "tool" || !strings.Contains(s.statuses(), "use of tool (no)") {
		t.Errorf("got %+v and %q, want calls of the tool named tool", calls, s.statuses())
	}
}

// No message of a known kind, with whatever in it, harms the run.
func TestOddMessagesAreHarmless(t *testing.T) {
	var lines []string
	for _, kind := range []string{"content_delta", "tool_start", "tool_end", "usage", "error", "permission_request", "permission_denied", "plan_complete",
		"context_prune", "context_compact", "context_handoff", "heartbeat", "routed_model", "upstream_provider", "turn_state"} {
		for _, v := range []string{"null", "7", `"x"`, "[{}]", `{"a":[]}`, "-1e300"} {
			members := ""
			for _, name := range []string{"text", "name", "args", "result_preview", "reason", "plan", "messages_pruned", "tokens_before", "duration_ms", "model", "provider",
				"call_id", "thinking", "code", "message", "retryable", "prompt_tokens", "cached_tokens", "cost_micros"} {
				members += `,"` + name + `":` + v
			}
			lines = append(lines, say(kind, members), say(kind, ""))
		}
	}
	for _, v := range []string{"null", "7", "[]", "{}"} {
		lines = append(lines, `{"type":"event","send_id":"$ID","event":`+v+`}`, `{"type":"result","id":`+v+`}`, `{"type":"init_ok","id":`+v+`,"session_id":"s"}`, `{"type":"status_ok","id":`+v+`}`)
	}
	s := start(t, served(append(lines, ok)...))
	hosttest.Must(t, s.run(t))
}

func TestParse(t *testing.T) {
	c, argv, err := Parse([]string{"model=a/b", "tools=x,y", "max_iterations=3", "prog", "model=z"})
	if err != nil || c.Model != "a/b" || !slices.Equal(c.Tools, []string{"x", "y"}) || c.MaxIterations != 3 || !slices.Equal(argv, []string{"prog", "model=z"}) {
		t.Errorf("got %+v, %q, %v", c, argv, err)
	}
	if c, _, err = Parse([]string{"prog"}); err != nil || c.Model == "" || c.Tools == nil || len(c.Tools) > 0 {
		t.Errorf("got %+v, %v; want a model and no tools", c, err)
	}
	if _, argv, err = Parse([]string{"./a=b/prog"}); err != nil || !slices.Equal(argv, []string{"./a=b/prog"}) {
		t.Errorf("got %q, %v; want a path", argv, err)
	}
	for _, words := range [][]string{{"model=m"}, {"max_iterations=0", "prog"}, {"max_iterations=x", "prog"}, {"model=", "prog"}, {"Model=m", "prog"}, {"foo=a", "prog"}} {
		if _, _, err := Parse(words); err == nil {
			t.Errorf("%q: got no error, want one", words)
		}
	}
}
