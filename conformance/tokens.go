package conformance

import (
	"bytes"
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// tokens judges connection tokens: A40 and 8.1.
var tokens = []Scenario{
	overHTTP.scenario("token/given", "8.1", "A connection gets a secret of its own, in a header and nowhere else", func(s *Session) {
		alice := s.controllerOnly()
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
	overHTTP.scenario("token/wrong", "8.1 A40", "A wrong token is refused wherever a connection acts", func(s *Session) {
		alice := s.driver()
		alice.impostor("8.1:token", http.Header{tokenHeader: {"not-" + alice.token}})
	}),
	overHTTP.scenario("token/of-another", "A40 A41", "The token of another connection is a wrong one", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		alice.impostor("A40", http.Header{tokenHeader: {vera.token}})
	}),
	Needs{Transport: HTTP, Tokens: TokensRequired}.scenario("token/required", "A40", "Knowing the controller's public id is not being the controller", func(s *Session) {
		alice := s.driver()
		alice.impostor("A40", nil)
	}),
	Needs{Transport: HTTP, Tokens: TokensOptional}.scenario("token/optional", "8.1", "A server with optional tokens does without", func(s *Session) {
		alice := s.driver()
		alice.token = ""
		alice.posted("8.1:token", initNothing())
		alice.heartbeat(nil).ok("8.1:token")
		alice.unsubscribe(alice.subscription).ok("8.1:token")
	}),
	overHTTP.scenario("token/survives-refresh", "8.1", "After a refresh the token is good, or the new one that came with it", func(s *Session) {
		alice := s.driver()
		for range 2 {
			alice.connected(nil) // presents the token, and may be given another
			alice.posted("8.1:token", initNothing())
		}
		alice.subscribed(nil)
		alice.heartbeat(nil).ok("8.1:token")
	}),
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
		for name, values := range h {
			list[i].header[name] = values
		}
	}
	return list
}

// impostor fails if any of the acts is done: who cannot prove to be a
// connection learns no more than that.
func (c *Caller) impostor(rule string, h http.Header) {
	for _, r := range c.acts(h) {
		a := c.s.call(r)
		if code := contracts.Code(a.str("code")); code != contracts.CodeAccessDenied && code != contracts.CodeStaleConnection && code != contracts.CodeStaleSubscription {
			c.s.fail(rule, "%s: expected an impostor to be refused, got %s", a.what(), a.said())
		}
	}
	c.posted(rule, initNothing()) // the real one is still there, and drives
	f := c.s.state()
	if e := entryOf(f, c.connection); e == nil || !same(e["subscription_count"], 1) || holderOf(f) != c.connection {
		c.s.fail(rule, "expected connection %s to be as before, got %s", c.connection, show(e))
	}
}
