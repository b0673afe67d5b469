package conformance

import (
	"net/http"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// subscriptions judges subscribe and unsubscribe: A1, A2, A8 to A12, 1.9, 1.10.
var subscriptions = []Scenario{
	overHTTP.scenario("subscription/controller", "A1", "A controller subscribes to a free session and holds the lease", func(s *Session) {
		alice := s.controllerOnly()
		a := alice.subscribed(nil)
		a.has("A1", fields{"controller_lease_granted": true, "controller_subscription_id": alice.subscription, "role": "controller"})
	}),
	overHTTP.scenario("subscription/viewer", "A2", "A viewer subscribes and is told who holds the lease", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		a := vera.subscribed(nil)
		a.has("A2", fields{"controller_lease_granted": false, "controller_connection_id": alice.connection, "role": "viewer"})
		s.failIf(a.at("controller_subscription_id") != alice.subscription, "A2",
			"expected the controller's subscription %s, got %s", alice.subscription, show(a.at("controller_subscription_id")))
		end := a.at("lease_expires_at")
		s.failIf(end == nil, "1.6", "expected lease_expires_at for a viewer too, got null")
	}),
	overHTTP.scenario("subscription/by-itself", "1.9", "A subscription without a connection makes one", func(s *Session) {
		s.driver()
		vera := s.caller("vera", contracts.RoleViewer)
		before := number(s.state().at("state.connection_count"))
		a := vera.subscribed(nil)
		f := a.snapshot()
		s.failIf(entryOf(f, vera.connection) == nil || number(f.at("state.connection_count")) != before+1, "1.9",
			"expected one new connection %s, got %s", vera.connection, show(f.at("state.connections")))
		s.caller("bob", contracts.RoleController).subscribe(nil).alreadyHeld("A23")
		bob := s.caller("bob", contracts.RoleController)
		bob.subscribed(fields{"takeControl": true}).has("A25", fields{"controller_lease_granted": true})
	}),
	overHTTP.scenario("subscription/role-header", "1.2 1.9", "The role header counts for a subscription too", func(s *Session) {
		s.driver()
		r := request{who: "vera", method: http.MethodPost, path: s.route("subscribe"), body: []byte("{}"),
			header: http.Header{"X-Maestro-Headless-Role": {"viewer"}}}
		s.call(r).ok("1.2").has("1.2", fields{"role": "viewer"})
		r.header = nil
		s.call(r).alreadyHeld("1.9") // without a role it is a controller
	}),
	overHTTP.scenario("subscription/inherits-opt-outs", "A8", "A subscription has its connection's opt-outs unless it brings its own", func(s *Session) {
		alice := s.controllerOnly()
		var streams []*Peer
		for _, c := range []struct{ brings, want []string }{{nil, []string{"status"}}, {[]string{"connection_info"}, []string{"connection_info"}}} {
			vera := s.caller("vera", contracts.RoleViewer)
			vera.connected(fields{"optOutNotifications": []string{"status"}})
			own := fields{}
			if c.brings != nil {
				own["optOutNotifications"] = c.brings
			}
			a := vera.subscribed(own)
			got := texts(a.at("opt_out_notifications"))
			s.failIf(!slices.Equal(got, c.want), "A8", "expected the opt-outs %v, got %v", c.want, got)
			cursor := a.snapshot().Cursor
			streams = append(streams, s.follow("vera", follow{subscription: vera.subscription, cursor: &cursor, optOuts: c.want, header: vera.proof(), silent: true}))
		}
		alice.prompt("unseen by one")
		streams[1].expect("A8", prompted("unseen by one"))
		streams[0].still("A8", 0, message("status"))
	}),
	overHTTP.scenario("subscription/two", "A9", "Two subscriptions on one connection end together, in order", func(s *Session) {
		s.driver()
		vera := s.guest("vera")
		first := vera.subscribed(nil).str("subscription_id")
		second := vera.subscribed(nil).str("subscription_id")
		s.failIf(first == second, "A9", "expected two subscriptions, got %q twice", first)
		s.lists("A9", entryOf(s.state(), vera.connection), fields{"subscription_count": 2})
		a := vera.disconnect(nil).ok("A9")
		a.has("A9", fields{"disconnected_subscription_ids": []string{first, second}})
	}),
	overHTTP.scenario("subscription/counted", "4.2", "The snapshot counts subscriptions, attached ones apart", func(s *Session) {
		alice := s.controllerOnly()
		count := func(subscriptions, attached int) func(*Frame) bool {
			return func(f *Frame) bool {
				e := entryOf(f, alice.connection)
				return same(e["subscription_count"], subscriptions) && same(e["attached_subscription_count"], attached)
			}
		}
		s.stateWith("4.2", "no subscription", count(0, 0))
		a := alice.subscribed(nil)
		s.stateWith("4.2", "one subscription, detached", count(1, 0))
		p := alice.follow(a.snapshot().Cursor)
		f := s.stateWith("4.2", "one subscription, attached", count(1, 1))
		s.failIf(!same(f.at("state.subscriber_count"), 1), "4.2",
			"expected subscriber_count 1, got %s", show(f.at("state.subscriber_count")))
		p.close()
		s.stateWith("4.2", "one subscription, detached again", count(1, 0))
	}),
	overHTTP.scenario("subscription/starts-at-its-snapshot", "1.9", "A stream from the snapshot on begins with nothing old", func(s *Session) {
		alice := s.driver()
		alice.prompt("old")
		alice.finishRun()
		a := alice.subscribed(nil)
		p := alice.follow(a.snapshot().Cursor) // nothing at or below its cursor may come
		alice.prompt("new")
		p.expect("1.9:old-items", prompted("new"))
		p.none("1.9:old-items", 0, anyOf(control("snapshot"), control("reset"), prompted("old")))
	}),
	overHTTP.scenario("subscription/controller-subscription", "4.2", "The controller's subscription is its first attached one, else its first", func(s *Session) {
		alice := s.driver()
		first := alice.subscription
		a := alice.subscribed(nil)
		a.has("4.2:controller", fields{"controller_subscription_id": first})
		alice.follow(a.snapshot().Cursor)
		s.stateWith("4.2:controller", "the attached subscription as the controller's", func(f *Frame) bool {
			return f.str("state.controller_subscription_id") == alice.subscription
		})
	}),
	overHTTP.scenario("unsubscribe/last", "A10", "With its last subscription a connection goes, and its lease", func(s *Session) {
		alice := s.driver()
		vera := s.onlooker("vera")
		alice.unsubscribe(alice.subscription).ok("A10")
		vera.expect("A10", control("snapshot").with("state.controller_connection_id", nil))
		f := s.state()
		s.failIf(entryOf(f, alice.connection) != nil || holderOf(f) != nil, "A10",
			"expected connection %s and its lease to be gone, got %s", alice.connection, show(f.at("state.connections")))
		alice.heartbeat(nil).refused("A10", contracts.CodeStaleConnection, textNoConnection)
		s.caller("bob", contracts.RoleController).connected(nil).has("A10", fields{"controller_lease_granted": true})
	}),
	overHTTP.scenario("unsubscribe/one-of-two", "A11", "Without one of two subscriptions connection and lease stay", func(s *Session) {
		alice := s.driver()
		first := alice.subscription
		alice.subscribed(nil)
		alice.unsubscribe(first).ok("A11")
		f := s.state()
		if e := entryOf(f, alice.connection); !same(e["subscription_count"], 1) || holderOf(f) != alice.connection {
			s.fail("A11", "expected one subscription left and the lease kept, got %s", show(e))
		}
		alice.posted("A11", initNothing())
	}),
	overHTTP.scenario("unsubscribe/unknown", "1.10 1.5", "An unknown subscription, or none, cannot be ended", func(s *Session) {
		alice := s.driver()
		alice.unsubscribe("sub_nobody").refused("1.10", contracts.CodeStaleSubscription, textNoSubscriber)
		alice.submit(s.route("unsubscribe"), fields{}).refused("1.10", contracts.CodeBadRequest, "")
		alice.submit(s.route("unsubscribe"), fields{"subscriptionId": 7}).refused("1.10", contracts.CodeBadRequest, "")
		alice.unsubscribe(alice.subscription).ok("1.10")
		alice.unsubscribe(alice.subscription).refused("1.10", contracts.CodeStaleSubscription, textNoSubscriber)
	}),
	overHTTP.scenario("unsubscribe/ends-stream", "1.10", "The stream of a subscription ends with it", func(s *Session) {
		alice, p := s.attached()
		first := alice.subscription
		alice.subscribed(nil)
		alice.unsubscribe(first).ok("1.10")
		p.finishes("1.10:ends")
		alice.posted("A11", initNothing())
	}),
}

// finishRun waits until no run is active. With the scripted agent a run is over
// when its prompt is answered, and has no end that could be seen.
func (c *Caller) finishRun() {
	if c.s.scripted() {
		return
	}
	c.s.stateWith("R37", "no response", func(f *Frame) bool { return f.at("state.is_responding") == false })
}
