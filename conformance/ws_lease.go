package conformance

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// wsLease judges who may drive: A23 to A36 in their WebSocket forms.
var wsLease = []Scenario{
	onSocket.scenario("lease/granted", "A1 A2", "The first controller holds the lease; a viewer sees who does", func(s *Session) {
		alice := s.controller()
		if alice.attached["controller_lease_granted"] != true || alice.attached["controller_connection_id"] != alice.connection {
			s.fail("A1", "expected the first controller to hold the lease, got %s", show(alice.attached))
		}
		vera := s.viewer("vera")
		if vera.attached["controller_lease_granted"] != false || vera.attached["controller_connection_id"] != alice.connection {
			s.fail("A2", "expected a viewer to see %s holding the lease, got %s", alice.connection, show(vera.attached))
		}
		if got := vera.last(control("snapshot")).at("state.controller_connection_id"); got != alice.connection {
			s.fail("A2", "expected controller_connection_id %q in the snapshot, got %s", alice.connection, show(got))
		}
	}),
	onSocket.scenario("lease/second-refused", "A23 A34 9.5", "A second controller is refused", func(s *Session) {
		s.controller()
		s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
	}),
	onSocket.scenario("lease/second-refused-by-hello", "A23 A34 9.5", "A second controller that says so only in hello is refused too", func(s *Session) {
		s.controller()
		s.try("bob", s.controllerByHello()).heldRefusal(s)
	}),
	onSocket.scenario("lease/refused-leaves-no-trace", "A24", "A refused controller is not counted", func(s *Session) {
		s.controller()
		before := s.viewer("vera").last(control("snapshot")).at("state.connection_count")
		s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
		s.try("rob", s.controllerByHello()).heldRefusal(s)
		after := s.viewer("victor").last(control("snapshot")).at("state.connection_count")
		if n := numberOf(after) - numberOf(before); n != 1 { // victor
			s.fail("A24", "expected one more connection than before the refused ones, got %d more", n)
		}
	}),
	onSocket.scenario("lease/takeover", "A25 A26 A115", "takeControl=1 moves the lease at once and tells the loser", func(s *Session) {
		alice, bob := takeLease(s)
		if bob.attached["controller_lease_granted"] != true || bob.attached["controller_connection_id"] != bob.connection {
			s.fail("A25", "expected the takeover to succeed at once, got %s", show(bob.attached))
		}
		f := alice.expect("A115", control("ws.lease").with("granted", false).with("reason", "taken_over"))
		if got := f.str("controller_connection_id"); got != bob.connection {
			s.fail("A26", "expected the loser to be told of %s, got %q", bob.connection, got)
		}
		bob.prompt("mine now")
		bob.expect("A25", prompted("mine now"))
	}),
	onSocket.scenario("lease/loser-refused", "A27 A34", "After a takeover the old controller's messages are refused", func(s *Session) {
		alice, bob := takeLease(s)
		bob.still("3.4", len(bob.log), noEffect) // the takeover itself is announced with a snapshot
		from := len(bob.log)
		for _, cmd := range []contracts.Command{&contracts.Prompt{Content: "old"}, &contracts.Init{}, &contracts.Interrupt{}, &contracts.Shutdown{}} {
			alice.refused(alice.command(cmd), notHolder("A27"))
		}
		bob.still("A27", from, anyOf(noEffect, initNothingReply, control("snapshot")))
	}),
	onSocket.scenario("lease/loser-still-follows", "A28 A115", "After a takeover the old controller keeps receiving", func(s *Session) {
		alice, bob := takeLease(s)
		bob.prompt("seen by both")
		alice.expect("A28", prompted("seen by both"))
	}),
	onSocket.scenario("lease/first-message-claims", "A30", "A free lease goes to the first controller that sends a message", func(s *Session) {
		alice := s.controller()
		bob := s.attachLater("bob")
		bob.refused(bob.command(initNothing()), notHolder("A27"))
		alice.accepted("9.2", alice.frame("ws.release_control", nil))
		bob.accepted("A30", bob.command(initNothing()))
		bob.expect("A30", initNothingReply)
		alice.refused(alice.command(initNothing()), notHolder("A27"))
	}),
	onSocket.scenario("lease/concurrent", "A33 A34", "Of controllers that attach at once exactly one gets in", func(s *Session) {
		s.attach("vera", entry{create: true, role: contracts.RoleViewer})
		names := []string{"alice", "bob", "carol", "dave"}
		peers := make([]*Peer, len(names))
		for i, name := range names {
			p, err := s.dial(name, s.controllerByHello())
			if err != nil {
				s.fail("9.1", "%s: expected the upgrade to succeed, got: %v", name, err)
			}
			peers[i] = p
		}
		for _, p := range peers { // back to back: nobody's answer is awaited
			p.greet(s.controllerByHello())
		}
		winners := 0
		for _, p := range peers {
			if a := p.outcome(s.controllerByHello()); a.peer != nil {
				winners++
			} else {
				a.heldRefusal(s)
			}
		}
		if winners != 1 {
			s.fail("A33", "expected exactly one of %d controllers to get in, got %d", len(names), winners)
		}
	}),
	onSocket.scenario("lease/bye-releases", "A15 9.2", "Saying goodbye releases the lease and nothing else", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		alice.prompt("before")
		alice.send([]byte(`{"type":"ws.bye"}`))
		alice.closes("9.5", 1000)
		bob := s.attach("bob", entry{role: contracts.RoleController})
		if bob.attached["controller_lease_granted"] != true {
			s.fail("A15", "expected the lease to be free after ws.bye, got %s", show(bob.attached))
		}
		bob.prompt("after")
		vera.expect("A15", prompted("before"))
		vera.expect("A15", prompted("after"))
	}),
	onSocket.scenario("lease/viewers-do-not-matter", "A14 A36", "Viewers that come and go leave the lease alone", func(s *Session) {
		alice := s.controller()
		for range 3 {
			vera := s.viewer("vera")
			vera.send([]byte(`{"type":"ws.bye"}`))
			vera.closes("9.5", 1000)
		}
		alice.accepted("A36", alice.command(initNothing()))
		alice.none("A14", 0, control("ws.lease").with("granted", false))
	}),
	onSocket.scenario("lease/ping-renews", "A32", "A sign of life moves lease_expires_at", func(s *Session) {
		p := s.controller()
		first := p.leaseEnd(s)
		s.pause("A32", 20*time.Millisecond)
		second := p.leaseEnd(s)
		if !second.After(first) {
			s.fail("A32", "expected lease_expires_at to move on, got %s after %s", second, first)
		}
		if left := time.Until(second); left < 0 || left > 24*time.Hour {
			s.fail("A32", "expected lease_expires_at in the near future, got %s (in %s)", second, left)
		}
	}),
	onSocket.slowScenario("lease/expires", "A31", "The lease of a vanished controller is free soon after it expires", func(s *Session) {
		alice := s.controller()
		left := time.Until(alice.leaseEnd(s))
		if left > longestLease {
			s.skip("the lease lasts %s: start the server with a lease of at most %s", left.Round(time.Second), longestLease)
		}
		bob := s.attachLater("bob")
		end := alice.leaseEnd(s)
		alice.close() // vanishes without a word
		bob.refused(bob.command(initNothing()), notHolder("A31"))
		free := end.Add(750 * time.Millisecond) // 250 by the rule; closing was a sign of life, and clocks differ
		for time.Now().Before(free) {
			bob.fence() // stays alive, and keeps reading
			s.pause("A31", min(time.Until(free), time.Second))
		}
		bob.accepted("A31", bob.command(initNothing()))
	}),
	onSocket.scenario("lease/run-survives-takeover", "3.2 A25", "A run goes on through a takeover", func(s *Session) {
		alice := s.controller()
		alice.prompt(streamOf(200, 10))
		alice.expect("R36", message("response_chunk"))
		bob := s.attach("bob", entry{role: contracts.RoleController, take: "1"})
		bob.refused(bob.command(&contracts.Prompt{Content: "early"}), busyRefusal("R42"))
		bob.await("3.2", 0, message("response_end"))
		alice.expect("3.2", message("response_end"))
	}),
}

// heldRefusal fails unless an attachment was refused because the lease is held.
func (a attempt) heldRefusal(s *Session) {
	a.refusedWith(s, "A34", contracts.CodeControllerLeaseHeld)
	if a.text != "" && a.text != textHeld {
		s.fail("A23", "expected the text %q, got %q", textHeld, a.text)
	}
}

// controllerByHello attaches as a controller that only its hello shows.
func (s *Session) controllerByHello() entry {
	return entry{hello: s.hello(contracts.RoleController)}
}

// numberOf returns a JSON number, or -1.
func numberOf(v any) int64 {
	if v == nil {
		return -1
	}
	return number(v)
}

// takeLease attaches bob and takes the lease from alice.
func takeLease(s *Session) (alice, bob *Peer) {
	alice = s.controller()
	return alice, s.attach("bob", entry{role: contracts.RoleController, take: "1"})
}

// notHolder is how a message is refused from a controller without the lease.
func notHolder(rule string) refusal {
	return refusal{rule: rule, text: textNotHolder, code: contracts.CodeControllerLeaseHeld}
}

// attachLater attaches as controller without the lease.
func (s *Session) attachLater(name string) *Peer {
	p := s.attach(name, entry{role: contracts.RoleController, take: string(contracts.TakeoverLater)})
	if p.attached["role"] != "controller" || p.attached["controller_lease_granted"] != false {
		s.fail("D7", "expected takeControl=later to attach a controller without the held lease, got %s", show(p.attached))
	}
	return p
}

// leaseEnd asks when the lease expires.
func (p *Peer) leaseEnd(s *Session) time.Time {
	id := p.frame("ws.ping", nil)
	f := p.expect("A32", control("ws.pong").with("id", id))
	end, err := time.Parse(time.RFC3339, f.str("lease_expires_at"))
	if err != nil {
		s.fail("A32", "expected lease_expires_at as an RFC 3339 time, got %s", show(f.at("lease_expires_at")))
	}
	return end
}

// longestLease is how long a scenario waits for a lease to expire.
const longestLease = 20 * time.Second
