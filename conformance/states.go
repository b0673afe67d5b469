package conformance

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
	"github.com/seed-028515a8/maestro/internal/session"
)

// states judges the runtime state in snapshots: R72 to R80.
func states() []Scenario {
	return []Scenario{
		onSocket.scenario("state/fresh", "R72", "A fresh state has empty lists and leaves out what is unknown", func(s *Session) {
			f := s.controller().last(control("snapshot"))
			checkIdle(s, "R72", f)
			state, _ := f.at("state").(map[string]any)
			for _, key := range []string{"current_response", "last_error", "last_error_type", "last_response_duration_ms", "last_ttft_ms"} {
				v, present := state[key]
				s.failIf(present, "R72", "expected no %s in a fresh state, got %s", key, show(v))
			}
			for _, key := range append(slices.Clone(nothingGoingOn), "connections") {
				_, ok := state[key].([]any)
				s.failIf(!ok, "R72", "expected a list %s, got %s", key, show(state[key]))
			}
			s.shows("A42", f, fields{"session_id": s.ID})
		}),
		onSocket.triggers().pilot("state/replay", "R79", "Folding what was received gives the server's snapshot", func(_ *Session, m *pilot) {
			m.compare("R79")
			m.prompt("hello")
			m.p.expect("6.2", prompted("hello"))
			m.prompt(streamOf(5, 0))
			m.p.expect("R36", message("response_chunk"))
			m.p.expect("R37", message("response_end"))
			m.compare("R79")
			m.do(&contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
			m.prompt(burstOf(20, 10))
			m.p.fence()
			m.prompt(speaking())
			m.p.expect("R36", message("response_chunk"))
			m.compare("R79")
			m.do(&contracts.Interrupt{})
			m.p.expect("R37", message("response_end"))
			m.compare("R79")
		}),
		onSocket.scenario("state/replay-of-requests", "R79 R75 R76", "Folding questions and answers gives the server's snapshot", func(s *Session) {
			kinds := s.negotiateRequests(contracts.RequestTypes()...)
			s.conformanceAgent()
			m := s.pilot()
			for _, kind := range kinds {
				m.prompt(s.question(kind, "fold-"+string(kind), toolFor(kind)))
				m.p.expect("R50", requested("fold-"+string(kind)))
			}
			m.compare("R79")
			answers := map[contracts.RequestType]contracts.Command{
				contracts.RequestApproval:       approve("fold-approval", true),
				contracts.RequestClientTool:     &contracts.ClientToolResult{CallID: "fold-client_tool", Content: []contracts.ContentBlock{}, IsError: true},
				contracts.RequestMCPElicitation: &contracts.ServerRequestResponse{RequestID: "fold-mcp_elicitation", RequestType: contracts.RequestMCPElicitation},
				contracts.RequestUserInput:      &contracts.ServerRequestResponse{RequestID: "fold-user_input", RequestType: contracts.RequestUserInput, IsError: true},
				contracts.RequestToolRetry:      &contracts.ServerRequestResponse{RequestID: "fold-tool_retry", RequestType: contracts.RequestToolRetry, DecisionAction: contracts.RetryActionSkip},
			}
			for _, kind := range kinds {
				m.do(answers[kind])
				m.compare("R76")
			}
		}),
		onSocket.triggers().pilot("state/replay-of-interrupt", "R79 R69 R70", "Folding an interrupted run gives the server's snapshot", func(s *Session, m *pilot) {
			m.prompt(s.question(contracts.RequestApproval, "fold", "bash"))
			m.p.expect("R50", requested("fold"))
			m.prompt(speaking())
			m.p.expect("R36", message("response_chunk"))
			m.do(&contracts.Interrupt{})
			m.p.expect("R37", message("response_end"))
			m.p.expect("3.5", message("error").with("error_type", "cancelled"))
			m.compare("R79")
		}),
		onSocket.controller("state/snapshots-agree", "2.2 R79", "Snapshots taken together are equal and never go back", func(s *Session, p *Peer) {
			p.prompt(burstOf(50, 20))
			p.prompt("settled")
			p.expect("R79", prompted("settled"))
			p.fence()
			a := s.viewer("vera").last(control("snapshot"))
			b := s.viewer("victor").last(control("snapshot"))
			s.failIf(b.Cursor < a.Cursor, "2.2", "a snapshot as of cursor %d follows one as of %d", b.Cursor, a.Cursor)
			s.failIf(a.Cursor < p.watch.floor, "2.2",
				"a ws.result announced cursor %d, a snapshot taken afterwards is as of %d", p.watch.floor, a.Cursor)
			for _, f := range []*Frame{a, b} {
				s.shows("R79", f, fields{"state.last_status": "Prompt: settled"})
			}
		}),
		onSocket.controller("state/last-status", "R79", "A prompt clears the last status and error, and a status sets it", func(s *Session, p *Peer) {
			p.prompt("first")
			p.expect("6.2", prompted("first"))
			s.shows("R79", s.viewer("vera").last(control("snapshot")), fields{"state.last_status": "Prompt: first"})
			p.prompt(hang())
			f := s.viewer("victor").last(control("snapshot"))
			if f.str("state.last_status") == "Prompt: first" || f.at("state.is_responding") != true {
				s.fail("R79", "expected an accepted prompt to clear last_status and set is_responding, got %s and %s",
					show(f.at("state.last_status")), show(f.at("state.is_responding")))
			}
			p.accepted("R66", p.command(&contracts.Interrupt{}))
		}),
	}
}

// bookkeeping names the fields that clients cannot fold: who is connected.
var bookkeeping = []string{"protocol_version", "client_protocol_version", "client_info", "capabilities", "opt_out_notifications",
	"connection_role", "connection_count", "subscriber_count", "controller_subscription_id", "controller_connection_id", "connections"}

func checkState(s *Session, name string, f *Frame) {
	s.shows("A47", f, fields{"protocolVersion": contracts.ProtocolVersion})
	s.failIf(f.at("state.current_response") != nil && f.at("state.is_responding") != true, "R36",
		"%s: the state has a current_response and is_responding false", name)
	var ids []string
	for _, r := range waitingIn(f) {
		s.failIf(r.entry["request_id"] == r.entry["call_id"], "R74",
			"%s: pending %s stores a request_id that equals its call_id %q", name, r.kind, r.id)
		ids = append(ids, r.id)
	}
	if f.at("state.pending_requests") == nil && s.published() { // there is advice about it already
		return
	}
	var unified []string
	for _, r := range listOf(f, "state.pending_requests") {
		unified = append(unified, textOf(r, "id"))
	}
	s.failIf(!slices.Equal(ids, unified), "R73",
		"%s: the five pending lists hold %q, pending_requests %q", name, ids, unified)
}

// pendingLists are the five lists of what waits, in the order of pending_requests.
var pendingLists = []struct {
	key  string
	kind contracts.RequestType
}{
	{"pending_approvals", contracts.RequestApproval}, {"pending_client_tools", contracts.RequestClientTool},
	{"pending_mcp_elicitations", contracts.RequestMCPElicitation}, {"pending_user_inputs", contracts.RequestUserInput},
	{"pending_tool_retries", contracts.RequestToolRetry},
}

// A waitingRequest is one that a snapshot lists.
type waitingRequest struct {
	id    string
	kind  contracts.RequestType
	entry map[string]any // in the list of its kind
}

func waitingIn(f *Frame) []waitingRequest {
	var all []waitingRequest
	for _, list := range pendingLists {
		for _, e := range listOf(f, "state."+list.key) {
			all = append(all, waitingRequest{cmp.Or(textOf(e, "request_id"), textOf(e, "call_id")), list.kind, e})
		}
	}
	return all
}

// A mirror folds what a controller sends and receives, to be compared with the
// server's own state.
type mirror struct {
	p     *Peer
	begin *Frame // snapshot before the log; nil if the log has it
	moves []move
}

// A move is a command that was accepted when the log had come to at.
type move struct {
	at  int
	cmd contracts.Command
}

// differs fails unless a snapshot is what the messages up to it give.
func (m *mirror) differs(rule string, f *Frame) {
	s := m.p.s
	mine := m.fold(uint64(f.Cursor))
	theirs, _ := f.at("state").(map[string]any)
	for _, key := range bookkeeping {
		delete(mine, key)
		delete(theirs, key)
	}
	if theirs["pending_requests"] == nil && s.published() { // there is advice about it already
		delete(mine, "pending_requests")
	}
	if s.scripted() { // its prompts have no response, and no event says when such a run ends
		delete(mine, "is_responding")
		delete(theirs, "is_responding")
	}
	keys := maps.Clone(mine)
	maps.Copy(keys, theirs)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		s.failIf(!reflect.DeepEqual(mine[key], theirs[key]), rule,
			"as of cursor %d the messages give %s %s, the snapshot says %s", f.Cursor, key, show(mine[key]), show(theirs[key]))
	}
}

// fold plays the log up to a cursor, starting from its first snapshot.
func (m *mirror) fold(cursor uint64) map[string]any {
	var d contracts.Decoder
	state, moves := session.New(), m.moves
	begun := m.begin != nil
	if begun {
		m.restore(state, m.begin)
	}
	for i, f := range m.p.log {
		for len(moves) > 0 && moves[0].at <= i {
			state.ApplyCommand(moves[0].cmd)
			moves = moves[1:]
		}
		switch {
		case f.Kind == "snapshot" && !begun:
			m.restore(state, f)
			begun = true
		case f.Kind == "message" && uint64(f.Cursor) <= cursor:
			ev, err := d.Event(encode(f.Fields))
			m.p.s.failIf(err != nil, "R15", "decode a message: %v", err)
			state.Apply(ev)
		}
	}
	return parsed(encode(state.Snapshot(cursor).State))
}

func (m *mirror) restore(state *session.State, f *Frame) {
	var d contracts.Decoder
	snap, err := d.Snapshot(encode(f.Fields))
	m.p.s.failIf(err != nil, "A47", "decode the snapshot: %v", err)
	state.Restore(snap)
}

// parsed decodes an object of ours, numbers as written.
func parsed(text []byte) map[string]any {
	v, err := shape.Parse(text)
	if err != nil {
		panic("conformance: " + err.Error())
	}
	m, _ := v.(map[string]any)
	return m
}
