package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A stand is an agent with the fake as its program.
type stand struct {
	*Agent
	host  *hosttest.Host
	notes string
	dir   string
}

// newStand returns an agent that was not started. What is held back waits for
// longer than a test does, unless the test says otherwise.
func newStand(t *testing.T, s setup, o Options) *stand {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	notes := t.TempDir()
	t.Setenv(setupVar, string(encode(s)))
	t.Setenv(notesVar, notes)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or a program built with -race takes a second to exit
	exe, err := os.Executable()
	hosttest.Must(t, err)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	a := New([]string{exe}, o)
	a.wait.input, a.wait.settle, a.wait.glance = time.Hour, time.Hour, time.Hour
	a.wait.interrupt = hosttest.Patience
	return &stand{Agent: a, host: hosttest.New(t), notes: notes, dir: o.Dir}
}

// start starts the agent and closes it with the test.
func (s *stand) start(t *testing.T) contracts.AgentInfo {
	t.Helper()
	t.Cleanup(func() { hosttest.Must(t, s.Close(context.Background())) })
	info, err := s.Start(t.Context(), s.host)
	hosttest.Must(t, err)
	return info
}

// open is newStand and start.
func open(t *testing.T, s setup) *stand {
	t.Helper()
	st := newStand(t, s, Options{})
	st.start(t)
	return st
}

// run runs a script to its end, which is a good one.
func (s *stand) run(t *testing.T, steps ...step) {
	t.Helper()
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: script(steps...)}))
}

// fails checks that a script ends with an error of that type and text.
func (s *stand) fails(t *testing.T, kind contracts.ErrorType, text string, steps ...step) {
	t.Helper()
	wantError(t, s.Run(t.Context(), contracts.Work{Content: script(steps...)}), kind, text)
}

func wantError(t *testing.T, err error, kind contracts.ErrorType, text string) {
	t.Helper()
	e, ok := errors.AsType[*contracts.Error](err)
	if !ok || e.Type != kind || !strings.Contains(e.Message, text) {
		t.Fatalf("got error %#v, want one of type %s with %q", err, kind, text)
	}
}

// shown checks what was published, beside statuses.
func (s *stand) shown(t *testing.T, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(s.host.Types(), func(typ string) bool { return typ == "status" })
	if !slices.Equal(got, want) {
		t.Fatalf("published\n got %q\nwant %q", got, want)
	}
}

// statuses returns what was said aloud.
func (s *stand) statuses() (all []string) {
	for _, e := range hosttest.As[*contracts.Status](s.host) {
		all = append(all, e.Message)
	}
	return all
}

func (s *stand) says(t *testing.T, text string) {
	t.Helper()
	if !slices.ContainsFunc(s.statuses(), func(said string) bool { return strings.Contains(said, text) }) {
		t.Errorf("got statuses %q, want one with %q", s.statuses(), text)
	}
}

// replies checks what the program was answered.
func (s *stand) replies(t *testing.T, want ...string) {
	t.Helper()
	if got := noted(t, s.notes, "replies"); !slices.Equal(got, want) {
		t.Fatalf("the program was answered\n got %q\nwant %q", got, want)
	}
}

// answer returns what the last request of a run was answered with.
func (s *stand) answer(t *testing.T, steps ...step) string {
	t.Helper()
	s.run(t, append(steps, done)...)
	all := noted(t, s.notes, "replies")
	return all[len(all)-1]
}

// received counts the messages of a method that the program got.
func (s *stand) received(t *testing.T, method string) (n int) {
	for _, line := range noted(t, s.notes, "received") {
		if strings.Contains(line, `"method":"`+method+`"`) {
			n++
		}
	}
	return n
}

func TestProgramIntroducesItself(t *testing.T) {
	s := newStand(t, setup{Begun: map[string]any{"configOptions": []any{
		map[string]any{"id": "m", "category": "model", "type": "select", "currentValue": "large"},
	}}}, Options{Version: "1.2.3"})
	info := s.start(t)
	if info.Model != "large" || info.Provider != "fake" || info.Executor != contracts.ExecutorLive {
		t.Errorf("got %+v, want the model and the name of the program", info)
	}
	hello := strings.Join(noted(t, s.notes, "received"), "\n")
	for _, want := range []string{
		`"protocolVersion":1`, `"readTextFile":true`, `"writeTextFile":true`, `"terminal":true`,
		`"elicitation":{"form":{},"url":{}}`, `"name":"maestro"`, `"version":"1.2.3"`, `"cwd":"` + s.dir + `"`, `"mcpServers":[]`,
	} {
		if !strings.Contains(hello, want) {
			t.Errorf("the program received\n%s\nwant %s in it", hello, want)
		}
	}
	if got := s.host.Types(); len(got) > 0 {
		t.Errorf("published %q, want nothing before the hub has said that it is ready", got)
	}
}

func TestTextThoughtsAndCallsAreShownInOrder(t *testing.T) {
	s := open(t, setup{})
	s.run(t,
		thinks("Hm. "), says("I will "), says("read."),
		calls("c1", "Read go.mod", "read", "pending", map[string]any{"rawInput": map[string]any{"path": "go.mod"}}),
		changes("c1", "in_progress", shows("module x")),
		changes("c1", "completed", shows("module x\ngo 1.26\n")),
		says("Done."),
		step{Stop: "end_turn", Usage: map[string]any{"inputTokens": 10, "outputTokens": 4, "thoughtTokens": 3, "cachedReadTokens": 5, "totalTokens": 22}},
	)
	s.shown(t, "response_start", "response_chunk", "response_end",
		"tool_call", "tool_start", "tool_output", "tool_end",
		"response_start", "response_chunk", "response_end")
	if got := s.host.Said(); got != "I will read.Done." {
		t.Errorf("said %q", got)
	}
	if !hosttest.As[*contracts.ResponseChunk](s.host)[0].IsThinking {
		t.Error("got the thought as text, want it as thinking")
	}
	if got := s.host.Output(); got != "module x\ngo 1.26\n" {
		t.Errorf("got output %q, want each text once", got)
	}
	call := hosttest.As[*contracts.ToolCall](s.host)[0]
	if want := `{"_acp":{"title":"Read go.mod","kind":"read"},"path":"go.mod"}`; call.Tool != "read" || string(call.Args) != want || call.RequiresApproval {
		t.Errorf("got call %s %s, want read %s", call.Tool, call.Args, want)
	}
	end := hosttest.As[*contracts.ResponseEnd](s.host)[1]
	if u := end.Usage; u.InputTokens != 10 || u.OutputTokens != 7 || u.CacheReadTokens != 5 || u.TotalTokens != 22 || u.Provider != "fake" {
		t.Errorf("got usage %+v", u)
	}
	if sum := end.ToolsSummary; !slices.Equal(sum.ToolsUsed, []string{"read"}) || sum.CallsSucceeded != 1 || !slices.Equal(sum.SummaryLabels, []string{"Read go.mod"}) {
		t.Errorf("got tools %+v", sum)
	}
}

func TestContentGrowsOrIsReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []step
		want  string
	}{
		"grows":      {[]step{changes("c", "in_progress", shows("ab")), changes("c", "", shows("abc")), changes("c", "completed", nil)}, "abc"},
		"replaced":   {[]step{changes("c", "in_progress", shows("ab")), changes("c", "", shows("xy")), changes("c", "completed", shows("xy"))}, "ab\nxy"},
		"raw text":   {[]step{changes("c", "completed", map[string]any{"rawOutput": "raw"})}, "raw"},
		"raw object": {[]step{changes("c", "failed", map[string]any{"rawOutput": map[string]any{"token": "t", "n": 1.50}})}, `{"n":1.5,"token":"***"}`},
		"both":       {[]step{changes("c", "in_progress", map[string]any{"rawOutput": "raw"}), changes("c", "completed", shows("shown"))}, "shown"},
		"late":       {[]step{changes("c", "completed", shows("a")), changes("c", "in_progress", shows("b")), calls("c", "x", "other", "completed", shows("b"))}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{})
			s.run(t, append(tt.steps, done)...)
			if got := s.host.Output(); got != tt.want {
				t.Errorf("got output %q, want %q", got, tt.want)
			}
			s.shown(t, "tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_end")
		})
	}
}

func TestEveryPromptHasItsOwnCalls(t *testing.T) {
	s := open(t, setup{})
	for range 2 { // programs may count from one again
		s.run(t, calls("c1", "List", "search", "completed", nil), done)
	}
	ends := hosttest.As[*contracts.ToolEnd](s.host)
	if len(ends) != 2 || ends[0].CallID == ends[1].CallID || !ends[1].Success {
		t.Errorf("got ends %+v, want two of different calls", ends)
	}
}

func TestPlansCommandsModesAndCostsAreSaid(t *testing.T) {
	entry := func(text, status string) map[string]any {
		return map[string]any{"content": text, "status": status, "priority": "high"}
	}
	plan := step{Update: map[string]any{"sessionUpdate": "plan", "entries": []any{
		entry("Look", "completed"), entry("Think", "in_progress"), entry("Act with --token=abc", "pending"),
	}}, Times: 2}
	cost := func(amount float64) step {
		return step{Update: map[string]any{"sessionUpdate": "usage_update", "used": 1200, "size": 8000,
			"cost": map[string]any{"amount": amount, "currency": "USD"}}}
	}
	s := open(t, setup{
		Begun: map[string]any{"modes": map[string]any{"currentModeId": "ask", "availableModes": []any{map[string]any{"id": "code", "name": "Write code"}}}},
		Later: []step{{Update: map[string]any{"sessionUpdate": "available_commands_update", "availableCommands": []any{
			map[string]any{"name": "init", "description": "x"},
			map[string]any{"name": "review", "description": "Review\u202e", "input": map[string]any{"hint": "what"}},
		}}}},
	})
	s.run(t, plan, step{Update: map[string]any{"sessionUpdate": "current_mode_update", "currentModeId": "code"}},
		says("a"), cost(0.25), calls("c", "x", "other", "completed", nil), says("b"), cost(0.75), done)
	s.run(t, cost(1.75), done)
	want := []string{
		"Plan, 1 of 3 done:\n[x] Look\n[>] Think\n[ ] Act with --token=***",
		"Agent mode: Write code",
		"Context: 1200 of 8000 tokens used",
		"Context: 1200 of 8000 tokens used",
	}
	got := s.statuses()
	at := slices.Index(got, "Agent commands: /init /review") // the program sends them when it likes
	if at < 0 || !slices.Equal(slices.Delete(slices.Clone(got), at, at+1), want) {
		t.Errorf("said\n got %q\nwant %q and the commands once", got, want)
	}
	if offer := s.Offer(); offer.Mode != "Write code" || !slices.Equal(offer.Commands, []contracts.AgentCommand{
		{Name: "init", Description: "x"}, {Name: "review", Description: "Review\ufffd", Hint: "what"},
	}) {
		t.Errorf("offers %+v", offer)
	}
	var costs []float64
	for _, e := range hosttest.As[*contracts.ResponseEnd](s.host) {
		costs = append(costs, e.Usage.TotalCostUSD)
	}
	if !slices.Equal(costs, []float64{0.25, 0.5, 1}) {
		t.Errorf("got costs %v, want what came to each", costs)
	}
}

func TestNumbersBeyondBeliefAreNotTold(t *testing.T) {
	cost := func(amount float64) step {
		return step{Update: map[string]any{"sessionUpdate": "usage_update", "used": 1e300, "size": 1e300,
			"cost": map[string]any{"amount": amount, "currency": "USD"}}}
	}
	s := open(t, setup{})
	s.run(t, cost(1e308), cost(0), cost(1e308), cost(0.5), cost(-1), step{Stop: "end_turn", Usage: map[string]any{
		"inputTokens": 1 << 62, "outputTokens": 1 << 62, "cachedReadTokens": -1,
	}})
	u := hosttest.As[*contracts.ResponseEnd](s.host)[0].Usage
	if u.TotalCostUSD != 0.5 || u.InputTokens != maxCount || u.TotalTokens != 2*maxCount {
		t.Errorf("got usage %+v, want the one cost that can be, and counts with a bound", u)
	}
	if got := s.statuses(); len(got) > 0 {
		t.Errorf("said %q, want nothing", got)
	}
}

func TestInterruptedSettingIsTriedAgain(t *testing.T) {
	s := open(t, setup{Hang: acp.AgentMethodSessionSetConfigOption, Begun: map[string]any{"configOptions": []any{map[string]any{
		"id": "think", "category": "thought_level", "type": "select", "currentValue": "low", "options": []any{map[string]any{"value": "high", "name": "High"}},
	}}}})
	s.Configure(&contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
	for range 2 {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errStopped)
		if err := s.Run(ctx, contracts.Work{Content: script(done)}); !errors.Is(err, errStopped) {
			t.Errorf("got %v, want %v", err, errStopped)
		}
	}
	hosttest.Must(t, s.Close(t.Context())) // the program has read all that was sent
	if prompts, sets := s.received(t, acp.AgentMethodSessionPrompt), s.received(t, acp.AgentMethodSessionSetConfigOption); prompts != 0 || sets != 2 {
		t.Errorf("the program got %d prompts and %d settings, want none and two", prompts, sets)
	}
	if got := s.statuses(); len(got) > 0 {
		t.Errorf("said %q, want nothing", got)
	}
}

func TestWhatIsUnknownIsPassedOver(t *testing.T) {
	s := open(t, setup{})
	s.run(t,
		step{Update: map[string]any{"sessionUpdate": "a_new_kind", "content": map[string]any{"type": "text", "text": "not text"}}},
		step{Update: map[string]any{"sessionUpdate": "user_message_chunk", "content": map[string]any{"type": "text", "text": "not ours"}}},
		step{Tell: "session/update", Params: map[string]any{"sessionId": "another", "update": acp.UpdateAgentMessageText("not ours either")}},
		step{Tell: "x/told"}, step{Tell: "session/update"},
		asks("x/asked", nil),
		tells("tool_call", "c", map[string]any{"title": "Odd", "kind": 7, "status": "completed", "locations": "nowhere", "content": []any{
			map[string]any{"type": "hologram"}, "junk", map[string]any{"type": "content", "content": map[string]any{"type": "image", "mimeType": "image/png"}},
		}}),
		says("ok"), done)
	s.shown(t, "tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_chunk", "response_end")
	if s.host.Said() != "ok" || s.host.Output() != "[image:image/png]" {
		t.Errorf("got text %q and output %q", s.host.Said(), s.host.Output())
	}
	if got := noted(t, s.notes, "replies"); len(got) != 1 || !strings.Contains(got[0], "-32601") {
		t.Errorf("the program was answered %q, want that the method is unknown", got)
	}
}

func TestStopsAreTold(t *testing.T) {
	s := open(t, setup{})
	s.run(t, stops(acp.StopReasonMaxTokens))
	s.says(t, "limit of tokens")
	s.run(t, stops(acp.StopReasonMaxTurnRequests))
	s.says(t, "limit of requests")
	s.run(t, stops("bored"))
	s.says(t, "Stopped: bored")
	s.fails(t, contracts.ErrorTool, "refused", stops(acp.StopReasonRefusal))
	s.fails(t, contracts.ErrorCancelled, "cancelled", stops(acp.StopReasonCancelled))
	s.fails(t, contracts.ErrorTransient, "Rate limit", step{Fail: "Rate limit exceeded", Code: -32603})
	s.run(t, says("still here"), done)
	if got := s.host.Said(); got != "still here" {
		t.Errorf("said %q, want a session that goes on", got)
	}
}

func TestAttachmentsTakeTheRichestForm(t *testing.T) {
	work := contracts.Work{Content: script(done), Attachments: []contracts.Attachment{
		{Path: "notes/a b.txt", MimeType: "text/plain", Text: "hello"},
		{Path: "p.png", MimeType: "image/png", Data: []byte{1, 2}},
	}}
	for name, tt := range map[string]struct {
		can  map[string]any
		want []string
	}{
		"links": {nil, []string{`"type":"resource_link","uri":"file://DIR/notes/a%20b.txt"`, `"type":"resource_link","uri":"file://DIR/p.png"`}},
		"rich": {map[string]any{"image": true, "embeddedContext": true}, []string{
			`"resource":{"mimeType":"text/plain","text":"hello","uri":"file://DIR/notes/a%20b.txt"}`, `"data":"AQI="`, `"mimeType":"image/png"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{Can: map[string]any{"promptCapabilities": tt.can}})
			hosttest.Must(t, s.Run(t.Context(), work))
			got := strings.Join(noted(t, s.notes, "received"), "\n")
			for _, want := range tt.want {
				if want = strings.ReplaceAll(want, "DIR", s.files.Root()); !strings.Contains(got, want) {
					t.Errorf("the program received\n%s\nwant %s in it", got, want)
				}
			}
		})
	}
}

func TestInitIsAppliedAsFarAsThereAreWords(t *testing.T) {
	s := open(t, setup{Begun: map[string]any{"configOptions": []any{map[string]any{
		"id": "think", "category": "thought_level", "type": "select", "currentValue": "low",
		"options": []any{map[string]any{"group": "g", "name": "g", "options": []any{map[string]any{"value": "high", "name": "High"}}}},
	}}}})
	s.Configure(&contracts.Init{SystemPrompt: new("be brief"), ThinkingLevel: contracts.ThinkingHigh})
	s.Configure(&contracts.Init{AppendSystemPrompt: new("or not")})
	s.run(t, done)
	s.run(t, done)
	s.Configure(&contracts.Init{ThinkingLevel: contracts.ThinkingUltra})
	s.run(t, done)
	want := []string{
		"The agent keeps its own system prompt: the Agent Client Protocol has no way to set it",
		"The agent does not take the thinking level ultra: it has no such setting",
	}
	if got := s.statuses(); !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
	if got := s.received(t, acp.AgentMethodSessionSetConfigOption); got != 1 {
		t.Errorf("the program was configured %d times, want once", got)
	}
}

func TestProgramGetsNoCredentials(t *testing.T) {
	t.Setenv("SOME_API_KEY", "k1")
	t.Setenv("OTHER_API_KEY", "k2")
	s := newStand(t, setup{}, Options{EnvPass: []string{"OTHER_API_KEY"}})
	s.start(t)
	env := noted(t, s.notes, "environ")
	if slices.Contains(env, "SOME_API_KEY=k1") || !slices.Contains(env, "OTHER_API_KEY=k2") {
		t.Errorf("got environment %q, want only the key that is passed", env)
	}
}

func TestServersOfKindsThatTheProgramTakes(t *testing.T) {
	list := []mcp.Server{
		{Name: "local", Command: "run", Env: map[string]string{"B": "2", "A": "1"}},
		{Name: "web", URL: "https://example.org/mcp", Headers: map[string]string{"X": "y"}},
		{Name: "empty"},
	}
	s := newStand(t, setup{Can: map[string]any{"mcpCapabilities": map[string]any{"http": true}}}, Options{Servers: list})
	s.start(t)
	s.run(t, done)
	got := strings.Join(noted(t, s.notes, "received"), "\n")
	for _, want := range []string{
		`{"args":[],"command":"run","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"name":"local"}`,
		`{"headers":[{"name":"X","value":"y"}],"name":"web","type":"http","url":"https://example.org/mcp"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the program received\n%s\nwant %s in it", got, want)
		}
	}
	s.says(t, "empty is left out")
}

func TestStartFailuresSayWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		setup setup
		want  []string
	}{
		"old version":  {setup{Version: 0}, []string{"version 0", "not version 1"}},
		"no version":   {setup{Version: "0.1.0"}, []string{`version "0.1.0"`, "not version 1"}},
		"sign in":      {setup{Refuse: "session/new", Code: authRequired, Auth: []named{{ID: "key", Name: "API key"}}}, []string{"sign in", "it rains", "API key (key)", "--env-pass"}},
		"refused":      {setup{Refuse: "session/new", Code: -32603}, []string{"Not today: it rains"}},
		"hangs first":  {setup{Hang: "initialize"}, []string{"did not become ready in "}},
		"hangs second": {setup{Hang: "session/new"}, []string{"did not become ready in "}},
		"no ACP":       {setup{Refuse: "initialize", Code: -32601}, []string{"does not speak the Agent Client Protocol", "initialize with Not today"}},
		"prints":       {setup{Early: []step{{Raw: "npm \x1b[2Jhello"}, {Exit: 5}}}, []string{"exit status 5", `something that is no message: "npm \x1b[2Jhello"`}},
		"exits":        {setup{Die: "initialize"}, []string{"exit status 9; what it said on standard error is in the server's log"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, tt.setup, Options{})
			if tt.setup.Hang != "" {
				s.wait.ready = 500 * time.Millisecond
			}
			_, err := s.Start(t.Context(), s.host)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q in it", err, want)
				}
			}
			hosttest.Must(t, s.Close(t.Context()))
		})
	}
}

func TestStandardErrorIsForTheLogAlone(t *testing.T) {
	var log bytes.Buffer
	s := newStand(t, setup{Die: "initialize"}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := s.Start(t.Context(), s.host); err == nil || strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got error %v, want one without what the program said", err)
	}
	hosttest.Must(t, s.Close(t.Context()))
	if !strings.Contains(log.String(), "out of luck") || !strings.Contains(log.String(), "exit status 9") {
		t.Errorf("got log %s, want how the program ended and what it said", log.String())
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	a := New([]string{filepath.Join(t.TempDir(), "absent")}, Options{Dir: t.TempDir()})
	if _, err := a.Start(t.Context(), hosttest.New(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, os.ErrNotExist)
	}
	hosttest.Must(t, a.Close(t.Context()))
}

func TestCloseEndsARunAndItsProgram(t *testing.T) {
	s := open(t, setup{})
	result := make(chan error, 1)
	go func() { // ends with the agent
		result <- s.Run(t.Context(), contracts.Work{Content: script(says("x"), step{Hang: true})})
	}()
	s.host.AwaitType("response_chunk")
	s.wait.shutdown = 100 * time.Millisecond
	hosttest.Must(t, s.Close(t.Context()))
	select {
	case err := <-result:
		wantError(t, err, contracts.ErrorTransient, "killed")
	case <-time.After(hosttest.Patience):
		t.Fatal("got a run that goes on, want it to end")
	}
	wantError(t, s.Run(t.Context(), contracts.Work{Content: script(done)}), contracts.ErrorTransient, "closed")
}

func TestFloodArrivesWhole(t *testing.T) {
	const n = 5_000
	s := open(t, setup{})
	s.run(t, step{Update: acp.UpdateAgentMessageText("0123456789"), Times: n}, done)
	if got := len(s.host.Said()); got != 10*n {
		t.Errorf("got %d bytes, want %d", got, 10*n)
	}
}

func TestWhatIsTooLongIsCutOrNamed(t *testing.T) {
	s := open(t, setup{})
	long := strings.Repeat("é", maxShown)
	s.run(t, calls(strings.Repeat("c", maxKey+1), "Long", "edit", "completed", map[string]any{
		"rawInput": map[string]any{"text": long},
		"content": []any{
			map[string]any{"type": "diff", "path": "f", "newText": long, "oldText": "x"},
			map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": long}},
		},
	}), done)
	if got := len(s.host.Output()); got > maxShown+200 || !strings.Contains(s.host.Output(), "change of f is too long to be shown") {
		t.Errorf("got %d bytes of output, want about %d and a note about the change", got, maxShown)
	}
	if args := string(hosttest.As[*contracts.ToolCall](s.host)[0].Args); !strings.Contains(args, `"omitted_bytes":2097`) || len(args) > 1000 {
		t.Errorf("got args of %d bytes, want them without the input", len(args))
	}
}

func TestTooManyCallsEndTheProgram(t *testing.T) {
	s := open(t, setup{})
	var steps []step
	for i := range maxOpen + 1 {
		steps = append(steps, calls(fmt.Sprint(i), "x", "other", "pending", nil))
	}
	s.fails(t, contracts.ErrorTransient, "open", append(steps, step{Hang: true})...)
}

func TestUnifiedDiffs(t *testing.T) {
	long := func(n int, change int) string {
		var text strings.Builder
		for i := range n {
			if i == change {
				text.WriteString("changed\n")
				continue
			}
			fmt.Fprintf(&text, "%d\n", i)
		}
		return text.String()
	}
	for name, tt := range map[string]struct {
		created  bool
		old, new string
		want     string
	}{
		"same":    {false, "a\n", "a\n", ""},
		"created": {true, "", "a\nb\n", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"emptied": {false, "a\n", "", "--- a/f\n+++ b/f\n@@ -1,1 +0,0 @@\n-a\n"},
		"end":     {false, "a\nb", "a\nb\n", "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"},
		"middle": {false, long(10, -1), long(10, 5),
			"--- a/f\n+++ b/f\n@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-5\n+changed\n 6\n 7\n 8\n"},
		"moved": {false, "a\nb\nc\n", "b\nc\na\n", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-a\n b\n c\n+a\n"},
	} {
		if got := unified("/f", tt.created, tt.old, tt.new); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, tt.want)
		}
	}
	two := unified("f", false, long(40, -1), strings.Replace(long(40, 3), "30\n", "other\n", 1))
	if n := strings.Count(two, "@@ -"); n != 2 || !strings.Contains(two, "@@ -1,7 +1,7 @@") || !strings.Contains(two, "@@ -28,7 +28,7 @@") {
		t.Errorf("got\n%s\nwant two hunks", two)
	}
	if near := unified("f", false, long(20, -1), strings.Replace(long(20, 3), "8\n", "other\n", 1)); strings.Count(near, "@@ -") != 1 {
		t.Errorf("got\n%s\nwant one hunk", near)
	}
	if huge := unified("f", false, strings.Repeat("a\nb\n", 3000), strings.Repeat("c\nd\n", 3000)); strings.Count(huge, "\n-") != 6000 {
		t.Error("got no full removal of what is too different, want one")
	}
}

func TestLogSaysThatAProgramIsWaitedFor(t *testing.T) {
	said := make(chan string, 1)
	s := newStand(t, setup{Hang: "session/new"}, Options{Log: slog.New(slog.NewTextHandler(lines(said), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	s.wait.notice = time.Millisecond
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with ctx
		_, err := s.Start(ctx, s.host)
		ended <- err
	}()
	if line := <-said; !strings.Contains(line, "waiting") || !strings.Contains(line, "program=") {
		t.Errorf("got log %q, want what is waited for", line)
	}
	stop(errStopped)
	if err := <-ended; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	hosttest.Must(t, s.Close(t.Context()))
}

// lines is a writer that sends the first line and drops the others.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	select {
	case l <- string(text):
	default:
	}
	return len(text), nil
}

func TestClientsAreToldThatTheLogHasMore(t *testing.T) {
	s := open(t, setup{})
	s.fails(t, contracts.ErrorTransient, "exit status 4; what it said on standard error is in the server's log", step{Grumble: "ouch"}, step{Exit: 4})
}
