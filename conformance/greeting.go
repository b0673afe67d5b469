package conformance

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// handshake judges hello, roles and opt-outs: R20 to R32, and 9.3.
func handshake() []Scenario {
	return []Scenario{
		onStdio.process("handshake/ready-first", "R20 R21", "ready and session_info come before any input", func(s *Session, p *Peer) { // checks the order
			s.shows("R22", p.log[0], fields{"protocol_version": contracts.ProtocolVersion})
			s.failIf(p.log[1].str("cwd") == "", "R20", "expected session_info.cwd, got nothing")
		}),
		Needs{}.scenario("handshake/hello-ok", "R22", "A hello is answered by one hello_ok that echoes it", func(s *Session) {
			h := s.offering()
			h.OptOutNotifications = []contracts.Notification{contracts.NotifyCompaction}
			p := s.join("alice", h)
			f := p.last(message("hello_ok"))
			s.shows("R22", f, fields{"protocol_version": contracts.ProtocolVersion, "client_protocol_version": contracts.ProtocolVersion,
				"client_info": fields{"name": "alice", "version": "1.0"}, "role": "controller",
				"capabilities": fields{"server_requests": []string{"approval", "user_input"}, "utility_operations": []string{"file_read"}}})
			s.shows("R22", f, fields{"opt_out_notifications": []string{"compaction"}})
			p.fence()
			p.count("R22", p.log, message("hello_ok"), 1)
		}),
		Needs{Seed: true}.controller("handshake/seed-fields", "4.3", "hello_ok names the server's capabilities", func(s *Session, p *Peer) {
			f := p.last(message("hello_ok"))
			for _, key := range []string{"server_requests", "utility_operations", "connection_roles"} {
				_, ok := f.at("server_capabilities." + key).([]any)
				s.failIf(!ok, "4.3", "expected hello_ok.server_capabilities.%s, got %s", key, show(f.at("server_capabilities")))
			}
		}),
		onStdio.process("handshake/hello-is-optional", "3.1 R81", "Without a hello the peer is a controller without capabilities", func(s *Session, p *Peer) {
			p.prompt("no hello")
			p.expect("3.1", prompted("no hello"))
			if !s.listsUtilities() {
				return
			}
			p.command(&contracts.UtilityFileRead{ReadID: "r", Path: "a"})
			p.expect("R81", message("error").with("message", "utility_file_read requires file_read capability").with("error_type", "tool"))
		}),
		Needs{}.scenario("handshake/opt-out-of-everything", "R23 R31", "hello_ok comes although everything is opted out of, and nothing else of the handshake does", func(s *Session) {
			h := s.hello(contracts.RoleController)
			h.ProtocolVersion = "1999-01-01"
			h.OptOutNotifications = contracts.Notifications()
			p := s.join("alice", h)
			at := slices.IndexFunc(p.log, message("hello_ok").ok)
			p.still("R31", at, anyOf(message("connection_info"), message("status")))
		}),
		Needs{}.scenario("handshake/other-version", "R24", "Another protocol version is accepted and reported", func(s *Session) {
			h := s.hello(contracts.RoleController)
			h.ProtocolVersion = "1999-01-01"
			p := s.join("alice", h)
			s.shows("R24", p.last(message("hello_ok")), fields{"client_protocol_version": "1999-01-01"})
			p.await("R24", 0, message("status").with("message", "Client protocol 1999-01-01 attached to server "+contracts.ProtocolVersion))
		}),
		Needs{}.scenario("handshake/default-role", "R25 9.1", "Without a role: controller on stdio, viewer on a socket", func(s *Session) {
			want := "controller"
			var p *Peer
			if s.socket() {
				want = "viewer"
				p = s.attach("alice", entry{create: true, hello: &contracts.Hello{}})
			} else {
				p = s.join("alice", &contracts.Hello{})
			}
			s.shows("R25", p.last(message("hello_ok")), fields{"role": want})
		}),
		Needs{}.controller("handshake/role-is-kept", "R25", "A later hello without a role keeps it", func(_ *Session, p *Peer) {
			p.hello(&contracts.Hello{})
			p.expect("R25", message("hello_ok").with("role", "controller"))
		}),
		Needs{}.controller("handshake/role-never-changes", "R26 A18", "A later hello with another role is refused", func(s *Session, p *Peer) {
			from := len(p.log)
			p.watch.hellos++ // a wrong hello_ok is this scenario's to judge
			p.send(encodeCommand(&contracts.Hello{Role: contracts.RoleViewer}))
			if s.socket() { // ws.error role_conflict, or a close that says the same
				refused := p.seek(from, control("ws.error").with("code", contracts.CodeRoleConflict), s.config.Patience)
				s.failIf(refused == nil && p.closeCode() != contracts.CodeRoleConflict.CloseCode(), "A18",
					"expected ws.error role_conflict or a close with 4409, got: %v", p.ended)
				p.none("R26", from, message("hello_ok"))
				return
			}
			p.refused("", refusal{rule: "R26", text: "headless connection role cannot change after hello", kind: contracts.ErrorProtocol})
			p.none("R26", from, message("hello_ok"))
			p.prompt("still a controller")
			p.expect("R26", prompted("still a controller"))
		}),
		onStdio.scenario("handshake/viewer-capabilities", "R27 A19", "A viewer may not offer to answer questions", func(s *Session) {
			kinds := s.canAsk(contracts.RequestMCPElicitation, contracts.RequestUserInput, contracts.RequestToolRetry)
			if len(kinds) == 0 {
				s.skip("the server asks for approvals only")
			}
			if s.offerAll(s.hello(contracts.RoleViewer)) == nil {
				s.skip("the server refuses a viewer that offers nothing")
			}
			for _, kind := range kinds {
				p := s.spawn("v-" + string(kind))
				p.refusing = "R27"
				from := len(p.log)
				p.send(encodeCommand(&contracts.Hello{Role: contracts.RoleViewer,
					Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{kind}}}))
				p.refused("", refusal{rule: "R27", text: "viewer headless connections cannot negotiate " + string(kind) + " requests", kind: contracts.ErrorProtocol})
				p.still("R27", from, message("hello_ok"))
			}
		}),
		onStdio.scenario("handshake/viewer-sends-hello-only", "R28", "Anything but hello from a viewer is refused without effect", func(s *Session) {
			p := s.join("vera", s.hello(contracts.RoleViewer))
			from := len(p.log)
			for _, cmd := range []contracts.Command{
				&contracts.Prompt{Content: "x"}, &contracts.Init{}, &contracts.Interrupt{}, &contracts.Cancel{},
				&contracts.ToolResponse{CallID: "c", Approved: true},
				&contracts.UtilityFileRead{ReadID: "r", Path: "a"}, &contracts.Shutdown{},
			} {
				p.command(cmd)
				p.refused("", refusal{rule: "R28", text: textViewer, kind: contracts.ErrorProtocol})
			}
			p.still("R28", from, anyOf(noEffect, initNothingReply))
			p.hello(s.hello(contracts.RoleViewer))
			p.expect("R28", message("hello_ok"))
		}),
		Needs{}.scenario("handshake/hello-replaces", "R29", "A later hello replaces capabilities and opt-outs entirely", func(s *Session) {
			h := s.offering()
			h.OptOutNotifications = []contracts.Notification{contracts.NotifyStatus}
			p := s.join("alice", h)
			p.hello(&contracts.Hello{})
			f := p.expect("R29", message("hello_ok"))
			for _, key := range []string{"capabilities", "opt_out_notifications", "client_protocol_version"} {
				v, present := f.Fields[key]
				s.failIf(present && !emptyValue(v), "R29", "expected %s to be cleared by a hello without it, got %s", key, show(v))
			}
			p.command(initNothing())
			p.expect("R29", initNothingReply)
		}),
		onStdio.scenario("handshake/local", "R30", "On stdio the connection is local and its lease has no end", func(s *Session) {
			for _, role := range []contracts.Role{contracts.RoleController, contracts.RoleViewer} {
				p := s.join(string(role), s.hello(role))
				var holder any
				if role == contracts.RoleController {
					holder = "local"
				}
				for _, f := range []*Frame{p.last(message("hello_ok")), p.expect("R30", message("connection_info"))} {
					for key, want := range map[string]any{"connection_id": "local", "lease_expires_at": nil, "controller_connection_id": holder} {
						got, present := f.Fields[key]
						s.failIf(!present || got != want, "R30", "%s of a %s: expected %s %s, got %s", f.Type, role, key, show(want), show(got))
					}
				}
			}
		}),
		onSocket.controller("handshake/opted-out-status", "R31 A53", "An opted-out status is withheld and still updates the state", func(s *Session, alice *Peer) {
			quiet := s.optingOut(contracts.RoleViewer, contracts.NotifyStatus)
			vera := s.attach("vera", entry{role: contracts.RoleViewer, hello: quiet})
			from := len(vera.log)
			alice.prompt("unseen")
			alice.expect("R31", prompted("unseen"))
			vera.still("A53", from, message("status"))
			s.shows("R31", s.viewer("victor").last(control("snapshot")), fields{"state.last_status": "Prompt: unseen"})
		}),
		Needs{}.pilot("handshake/opt-out-at-once", "R31 A53", "A later hello's opt-outs hold at once", optsOut("R31", "A53")),
		onSocket.controller("handshake/raw-events", "R32 A54", "Raw events reach only those who negotiated them", func(s *Session, alice *Peer) {
			h := s.hello(contracts.RoleViewer)
			h.Capabilities = &contracts.Capabilities{RawAgentEvents: true}
			raw := s.attach("rhea", entry{role: contracts.RoleViewer, hello: h})
			plain := s.viewer("vera")
			alice.prompt(streamOf(3, 0))
			expectAll("R36", message("response_end"), alice, raw, plain)
			for _, p := range []*Peer{alice, plain} {
				p.still("A54", 0, message("raw_agent_event"))
			}
		}),
		onSocket.watched("handshake/private-hello-ok", "A60", "hello_ok goes to the sender alone", func(s *Session, alice, vera *Peer) {
			from := len(vera.log)
			alice.hello(s.hello(contracts.RoleController))
			alice.expect("A60", message("hello_ok"))
			vera.still("A60", from, message("hello_ok"))
			alice.fence()
			alice.count("A60", alice.log, message("hello_ok"), 2)
		}),
		onSocket.scenario("handshake/no-inheritance", "A21", "A new connection inherits nothing from another", func(s *Session) {
			s.join("alice", s.offering())
			p := s.attach("vera", entry{role: contracts.RoleViewer, hello: &contracts.Hello{}})
			f := p.last(message("hello_ok"))
			s.failIf(f.at("capabilities") != nil && !emptyValue(f.at("capabilities")), "A21",
				"expected no capabilities for a client that announced none, got %s", show(f.at("capabilities")))
		}),
		onSocket.watched("handshake/ids-are-random", "A22", "Connection ids cannot be guessed, and tokens are not ids", func(s *Session, a, b *Peer) {
			for _, p := range []*Peer{a, b} {
				id := p.connection[strings.LastIndexAny(p.connection, "_-")+1:]
				s.failIf(len(p.connection) < 22 || id == "", "A22", "128 bits take 22 characters at least, got connection_id %q", p.connection)
				s.failIf(p.token == "" || strings.Contains(p.token, p.connection) || strings.Contains(p.connection, p.token), "A22",
					"expected a connection_token that the public connection_id does not give away")
			}
			s.failIf(a.connection == b.connection || a.token == b.token, "A22", "two connections have the same id or token")
		}),
	}
}

func (s *Session) offering() *contracts.Hello {
	h := s.hello(contracts.RoleController)
	h.Capabilities = &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput},
		UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}
	return h
}

func emptyValue(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// findings hold what a run has found out about its target. Scenarios share them.
type findings struct {
	mu     sync.Mutex
	probed bool
	kinds  []contracts.RequestType      // that the target may ask; valid once probed
	lacks  []contracts.UtilityOperation // that the target refused or did not offer

	otherAgent string // message that showed another agent than the conformance agent; empty for none
	left       int    // sessions that scenarios made and could not end
}

// hello returns the hello of a client with a role. A controller negotiates only what the
// scenario needs, because a server need not know the rest.
func (s *Session) hello(role contracts.Role) *contracts.Hello {
	h := &contracts.Hello{ProtocolVersion: contracts.ProtocolVersion, Role: role}
	if role == contracts.RoleController && len(s.answers)+len(s.operations) > 0 {
		h.Capabilities = &contracts.Capabilities{ServerRequests: s.answers, UtilityOperations: s.operations}
	}
	return h
}

// negotiateOperations adds operations to what later controllers of the scenario
// negotiate. It skips the scenario if the target is known to lack one.
func (s *Session) negotiateOperations(operations ...contracts.UtilityOperation) {
	for _, op := range operations {
		s.config.found.mu.Lock()
		lacking := slices.Contains(s.config.found.lacks, op)
		s.config.found.mu.Unlock()
		if lacking {
			s.skip("the server does not offer %s", op)
		}
		if !slices.Contains(s.operations, op) {
			s.operations = append(s.operations, op)
		}
	}
}

// skipOperation ends the scenario, because the target does not offer an operation that
// was negotiated. Later scenarios that need the operation are skipped at once.
func (s *Session) skipOperation(op contracts.UtilityOperation) {
	s.config.found.mu.Lock()
	s.config.found.lacks = append(s.config.found.lacks, op)
	s.config.found.mu.Unlock()
	s.skip("the server does not offer %s", op)
}

// negotiateRequests has later controllers of the scenario negotiate those of the types
// that the target may ask, and returns them.
func (s *Session) negotiateRequests(kinds ...contracts.RequestType) []contracts.RequestType {
	s.answers = s.canAsk(kinds...)
	return s.answers
}

// canAsk returns those of the types that the target may ask. Every server asks for
// approvals. For the others, the first scenario that needs one probes the target.
func (s *Session) canAsk(kinds ...contracts.RequestType) []contracts.RequestType {
	if s.scenario.Needs.Transport == Hosted || !slices.ContainsFunc(kinds, func(k contracts.RequestType) bool { return k != contracts.RequestApproval }) {
		return kinds
	}
	found := s.config.found
	found.mu.Lock()
	defer found.mu.Unlock()
	if !found.probed {
		found.kinds, found.probed = s.probe(), true
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(kind contracts.RequestType) bool { return !slices.Contains(found.kinds, kind) })
}

// probe says hello with all types of requests and returns those that the target says
// it may ask. A target that refuses the hello does not know elicitations: all other
// types are in the first version of the protocol.
func (s *Session) probe() []contracts.RequestType {
	all := contracts.RequestTypes()
	ok := s.offerAll(&contracts.Hello{ProtocolVersion: contracts.ProtocolVersion, Role: contracts.RoleController,
		Capabilities: &contracts.Capabilities{ServerRequests: all}})
	switch offered, said := ok.at("server_capabilities.server_requests").([]any); {
	case ok == nil:
		return slices.DeleteFunc(all, func(k contracts.RequestType) bool { return k == contracts.RequestMCPElicitation })
	case said:
		return slices.DeleteFunc(all, func(k contracts.RequestType) bool { return !slices.Contains(offered, any(string(k))) })
	}
	return all
}

// offerAll says hello in a session of its own. It returns the hello_ok, or nil if the
// hello was refused.
func (s *Session) offerAll(h *contracts.Hello) *Frame {
	if s.wire != nil {
		return s.offerAllOverHTTP(h)
	}
	var p *Peer
	if s.socket() {
		p = s.dialed("probe", entry{session: s.ID + "-probe", create: true, role: h.Role})
	} else {
		p = s.spawn("probe")
	}
	defer p.close()
	p.hello(h)
	f := p.seek(0, anyOf(message("hello_ok"), message("error"), control("ws.error")), s.config.Patience)
	if _, closed := errors.AsType[*Closed](p.ended); f == nil && !closed {
		p.missing("R22", message("hello_ok"), s.config.Patience)
	}
	if f == nil || f.Type != "hello_ok" {
		return nil
	}
	return f
}

// listsUtilities reports whether the target says that it offers a utility operation.
func (s *Session) listsUtilities() bool {
	ok := s.offerAll(&contracts.Hello{ProtocolVersion: contracts.ProtocolVersion, Role: contracts.RoleController,
		Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}}})
	list, _ := ok.at("server_capabilities.utility_operations").([]any)
	return len(list) > 0
}

// offerAllOverHTTP is offerAll over HTTP. The hello_ok of a published server does not
// list what the server may ask, so only a refusal counts.
func (s *Session) offerAllOverHTTP(h *contracts.Hello) *Frame {
	id, opened := s.ID, s.opened
	s.opened = false
	defer func() { s.ID, s.opened = id, opened }()
	c := s.caller("probe", h.Role)
	a := c.connect(fields{"capabilities": fields{"serverRequests": h.Capabilities.ServerRequests}})
	switch {
	case a.Status == http.StatusBadRequest:
		return nil
	case s.published():
		a.ok("1.6")
		return &Frame{}
	}
	p := c.follow(c.subscribed(nil).snapshot().Cursor)
	defer p.close()
	c.hello(h).ok("1.12")
	return p.expect("A60", message("hello_ok"))
}

// optsOut is about a later hello that opts out of statuses. said is the rule that asks for one
// before that.
func optsOut(said, rule string) func(*Session, *pilot) {
	return func(s *Session, d *pilot) {
		d.tell("A53", initNothing())
		d.p.expect(said, initNothingReply)
		d.announces(rule, s.optingOut(contracts.RoleController, contracts.NotifyStatus))
		from := len(d.p.log)
		d.tell(rule, initNothing())
		d.p.still(rule, from, message("status"))
	}
}

func (s *Session) optingOut(role contracts.Role, words ...contracts.Notification) *contracts.Hello {
	h := s.hello(role)
	h.OptOutNotifications = words
	return h
}
