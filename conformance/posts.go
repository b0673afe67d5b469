package conformance

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// askingOverHTTP are the needs of scenarios in which the agent asks for user input.
var askingOverHTTP = Needs{Transport: HTTP, Seed: true, Asks: []contracts.RequestType{contracts.RequestUserInput}}

// posts judges messages over HTTP: A63 to A72, and 1.12.
func posts() []Scenario {
	return []Scenario{
		overHTTP.attached("post/answer", "1.12", "An accepted message is answered with its cursor and a snapshot that has its effect", func(s *Session, alice *Caller, p *Peer) {
			for _, level := range []contracts.ThinkingLevel{contracts.ThinkingLow, contracts.ThinkingHigh} {
				a := alice.posted("1.12", &contracts.Init{ThinkingLevel: level})
				f := a.effect()
				s.shows("1.12", f, fields{"last_init.thinking_level": string(level)})
				cursor := number(a.at("cursor"))
				s.failIf(a.at("cursor") != nil && (cursor == 0 || cursor > f.Cursor), "1.12", "expected a cursor of at most the snapshot's, %d, got %d", f.Cursor, cursor)
				status := p.expect("R33:http", message("status").with("message", "Initialized: thinking_level"))
				s.failIf(status.Cursor > f.Cursor, "1.12",
					"expected the snapshot as of the init's effect, %d, got %d", status.Cursor, f.Cursor)
			}
		}),
		overHTTP.driver("post/effect-of-prompt", "1.12", "The answer to a prompt shows it running or done", func(s *Session, alice *Caller) {
			for _, content := range []string{"hello", "again"} {
				f := alice.prompt(content).effect()
				running, last := f.at("state.is_responding"), f.str("state.last_status")
				s.failIf(running != true && last != "Prompt: "+content, "1.12",
					"expected the prompt %q running, or its status, in the snapshot, got is_responding %s and last_status %q", content, show(running), last)
			}
			if s.scripted() { // which answers nothing
				return
			}
			f := alice.prompt(speaking()).effect()
			s.shows("1.12", f, fields{"state.is_responding": true}) // a response is streaming
			alice.posted("1.12", &contracts.Interrupt{})
		}),
		overHTTP.triggers().driver("post/every-type", "1.12 R68 R82", "Every message that needs nothing in particular is accepted", func(s *Session, alice *Caller) {
			for _, cmd := range []contracts.Command{&contracts.Init{}, &contracts.Interrupt{}, &contracts.Cancel{}, s.hello(contracts.RoleController),
				&contracts.UtilityCommandTerminate{CommandID: "ghost"}, &contracts.UtilityFileWatchStop{WatchID: "ghost"}, &contracts.Prompt{Content: ""}} {
				alice.posted("1.12", cmd)
			}
		}),
		overHTTP.attached("post/hello", "1.12 A60", "A hello over HTTP updates its connection's entry", func(s *Session, alice *Caller, p *Peer) {
			a := alice.hello(&contracts.Hello{ProtocolVersion: "1999-01-01", OptOutNotifications: []contracts.Notification{contracts.NotifyCompaction}}).ok("1.12")
			e := entryOf(a.effect(), alice.connection)
			s.lists("1.12", e, fields{"client_protocol_version": "1999-01-01", "opt_out_notifications": []string{"compaction"}, "role": "controller"})
			p.expect("A60", message("hello_ok").with("client_protocol_version", "1999-01-01").with("connection_id", alice.connection))
			p.await("R24:http", 0, message("status").with("message", "Client protocol 1999-01-01 attached to server "+contracts.ProtocolVersion))
		}),
		overHTTP.scenario("post/init", "1.12 R35", "An init over HTTP is kept whole, and said", postInit),
		overHTTP.scenario("post/missing-field", "A63", "A message without a required field is refused, naming it", refuses("A63", missingFields...)),
		overHTTP.scenario("post/wrong-type", "A63", "A field of the wrong type is refused, naming it", refuses("A63",
			append(wrongTypes, badMessage{`{"type":"prompt","Content":"x"}`, "content"}, badMessage{`{"type":7}`, ""})...)),
		Needs{Transport: HTTP, Strict: OnlyStrict}.scenario("post/unknown-key-refused", "A64", "A strict server refuses an additional key", refuses("A64",
			badMessage{`{"type":"prompt","content":"hello","unexpected":true}`, "unexpected"}, badMessage{`{"type":"init","system_prompt":null}`, "system_prompt"})),
		Needs{Transport: HTTP, Strict: OnlyTolerant, Triggers: true}.driver("post/unknown-key-ignored", "D13", "A tolerant server ignores an additional key", func(s *Session, alice *Caller) {
			alice.postText([]byte(`{"type":"prompt","content":"hello","unexpected":true}`)).ok("D13")
			s.stateWith("D13", "the prompt's status", func(f *Frame) bool { return f.str("state.last_status") == "Prompt: hello" })
			alice.postText([]byte(`{"type":"init","system_prompt":null,"mood":1}`)).ok("D13")
		}),
		overHTTP.scenario("post/unknown-type", "A65", "An unknown type is refused with the known text", refuses("A65", badMessage{`{"content":"x"}`, ""},
			badMessage{`{"type":"frobnicate","content":"x"}`, "Unknown headless command type"}, badMessage{`{"type":"ws.ping"}`, "Unknown headless command type"})),
		overHTTP.scenario("post/question-and-answer", "A67 A68", "A denial ends the question with its reason, after it", postDenial),
		seedOverHTTP.scenario("post/all-kinds-of-questions", "R58 R55", "Every kind of question is answered over HTTP", func(s *Session) {
			kinds := s.negotiateRequests(contracts.RequestTypes()...)
			alice, p := s.attached()
			for _, c := range answerCases() {
				if !slices.Contains(kinds, c.kind) {
					continue
				}
				id := "http-" + c.name
				alice.ask(c.kind, id)
				alice.posted(c.rules[0], c.answer(id))
				f := p.expect(c.rules[0], resolved(id))
				s.shows(c.rules[0], f, fields{"resolution": c.verdict, "resolved_by": c.by, "reason": c.reason})
			}
		}),
		seedOverHTTP.pilot("post/unknown-request", "1.12", "An answer to no question is not found", answersNothing("1.12")),
		askingOverHTTP.pilot("post/request-type-mismatch", "1.12", "An answer of another kind is refused, and the question stays", typeMismatch("1.12")),
		seedOverHTTP.attached("post/first-answer-wins", "D8 1.12", "Of answers at once exactly one counts, the rest find nothing", func(s *Session, alice *Caller, p *Peer) {
			alice.ask(contracts.RequestApproval, "raced")
			requests := make([]request, 10)
			for i := range requests {
				requests[i] = alice.sending(encodeCommand(approve("raced", i%2 == 0)))
			}
			s.oneOf(s.together(requests...), "D8", contracts.CodeRequestNotFound, "")
			p.expect("D8", resolved("raced"))
			p.still("R52", p.pos, message("server_request_resolved")) // and its watch refuses a second
		}),
		overHTTP.pilot("post/busy", "A71", "A prompt during a run is refused and disturbs nothing", busyState("A71")),
		overHTTP.triggers().attached("post/prompts-at-once", "A71", "Of prompts at once one runs", func(s *Session, alice *Caller, p *Peer) {
			prompt := alice.sending(encodeCommand(&contracts.Prompt{Content: hang()}))
			answers := s.together(slices.Repeat([]request{prompt}, 6)...)
			s.skipUnknownTrigger(s.state().str("state.last_status"))
			s.oneOf(answers, "A71", contracts.CodeRuntimeBusy, textBusy)
			alice.posted("A71", &contracts.Interrupt{})
			alice.finish(p)
		}),
		askingOverHTTP.attached("post/interrupt", "A69", "interrupt publishes the cancellations, then one snapshot without them", func(s *Session, alice *Caller, p *Peer) {
			alice.ask(contracts.RequestApproval, "cut")
			alice.ask(contracts.RequestUserInput, "cut-too")
			at := p.await("A43", 0, requested("cut-too"))
			checkIdle(s, "A69", alice.posted("A69", &contracts.Interrupt{}).snapshot())
			snap := p.await("A69", p.indexAfter(at), control("snapshot"))
			checkIdle(s, "A69", snap)
			for _, id := range []string{"cut", "cut-too"} {
				f := p.await("A69", p.indexAfter(at), resolved(id).
					with("resolution", "cancelled").with("resolved_by", "runtime").with("reason", "Interrupted before request completed"))
				s.failIf(f.Cursor > snap.Cursor, "A69",
					"expected the cancellation of %s before the snapshot, got cursors %d and %d", id, f.Cursor, snap.Cursor)
			}
			p.still("A69", p.indexAfter(snap), control("snapshot"))
		}),
		overHTTP.triggers().attached("post/idempotent", "A72", "A repeated message with its Idempotency-Key is executed once and answered alike", func(s *Session, alice *Caller, p *Peer) {
			r := alice.keyed("once", &contracts.Prompt{Content: "only once"})
			first := alice.granted(s.call(r)).ok("A72")
			p.expect("A72", prompted("only once"))
			second := alice.granted(s.call(r)).ok("A72")
			s.failIf(!reflect.DeepEqual(first.Body, second.Body), "A72",
				"expected the stored answer %s again, got %s", first.said(), second.said())
			alice.finish(p)
			p.count("A72", p.log, prompted("only once"), 1)
			refused := alice.keyed("refused", approve("ghost", true))
			a, b := s.call(refused), s.call(refused)
			b.has("A72", fields{"code": a.at("code"), "error": a.at("error")})
			s.equal("A72", "the status of the same refusal", b.Status, a.Status)
		}),
		overHTTP.attached("post/idempotent-at-once", "A72", "Repeats that overtake each other execute once all the same", func(s *Session, alice *Caller, p *Peer) {
			r := alice.keyed("raced", &contracts.Init{ThinkingLevel: contracts.ThinkingLow})
			answers := s.together(r, r, r, r, r, r)
			for _, a := range answers {
				s.failIf(!reflect.DeepEqual(a.ok("A72").Body, answers[0].Body), "A72",
					"expected one answer for one key, got %s and %s", answers[0].said(), a.said())
			}
			alice.finish(p)
			p.count("A72", p.log, message("status").with("message", "Initialized: thinking_level"), 1)
		}),
		overHTTP.driver("post/idempotency-scope", "A72 1.12", "A key counts for its connection alone", func(s *Session, alice *Caller) {
			s.call(alice.keyed("shared", &contracts.Init{ThinkingLevel: contracts.ThinkingLow})).ok("A72")
			bob := s.takeFrom("bob")
			a := s.call(bob.keyed("shared", &contracts.Init{ThinkingLevel: contracts.ThinkingHigh})).ok("A72")
			s.shows("1.12", a.effect(), fields{"last_init.thinking_level": "high"})
		}),
		overHTTP.driver("post/bad-key", "A72 1.12", "A key that is too long is refused", func(s *Session, alice *Caller) {
			s.quietly("A72", func() {
				s.call(alice.keyed(strings.Repeat("k", 129), initNothing())).refused("A72", contracts.CodeBadRequest, "")
			})
			s.call(alice.keyed(strings.Repeat("k", 128), initNothing())).ok("A72")
		}),
		overHTTP.driver("post/unknown-connection", "1.12 1.5", "A message of an unknown connection or subscription is refused", func(s *Session, alice *Caller) {
			s.quietly("1.12", func() {
				for _, h := range []http.Header{
					{"X-Maestro-Headless-Subscriber-Id": {"sub_nobody"}},
					{"X-Maestro-Headless-Subscriber-Id": {"sub_nobody"}, "X-Maestro-Headless-Connection-Id": {alice.connection}},
				} {
					alice.as(h).refused("1.12", contracts.CodeStaleSubscription, textNoSubscriber)
				}
				alice.as(http.Header{"X-Maestro-Headless-Connection-Id": {"conn_nobody"}}).refused("A35", contracts.CodeStaleConnection, textNoConnection)
			})
		}),
		overHTTP.visited("post/foreign-subscription", "1.12 1.5", "A message under another connection's subscription is refused", func(_ *Session, alice, vera *Caller) {
			vera.subscribed(nil)
			alice.as(http.Header{"X-Maestro-Headless-Connection-Id": {alice.connection}, "X-Maestro-Headless-Subscriber-Id": {vera.subscription}}).
				refused("1.12:foreign", contracts.CodeAccessDenied, "Headless subscription does not belong to the message connection")
		}),
		overHTTP.visited("post/order-of-checks", "1.12", "What is wrong first is what a message is refused for", func(s *Session, alice, vera *Caller) {
			s.takeFrom("bob")
			const invalid = `{"type":"prompt"}`
			nobody := alice.sending([]byte(invalid))
			nobody.header = http.Header{"X-Maestro-Headless-Connection-Id": {"conn_nobody"}}
			elsewhere := nobody
			elsewhere.path = routeOf("conf-nowhere", "messages")
			for _, c := range []struct {
				r    request
				code contracts.Code
			}{
				{elsewhere, contracts.CodeStaleSession},                             // the session comes before the connection
				{nobody, contracts.CodeStaleConnection},                             // the connection comes before the message
				{vera.sending([]byte(invalid)), contracts.CodeAccessDenied},         // the role comes before lease and message
				{alice.sending([]byte(invalid)), contracts.CodeControllerLeaseHeld}, // the lease comes before the message
			} {
				s.call(c.r).refused("1.12:order", c.code, "")
			}
			carol := s.caller("carol", contracts.RoleController)
			carol.connected(fields{"takeControl": true, "capabilities": leftOut})
			carol.malformed("1.12:order", `{"type":"utility_file_read","read_id":"r"}`, "path") // the message comes before the capability
			carol.post(&contracts.UtilityFileRead{ReadID: "r", Path: "no-such-file"}).refused("1.12:order", contracts.CodeUnsupportedCapability, "")
		}),
		seedOverHTTP.driver("post/other-session", "R64", "What is asked in one session cannot be answered, or seen, in another", func(s *Session, alice *Caller) {
			mine := s.ID
			s.opened = false
			other := s.caller("oscar", contracts.RoleController)
			other.connected(nil)
			p := other.followed()
			theirs := s.ID
			s.ID = mine
			alice.ask(contracts.RequestApproval, "secret")
			s.ID = theirs
			other.post(approve("secret", true)).refused("R64", contracts.CodeRequestNotFound, "")
			other.finish(p)
			p.none("R64", 0, message("server_request"))
			s.ID = mine
			for _, f := range []string{alice.connection, alice.subscription} {
				r := other.sending(encodeCommand(initNothing()))
				r.path = routeOf(theirs, "messages")
				r.header = http.Header{"X-Maestro-Headless-Connection-Id": {f}}
				s.call(r).refused("R64", contracts.CodeStaleConnection, "")
			}
			s.stateWith("R64", fmt.Sprintf("the question of %s still waiting", mine), func(f *Frame) bool { return pending(f, "secret") })
		}),
	}
}

// quietly fails unless what f does leaves the session's cursor alone.
func (s *Session) quietly(rule string, f func()) {
	s.unmoved(rule, func() int64 { return s.state().Cursor }, f)
}

func postInit(s *Session) {
	alice, p := s.attached()
	alice.posted("1.12", &contracts.Init{SystemPrompt: new("Be brief."), ThinkingLevel: contracts.ThinkingLow})
	s.shows("R35", s.state(), fields{"last_init": fields{"system_prompt": "Be brief.", "thinking_level": "low", "type": "init"}})
	p.expect("R33:http", message("status").with("message", "Initialized: system_prompt, thinking_level"))
}

func (c *Caller) malformed(rule, text, names string) {
	a := c.postText([]byte(text)).refused(rule, contracts.CodeBadRequest, "")
	if !strings.Contains(a.str("error"), names) {
		if rule == "A65" {
			rule = "A65:words"
		}
		c.s.fail(rule, "expected the refusal of %s to name %q, got %q", text, names, a.str("error"))
	}
}

func postDenial(s *Session) {
	alice, p := s.attached()
	alice.prompt(approval("http-1"))
	asked := p.expect("A67", requested("http-1").with("request_type", "approval").with("tool", "bash"))
	alice.posted("A68", &contracts.ServerRequestResponse{RequestID: "http-1", RequestType: contracts.RequestApproval, Approved: new(false),
		Result: &contracts.ToolResult{Error: "Not on a Friday"}})
	ended := p.expect("A68", resolved("http-1").with("resolution", "denied").
		with("resolved_by", "user").with("reason", "Not on a Friday"))
	s.failIf(ended.Cursor <= asked.Cursor, "A67",
		"expected the resolution after the request, got cursors %d and %d", ended.Cursor, asked.Cursor)
	p.still("R52", p.pos, message("server_request_resolved"))
	s.waits("A68", s.state(), "http-1", false)
}

// speaking is a prompt whose response lasts until it is interrupted.
func speaking() string { return streamOf(100_000, 10) }

// goesOn fails unless a response is spoken beyond a cursor.
func (p *Peer) goesOn(rule string, cursor int64) {
	p.expect(rule, message("response_chunk").where("of the response that goes on", func(f *Frame) bool { return f.Cursor > cursor }))
}

func (p *Peer) indexAfter(f *Frame) int { return slices.Index(p.log, f) + 1 }

func (c *Caller) keyed(key string, cmd contracts.Command) request {
	r := c.sending(encodeCommand(cmd))
	r.header.Set("Idempotency-Key", key)
	return r
}
