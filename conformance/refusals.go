package conformance

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// refusals judges the bodies of errors: 1.4, 1.5, A73 to A75.
var refusals = []Scenario{
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
	overHTTP.scenario("refusal/lease-details", "1.4 A34", "A lease conflict names the session and who holds the lease", func(s *Session) {
		alice := s.controllerOnly()
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
	overHTTP.scenario("refusal/retry-after", "A74 D10", "A refusal for now says when to come back", func(s *Session) {
		alice := s.controllerOnly()
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
	overHTTP.scenario("refusal/too-large", "A75", "A body over the limit is answered, with 413", func(s *Session) {
		alice, _ := s.attached()
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
	overHTTP.scenario("refusal/large-enough", "A75", "A body of nearly the limit is accepted", func(s *Session) {
		alice := s.driver()
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
	overHTTP.scenario("refusal/duplicate-key", "D13", "A duplicate key is refused, in messages and elsewhere", func(s *Session) {
		alice, _ := s.attached()
		alice.everywhere("D13", []byte(`{"type":"prompt","content":"a","content":"b"}`), "messages")
		alice.everywhere("D13", []byte(`{"role":"viewer","role":"controller"}`), connectionsPath, "subscribe")
	}),
	overHTTP.scenario("refusal/deep-nesting", "D13", "A body nested without end is refused", func(s *Session) {
		deep := make([]byte, 0, 200_100)
		deep = append(deep, `{"type":"init","extra":`...)
		for range 100_000 {
			deep = append(deep, '[')
		}
		for range 100_000 {
			deep = append(deep, ']')
		}
		alice, _ := s.attached()
		alice.everywhere("D13", append(deep, '}'), "messages", connectionsPath, "subscribe")
	}),
	overHTTP.scenario("refusal/invalid-utf8", "D13", "Invalid UTF-8 is refused, not replaced", func(s *Session) {
		alice, _ := s.attached()
		alice.everywhere("D13", []byte("{\"type\":\"prompt\",\"content\":\"a\xffb\"}"), "messages")
		alice.everywhere("D13", []byte("{\"clientInfo\":{\"name\":\"a\xffb\"}}"), connectionsPath, "subscribe")
	}),
	overHTTP.scenario("refusal/others-unharmed", "A75 1.12", "What is refused to one client costs another nothing", func(s *Session) {
		alice, p := s.attached()
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
