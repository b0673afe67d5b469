package conformance

import (
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// findings hold what a run has found out about its target. Scenarios share them.
type findings struct {
	mu     sync.Mutex
	probed bool
	kinds  []contracts.RequestType      // that the target may ask; valid once probed
	lacks  []contracts.UtilityOperation // that the target refused or did not offer

	otherAgent string // message that showed another agent than the conformance agent; empty for none
	left       int    // sessions that scenarios made and could not end
}

// capabilities returns what the scenario's controllers negotiate: only what the
// scenario needs, because a server need not know the rest.
func (s *Session) capabilities() *contracts.Capabilities {
	if len(s.answers) == 0 && len(s.operations) == 0 {
		return nil
	}
	return &contracts.Capabilities{ServerRequests: s.answers, UtilityOperations: s.operations}
}

// hello returns the hello of a client with a role.
func (s *Session) hello(role contracts.Role) *contracts.Hello {
	h := &contracts.Hello{ProtocolVersion: contracts.ProtocolVersion, Role: role}
	if role == contracts.RoleController {
		h.Capabilities = s.capabilities()
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
		var err error
		if p, err = s.dial("probe", entry{session: s.ID + "-probe", create: true, role: h.Role}); err != nil {
			s.fail("9.1", "expected to attach, got: %v", err)
		}
	} else {
		p = s.spawn("probe")
	}
	defer p.close()
	p.hello(h)
	ctx, cancel := s.within(s.config.Patience)
	defer cancel()
	refused := anyOf(message("error"), control("ws.error"))
	for p.pull(ctx) {
		if f := p.log[len(p.log)-1]; f.Type == "hello_ok" {
			return f
		} else if refused.ok(f) {
			return nil
		}
	}
	if _, closed := errors.AsType[*Closed](p.ended); !closed {
		p.missing("R22", message("hello_ok"), s.config.Patience)
	}
	return nil
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
