package conformance

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// sockets judges WebSocket itself: 9.1, 9.5 and A113.
func sockets() []Scenario {
	return []Scenario{
		onSocket.scenario("socket/no-hello", "A113", "A socket that says no hello is closed with 4408", func(s *Session) {
			p, err := s.dial("mute", entry{create: true, role: contracts.RoleViewer})
			s.failIf(err != nil, "9.1", "expected the upgrade to succeed, got: %v", err)
			p.closesWithin("A113", handshakeTime+s.config.Patience, contracts.CodeTimeout.CloseCode())
		}).slow(),
		onSocket.scenario("socket/first-frame", "9.5", "A first frame other than hello is closed with 4400", func(s *Session) {
			for i, text := range []string{`{"type":"prompt","content":"x"}`, `{"type":"ws.ping","id":"p"}`, `[]`} {
				p, err := s.dial([]string{"a", "b", "c"}[i], entry{create: true, role: contracts.RoleController})
				s.failIf(err != nil, "9.1", "expected the upgrade to succeed, got: %v", err)
				p.send([]byte(text))
				p.closes("9.5", contracts.CodeBadRequest.CloseCode())
				p.none("9.3", 0, control("ws.attached"))
			}
		}),
		onSocket.scenario("socket/not-json", "9.5", "A frame that is not JSON is closed with 4400", badFrame(`{"type":"init"`, contracts.CodeBadRequest.CloseCode())),
		onSocket.scenario("socket/unknown-control", "9.5", "An unknown ws.* type is closed with 4400", badFrame(`{"type":"ws.frobnicate","id":"x"}`, contracts.CodeBadRequest.CloseCode())),
		onSocket.scenario("socket/invalid-utf8", "9.5", "Invalid UTF-8 is closed with 1007", badFrame("{\"type\":\"prompt\",\"content\":\"\xff\"}", 1007)),
		onSocket.controller("socket/binary", "9.5", "A binary frame is closed with 1003", func(_ *Session, p *Peer) {
			p.sendRaw([]byte(`{"type":"init"}`))
			p.closes("9.5", 1003)
		}),
		onSocket.controller("socket/too-large", "9.5 9.1", "A frame over the announced limit is closed with 1009", func(_ *Session, p *Peer) {
			p.send(sized(p.frameLimit() + 1))
			p.closes("9.5", contracts.CodePayloadTooLarge.CloseCode())
			p.none("9.5", 0, message("status").with("message", "Initialized: system_prompt"))
		}),
		onSocket.controller("socket/large-enough", "9.1", "A frame just under the announced limit is accepted", func(_ *Session, p *Peer) {
			p.send(sized(p.frameLimit()))
			p.expect("9.1", message("status").with("message", "Initialized: system_prompt"))
		}),
		onSocket.controller("socket/bye", "9.5 9.2", "ws.bye closes normally", func(_ *Session, p *Peer) {
			p.send([]byte(`{"type":"ws.bye"}`))
			p.closes("9.5", 1000)
		}),
		onSocket.scenario("socket/subprotocol", "9.1", "Without the subprotocol there is no upgrade", func(s *Session) {
			for _, protocol := range []string{"", "graphql-ws"} {
				r := s.upgrade(protocol)
				s.failIf(r.Status != http.StatusBadRequest, "9.1", "expected status 400 for subprotocol %q, got: %v", protocol, r)
			}
		}),
		onSocket.scenario("socket/other-version", "9.1", "Another version of the subprotocol is told which one to use", func(s *Session) {
			r := s.upgrade("maestro-headless.1999-01-01")
			s.failIf(r.Status != http.StatusUpgradeRequired || !strings.Contains(r.Offers, contracts.Subprotocol), "9.1",
				"expected status 426 naming %s in Sec-WebSocket-Protocol, got: %v, %q", contracts.Subprotocol, r, r.Offers)
		}),
		onSocket.scenario("socket/unknown-session", "9.5 A76", "An unknown session is not created without being asked for", func(s *Session) {
			s.try("lost", entry{role: contracts.RoleViewer}).refusedWith(s, "9.5", contracts.CodeStaleSession, contracts.CodeNotFound)
		}),
		onSocket.watched("socket/others-unharmed", "9.5", "A client that breaks the protocol harms nobody else", func(s *Session, alice, vera *Peer) {
			for i, text := range []string{`{`, `{"type":"ws.nonsense"}`, "\xff"} {
				p := s.viewer([]string{"m0", "m1", "m2"}[i])
				p.send([]byte(text))
				p.closes("9.5", contracts.CodeBadRequest.CloseCode(), 1007)
			}
			alice.prompt("all is well")
			vera.expect("9.5", prompted("all is well"))
		}),
	}
}

// handshakeTime is how long a server may wait for the first frame.
const handshakeTime = 10 * time.Second

func badFrame(text string, code int) func(*Session) {
	return func(s *Session) {
		p := s.controller()
		from := len(p.log)
		p.send([]byte(text))
		p.closes("9.5", code)
		p.none("9.5", from, noEffect)
	}
}

// frameLimit is the largest frame that the server says it takes.
func (p *Peer) frameLimit() int64 {
	limits, _ := p.attached["limits"].(map[string]any)
	n := number(limits["max_frame_bytes"])
	p.s.failIf(n <= 0 || n > 64<<20, "9.2",
		"expected limits.max_frame_bytes in ws.attached, got %s", show(p.attached["limits"]))
	return n
}

func sized(n int64) []byte {
	const head, tail = `{"type":"init","system_prompt":"`, `"}`
	return []byte(head + strings.Repeat("x", int(n)-len(head)-len(tail)) + tail)
}

// upgrade tries to attach with another subprotocol and returns the refusal.
func (s *Session) upgrade(protocol string) *Refused {
	o := s.dialOptions(entry{create: true, role: contracts.RoleViewer})
	o.subprotocol = protocol
	link, err := dialSocket(s.ctx, o)
	if err == nil {
		_ = link.Close()
		s.fail("9.1", "expected the upgrade to be refused with subprotocol %q, got a socket", protocol)
	}
	refused, ok := errors.AsType[*Refused](err)
	s.failIf(!ok, "9.1", "expected an HTTP refusal, got: %v", err)
	return refused
}

// answers judges how client frames are answered: A63 to A73 and A116.
func answers() []Scenario {
	return []Scenario{
		onSocket.controller("answer/one-each-in-order", "A116", "Every frame with an id gets one answer, in order", func(s *Session, p *Peer) { // its watch checks order and number
			var last string
			for i := range 25 {
				if i%5 == 4 {
					last = p.command(&contracts.ToolResponse{CallID: "ghost", Approved: true})
				} else {
					last = p.command(initNothing())
				}
			}
			p.expect("A116", p.answer(last))
			n := len(p.watch.waiting)
			s.failIf(n != 0, "A116", "expected every frame to be answered before the last one, %d are not", n)
			p.still("A116", p.pos, anyOf(control("ws.result"), control("ws.error")))
		}),
		onSocket.controller("answer/bare-message", "9.2 A116", "A bare message is answered with id null and its ordinal", func(_ *Session, p *Peer) {
			p.send(encodeCommand(initNothing()))
			p.expect("9.2", control("ws.result").with("id", nil).with("seq", p.sent))
			p.send([]byte(`{"type":"tool_response","call_id":"ghost","approved":true}`))
			p.expect("9.2", control("ws.error").with("id", nil).with("seq", p.sent).with("code", contracts.CodeRequestNotFound))
		}),
		onSocket.controller("answer/flood", "9.4 A116", "Frames beyond the allowance are refused as rate limited, none is lost", func(s *Session, p *Peer) {
			const count = 200
			for range count - 1 {
				p.command(initNothing())
			}
			p.expect("9.4", p.answer(p.command(initNothing())))
			results := countOf(p.log, control("ws.result").where("with an id", func(f *Frame) bool { return f.Body["id"] != nil }))
			limited := countOf(p.log, control("ws.error").with("code", contracts.CodeRateLimited).with("retryable", true))
			s.failIf(results+limited != count || results == 0, "9.4",
				"expected %d answers, results or rate_limited, got %d results and %d rate_limited", count, results, limited)
			p.count("9.4", p.log, initNothingReply, results)
		}),
		onSocket.triggers().controller("answer/idempotent", "A72", "A repeated ws.send is executed once and answered alike", func(s *Session, p *Peer) {
			first := p.again("once", &contracts.Prompt{Content: "only once"})
			p.expect("6.2", prompted("only once"))
			from := len(p.log)
			second := p.again("once", &contracts.Prompt{Content: "only once"})
			s.shows("A72", second, fields{"type": first.Kind, "cursor": first.at("cursor")}) // the stored answer
			p.still("A72", from, prompted("only once"))
		}),
		onSocket.controller("answer/idempotent-refusal", "A72", "A repeated refusal is the same refusal", func(s *Session, p *Peer) {
			cmd := &contracts.ToolResponse{CallID: "ghost", Approved: true}
			first, second := p.again("refused", cmd), p.again("refused", cmd)
			s.shows("A72", second, fields{"type": "ws.error", "code": first.at("code"), "error": first.at("error")}) // the stored answer
		}),
		onSocket.controller("answer/long-id", "9.2", "An id of more than 64 bytes is refused", func(_ *Session, p *Peer) {
			from := len(p.log)
			id := strings.Repeat("x", contracts.MaxSendIDBytes+1)
			p.watch.loose = append(p.watch.loose, id)
			p.send(encode(map[string]any{"type": "ws.send", "id": id, "message": json.RawMessage(`{"type":"init"}`)}))
			p.expect("9.2", control("ws.error").with("code", contracts.CodeBadRequest))
			p.still("9.2", from, initNothingReply)
		}),
		onSocket.controller("answer/after-its-effects", "2.5 9.2", "A result comes after the entries up to its cursor", func(s *Session, p *Peer) { // its watch compares cursors
			for range 10 {
				f := p.accepted("9.2", p.command(initNothing()))
				status := p.expect("9.2", initNothingReply)
				s.failIf(number(f.at("cursor")) < status.Cursor && status.At < f.At, "9.2",
					"expected the cursor of the result to cover the status %d that came before it, got %d", status.Cursor, number(f.at("cursor")))
				p.pos = len(p.log)
			}
		}),
		onSocket.controller("answer/error-body", "A73 R103", "A refusal has a code, the same error_type, and a text", func(s *Session, p *Peer) { // its watch compares code and error_type
			f := p.notAccepted("A73", p.command(&contracts.ToolResponse{CallID: "ghost", Approved: true}))
			s.shows("A73", f, fields{"code": contracts.CodeRequestNotFound, "retryable": false})
			s.failIf(f.str("error") == "", "A73", "expected a text, got %s", f.said())
			p.prompt(hang())
			f = p.notAccepted("A73", p.command(&contracts.Prompt{Content: "early"}))
			s.shows("A73", f, fields{"code": contracts.CodeRuntimeBusy, "retryable": true})
			p.accepted("A73", p.command(&contracts.Interrupt{}))
		}),
		onSocket.controller("answer/ping", "9.2", "ws.ping is answered with its id", func(_ *Session, p *Peer) {
			p.fence()
			p.send([]byte(`{"type":"ws.ping"}`))
			p.expect("9.2", control("ws.pong").with("id", nil))
		}),
		onSocket.controller("answer/ack", "9.2", "ws.ack is taken without a word", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.send(encode(map[string]any{"type": "ws.ack", "cursor": p.watch.cursor}))
			p.still("9.2", from, control("ws.error"))
		}),
		Needs{Transport: Socket, Strict: OnlyTolerant}.controller("answer/unknown-key", "D13", "A tolerant server ignores unknown keys in its control frames", func(_ *Session, p *Peer) {
			id := p.frame("ws.ping", map[string]any{"mood": "good"})
			p.expect("D13", control("ws.pong").with("id", id))
			p.accepted("D13", p.frame("ws.send", map[string]any{"mood": "good", "message": json.RawMessage(`{"type":"init"}`)}))
		}),
		onStdio.controller("answer/types-of-errors", "R103 R104 R61", "The server's own errors carry the stated types", func(_ *Session, p *Peer) {
			for _, c := range []struct {
				text string
				r    refusal
			}{
				{`{"type":"tool_response","call_id":"cancel_parse_1","approved":true}`, unknownRefusal("R103", "cancel_parse_1")},
				{`{"type":"init","approval_mode":7}`, parseRefusal("R103", "approval_mode")},
				{`{"type":"prompt","cancelled":true}`, parseRefusal("R103", "content")},
			} {
				p.refused(p.commandText([]byte(c.text)), c.r)
			}
		}),
	}
}

// again sends a ws.send with an id used before, or about to be used again.
func (p *Peer) again(id string, cmd contracts.Command) *Frame {
	from := len(p.log)
	p.watch.await(id, p.sent+1)
	p.send(encode(map[string]any{"type": "ws.send", "id": id, "message": json.RawMessage(encodeCommand(cmd))}))
	return p.await("A72", from, p.answer(id))
}
