package hecate

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// secret is what the redaction of the tests hides.
const secret = "hunter2-SECRET"

func redact(text string) (string, bool) {
	shown := strings.ReplaceAll(text, secret, mark)
	return shown, shown != text
}

var start = time.Date(2026, 5, 3, 10, 0, 0, 0, time.UTC)

// A tester is a *testing.T, or one of rapid.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// A log is a server: it gives drafts their sequences and keeps the bytes.
type log struct {
	t      tester
	s      *Session
	at     time.Time
	cursor uint64
	next   map[string]uint64 // by run
	events []Event
	texts  []string
}

func newLog(t tester, o Options) *log {
	o.Redact = redact
	return &log{t: t, s: NewSession(o, start, [10]byte{1, 2, 3}), at: start, next: map[string]uint64{}}
}

// feed gives native events to the translation, one a millisecond.
func (l *log) feed(events ...contracts.Event) *log {
	for _, ev := range events {
		l.at = l.at.Add(time.Millisecond)
		l.cursor++
		l.add(l.s.Event(l.at, l.cursor, ev))
	}
	return l
}

func (l *log) add(drafts []Draft) *log {
	for _, d := range drafts {
		e := l.s.Envelope(d, l.next[d.RunID])
		l.next[d.RunID]++
		text := e.Append(nil)
		parsed, err := Parse(text)
		if err != nil {
			l.t.Fatalf("got %v for %s, want an event", err, text)
		}
		l.events, l.texts = append(l.events, parsed), append(l.texts, string(text))
	}
	return l
}

// types returns the types of the events, without those of the prefixes.
func (l *log) types(without ...string) (list []string) {
	for _, e := range l.events {
		if !slices.ContainsFunc(without, func(p string) bool { return strings.HasPrefix(e.Type, p) }) {
			list = append(list, e.Type)
		}
	}
	return list
}

func (l *log) want(types ...string) {
	l.t.Helper()
	if got := l.types(); !slices.Equal(got, types) {
		l.t.Errorf("got\n%s\nwant\n%s", strings.Join(l.texts, "\n"), strings.Join(types, "\n"))
	}
}

// all returns the data of the events of a type.
func (l *log) all(name string) (list []map[string]any) {
	for _, e := range l.events {
		if e.Type == name {
			var data map[string]any
			if err := json.Unmarshal(e.Data, &data); err != nil {
				l.t.Fatal(err)
			}
			list = append(list, data)
		}
	}
	return list
}

// one returns the data of the only event of a type.
func (l *log) one(name string) map[string]any {
	l.t.Helper()
	list := l.all(name)
	if len(list) != 1 {
		l.t.Fatalf("got %d events of type %s in\n%s\nwant one", len(list), name, strings.Join(l.texts, "\n"))
	}
	return list[0]
}

// members compares some members of data, as JSON.
func members(t tester, data map[string]any, want string) {
	t.Helper()
	var wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	for key, value := range wanted {
		if got := data[key]; fmt.Sprint(got) != fmt.Sprint(value) {
			t.Errorf("got %s %v in %v, want %v", key, got, data, value)
		}
	}
}

// Native events.

var (
	agentStart = &contracts.RawAgentEvent{EventKind: "agent_start", Event: json.RawMessage(`{}`)}
	agentEnd   = &contracts.RawAgentEvent{EventKind: "agent_end", Event: json.RawMessage(`{}`)}
	ready      = &contracts.Ready{Model: "m-1", Provider: "acme"}
	inSrv      = &contracts.SessionInfo{Cwd: "/srv"}
	opened     = &contracts.ResponseStart{ResponseID: "resp_1"}
	usage      = contracts.Usage{InputTokens: 10, OutputTokens: 5, CacheReadTokens: 2, TotalTokens: 17, TotalCostUSD: 0.0000125}
	closed     = &contracts.ResponseEnd{ResponseID: "resp_1", Usage: usage, DurationMS: 7}
	unpriced   = &contracts.ResponseEnd{ResponseID: "resp_1"}
	toolStart  = &contracts.ToolStart{CallID: "c1"}
	toolEnd    = &contracts.ToolEnd{CallID: "c1", Success: true}
)

func said(text string) contracts.Event {
	event, _ := json.Marshal(map[string]any{"message": map[string]string{"role": "user", "content": text}})
	return &contracts.RawAgentEvent{EventKind: "message_start", Event: event}
}

func chunk(text string) contracts.Event {
	return &contracts.ResponseChunk{ResponseID: "resp_1", Content: text}
}

func thought(text string) contracts.Event {
	return &contracts.ResponseChunk{ResponseID: "resp_1", Content: text, IsThinking: true}
}

func toolCall(tool, args string) contracts.Event {
	return &contracts.ToolCall{CallID: "c1", Tool: tool, Args: json.RawMessage(args)}
}

func output(text string) contracts.Event { return &contracts.ToolOutput{CallID: "c1", Content: text} }

func asks(kind contracts.RequestType) contracts.Event {
	return &contracts.ServerRequest{
		RequestID: "q1", RequestType: kind, CallID: "c1", Tool: "bash", Args: json.RawMessage(`{"command":"make"}`),
		ActionDescription: "Running make", Reason: "it can change files",
	}
}

func decides(v contracts.Verdict, by contracts.Resolver, reason string) contracts.Event {
	return &contracts.ServerRequestResolved{RequestID: "q1", RequestType: contracts.RequestApproval, CallID: "c1", Resolution: v, ResolvedBy: by, Reason: reason}
}

func fails(kind contracts.ErrorType, text string) contracts.Event {
	return &contracts.ErrorEvent{Message: text, ErrorType: kind, Fatal: kind == contracts.ErrorFatal}
}

// prompted is the beginning of a run.
func prompted(text string) []contracts.Event {
	return []contracts.Event{ready, inSrv, agentStart, said(text), opened}
}

// The checks of the reference validator, in the model_call vocabulary.

// core is the set of types that the reference validator knows, and ours.
var core = strings.Fields(`run.queued run.started run.finished run.failed run.cancelled run.resumed_from_event run.checkpoint_saved
	model.call.started model.call.completed model.call.failed assistant.text_delta assistant.text_complete
	assistant.tool_call_proposed assistant.final_answer user.message user.attachment
	tool.invoked tool.started tool.completed tool.failed tool.cancelled tool.timed_out
	tool.shell.command tool.shell.output_chunk tool.shell.exited tool.file.patch tool.file.applied tool.file.reverted
	approval.requested approval.resolved approval.timed_out cost.tick cost.budget_warning cost.budget_exceeded
	policy.tool_blocked policy.model_rewrote error.tool_unavailable error.model_capability_missing error.upstream
	gap.events_pruned gap.run_disconnected
	assistant.thinking_delta maestro.status maestro.compaction maestro.request_pending maestro.request_resolved`)

// retired are the types that must not be produced.
var retired = strings.Fields(`approval.approved approval.rejected run.claimed run.running run.completed run.resumed run.resume_requested`)

// required are the members of some types. A type of text must not be empty.
var required = map[string]string{
	"run.queued": "kind model provider", "run.started": "worker_id lease_until", "run.finished": "final_status duration_ms",
	"run.failed": "code message retriable", "run.cancelled": "by reason",
	"run.resumed_from_event": "from_run_id from_sequence", "run.checkpoint_saved": "checkpoint_id",
	"tool.shell.output_chunk": "tool_call_id stream data byte_offset", "tool.completed": "tool_call_id tool_name kind duration_ms summary",
	"tool.failed": "tool_call_id tool_name kind duration_ms summary error", "approval.requested": "approval_id kind summary",
	"gap.run_disconnected": "reason",
}

var schema = func() *jsonschema.Resolved {
	text, err := os.ReadFile("testdata/envelope.schema.json")
	if err != nil {
		panic(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		panic(err)
	}
	return resolved
}()

// validate returns what is wrong with one stored event.
func validate(text []byte) error {
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	if err := schema.Validate(decoded); err != nil {
		return err
	}
	e, err := Parse(text)
	if err != nil {
		return err
	}
	name := e.Type
	if rest, ok := strings.CutPrefix(name, "turn."); ok {
		name = "model.call." + rest
	}
	if !slices.Contains(core, name) || slices.Contains(retired, e.Type) {
		return fmt.Errorf("type %s is not in the core", e.Type)
	}
	data := decoded["data"].(map[string]any)
	for _, key := range strings.Fields(required[e.Type]) {
		if value, present := data[key]; !present || value == "" {
			return fmt.Errorf("%s has no %s", e.Type, key)
		}
	}
	if e.Type == "run.finished" && data["final_status"] != "completed" {
		return fmt.Errorf("final_status is %v", data["final_status"])
	}
	return nil
}

// check holds the log against the schema, the validator and the invariants of logs.
func (l *log) check() {
	l.t.Helper()
	runs := map[string]*checked{}
	ids := map[string]bool{}
	for i, e := range l.events {
		if err := validate([]byte(l.texts[i])); err != nil {
			l.t.Errorf("E1: %v in %s", err, l.texts[i])
		}
		if ids[e.EventID] {
			l.t.Errorf("E3: id twice: %s", l.texts[i])
		}
		ids[e.EventID] = true
		if runs[e.RunID] == nil {
			runs[e.RunID] = &checked{t: l.t, calls: map[string]string{}, bytes: map[string]int{}, text: map[string]string{}}
		}
		runs[e.RunID].event(e, l.texts[i])
		if strings.Contains(l.texts[i], secret) {
			l.t.Errorf("E28: secret in %s", l.texts[i])
		}
	}
}

// A checked run follows the events of one run.
type checked struct {
	t        tester
	n        uint64
	last     string // event id
	started  bool
	terminal bool
	calls    map[string]string // state of each call: invoked, exited
	bytes    map[string]int    // of output
	text     map[string]string // by block
	in, out  float64           // sums of the rounds
	tick     [2]float64
}

func (c *checked) event(e Event, text string) {
	c.t.Helper()
	bad := func(rule string) { c.t.Helper(); c.t.Errorf("%s: %s", rule, text) }
	var data map[string]any
	if json.Unmarshal(e.Data, &data) != nil {
		bad("E45")
	}
	if e.Sequence != c.n {
		bad("E4")
	}
	if e.EventID <= c.last {
		bad("E3")
	}
	if c.terminal && !strings.HasPrefix(e.Type, "gap.") {
		bad("E20")
	}
	c.n, c.last = e.Sequence+1, e.EventID
	id, _ := data["tool_call_id"].(string)
	block := fmt.Sprint(data["turn_index"], data["model_call_index"], data["block_index"])
	switch {
	case e.Type == "run.started":
		c.started = true
	case e.Type == "run.finished", e.Type == "run.failed", e.Type == "run.cancelled":
		c.terminal = true
		if !c.started && e.Type != "run.cancelled" {
			bad("E21")
		}
		if len(c.calls) > 0 {
			bad("E23")
		}
		if c.in != c.tick[0] || c.out != c.tick[1] {
			bad("E43")
		}
	case e.Type == "assistant.text_delta":
		c.text[block] += data["delta"].(string)
	case e.Type == "assistant.text_complete":
		if c.text[block] != data["text"] {
			bad("E22")
		}
	case e.Kind() == "turn.completed":
		in, _ := data["input_tokens"].(float64)
		out, _ := data["output_tokens"].(float64)
		c.in, c.out = c.in+in, c.out+out
	case e.Type == "cost.tick":
		c.tick = [2]float64{data["cumulative_input_tokens"].(float64), data["cumulative_output_tokens"].(float64)}
	case e.Type == "tool.invoked":
		if c.calls[id] != "" {
			bad("E23")
		}
		c.calls[id], c.bytes[id] = "invoked", 0
	case e.Type == "tool.shell.output_chunk":
		if c.calls[id] != "invoked" {
			bad("E26")
		}
		if data["byte_offset"] != float64(c.bytes[id]) {
			bad("E24")
		}
		c.bytes[id] += len(data["data"].(string))
	case e.Type == "tool.shell.exited":
		if c.calls[id] != "invoked" {
			bad("E26")
		}
		c.calls[id] = "exited"
	case e.Type == "tool.completed", e.Type == "tool.failed", e.Type == "tool.cancelled", e.Type == "tool.timed_out":
		if c.calls[id] == "" {
			bad("E23")
		}
		delete(c.calls, id)
	}
}
