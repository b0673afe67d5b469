package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// liveness judges heartbeat and disconnect: A13 to A17, A32, 1.13.
func liveness() []Scenario {
	overHTTP := Needs{Transport: HTTP}
	return []Scenario{
		{Name: "heartbeat/answer", Title: "A heartbeat tells a client how it stands", Rules: []string{"1.13"}, Needs: overHTTP, Run: heartbeatAnswer},
		{Name: "heartbeat/renews", Title: "A heartbeat moves the end of the lease", Rules: []string{"A32"}, Needs: overHTTP, Run: heartbeatRenews},
		{Name: "heartbeat/silent", Title: "A heartbeat publishes nothing", Rules: []string{"1.13"}, Needs: overHTTP, Run: heartbeatIsSilent},
		{Name: "heartbeat/unknown", Title: "The heartbeat of nobody is refused", Rules: []string{"1.13", "1.5"}, Needs: overHTTP, Run: heartbeatOfNobody},
		{Name: "heartbeat/by-subscription", Title: "A heartbeat goes by the subscription, and by the connection when that is gone", Rules: []string{"1.13"}, Needs: overHTTP, Run: heartbeatBySubscription},
		{Name: "heartbeat/contradiction", Title: "A heartbeat whose ids belong to two connections is refused", Rules: []string{"1.13"}, Needs: overHTTP, Run: heartbeatOfTwo},
		{Name: "heartbeat/keeps-alive", Title: "A connection that beats outlives its idle limit", Rules: []string{"3.2", "A32"}, Needs: overHTTP, Slow: true, Run: heartbeatKeepsAlive},
		{Name: "disconnect/exact", Title: "A disconnect answers exactly four things", Rules: []string{"A13"}, Needs: overHTTP, Run: disconnectExact},
		{Name: "disconnect/viewer", Title: "The end of a viewer leaves the lease alone", Rules: []string{"A14"}, Needs: overHTTP, Run: disconnectViewer},
		{Name: "disconnect/controller", Title: "The end of the controller frees the lease and keeps the session", Rules: []string{"A15"}, Needs: overHTTP, Run: disconnectController},
		{Name: "disconnect/repeated", Title: "A repeated disconnect succeeds with nothing left to end; that of nobody does not", Rules: []string{"A16", "1.13"}, Needs: overHTTP, Run: disconnectAgain},
		{Name: "disconnect/without-subscriptions", Title: "A connection without subscriptions can be ended", Rules: []string{"A17"}, Needs: overHTTP, Run: disconnectBare},
		{Name: "disconnect/by-subscription", Title: "A subscription names the connection to end", Rules: []string{"1.13"}, Needs: overHTTP, Run: disconnectBySubscription},
		{Name: "disconnect/announced", Title: "A disconnect publishes one snapshot and ends the connection's streams", Rules: []string{"1.13"}, Needs: overHTTP, Run: disconnectAnnounced},
		{Name: "disconnect/run-goes-on", Title: "A run goes on when its controller leaves, and its question waits", Rules: []string{"3.2", "D8"}, Needs: overHTTP, Run: runOutlivesController},
	}
}

func heartbeatAnswer(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	for _, c := range []*Caller{alice, vera} {
		a := c.heartbeat(nil).ok("1.13")
		holds := c == alice
		if a.at("connection_id") != c.connection || a.at("controller_lease_granted") != holds || a.at("controller_connection_id") != alice.connection {
			s.fail("1.13", "expected %s to stand beside controller %s, got %s", c.connection, alice.connection, a.said())
		}
		if end := instant(s, "1.13", a.at("lease_expires_at")); !end.After(time.Now().Add(-time.Minute)) {
			s.fail("1.13", "expected lease_expires_at to lie ahead, got %s", end)
		}
	}
}

// leaseEnd beats and returns when the connection's liveness ends.
func (c *Caller) leaseEnd() time.Time {
	return instant(c.s, "A32", c.heartbeat(nil).ok("A32").at("lease_expires_at"))
}

func heartbeatRenews(s *Session) {
	alice := s.driver()
	first := alice.leaseEnd()
	s.pause("A32", 20*time.Millisecond)
	second := alice.leaseEnd()
	if !second.After(first) {
		s.fail("A32", "expected lease_expires_at to move on with a heartbeat, got %s after %s", second, first)
	}
	if left := time.Until(second); left < 0 || left > 24*time.Hour {
		s.fail("A32", "expected lease_expires_at in the near future, got %s (in %s)", second, left)
	}
}

func heartbeatIsSilent(s *Session) {
	alice, p := s.attached()
	before := s.state().Cursor
	for range 3 {
		alice.heartbeat(nil).ok("1.13")
	}
	if after := s.state().Cursor; after != before {
		s.fail("1.13", "expected heartbeats to publish nothing, but the cursor went from %d to %d", before, after)
	}
	p.none("1.13", 0, anyItem.where("after the heartbeats", func(f *Frame) bool { return f.Cursor > before }))
}

func heartbeatOfNobody(s *Session) {
	alice := s.driver()
	alice.heartbeat(fields{"connectionId": "conn_nobody"}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
	s.put(s.route("heartbeat"), fields{}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
	alice.disconnect(nil).ok("A13")
	alice.heartbeat(nil).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
}

func heartbeatBySubscription(s *Session) {
	s.controllerOnly()
	vera := s.guest("vera")
	vera.subscribed(nil)
	gone := vera.subscription
	vera.subscribed(nil)
	vera.unsubscribe(gone).ok("A11")
	for _, ids := range []fields{{"connectionId": leftOut, "subscriptionId": vera.subscription}, {"subscriptionId": vera.subscription}, {"subscriptionId": gone}} {
		if a := vera.heartbeat(ids).ok("1.13"); a.at("connection_id") != vera.connection {
			s.fail("1.13", "expected the heartbeat of %s for %s, got %s", vera.connection, show(ids), a.said())
		}
	}
}

func heartbeatOfTwo(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	vera.subscribed(nil)
	alice.heartbeat(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
	alice.disconnect(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
	s.stateWith("1.13:contradiction", "both connections still there", func(f *Frame) bool {
		return entryOf(f, alice.connection) != nil && entryOf(f, vera.connection) != nil
	})
}

// shortLease skips a scenario that would have to wait too long for a lease to
// expire, and returns how long it lasts.
func (c *Caller) shortLease() time.Duration {
	left := time.Until(c.leaseEnd())
	if left > longestLease {
		c.s.skip("the lease lasts %s: start the server with a lease of at most %s", left.Round(time.Second), longestLease)
	}
	return left
}

func heartbeatKeepsAlive(s *Session) {
	alice := s.controllerOnly()
	lease := alice.shortLease()
	for range 5 {
		s.pause("3.2", lease/4)
		if a := alice.heartbeat(nil).ok("A32"); a.at("controller_lease_granted") != true {
			s.fail("A32", "expected a controller that beats to keep the lease, got %s", a.said())
		}
	}
	alice.posted("A32", initNothing())
}

func disconnectExact(s *Session) {
	alice := s.driver()
	a := alice.disconnect(nil).ok("A13") // its shape has been looked at
	want := fmt.Sprintf(`{"connection_id":%q,"controller_connection_id":null,"disconnected_subscription_ids":[%q],"success":true}`, alice.connection, alice.subscription)
	if got := show(a.Body); got != want {
		s.fail("A13", "expected %s, got %s", want, got)
	}
}

func disconnectViewer(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	vera.subscribed(nil)
	if a := vera.disconnect(nil).ok("A14"); a.at("controller_connection_id") != alice.connection {
		s.fail("A14", "expected %s to stay the controller, got %s", alice.connection, a.said())
	}
	if got := holderOf(s.state()); got != alice.connection {
		s.fail("A14", "expected %s to hold the lease, got %s", alice.connection, show(got))
	}
	alice.posted("A14", initNothing())
}

func disconnectController(s *Session) {
	alice := s.driver()
	alice.prompt("before")
	if a := alice.disconnect(nil).ok("A15"); a.at("controller_connection_id") != nil {
		s.fail("A15", "expected nobody to hold the lease, got %s", a.said())
	}
	zero := int64(0)
	p := s.follow("vera", follow{cursor: &zero})
	p.expect("A15", message("status").with("message", "Prompt: before"))
	bob := s.caller("bob", contracts.RoleController)
	if a := bob.connected(nil); a.at("controller_lease_granted") != true {
		s.fail("A15", "expected the lease to be free, got %s", a.said())
	}
	bob.prompt("after")
	p.expect("A15", message("status").with("message", "Prompt: after"))
}

func disconnectAgain(s *Session) {
	alice := s.driver()
	alice.disconnect(nil).ok("A13")
	a := alice.disconnect(nil).ok("A16")
	if got := a.at("disconnected_subscription_ids"); show(got) != "[]" || a.at("success") != true || a.at("connection_id") != alice.connection {
		s.fail("A16", "expected success for %s with no subscription, got %s", alice.connection, a.said())
	}
	alice.disconnect(fields{"connectionId": "conn_never"}).refused("1.13:never", contracts.CodeStaleConnection, textNoConnection)
}

func disconnectBare(s *Session) {
	alice := s.controllerOnly()
	if a := alice.disconnect(nil).ok("A17"); show(a.at("disconnected_subscription_ids")) != "[]" {
		s.fail("A17", "expected no subscription, got %s", a.said())
	}
}

func disconnectBySubscription(s *Session) {
	alice := s.driver()
	a := alice.disconnect(fields{"connectionId": leftOut, "subscriptionId": alice.subscription}).ok("1.13")
	if a.at("connection_id") != alice.connection || !slices.Equal(texts(a.at("disconnected_subscription_ids")), []string{alice.subscription}) {
		s.fail("1.13", "expected the end of %s, got %s", alice.connection, a.said())
	}
}

func disconnectAnnounced(s *Session) {
	_, p := s.attached()
	bob := s.caller("bob", contracts.RoleViewer)
	bob.connected(nil)
	own := bob.followed()
	before := s.state().Cursor
	bob.disconnect(nil).ok("1.13")
	f := p.expect("1.13", control("snapshot").where("of the disconnect", func(f *Frame) bool {
		return f.Cursor >= before && entryOf(f, bob.connection) == nil
	}))
	p.still("1.13", p.indexAfter(f), control("snapshot"))
	own.finishes("1.13:ends")
}

// followed subscribes and opens the stream from there.
func (c *Caller) followed() *Peer { return c.follow(c.subscribed(nil).snapshot().Cursor) }

func runOutlivesController(s *Session) {
	alice := s.driver()
	vera := s.follow("vera", follow{})
	vera.begins("A42")
	alice.ask(contracts.RequestApproval, "inherited")
	alice.prompt(speaking())
	vera.expect("3.2", message("response_chunk").where("of the long response", func(f *Frame) bool { return f.str("content") == "chunk 0 " }))
	alice.disconnect(nil).ok("A15")
	bob := s.caller("bob", contracts.RoleController)
	f := bob.connected(nil).snapshot()
	vera.goesOn("3.2", f.Cursor)
	if !pending(f, "inherited") {
		s.fail("D8", "expected the question to wait for the next controller, got %s", abridge(f.Raw, maxTraceText))
	}
	bob.posted("D8", approve("inherited", true))
	vera.expect("D8", message("server_request_resolved").with("request_id", "inherited").with("resolution", "approved"))
	bob.posted("3.2", &contracts.Interrupt{})
	vera.expect("3.2", message("response_end"))
}
