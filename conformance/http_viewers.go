package conformance

import (
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// httpViewers judges viewers over HTTP: A37 to A39, and 3.5.
var httpViewers = []Scenario{
	overHTTP.scenario("watcher/cannot-prompt", "A37", "A viewer's prompt is refused with the known text", func(s *Session) {
		s.driver()
		vera := s.guest("vera")
		before := s.state().Cursor
		vera.post(&contracts.Prompt{Content: "let me"}).refused("A37", contracts.CodeAccessDenied, textViewer)
		if after := s.state().Cursor; after != before {
			s.fail("A37", "expected a viewer's prompt to do nothing, but the cursor went from %d to %d", before, after)
		}
	}),
	overHTTP.scenario("watcher/cannot-drive", "A38", "Nor may a viewer send anything else, not even hello", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		vera.subscribed(nil)
		p := s.follow("judge", follow{})
		p.begins("A42")
		alice.ask(contracts.RequestApproval, "kept")
		if !s.scripted() {
			alice.prompt(hang())
		}
		before := s.state().Cursor
		for s.scripted() { // no event says when the run that asked is over
			s.pause("A38", 100*time.Millisecond)
			now := s.state().Cursor
			if now == before {
				break
			}
			before = now
		}
		for _, cmd := range []contracts.Command{
			s.hello(contracts.RoleViewer), &contracts.Interrupt{}, &contracts.Cancel{}, &contracts.Init{}, &contracts.Shutdown{},
			&contracts.ToolResponse{CallID: "kept", Approved: true}, approve("kept", true),
			&contracts.ClientToolResult{CallID: "kept", Content: []contracts.ContentBlock{}}, &contracts.UtilityFileRead{ReadID: "r", Path: "a"},
			&contracts.UtilityCommandStart{CommandID: "c", Command: "true"}, &contracts.UtilityCommandTerminate{CommandID: "c"},
		} {
			vera.post(cmd).refused("A38", contracts.CodeAccessDenied, textViewer)
		}
		if after := s.state().Cursor; after != before {
			s.fail("A38", "expected a viewer's messages to do nothing, but the cursor went from %d to %d", before, after)
		}
		alice.posted("A38", &contracts.Interrupt{})
		if !s.scripted() {
			p.expect("A38", message("response_end"))
		}
	}),
	overHTTP.scenario("watcher/role-header", "A39 1.12", "No role header makes a viewer drive, and one can make a controller refuse itself", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
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
	overHTTP.scenario("watcher/by-subscription", "A37 1.12", "A viewer is one under the name of its subscription too", func(s *Session) {
		s.driver()
		vera := s.guest("vera")
		vera.subscribed(nil)
		h := http.Header{"X-Maestro-Headless-Subscriber-Id": {vera.subscription}}
		vera.as(h).refused("A37", contracts.CodeAccessDenied, textViewer)
	}),
	overHTTP.scenario("watcher/may-watch", "3.5", "A viewer may connect, subscribe, read, follow, beat and leave", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
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
	overHTTP.scenario("watcher/cannot-take", "3.4 3.5", "A viewer takes no lease, though it ask for it", func(s *Session) {
		alice := s.driver()
		vera := s.caller("vera", contracts.RoleViewer)
		vera.connect(fields{"takeControl": true}) // refused or ignored
		vera.subscribe(fields{"takeControl": true, "connectionId": leftOut})
		if got := holderOf(s.state()); got != alice.connection {
			s.fail("3.4", "expected the lease to stay with %s, got %s", alice.connection, show(got))
		}
		alice.posted("3.4", initNothing())
	}),
}
