package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// wsResumes judges coming back: A43 to A50, A114, and 9.3.
var wsResumes = []Scenario{
	onSocket.scenario("resume/missed-items", "A43 A114", "A cursor of this epoch yields exactly what was missed", func(s *Session) {
		alice, vera, cursor := away(s)
		victor := s.back("victor", cursor, vera.epoch)
		victor.replays("A114")
		finish(alice, vera, victor)
		sameSequence(s, "A43", cursor, vera, victor)
	}),
	onSocket.scenario("resume/nothing-missed", "A43 A114", "An up-to-date cursor yields nothing old", func(s *Session) {
		alice, vera, _ := away(s)
		alice.fence()
		vera.fence()
		head := vera.watch.cursor
		victor := s.back("victor", head, vera.epoch)
		victor.replays("A114")
		finish(alice, vera, victor)
		sameSequence(s, "A43", head, vera, victor)
	}),
	onSocket.scenario("resume/from-the-start", "A43", "A cursor at the start yields the whole journal", func(s *Session) {
		alice := s.controller()
		start := alice.last(control("snapshot")).Cursor
		alice.prompt("one")
		alice.expect("6.2", message("status").with("message", "Prompt: one"))
		victor := s.back("victor", start, alice.epoch)
		victor.replays("A43")
		finish(alice, victor)
		sameSequence(s, "A43", start, alice, victor)
	}),
	onSocket.scenario("resume/many-items", "A50 A43", "A long replay is complete and is no lag", func(s *Session) {
		alice := s.controller()
		cursor := alice.watch.cursor
		alice.prompt(burstOf(3000, 40))
		alice.prompt("sentinel")
		alice.expect("6.2", message("status").with("message", "Prompt: sentinel"))
		victor := s.back("victor", cursor, alice.epoch)
		finish(alice, victor)
		if victor.attached["resume"] == "replay" { // else retention is shorter than this
			sameSequence(s, "A50", cursor, alice, victor)
		}
		victor.none("A50", 0, control("reset").where("reason lagged", func(f *Frame) bool { return f.Body["reason"] == "lagged" }))
	}),
	onSocket.scenario("resume/under-load", "A49 A114", "A client that resumes while the agent speaks sees one sequence", func(s *Session) {
		alice := s.controller()
		alice.prompt(streamOf(400, 2))
		var returned []*Peer
		var from []int64
		for _, name := range []string{"v0", "v1", "v2", "v3"} {
			cursor := alice.expect("R36", message("response_chunk")).Cursor
			victor := s.back(name, cursor, alice.epoch)
			victor.replays("A114")
			returned, from = append(returned, victor), append(from, cursor)
		}
		alice.expect("R37", message("response_end"))
		finish(alice, returned...)
		for i, p := range returned {
			sameSequence(s, "A49", from[i], alice, p)
		}
	}),
	onSocket.scenario("resume/negative-cursor", "A45", "A negative cursor yields a reset", resetFor(func(*Peer) (int64, string) { return -1, "" })),
	onSocket.scenario("resume/future-cursor", "A46", "A cursor beyond the head yields a reset", resetFor(func(p *Peer) (int64, string) { return p.watch.cursor + 1_000_000, p.epoch })),
	onSocket.scenario("resume/other-epoch", "A114", "A cursor of another epoch yields a reset", resetFor(func(p *Peer) (int64, string) { return p.watch.cursor, "not-" + p.epoch })),
	onSocket.scenario("resume/same-connection", "A114 9.3", "With its token a dropped client is the same connection, lease included", func(s *Session) {
		alice := s.controller()
		alice.prompt("before")
		alice.expect("6.2", message("status").with("message", "Prompt: before"))
		alice.fence()
		how := returning(alice, alice.token)
		alice.close() // the network drops
		again := s.attach("alice", how)
		again.isAgain(alice)
		again.replays("A114")
		again.prompt("after")
		again.expect("9.3", message("status").with("message", "Prompt: after"))
	}),
	onSocket.scenario("resume/after-bye-keep", "9.2 9.3", "ws.bye with keep only detaches", func(s *Session) {
		alice := s.controller()
		alice.fence()
		how := returning(alice, alice.token)
		alice.send([]byte(`{"type":"ws.bye","keep":true}`))
		alice.closes("9.5", 1000)
		s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
		s.attach("alice", how).isAgain(alice)
	}),
	onSocket.scenario("resume/wrong-token", "9.3 A40", "With a wrong token it is a new connection without the lease", func(s *Session) {
		alice := s.controller()
		how := returning(alice, "not-"+alice.token)
		how.role, how.hello = contracts.RoleViewer, s.hello(contracts.RoleViewer)
		mallory := s.attach("mallory", how)
		if mallory.connection == alice.connection || mallory.attached["controller_lease_granted"] == true {
			s.fail("9.3", "expected a new connection without the lease for a wrong token, got %s", show(mallory.attached))
		}
		alice.accepted("A40", alice.command(initNothing()))
	}),
	onSocket.scenario("resume/superseded", "A61 9.5", "A newer socket on a connection ends the older", func(s *Session) {
		alice := s.controller()
		alice.fence()
		again := s.attach("alice", returning(alice, alice.token))
		again.isAgain(alice)
		alice.closes("9.5", contracts.CodeSuperseded.CloseCode())
		again.accepted("A61", again.command(initNothing()))
	}),
	onSocket.scenario("resume/pending-requests", "A43 A67", "A request made while a client was away is in what it missed", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		vera.fence()
		cursor := vera.watch.cursor
		vera.close()
		alice.ask(contracts.RequestApproval, "missed")
		alice.accepted("R53", alice.command(approve("missed", true)))
		victor := s.back("victor", cursor, alice.epoch)
		asked := victor.await("A43", 0, message("server_request").with("request_id", "missed"))
		ended := victor.await("A67", slices.Index(victor.log, asked), message("server_request_resolved").with("request_id", "missed"))
		if ended.Cursor <= asked.Cursor {
			s.fail("A67", "expected the resolution after the request, got cursors %d and %d", ended.Cursor, asked.Cursor)
		}
	}),
}

// away publishes things and returns the cursor a client had before, and the
// client that saw them all.
func away(s *Session) (alice, vera *Peer, cursor int64) {
	alice, vera = s.controller(), s.viewer("vera")
	alice.prompt("before")
	vera.expect("A43", message("status").with("message", "Prompt: before"))
	alice.fence()
	vera.fence()
	cursor = vera.watch.cursor
	alice.prompt(streamOf(10, 0))
	alice.expect("R37", message("response_end"))
	alice.prompt(burstOf(30, 10))
	return alice, vera, cursor
}

// back attaches a viewer with a cursor.
func (s *Session) back(name string, cursor int64, epoch string) *Peer {
	return s.attach(name, entry{role: contracts.RoleViewer, cursor: &cursor, epoch: epoch})
}

// replays fails unless a client was promised a replay.
func (p *Peer) replays(rule string) {
	if got := p.attached["resume"]; got != "replay" {
		p.s.fail(rule, "%s: expected resume \"replay\", got %s", p.name, show(got))
	}
	p.none(rule, 0, anyOf(control("reset"), control("snapshot")))
}

// resetFor attaches with a cursor that is not in the journal's range.
func resetFor(where func(*Peer) (int64, string)) func(*Session) {
	return func(s *Session) {
		alice := s.controller()
		alice.prompt("before")
		alice.expect("6.2", message("status").with("message", "Prompt: before"))
		cursor, epoch := where(alice)
		rule := s.scenario.Rules[0]
		how := entry{role: contracts.RoleViewer, cursor: &cursor, epoch: epoch}
		victor, err := s.dial("victor", how)
		if err != nil {
			s.fail("9.1", "expected to attach, got: %v", err)
		}
		victor.greet(how)
		if f := victor.await(rule, 0, control("ws.attached")); f.str("resume") != "reset" {
			s.fail(rule, "expected resume \"reset\" for cursor %d of epoch %q, got %s", cursor, epoch, show(f.at("resume")))
		}
		victor.welcome(how) // checks that a reset comes first
		first := victor.await(rule, 1, control("reset"))
		if got := first.Body["reason"]; got != "replay_gap" {
			s.fail(rule, "expected reason \"replay_gap\", got %s", show(got))
		}
		finish(alice, victor)
	}
}

// returning is how a controller comes back to its own connection.
func returning(p *Peer, token string) entry {
	cursor := p.watch.cursor
	return entry{role: contracts.RoleController, cursor: &cursor, epoch: p.epoch, connection: p.connection, resume: token}
}

// isAgain fails unless p continues the connection of an earlier socket.
func (p *Peer) isAgain(earlier *Peer) {
	for _, key := range []string{"connection_id", "subscription_id", "epoch"} {
		if p.attached[key] != earlier.attached[key] {
			p.s.fail("9.3", "expected %s %s again, got %s", key, show(earlier.attached[key]), show(p.attached[key]))
		}
	}
	if p.attached["controller_lease_granted"] != true {
		p.s.fail("9.3", "expected the lease to be kept for a client that comes back in time")
	}
}
