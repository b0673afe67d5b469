package conformance

import (
	"cmp"
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

// people judges the capability people: R32:people.
func people() []Scenario {
	seed, seedSocket := Needs{Seed: true}, Needs{Transport: Socket, Seed: true}
	return []Scenario{
		seed.scenario("people/prompt", "R32", "A client that negotiated people is shown its prompt with its name", func(s *Session) {
			p := s.join("alice", s.asksForPeople(contracts.RoleController))
			s.skipWithoutPeople(p)
			p.prompt("who")
			p.expect("R32:people", message("prompt_accepted").with("content", "who").with("author.claimed_name", "the user of alice").
				with("author.client_info.name", "alice").with("author.connection_id", cmp.Or(p.connection, "local")))
			p.expect("R32:people", prompted("who"))
		}),
		seedSocket.controller("people/answer", "R32", "Clients that negotiated people are shown who answered", func(s *Session, alice *Peer) {
			rhea, vera := s.observer("rhea"), s.viewer("vera")
			s.skipWithoutPeople(rhea)
			alice.ask(contracts.RequestApproval, "asked")
			alice.accepted("R32:people", alice.command(approve("asked", true)))
			expectAll("R32:people", resolved("asked"), rhea, vera)
			f := rhea.last(resolved("asked"))
			s.failIf(f.str("author.connection_id") != alice.connection, "R32:people", "expected that alice answered, got %s", f.said())
			for _, p := range []*Peer{alice, vera} {
				p.still("R32:people", 0, anyOf(message("prompt_accepted"), message("control_changed")))
			}
		}),
		seedSocket.controller("people/control", "R32", "Clients that negotiated people are shown who takes control from whom", func(s *Session, alice *Peer) {
			rhea := s.observer("rhea")
			s.skipWithoutPeople(rhea)
			bob := s.successor("bob").p
			rhea.expect("R32:people", message("control_changed").with("from.connection_id", alice.connection).
				with("to.connection_id", bob.connection).with("reason", "taken_over"))
			bob.send([]byte(`{"type":"ws.release_control"}`))
			rhea.expect("R32:people", message("control_changed").with("from.connection_id", bob.connection).with("to", nil).with("reason", "released"))
		}),
		seedSocket.controller("people/snapshot", "R32", "Snapshots hold the last prompts for clients that negotiated people", func(s *Session, alice *Peer) {
			alice.prompt("before")
			alice.expect("R32:people", prompted("before"))
			rhea, vera := s.observer("rhea"), s.viewer("vera")
			s.skipWithoutPeople(rhea)
			s.lastPrompt(rhea.last(control("snapshot")), "before", alice.connection)
			f := vera.last(control("snapshot"))
			s.failIf(f.at("state.people") != nil, "R32:people", "expected no people for a client that did not ask, got %s", f.said())
		}),
		seedOverHTTP.scenario("people/stream", "R32", "Over HTTP too, the author of a prompt is in the stream and in the state", func(s *Session) {
			alice, p := s.callerWithPeople()
			vera := s.onlooker("vera")
			answer := alice.prompt("who")
			p.expect("R32:people", message("prompt_accepted").with("content", "who").with("author.claimed_name", "the user of alice").
				with("author.connection_id", alice.connection))
			s.lastPrompt(answer.snapshot(), "who", alice.connection)
			vera.expect("R32:people", prompted("who"))
			f := s.state()
			s.failIf(f.at("state.people") != nil, "R32:people", "expected no people in the state of the session, got %s", f.said())
		}),
		overHTTP.visited("people/connections", "1.1", "The list of connections has each client with its role, and says who is in control",
			func(s *Session, alice, vera *Caller) {
				a := s.get(s.route("connections"))
				if a.noRoute() {
					s.skip("needs a server that lists the connections of a session")
				}
				a.ok("1.1:connections").shaped("1.1:connections", "ConnectionList").has("1.1:connections", fields{"connection_count": 2})
				roles := map[string]string{}
				for _, c := range listOf(&a.Frame, "connections") {
					author, _ := c["author"].(map[string]any)
					roles[textOf(author, "connection_id")] = fmt.Sprint(c["role"], " ", c["controller"])
				}
				s.equal("1.1:connections", "the roles, and who is in control", roles, map[string]string{
					alice.connection: "controller true", vera.connection: "viewer false",
				})
			}),
	}
}

// asksForPeople returns the hello of a client that wants to know who did what.
func (s *Session) asksForPeople(role contracts.Role) *contracts.Hello {
	h := s.hello(role)
	caps := contracts.Capabilities{}
	if h.Capabilities != nil {
		caps = *h.Capabilities
	}
	caps.People = true
	h.Capabilities, h.DisplayName = &caps, "the user of alice"
	return h
}

// observer returns a viewer that negotiated people; sockets only.
func (s *Session) observer(name string) *Peer {
	return s.attach(name, entry{role: contracts.RoleViewer, hello: s.asksForPeople(contracts.RoleViewer)})
}

// callerWithPeople returns a controller over HTTP that negotiated people, and its stream.
func (s *Session) callerWithPeople() (*Caller, *Peer) {
	c := s.caller("alice", contracts.RoleController)
	c.connected(fields{"capabilities": fields{"people": true}, "displayName": "the user of alice"})
	begin := c.subscribed(nil).snapshot()
	if begin.at("state.people") == nil {
		s.skip("the server does not tell who did what")
	}
	return c, s.follow(c.name, follow{subscription: c.subscription, cursor: &begin.Cursor, people: true, header: c.proof()})
}

func (s *Session) skipWithoutPeople(p *Peer) {
	if p.last(message("hello_ok")).at("server_capabilities.people") != true {
		s.skip("the server does not tell who did what")
	}
}

// lastPrompt fails unless a state holds a prompt as the last one, and its author as
// controller.
func (s *Session) lastPrompt(f *Frame, content, connection string) {
	prompts := listOf(f, "state.people.prompts")
	ok := len(prompts) > 0 && textOf(prompts[len(prompts)-1], "content") == content && f.str("state.people.controller.connection_id") == connection
	s.failIf(!ok, "R32:people", "expected the prompt %q of %s and its author in control, got %s", content, connection, show(f.at("state.people")))
}
