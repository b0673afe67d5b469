package conformance

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// subscriptions judges subscribe and unsubscribe: A1, A2, A8 to A12, 1.9, 1.10.
func subscriptions() []Scenario {
	return []Scenario{
		overHTTP.connected("subscription/controller", "A1", "A controller subscribes to a free session and holds the lease", func(_ *Session, alice *Caller) {
			a := alice.subscribed(nil)
			a.has("A1", fields{"controller_lease_granted": true, "controller_subscription_id": alice.subscription, "role": "controller"})
		}),
		overHTTP.visited("subscription/viewer", "A2", "A viewer subscribes and is told who holds the lease", func(s *Session, alice, vera *Caller) {
			a := vera.subscribed(nil)
			a.has("A2", fields{"controller_lease_granted": false, "controller_connection_id": alice.connection, "role": "viewer"})
			a.has("A2", fields{"controller_subscription_id": alice.subscription})
			s.failIf(a.at("lease_expires_at") == nil, "1.6", "expected lease_expires_at for a viewer too, got null")
		}),
		overHTTP.driver("subscription/by-itself", "1.9", "A subscription without a connection makes one", func(s *Session, _ *Caller) {
			vera := s.caller("vera", contracts.RoleViewer)
			before := number(s.state().at("state.connection_count"))
			f := vera.subscribed(nil).snapshot()
			s.failIf(entryOf(f, vera.connection) == nil || number(f.at("state.connection_count")) != before+1, "1.9",
				"expected one new connection %s, got %s", vera.connection, show(f.at("state.connections")))
			s.caller("bob", contracts.RoleController).subscribe(nil).alreadyHeld("A23")
			bob := s.caller("bob", contracts.RoleController)
			bob.subscribed(fields{"takeControl": true}).has("A25", fields{"controller_lease_granted": true})
		}),
		overHTTP.driver("subscription/role-header", "1.2 1.9", "The role header counts for a subscription too", func(s *Session, _ *Caller) {
			r := request{who: "vera", method: http.MethodPost, path: s.route("subscribe"), body: []byte("{}"),
				header: http.Header{"X-Maestro-Headless-Role": {"viewer"}}}
			s.call(r).ok("1.2").has("1.2", fields{"role": "viewer"})
			r.header = nil
			s.call(r).alreadyHeld("1.9") // without a role it is a controller
		}),
		overHTTP.connected("subscription/inherits-opt-outs", "A8", "A subscription has its connection's opt-outs unless it brings its own", func(s *Session, alice *Caller) {
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
		overHTTP.visited("subscription/two", "A9", "Two subscriptions on one connection end together, in order", func(s *Session, _, vera *Caller) {
			first := vera.subscribed(nil).str("subscription_id")
			second := vera.subscribed(nil).str("subscription_id")
			s.failIf(first == second, "A9", "expected two subscriptions, got %q twice", first)
			s.lists("A9", entryOf(s.state(), vera.connection), fields{"subscription_count": 2})
			vera.disconnect(nil).ok("A9").has("A9", fields{"disconnected_subscription_ids": []string{first, second}})
		}),
		overHTTP.connected("subscription/counted", "4.2", "The snapshot counts subscriptions, attached ones apart", func(s *Session, alice *Caller) {
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
			s.shows("4.2", s.stateWith("4.2", "one subscription, attached", count(1, 1)), fields{"state.subscriber_count": 1})
			p.close()
			s.stateWith("4.2", "one subscription, detached again", count(1, 0))
		}),
		overHTTP.driver("subscription/starts-at-its-snapshot", "1.9", "A stream from the snapshot on begins with nothing old", func(_ *Session, alice *Caller) {
			alice.prompt("old")
			alice.finishRun()
			a := alice.subscribed(nil)
			p := alice.follow(a.snapshot().Cursor) // nothing at or below its cursor may come
			alice.prompt("new")
			p.expect("1.9:old-items", prompted("new"))
			p.none("1.9:old-items", 0, anyOf(control("snapshot"), control("reset"), prompted("old")))
		}),
		overHTTP.driver("subscription/controller-subscription", "4.2", "The controller's subscription is its first attached one, else its first", func(s *Session, alice *Caller) {
			first := alice.subscription
			a := alice.subscribed(nil).has("4.2:controller", fields{"controller_subscription_id": first})
			alice.follow(a.snapshot().Cursor)
			s.stateWith("4.2:controller", "the attached subscription as the controller's", func(f *Frame) bool {
				return f.str("state.controller_subscription_id") == alice.subscription
			})
		}),
		overHTTP.driver("unsubscribe/last", "A10", "With its last subscription a connection goes, and its lease", func(s *Session, alice *Caller) {
			vera := s.onlooker("vera")
			alice.unsubscribe(alice.subscription).ok("A10")
			vera.expect("A10", control("snapshot").with("state.controller_connection_id", nil))
			f := s.state()
			s.failIf(entryOf(f, alice.connection) != nil || holderOf(f) != nil, "A10",
				"expected connection %s and its lease to be gone, got %s", alice.connection, show(f.at("state.connections")))
			alice.heartbeat(nil).refused("A10", contracts.CodeStaleConnection, textNoConnection)
			s.caller("bob", contracts.RoleController).connected(nil).has("A10", fields{"controller_lease_granted": true})
		}),
		overHTTP.driver("unsubscribe/one-of-two", "A11", "Without one of two subscriptions connection and lease stay", func(s *Session, alice *Caller) {
			first := alice.subscription
			alice.subscribed(nil)
			alice.unsubscribe(first).ok("A11")
			f := s.state()
			s.lists("A11", entryOf(f, alice.connection), fields{"subscription_count": 1})
			s.leaseOf("A11", f, alice.connection)
			alice.posted("A11", initNothing())
		}),
		overHTTP.driver("unsubscribe/unknown", "1.10 1.5", "An unknown subscription, or none, cannot be ended", func(s *Session, alice *Caller) {
			alice.unsubscribe("sub_nobody").refused("1.10", contracts.CodeStaleSubscription, textNoSubscriber)
			alice.submit(s.route("unsubscribe"), fields{}).refused("1.10", contracts.CodeBadRequest, "")
			alice.submit(s.route("unsubscribe"), fields{"subscriptionId": 7}).refused("1.10", contracts.CodeBadRequest, "")
			alice.unsubscribe(alice.subscription).ok("1.10")
			alice.unsubscribe(alice.subscription).refused("1.10", contracts.CodeStaleSubscription, textNoSubscriber)
		}),
		overHTTP.attached("unsubscribe/ends-stream", "1.10", "The stream of a subscription ends with it", func(_ *Session, alice *Caller, p *Peer) {
			first := alice.subscription
			alice.subscribed(nil)
			alice.unsubscribe(first).ok("1.10")
			p.finishes("1.10:ends")
			alice.posted("A11", initNothing())
		}),
	}
}

// finishRun waits until no run is active. With the scripted agent a run is over
// when its prompt is answered, and has no end that could be seen.
func (c *Caller) finishRun() {
	if c.s.scripted() {
		return
	}
	c.s.stateWith("R37", "no response", func(f *Frame) bool { return f.at("state.is_responding") == false })
}

// liveness judges heartbeat and disconnect: A13 to A17, A32, 1.13.
func liveness() []Scenario {
	return []Scenario{
		overHTTP.scenario("heartbeat/answer", "1.13", "A heartbeat tells a client how it stands", heartbeatAnswer),
		overHTTP.scenario("heartbeat/renews", "A32", "A heartbeat moves the end of the lease", leaseRenewed),
		overHTTP.attached("heartbeat/silent", "1.13", "A heartbeat publishes nothing", func(s *Session, alice *Caller, p *Peer) {
			before := s.state().Cursor
			s.quietly("1.13", func() {
				for range 3 {
					alice.heartbeat(nil).ok("1.13")
				}
			})
			p.none("1.13", 0, anyItem.where("after the heartbeats", func(f *Frame) bool { return f.Cursor > before }))
		}),
		overHTTP.driver("heartbeat/unknown", "1.13 1.5", "The heartbeat of nobody is refused", func(s *Session, alice *Caller) {
			alice.heartbeat(fields{"connectionId": "conn_nobody"}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
			s.put(s.route("heartbeat"), fields{}).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
			alice.disconnect(nil).ok("A13")
			alice.heartbeat(nil).refused("1.13", contracts.CodeStaleConnection, textNoConnection)
		}),
		overHTTP.connected("heartbeat/by-subscription", "1.13", "A heartbeat goes by the subscription, and by the connection when that is gone", func(s *Session, _ *Caller) {
			vera := s.guest("vera")
			vera.subscribed(nil)
			gone := vera.subscription
			vera.subscribed(nil)
			vera.unsubscribe(gone).ok("A11")
			for _, ids := range []fields{{"connectionId": leftOut, "subscriptionId": vera.subscription}, {"subscriptionId": vera.subscription}, {"subscriptionId": gone}} {
				vera.heartbeat(ids).ok("1.13").has("1.13", fields{"connection_id": vera.connection})
			}
		}),
		overHTTP.visited("heartbeat/contradiction", "1.13", "A heartbeat whose ids belong to two connections is refused", func(s *Session, alice, vera *Caller) {
			vera.subscribed(nil)
			alice.heartbeat(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
			alice.disconnect(fields{"subscriptionId": vera.subscription}).refused("1.13:contradiction", contracts.CodeAccessDenied, "")
			s.stateWith("1.13:contradiction", "both connections still there", func(f *Frame) bool {
				return entryOf(f, alice.connection) != nil && entryOf(f, vera.connection) != nil
			})
		}),
		overHTTP.connected("heartbeat/keeps-alive", "3.2 A32", "A connection that beats outlives its idle limit", func(s *Session, alice *Caller) {
			lease := s.shortLease(alice.leaseEnd())
			for range 5 {
				s.pause("3.2", lease/4)
				alice.heartbeat(nil).ok("A32").has("A32", fields{"controller_lease_granted": true})
			}
			alice.posted("A32", initNothing())
		}).slow(),
		overHTTP.driver("disconnect/exact", "A13", "A disconnect answers exactly four things", func(s *Session, alice *Caller) {
			alice.leavesWith(nil)
		}),
		overHTTP.visited("disconnect/viewer", "A14", "The end of a viewer leaves the lease alone", func(s *Session, alice, vera *Caller) {
			vera.subscribed(nil)
			vera.disconnect(nil).ok("A14").has("A14", fields{"controller_connection_id": alice.connection})
			s.leaseOf("A14", s.state(), alice.connection)
			alice.posted("A14", initNothing())
		}),
		overHTTP.scenario("disconnect/controller", "A15", "The end of the controller frees the lease and keeps the session", disconnectController),
		overHTTP.driver("disconnect/repeated", "A16 1.13", "A repeated disconnect succeeds with nothing left to end; that of nobody does not", func(_ *Session, alice *Caller) {
			alice.disconnect(nil).ok("A13")
			alice.disconnect(nil).ok("A16").has("A16", fields{"disconnected_subscription_ids": []string{}, "success": true, "connection_id": alice.connection})
			alice.disconnect(fields{"connectionId": "conn_never"}).refused("1.13:never", contracts.CodeStaleConnection, textNoConnection)
		}),
		overHTTP.connected("disconnect/without-subscriptions", "A17", "A connection without subscriptions can be ended", func(_ *Session, alice *Caller) {
			alice.disconnect(nil).ok("A17").has("A17", fields{"disconnected_subscription_ids": []string{}})
		}),
		overHTTP.driver("disconnect/by-subscription", "1.13", "A subscription names the connection to end", func(_ *Session, alice *Caller) {
			a := alice.disconnect(fields{"connectionId": leftOut, "subscriptionId": alice.subscription}).ok("1.13")
			a.has("1.13", fields{"connection_id": alice.connection, "disconnected_subscription_ids": []string{alice.subscription}})
		}),
		overHTTP.attached("disconnect/announced", "1.13", "A disconnect publishes one snapshot and ends the connection's streams", func(s *Session, _ *Caller, p *Peer) {
			bob := s.guest("bob")
			own := bob.followed()
			before := s.state().Cursor
			bob.disconnect(nil).ok("1.13")
			f := p.expect("1.13", control("snapshot").where("of the disconnect", func(f *Frame) bool {
				return f.Cursor >= before && entryOf(f, bob.connection) == nil
			}))
			p.still("1.13", p.indexAfter(f), control("snapshot"))
			own.finishes("1.13:ends")
		}),
		overHTTP.driver("disconnect/run-goes-on", "3.2 D8", "A run goes on when its controller leaves, and its question waits", func(s *Session, alice *Caller) {
			vera := s.onlooker("vera")
			alice.ask(contracts.RequestApproval, "inherited")
			alice.prompt(speaking())
			vera.expect("3.2", message("response_chunk").where("of the long response", func(f *Frame) bool { return f.str("content") == "chunk 0 " }))
			alice.disconnect(nil).ok("A15")
			bob := s.caller("bob", contracts.RoleController)
			f := bob.connected(nil).snapshot()
			vera.goesOn("3.2", f.Cursor)
			s.waits("D8", f, "inherited", true)
			bob.posted("D8", approve("inherited", true))
			vera.expect("D8", resolved("inherited").with("resolution", "approved"))
			bob.posted("3.2", &contracts.Interrupt{})
			vera.expect("3.2", message("response_end"))
		}),
	}
}

// leavesWith fails unless the answer to a disconnect says exactly what ended and who drives.
func (c *Caller) leavesWith(controller any) {
	c.s.equal("A13", "the answer", c.disconnect(nil).ok("A13").Body, fields{"success": true, "connection_id": c.connection,
		"controller_connection_id": controller, "disconnected_subscription_ids": []string{c.subscription}})
}

func heartbeatAnswer(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	for _, c := range []*Caller{alice, vera} {
		a := c.heartbeat(nil).ok("1.13")
		holds := c == alice
		a.has("1.13", fields{"connection_id": c.connection, "controller_lease_granted": holds, "controller_connection_id": alice.connection})
		end := instant(s, "1.13", a.at("lease_expires_at"))
		s.failIf(!end.After(time.Now().Add(-time.Minute)), "1.13", "expected lease_expires_at to lie ahead, got %s", end)
	}
}

func disconnectController(s *Session) {
	alice := s.driver()
	alice.prompt("before")
	alice.disconnect(nil).ok("A15").has("A15", fields{"controller_connection_id": nil})
	p := s.follow("vera", follow{cursor: new(int64)})
	p.expect("A15", prompted("before"))
	bob := s.caller("bob", contracts.RoleController)
	bob.connected(nil).has("A15", fields{"controller_lease_granted": true})
	bob.prompt("after")
	p.expect("A15", prompted("after"))
}

func (c *Caller) followed() *Peer { return c.follow(c.subscribed(nil).snapshot().Cursor) }
