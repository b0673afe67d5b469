package conformance

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// sockets judges WebSocket itself: 9.1, 9.5 and A113.
func sockets() []Scenario {
	onSocket := Needs{Transport: Socket}
	return []Scenario{
		{Name: "socket/no-hello", Title: "A socket that says no hello is closed with 4408", Rules: []string{"A113"}, Needs: onSocket, Slow: true, Run: noHello},
		{Name: "socket/first-frame", Title: "A first frame other than hello is closed with 4400", Rules: []string{"9.5"}, Needs: onSocket, Run: firstFrame},
		{Name: "socket/not-json", Title: "A frame that is not JSON is closed with 4400", Rules: []string{"9.5"}, Needs: onSocket, Run: badFrame(`{"type":"init"`, contracts.CodeBadRequest.CloseCode())},
		{Name: "socket/unknown-control", Title: "An unknown ws.* type is closed with 4400", Rules: []string{"9.5"}, Needs: onSocket, Run: badFrame(`{"type":"ws.frobnicate","id":"x"}`, contracts.CodeBadRequest.CloseCode())},
		{Name: "socket/invalid-utf8", Title: "Invalid UTF-8 is closed with 1007", Rules: []string{"9.5"}, Needs: onSocket, Run: badFrame("{\"type\":\"prompt\",\"content\":\"\xff\"}", 1007)},
		{Name: "socket/binary", Title: "A binary frame is closed with 1003", Rules: []string{"9.5"}, Needs: onSocket, Run: binaryFrame},
		{Name: "socket/too-large", Title: "A frame over the announced limit is closed with 1009", Rules: []string{"9.5", "9.1"}, Needs: onSocket, Run: tooLarge},
		{Name: "socket/large-enough", Title: "A frame just under the announced limit is accepted", Rules: []string{"9.1"}, Needs: onSocket, Run: largeEnough},
		{Name: "socket/bye", Title: "ws.bye closes normally", Rules: []string{"9.5", "9.2"}, Needs: onSocket, Run: bye},
		{Name: "socket/subprotocol", Title: "Without the subprotocol there is no upgrade", Rules: []string{"9.1"}, Needs: onSocket, Run: withoutSubprotocol},
		{Name: "socket/other-version", Title: "Another version of the subprotocol is told which one to use", Rules: []string{"9.1"}, Needs: onSocket, Run: otherSubprotocol},
		{Name: "socket/unknown-session", Title: "An unknown session is not created without being asked for", Rules: []string{"9.5", "A76"}, Needs: onSocket, Run: unknownSession},
		{Name: "socket/others-unharmed", Title: "A client that breaks the protocol harms nobody else", Rules: []string{"9.5"}, Needs: onSocket, Run: othersUnharmed},
	}
}

// handshakeTime is how long a server may wait for the first frame, and some.
const handshakeTime = 10*time.Second + 3*time.Second

func noHello(s *Session) {
	p, err := s.dial("mute", entry{create: true, role: contracts.RoleViewer})
	if err != nil {
		s.fail("9.1", "expected the upgrade to succeed, got: %v", err)
	}
	p.closesWithin("A113", handshakeTime, contracts.CodeTimeout.CloseCode())
}

func firstFrame(s *Session) {
	for i, text := range []string{`{"type":"prompt","content":"x"}`, `{"type":"ws.ping","id":"p"}`, `[]`} {
		p, err := s.dial([]string{"a", "b", "c"}[i], entry{create: true, role: contracts.RoleController})
		if err != nil {
			s.fail("9.1", "expected the upgrade to succeed, got: %v", err)
		}
		p.send([]byte(text))
		p.closes("9.5", contracts.CodeBadRequest.CloseCode())
		p.none("9.3", 0, control("ws.attached"))
	}
}

func badFrame(text string, code int) func(*Session) {
	return func(s *Session) {
		p := s.controller()
		from := len(p.log)
		p.send([]byte(text))
		p.closes("9.5", code)
		p.none("9.5", from, noEffect)
	}
}

func binaryFrame(s *Session) {
	p := s.controller()
	p.sendRaw([]byte(`{"type":"init"}`))
	p.closes("9.5", 1003)
}

// frameLimit is the largest frame that the server says it takes.
func (p *Peer) frameLimit() int64 {
	limits, _ := p.attached["limits"].(map[string]any)
	n := number(limits["max_frame_bytes"])
	if n <= 0 || n > 64<<20 {
		p.s.fail("9.2", "expected limits.max_frame_bytes in ws.attached, got %s", show(p.attached["limits"]))
	}
	return n
}

// sized returns an init of exactly n bytes.
func sized(n int64) []byte {
	const head, tail = `{"type":"init","system_prompt":"`, `"}`
	return []byte(head + strings.Repeat("x", int(n)-len(head)-len(tail)) + tail)
}

func tooLarge(s *Session) {
	p := s.controller()
	p.send(sized(p.frameLimit() + 1))
	p.closes("9.5", contracts.CodePayloadTooLarge.CloseCode())
	p.none("9.5", 0, message("status").with("message", "Initialized: system_prompt"))
}

func largeEnough(s *Session) {
	p := s.controller()
	p.send(sized(p.frameLimit()))
	p.expect("9.1", message("status").with("message", "Initialized: system_prompt"))
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
	if !ok {
		s.fail("9.1", "expected an HTTP refusal, got: %v", err)
	}
	return refused
}

func withoutSubprotocol(s *Session) {
	for _, protocol := range []string{"", "graphql-ws"} {
		if r := s.upgrade(protocol); r.Status != http.StatusBadRequest {
			s.fail("9.1", "expected status 400 for subprotocol %q, got: %v", protocol, r)
		}
	}
}

func otherSubprotocol(s *Session) {
	r := s.upgrade("maestro-headless.1999-01-01")
	if r.Status != http.StatusUpgradeRequired || !strings.Contains(r.Offers, contracts.Subprotocol) {
		s.fail("9.1", "expected status 426 naming %s in Sec-WebSocket-Protocol, got: %v, %q", contracts.Subprotocol, r, r.Offers)
	}
}

func unknownSession(s *Session) {
	s.try("lost", entry{role: contracts.RoleViewer}).refusedWith(s, "9.5", contracts.CodeStaleSession, contracts.CodeNotFound)
}

func othersUnharmed(s *Session) {
	alice, vera := s.controller(), s.viewer("vera")
	for i, text := range []string{`{`, `{"type":"ws.nonsense"}`, "\xff"} {
		p := s.viewer([]string{"m0", "m1", "m2"}[i])
		p.send([]byte(text))
		p.closes("9.5", contracts.CodeBadRequest.CloseCode(), 1007)
	}
	alice.prompt("all is well")
	vera.expect("9.5", message("status").with("message", "Prompt: all is well"))
}
