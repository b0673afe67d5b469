package conformance

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// viewers judges what those may do who only watch, over WebSocket and HTTP: A37 to A39, 9.3
// and 3.5.
func viewers() []Scenario {
	return []Scenario{
		onSocket.scenario("viewer/cannot-prompt", "A37", "A viewer's prompt is refused", viewerCannotPrompt),
		overHTTP.scenario("watcher/cannot-prompt", "A37", "A viewer's prompt is refused with the known text", viewerCannotPrompt),
		onSocket.scenario("viewer/cannot-drive", "A38 R28", "Nor may a viewer send anything else that acts", viewerCannotDrive),
		overHTTP.scenario("watcher/cannot-drive", "A38", "Nor may a viewer send anything else, not even hello", viewerCannotDrive),
		onSocket.controller("viewer/shut-out", "9.3 9.5", "Ten refusals within a minute close a viewer's socket", func(s *Session, _ *Peer) {
			vera := s.viewer("vera")
			for range 11 { // the tenth is the last straw; a server may still answer it
				vera.send(encodeCommand(&contracts.Prompt{Content: "again"}))
			}
			vera.closes("9.3", contracts.CodeAccessDenied.CloseCode())
		}),
		onSocket.controller("viewer/role-is-the-connections", "A39 9.3", "A hello that contradicts the query is refused", func(s *Session, _ *Peer) {
			s.try("vera", entry{role: contracts.RoleViewer, hello: s.hello(contracts.RoleController)}).
				refusedWith(s, "9.3", contracts.CodeRoleConflict)
		}),
		onSocket.controller("viewer/cannot-negotiate", "A19", "A viewer may not offer user input or elicitations", func(s *Session, _ *Peer) {
			for _, kind := range s.canAsk(contracts.RequestUserInput, contracts.RequestMCPElicitation) {
				p := s.dialed("v-"+string(kind), entry{role: contracts.RoleViewer})
				p.hello(&contracts.Hello{Role: contracts.RoleViewer, Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{kind}}})
				f := p.seek(0, anyOf(message("hello_ok"), control("ws.error")), s.config.Patience)
				s.failIf(f != nil && f.Type == "hello_ok", "A19", "%s: expected the hello to be refused, got hello_ok", p.name)
				code := p.closeCode()
				s.failIf(f == nil && (code < 4400 || code > 4499), "A19", "%s: expected the hello to be refused, got: %v", p.name, p.ended)
			}
		}),
		overHTTP.visited("watcher/role-header", "A39 1.12", "No role header makes a viewer drive, and one can make a controller refuse itself", func(s *Session, alice, vera *Caller) {
			for _, role := range []string{"controller", "anything"} {
				r := vera.sending(encodeCommand(initNothing()))
				r.header.Set("X-Maestro-Headless-Role", role)
				s.call(r).refused("A39", contracts.CodeAccessDenied, textViewer)
			}
			r := alice.sending(encodeCommand(initNothing()))
			r.header.Set("X-Maestro-Headless-Role", "viewer")
			alice.posted("1.12", initNothing())
			s.call(r).refused("1.12:role", contracts.CodeAccessDenied, textViewer)
		}),
		overHTTP.visited("watcher/by-subscription", "A37 1.12", "A viewer is one under the name of its subscription too", func(_ *Session, _, vera *Caller) {
			vera.subscribed(nil)
			h := http.Header{"X-Maestro-Headless-Subscriber-Id": {vera.subscription}}
			vera.as(h).refused("A37", contracts.CodeAccessDenied, textViewer)
		}),
		overHTTP.visited("watcher/may-watch", "3.5", "A viewer may connect, subscribe, read, follow, beat and leave", func(_ *Session, alice, vera *Caller) {
			p := vera.followed()
			alice.prompt("look")
			p.expect("3.5", prompted("look"))
			vera.heartbeat(nil).ok("3.5")
			extra := vera.subscribed(nil).str("subscription_id")
			vera.unsubscribe(extra).ok("3.5")
			vera.disconnect(nil).ok("3.5")
			alice.posted("A14", initNothing())
			p.finishes("1.13:ends")
		}),
		overHTTP.driver("watcher/cannot-take", "3.4 3.5", "A viewer takes no lease, though it ask for it", func(s *Session, alice *Caller) {
			vera := s.caller("vera", contracts.RoleViewer)
			vera.connect(fields{"takeControl": true}) // refused or ignored
			vera.subscribe(fields{"takeControl": true, "connectionId": leftOut})
			s.leaseOf("3.4", s.state(), alice.connection)
			alice.posted("3.4", initNothing())
		}),
	}
}

// viewerSends attaches a viewer, and returns how it sends a command that must be refused.
func (s *Session) viewerSends() func(rule string, cmd contracts.Command) {
	if s.wire == nil {
		vera := s.viewer("vera")
		return func(rule string, cmd contracts.Command) { vera.refused(vera.command(cmd), viewerRefusal(rule)) }
	}
	vera := s.guest("vera")
	vera.subscribed(nil)
	return func(rule string, cmd contracts.Command) {
		vera.post(cmd).refused(rule, contracts.CodeAccessDenied, textViewer)
	}
}

func viewerCannotPrompt(s *Session) {
	alice, send := s.pilot(), s.viewerSends()
	alice.quietly("A37", func() {
		send("A37", &contracts.Prompt{Content: "let me"})
		if s.wire == nil {
			vera := s.peers[len(s.peers)-1]
			vera.send(encodeCommand(&contracts.Prompt{Content: "let me, bare"}))
			vera.expect("A37", control("ws.error").with("id", nil).with("error", textViewer))
		}
	})
}

func viewerCannotDrive(s *Session) {
	alice, send := s.pilot(), s.viewerSends()
	alice.poses(contracts.RequestApproval, "kept")
	if !s.scripted() {
		alice.triggers(hang())
	}
	commands := []contracts.Command{
		&contracts.Interrupt{}, &contracts.Cancel{}, &contracts.Init{}, &contracts.Shutdown{},
		&contracts.ToolResponse{CallID: "kept", Approved: true}, approve("kept", true), &contracts.UtilityFileRead{ReadID: "r", Path: "a"},
	}
	if s.wire != nil { // where a hello is a message, and many refusals do not end a connection
		commands = append(commands, s.hello(contracts.RoleViewer), &contracts.ClientToolResult{CallID: "kept", Content: []contracts.ContentBlock{}},
			&contracts.UtilityCommandStart{CommandID: "c", Command: "true"}, &contracts.UtilityCommandTerminate{CommandID: "c"})
	}
	for _, cmd := range commands {
		send("A38", cmd)
	}
	f := alice.now() // its cursor says nothing: a server may publish that a run goes on
	s.waits("A38", f, "kept", true)
	s.shows("A38", f, fields{"last_init": nil})
	s.failIf(!s.scripted() && f.at("state.is_responding") != true, "A38", "expected the run to go on, got %s", f.said())
	alice.tell("A38", &contracts.Interrupt{})
	if !s.scripted() {
		alice.p.expect("A38", message("response_end"))
	}
}

func viewerRefusal(rule string) refusal {
	return refusal{rule: rule, text: textViewer, kind: contracts.ErrorProtocol, code: contracts.CodeAccessDenied}
}
