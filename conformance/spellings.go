package conformance

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// spellings judges the request headers: 1.2.
func spellings() []Scenario {
	overHTTP := Needs{Transport: HTTP}
	return []Scenario{
		overHTTP.connected("header/connection-id", "1.2", "The connection id is read in three spellings", func(_ *Session, alice *Caller) {
			for _, family := range families {
				alice.as(http.Header{family + "Headless-Connection-Id": {alice.connection}}).ok(spellingRule(family, "Connection"))
			}
			alice.as(http.Header{"X-Other-Headless-Connection-Id": {alice.connection}}).refused("A35", contracts.CodeStaleConnection, "")
		}),
		overHTTP.driver("header/subscription-id", "1.2", "The subscription id is read in six spellings", func(_ *Session, alice *Caller) {
			for _, family := range families {
				for _, name := range []string{"Subscriber", "Subscription"} {
					alice.as(http.Header{family + "Headless-" + name + "-Id": {alice.subscription}}).ok(spellingRule(family, name))
				}
			}
		}),
		overHTTP.driver("header/agreeing", "1.2", "Spellings with the same value may come together", func(_ *Session, alice *Caller) {
			h := http.Header{}
			for _, family := range families {
				h[family+"Headless-Connection-Id"] = []string{alice.connection}
				h[family+"Headless-Subscriber-Id"] = []string{alice.subscription}
				h[family+"Headless-Subscription-Id"] = []string{alice.subscription}
			}
			alice.as(h).ok("1.2")
		}),
		overHTTP.driver("header/contradiction", "1.2", "Spellings with different values are refused", func(s *Session, alice *Caller) {
			for _, name := range []string{"X-Composer-Headless-Connection-Id", "X-Evalops-Headless-Connection-Id"} {
				alice.as(http.Header{"X-Maestro-Headless-Connection-Id": {alice.connection}, name: {"conn_other"}}).
					refused("1.2:contradiction", contracts.CodeBadRequest, "")
			}
			alice.as(http.Header{"X-Maestro-Headless-Subscriber-Id": {alice.subscription}, "X-Maestro-Headless-Subscription-Id": {"sub_other"}}).
				refused("1.2:contradiction", contracts.CodeBadRequest, "")
			s.call(request{who: "vera", method: http.MethodPost, path: connectionsPath, body: encode(fields{"sessionId": s.ID}),
				header: http.Header{"X-Maestro-Headless-Role": {"viewer"}, "X-Composer-Headless-Role": {"controller"}}}).
				refused("1.2:contradiction", contracts.CodeBadRequest, "")
		}),
		overHTTP.connected("header/role", "1.2", "The role header counts unless the body has a role; anything but viewer is a controller", func(s *Session, alice *Caller) {
			attach := func(body fields, h http.Header) *Answer {
				body["sessionId"], body["takeControl"] = s.ID, true
				return s.call(request{who: "bob", method: http.MethodPost, path: connectionsPath, header: h, body: encode(body)}).ok("1.2")
			}
			for _, family := range families[:2] {
				attach(fields{}, http.Header{family + "Headless-Role": {"viewer"}}).has("1.2", fields{"role": "viewer"})
			}
			attach(fields{"role": "viewer"}, http.Header{"X-Maestro-Headless-Role": {"controller"}}).has("1.2", fields{"role": "viewer"}) // the body wins
			s.shows("1.2", s.state(), fields{"state.controller_connection_id": alice.connection})                                         // no viewer has taken the lease
			for _, value := range []string{"observer", "Viewer"} {
				attach(fields{}, http.Header{"X-Maestro-Headless-Role": {value}}).has("1.2", fields{"role": "controller"})
			}
		}),
		overHTTP.connected("header/fallback", "1.2 1.13", "Heartbeat and disconnect take the ids from headers too", func(s *Session, _ *Caller) {
			vera := s.guest("vera")
			vera.subscribed(nil)
			for _, h := range []http.Header{{"X-Composer-Headless-Connection-Id": {vera.connection}}, {"X-Composer-Headless-Subscriber-Id": {vera.subscription}}} {
				for name, value := range vera.proof() {
					h[name] = value
				}
				a := s.call(request{who: "vera", method: http.MethodPost, path: s.route("heartbeat"), header: h, body: []byte("{}")}).ok("1.2")
				s.failIf(a.str("connection_id") != vera.connection,
					"1.2", "expected the heartbeat of %s, got %s", vera.connection, a.said())
			}
			a := s.call(request{who: "vera", method: http.MethodPost, path: s.route("disconnect"), header: vera.identity(), body: []byte("{}")}).ok("1.2")
			s.failIf(a.str("connection_id") != vera.connection,
				"1.2", "expected the end of %s, got %s", vera.connection, a.said())
		}),
		overHTTP.connected("header/stream-subscription", "1.2 1.11", "A stream takes the subscription from a header too", func(s *Session, alice *Caller) {
			cursor := alice.subscribed(nil).snapshot().Cursor
			p := s.follow("alice", follow{cursor: &cursor, header: alice.identity()})
			alice.hello(s.hello(contracts.RoleController)).ok("1.2")
			p.watch.hellos++
			p.expect("1.11", message("hello_ok")) // only the connection's own streams get it
		}),
		Needs{Transport: HTTP, Seed: true}.scenario("header/approval-mode", "1.2", "The approval mode of a new session comes from the body, else from a header", func(s *Session) {
			for i, c := range []struct {
				body   fields
				header string
				asks   bool
			}{
				{fields{}, "auto", false}, {fields{"approvalMode": "auto"}, "prompt", false}, {fields{"approvalMode": "prompt"}, "auto", true},
			} {
				alice := s.caller("alice", contracts.RoleController)
				a := s.call(request{who: "alice", method: http.MethodPost, path: connectionsPath, body: encode(with(alice.introduction(), c.body)),
					header: http.Header{"X-Maestro-Approval-Mode": {c.header}}}).ok("1.2")
				s.ID, s.opened = a.str("session_id"), true
				alice.keep(a)
				alice.subscribed(nil)
				id := []string{"by-header", "by-body", "by-body-too"}[i]
				alice.prompt(s.question(contracts.RequestApproval, id, "bash"))
				alice.prompt("sentinel")
				f := s.stateWith("1.2", "the sentinel's status", func(f *Frame) bool { return f.str("state.last_status") == "Prompt: sentinel" })
				s.failIf(pending(f, id) != c.asks,
					"1.2", "header %q, body %s: expected the approval to wait: %t", c.header, show(c.body), c.asks)
			}
		}),
	}
}

// families begin the names of headers, in order of precedence.
var families = []string{"X-Maestro-", "X-Composer-", "X-Evalops-"}

// as sends an init as somebody, identified by other headers than usual.
func (c *Caller) as(h http.Header) *Answer {
	r := c.sending(encodeCommand(initNothing()))
	r.header = c.proof()
	for name, values := range h {
		r.header[name] = values
	}
	return c.granted(c.s.call(r))
}

// spellingRule is the rule that asks for a spelling: published servers have the
// first two families in common, and call a subscription a subscriber.
func spellingRule(family, name string) string {
	if family == families[2] || name == "Subscription" {
		return "1.2:spellings"
	}
	return "1.2"
}
