package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// liveness judges heartbeat and disconnect: A13 to A17, A32, 1.13.
var liveness = []Scenario{
	overHTTP.scenario("heartbeat/answer", "1.13", "A heartbeat tells a client how it stands", heartbeatAnswer),
	overHTTP.scenario("heartbeat/renews", "A32", "A heartbeat moves the end of the lease", leaseRenewed),
	overHTTP.scenario("heartbeat/silent", "1.13", "A heartbeat publishes nothing", func(s *Session) {
		alice, p := s.attached()
		before := s.state().Cursor
		s.quietly("1.13", func() {
			for range 3 {
				alice.heartbeat(nil).ok("1.13")
			}
		})
		p.none("1.13", 0, anyItem.where("after the heartbeats", func(f *Frame) bool { return f.Cursor > before }))
	}),
	overHTTP.scenario("heartbeat/unknown", "1.13 1.5", "The heartbeat of nobody is refused", func(s *Session) {
		alice := s.driver()
		alice.heartbeat(fields{"connectionId": "conn_nobody"}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
		s.put(s.route("heartbeat"), fields{}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
		alice.disconnect(nil).ok("A13")
		alice.heartbeat(nil).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
	}),
	overHTTP.scenario("heartbeat/by-subscription", "1.13", "A heartbeat goes by the subscription, and by the connection when that is gone", func(s *Session) {
		s.controllerOnly()
		vera := s.guest("vera")
		vera.subscribed(nil)
		gone := vera.subscription
		vera.subscribed(nil)
		vera.unsubscribe(gone).ok("A11")
		for _, ids := range []fields{{"connectionId": leftOut, "subscriptionId": vera.subscription}, {"subscriptionId": vera.subscription}, {"subscriptionId": gone}} {
			vera.heartbeat(ids).ok("1.13").has("1.13", fields{"connection_id": vera.connection})
		}
	}),
	overHTTP.scenario("heartbeat/contradiction", "1.13", "A heartbeat whose ids belong to two connections is refused", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		vera.subscribed(nil)
		alice.heartbeat(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
		alice.disconnect(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
		s.stateWith("1.13:contradiction", "both connections still there", func(f *Frame) bool {
			return entryOf(f, alice.connection) != nil && entryOf(f, vera.connection) != nil
		})
	}),
	overHTTP.slowScenario("heartbeat/keeps-alive", "3.2 A32", "A connection that beats outlives its idle limit", func(s *Session) {
		alice := s.controllerOnly()
		lease := s.shortLease(alice.leaseEnd())
		for range 5 {
			s.pause("3.2", lease/4)
			alice.heartbeat(nil).ok("A32").has("A32", fields{"controller_lease_granted": true})
		}
		alice.posted("A32", initNothing())
	}),
	overHTTP.scenario("disconnect/exact", "A13", "A disconnect answers exactly four things", func(s *Session) {
		alice := s.driver()
		a := alice.disconnect(nil).ok("A13") // its shape has been looked at
		want := fmt.Sprintf(`{"connection_id":%q,"controller_connection_id":null,"disconnected_subscription_ids":[%q],"success":true}`, alice.connection, alice.subscription)
		if got := show(a.Body); got != want {
			s.fail("A13", "expected %s, got %s", want, got)
		}
	}),
	overHTTP.scenario("disconnect/viewer", "A14", "The end of a viewer leaves the lease alone", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		vera.subscribed(nil)
		vera.disconnect(nil).ok("A14").has("A14", fields{"controller_connection_id": alice.connection})
		s.leaseOf("A14", s.state(), alice.connection)
		alice.posted("A14", initNothing())
	}),
	overHTTP.scenario("disconnect/controller", "A15", "The end of the controller frees the lease and keeps the session", disconnectController),
	overHTTP.scenario("disconnect/repeated", "A16 1.13", "A repeated disconnect succeeds with nothing left to end; that of nobody does not", func(s *Session) {
		alice := s.driver()
		alice.disconnect(nil).ok("A13")
		a := alice.disconnect(nil).ok("A16")
		if got := a.at("disconnected_subscription_ids"); show(got) != "[]" || a.at("success") != true || a.at("connection_id") != alice.connection {
			s.fail("A16", "expected success for %s with no subscription, got %s", alice.connection, a.said())
		}
		alice.disconnect(fields{"connectionId": "conn_never"}).refused("1.13:never", contracts.CodeStaleConnection, textNoConnection)
	}),
	overHTTP.scenario("disconnect/without-subscriptions", "A17", "A connection without subscriptions can be ended", func(s *Session) {
		alice := s.controllerOnly()
		if a := alice.disconnect(nil).ok("A17"); show(a.at("disconnected_subscription_ids")) != "[]" {
			s.fail("A17", "expected no subscription, got %s", a.said())
		}
	}),
	overHTTP.scenario("disconnect/by-subscription", "1.13", "A subscription names the connection to end", func(s *Session) {
		alice := s.driver()
		a := alice.disconnect(fields{"connectionId": leftOut, "subscriptionId": alice.subscription}).ok("1.13")
		s.failIf(a.at("connection_id") != alice.connection || !slices.Equal(texts(a.at("disconnected_subscription_ids")), []string{alice.subscription}), "1.13",
			"expected the end of %s, got %s", alice.connection, a.said())
	}),
	overHTTP.scenario("disconnect/announced", "1.13", "A disconnect publishes one snapshot and ends the connection's streams", func(s *Session) {
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
	}),
	overHTTP.scenario("disconnect/run-goes-on", "3.2 D8", "A run goes on when its controller leaves, and its question waits", func(s *Session) {
		alice := s.driver()
		vera := s.onlooker("vera")
		alice.ask(contracts.RequestApproval, "inherited")
		alice.prompt(streamOf(200, 10))
		vera.expect("3.2", message("response_chunk").where("of the long response", func(f *Frame) bool { return f.str("content") == "chunk 0 " }))
		alice.disconnect(nil).ok("A15")
		vera.expect("3.2", message("response_end"))
		bob := s.caller("bob", contracts.RoleController)
		f := bob.connected(nil).snapshot()
		s.failIf(!pending(f, "inherited"), "D8",
			"expected the question to wait for the next controller, got %s", f.said())
		bob.posted("D8", approve("inherited", true))
		vera.expect("D8", resolved("inherited").with("resolution", "approved"))
	}),
}

func heartbeatAnswer(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	for _, c := range []*Caller{alice, vera} {
		a := c.heartbeat(nil).ok("1.13")
		holds := c == alice
		a.has("1.13", fields{"connection_id": c.connection, "controller_lease_granted": holds, "controller_connection_id": alice.connection})
		if end := instant(s, "1.13", a.at("lease_expires_at")); !end.After(time.Now().Add(-time.Minute)) {
			s.fail("1.13", "expected lease_expires_at to lie ahead, got %s", end)
		}
	}
}

func disconnectController(s *Session) {
	alice := s.driver()
	alice.prompt("before")
	alice.disconnect(nil).ok("A15").has("A15", fields{"controller_connection_id": nil})
	zero := int64(0)
	p := s.follow("vera", follow{cursor: &zero})
	p.expect("A15", prompted("before"))
	bob := s.caller("bob", contracts.RoleController)
	bob.connected(nil).has("A15", fields{"controller_lease_granted": true})
	bob.prompt("after")
	p.expect("A15", prompted("after"))
}

// followed subscribes and opens the stream from there.
func (c *Caller) followed() *Peer { return c.follow(c.subscribed(nil).snapshot().Cursor) }
