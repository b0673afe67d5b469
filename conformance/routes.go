package conformance

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
)

// routes judges which paths there are, and who may ask: 1.1, 1.13 and D10.
func routes() []Scenario {
	return []Scenario{
		overHTTP.connected("route/unknown", "1.1 A73", "An unknown path is not found", func(s *Session, _ *Caller) {
			for _, path := range []string{"/api/headless/nonsense", "/api/headless", s.route("nonsense"), s.route("ws/nonsense")} {
				s.get(path).refused("1.1", contracts.CodeNotFound, "")
				s.put(path, fields{}).refused("1.1", contracts.CodeNotFound, "")
			}
		}),
		overHTTP.connected("route/wrong-method", "1.1 A73", "A wrong method is refused, naming the right one", func(s *Session, _ *Caller) {
			for path, methods := range map[string]string{connectionsPath: "POST", s.route("state"): "GET", s.route(""): "GET",
				s.route("subscribe"): "POST", s.route("unsubscribe"): "POST", s.route("events"): "GET", s.route("messages"): "POST",
				s.route("message"): "POST", s.route("heartbeat"): "POST", s.route("disconnect"): "POST"} {
				for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
					if method == methods || method == http.MethodDelete && path == s.route("") { // which may delete the session
						continue
					}
					a := s.call(request{who: "alice", method: method, path: path, body: []byte("{}")})
					a.refused("1.1:methods", contracts.CodeMethodNotAllowed, "")
					got := a.Header.Get("Allow")
					s.failIf(!strings.Contains(got, methods), "1.1:methods", "%s: expected Allow to name %s, got %q", a.what(), methods, got)
				}
			}
		}),
		overHTTP.driver("route/both-states", "1.1 1.8", "The state is at the session and at its state", func(s *Session, _ *Caller) {
			a, b := s.get(s.route("state")).ok("1.1:states"), s.get(s.route("")).ok("1.1:states")
			for _, answer := range []*Answer{a, b} {
				answer.shaped("1.8", "Snapshot")
				s.shows("1.8", answer.snapshot(), fields{"session_id": s.ID})
			}
			s.failIf(a.at("cursor") == b.at("cursor") && !reflect.DeepEqual(a.Body, b.Body), "1.1:states",
				"expected the same state at both routes as of one cursor, got %s and %s", a.said(), b.said())
		}),
		overHTTP.driver("route/message-alias", "1.1", "message is messages", func(s *Session, alice *Caller) {
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
		overHTTP.connected("route/percent-decoding", "1.1", "The id in a path is percent-decoded", func(s *Session, _ *Caller) {
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
		overHTTP.driver("route/trailing", "1.1", "More path than a route has is not found", func(s *Session, _ *Caller) {
			for _, route := range []string{"state/more", "events/more", "state/state"} {
				s.get(s.route(route)).refused("1.1", contracts.CodeNotFound, "")
			}
			s.put(s.route("messages/more"), fields{"type": "init"}).refused("1.1", contracts.CodeNotFound, "")
			a := s.get(s.route("state/"))
			s.failIf(a.Status != http.StatusOK && a.Status != http.StatusNotFound, "1.1", "expected a trailing slash to be ignored or not found, got %s", a.said())
		}),
		overHTTP.scenario("route/unknown-session", "1.5 1.8", "No route of an unknown session is there, and none creates it", func(s *Session) {
			id := "conf-" + uuid.NewString()
			for _, route := range []string{"", "state", "events"} {
				s.get(routeOf(id, route)).refused("1.5", contracts.CodeStaleSession, "")
			}
			for route, body := range plausible {
				a := s.put(routeOf(id, route), body).refused("1.5", contracts.CodeStaleSession, "")
				known := slices.Contains([]string{textNoSession, otherTexts[textNoSession]}, a.str("error"))
				s.failIf(!known && !(route == "unsubscribe" && a.noRoute()), "1.5", "%s: expected one of the fixed texts, got %q", a.what(), a.str("error"))
			}
			s.stateOf(id).refused("1.8", contracts.CodeStaleSession, textNoSession)
		}),
		overHTTP.scenario("route/health", "1.13", "The server says that it lives", health),
		overHTTP.scenario("route/ready", "1.13", "The server says that it is ready", readiness),
		overHTTP.scenario("route/not-hosted", "5.3 5.5", "Without a hosted runner there is no identity and nothing to drain", func(s *Session) {
			s.get(identityPath).refused("5.3", contracts.CodeNotFound, "")
			s.put(drainPath, fields{}).refused("5.5", contracts.CodeNotFound, "")
		}),
		overHTTP.driver("route/foreign-page", "D10", "A page of another origin can change nothing", func(s *Session, alice *Caller) {
			s.quietly("D10", func() {
				for _, h := range []http.Header{{"Origin": {foreign}, "Sec-Fetch-Site": {"cross-site"}}, {"Origin": {foreign}}, {"Origin": {"null"}}} {
					r := alice.sending(encodeCommand(&contracts.Prompt{Content: "from a foreign page"}))
					maps.Copy(r.header, h)
					s.call(r).refused("D10", contracts.CodeAccessDenied, "")
					a := s.call(request{who: "mallory", method: http.MethodPost, path: connectionsPath, header: h, body: []byte("{}")})
					a.refused("D10", contracts.CodeAccessDenied, "")
					s.mayNotRead(request{who: "mallory", method: http.MethodGet, path: s.route("state"), header: h})
					ask := http.Header{"Origin": h["Origin"], "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}
					s.mayNotRead(request{who: "mallory", method: http.MethodOptions, path: s.route("messages"), header: ask})
				}
			})
		}),
		overHTTP.connected("route/foreign-host", "D10", "A name that is not the server's own is refused", func(s *Session, _ *Caller) {
			for _, path := range []string{s.route("state"), readyPath} {
				a := s.call(request{who: "mallory", method: http.MethodGet, path: path, header: http.Header{"Host": {"foreign.example"}}})
				s.failIf(a.Status < 400 || a.Status > 499, "D10",
					"expected %s to be refused for the host foreign.example, got %s", path, a.said())
			}
		}),
		Needs{Transport: HTTP, Auth: true}.connected("route/no-credential", "D10 A73", "Without the credential only health can be asked", func(s *Session, _ *Caller) {
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
}

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
	s.get(healthPath).ok("1.13").shaped("1.13:health", shape.LivenessBody).has("1.13:health", fields{"ok": true})
}

func (a *Answer) notReady(rule string) *Answer {
	a.s.failIf(a.Status != http.StatusServiceUnavailable, rule, "%s: expected 503, got %s", a.what(), a.said())
	return a
}

// foreign is an origin that no server has allowed.
const foreign = "https://foreign.example"

// mayNotRead fails if a browser would show the answer to the page that asked.
func (s *Session) mayNotRead(r request) {
	got := s.call(r).Header.Get("Access-Control-Allow-Origin")
	s.failIf(got == foreign || got == "*" || got == "null", "D10",
		"expected %s %s not to be for the origin %q, got Access-Control-Allow-Origin %q", r.method, r.path, r.header.Get("Origin"), got)
}

// refusals judges the bodies of errors: 1.4, 1.5, A73 to A75.
func refusals() []Scenario {
	return []Scenario{
		seedOverHTTP.scenario("refusal/details", "A73 1.4", "A refusal says the same to clients that read any of its three codes", func(s *Session) {
			for code, a := range somehowRefused(s) {
				a.refused("A73", code, "") // its shape and codes have been compared
				details := listOf(&a.Frame, "details")
				s.failIf(len(details) == 0, "1.4", "%s: expected details, got %s", a.what(), a.said())
				d := details[0]
				s.lists("1.4", d, fields{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": string(code), "domain": "maestro.headless"})
				s.failIf(a.str("error") == "", "1.4", "%s: expected a text, got %s", a.what(), a.said())
			}
		}),
		overHTTP.connected("refusal/lease-details", "1.4 A34", "A lease conflict names the session and who holds the lease", func(s *Session, alice *Caller) {
			a := s.put(connectionsPath, fields{"sessionId": s.ID}).alreadyHeld("A34")
			var about map[string]any
			if details := listOf(&a.Frame, "details"); len(details) > 0 {
				about, _ = details[0]["metadata"].(map[string]any)
			}
			s.lists("1.4:details", about, fields{"controller_connection_id": alice.connection, "session_id": s.ID})
		}),
		seedOverHTTP.scenario("refusal/retryable", "1.4", "A refusal says whether trying again makes sense", func(s *Session) {
			for code, a := range somehowRefused(s) {
				a.has("1.4", fields{"retryable": (code == contracts.CodeRuntimeBusy)})
			}
		}),
		overHTTP.connected("refusal/retry-after", "A74 D10", "A refusal for now says when to come back", func(s *Session, alice *Caller) {
			for range 32 { // 8 by default
				a := s.call(request{who: "alice", method: http.MethodPost, path: s.route("subscribe"), header: alice.proof(),
					body: encode(fields{"connectionId": alice.connection, "role": "controller"}), final: true})
				if a.Status != http.StatusOK {
					a.refused("D10", contracts.CodeRateLimited, "") // Retry-After has been looked for
					a.has("1.4:retryable", fields{"retryable": true})
					return
				}
			}
			s.fail("D10", "expected subscriptions of one connection to have a bound, got 32")
		}),
		overHTTP.attached("refusal/too-large", "A75", "A body over the limit is answered, with 413", func(s *Session, alice *Caller, _ *Peer) {
			for _, size := range []int64{contracts.MaxSocketBytes + 1<<10, 8 << 20} {
				for _, parts := range []bool{false, true} {
					r := alice.sending(sized(size))
					r.rule, r.parts = "A75", parts
					s.call(r).refused("A75", contracts.CodePayloadTooLarge, "")
				}
			}
			long := encode(fields{"connectionId": alice.connection, "note": string(make([]byte, contracts.MaxSocketBytes))})
			s.call(request{who: "alice", method: http.MethodPost, path: s.route("heartbeat"), header: alice.proof(), body: long, rule: "A75"}).
				refused("A75", contracts.CodePayloadTooLarge, "")
			s.failIf(s.state().at("last_init") != nil, "A75", "expected a body that is too large to do nothing")
		}),
		overHTTP.driver("refusal/large-enough", "A75", "A body of nearly the limit is accepted", func(_ *Session, alice *Caller) {
			alice.postText(sized(contracts.MaxSocketBytes - 64<<10)).ok("A75")
		}),
		overHTTP.scenario("refusal/not-json", "1.6 1.12", "A body that is no JSON object is refused on every route", func(s *Session) {
			alice, _ := s.attached() // who stays, however long it takes
			for _, body := range notObjects {
				s.call(alice.sending([]byte(body))).refused("1.12", contracts.CodeBadRequest, "")
				if body == "" { // nothing to say is fine where nothing has to be said
					continue
				}
				for _, path := range []string{connectionsPath, s.route("subscribe"), s.route("unsubscribe")} {
					a := s.call(request{who: "alice", method: http.MethodPost, path: path, header: alice.proof(), body: []byte(body)})
					if path != s.route("unsubscribe") || !a.noRoute() {
						a.refused("1.6", contracts.CodeBadRequest, "")
					}
				}
			}
		}),
		overHTTP.attached("refusal/duplicate-key", "D13", "A duplicate key is refused, in messages and elsewhere", func(_ *Session, alice *Caller, _ *Peer) {
			alice.everywhere("D13:malformed", []byte(`{"type":"prompt","content":"a","content":"b"}`), "messages")
			alice.everywhere("D13:malformed", []byte(`{"role":"viewer","role":"controller"}`), connectionsPath, "subscribe")
		}),
		overHTTP.scenario("refusal/deep-nesting", "D13", "A body nested without end is refused", func(s *Session) {
			deep := `{"type":"init","extra":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
			alice, _ := s.attached()
			alice.everywhere("D13:malformed", []byte(deep), "messages", connectionsPath, "subscribe")
		}),
		overHTTP.attached("refusal/invalid-utf8", "D13", "Invalid UTF-8 is refused, not replaced", func(_ *Session, alice *Caller, _ *Peer) {
			alice.everywhere("D13:malformed", []byte("{\"type\":\"prompt\",\"content\":\"a\xffb\"}"), "messages")
			alice.everywhere("D13:malformed", []byte("{\"clientInfo\":{\"name\":\"a\xffb\"}}"), connectionsPath, "subscribe")
		}),
		overHTTP.attached("refusal/others-unharmed", "A75 1.12", "What is refused to one client costs another nothing", func(s *Session, alice *Caller, p *Peer) {
			ctx, cancel := s.within(s.config.Patience)
			defer cancel()
			for _, body := range [][]byte{[]byte(`{`), []byte("\xff"), sized(2 << 20), []byte(`{"type":"nonsense"}`)} {
				_, _ = s.send(ctx, request{who: "mallory", method: http.MethodPost, path: s.route("messages"), body: body}) // a server may hang up
			}
			if _, refused := s.tryFollow(request{who: "mallory", method: http.MethodGet, path: s.route("events?cursor=x")}, follow{}); refused == nil {
				s.advise("1.11:cursor", "expected the cursor x to be refused, got a stream")
			}
			alice.prompt("all is well")
			p.expect("1.12", prompted("all is well"))
			s.state()
		}),
	}
}

// somehowRefused returns one refusal of several kinds.
func somehowRefused(s *Session) map[contracts.Code]*Answer {
	alice := s.driver()
	vera := s.guest("vera")
	alice.prompt(hang())
	return map[contracts.Code]*Answer{
		contracts.CodeNotFound:            s.get(s.route("nonsense")),
		contracts.CodeMethodNotAllowed:    s.get(s.route("messages")),
		contracts.CodeBadRequest:          alice.postText([]byte(`{"type":"prompt"}`)),
		contracts.CodeAccessDenied:        vera.post(initNothing()),
		contracts.CodeControllerLeaseHeld: s.put(connectionsPath, fields{"sessionId": s.ID}),
		contracts.CodeStaleConnection:     alice.heartbeat(fields{"connectionId": "conn_nobody"}),
		contracts.CodeRequestNotFound:     alice.post(approve("ghost", true)),
		contracts.CodeRuntimeBusy:         alice.post(&contracts.Prompt{Content: "early"}),
	}
}

// notObjects are bodies that are not JSON objects.
var notObjects = []string{``, `{`, `{"type":"init"`, `[1]`, `"init"`, `7`, `null`, `{} {}`, `hello`}

// everywhere sends a body to every route that takes one, and expects it to be
// refused without effect.
func (c *Caller) everywhere(rule string, body []byte, routes ...string) {
	s := c.s
	s.quietly(rule, func() {
		for _, path := range routes {
			if path != connectionsPath && path != sessionsPath {
				path = s.route(path)
			}
			s.call(request{who: c.name, method: http.MethodPost, path: path, header: c.identity(), body: body}).
				refused(rule, contracts.CodeBadRequest, "")
		}
	})
}

func readiness(s *Session) {
	a := s.get(readyPath).ok("1.13").shaped("1.13:ready", shape.ReadinessBody)
	s.adviseIf(a.at("ok") != true || a.at("ready") != true || a.at("draining") != false, "1.13:ready",
		"expected ok and ready true, draining false, got %s", a.said())
}

// spellings judges the request headers: 1.2.
func spellings() []Scenario {
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
				maps.Copy(h, vera.proof())
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
	maps.Copy(r.header, h)
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
