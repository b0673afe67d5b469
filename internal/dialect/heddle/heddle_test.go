package heddle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// A rig runs a translator between a client and a session, both played by the test.
type rig struct {
	t      testing.TB
	tr     dialect.Translator
	out    dialect.Out
	now    time.Time
	lines  []map[string]any  // unread, for the client
	frames []contracts.Frame // for the session, all
	starts []dialect.Start
	wake   time.Time
	ended  bool
	code   int
}

func newRig(t testing.TB, o Options) *rig {
	return &rig{t: t, tr: New(o), now: time.Unix(1_000_000, 0)}
}

// do calls the translator once and collects what it decided.
func (r *rig) do(call func(dialect.Translator, *dialect.Out)) {
	r.t.Helper()
	if r.ended {
		return
	}
	r.out.Now = r.now
	call(r.tr, &r.out)
	d := r.out.Take()
	for _, text := range d.Lines {
		var line map[string]any
		if err := json.Unmarshal(text, &line); err != nil || strings.Contains(string(text), "\n") || !utf8.Valid(text) {
			r.t.Fatalf("H2: got the line %q: %v", text, err)
		}
		r.lines = append(r.lines, line)
	}
	if d.Start != nil {
		r.starts = append(r.starts, *d.Start)
	}
	for _, text := range d.Frames {
		var decoder contracts.Decoder
		f, err := decoder.ClientFrame(text)
		if err != nil {
			r.t.Fatalf("got the frame %s: %v", text, err)
		}
		r.frames = append(r.frames, f)
	}
	r.wake, r.ended, r.code = d.Wake, d.Ended, d.Code
}

func (r *rig) line(text string) {
	r.do(func(t dialect.Translator, out *dialect.Out) { t.Line(out, []byte(text)) })
}

// frame gives the translator a frame of the session, as internal/transport/foreign does.
func (r *rig) frame(f contracts.Frame) {
	var ev contracts.Event
	if m, ok := f.(*contracts.MessageEnvelope); ok {
		var decoder contracts.Decoder
		var err error
		if ev, err = decoder.Event(m.Message); err != nil {
			r.t.Fatalf("got %v for %s", err, m.Message)
		}
	}
	r.do(func(t dialect.Translator, out *dialect.Out) { t.Frame(out, f, ev) })
}

func (r *rig) event(ev contracts.Event) {
	r.t.Helper()
	text, err := contracts.EncodeEvent(ev)
	if err != nil {
		r.t.Fatal(err)
	}
	r.frame(&contracts.MessageEnvelope{Message: text.Body})
}

func (r *rig) rawEvent(text string) {
	var named struct{ Type string }
	if err := json.Unmarshal([]byte(text), &named); err != nil {
		r.t.Fatal(err)
	}
	r.event(&contracts.RawAgentEvent{EventKind: named.Type, Event: json.RawMessage(text)})
}

// passes moves the clock, and wakes the translator whenever it wants.
func (r *rig) passes(d time.Duration) {
	end := r.now.Add(d)
	for !r.wake.IsZero() && !r.wake.After(end) && !r.ended {
		r.now = r.wake
		r.do(dialect.Translator.Wake)
	}
	r.now = end
}

// read returns the unread lines.
func (r *rig) read() []map[string]any {
	lines := r.lines
	r.lines = nil
	return lines
}

// one returns the only unread line.
func (r *rig) one() map[string]any {
	r.t.Helper()
	lines := r.read()
	if len(lines) != 1 {
		r.t.Fatalf("got %v, want one line", lines)
	}
	return lines[0]
}

// refused checks that the only unread line refuses a request.
func (r *rig) refused(rule, id, message string) {
	r.t.Helper()
	line := r.one()
	e, _ := line["error"].(map[string]any)
	if line["type"] != "result" || line["status"] != "error" || line["id"] != id || e["code"] != "protocol_error" || e["message"] != message || e["retryable"] != false ||
		line["iterations"] != 0.0 || len(line["tool_calls_made"].([]any)) != 0 {
		r.t.Errorf("%s: got %v, want %q for %s", rule, line, message, id)
	}
}

// lastID returns the id of the latest command for the session.
func (r *rig) lastID() string {
	for i := len(r.frames) - 1; i >= 0; i-- {
		if f, ok := r.frames[i].(*contracts.Send); ok {
			return f.ID
		}
	}
	return ""
}

const configText = `"config":{"model":"m","system_prompt":"p","tools":["read_file"]`

// opened attaches the session of an init.
func (r *rig) opened() {
	r.t.Helper()
	r.frame(&contracts.Attached{SessionID: fmt.Sprint("sess-", len(r.starts))})
	r.event(&contracts.HelloOK{ProtocolVersion: contracts.ProtocolVersion, ConnectionID: "c", Role: contracts.RoleController})
}

// ready returns a rig whose client has had its init_ok.
func ready(t testing.TB, o Options, version, more string) *rig {
	t.Helper()
	r := newRig(t, o)
	r.line(`{"type":"init","id":"i","protocol_version":"` + version + `",` + configText + more + `}}`)
	r.opened()
	if line := r.one(); line["type"] != "init_ok" || line["id"] != "i" {
		t.Fatalf("got %v, want init_ok", line)
	}
	return r
}

// begins begins the run of the latest prompt.
func (r *rig) begins() {
	r.t.Helper()
	r.rawEvent(`{"type":"agent_start"}`)
	r.rawEvent(`{"type":"message_start","message":{"role":"user","content":"x"}}`)
	id := r.lastID()
	r.frame(&contracts.Result{ID: &id, Seq: 1, Cursor: 1})
}

func (r *rig) ends() { r.rawEvent(`{"type":"agent_end"}`) }

func TestVersionsAreNegotiated(t *testing.T) {
	for _, test := range []struct{ server, client, want string }{
		{"", "0.4.0", "0.4.0"}, {"", "0.4.7", "0.4.7"}, {"", "0.9.1", "0.5.0"}, {"", "0", "0.0.0"}, {"", "0.x.3", "0.0.3"},
		{"0.3.2", "0.4.0", "0.3.2"}, {"1.2.0", "1", "1.0.0"}, {"junk", "0.5.1", "0.5.0"},
	} {
		r := newRig(t, Options{Version: test.server})
		r.line(`{"type":"init","id":"i","protocol_version":"` + test.client + `",` + configText + `}}`)
		r.opened()
		if got := r.one()["protocol_version"]; got != test.want {
			t.Errorf("H3, H6: server %q, client %q: got %v, want %s", test.server, test.client, got, test.want)
		}
	}
	r := newRig(t, Options{})
	r.line(`{"type":"init","id":"i",` + configText + `}}`)
	r.opened()
	if got := r.one()["protocol_version"]; got != "0.2.0" {
		t.Errorf("H6: without a version: got %v, want 0.2.0", got)
	}
	for _, bad := range []string{"abc", "v0.4.0", "", "-1"} {
		r := newRig(t, Options{})
		r.line(`{"type":"init","id":"i","protocol_version":"` + bad + `",` + configText + `}}`)
		r.refused("HB9", "i", "Invalid 'protocol_version' field")
	}
	r = newRig(t, Options{})
	r.line(`{"type":"init","id":"i","protocol_version":"1.1.0",` + configText + `}}`)
	line := r.one()
	if e := line["error"].(map[string]any); e["code"] != "protocol_version_mismatch" || e["message"] != e["code"] || line["id"] != "i" || !r.ended || r.code != 1 {
		t.Errorf("H5: got %v, ended %v with %d", line, r.ended, r.code)
	}
}

func TestMalformedLinesAreRefused(t *testing.T) {
	r := newRig(t, Options{})
	for _, test := range []struct{ rule, line, id, message string }{
		{"H7", `{"type":"send","id":"a","message":"x"}`, "a", notInitialized},
		{"H7", `{"type":"status","id":"a"}`, "a", notInitialized},
		{"H8", `not json`, "unknown", "Invalid JSON"},
		{"H8", ``, "unknown", "Invalid JSON"},
		{"HB6", "{\"type\":\"status\",\"id\":\"\xff\"}", "unknown", "Invalid JSON"},
		{"H9", `[1]`, "unknown", "Expected JSON object"},
		{"H9", `null`, "unknown", "Expected JSON object"},
		{"H9", `{"id":"x"}`, "x", "Missing 'type' field"},
		{"H9", `{"id":"x","type":1}`, "x", "Missing 'type' field"},
		{"H9", `{"type":"status"}`, "unknown", "Missing 'id' field"},
		{"H9", `{"type":"status","id":5}`, "unknown", "Missing 'id' field"},
		{"H9", `{"type":"status","ID":"x"}`, "unknown", "Missing 'id' field"},
		{"H10", `{"type":"send","id":"x"}`, "x", "Missing 'message' field"},
		{"H10", `{"type":"send","id":"x","message":{}}`, "x", "Invalid 'message' field"},
		{"H10", `{"type":"cancel","id":"x"}`, "x", "Missing 'target_id' field"},
		{"H10", `{"type":"dance","id":"x"}`, "x", "Unknown request type 'dance'"},
		{"H10", `{"type":"init","id":"x"}`, "x", "Missing 'config' field"},
		{"H10", `{"type":"init","id":"x","config":{"model":"m","system_prompt":""}}`, "x", "Missing 'config.tools' field"},
		{"H10", `{"type":"init","id":"x","config":{"model":"m","tools":[]}}`, "x", "Missing 'config.system_prompt' field"},
		{"H10", `{"type":"init","id":"x","config":{"tools":[],"system_prompt":""}}`, "x", "Missing 'config.model' field"},
		{"H10", `{"type":"init","id":"x",` + configText + `,"max_iterations":0}}`, "x", "'config.max_iterations' must be at least 1"},
		{"H10", `{"type":"init","id":"x",` + configText + `,"max_iterations":1.5}}`, "x", "Invalid 'config.max_iterations' field"},
		{"H36", `{"type":"init","id":"x",` + configText + `,"runtime":{"mode":"isolated"}}}`, "x", "Missing 'config.runtime.state_root' field"},
		{"H36", `{"type":"init","id":"x",` + configText + `,"runtime":{"mode":"isolated","state_root":"a/b"}}}`, "x", "'config.runtime.state_root' must be an absolute path"},
		{"H36", `{"type":"init","id":"x",` + configText + `,"runtime":{"transcript_path":"a"}}}`, "x", "'config.runtime.transcript_path' must be an absolute path"},
		{"H36", `{"type":"init","id":"x",` + configText + `,"runtime":{"mode":"odd"}}}`, "x", "'config.runtime.mode' must be default or isolated"},
		{"H36", `{"type":"status","id":"a"}`, "a", notInitialized},
	} {
		r.line(test.line)
		r.refused(test.rule, test.id, test.message)
	}
	r.line(`{"type":"init","id":"i","x":[{}],` + configText + `,"Model":{},"y":null,"runtime":null}}` + "\r")
	r.opened()
	if line := r.one(); line["type"] != "init_ok" {
		t.Errorf("H7, H10, H11: got %v", line)
	}
	if s := r.starts[0]; s.Model != "m" || *s.SystemPrompt != "p" || len(s.Tools) != 1 || s.Tools[0] != "read" || !s.Limited || s.MaxIterations != 20 {
		t.Errorf("H11: got the session %+v", s)
	}
	r.line(`{"type":"cancel","id":"k","target_id":"nobody"}`)
	if lines := r.read(); lines != nil {
		t.Errorf("H24: got %v", lines)
	}
}

func TestHeartbeatsKeepTime(t *testing.T) {
	r := ready(t, Options{}, "0.4.0", "")
	for id := range 2 {
		r.line(fmt.Sprintf(`{"type":"send","id":"%d","message":"x"}`, id))
		r.begins()
		r.passes(4999 * time.Millisecond)
		if lines := r.read(); lines != nil {
			t.Errorf("H22: got %v before 5 s", lines)
		}
		r.passes(6 * time.Second)
		lines := r.read()
		for i, want := range []float64{5000, 10000} {
			if e := lines[i]["event"].(map[string]any); e["event"] != "heartbeat" || e["duration_ms"] != want || lines[i]["event_seq"] != float64(i) {
				t.Errorf("H13, H20: got %v, want a heartbeat at %v ms", lines[i], want)
			}
		}
		r.ends()
		if line := r.one(); line["status"] != "ok" {
			t.Errorf("H15: got %v", line)
		}
		r.passes(time.Hour)
		if lines := r.read(); lines != nil {
			t.Errorf("H14, H21: got %v after the result", lines)
		}
	}
	r = ready(t, Options{Heartbeat: -1}, "0.4.0", "")
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	r.passes(time.Hour)
	if lines := r.read(); lines != nil {
		t.Errorf("HB8: got %v without heartbeats", lines)
	}
}

func TestCancelsAreRemembered(t *testing.T) {
	r := ready(t, Options{}, "0.5.0", "")
	r.line(`{"type":"cancel","id":"k","target_id":"b"}`)
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.line(`{"type":"send","id":"b","message":"x"}`)
	r.begins()
	r.ends()
	var got []string
	for _, line := range r.read() {
		if line["type"] == "result" {
			got = append(got, fmt.Sprint(line["id"], " ", line["status"]))
			if f, _ := line["failure"].(map[string]any); line["id"] == "b" && f["cancellation_source"] != "user" {
				t.Errorf("H25: got %v", line)
			}
		}
	}
	if fmt.Sprint(got) != "[a ok b error]" {
		t.Errorf("H25: got %v", got)
	}
	for i := range 3 * maxCancels {
		r.line(fmt.Sprintf(`{"type":"cancel","id":"k","target_id":"%d"}`, i))
	}
	if n := len(r.tr.(*translator).cancels); n != maxCancels {
		t.Errorf("HB7: got %d remembered cancels, want %d", n, maxCancels)
	}
}

func TestFeaturesFollowTheVersion(t *testing.T) { // H37
	for minor, want := range []string{2: "tool_start tool_end usage", 3: "tool_start tool_end usage", 4: "tool_start tool_end usage", 5: "turn_state turn_state tool_start tool_end usage turn_state"} {
		if want == "" {
			continue
		}
		r := ready(t, Options{}, fmt.Sprintf("0.%d.0", minor), "")
		r.line(`{"type":"send","id":"a","message":"x"}`)
		r.begins()
		r.event(&contracts.ResponseStart{ResponseID: "r"})
		r.event(&contracts.ToolCall{CallID: "c", Tool: "read", Args: json.RawMessage(`{"path":"a"}`)})
		r.event(&contracts.ToolStart{CallID: "c"})
		r.event(&contracts.ToolOutput{CallID: "c", Content: strings.Repeat("ä", 700)})
		r.event(&contracts.ToolEnd{CallID: "c"})
		r.rawEvent(`{"type":"model_reply","generation_id":"g"}`)
		r.event(&contracts.ResponseEnd{ResponseID: "r", Usage: contracts.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, TotalTokens: 6, TotalCostUSD: 0.5}})
		r.event(&contracts.ErrorEvent{Message: "failed", ErrorType: contracts.ErrorTransient})
		r.ends()
		lines := r.read()
		result := lines[len(lines)-1]
		var kinds []string
		for _, line := range lines[:len(lines)-1] {
			e := line["event"].(map[string]any)
			if kind := e["event"].(string); kind != "error" {
				kinds = append(kinds, kind)
			}
			if preview, ok := e["result_preview"].(string); ok && (utf8.RuneCountInString(preview) != 500 || !strings.HasPrefix(preview, "Error: ä")) {
				t.Errorf("H19: got %q", preview)
			}
			if e["event"] == "tool_start" && e["name"] != "read_file" {
				t.Errorf("got %v, want the client's name of the tool", e)
			}
		}
		usage, failure := result["usage"].(map[string]any), result["failure"]
		if got := strings.Join(kinds, " "); got != want || (failure != nil) != (minor >= 4) || (usage["generation_id"] == "g") != (minor >= 3) || (usage["cost_micros"] == 500000.0) != (minor >= 3) {
			t.Errorf("H37: 0.%d: got %s, %v", minor, got, result)
		}
		if e := result["error"].(map[string]any); e["code"] != "provider_error" || e["retryable"] != true {
			t.Errorf("H32: got %v", result)
		}
	}
}

func TestQueuesAreBounded(t *testing.T) { // HB2
	r := ready(t, Options{}, "0.4.0", "")
	for i := range maxWaiting + 2 {
		r.line(fmt.Sprintf(`{"type":"send","id":"%d","message":"x"}`, i))
	}
	r.refused("HB2", fmt.Sprint(maxWaiting+1), "A send is already in progress.")
	r.line(`{"type":"shutdown","id":"z"}`)
	r.line(`{"type":"send","id":"late","message":"x"}`)
	r.refused("HB2", "late", "The server is shutting down.")
	for range maxWaiting + 1 {
		r.begins()
		r.ends()
	}
	lines := r.read()
	if len(lines) != maxWaiting+2 || lines[maxWaiting+1]["type"] != "shutdown_ok" || !r.ended || r.code != 0 {
		t.Errorf("H15, H29: got %d lines, the last %v", len(lines), lines[len(lines)-1])
	}
	r = ready(t, Options{}, "0.4.0", "")
	r.line(`{"type":"send","id":"a","message":"x"}`)
	for i := range 2 * maxQueue {
		r.line(fmt.Sprintf(`{"type":"init","id":"%d",%s}}`, i, configText))
	}
	if n := len(r.tr.(*translator).queue); n != maxQueue {
		t.Errorf("got %d waiting requests, want %d", n, maxQueue)
	}
}

func TestShutdownDoesNotWaitForEver(t *testing.T) { // HB12
	r := ready(t, Options{Heartbeat: -1}, "0.4.0", "")
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.line(`{"type":"send","id":"b","message":"x"}`)
	r.line(`{"type":"shutdown","id":"z"}`)
	r.begins()
	r.passes(59 * time.Second)
	if lines := r.read(); lines != nil {
		t.Errorf("HB12: got %v before 60 s", lines)
	}
	r.passes(time.Minute) // the session does not stop the run either
	lines := r.read()
	if len(lines) != 3 || lines[0]["id"] != "a" || lines[1]["id"] != "b" || lines[2]["type"] != "shutdown_ok" {
		t.Errorf("HB12: got %v", lines)
	}
}

func TestLostSessionsEndSends(t *testing.T) {
	r := ready(t, Options{}, "0.4.0", "")
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	r.frame(&contracts.ResetEnvelope{Reason: contracts.ResetLagged, Snapshot: json.RawMessage(`{}`)})
	if e, _ := r.one()["error"].(map[string]any); e["code"] != "protocol_error" || e["retryable"] != true {
		t.Errorf("H15: got %v after a reset", e)
	}
	r.ends()
	r.line(`{"type":"send","id":"b","message":"x"}`)
	r.begins()
	r.do(func(tr dialect.Translator, out *dialect.Out) { tr.Detached(out, errors.New("secret")) })
	if e, _ := r.one()["error"].(map[string]any); e["message"] != "The session has ended" {
		t.Errorf("H15: got %v after the end of the session", e)
	}
	r.line(`{"type":"send","id":"c","message":"x"}`)
	r.refused("H7", "c", notInitialized)
	r.line(`{"type":"init","id":"j",` + configText + `}}`)
	r.line(`{"type":"send","id":"d","message":"x"}`)
	r.do(func(tr dialect.Translator, out *dialect.Out) { tr.Detached(out, nil) })
	lines := r.read()
	if e, _ := lines[0]["error"].(map[string]any); e["message"] != "The session could not be opened" {
		t.Errorf("got %v, want that the session could not be opened", e)
	}
	if len(lines) != 2 || lines[0]["id"] != "j" || lines[1]["id"] != "d" {
		t.Errorf("got %v, want that the init and the send failed", lines)
	}
	r.do(dialect.Translator.EOF)
	if !r.ended || r.code != 0 {
		t.Errorf("H30: got ended %v with %d", r.ended, r.code)
	}
}

// A client has control until its send ends, and then gives it to the client that asks.
func TestControlIsHandedOverBetweenSends(t *testing.T) {
	r := ready(t, Options{}, "0.4.0", "")
	granted := func() (to []string) {
		for _, f := range r.frames {
			if g, ok := f.(*contracts.GrantControl); ok {
				to = append(to, g.ConnectionID)
			}
		}
		return to
	}
	r.frame(&contracts.ControlRequest{ConnectionID: "first"})
	if got := granted(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("got control for %q, want for the first", got)
	}
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.line(`{"type":"send","id":"b","message":"x"}`)
	r.begins()
	r.frame(&contracts.ControlRequest{ConnectionID: "second"})
	if got := granted(); len(got) != 1 {
		t.Errorf("got control for %q while a send runs", got)
	}
	r.ends()
	if got := granted(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("got control for %q, want for the second before the next send", got)
	}
	id := r.lastID()
	r.frame(&contracts.Refusal{ID: &id, Code: contracts.CodeControllerLeaseHeld, Message: "held"})
	if f := r.frames[len(r.frames)-1]; f.FrameType() != "ws.ask_control" {
		t.Errorf("got %v, want that the next send asks for control", f)
	}
}

func TestLongAnswersAreCutWithAMark(t *testing.T) {
	for more, want := range map[int]string{5: "x", 6: "x…", 99: "x…"} {
		r := ready(t, Options{}, "0.4.0", "")
		r.line(`{"type":"send","id":"a","message":"x"}`)
		r.begins()
		s := r.tr.(*translator).send
		s.text = bytes.Repeat([]byte("x"), maxText-5)
		for range more {
			r.event(&contracts.ResponseChunk{ResponseID: "r", Content: "x"})
		}
		if got := s.response(); !strings.HasSuffix(got, want) || len(got) != maxText+len(want)-1 {
			t.Errorf("%d bytes more: got %d bytes that end with %q, want %q", more, len(got), got[len(got)-5:], want)
		}
	}
}

func TestOtherQuestionsAreAnsweredAtOnce(t *testing.T) {
	r := ready(t, Options{}, "0.4.0", `,"extensions":["thinking","call_ids"]`)
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	r.event(&contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestUserInput, CallID: "q", Tool: "ask_user", Args: json.RawMessage(`{}`), Reason: "why"})
	var decoder contracts.Decoder
	cmd, err := decoder.Command(r.frames[len(r.frames)-1].(*contracts.Send).Message)
	if answer, ok := cmd.(*contracts.ServerRequestResponse); err != nil || !ok || !answer.IsError || answer.RequestID != "q" {
		t.Errorf("got %+v, %v, want an answer that says no", cmd, err)
	}
	r.event(&contracts.ResponseStart{ResponseID: "r"})
	r.event(&contracts.ResponseChunk{ResponseID: "r", Content: "hm", IsThinking: true})
	if e := r.one()["event"].(map[string]any); e["thinking"] != true || e["text"] != "hm" {
		t.Errorf("HB11: got %v", e)
	}
	r.event(&contracts.ErrorEvent{Message: "Run interrupted by user", ErrorType: contracts.ErrorCancelled})
	r.ends()
	lines := r.read()
	if e := lines[1]["error"].(map[string]any); e["code"] != "cancelled" {
		t.Errorf("got %v, want that another client's interrupt cancels", lines)
	}
}

func TestUsageIsSummed(t *testing.T) { // HB3
	r := ready(t, Options{}, "0.5.0", "")
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	for i := range 2 {
		r.rawEvent(fmt.Sprintf(`{"type":"model_reply","generation_id":"g%d"}`, i))
		r.event(&contracts.ResponseEnd{ResponseID: "r", Usage: contracts.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, TotalTokens: 10, TotalCostUSD: 0.25}})
	}
	r.event(&contracts.ResponseEnd{ResponseID: "r"}) // usage unknown
	r.ends()
	lines := r.read()
	result := lines[len(lines)-1]
	want := map[string]any{
		"prompt_tokens": 16.0, "completion_tokens": 4.0, "total_tokens": 20.0, "cached_tokens": 6.0, "cache_write_tokens": 8.0,
		"cost_micros": 500000.0, "cost_currency": "USD", "generation_id": "g1",
	}
	if !reflect.DeepEqual(result["usage"], want) || result["iterations"] != 3.0 || len(lines) != 6 {
		t.Errorf("HB3: got %v", lines)
	}
}

// lastAnswer returns the last command that was sent, which must answer a question.
func (r *rig) lastAnswer() *contracts.ServerRequestResponse {
	r.t.Helper()
	var decoder contracts.Decoder
	cmd, err := decoder.Command(r.frames[len(r.frames)-1].(*contracts.Send).Message)
	answer, ok := cmd.(*contracts.ServerRequestResponse)
	if err != nil || !ok {
		r.t.Fatalf("got %+v, %v, want an answer", cmd, err)
	}
	return answer
}

// The approval of this client is one of several votes, and nobody gives the others.
func TestApprovalThatNeedsMoreVotesIsDeniedInTheEnd(t *testing.T) {
	r := ready(t, Options{ApprovalWait: time.Minute}, "0.4.0", `,"extensions":["approve_all"]`)
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	r.event(&contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, CallID: "q", Tool: "read", Args: json.RawMessage(`{}`)})
	for _, approved := range []bool{true, false} {
		if answer := r.lastAnswer(); *answer.Approved != approved {
			t.Errorf("got %+v, want approved: %t", answer, approved)
		}
		r.passes(time.Minute)
	}
}

func TestApprovalsForOtherToolsAreDenied(t *testing.T) { // H33
	r := ready(t, Options{}, "0.4.0", `,"extensions":["approve_all"]`)
	r.line(`{"type":"send","id":"a","message":"x"}`)
	r.begins()
	for tool, want := range map[string]bool{"bash": false, "read": true} { // the client lists read_file
		r.event(&contracts.ServerRequest{RequestID: tool, RequestType: contracts.RequestApproval, CallID: tool, Tool: tool, Args: json.RawMessage(`{}`), Reason: "why"})
		if answer := r.lastAnswer(); answer.RequestID != tool || *answer.Approved != want {
			t.Errorf("H33: %s: got %+v", tool, answer)
		}
	}
}
