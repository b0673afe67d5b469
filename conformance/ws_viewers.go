package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// wsViewers judges what those may do who only watch: A37 to A39, and 9.3.
var wsViewers = []Scenario{
	onSocket.scenario("viewer/cannot-prompt", "A37", "A viewer's prompt is refused", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		from := len(alice.log)
		vera.refused(vera.command(&contracts.Prompt{Content: "let me"}), viewerRefusal("A37"))
		vera.send(encodeCommand(&contracts.Prompt{Content: "let me, bare"}))
		vera.expect("A37", control("ws.error").with("id", nil).with("error", textViewer))
		alice.still("A37", from, noEffect)
	}),
	onSocket.scenario("viewer/cannot-drive", "A38 R28", "Nor may a viewer send anything else that acts", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		alice.ask(contracts.RequestApproval, "kept")
		alice.prompt(streamOf(200, 10))
		alice.expect("R36", message("response_chunk"))
		from := len(alice.log)
		for _, cmd := range []contracts.Command{
			&contracts.Interrupt{}, &contracts.Cancel{}, &contracts.Init{}, &contracts.Shutdown{},
			&contracts.ToolResponse{CallID: "kept", Approved: true}, &contracts.UtilityFileRead{ReadID: "r", Path: "a"},
		} {
			vera.refused(vera.command(cmd), viewerRefusal("A38"))
		}
		alice.await("A38", from, message("response_end"))
		alice.none("A38", from, anyOf(message("server_request_resolved"), message("error"), initNothingReply))
	}),
	onSocket.scenario("viewer/shut-out", "9.3 9.5", "Ten refusals within a minute close a viewer's socket", func(s *Session) {
		s.controller()
		vera := s.viewer("vera")
		for range 11 { // the tenth is the last straw; a server may still answer it
			vera.send(encodeCommand(&contracts.Prompt{Content: "again"}))
		}
		vera.closes("9.3", contracts.CodeAccessDenied.CloseCode())
	}),
	onSocket.scenario("viewer/role-is-the-connections", "A39 9.3", "A hello that contradicts the query is refused", func(s *Session) {
		s.controller()
		s.try("vera", entry{role: contracts.RoleViewer, hello: s.hello(contracts.RoleController)}).
			refusedWith(s, "9.3", contracts.CodeRoleConflict)
	}),
	onSocket.scenario("viewer/cannot-negotiate", "A19", "A viewer may not offer user input or elicitations", func(s *Session) {
		s.controller()
		for _, kind := range s.canAsk(contracts.RequestUserInput, contracts.RequestMCPElicitation) {
			p, err := s.dial("v-"+string(kind), entry{role: contracts.RoleViewer})
			if err != nil {
				s.fail("9.1", "expected to attach, got: %v", err)
			}
			p.hello(&contracts.Hello{Role: contracts.RoleViewer, Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{kind}}})
			p.helloRefused("A19")
		}
	}),
}

// viewerRefusal is how a viewer's message is refused.
func viewerRefusal(rule string) refusal {
	return refusal{rule: rule, text: textViewer, kind: contracts.ErrorProtocol, code: contracts.CodeAccessDenied}
}

// helloRefused expects ws.error or a close, and no hello_ok.
func (p *Peer) helloRefused(rule string) {
	ctx, cancel := p.s.within(p.s.config.Patience)
	defer cancel()
	for p.pull(ctx) {
		last := p.log[len(p.log)-1]
		if last.Type == "hello_ok" {
			p.s.fail(rule, "%s: expected the hello to be refused, got %s", p.name, last.said())
		}
		if last.Kind == "ws.error" {
			return
		}
	}
	if code := p.closeCode(); code < 4400 || code > 4499 {
		p.s.fail(rule, "%s: expected the hello to be refused, got: %v", p.name, p.ended)
	}
}
