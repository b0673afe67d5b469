package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// handovers judges asking for, granting and giving up the lease (D7).
var handovers = []Scenario{
	onSocket.scenario("handover/later", "D7", "takeControl=later attaches a controller without the lease", func(s *Session) { s.controller(); s.attachLater("bob") }),
	onSocket.scenario("handover/ask-free", "D7", "Asking for a free lease grants it at once", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		alice.accepted("9.2", alice.frame("ws.release_control", nil))
		bob.accepted("D7", bob.frame("ws.ask_control", map[string]any{"reason": "it is free"}))
		bob.expect("D7", granted(bob))
		bob.accepted("D7", bob.command(initNothing()))
	}),
	onSocket.scenario("handover/grant", "D7", "The holder is asked, grants, and everybody learns the outcome", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		asks(bob, alice, "my turn")
		bob.refused(bob.command(initNothing()), notHolder("A27"))
		alice.accepted("D7", alice.frame("ws.grant_control", map[string]any{"connection_id": bob.connection}))
		bob.expect("D7", granted(bob))
		alice.expect("D7", control("ws.lease").with("granted", false).with("controller_connection_id", bob.connection))
		alice.refused(alice.command(initNothing()), notHolder("A27"))
		bob.accepted("D7", bob.command(initNothing()))
	}),
	onSocket.scenario("handover/deny", "D7", "The holder is asked and denies; nothing moves", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		asks(bob, alice, "please")
		alice.accepted("D7", alice.frame("ws.deny_control", map[string]any{"connection_id": bob.connection, "reason": "not now"}))
		bob.expect("D7", control("ws.lease").with("granted", false).with("reason", "denied").with("controller_connection_id", alice.connection))
		bob.refused(bob.command(initNothing()), notHolder("A27"))
		alice.accepted("D7", alice.command(initNothing()))
	}),
	onSocket.scenario("handover/grant-to-whom", "D7", "The lease can only be granted to a connection that asked", func(s *Session) {
		alice := s.controller()
		vera := s.viewer("vera")
		for _, to := range []string{"conn_nobody", vera.connection} {
			alice.notAccepted("D7", alice.frame("ws.grant_control", map[string]any{"connection_id": to}))
		}
		alice.accepted("D7", alice.command(initNothing()))
		vera.still("D7", 0, control("ws.lease").with("granted", true))
	}),
	onSocket.scenario("handover/only-the-holder-grants", "D7", "Only the holder grants and denies", func(s *Session) {
		alice := s.controller()
		bob, carol := s.attachLater("bob"), s.attachLater("carol")
		asks(bob, alice, "please")
		for _, kind := range []string{"ws.grant_control", "ws.deny_control"} {
			carol.notAccepted("D7", carol.frame(kind, map[string]any{"connection_id": bob.connection}))
		}
		alice.accepted("D7", alice.command(initNothing()))
		bob.still("D7", 0, control("ws.lease"))
	}),
	onSocket.scenario("handover/take", "9.2 A115", "ws.take_control moves the lease without reconnecting", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		bob.accepted("9.2", bob.frame("ws.take_control", nil))
		bob.expect("9.2", granted(bob))
		alice.expect("A115", control("ws.lease").with("granted", false).with("reason", "taken_over").with("controller_connection_id", bob.connection))
		bob.accepted("9.2", bob.command(initNothing()))
		alice.refused(alice.command(initNothing()), notHolder("A27"))
	}),
	onSocket.scenario("handover/release", "9.2", "ws.release_control gives the lease up and stays attached", func(s *Session) {
		alice := s.controller()
		alice.accepted("9.2", alice.frame("ws.release_control", nil))
		f := s.viewer("vera")
		got := f.attached["controller_connection_id"]
		s.failIf(got != nil, "9.2", "expected nobody to hold the lease after its release, got %s", show(got))
		alice.accepted("A30", alice.command(initNothing())) // claims it again
	}),
	onSocket.scenario("handover/generations", "D7", "Every grant has a higher generation", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		last := int64(0)
		for i := range 4 {
			p := []*Peer{bob, alice}[i%2]
			p.accepted("9.2", p.frame("ws.take_control", nil))
			g := number(p.expect("D7", granted(p)).at("generation"))
			s.failIf(g <= last, "D7", "expected the generation to grow with every grant, got %d after %d", g, last)
			last = g
		}
	}),
	onSocket.scenario("handover/viewer", "A37 A36", "A viewer can neither take nor ask for the lease", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		for _, kind := range []string{"ws.take_control", "ws.ask_control"} {
			f := vera.notAccepted("A37", vera.frame(kind, nil))
			s.shows("A37", f, fields{"code": string(contracts.CodeAccessDenied)})
		}
		alice.accepted("A36", alice.command(initNothing()))
	}),
	onSocket.scenario("handover/visible", "3.4 D7", "A hand-over is announced to all by connection_info", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		from := len(vera.log)
		bob := s.attachLater("bob")
		bob.accepted("9.2", bob.frame("ws.take_control", nil))
		vera.await("3.4", from, message("connection_info").with("controller_connection_id", bob.connection))
		alice.expect("3.4", message("connection_info").with("controller_connection_id", bob.connection))
	}),
}

// granted wants the news that a connection now holds the lease.
func granted(p *Peer) want {
	return control("ws.lease").with("granted", true).with("controller_connection_id", p.connection)
}

// asks lets bob ask and alice see it.
func asks(bob, alice *Peer, reason string) {
	bob.accepted("D7", bob.frame("ws.ask_control", map[string]any{"reason": reason}))
	f := alice.expect("D7", control("ws.control_request").with("connection_id", bob.connection).with("reason", reason))
	alice.s.shows("D7", f, fields{"client_info.name": bob.name})
}

// notAccepted expects any ws.error for a frame.
func (p *Peer) notAccepted(rule, id string) *Frame {
	f := p.expect(rule, p.answer(id))
	p.s.failIf(f.Kind != "ws.error", rule, "%s: expected ws.error for %s, got %s", p.name, id, f.said())
	return f
}
