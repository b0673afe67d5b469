package main

import (
	"net/http"
	"slices"
	"time"
)

// scenarios returns the suite in its order.
func scenarios() []scenario {
	return []scenario{
		{"subscriptions", "A controller and a viewer subscribe and send heartbeats", subscriptions},
		{"lease", "Viewers and second controllers are refused, a take-over works", lease},
		{"stream", "A stream follows, replays, and resets what it cannot replay", follow},
		{"approval", "A denied approval is resolved with the reason given", approval},
		{"files", "A file is read as far as asked, and none outside the workspace", files},
		{"utilities", "Commands, searches and watches work and belong to their owner", utilities},
		{"drain", "A drained runner is restored from its manifest", drain},
		{"disconnect", "Disconnecting answers exactly, and the replay outlives it", disconnect},
	}
}

func subscriptions(s *stage) {
	alice, first := s.subscribe("controller", false)
	s.want(first.number("heartbeat_interval_ms") > 0, "got heartbeat interval %v, want a positive one", first.at("heartbeat_interval_ms"))
	vera, second := s.subscribe("viewer", false)
	s.want(second.str("controller_connection_id") == alice.connection,
		"the viewer is told of controller %q, want %q", second.str("controller_connection_id"), alice.connection)
	for who, granted := range map[member]bool{alice: true, vera: false} {
		b := s.beat(who)
		s.want(b.at("controller_lease_granted") == granted && b.str("controller_connection_id") == alice.connection,
			"got a heartbeat with lease %v and controller %q, want %v and %q",
			b.at("controller_lease_granted"), b.str("controller_connection_id"), granted, alice.connection)
		if at := b.at("lease_expires_at"); at != nil {
			_, err := time.Parse(time.RFC3339, b.str("lease_expires_at"))
			s.want(err == nil, "got lease_expires_at %v, want a time of RFC 3339", at)
		}
	}
	st := s.state()
	s.want(st.number("state", "connection_count") == 2 && st.number("state", "subscriber_count") == 2,
		"got %v connections and %v subscriptions, want 2 of each", st.at("state", "connection_count"), st.at("state", "subscriber_count"))
}

func lease(s *stage) {
	alice, _ := s.subscribe("controller", false)
	vera, _ := s.subscribe("viewer", false)
	s.refused(s.try(vera, prompt("from a viewer")), http.StatusForbidden, "Viewer headless connections cannot send messages")
	s.refused(s.trySubscribe("controller", false), http.StatusConflict, "Controller lease is already held by another connection")
	bob, _ := s.subscribe("controller", true)
	b := s.beat(alice)
	s.want(b.at("controller_lease_granted") == false && b.str("controller_connection_id") == bob.connection,
		"after a take-over, the old controller's heartbeat says lease %v and controller %q, want false and %q",
		b.at("controller_lease_granted"), b.str("controller_connection_id"), bob.connection)
	s.refused(s.try(alice, prompt("too late")), http.StatusConflict, "Controller lease is currently held by another connection")
	s.send(bob, prompt("in charge"))
}

func follow(s *stage) {
	alice, _ := s.subscribe("controller", false)
	t := s.open(nil)
	first := t.next("a snapshot")
	s.want(first.str("type") == "snapshot", "the first item of the stream is a %s, want a snapshot", first.str("type"))
	initial := object{"type": "init", "system_prompt": "Answer briefly.", "approval_mode": "prompt"}
	shown := s.send(alice, initial)
	for key, value := range initial {
		s.want(shown.at("last_init", key) == value, "last_init says %s %v, want %v", key, shown.at("last_init", key), value)
	}
	shown = s.send(alice, prompt("hello"))
	s.want(shown.str("state", "last_status") == "Prompt: hello", "the answer's state says %q, want what the prompt did", shown.str("state", "last_status"))
	_, cursor := t.message("status", object{"message": "Prompt: hello"})

	replayed := s.probe(0)
	s.inOrder(replayed, 0)
	s.want(slices.ContainsFunc(replayed, func(o object) bool {
		return isMessage(o, "status", object{"message": "Prompt: hello"}) && o.number("cursor") == cursor
	}), "the replay from 0 (%d envelopes within %v) is without the status at cursor %d", len(replayed), probeFor, cursor)
	later := s.probe(cursor)
	s.inOrder(later, cursor)

	reset := s.open(new(int64(-999))).next("a reset")
	s.want(reset.str("type") == "reset" && reset.str("reason") == "replay_gap",
		"for cursor -999 the first item is %s %s, want reset replay_gap", reset.str("type"), reset.str("reason"))
}

// inOrder fails unless the messages of a replay come after a cursor, in order.
func (s *stage) inOrder(envelopes []object, after int64) {
	for _, o := range envelopes {
		if o.str("type") == "message" {
			s.want(o.number("cursor") > after, "the replay has cursor %d after %d", o.number("cursor"), after)
			after = o.number("cursor")
		}
	}
}

func approval(s *stage) {
	const id, reason = "req_conformance", "Approval requested by the conformance suite"
	alice, _ := s.subscribe("controller", false)
	t := s.open(nil)
	shown := s.send(alice, prompt(`__maestro_conformance_approval__:{"request_id":"`+id+`","tool":"bash","args":{"command":"ls"},"reason":"`+reason+`"}`))
	isIt := func(o object) bool { return o.str("call_id") == id && o.str("tool") == "bash" }
	s.want(slices.ContainsFunc(shown.items("state", "pending_approvals"), isIt), "the answer's state has no pending approval %s", id)
	asked, first := t.message("server_request", object{"request_type": "approval", "request_id": id, "call_id": id, "tool": "bash", "reason": reason})
	s.want(asked.str("args", "command") == "ls", "got args %v, want those of the prompt", asked.at("args"))

	shown = s.send(alice, object{"type": "server_request_response", "request_id": id, "request_type": "approval", "approved": false,
		"result": object{"success": false, "output": "", "error": "Denied by the conformance suite"}})
	s.want(!slices.ContainsFunc(shown.items("state", "pending_approvals"), isIt), "the answer's state still has the approval pending")
	_, second := t.message("server_request_resolved", object{"request_type": "approval", "request_id": id, "call_id": id,
		"resolution": "denied", "resolved_by": "user", "reason": "Denied by the conformance suite"})
	s.want(second > first, "the request has cursor %d and its resolution %d, want them in order", first, second)
}

func files(s *stage) {
	alice, _ := s.subscribe("controller", false)
	t := s.open(nil)
	s.send(alice, object{"type": "utility_file_read", "read_id": "read_1", "path": "notes.md", "limit": 2})
	t.message("utility_file_read_result", object{"read_id": "read_1", "relative_path": "notes.md", "content": "alpha\nbeta", "truncated": true})
	s.refused(s.try(alice, object{"type": "utility_file_read", "read_id": "read_2", "path": s.secret}), http.StatusForbidden, "outside")
}

func disconnect(s *stage) {
	alice, _ := s.subscribe("controller", false)
	vera, _ := s.subscribe("viewer", false)
	s.send(alice, prompt("before the end"))
	s.farewell(vera, alice.connection)
	s.want(s.beat(alice).at("controller_lease_granted") == true, "the controller has lost its lease to a viewer's leaving")
	s.farewell(alice, nil)
	s.want(s.state().at("state", "controller_connection_id") == nil, "the state still names a controller")
	s.want(slices.ContainsFunc(s.probe(0), func(o object) bool {
		return isMessage(o, "status", object{"message": "Prompt: before the end"})
	}), "after everybody left, the replay from 0 is without the prompt's status")
}

// farewell disconnects, and compares the answer exactly.
func (s *stage) farewell(m member, controller any) {
	a := s.ok(s.call(http.MethodPost, route("disconnect"), object{"connectionId": m.connection}))
	want := object{"success": true, "connection_id": m.connection, "controller_connection_id": controller,
		"disconnected_subscription_ids": []any{m.subscription}}
	s.same("the answer to disconnect", a.body, want)
}
