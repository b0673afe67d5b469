package conformance

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// connections judges POST connections: A3 to A8, A18 to A22, and 1.6.
func connections() []Scenario {
	return []Scenario{
		overHTTP.newcomer("connection/created", "A3", "A connection is counted, has no subscription, and takes a free lease", func(s *Session, alice *Caller) {
			f := alice.connected(nil).snapshot()
			s.shows("A3", f, fields{"state.connection_count": 1, "state.subscriber_count": 0})
			s.leaseOf("A3", f, alice.connection)
			s.lists("A3", entryOf(f, alice.connection), fields{"subscription_count": 0, "controller_lease_granted": true, "role": "controller"})
		}),
		overHTTP.driver("connection/refreshed", "A4", "Connecting again with the id is the same connection", func(s *Session, alice *Caller) {
			id, before := alice.connection, s.state()
			a := alice.connected(nil).has("A4", fields{"connection_id": id, "controller_lease_granted": true})
			s.shows("A4", a.snapshot(), fields{"state.connection_count": before.at("state.connection_count")})
		}),
		overHTTP.connected("connection/unknown", "A5 1.6", "An unknown connection id is refused, never minted", func(s *Session, alice *Caller) {
			before := s.state()
			a := alice.connect(fields{"connectionId": "conn_of_my_own"})
			a.refused("A5", contracts.CodeStaleConnection, textNoConnection)
			alice.submit(s.route("subscribe"), fields{"connectionId": "conn_of_my_own", "role": "viewer"}).
				refused("1.5", contracts.CodeStaleConnection, textNoConnection)
			s.shows("1.6", s.state(), fields{"state.connection_count": before.at("state.connection_count")})
		}),
		overHTTP.scenario("connection/unknown-session", "1.6", "Connecting to an unknown session does not create it", func(s *Session) {
			id := "conf-" + uuid.NewString()
			s.put(connectionsPath, fields{"sessionId": id}).refused("1.6", contracts.CodeStaleSession, "")
			s.stateOf(id).refused("1.8", contracts.CodeStaleSession, textNoSession)
		}),
		overHTTP.connected("connection/new-session", "1.6", "Without a session id it is a new session", func(s *Session, first *Caller) {
			id := s.ID
			s.opened = false
			second := s.caller("bob", contracts.RoleController)
			a := second.connected(fields{"sessionId": "  "}) // blank is absent
			s.failIf(s.ID == id || second.connection == first.connection, "1.6",
				"expected a session of its own without a session id, got %s again", id)
			a.has("1.6", fields{"controller_lease_granted": true})
			s.stateOf(id).ok("1.8")
			s.state()
		}),
		overHTTP.newcomer("connection/metadata", "A7", "What a client says of itself is in the snapshot's entry", func(s *Session, alice *Caller) {
			a := alice.connected(everything())
			a.has("A7", fields{"opt_out_notifications": []string{"compaction", "heartbeat"}})
			checkEntry(s, "A7", entryOf(a.snapshot(), alice.connection))
			checkEntry(s, "A7", entryOf(s.state(), alice.connection))
		}),
		overHTTP.newcomer("connection/fields-kept", "3.2", "A later call overwrites what it says and keeps the rest", func(s *Session, alice *Caller) {
			alice.connected(everything())
			silent := fields{"protocolVersion": leftOut, "clientInfo": leftOut, "capabilities": leftOut, "role": leftOut}
			checkEntry(s, "3.2", entryOf(alice.connected(silent).snapshot(), alice.connection))
			silent["clientInfo"] = fields{"name": "renamed"}
			e := entryOf(alice.connected(silent).snapshot(), alice.connection)
			s.lists("3.2", e, fields{"client_info": fields{"name": "renamed"}, "opt_out_notifications": []string{"compaction", "heartbeat"}})
		}),
		overHTTP.attached("connection/announced", "1.6 4.3", "A connection is announced in full", func(s *Session, alice *Caller, p *Peer) {
			vera := s.guest("vera")
			f := p.expect("1.6:announced", message("connection_info").with("connection_id", vera.connection))
			s.shows("4.3:full", f, fields{"role": "viewer", "client_info.name": "vera", "controller_connection_id": alice.connection})
			for _, c := range []*Caller{alice, vera} {
				s.failIf(!slices.ContainsFunc(listOf(f, "connections"), func(e map[string]any) bool { return e["connection_id"] == c.connection }), "4.3:full",
					"expected connection %s to be listed, got %s", c.connection, f.said())
			}
			s.failIf(number(f.at("connection_count")) < 2, "4.3:full", "expected two connections at least, got %s", f.said())
		}),
		overHTTP.newcomer("connection/no-inheritance", "A21", "A new connection inherits nothing", func(s *Session, alice *Caller) {
			alice.connected(everything())
			a := s.put(connectionsPath, fields{"sessionId": s.ID, "role": "viewer"}).ok("A21")
			e := entryOf(a.snapshot(), a.str("connection_id"))
			for _, key := range []string{"client_info", "capabilities", "opt_out_notifications", "client_protocol_version"} {
				s.failIf(e[key] != nil && !emptyValue(e[key]), "A21", "expected a client that said nothing to have no %s, got %s", key, show(e[key]))
			}
		}),
		overHTTP.connected("connection/role-is-fixed", "A18 1.5", "No later call changes a connection's role", func(s *Session, alice *Caller) {
			vera := s.guest("vera")
			vera.connect(fields{"role": "controller"}).refused("A18", contracts.CodeRoleConflict, "")
			vera.subscribe(fields{"role": "controller"}).
				refused("A18", contracts.CodeRoleConflict, "Headless connection role does not match subscription role")
			alice.connect(fields{"role": "viewer", "capabilities": leftOut}).refused("A18", contracts.CodeRoleConflict, "")
			alice.subscribed(nil)
			alice.hello(s.hello(contracts.RoleViewer)).refused("A18", contracts.CodeRoleConflict, "")
			f := s.state()
			s.lists("A18", entryOf(f, vera.connection), fields{"role": "viewer"})
			s.lists("A18", entryOf(f, alice.connection), fields{"role": "controller"})
			s.leaseOf("A18", f, alice.connection)
		}),
		overHTTP.connected("connection/viewer-capabilities", "A19", "A viewer may not offer to answer people's questions", func(s *Session, _ *Caller) {
			before := s.state()
			for _, kind := range s.canAsk(contracts.RequestMCPElicitation, contracts.RequestUserInput) {
				offer := fields{"sessionId": s.ID, "role": "viewer", "capabilities": fields{"serverRequests": []string{string(kind)}}}
				text := "viewer headless connections cannot negotiate " + string(kind) + " requests"
				s.put(connectionsPath, offer).refused("A19", contracts.CodeBadRequest, text)
				s.put(s.route("subscribe"), with(offer, fields{"sessionId": leftOut})).refused("A19", contracts.CodeBadRequest, text)
			}
			s.shows("A19", s.state(), fields{"state.connection_count": before.at("state.connection_count")})
		}),
		overHTTP.scenario("connection/client-tools", "A20", "Client tools need their capability, and a controller", func(s *Session) {
			s.put(connectionsPath, fields{"enableClientTools": true}).
				refused("A20", contracts.CodeBadRequest, "client_tool capability is required when enableClientTools is true")
			s.put(connectionsPath, fields{"enableClientTools": true, "capabilities": fields{"serverRequests": []string{"approval"}}}).
				refused("A20", contracts.CodeBadRequest, "client_tool capability is required when enableClientTools is true")
			s.put(connectionsPath, fields{"enableClientTools": true, "role": "viewer", "capabilities": fields{"serverRequests": []string{"client_tool"}}}).
				refused("A20", contracts.CodeBadRequest, "viewer headless connections cannot enable client-side tools")
			s.caller("alice", contracts.RoleController).connected(fields{"enableClientTools": true, "capabilities": fields{"serverRequests": []string{"client_tool"}}})
			s.put(connectionsPath, fields{"sessionId": s.ID, "takeControl": true, "enableClientTools": true}).
				refused("A20", contracts.CodeBadRequest, "client_tool capability is required when enableClientTools is true")
		}),
		overHTTP.scenario("connection/vocabulary", "1.6", "Words outside the closed sets, and wrong types, are refused", func(s *Session) {
			s.attached()
			s.quietly("1.6:vocabulary", func() {
				for _, f := range []fields{
					{"role": "owner"}, {"role": 7}, {"sessionId": 7}, {"takeControl": "yes"}, {"clientInfo": "me"}, {"clientInfo": fields{}},
					{"optOutNotifications": []string{"gossip"}}, {"optOutNotifications": "status"}, {"approvalMode": "sometimes"}, {"thinkingLevel": "hard"},
					{"client": "emacs"}, {"capabilities": fields{"serverRequests": []string{"telepathy"}}},
					{"capabilities": fields{"utilityOperations": []string{"rm"}}}, {"capabilities": fields{"rawAgentEvents": 1}},
					{"capabilities": fields{"serverRequests": []string{"approval", "approval"}}},
				} {
					s.put(connectionsPath, with(fields{"sessionId": s.ID, "takeControl": true}, f)).refused("1.6:vocabulary", contracts.CodeBadRequest, "")
				}
			})
		}),
		Needs{Transport: HTTP, Strict: OnlyTolerant}.newcomer("connection/unknown-key-ignored", "D13 1.6", "A tolerant server ignores unknown keys and nulls", func(s *Session, alice *Caller) {
			odd := fields{"mood": "good", "connectionId": nil, "takeControl": nil, "optOutNotifications": nil}
			alice.connect(odd).ok("D13")
			alice.subscribe(fields{"mood": fields{"a": 1}, "subscriptionId": "sub_of_my_own", "clientInfo": nil}).ok("D13")
			s.failIf(alice.subscription == "sub_of_my_own", "1.9", "expected a subscriptionId in the body to be ignored")
			alice.heartbeat(fields{"mood": "good", "subscriptionId": nil}).ok("D13")
		}),
		Needs{Transport: HTTP, Strict: OnlyStrict}.connected("connection/unknown-key-refused", "D13", "A strict server refuses unknown keys and nulls", func(s *Session, alice *Caller) {
			for _, f := range []fields{{"mood": "good"}, {"clientInfo": nil}} {
				s.put(connectionsPath, f).refused("D13", contracts.CodeBadRequest, "")
				alice.subscribe(f).refused("D13", contracts.CodeBadRequest, "")
			}
			alice.heartbeat(fields{"mood": "good"}).refused("D13", contracts.CodeBadRequest, "")
		}),
		overHTTP.visited("connection/ids-are-random", "A22", "Ids cannot be guessed, and tokens are not ids", func(s *Session, alice, vera *Caller) {
			vera.subscribed(nil)
			ids := []string{alice.connection, alice.subscription, vera.connection, vera.subscription}
			for _, id := range ids {
				_, random, _ := strings.Cut(id, "_")
				s.failIf(len(random) < 22, "A22", "128 bits take 22 characters at least, got %q", id)
			}
			slices.Sort(ids)
			s.failIf(len(slices.Compact(ids)) != 4, "A22", "expected four different ids, got %q", ids)
			for _, c := range []*Caller{alice, vera} {
				s.failIf(c.token != "" && (strings.Contains(c.token, c.connection) || strings.Contains(c.connection, c.token)), "A22",
					"expected a token that the public connection id does not give away")
			}
		}),
	}
}

func everything() fields {
	return fields{"protocolVersion": contracts.ProtocolVersion, "clientInfo": fields{"name": "ops-console", "version": "3.1.0"},
		"capabilities":        fields{"serverRequests": []string{"approval", "user_input"}, "utilityOperations": []string{"file_read"}, "rawAgentEvents": true},
		"optOutNotifications": []string{"compaction", "heartbeat"}}
}

func checkEntry(s *Session, rule string, e map[string]any) {
	s.lists(rule, e, fields{"client_protocol_version": contracts.ProtocolVersion, "client_info": fields{"name": "ops-console", "version": "3.1.0"},
		"opt_out_notifications": []string{"compaction", "heartbeat"}, "capabilities": fields{"raw_agent_events": true,
			"server_requests": []string{"approval", "user_input"}, "utility_operations": []string{"file_read"}}})
}

// tokens judges connection tokens: A40 and 8.1.
func tokens() []Scenario {
	return []Scenario{
		overHTTP.connected("token/given", "8.1", "A connection gets a secret of its own, in a header and nowhere else", func(s *Session, alice *Caller) {
			vera := s.caller("vera", contracts.RoleViewer)
			vera.subscribed(nil)
			for _, c := range []*Caller{alice, vera} {
				s.failIf(len(c.token) < 22, "8.1:token",
					"expected a connection token of 128 bits or more in %s, got %d characters", tokenHeader, len(c.token))
			}
			s.failIf(alice.token == vera.token, "8.1:token", "two connections have the same token")
			p := s.follow("judge", follow{})
			for _, text := range [][]byte{s.state().Raw, p.begins("A42").Raw} {
				for _, c := range []*Caller{alice, vera} {
					s.failIf(bytes.Contains(text, []byte(c.token)), "8.1:token", "expected tokens to be in no body")
				}
			}
		}),
		overHTTP.driver("token/wrong", "8.1 A40", "A wrong token is refused wherever a connection acts", func(_ *Session, alice *Caller) {
			alice.impostor("8.1:token", http.Header{tokenHeader: {"not-" + alice.token}})
		}),
		overHTTP.visited("token/of-another", "A40 A41", "The token of another connection is a wrong one", func(_ *Session, alice, vera *Caller) {
			alice.impostor("A40", http.Header{tokenHeader: {vera.token}})
		}),
		Needs{Transport: HTTP, Tokens: TokensRequired}.driver("token/required", "A40", "Knowing the controller's public id is not being the controller", func(_ *Session, alice *Caller) {
			alice.impostor("A40", nil)
		}),
		Needs{Transport: HTTP, Tokens: TokensOptional}.driver("token/optional", "8.1", "A server with optional tokens does without", func(_ *Session, alice *Caller) {
			alice.token = ""
			alice.posted("8.1:token", initNothing())
			alice.heartbeat(nil).ok("8.1:token")
			alice.unsubscribe(alice.subscription).ok("8.1:token")
		}),
		overHTTP.driver("token/survives-refresh", "8.1", "After a refresh the token is good, or the new one that came with it", func(_ *Session, alice *Caller) {
			for range 2 {
				alice.connected(nil) // presents the token, and may be given another
				alice.posted("8.1:token", initNothing())
			}
			alice.subscribed(nil)
			alice.heartbeat(nil).ok("8.1:token")
		}),
	}
}

// acts are the requests in which a connection acts, with the headers that come
// on top of its public ids.
func (c *Caller) acts(h http.Header) []request {
	ids := fields{"connectionId": c.connection}
	message := c.sending(encodeCommand(initNothing()))
	message.header = http.Header{"X-Maestro-Headless-Connection-Id": {c.connection}}
	list := []request{
		message,
		{method: http.MethodPost, path: c.s.route("heartbeat"), body: encode(ids)},
		{method: http.MethodPost, path: c.s.route("unsubscribe"), body: encode(fields{"subscriptionId": c.subscription})},
		{method: http.MethodPost, path: c.s.route("subscribe"), body: encode(ids)},
		{method: http.MethodPost, path: connectionsPath, body: encode(with(ids, fields{"sessionId": c.s.ID}))},
		{method: http.MethodPost, path: c.s.route("disconnect"), body: encode(ids)}, // last: it may succeed
	}
	for i := range list {
		list[i].who = "mallory"
		if list[i].header == nil {
			list[i].header = http.Header{}
		}
		maps.Copy(list[i].header, h)
	}
	return list
}

// impostor fails if any of the acts is done: who cannot prove to be a
// connection learns no more than that.
func (c *Caller) impostor(rule string, h http.Header) {
	for _, r := range c.acts(h) {
		a := c.s.call(r)
		denials := []contracts.Code{contracts.CodeAccessDenied, contracts.CodeStaleConnection, contracts.CodeStaleSubscription}
		c.s.failIf(!slices.Contains(denials, contracts.Code(a.str("code"))), rule, "%s: expected an impostor to be refused, got %s", a.what(), a.said())
	}
	c.posted(rule, initNothing()) // the real one is still there, and drives
	f := c.s.state()
	c.s.lists(rule, entryOf(f, c.connection), fields{"subscription_count": 1})
	c.s.leaseOf(rule, f, c.connection)
}

// creations judges how sessions begin and end over HTTP: 1.7, A76, A83.
func creations() []Scenario {
	return []Scenario{
		overHTTP.newcomer("session/created", "1.7", "Posting an unknown session id creates that session, and answers its snapshot", func(s *Session, alice *Caller) {
			entries := listOf(alice.create("1.7", "conf-"+uuid.NewString(), nil).snapshot(), "state.connections")
			s.failIf(len(entries) != 1 || entries[0]["role"] != "controller" || entries[0]["controller_lease_granted"] != true, "1.7",
				"expected one connection, a controller with the lease, got %s", show(entries))
			s.failIf(textOf(entries[0], "connection_id") == "", "1.7", "expected a connection_id, got %s", show(entries[0]))
			s.lists("1.7", entries[0], fields{"client_info": fields{"name": "alice", "version": "1.0"}})
			s.state()
		}),
		overHTTP.newcomer("session/new-id", "1.7", "Posting no session id creates a session of the server's naming", func(s *Session, alice *Caller) {
			first := alice.create("1.7", "", nil).str("session_id")
			second := alice.create("1.7", "", nil).str("session_id")
			s.failIf(first == "" || first == second, "1.7",
				"expected two sessions with ids of their own, got %q and %q", first, second)
			s.state()
		}),
		overHTTP.scenario("session/as-viewer", "1.7", "A session created by a viewer has a free lease", func(s *Session) {
			s.leaseOf("1.7", s.caller("vera", contracts.RoleViewer).create("1.7", "", nil).snapshot(), nil)
			bob := s.caller("bob", contracts.RoleController)
			bob.connected(nil).has("1.7", fields{"controller_lease_granted": true})
		}),
		overHTTP.newcomer("session/adopted", "1.7 1.9", "The creator's connection is adopted by the first subscription, once", func(s *Session, alice *Caller) {
			f := alice.create("1.7", "", nil).snapshot()
			a := alice.subscribed(nil) // names no connection
			s.failIf(alice.connection != textOf(listOf(f, "state.connections")[0], "connection_id") || a.at("controller_lease_granted") != true, "1.7",
				"expected the subscription to adopt the creator's connection, got %s", a.said())
			s.shows("1.7", s.state(), fields{"state.connection_count": 1})
			alice.posted("1.7", initNothing())
			s.caller("bob", contracts.RoleController).subscribe(nil).alreadyHeld("1.9")
		}),
		overHTTP.driver("session/exists", "1.7", "Posting the id of a session that exists changes nothing", func(s *Session, alice *Caller) {
			alice.posted("R35", &contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
			before := s.state()
			bob := s.caller("bob", contracts.RoleController)
			f := bob.create("1.7", s.ID, fields{"approvalMode": "auto", "model": "another"}).snapshot()
			for _, path := range []string{"state.connection_count", "state.model", "state.controller_connection_id", "last_init.thinking_level"} {
				s.shows("1.7", f, fields{path: before.at(path)})
			}
		}),
		overHTTP.scenario("session/concurrent", "A83", "Creations of one id at the same time yield one runtime", func(s *Session) {
			alice, id := s.caller("alice", contracts.RoleController), "conf-"+uuid.NewString()
			epochs := map[string]bool{}
			for _, a := range s.together(slices.Repeat([]request{alice.creating(id, nil)}, 8)...) {
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
		overHTTP.newcomer("session/idempotent", "1.7", "A repeated creation with its Idempotency-Key is the same session", func(s *Session, alice *Caller) {
			r := alice.creating("", nil)
			r.header = http.Header{"Idempotency-Key": {"create-" + uuid.NewString()}}
			a, b := s.call(r).created("1.7:key", ""), s.call(r).ok("1.7:key")
			s.failIf(a.str("session_id") != b.str("session_id"), "1.7:key",
				"expected one session for one key, got %q and %q", a.str("session_id"), b.str("session_id"))
			r.header = http.Header{"Idempotency-Key": {"create-" + uuid.NewString()}}
			c := s.call(r).ok("1.7:key")
			s.failIf(c.str("session_id") == a.str("session_id"), "1.7:key", "expected another session for another key, got %q again", a.str("session_id"))
		}),
		overHTTP.connected("session/listed", "1.1", "Sessions can be listed", func(s *Session, _ *Caller) {
			a := s.get(sessionsPath).ok("1.1:list")
			_, isList := a.at("sessions").([]any)
			s.failIf(!isList, "1.1:list", "expected a list of sessions, got %s", a.said())
			for _, entry := range listOf(&a.Frame, "sessions") {
				id := textOf(entry, "session_id")
				s.failIf(id == "", "1.1:list", "expected every entry to have a session_id, got %s", show(entry))
				if id == s.ID {
					return
				}
			}
			s.fail("1.1:list", "expected session %s among %d sessions", s.ID, len(listOf(&a.Frame, "sessions")))
		}),
		overHTTP.driver("session/outlives-clients", "1.6 A15", "A session that everybody left can be attached to again", func(s *Session, alice *Caller) {
			alice.prompt("before")
			alice.disconnect(nil).ok("A15")
			a := s.caller("bob", contracts.RoleController).connected(nil)
			s.failIf(a.at("controller_lease_granted") != true || a.snapshot().Cursor == 0, "1.6",
				"expected the session with its past and a free lease, got %s", a.said())
			s.follow("judge", follow{cursor: new(int64)}).expect("A15", prompted("before"))
		}),
		overHTTP.attached("session/shutdown", "A76 3.6", "shutdown ends the session: its streams with a final snapshot, its routes with 404", func(s *Session, alice *Caller, own *Peer) {
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
}

func (c *Caller) creating(id string, f fields) request {
	body := c.introduction()
	if id != "" {
		body["sessionId"] = id
	}
	return request{who: c.name, method: http.MethodPost, path: sessionsPath, body: encode(with(body, f))}
}

// create posts a session and checks the snapshot in the answer.
func (c *Caller) create(rule, id string, f fields) *Answer {
	a := c.s.call(c.creating(id, f)).created(rule, id).shaped(rule, "Snapshot")
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
