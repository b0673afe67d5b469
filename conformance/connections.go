package conformance

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// connections judges POST connections: A3 to A8, A18 to A22, and 1.6.
var connections = []Scenario{
	overHTTP.scenario("connection/created", "A3", "A connection is counted, has no subscription, and takes a free lease", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		f := alice.connected(nil).snapshot()
		s.shows("A3", f, fields{"state.connection_count": 1, "state.subscriber_count": 0})
		s.leaseOf("A3", f, alice.connection)
		s.lists("A3", entryOf(f, alice.connection), fields{"subscription_count": 0, "controller_lease_granted": true, "role": "controller"})
	}),
	overHTTP.scenario("connection/refreshed", "A4", "Connecting again with the id is the same connection", func(s *Session) {
		alice := s.driver()
		id, before := alice.connection, s.state()
		a := alice.connected(nil)
		s.failIf(alice.connection != id || a.at("controller_lease_granted") != true, "A4",
			"expected connection %s again with its lease, got %s", id, a.said())
		s.shows("A4", a.snapshot(), fields{"state.connection_count": before.at("state.connection_count")})
	}),
	overHTTP.scenario("connection/unknown", "A5 1.6", "An unknown connection id is refused, never minted", func(s *Session) {
		alice := s.controllerOnly()
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
	overHTTP.scenario("connection/new-session", "1.6", "Without a session id it is a new session", func(s *Session) {
		first := s.controllerOnly()
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
	overHTTP.scenario("connection/metadata", "A7", "What a client says of itself is in the snapshot's entry", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		a := alice.connected(everything())
		a.has("A7", fields{"opt_out_notifications": []string{"compaction", "heartbeat"}})
		checkEntry(s, "A7", entryOf(a.snapshot(), alice.connection))
		checkEntry(s, "A7", entryOf(s.state(), alice.connection))
	}),
	overHTTP.scenario("connection/fields-kept", "3.2", "A later call overwrites what it says and keeps the rest", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		alice.connected(everything())
		silent := fields{"protocolVersion": leftOut, "clientInfo": leftOut, "capabilities": leftOut, "role": leftOut}
		checkEntry(s, "3.2", entryOf(alice.connected(silent).snapshot(), alice.connection))
		silent["clientInfo"] = fields{"name": "renamed"}
		e := entryOf(alice.connected(silent).snapshot(), alice.connection)
		s.lists("3.2", e, fields{"client_info": fields{"name": "renamed"}, "opt_out_notifications": []string{"compaction", "heartbeat"}})
	}),
	overHTTP.scenario("connection/announced", "1.6 4.3", "A connection is announced in full", func(s *Session) {
		alice, p := s.attached()
		vera := s.guest("vera")
		f := p.expect("1.6:announced", message("connection_info").with("connection_id", vera.connection))
		s.shows("4.3:full", f, fields{"role": "viewer", "client_info.name": "vera", "controller_connection_id": alice.connection})
		for _, c := range []*Caller{alice, vera} {
			s.failIf(!slices.ContainsFunc(listOf(f, "connections"), func(e map[string]any) bool { return e["connection_id"] == c.connection }), "4.3:full",
				"expected connection %s to be listed, got %s", c.connection, f.said())
		}
		s.failIf(number(f.at("connection_count")) < 2, "4.3:full", "expected two connections at least, got %s", f.said())
	}),
	overHTTP.scenario("connection/no-inheritance", "A21", "A new connection inherits nothing", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		alice.connected(everything())
		a := s.put(connectionsPath, fields{"sessionId": s.ID, "role": "viewer"}).ok("A21")
		e := entryOf(a.snapshot(), a.str("connection_id"))
		for _, key := range []string{"client_info", "capabilities", "opt_out_notifications", "client_protocol_version"} {
			if v := e[key]; v != nil && !emptyValue(v) {
				s.fail("A21", "expected a client that said nothing to have no %s, got %s", key, show(v))
			}
		}
	}),
	overHTTP.scenario("connection/role-is-fixed", "A18 1.5", "No later call changes a connection's role", func(s *Session) {
		alice := s.controllerOnly()
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
	overHTTP.scenario("connection/viewer-capabilities", "A19", "A viewer may not offer to answer people's questions", func(s *Session) {
		s.controllerOnly()
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
	Needs{Transport: HTTP, Strict: OnlyTolerant}.scenario("connection/unknown-key-ignored", "D13 1.6", "A tolerant server ignores unknown keys and nulls", func(s *Session) {
		alice := s.caller("alice", contracts.RoleController)
		odd := fields{"mood": "good", "connectionId": nil, "takeControl": nil, "optOutNotifications": nil}
		alice.connect(odd).ok("D13")
		alice.subscribe(fields{"mood": fields{"a": 1}, "subscriptionId": "sub_of_my_own", "clientInfo": nil}).ok("D13")
		s.failIf(alice.subscription == "sub_of_my_own", "1.9", "expected a subscriptionId in the body to be ignored")
		alice.heartbeat(fields{"mood": "good", "subscriptionId": nil}).ok("D13")
	}),
	Needs{Transport: HTTP, Strict: OnlyStrict}.scenario("connection/unknown-key-refused", "D13", "A strict server refuses unknown keys and nulls", func(s *Session) {
		alice := s.controllerOnly()
		for _, f := range []fields{{"mood": "good"}, {"clientInfo": nil}} {
			s.put(connectionsPath, f).refused("D13", contracts.CodeBadRequest, "")
			alice.subscribe(f).refused("D13", contracts.CodeBadRequest, "")
		}
		alice.heartbeat(fields{"mood": "good"}).refused("D13", contracts.CodeBadRequest, "")
	}),
	overHTTP.scenario("connection/ids-are-random", "A22", "Ids cannot be guessed, and tokens are not ids", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		vera.subscribed(nil)
		for _, id := range []string{alice.connection, alice.subscription, vera.connection, vera.subscription} {
			if _, random, _ := strings.Cut(id, "_"); len(random) < 22 {
				s.fail("A22", "128 bits take 22 characters at least, got %q", id)
			}
		}
		ids := []string{alice.connection, alice.subscription, vera.connection, vera.subscription}
		slices.Sort(ids)
		s.failIf(len(slices.Compact(ids)) != 4, "A22", "expected four different ids, got %q", ids)
		for _, c := range []*Caller{alice, vera} {
			s.failIf(c.token != "" && (strings.Contains(c.token, c.connection) || strings.Contains(c.connection, c.token)), "A22",
				"expected a token that the public connection id does not give away")
		}
	}),
}

// everything is what a client can say of itself.
func everything() fields {
	return fields{"protocolVersion": contracts.ProtocolVersion, "clientInfo": fields{"name": "ops-console", "version": "3.1.0"},
		"capabilities":        fields{"serverRequests": []string{"approval", "user_input"}, "utilityOperations": []string{"file_read"}, "rawAgentEvents": true},
		"optOutNotifications": []string{"compaction", "heartbeat"}}
}

// checkEntry compares a connection's entry with everything.
func checkEntry(s *Session, rule string, e map[string]any) {
	s.lists(rule, e, fields{"client_protocol_version": contracts.ProtocolVersion, "client_info": fields{"name": "ops-console", "version": "3.1.0"},
		"opt_out_notifications": []string{"compaction", "heartbeat"}, "capabilities": fields{"raw_agent_events": true,
			"server_requests": []string{"approval", "user_input"}, "utility_operations": []string{"file_read"}}})
}
