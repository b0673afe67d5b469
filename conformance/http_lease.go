package conformance

import (
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// httpLease judges the lease over HTTP: A23 to A36.
var httpLease = []Scenario{
	overHTTP.scenario("claim/second-refused", "A23 A34 1.5", "A second controller is refused, however it attaches", func(s *Session) {
		s.driver()
		bob := s.caller("bob", contracts.RoleController)
		bob.connect(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
		bob.connect(fields{"role": leftOut}).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
		bob.connect(fields{"takeControl": false}).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
		bob.subscribe(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
	}),
	overHTTP.scenario("claim/refused-leaves-no-trace", "A24 1.6", "A refused controller leaves no connection and publishes nothing", func(s *Session) {
		s.driver()
		before := s.state()
		for _, name := range []string{"bob", "carol"} {
			c := s.caller(name, contracts.RoleController)
			c.connect(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
			c.subscribe(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
		}
		after := s.state()
		if n := number(after.at("state.connection_count")) - number(before.at("state.connection_count")); n != 0 {
			s.fail("A24", "expected no connection of a refused controller, got %d more: %s", n, show(after.at("state.connections")))
		}
		if after.Cursor != before.Cursor {
			s.fail("A24", "expected refusals to publish nothing, but the cursor went from %d to %d", before.Cursor, after.Cursor)
		}
	}),
	overHTTP.scenario("claim/takeover", "A25 3.4", "takeControl moves the lease at once, and everybody learns it", func(s *Session) {
		_, p := s.attached()
		bob := s.takeFrom("bob")
		if got := holderOf(s.state()); got != bob.connection {
			s.fail("A25", "expected %s to hold the lease, got %s", bob.connection, show(got))
		}
		bob.prompt("mine now")
		p.expect("A25", prompted("mine now"))
		p.await("3.4:announced", 0, message("connection_info").with("controller_connection_id", bob.connection))
		p.await("3.4:announced", 0, control("snapshot").with("state.controller_connection_id", bob.connection))
	}),
	overHTTP.scenario("claim/loser-heartbeat", "A26", "The old controller's heartbeat tells it who drives now", func(s *Session) {
		alice := s.driver()
		bob := s.takeFrom("bob")
		a := alice.heartbeat(nil).ok("A26")
		if a.at("controller_lease_granted") != false || a.at("controller_connection_id") != bob.connection {
			s.fail("A26", "expected the heartbeat to name %s as the controller, got %s", bob.connection, a.said())
		}
	}),
	overHTTP.scenario("claim/loser-refused", "A27 A34", "The old controller's messages are refused", func(s *Session) {
		alice := s.driver()
		s.takeFrom("bob")
		before := s.state().Cursor
		for _, cmd := range []contracts.Command{&contracts.Prompt{Content: "old"}, &contracts.Init{}, &contracts.Interrupt{}, &contracts.Shutdown{}} {
			alice.post(cmd).refused("A27", contracts.CodeControllerLeaseHeld, textNotHolder)
		}
		if after := s.state().Cursor; after != before {
			s.fail("A27", "expected refused messages to do nothing, but the cursor went from %d to %d", before, after)
		}
	}),
	overHTTP.scenario("claim/loser-follows", "A28", "The old controller's stream goes on", func(s *Session) {
		_, p := s.attached()
		bob := s.takeFrom("bob")
		bob.prompt("seen by both")
		p.expect("A28", prompted("seen by both"))
	}),
	overHTTP.scenario("claim/by-message", "A30 3.4", "A free lease goes to the first controller that sends a message", func(s *Session) {
		alice := s.driver()
		bob := s.takeFrom("bob")
		alice.post(initNothing()).refused("A27", contracts.CodeControllerLeaseHeld, textNotHolder)
		bob.disconnect(nil).ok("A15")
		if got := holderOf(s.state()); got != nil {
			s.fail("3.4", "expected the lease to be free, got holder %s", show(got))
		}
		a := alice.posted("A30", initNothing())
		if got := holderOf(a.effect()); got != alice.connection {
			s.fail("A30", "expected the first message to claim the lease for %s, got holder %s", alice.connection, show(got))
		}
		alice.prompt("processed too")
		s.stateWith("A30", "the prompt's status", func(f *Frame) bool { return f.str("state.last_status") == "Prompt: processed too" })
	}),
	overHTTP.scenario("claim/concurrent", "A33", "Of controllers that subscribe at once exactly one gets the lease", func(s *Session) {
		s.caller("vera", contracts.RoleViewer).connected(nil) // a session with a free lease
		var requests []request
		for _, name := range []string{"alice", "bob", "carol", "dave", "erin", "frank"} {
			c := s.caller(name, contracts.RoleController)
			requests = append(requests, request{who: name, method: http.MethodPost, path: s.route("subscribe"), body: encode(c.introduction())})
		}
		winners := 0
		for _, a := range s.together(requests...) {
			if a.Status == http.StatusOK {
				winners++
			} else {
				a.refused("A33", contracts.CodeControllerLeaseHeld, textHeld)
			}
		}
		if winners != 1 {
			s.fail("A33", "expected exactly one of %d controllers to get in, got %d", len(requests), winners)
		}
	}),
	overHTTP.scenario("claim/nameless", "A35 1.12", "A message of nobody in particular is refused, though the lease be free", func(s *Session) {
		s.caller("vera", contracts.RoleViewer).connected(nil)
		nameless := func() {
			s.put(s.route("messages"), fields{"type": "prompt", "content": "who am I"}).
				refused("A35", contracts.CodeStaleConnection, textNoConnection)
		}
		nameless() // the lease is free
		s.caller("alice", contracts.RoleController).connected(nil)
		nameless()
		if f := s.state(); f.str("state.last_status") == "Prompt: who am I" {
			s.fail("A35", "expected a nameless prompt to do nothing")
		}
	}),
	overHTTP.scenario("claim/implicit-stream", "A36", "A stream of its own neither takes nor releases the lease", func(s *Session) {
		s.caller("vera", contracts.RoleViewer).connected(nil)
		p := s.follow("ida", follow{header: http.Header{"X-Maestro-Headless-Role": {"controller"}}})
		p.begins("A42")
		if got := holderOf(s.state()); got != nil {
			s.fail("A36", "expected a stream to take no lease, got holder %s", show(got))
		}
		alice := s.controllerOnly() // without a subscription: not to be adopted either
		second := s.follow("ian", follow{header: http.Header{"X-Maestro-Headless-Role": {"controller"}}})
		second.begins("A42")
		for _, stream := range []*Peer{p, second} {
			stream.close()
		}
		s.stateWith("A36", "the streams' connections gone and the controller there", func(f *Frame) bool {
			return same(f.at("state.connection_count"), 2) && holderOf(f) == alice.connection
		})
		alice.posted("A36", initNothing())
	}),
	overHTTP.slowScenario("claim/expires", "A31", "The lease of a silent controller is free soon after it expires", func(s *Session) {
		alice := s.controllerOnly()
		alice.shortLease()
		p := s.follow("vera", follow{})
		p.begins("A42")
		bob := s.guestController("bob", alice)
		end := alice.leaseEnd() // and then not a word
		bob.post(initNothing()).refused("A31", contracts.CodeControllerLeaseHeld, textNotHolder)
		free := end.Add(500 * time.Millisecond) // 250 by the rule; clocks and machines differ
		for time.Now().Before(free) {
			bob.heartbeat(nil).ok("A32")
			s.pause("A31", min(max(time.Until(free), time.Millisecond), 500*time.Millisecond))
		}
		bob.posted("A31", initNothing())
		alice.heartbeat(nil).refused("3.2", contracts.CodeStaleConnection, textNoConnection)
		p.await("3.2", 0, control("snapshot").where("without the silent controller", func(f *Frame) bool { return entryOf(f, alice.connection) == nil }))
	}),
	overHTTP.scenario("claim/run-survives", "3.2 A71", "A run goes on through a takeover, and stays the only one", func(s *Session) {
		alice := s.driver()
		p := s.follow("vera", follow{})
		p.begins("A42")
		alice.prompt(speaking())
		p.expect("R36", message("response_chunk"))
		bob := s.takeFrom("bob")
		bob.post(&contracts.Prompt{Content: "early"}).refused("A71", contracts.CodeRuntimeBusy, textBusy)
		p.goesOn("3.2", s.state().Cursor)
		bob.posted("3.4", &contracts.Interrupt{})
		p.expect("3.2", message("response_end"))
	}),
}

// takeFrom returns a controller that has taken the lease from whoever held it.
func (s *Session) takeFrom(name string) *Caller {
	c := s.caller(name, contracts.RoleController)
	if a := c.connected(fields{"takeControl": true}); a.at("controller_lease_granted") != true {
		s.fail("A25", "expected the takeover to succeed at once, got %s", a.said())
	}
	c.subscribed(nil)
	return c
}

// guestController returns a controller without the lease: it took it, and was
// relieved of it by the one it took it from.
func (s *Session) guestController(name string, holder *Caller) *Caller {
	c := s.caller(name, contracts.RoleController)
	c.connected(fields{"takeControl": true})
	holder.connected(fields{"takeControl": true})
	return c
}
