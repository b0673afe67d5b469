package conformance

import (
	"bytes"
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// tokens judges connection tokens: A40 and 8.1.
func tokens() []Scenario {
	overHTTP := Needs{Transport: HTTP}
	required, optional := Needs{Transport: HTTP, Tokens: TokensRequired}, Needs{Transport: HTTP, Tokens: TokensOptional}
	return []Scenario{
		{Name: "token/given", Title: "A connection gets a secret of its own, in a header and nowhere else", Rules: []string{"8.1"}, Needs: overHTTP, Run: tokenGiven},
		{Name: "token/wrong", Title: "A wrong token is refused wherever a connection acts", Rules: []string{"8.1", "A40"}, Needs: overHTTP, Run: tokenWrong},
		{Name: "token/of-another", Title: "The token of another connection is a wrong one", Rules: []string{"A40", "A41"}, Needs: overHTTP, Run: tokenOfAnother},
		{Name: "token/required", Title: "Knowing the controller's public id is not being the controller", Rules: []string{"A40"}, Needs: required, Run: tokenRequired},
		{Name: "token/optional", Title: "A server with optional tokens does without", Rules: []string{"8.1"}, Needs: optional, Run: tokenOptional},
		{Name: "token/survives-refresh", Title: "After a refresh the token is good, or the new one that came with it", Rules: []string{"8.1"}, Needs: overHTTP, Run: tokenSurvives},
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

func tokenGiven(s *Session) {
	alice := s.controllerOnly()
	vera := s.caller("vera", contracts.RoleViewer)
	vera.subscribed(nil)
	for _, c := range []*Caller{alice, vera} {
		if len(c.token) < 22 {
			s.fail("8.1:token", "expected a connection token of 128 bits or more in %s, got %d characters", tokenHeader, len(c.token))
		}
	}
	if alice.token == vera.token {
		s.fail("8.1:token", "two connections have the same token")
	}
	p := s.follow("judge", follow{})
	for _, text := range [][]byte{s.state().Raw, p.begins("A42").Raw} {
		for _, c := range []*Caller{alice, vera} {
			if bytes.Contains(text, []byte(c.token)) {
				s.fail("8.1:token", "expected tokens to be in no body")
			}
		}
	}
}

func tokenWrong(s *Session) {
	alice := s.driver()
	alice.impostor("8.1:token", http.Header{tokenHeader: {"not-" + alice.token}})
}

func tokenOfAnother(s *Session) {
	alice := s.driver()
	vera := s.guest("vera")
	alice.impostor("A40", http.Header{tokenHeader: {vera.token}})
}

func tokenRequired(s *Session) {
	alice := s.driver()
	alice.impostor("A40", nil)
}

func tokenOptional(s *Session) {
	alice := s.driver()
	alice.token = ""
	alice.posted("8.1:token", initNothing())
	alice.heartbeat(nil).ok("8.1:token")
	alice.unsubscribe(alice.subscription).ok("8.1:token")
}

func tokenSurvives(s *Session) {
	alice := s.driver()
	for range 2 {
		alice.connected(nil) // presents the token, and may be given another
		alice.posted("8.1:token", initNothing())
	}
	alice.subscribed(nil)
	alice.heartbeat(nil).ok("8.1:token")
}
