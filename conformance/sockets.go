package conformance

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// sockets judges WebSocket itself: 9.1, 9.5 and A113.
var sockets = []Scenario{
	onSocket.slowScenario("socket/no-hello", "A113", "A socket that says no hello is closed with 4408", func(s *Session) {
		p, err := s.dial("mute", entry{create: true, role: contracts.RoleViewer})
		s.failIf(err != nil, "9.1", "expected the upgrade to succeed, got: %v", err)
		p.closesWithin("A113", handshakeTime, contracts.CodeTimeout.CloseCode())
	}),
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
	onSocket.scenario("socket/binary", "9.5", "A binary frame is closed with 1003", func(s *Session) {
		p := s.controller()
		p.sendRaw([]byte(`{"type":"init"}`))
		p.closes("9.5", 1003)
	}),
	onSocket.scenario("socket/too-large", "9.5 9.1", "A frame over the announced limit is closed with 1009", func(s *Session) {
		p := s.controller()
		p.send(sized(p.frameLimit() + 1))
		p.closes("9.5", contracts.CodePayloadTooLarge.CloseCode())
		p.none("9.5", 0, message("status").with("message", "Initialized: system_prompt"))
	}),
	onSocket.scenario("socket/large-enough", "9.1", "A frame just under the announced limit is accepted", func(s *Session) {
		p := s.controller()
		p.send(sized(p.frameLimit()))
		p.expect("9.1", message("status").with("message", "Initialized: system_prompt"))
	}),
	onSocket.scenario("socket/bye", "9.5 9.2", "ws.bye closes normally", bye),
	onSocket.scenario("socket/subprotocol", "9.1", "Without the subprotocol there is no upgrade", func(s *Session) {
		for _, protocol := range []string{"", "graphql-ws"} {
			if r := s.upgrade(protocol); r.Status != http.StatusBadRequest {
				s.fail("9.1", "expected status 400 for subprotocol %q, got: %v", protocol, r)
			}
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
	onSocket.scenario("socket/others-unharmed", "9.5", "A client that breaks the protocol harms nobody else", func(s *Session) {
		alice, vera := s.controller(), s.viewer("vera")
		for i, text := range []string{`{`, `{"type":"ws.nonsense"}`, "\xff"} {
			p := s.viewer([]string{"m0", "m1", "m2"}[i])
			p.send([]byte(text))
			p.closes("9.5", contracts.CodeBadRequest.CloseCode(), 1007)
		}
		alice.prompt("all is well")
		vera.expect("9.5", prompted("all is well"))
	}),
}

// handshakeTime is how long a server may wait for the first frame, and some.
const handshakeTime = 10*time.Second + 3*time.Second

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

// sized returns an init of exactly n bytes.
func sized(n int64) []byte {
	const head, tail = `{"type":"init","system_prompt":"`, `"}`
	return []byte(head + strings.Repeat("x", int(n)-len(head)-len(tail)) + tail)
}

func bye(s *Session) {
	p := s.controller()
	p.send([]byte(`{"type":"ws.bye"}`))
	p.closes("9.5", 1000)
}

// upgrade tries to attach with another subprotocol and returns the refusal.
func (s *Session) upgrade(protocol string) *Refused {
	link, err := dialSocket(s.ctx, dialOptions{base: s.base(), token: s.credential(), subprotocol: protocol,
		query: (&entry{create: true, role: contracts.RoleViewer}).query(s)})
	if err == nil {
		_ = link.Close()
		s.fail("9.1", "expected the upgrade to be refused with subprotocol %q, got a socket", protocol)
	}
	refused, ok := errors.AsType[*Refused](err)
	s.failIf(!ok, "9.1", "expected an HTTP refusal, got: %v", err)
	return refused
}
