package conformance

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// routes judges which paths there are, and who may ask: 1.1, 1.13 and D10.
var routes = []Scenario{
	overHTTP.scenario("route/unknown", "1.1 A73", "An unknown path is not found", func(s *Session) {
		s.controllerOnly()
		for _, path := range []string{"/api/headless/nonsense", "/api/headless", s.route("nonsense"), s.route("ws/nonsense")} {
			s.get(path).refused("1.1", contracts.CodeNotFound, "")
			s.put(path, fields{}).refused("1.1", contracts.CodeNotFound, "")
		}
	}),
	overHTTP.scenario("route/wrong-method", "1.1 A73", "A wrong method is refused, naming the right one", func(s *Session) {
		s.controllerOnly()
		for path, methods := range map[string]string{connectionsPath: "POST", s.route("state"): "GET", s.route(""): "GET",
			s.route("subscribe"): "POST", s.route("unsubscribe"): "POST", s.route("events"): "GET", s.route("messages"): "POST",
			s.route("message"): "POST", s.route("heartbeat"): "POST", s.route("disconnect"): "POST"} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
				if method == methods {
					continue
				}
				a := s.call(request{who: "alice", method: method, path: path, body: []byte("{}")})
				a.refused("1.1:methods", contracts.CodeMethodNotAllowed, "")
				if got := a.Header.Get("Allow"); !strings.Contains(got, methods) {
					s.fail("1.1:methods", "%s: expected Allow to name %s, got %q", a.what(), methods, got)
				}
			}
		}
	}),
	overHTTP.scenario("route/both-states", "1.1 1.8", "The state is at the session and at its state", func(s *Session) {
		s.driver()
		a, b := s.get(s.route("state")).ok("1.1:states"), s.get(s.route("")).ok("1.1:states")
		for _, answer := range []*Answer{a, b} {
			answer.shaped("1.8", "Snapshot")
			if f := answer.snapshot(); f.str("session_id") != s.ID {
				s.fail("1.8", "%s: expected the state of %s, got that of %q", answer.what(), s.ID, f.str("session_id"))
			}
		}
		s.failIf(a.at("cursor") == b.at("cursor") && !reflect.DeepEqual(a.Body, b.Body), "1.1:states",
			"expected the same state at both routes as of one cursor, got %s and %s", a.said(), b.said())
	}),
	overHTTP.scenario("route/message-alias", "1.1", "message is messages", func(s *Session) {
		alice := s.driver()
		r := alice.sending(encodeCommand(initNothing()))
		r.path = s.route("message")
		alice.granted(s.call(r)).ok("1.1:alias")
		alice.follow(0).expect("R33:http", initNothingReply)
	}),
	overHTTP.scenario("route/bad-id", "1.1", "A session id of foreign characters or excessive length is refused", func(s *Session) {
		for _, id := range []string{"a%20b", "a%2Fb", "a%3Fb", "%2e%2e%2f", "a%00b", "%E2%82%AC", strings.Repeat("x", contracts.MaxIDBytes+1)} {
			for _, route := range []string{"state", "events"} {
				s.get(sessionsPath+"/"+id+"/"+route).refused("1.1:ids", contracts.CodeBadRequest, "")
			}
			s.put(sessionsPath+"/"+id+"/subscribe", fields{}).refused("1.1:ids", contracts.CodeBadRequest, "")
		}
		for _, id := range []string{"a b", "a/b", strings.Repeat("x", contracts.MaxIDBytes+1)} {
			if a := s.put(sessionsPath, fields{"sessionId": id}); !a.noRoute() {
				a.refused("1.1:ids", contracts.CodeBadRequest, "")
			}
		}
	}),
	overHTTP.scenario("route/percent-decoding", "1.1", "The id in a path is percent-decoded", func(s *Session) {
		s.controllerOnly()
		var id strings.Builder
		for _, c := range []byte(s.ID) {
			const digits = "0123456789ABCDEF"
			id.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
		a := s.get(sessionsPath + "/" + id.String() + "/state")
		if a.noRoute() {
			a = s.get(sessionsPath + "/" + id.String())
		}
		got := a.ok("1.1:encoding").snapshot().str("session_id")
		s.failIf(got != s.ID, "1.1:encoding", "expected session %s for its id in percent-encoding, got %q", s.ID, got)
	}),
	overHTTP.scenario("route/trailing", "1.1", "More path than a route has is not found", func(s *Session) {
		s.driver()
		for _, route := range []string{"state/more", "events/more", "state/state"} {
			s.get(s.route(route)).refused("1.1", contracts.CodeNotFound, "")
		}
		s.put(s.route("messages/more"), fields{"type": "init"}).refused("1.1", contracts.CodeNotFound, "")
		if a := s.get(s.route("state/")); a.Status != http.StatusOK && a.Status != http.StatusNotFound {
			s.fail("1.1", "expected a trailing slash to be ignored or not found, got %s", a.said())
		}
	}),
	overHTTP.scenario("route/unknown-session", "1.5 1.8", "No route of an unknown session is there, and none creates it", func(s *Session) {
		id := "conf-" + uuid.NewString()
		for _, route := range []string{"", "state", "events"} {
			s.get(routeOf(id, route)).refused("1.5", contracts.CodeStaleSession, "")
		}
		for route, body := range plausible {
			a := s.put(routeOf(id, route), body).refused("1.5", contracts.CodeStaleSession, "")
			if text := a.str("error"); text != textNoSession && text != otherTexts[textNoSession] && !(route == "unsubscribe" && a.noRoute()) {
				s.fail("1.5", "%s: expected one of the fixed texts, got %q", a.what(), text)
			}
		}
		s.stateOf(id).refused("1.8", contracts.CodeStaleSession, textNoSession)
	}),
	overHTTP.scenario("route/health", "1.13", "The server says that it lives", health),
	overHTTP.scenario("route/ready", "1.13", "The server says that it is ready", readiness),
	overHTTP.scenario("route/not-hosted", "5.3 5.5", "Without a hosted runner there is no identity and nothing to drain", func(s *Session) {
		s.get(identityPath).refused("5.3", contracts.CodeNotFound, "")
		s.put(drainPath, fields{}).refused("5.5", contracts.CodeNotFound, "")
	}),
	overHTTP.scenario("route/foreign-page", "D10", "A page of another origin can change nothing", func(s *Session) {
		alice := s.driver()
		s.quietly("D10", func() {
			for _, h := range []http.Header{{"Origin": {foreign}, "Sec-Fetch-Site": {"cross-site"}}, {"Origin": {foreign}}, {"Origin": {"null"}}} {
				r := alice.sending(encodeCommand(&contracts.Prompt{Content: "from a foreign page"}))
				for name, value := range h {
					r.header[name] = value
				}
				s.call(r).refused("D10", contracts.CodeAccessDenied, "")
				a := s.call(request{who: "mallory", method: http.MethodPost, path: connectionsPath, header: h, body: []byte("{}")})
				a.refused("D10", contracts.CodeAccessDenied, "")
				s.mayNotRead(request{who: "mallory", method: http.MethodGet, path: s.route("state"), header: h})
				ask := http.Header{"Origin": h["Origin"], "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}
				s.mayNotRead(request{who: "mallory", method: http.MethodOptions, path: s.route("messages"), header: ask})
			}
		})
	}),
	overHTTP.scenario("route/foreign-host", "D10", "A name that is not the server's own is refused", func(s *Session) {
		s.controllerOnly()
		for _, path := range []string{s.route("state"), readyPath} {
			a := s.call(request{who: "mallory", method: http.MethodGet, path: path, header: http.Header{"Host": {"foreign.example"}}})
			s.failIf(a.Status < 400 || a.Status > 499, "D10",
				"expected %s to be refused for the host foreign.example, got %s", path, a.said())
		}
	}),
	Needs{Transport: HTTP, Auth: true}.scenario("route/no-credential", "D10 A73", "Without the credential only health can be asked", func(s *Session) {
		s.controllerOnly()
		own := s.wire
		s.wire = newWire(own.base, "")
		defer func() { s.wire.close(); s.wire = own }()
		for _, r := range []request{{method: http.MethodGet, path: s.route("state")}, {method: http.MethodGet, path: s.route("events")},
			{method: http.MethodPost, path: connectionsPath, body: []byte("{}")}, {method: http.MethodPost, path: sessionsPath, body: []byte("{}")},
			{method: http.MethodPost, path: s.route("messages"), body: []byte(`{"type":"shutdown"}`)}} {
			for _, h := range []http.Header{nil, {"Authorization": {"Bearer wrong-credential-0123456789"}}} {
				r.who, r.header = "mallory", h
				s.call(r).refused("1.3", contracts.CodeUnauthenticated, "")
			}
		}
		s.get(healthPath).ok("D10")
	}),
}

// get asks for a path.
func (s *Session) get(path string) *Answer {
	return s.call(request{who: "alice", method: http.MethodGet, path: path})
}

// put posts a JSON object to a path, as nobody in particular.
func (s *Session) put(path string, body any) *Answer {
	return s.call(request{who: "alice", method: http.MethodPost, path: path, body: encode(body)})
}

// plausible are bodies with which the routes of a session that exists would do
// something, or say who is unknown.
var plausible = map[string]fields{"subscribe": {"role": "viewer"}, "unsubscribe": {"subscriptionId": "sub_x"}, "messages": {"type": "init"},
	"heartbeat": {"connectionId": "conn_x"}, "disconnect": {"connectionId": "conn_x"}}

func health(s *Session) {
	a := s.get(healthPath).ok("1.13").shaped("1.13:health", shape.LivenessBody)
	a.has("1.13:health", fields{"ok": true})
}

func readiness(s *Session) {
	a := s.get(readyPath).ok("1.13").shaped("1.13:ready", shape.ReadinessBody)
	if a.at("ok") != true || a.at("ready") != true || a.at("draining") != false {
		s.advise("1.13:ready", "expected ok and ready true, draining false, got %s", a.said())
	}
}

// notReady fails unless readiness was denied.
func (a *Answer) notReady(rule string) *Answer {
	a.s.failIf(a.Status != http.StatusServiceUnavailable, rule, "%s: expected 503, got %s", a.what(), a.said())
	return a
}

// foreign is an origin that no server has allowed.
const foreign = "https://foreign.example"

// mayNotRead fails if a browser would show the answer to the page that asked.
func (s *Session) mayNotRead(r request) {
	if got := s.call(r).Header.Get("Access-Control-Allow-Origin"); got == foreign || got == "*" || got == "null" {
		s.fail("D10", "expected %s %s not to be for the origin %q, got Access-Control-Allow-Origin %q", r.method, r.path, r.header.Get("Origin"), got)
	}
}
