package conformance

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A watch holds everything one client receives against the invariants of the
// protocol: those that are true of any exchange, whatever the scenario.
type watch struct {
	// complete is false while messages may refer to earlier ones that this
	// client never saw: on a socket until the first snapshot or reset.
	complete bool
	// joined is true after a snapshot. What was interrupted before it is not in
	// it, but may still end after it.
	joined bool

	cursor int64 // of the last message, snapshot or reset
	asked  int64 // that the client presented when it opened a stream
	floor  int64 // highest cursor of a ws.result: everything up to it was due before
	seq    int64 // of the last answer

	response string          // id of the open response, or empty
	chunks   int             // of the open response
	finished map[string]bool // ids of ended responses
	tools    map[string]toolStage
	gated    map[string]bool   // calls announced with requires_approval
	legacy   map[string]bool   // calls announced by client_tool_request
	tenures  map[string]tenure // of commands and watches
	open     map[string]*Frame // waiting server requests by request_id

	waiting  []awaited       // frames with an id that have no answer yet, in order
	known    map[string]bool // ids used before: their answers repeat stored ones
	loose    []string        // ids whose answers are not expected to name them
	hellos   int             // sent and not yet acknowledged
	resumed  bool            // ws.resume came before hello; a server may leave it out of the count
	optOuts  []string        // in force since the last hello_ok
	late     bool            // optOuts came after the stream was opened
	raw      bool            // raw events were negotiated
	people   bool            // people was negotiated
	farewell int64           // close code announced by ws.goodbye
}

// awaited is a frame with an id that wants an answer.
type awaited struct {
	id  string
	seq int // ordinal of the frame; 0 if an answer may carry another
}

// toolStage is how far a tool call has come.
type toolStage int

const (
	toolCalled toolStage = iota
	toolStarted
	toolEnded
)

func (w *watch) init() {
	w.finished, w.tools = map[string]bool{}, map[string]toolStage{}
	w.gated, w.legacy, w.tenures = map[string]bool{}, map[string]bool{}, map[string]tenure{}
	w.open, w.known = map[string]*Frame{}, map[string]bool{}
}

// await notes a frame that wants an answer.
func (w *watch) await(id string, seq int) {
	if w.known[id] {
		seq = 0
	}
	w.known[id] = true
	w.waiting = append(w.waiting, awaited{id, seq})
}

func (w *watch) observe(p *Peer, f *Frame) {
	switch f.Kind {
	case "message":
		if w.isOldItem(p, f) {
			return
		}
		w.order(p, f)
		w.message(p, f)
	case "snapshot":
		if w.isRepeatedSnapshot(p, f) {
			return
		}
		w.order(p, f)
		if !w.complete { // a later snapshot adds nothing, and after an interrupt it may lack open items
			w.adopt(f)
		}
		checkState(p.s, p.name, f)
	case "reset":
		w.cursor, w.floor = f.Cursor, 0
		w.adopt(f)
		checkState(p.s, p.name, f)
	case "heartbeat":
		w.heartbeat(p, f)
	case "history":
		if f.Body["id"] != nil && p.s.socket() {
			w.answer(p, f)
		}
	case "ws.result", "ws.error":
		w.answer(p, f)
	case "ws.goodbye":
		w.farewell = number(f.Body["code"])
	}
}

// isOldItem reports whether a message is not beyond the cursor that the client presented
// when it opened the stream: a published server sends all that a subscription has kept.
func (w *watch) isOldItem(p *Peer, f *Frame) bool {
	if p.stream == nil || !p.s.published() || w.cursor != w.asked || f.Cursor > w.asked {
		return false
	}
	p.s.advise("1.9:old-items", "%s: expected nothing up to the cursor %d, got %s", p.name, w.asked, f.said())
	return true
}

// optOutRule returns the rule that a notification breaks which was opted out of. A
// published server applies to a stream the opt-outs of the time when it was opened.
func (w *watch) optOutRule(rule string) string {
	if w.late {
		return "2.4:at-once"
	}
	return rule
}

// isRepeatedSnapshot reports whether a snapshot has no cursor of its own: a published
// server gives it the latest cursor, and sends it again in a replay.
func (w *watch) isRepeatedSnapshot(p *Peer, f *Frame) bool {
	if !p.s.published() || w.cursor == 0 || f.Cursor > w.cursor {
		return false
	}
	p.s.advise("2.2:snapshots", "%s: expected a snapshot beyond cursor %d, got %s", p.name, w.cursor, f.said())
	checkState(p.s, p.name, f)
	return true
}

// order checks the cursors of messages and snapshots (A48), and that an answer
// was not sent before the entries that it covers.
func (w *watch) order(p *Peer, f *Frame) {
	if !p.s.socket() {
		return
	}
	p.s.failIf(f.Cursor <= w.cursor && (w.cursor > 0 || f.Kind == "message"), "A48",
		"%s: expected cursors to increase, got %d after %d in %s", p.name, f.Cursor, w.cursor, f.said())
	p.s.failIf(w.floor > 0 && f.Cursor <= w.floor, "2.5",
		"%s: a ws.result had announced cursor %d, and %s came after it", p.name, w.floor, f.said())
	w.cursor = f.Cursor
}

func (w *watch) heartbeat(p *Peer, f *Frame) {
	p.s.adviseIf(slices.Contains(w.optOuts, "heartbeat"), w.optOutRule("A53"),
		"%s: heartbeats were opted out of, got one", p.name)
	p.s.adviseIf(f.Cursor < w.cursor, "A57",
		"%s: a heartbeat repeats the latest cursor, got %d after %d", p.name, f.Cursor, w.cursor)
}

func (w *watch) answer(p *Peer, f *Frame) {
	seq := number(f.Body["seq"])
	p.s.adviseIf(f.Kind == "ws.error" && f.Body["code"] != f.Body["error_type"], "A73",
		"%s: expected code and error_type to be the same, got %s", p.name, f.said())
	if f.Kind == "ws.result" {
		w.floor = max(w.floor, number(f.Body["cursor"]))
	}
	id, correlated := f.Body["id"].(string)
	if !correlated || slices.Contains(w.loose, id) {
		w.sequence(p, f, seq)
		return
	}
	p.s.failIf(len(w.waiting) == 0 || w.waiting[0].id != id, "A116",
		"%s: expected an answer to %v next, got %s", p.name, w.waiting, f.said())
	first := w.waiting[0]
	w.waiting = w.waiting[1:]
	if first.seq == 0 || f.Kind == "history" { // a page has no number
		return
	}
	w.sequence(p, f, seq)
	ordinal := int64(first.seq)
	p.s.failIf(seq != ordinal && !(w.resumed && seq == ordinal-1), "9.2",
		"%s: seq is the ordinal of the frame on its socket, %d, got %d in %s", p.name, ordinal, seq, f.said())
}

func (w *watch) sequence(p *Peer, f *Frame, seq int64) {
	p.s.failIf(seq <= w.seq, "A116",
		"%s: answers come in the order of their frames, got seq %d after %d in %s", p.name, seq, w.seq, f.said())
	w.seq = seq
}

// adopt replaces what is known of responses, tools and requests.
func (w *watch) adopt(f *Frame) {
	w.complete, w.joined = true, true
	w.response, w.chunks = f.str("state.current_response.response_id"), 0
	if w.response != "" {
		w.chunks = 1 // unknown; enough not to ask why ttft_ms is there
	}
	clear(w.tools)
	clear(w.open)
	clear(w.tenures)
	for _, t := range listOf(f, "state.tracked_tools") {
		w.tools[textOf(t, "call_id")] = toolCalled
	}
	for _, t := range listOf(f, "state.active_tools") {
		w.tools[textOf(t, "call_id")] = toolStarted
	}
	for _, r := range waitingIn(f) {
		w.open[r.id] = &Frame{Type: "server_request", Fields: map[string]any{
			"request_id": r.id, "request_type": string(r.kind), "call_id": r.entry["call_id"]}}
	}
}

func (w *watch) message(p *Peer, f *Frame) {
	switch f.Type {
	case "hello_ok":
		w.acknowledged(p, f)
	case "status", "connection_info", "compaction":
		if f.Type == "status" {
			p.s.skipUnknownTrigger(f.str("message"))
		}
		p.s.adviseIf(slices.Contains(w.optOuts, f.Type), w.optOutRule("R31"),
			"%s: %s was opted out of, got %s", p.name, f.Type, f.said())
	case "raw_agent_event":
		p.s.failIf(!w.raw, "A54", "%s: raw events were not negotiated, got %s", p.name, f.said())
	case "prompt_accepted", "control_changed", "queue_changed", "request_shown", "request_voted":
		p.s.failIf(!w.people && w.hellos == 0, "R32:people", "%s: people was not negotiated, got %s", p.name, f.said())
	case "error":
		p.s.failIf(f.at("fatal") == true, "R104",
			"%s: nothing here ends the runtime, got a fatal error: %s", p.name, f.str("message"))
	case "response_start", "response_chunk", "response_end":
		w.responseEvent(p, f)
	case "tool_call", "tool_start", "tool_output", "tool_end":
		w.toolEvent(p, f)
	case "client_tool_request":
		w.legacy[f.str("call_id")] = true
	case "server_request":
		w.requested(p, f)
	case "server_request_resolved":
		p.s.failIf(f.at("author") != nil && !w.people && w.hellos == 0,
			"R32:people", "%s: people was not negotiated, got %s", p.name, f.said())
		w.resolved(p, f)
	default:
		w.utility(p, f)
	}
}

func (w *watch) acknowledged(p *Peer, f *Frame) {
	p.s.failIf(w.hellos == 0, "A60", "%s: expected one hello_ok for one hello, got %s", p.name, f.said())
	got := f.str("client_info.name")
	p.s.failIf(got != "" && got != p.name, "A60", "%s: got the hello_ok of %s", p.name, got)
	w.hellos--
	w.optOuts, w.late = texts(f.at("opt_out_notifications")), p.stream != nil
	w.raw, w.people = f.at("capabilities.raw_agent_events") == true, f.at("capabilities.people") == true
}

func (w *watch) responseEvent(p *Peer, f *Frame) {
	id := f.str("response_id")
	switch {
	case f.Type == "response_start":
		p.s.failIf(w.finished[id], "R36", "%s: response %s starts again after its response_end", p.name, id)
		p.s.failIf(w.response != "", "R36", "%s: response %s starts, but response %s has no response_end yet", p.name, id, w.response)
		w.response, w.chunks = id, 0
	case w.response == "" && w.joined && !w.finished[id]: // begun before we came
	case w.response != id && w.complete:
		p.s.fail("R36", "%s: %s of %s while %q is open", p.name, f.Type, id, w.response)
	case f.Type == "response_chunk":
		w.chunks++
	default:
		checkEnd(p, f, w.chunks, w.complete)
		w.response, w.finished[id] = "", true
	}
}

func checkEnd(p *Peer, f *Frame, chunks int, complete bool) {
	sum := int64(0)
	for _, k := range []string{"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"} {
		sum += number(f.at("usage." + k))
	}
	total := number(f.at("usage.total_tokens"))
	p.s.failIf(total != sum, "R38", "%s: total_tokens is the sum of the four counts, %d, got %d", p.name, sum, total)
	used := texts(f.at("tools_summary.tools_used"))
	p.s.failIf(!slices.IsSorted(used) || len(slices.Compact(slices.Clone(used))) != len(used), "R39",
		"%s: tools_used is sorted and free of duplicates, got %v", p.name, used)
	labels, present := f.at("tools_summary.summary_labels").([]any)
	p.s.failIf(present && len(labels) == 0, "R39", "%s: summary_labels is absent when empty, got []", p.name)
	ttft, present := f.at("ttft_ms").(json.Number)
	at, duration := number(ttft), number(f.at("duration_ms"))
	p.s.failIf(present && (at < 0 || at > duration), "R40",
		"%s: ttft_ms lies between 0 and duration_ms %d, got %d", p.name, duration, at)
	p.s.failIf(complete && present && chunks == 0, "R40",
		"%s: ttft_ms is absent when no chunk was sent, got %s", p.name, ttft)
}

func (w *watch) toolEvent(p *Peer, f *Frame) {
	id := f.str("call_id")
	stage, known := w.tools[id]
	switch f.Type {
	case "tool_call":
		w.gated[id] = f.at("requires_approval") == true
		if stage == toolStarted && w.gated[id] {
			return // a question about a call that runs
		}
		p.s.failIf(known && stage != toolCalled, "R46", "%s: tool_call %s after its tool_start or tool_end", p.name, id)
		w.tools[id] = toolCalled
		return
	case "tool_start":
		p.s.failIf(w.complete && (known || !w.joined) && (!known || stage != toolCalled), "R46",
			"%s: tool_start %s without its tool_call", p.name, id)
		w.tools[id] = toolStarted
		return
	case "tool_output":
		p.s.failIf(w.complete && (known || !w.joined) && stage != toolStarted, "R46",
			"%s: tool_output of %s outside tool_start and tool_end", p.name, id)
		return
	}
	p.s.failIf(stage == toolEnded, "R46", "%s: a second tool_end for %s", p.name, id)
	w.tools[id] = toolEnded
}

func (w *watch) requested(p *Peer, f *Frame) {
	id, call := f.str("request_id"), f.str("call_id")
	if w.open[id] != nil {
		rule := "R50"
		if p.s.socket() { // a published server may ask twice there
			rule = "R50:once"
		}
		p.s.advise(rule, "%s: expected exactly one server_request %s, got a second: %s", p.name, id, f.said())
	}
	w.open[id] = f
	if !w.complete || p.s.scripted() {
		return
	}
	switch f.str("request_type") {
	case "approval":
		p.s.failIf(!w.gated[call], "R50",
			"%s: server_request %s without the tool_call that requires approval", p.name, id)
	case "client_tool", "user_input":
		p.s.failIf(!w.legacy[call], "R59", "%s: server_request %s without its client_tool_request", p.name, id)
	}
}

// verdicts lists the legal pairs of resolution and resolved_by (3.4).
var verdicts = map[string][]string{
	"approval":        {"approved/user", "denied/user", "approved/policy", "denied/policy", "cancelled/runtime"},
	"client_tool":     {"completed/client", "failed/client", "failed/policy", "cancelled/runtime"},
	"mcp_elicitation": {"answered/client", "failed/client", "failed/policy", "cancelled/runtime"},
	"user_input":      {"answered/client", "failed/client", "failed/policy", "cancelled/runtime"},
	"tool_retry":      {"retried/user", "skipped/user", "aborted/user", "cancelled/policy", "cancelled/runtime"},
}

func (w *watch) resolved(p *Peer, f *Frame) {
	id, kind := f.str("request_id"), f.str("request_type")
	request := w.open[id]
	p.s.failIf(request == nil && w.complete, "R52",
		"%s: expected one resolution per request, got one for %s, which is not open", p.name, id)
	delete(w.open, id)
	p.s.failIf(request != nil && (request.str("request_type") != kind || request.str("call_id") != f.str("call_id")), "R52",
		"%s: the resolution of %s has another type or call than its request: %s", p.name, id, f.said())
	pair := f.str("resolution") + "/" + f.str("resolved_by")
	p.s.failIf(!p.s.scripted() && !slices.Contains(verdicts[kind], pair), "R52",
		"%s: %s is no way for a %s to end", p.name, pair, kind)
}

// end checks how a link ended.
func (w *watch) end(p *Peer, err error) {
	closed, ok := errors.AsType[*Closed](err)
	if ok && w.farewell != 0 && int64(closed.Code) != w.farewell {
		p.s.fail("9.5", "%s: ws.goodbye announced %d, the close says %d", p.name, w.farewell, closed.Code)
	}
	if !p.s.socket() && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) { // closed by this end
		p.s.fail("R1", "%s: %v", p.name, err)
	}
}

func listOf(f *Frame, path string) []map[string]any { return elements[map[string]any](f.at(path)) }

func textOf(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func texts(v any) []string { return elements[string](v) }

// elements returns those of a list that have a type.
func elements[T any](v any) []T {
	items, _ := v.([]any)
	list := make([]T, 0, len(items))
	for _, item := range items {
		if e, ok := item.(T); ok {
			list = append(list, e)
		}
	}
	return list
}

// A tenure is how far a command or a watch has come, as one client sees it.
type tenure int

const (
	unheard tenure = iota // begun before the client came, or never
	onPipes               // of commands
	onTerminal
	watching // of watches
	over
)

// utility checks one message about a command or a watch: R84, R99, 2.2 and 5.1.
func (w *watch) utility(p *Peer, f *Frame) {
	id := cmp.Or(f.str("command_id"), "watch "+f.str("watch_id"))
	was := w.tenures[id]
	running := was != unheard && was != over
	switch f.Type {
	case "utility_command_started":
		p.s.failIf(running, "R83", "%s: %s starts while it is running", p.name, id)
		w.tenures[id] = onPipes
		if f.at("terminal_mode") == string(contracts.TerminalPTY) {
			w.tenures[id] = onTerminal
		}
	case "utility_file_watch_started":
		p.s.failIf(running, "5.4", "%s: %s starts while it is active", p.name, id)
		w.tenures[id] = watching
	case "utility_command_output", "utility_command_resized", "utility_command_exited", "utility_file_watch_event", "utility_file_watch_stopped":
		rule := "R84"
		if strings.HasPrefix(f.Type, "utility_file_watch") {
			rule = "R99"
		}
		p.s.failIf(was == over || was == unheard && w.complete && !w.joined, rule,
			"%s: %s comes before %s started or after it ended: %s", p.name, f.Type, id, f.said())
		w.utilityEvent(p, f, id, was)
	}
}

// utilityEvent checks what lies within the life of a command or a watch, and ends
// it.
func (w *watch) utilityEvent(p *Peer, f *Frame, id string, was tenure) {
	switch f.Type {
	case "utility_command_output":
		p.s.failIf(was == onTerminal && f.str("stream") != "stdout", "2.2",
			"%s: a terminal has no stream but stdout, got %s", p.name, f.said())
		n := len(f.str("content"))
		p.s.adviseIf(n > contracts.MaxTextBytes, "5.1:pieces",
			"%s: expected at most %d bytes of output in a message, got %d", p.name, contracts.MaxTextBytes, n)
	case "utility_command_resized":
		p.s.failIf(was == onPipes, "R90", "%s: a pipe has no size, got %s", p.name, f.said())
	case "utility_command_exited", "utility_file_watch_stopped":
		w.tenures[id] = over
	}
}
