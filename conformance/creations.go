package conformance

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// creations judges how sessions begin and end over HTTP: 1.7, A76, A83.
var creations = []Scenario{
	overHTTP.scenario("session/created", "1.7", "Posting an unknown session id creates that session, and answers its snapshot", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		f := alice.create("1.7", "conf-"+uuid.NewString(), nil).snapshot()
		entries := listOf(f, "state.connections")
		s.failIf(len(entries) != 1 || entries[0]["role"] != "controller" || entries[0]["controller_lease_granted"] != true, "1.7",
			"expected one connection, a controller with the lease, got %s", show(entries))
		if e := entries[0]; textOf(e, "connection_id") == "" || show(e["client_info"]) != `{"name":"alice","version":"1.0"}` {
			s.fail("1.7", "expected the connection to be the creator's, got %s", show(e))
		}
		s.state()
	}),
	overHTTP.scenario("session/new-id", "1.7", "Posting no session id creates a session of the server's naming", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		first := alice.create("1.7", "", nil).str("session_id")
		second := alice.create("1.7", "", nil).str("session_id")
		s.failIf(first == "" || first == second, "1.7",
			"expected two sessions with ids of their own, got %q and %q", first, second)
		s.state()
	}),
	overHTTP.scenario("session/as-viewer", "1.7", "A session created by a viewer has a free lease", func(s *Session) {
		vera := s.caller("vera", contracts.RoleViewer)
		f := vera.create("1.7", "", nil).snapshot()
		s.leaseOf("1.7", f, nil)
		bob := s.caller("bob", contracts.RoleController)
		bob.connected(nil).has("1.7", fields{"controller_lease_granted": true})
	}),
	overHTTP.scenario("session/adopted", "1.7 1.9", "The creator's connection is adopted by the first subscription, once", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		f := alice.create("1.7", "", nil).snapshot()
		a := alice.subscribed(nil) // names no connection
		s.failIf(alice.connection != textOf(listOf(f, "state.connections")[0], "connection_id") || a.at("controller_lease_granted") != true, "1.7",
			"expected the subscription to adopt the creator's connection, got %s", a.said())
		s.shows("1.7", s.state(), fields{"state.connection_count": 1})
		alice.posted("1.7", initNothing())
		s.caller("bob", contracts.RoleController).subscribe(nil).alreadyHeld("1.9")
	}),
	overHTTP.scenario("session/exists", "1.7", "Posting the id of a session that exists changes nothing", func(s *Session) {
		alice := s.driver()
		alice.posted("R35", &contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
		before := s.state()
		bob := s.caller("bob", contracts.RoleController)
		a := bob.create("1.7", s.ID, fields{"approvalMode": "auto", "model": "another"})
		f := a.snapshot()
		for _, path := range []string{"state.connection_count", "state.model", "state.controller_connection_id", "last_init.thinking_level"} {
			s.failIf(show(f.at(path)) != show(before.at(path)), "1.7",
				"expected %s to stay %s, got %s", path, show(before.at(path)), show(f.at(path)))
		}
	}),
	overHTTP.scenario("session/concurrent", "A83", "Creations of one id at the same time yield one runtime", func(s *Session) {
		alice, id := s.caller("alice", contracts.RoleController), "conf-"+uuid.NewString()
		requests := make([]request, 8)
		for i := range requests {
			requests[i] = alice.creating(id, nil)
		}
		epochs := map[string]bool{}
		for _, a := range s.together(requests...) {
			a.created("A83", id).shaped("A83", "Snapshot")
			if e := a.Header.Get(epochHeader); e != "" {
				epochs[e] = true
			}
		}
		s.ID, s.opened = id, true
		epochs[s.stateOf(id).ok("A83").epoch()] = true
		s.failIf(len(epochs) != 1, "A83", "expected one runtime, got %d epochs", len(epochs))
		s.shows("A83", s.state(), fields{"state.connection_count": 1})
	}),
	overHTTP.scenario("session/idempotent", "1.7", "A repeated creation with its Idempotency-Key is the same session", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		r := alice.creating("", nil)
		r.header = http.Header{"Idempotency-Key": {"create-" + uuid.NewString()}}
		a, b := s.call(r).created("1.7:key", ""), s.call(r).ok("1.7:key")
		s.failIf(a.str("session_id") != b.str("session_id"), "1.7:key",
			"expected one session for one key, got %q and %q", a.str("session_id"), b.str("session_id"))
		r.header = http.Header{"Idempotency-Key": {"create-" + uuid.NewString()}}
		if c := s.call(r).ok("1.7:key"); c.str("session_id") == a.str("session_id") {
			s.fail("1.7:key", "expected another session for another key, got %q again", a.str("session_id"))
		}
	}),
	overHTTP.scenario("session/listed", "1.1", "Sessions can be listed", func(s *Session) {
		s.controllerOnly()
		a := s.get(sessionsPath).ok("1.1:list")
		if _, isList := a.at("sessions").([]any); !isList {
			s.fail("1.1:list", "expected a list of sessions, got %s", a.said())
		}
		for _, entry := range listOf(&a.Frame, "sessions") {
			id := textOf(entry, "session_id")
			s.failIf(id == "", "1.1:list", "expected every entry to have a session_id, got %s", show(entry))
			if id == s.ID {
				return
			}
		}
		s.fail("1.1:list", "expected session %s among %d sessions", s.ID, len(listOf(&a.Frame, "sessions")))
	}),
	overHTTP.scenario("session/outlives-clients", "1.6 A15", "A session that everybody left can be attached to again", func(s *Session) {
		alice := s.driver()
		alice.prompt("before")
		alice.disconnect(nil).ok("A15")
		bob := s.caller("bob", contracts.RoleController)
		a := bob.connected(nil)
		s.failIf(a.at("controller_lease_granted") != true || a.snapshot().Cursor == 0, "1.6",
			"expected the session with its past and a free lease, got %s", a.said())
		zero := int64(0)
		s.follow("judge", follow{cursor: &zero}).expect("A15", prompted("before"))
	}),
	overHTTP.scenario("session/shutdown", "A76 3.6", "shutdown ends the session: its streams with a final snapshot, its routes with 404", func(s *Session) {
		alice, own := s.attached()
		vera := s.onlooker("vera")
		alice.ask(contracts.RequestApproval, "shut")
		alice.posted("A76", &contracts.Shutdown{})
		for _, p := range []*Peer{own, vera} {
			p.expect("R71", resolved("shut").with("reason", shutReason))
			p.expect("3.6:ends", control("snapshot").with("state.is_ready", false))
			p.finishes("3.6:ends")
		}
		for _, r := range []request{alice.sending(encodeCommand(initNothing())), {method: http.MethodGet, path: s.route("state")},
			{method: http.MethodGet, path: s.route("events")}, {method: http.MethodPost, path: s.route("subscribe"), body: []byte(`{}`)}} {
			r.who = "alice"
			s.call(r).refused("A76", contracts.CodeStaleSession, "")
		}
	}),
}

// creating is the request that creates the scenario's session.
func (c *Caller) creating(id string, f fields) request {
	body := c.introduction()
	if id != "" {
		body["sessionId"] = id
	}
	return request{who: c.name, method: http.MethodPost, path: sessionsPath, body: encode(with(body, f))}
}

// create posts a session and checks the snapshot in the answer.
func (c *Caller) create(rule, id string, f fields) *Answer {
	a := c.s.call(c.creating(id, f)).created(rule, id)
	a.shaped(rule, "Snapshot")
	got := a.str("session_id")
	c.s.failIf(id != "" && got != id, rule, "expected a snapshot of session %s, got one of %q", id, got)
	c.s.ID, c.s.opened, c.token = a.str("session_id"), true, a.Header.Get(tokenHeader)
	return a
}

// created fails unless a session was made, under an id unless that is empty.
func (a *Answer) created(rule, id string) *Answer {
	switch {
	case a.noRoute():
		a.s.fail("1.1:sessions", "%s: expected a session, got %s", a.what(), a.said())
	case id != "" && a.Status == http.StatusNotFound:
		a.s.fail("1.7:unknown", "%s: expected the session %s to be made, got %s", a.what(), id, a.said())
	}
	return a.ok(rule)
}
