package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// approvers judges the role approver and the digests of requests: R28:approver and
// R53:digest.
func approvers() []Scenario {
	seed, seedSocket := Needs{Seed: true}, Needs{Transport: Socket, Seed: true}
	return []Scenario{
		seed.scenario("digest/bound", "R53", "An answer with another digest than that of the request is refused, and the request stays", func(s *Session) {
			p := s.join("alice", s.asksForPeople(contracts.RoleController))
			s.skipWithoutPeople(p)
			p.prompt(s.question(contracts.RequestApproval, "bound", toolFor(contracts.RequestApproval)))
			shown := p.expect("R53:digest", message("request_shown").with("request_id", "bound"))
			p.expect("R53:digest", requested("bound")) // in this order: no client asks its user without the digest
			digest := shown.str("digest")
			s.failIf(!strings.HasPrefix(digest, "sha256:") || shown.str("display") != `bash {"path":"a.txt"}`,
				"R53:digest", "expected the digest and the display of the request, got %s", shown.said())
			another := "sha256:" + strings.Repeat("0", 64)
			p.refused(p.command(approveShown("bound", another)),
				refusal{rule: "R53:digest", names: "bound", kind: contracts.ErrorTool, code: contracts.CodeDigestMismatch})
			p.accepted("R53:digest", p.command(approveShown("bound", digest)))
			p.expect("R52", resolved("bound").with("resolution", "approved"))
		}),
		seedSocket.controller("approver/answers", "R28", "An approver answers without the lease, and does nothing else", func(s *Session, alice *Peer) {
			s.skipWithoutPeople(s.observer("oscar"))
			rhea := s.attach("rhea", entry{role: contracts.RoleApprover, hello: s.asksForPeople(contracts.RoleApprover)})
			alice.ask(contracts.RequestApproval, "asked")
			rhea.expect("A43", requested("asked"))
			for _, cmd := range []contracts.Command{&contracts.Prompt{Content: "x"}, initNothing(), &contracts.Interrupt{}, &contracts.Shutdown{}} {
				rhea.refused(rhea.command(cmd), refusal{rule: "R28:approver", text: textApprover, kind: contracts.ErrorProtocol, code: contracts.CodeAccessDenied})
			}
			rhea.accepted("R28:approver", rhea.command(approve("asked", true)))
			expectAll("R52", resolved("asked").with("resolution", "approved").with("resolved_by", "user"), alice, rhea)
			f := rhea.last(resolved("asked"))
			s.failIf(f.str("author.connection_id") != rhea.connection, "R32:people", "expected that rhea answered, got %s", f.said())
			alice.accepted("R28:approver", alice.command(initNothing()))
		}),
		seedOverHTTP.scenario("approver/over-http", "R28", "An approver answers over HTTP without the lease, and does nothing else", func(s *Session) {
			alice := s.caller("alice", contracts.RoleController)
			if alice.connected(fields{"capabilities": fields{"people": true}}).snapshot().at("state.people") == nil {
				s.skip("the server does not tell who did what")
			}
			rhea := s.caller("rhea", contracts.RoleApprover)
			rhea.connected(nil).has("R28:approver", fields{"role": "approver", "controller_lease_granted": false})
			alice.ask(contracts.RequestApproval, "asked")
			rhea.post(initNothing()).refused("R28:approver", contracts.CodeAccessDenied, textApprover)
			rhea.posted("R28:approver", approve("asked", false))
			alice.post(approve("asked", true)).refused("R53", contracts.CodeRequestNotFound, "")
			alice.posted("R28:approver", initNothing())
		}),
	}
}

func approveShown(id, digest string) contracts.Command {
	yes := true
	return &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestApproval, Approved: &yes, Digest: digest}
}
