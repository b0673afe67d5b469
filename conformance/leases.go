package conformance

import (
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// leases judges who may drive, over WebSocket and HTTP: A23 to A36.
func leases() []Scenario {
	return []Scenario{
		onSocket.scenario("lease/loser-refused", "A27 A34", "After a takeover the old controller's messages are refused", loserRefused),
		overHTTP.scenario("claim/loser-refused", "A27 A34", "The old controller's messages are refused", loserRefused),
		onSocket.scenario("lease/loser-still-follows", "A28 A115", "After a takeover the old controller keeps receiving", loserFollows),
		overHTTP.scenario("claim/loser-follows", "A28", "The old controller's stream goes on", loserFollows),
		onSocket.scenario("lease/run-survives-takeover", "3.2 A25", "A run goes on through a takeover", runSurvives),
		overHTTP.scenario("claim/run-survives", "3.2 A71", "A run goes on through a takeover, and stays the only one", runSurvives),
		onSocket.scenario("lease/ping-renews", "A32", "A sign of life moves lease_expires_at", leaseRenewed),

		onSocket.controller("lease/granted", "A1 A2", "The first controller holds the lease; a viewer sees who does", func(s *Session, alice *Peer) {
			alice.told("A1", fields{"controller_lease_granted": true, "controller_connection_id": alice.connection})
			vera := s.viewer("vera")
			vera.told("A2", fields{"controller_lease_granted": false, "controller_connection_id": alice.connection})
			s.leaseOf("A2", vera.last(control("snapshot")), alice.connection)
		}),
		onSocket.controller("lease/second-refused", "A23 A34 9.5", "A second controller is refused", func(s *Session, _ *Peer) {
			s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
		}),
		onSocket.controller("lease/second-refused-by-hello", "A23 A34 9.5", "A second controller that says so only in hello is refused too", func(s *Session, _ *Peer) {
			s.try("bob", s.controllerByHello()).heldRefusal(s)
		}),
		onSocket.controller("lease/refused-leaves-no-trace", "A24", "A refused controller is not counted", func(s *Session, _ *Peer) {
			before := number(s.viewer("vera").last(control("snapshot")).at("state.connection_count"))
			s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
			s.try("rob", s.controllerByHello()).heldRefusal(s)
			s.shows("A24", s.viewer("victor").last(control("snapshot")), fields{"state.connection_count": before + 1}) // victor
		}),
		onSocket.scenario("lease/takeover", "A25 A26 A115", "takeControl=1 moves the lease at once and tells the loser", func(s *Session) {
			alice, bob := s.controller(), s.successor("bob").p
			bob.told("A25", fields{"controller_lease_granted": true, "controller_connection_id": bob.connection})
			f := alice.expect("A115", control("ws.lease").with("granted", false).with("reason", "taken_over"))
			s.shows("A26", f, fields{"controller_connection_id": bob.connection})
			bob.prompt("mine now")
			bob.expect("A25", prompted("mine now"))
		}),
		onSocket.pilot("lease/first-message-claims", "A30", "A free lease goes to the first controller that sends a message", claimedByMessage),
		onSocket.scenario("lease/concurrent", "A33 A34", "Of controllers that attach at once exactly one gets in", func(s *Session) {
			s.attach("vera", entry{create: true, role: contracts.RoleViewer})
			names := []string{"alice", "bob", "carol", "dave"}
			peers := make([]*Peer, len(names))
			for i, name := range names {
				peers[i] = s.dialed(name, s.controllerByHello())
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
			s.failIf(winners != 1, "A33", "expected exactly one of %d controllers to get in, got %d", len(names), winners)
		}),
		onSocket.watched("lease/bye-releases", "A15 9.2", "Saying goodbye releases the lease and nothing else", func(s *Session, alice, vera *Peer) {
			alice.prompt("before")
			alice.send([]byte(`{"type":"ws.bye"}`))
			alice.closes("9.5", 1000)
			bob := s.attach("bob", entry{role: contracts.RoleController})
			bob.told("A15", fields{"controller_lease_granted": true})
			bob.prompt("after")
			vera.expect("A15", prompted("before"))
			vera.expect("A15", prompted("after"))
		}),
		onSocket.controller("lease/viewers-do-not-matter", "A14 A36", "Viewers that come and go leave the lease alone", func(s *Session, alice *Peer) {
			for range 3 {
				vera := s.viewer("vera")
				vera.send([]byte(`{"type":"ws.bye"}`))
				vera.closes("9.5", 1000)
			}
			alice.accepted("A36", alice.command(initNothing()))
			alice.none("A14", 0, control("ws.lease").with("granted", false))
		}),
		onSocket.controller("lease/expires", "A31", "The lease of a vanished controller is free after it expires", func(s *Session, alice *Peer) {
			s.shortLease(alice.leaseEnd())
			bob := s.attachLater("bob")
			end := alice.leaseEnd()
			alice.close() // vanishes without a word
			bob.refused(bob.command(initNothing()), notHolder("A31"))
			for time.Now().Before(end) {
				bob.fence() // stays alive, and keeps reading
				s.pause("A31", min(time.Until(end), time.Second))
			}
			s.until("A31", "a free lease after it expired", func() (bool, string) { // closing was a sign of life, too
				f := bob.expect("A31", bob.answer(bob.command(initNothing())))
				return f.Kind == "ws.result", f.said()
			})
		}).slow(),

		overHTTP.driver("claim/second-refused", "A23 A34 1.5", "A second controller is refused, however it attaches", func(s *Session, _ *Caller) {
			bob := s.caller("bob", contracts.RoleController)
			bob.connect(nil).alreadyHeld("A23")
			bob.connect(fields{"role": leftOut}).alreadyHeld("A23")
			bob.connect(fields{"takeControl": false}).alreadyHeld("A23")
			bob.subscribe(nil).alreadyHeld("A23")
		}),
		overHTTP.driver("claim/refused-leaves-no-trace", "A24 1.6", "A refused controller leaves no connection and publishes nothing", func(s *Session, _ *Caller) {
			before := s.state().at("state.connection_count")
			s.quietly("A24", func() {
				for _, name := range []string{"bob", "carol"} {
					c := s.caller(name, contracts.RoleController)
					c.connect(nil).alreadyHeld("A23")
					c.subscribe(nil).alreadyHeld("A23")
				}
			})
			s.shows("A24", s.state(), fields{"state.connection_count": before})
		}),
		overHTTP.attached("claim/takeover", "A25 3.4", "takeControl moves the lease at once, and everybody learns it", func(s *Session, _ *Caller, p *Peer) {
			bob := s.takeFrom("bob")
			s.leaseOf("A25", s.state(), bob.connection)
			bob.prompt("mine now")
			p.expect("A25", prompted("mine now"))
			p.await("3.4:announced", 0, message("connection_info").with("controller_connection_id", bob.connection))
			p.await("3.4:announced", 0, control("snapshot").with("state.controller_connection_id", bob.connection))
		}),
		overHTTP.driver("claim/loser-heartbeat", "A26", "The old controller's heartbeat tells it who drives now", func(s *Session, alice *Caller) {
			bob := s.takeFrom("bob")
			alice.heartbeat(nil).ok("A26").has("A26", fields{"controller_lease_granted": false, "controller_connection_id": bob.connection})
		}),
		overHTTP.triggers().pilot("claim/by-message", "A30 3.4", "A free lease goes to the first controller that sends a message", claimedByMessage),
		overHTTP.scenario("claim/concurrent", "A33", "Of controllers that subscribe at once exactly one gets the lease", func(s *Session) {
			s.caller("vera", contracts.RoleViewer).connected(nil) // a session with a free lease
			var requests []request
			for _, name := range []string{"alice", "bob", "carol", "dave", "erin", "frank"} {
				c := s.caller(name, contracts.RoleController)
				requests = append(requests, request{who: name, method: http.MethodPost, path: s.route("subscribe"), body: encode(c.introduction())})
			}
			s.oneOf(s.together(requests...), "A33", contracts.CodeControllerLeaseHeld, textHeld)
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
			s.failIf(s.state().str("state.last_status") == "Prompt: who am I", "A35", "expected a nameless prompt to do nothing")
		}),
		overHTTP.scenario("claim/implicit-stream", "A36", "A stream of its own neither takes nor releases the lease", func(s *Session) {
			s.caller("vera", contracts.RoleViewer).connected(nil)
			p := s.follow("ida", follow{header: http.Header{"X-Maestro-Headless-Role": {"controller"}}})
			p.begins("A42")
			s.leaseOf("A36", s.state(), nil)
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
		overHTTP.connected("claim/expires", "A31", "The lease of a silent controller is free after it expires", func(s *Session, alice *Caller) {
			s.shortLease(alice.leaseEnd())
			p := s.onlooker("vera")
			bob := s.caller("bob", contracts.RoleController)
			bob.connected(fields{"takeControl": true})
			alice.connected(fields{"takeControl": true}) // takes the lease back
			end := alice.leaseEnd()                      // and then not a word
			alice.beats = 0
			bob.post(initNothing()).refused("A31", contracts.CodeControllerLeaseHeld, textNotHolder)
			for time.Now().Before(end) {
				bob.heartbeat(nil).ok("A32")
				s.pause("A31", min(time.Until(end), 500*time.Millisecond))
			}
			s.until("A31", "a free lease after it expired", func() (bool, string) {
				a := bob.post(initNothing())
				return a.Status == http.StatusOK, a.said()
			})
			p.await("3.2", 0, control("snapshot").where("without the silent controller", func(f *Frame) bool { return entryOf(f, alice.connection) == nil }))
			alice.heartbeat(nil).refused("3.2", contracts.CodeStaleConnection, textNoConnection)
		}).slow(),
	}
}

func loserRefused(s *Session) {
	alice, bob := s.pilot(), s.successor("bob")
	bob.p.still("3.4", len(bob.p.log), noEffect) // the takeover itself is announced
	bob.quietly("A27", func() {
		for _, cmd := range []contracts.Command{&contracts.Prompt{Content: "old"}, &contracts.Init{}, &contracts.Interrupt{}, &contracts.Shutdown{}} {
			alice.refused(cmd, notHolder("A27"))
		}
	})
}

func loserFollows(s *Session) {
	alice, bob := s.pilot(), s.successor("bob")
	bob.triggers("seen by both")
	alice.p.expect("A28", prompted("seen by both"))
}

func claimedByMessage(s *Session, alice *pilot) {
	bob := s.successor("bob")
	alice.refused(initNothing(), notHolder("A27"))
	bob.leaves()
	s.leaseOf("A30", alice.now(), nil)
	alice.tell("A30", &contracts.Prompt{Content: "processed too"})
	alice.p.expect("A30", prompted("processed too"))
	s.leaseOf("A30", alice.now(), alice.p.connection)
}

func runSurvives(s *Session) {
	alice := s.pilot()
	alice.triggers(speaking())
	alice.p.expect("R36", message("response_chunk"))
	bob := s.successor("bob")
	bob.refused(&contracts.Prompt{Content: "early"}, busyRefusal("A71"))
	alice.p.goesOn("3.2", bob.cursor())
	bob.tell("3.4", &contracts.Interrupt{})
	expectAll("3.2", message("response_end"), alice.p, bob.p)
}

func leaseRenewed(s *Session) {
	d := s.pilot()
	first := d.leaseEnd()
	s.pause("A32", 20*time.Millisecond)
	second := d.leaseEnd()
	s.failIf(!second.After(first), "A32", "expected lease_expires_at to move on, got %s after %s", second, first)
	left := time.Until(second)
	s.failIf(left < 0 || left > 24*time.Hour, "A32", "expected lease_expires_at in the near future, got %s (in %s)", second, left)
}

func (d *pilot) leaseEnd() time.Time {
	if d.c != nil {
		return d.c.leaseEnd()
	}
	return d.p.leaseEnd()
}

func (c *Caller) leaseEnd() time.Time {
	return instant(c.s, "A32", c.heartbeat(nil).ok("A32").at("lease_expires_at"))
}

func (p *Peer) leaseEnd() time.Time {
	f := p.expect("A32", control("ws.pong").with("id", p.frame("ws.ping", nil)))
	end, err := time.Parse(time.RFC3339, f.str("lease_expires_at"))
	p.s.failIf(err != nil, "A32", "expected lease_expires_at as an RFC 3339 time, got %s", show(f.at("lease_expires_at")))
	return end
}

// shortLease skips a scenario that would have to wait too long for a lease to
// expire, and returns how long it lasts.
func (s *Session) shortLease(end time.Time) time.Duration {
	const longest = 20 * time.Second
	left := time.Until(end)
	if left > longest {
		s.skip("the lease lasts %s: start the server with a lease of at most %s", left.Round(time.Second), longest)
	}
	return left
}

func (a *Answer) alreadyHeld(rule string) *Answer {
	return a.refused(rule, contracts.CodeControllerLeaseHeld, textHeld)
}

// leaseOf fails unless a connection holds the lease as of a snapshot; nil is nobody.
func (s *Session) leaseOf(rule string, f *Frame, connection any) {
	s.equal(rule, "the holder of the lease", holderOf(f), connection)
}

// told is shows for the ws.attached of a client.
func (p *Peer) told(rule string, want fields) {
	p.s.shows(rule, &Frame{Fields: p.attached, Raw: encode(p.attached)}, want)
}

func (a attempt) heldRefusal(s *Session) {
	a.refusedWith(s, "A34", contracts.CodeControllerLeaseHeld)
	s.failIf(a.text != "" && a.text != textHeld, "A23", "expected the text %q, got %q", textHeld, a.text)
}

// controllerByHello attaches as a controller that only its hello shows.
func (s *Session) controllerByHello() entry { return entry{hello: s.hello(contracts.RoleController)} }

func notHolder(rule string) refusal {
	return refusal{rule: rule, text: textNotHolder, code: contracts.CodeControllerLeaseHeld}
}

// attachLater attaches as controller without the lease.
func (s *Session) attachLater(name string) *Peer {
	p := s.attach(name, entry{role: contracts.RoleController, take: string(contracts.TakeoverLater)})
	p.told("D7", fields{"role": "controller", "controller_lease_granted": false})
	return p
}

// takeFrom returns a controller that has taken the lease from whoever held it.
func (s *Session) takeFrom(name string) *Caller {
	c := s.caller(name, contracts.RoleController)
	c.connected(fields{"takeControl": true}).has("A25", fields{"controller_lease_granted": true})
	c.subscribed(nil)
	return c
}

// handovers judges asking for, granting and giving up the lease (D7).
func handovers() []Scenario {
	return []Scenario{
		onSocket.scenario("handover/later", "D7", "takeControl=later attaches a controller without the lease", func(s *Session) { s.controller(); s.attachLater("bob") }),
		onSocket.rivals("handover/ask-free", "D7", "Asking for a free lease grants it at once", func(_ *Session, alice, bob *Peer) {
			alice.accepted("9.2", alice.frame("ws.release_control", nil))
			bob.accepted("D7", bob.frame("ws.ask_control", map[string]any{"reason": "it is free"}))
			bob.expect("D7", granted(bob))
			bob.accepted("D7", bob.command(initNothing()))
		}),
		onSocket.rivals("handover/grant", "D7", "The holder is asked, grants, and everybody learns the outcome", func(_ *Session, alice, bob *Peer) {
			asks(bob, alice, "my turn")
			bob.refused(bob.command(initNothing()), notHolder("A27"))
			alice.accepted("D7", alice.frame("ws.grant_control", map[string]any{"connection_id": bob.connection}))
			bob.expect("D7", granted(bob))
			alice.expect("D7", control("ws.lease").with("granted", false).with("controller_connection_id", bob.connection))
			alice.refused(alice.command(initNothing()), notHolder("A27"))
			bob.accepted("D7", bob.command(initNothing()))
		}),
		onSocket.rivals("handover/deny", "D7", "The holder is asked and denies; nothing moves", func(_ *Session, alice, bob *Peer) {
			asks(bob, alice, "please")
			alice.accepted("D7", alice.frame("ws.deny_control", map[string]any{"connection_id": bob.connection, "reason": "not now"}))
			bob.expect("D7", control("ws.lease").with("granted", false).with("reason", "denied").with("controller_connection_id", alice.connection))
			bob.refused(bob.command(initNothing()), notHolder("A27"))
			alice.accepted("D7", alice.command(initNothing()))
		}),
		onSocket.watched("handover/grant-to-whom", "D7", "The lease can only be granted to a connection that asked", func(_ *Session, alice, vera *Peer) {
			for _, to := range []string{"conn_nobody", vera.connection} {
				alice.notAccepted("D7", alice.frame("ws.grant_control", map[string]any{"connection_id": to}))
			}
			alice.accepted("D7", alice.command(initNothing()))
			vera.still("D7", 0, control("ws.lease").with("granted", true))
		}),
		onSocket.controller("handover/only-the-holder-grants", "D7", "Only the holder grants and denies", func(s *Session, alice *Peer) {
			bob, carol := s.attachLater("bob"), s.attachLater("carol")
			asks(bob, alice, "please")
			for _, kind := range []string{"ws.grant_control", "ws.deny_control"} {
				carol.notAccepted("D7", carol.frame(kind, map[string]any{"connection_id": bob.connection}))
			}
			alice.accepted("D7", alice.command(initNothing()))
			bob.still("D7", 0, control("ws.lease"))
		}),
		onSocket.rivals("handover/take", "9.2 A115", "ws.take_control moves the lease without reconnecting", func(_ *Session, alice, bob *Peer) {
			bob.accepted("9.2", bob.frame("ws.take_control", nil))
			bob.expect("9.2", granted(bob))
			alice.expect("A115", control("ws.lease").with("granted", false).with("reason", "taken_over").with("controller_connection_id", bob.connection))
			bob.accepted("9.2", bob.command(initNothing()))
			alice.refused(alice.command(initNothing()), notHolder("A27"))
		}),
		onSocket.controller("handover/release", "9.2", "ws.release_control gives the lease up and stays attached", func(s *Session, alice *Peer) {
			alice.accepted("9.2", alice.frame("ws.release_control", nil))
			f := s.viewer("vera")
			got := f.attached["controller_connection_id"]
			s.failIf(got != nil, "9.2", "expected nobody to hold the lease after its release, got %s", show(got))
			alice.accepted("A30", alice.command(initNothing())) // claims it again
		}),
		onSocket.rivals("handover/generations", "D7", "Every grant has a higher generation", func(s *Session, alice, bob *Peer) {
			last := int64(0)
			for i := range 4 {
				p := []*Peer{bob, alice}[i%2]
				p.accepted("9.2", p.frame("ws.take_control", nil))
				g := number(p.expect("D7", granted(p)).at("generation"))
				s.failIf(g <= last, "D7", "expected the generation to grow with every grant, got %d after %d", g, last)
				last = g
			}
		}),
		onSocket.watched("handover/viewer", "A37 A36", "A viewer can neither take nor ask for the lease", func(s *Session, alice, vera *Peer) {
			for _, kind := range []string{"ws.take_control", "ws.ask_control"} {
				f := vera.notAccepted("A37", vera.frame(kind, nil))
				s.shows("A37", f, fields{"code": string(contracts.CodeAccessDenied)})
			}
			alice.accepted("A36", alice.command(initNothing()))
		}),
		onSocket.watched("handover/visible", "3.4 D7", "A hand-over is announced to all by connection_info", func(s *Session, alice, vera *Peer) {
			from := len(vera.log)
			bob := s.attachLater("bob")
			bob.accepted("9.2", bob.frame("ws.take_control", nil))
			vera.await("3.4", from, message("connection_info").with("controller_connection_id", bob.connection))
			alice.expect("3.4", message("connection_info").with("controller_connection_id", bob.connection))
		}),
	}
}

func granted(p *Peer) want {
	return control("ws.lease").with("granted", true).with("controller_connection_id", p.connection)
}

// asks lets bob ask and alice see it.
func asks(bob, alice *Peer, reason string) {
	bob.accepted("D7", bob.frame("ws.ask_control", map[string]any{"reason": reason}))
	f := alice.expect("D7", control("ws.control_request").with("connection_id", bob.connection).with("reason", reason))
	alice.s.shows("D7", f, fields{"client_info.name": bob.name})
}

func (p *Peer) notAccepted(rule, id string) *Frame {
	f := p.expect(rule, p.answer(id))
	p.s.failIf(f.Kind != "ws.error", rule, "%s: expected ws.error for %s, got %s", p.name, id, f.said())
	return f
}
