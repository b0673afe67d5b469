package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// How the server takes additions, on stdio and sockets.
var (
	tolerant = Needs{Strict: OnlyTolerant}
	strict   = Needs{Strict: OnlyStrict}
)

// framing judges lines and JSON texts: R1 to R16, and section 1.3.
func framing() []Scenario {
	return []Scenario{
		onStdio.process("framing/crlf", "R3", "A line may end with CR LF", func(_ *Session, p *Peer) {
			p.sendRaw([]byte("{\"type\":\"init\"}\r\n"))
			p.expect("R3", initNothingReply)
			p.command(initNothing())
			p.expect("R3", initNothingReply)
		}),
		onStdio.process("framing/last-line", "R3 R19", "A last line without a terminator is processed at EOF", func(_ *Session, p *Peer) {
			p.sendRaw([]byte(`{"type":"init"}`))
			p.closeInput("R19")
			p.expect("R3", initNothingReply)
			p.exits("R19", 0)
		}),
		onStdio.process("framing/blank-lines", "R4", "Blank lines produce no output", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.sendRaw([]byte("\n  \n\t\r\n\n"))
			p.command(initNothing())
			p.expect("R4", initNothingReply)
			p.none("R4", from, message("error"))
		}),
		onStdio.process("framing/not-json", "R5", "A line that is not JSON costs one protocol error and no more", func(_ *Session, p *Peer) {
			for _, line := range []string{`{"type":"prompt"`, `hello`, `{"type":"init"} {"type":"init"}`, "{\"type\":\"init\"\x00}"} {
				from := len(p.log)
				p.send([]byte(line))
				p.refused("", parseRefusal("R5", ""))
				p.command(initNothing())
				p.expect("R5", initNothingReply)
				p.count("R5", p.log[from:], message("error"), 1)
			}
		}),
		Needs{}.controller("framing/unknown-type", "R6 A65", "An unknown message type is refused with the known text", func(_ *Session, p *Peer) {
			p.refused(p.commandText([]byte(`{"type":"frobnicate","content":"x"}`)),
				refusal{rule: "R6", text: textUnknownType, kind: contracts.ErrorProtocol, code: contracts.CodeBadRequest})
		}),
		onStdio.process("framing/not-an-object", "R7", "A text that is no object with a type is refused", func(_ *Session, p *Peer) {
			for _, line := range []string{`[1]`, `"prompt"`, `17`, `null`, `{"content":"x"}`, `{"type":7}`, `{"type":null}`} {
				p.send([]byte(line))
				p.refused("", parseRefusal("R7", ""))
			}
			p.command(initNothing())
			p.expect("R7", initNothingReply)
		}),
		Needs{}.scenario("framing/missing-field", "R8 A63", "A message without a required field is refused, naming the field", refuses("R8", missingFields...)),
		Needs{}.scenario("framing/wrong-type", "R8", "A field of the wrong type is refused, naming the field", refuses("R8", wrongTypes...)),
		strict.scenario("framing/null-refused", "R8", "A strict server refuses null in an optional field", refuses("R8", badMessage{`{"type":"init","system_prompt":null}`, "system_prompt"})),
		tolerant.controller("framing/null-is-absent", "D13", "A tolerant server takes null in an optional field as absent", func(_ *Session, p *Peer) {
			p.accepted("D13", p.commandText([]byte(`{"type":"init","system_prompt":null,"approval_mode":null}`)))
			p.expect("D13", initNothingReply)
		}),
		strict.controller("framing/unknown-key-refused", "R9 A64", "A strict server refuses an unknown key with the known text", func(_ *Session, p *Peer) {
			p.refused(p.commandText([]byte(`{"type":"prompt","content":"hello","unexpected":true}`)),
				refusal{rule: "R9", text: "Failed to parse command: Invalid headless command: /unexpected Unexpected property",
					kind: contracts.ErrorProtocol, code: contracts.CodeBadRequest})
		}),
		tolerant.triggers().controller("framing/unknown-key-ignored", "D13", "A tolerant server ignores an unknown key", func(_ *Session, p *Peer) {
			p.accepted("D13", p.commandText([]byte(`{"type":"prompt","content":"hello","unexpected":true}`)))
			p.expect("D13", prompted("hello"))
		}),
		Needs{}.controller("framing/exact-case", "R11", "Keys match by exact case", func(s *Session, p *Peer) {
			p.refused(p.commandText([]byte(`{"type":"prompt","Content":"x"}`)), parseRefusal("R11", "content"))
			if !s.socket() {
				p.send([]byte(`{"Type":"init"}`))
				p.refused("", parseRefusal("R11", ""))
			}
		}),
		Needs{}.scenario("framing/duplicate-key", "D13", "A duplicate key is refused", func(s *Session) {
			const text = `{"type":"prompt","content":"a","content":"b"}`
			p := s.controller()
			from := len(p.log)
			if !s.socket() {
				p.send([]byte(text))
				p.refused("", parseRefusal("D13:malformed", ""))
				p.still("D13:malformed", from, noEffect)
				return
			}
			p.send([]byte(text)) // a server may take it for a broken frame (9.5)
			refused := p.seek(from, control("ws.error").with("code", contracts.CodeBadRequest), s.config.Patience)
			s.failIf(refused == nil && p.closeCode() != contracts.CodeBadRequest.CloseCode(), "D13:malformed",
				"expected ws.error bad_request or a close with 4400 for a duplicate key, got: %v", p.ended)
			p.none("D13:malformed", from, noEffect)
		}),
		Needs{}.scenario("framing/duplicate-capability", "R12", "Duplicate capabilities are refused", refuses("R12",
			badMessage{`{"type":"hello","capabilities":{"server_requests":["approval","approval"]}}`, "capabilities"},
			badMessage{`{"type":"hello","capabilities":{"utility_operations":["file_read","file_read"]}}`, "capabilities"})),
		Needs{}.controller("framing/duplicate-opt-out", "R12", "Duplicate opt-outs are accepted and echoed once", func(s *Session, p *Peer) {
			p.hello(s.optingOut(contracts.RoleController,
				contracts.NotifyCompaction, contracts.NotifyHeartbeat, contracts.NotifyCompaction))
			f := p.expect("R12:opt-outs", message("hello_ok"))
			s.shows("R12:opt-outs", f, fields{"opt_out_notifications": []string{"compaction", "heartbeat"}})
		}),
		onStdio.process("framing/over-long-line", "R13", "A line over the limit costs one error and the next is read", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.send([]byte(`{"type":"prompt","content":"` + strings.Repeat("a", contracts.MaxLineBytes) + `"}`))
			p.command(initNothing())
			p.expect("R13", message("error").with("error_type", "protocol").with("fatal", false))
			p.expect("R13", initNothingReply)
			p.count("R13", p.log[from:], message("error"), 1)
			p.none("R13", from, noEffect)
		}),
		onStdio.process("framing/invalid-utf8", "1.3", "Invalid UTF-8 is refused, not replaced", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.send([]byte("{\"type\":\"prompt\",\"content\":\"a\xffb\"}"))
			p.expect("1.3:utf8", message("error").with("error_type", "protocol").with("fatal", false))
			p.still("1.3:utf8", from, noEffect)
		}),
		onStdio.process("framing/deep-nesting", "1.3", "Nesting has a bound", func(s *Session, p *Peer) {
			deep := append(bytes.Repeat([]byte("["), 100_000), bytes.Repeat([]byte("]"), 100_000)...)
			p.send(fmt.Appendf(nil, `{"type":"init","extra":%s}`, deep))
			p.expect("1.3:nesting", message("error").with("error_type", "protocol").with("fatal", false))
			p.command(initNothing())
			p.expect("1.3:nesting", initNothingReply)
		}),
		onStdio.process("framing/byte-order-mark", "1.3", "A byte-order mark before the first line is tolerated", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.sendRaw([]byte("\xef\xbb\xbf{\"type\":\"init\"}\n"))
			p.expect("1.3:mark", initNothingReply)
			p.none("1.3:mark", from, message("error"))
		}),
		Needs{Triggers: true}.controller("framing/lone-surrogate", "1.3", "A lone surrogate comes back as U+FFFD", func(s *Session, p *Peer) {
			p.commandText([]byte(`{"type":"prompt","content":"a\ud800b"}`))
			f := p.expect("1.3:surrogates", prompted("a\uFFFDb"))
			s.failIf(bytes.Contains(bytes.ToLower(f.Raw), []byte(`\ud800`)), "1.3:surrogates",
				"a lone surrogate was emitted again: %s", f.Raw)
		}),
		Needs{Triggers: true}.controller("framing/line-separators", "1.3", "U+2028 and U+2029 are escaped on output", func(s *Session, p *Peer) {
			p.command(&contracts.Prompt{Content: "a\u2028b\u2029c"})
			f := p.expect("1.3:separators", prompted("a\u2028b\u2029c"))
			s.failIf(bytes.ContainsAny(f.Raw, "\u2028\u2029"), "1.3:separators",
				"expected U+2028 and U+2029 to be escaped, got %q", f.Raw)
		}),
		Needs{}.controller("framing/order", "1.7", "Input is handled in the order of arrival", func(s *Session, p *Peer) {
			from := len(p.log)
			levels := []contracts.ThinkingLevel{contracts.ThinkingLow, ""}
			for i := range 60 {
				p.command(&contracts.Init{ThinkingLevel: levels[i%2]})
			}
			p.fence()
			i := 0
			for _, f := range p.log[from:] {
				if f.Type != "status" {
					continue
				}
				want := []string{"Initialized: thinking_level", "Init received with no changes"}[i%2]
				s.shows("1.7:order", f, fields{"message": want})
				i++
			}
			s.failIf(i != 60, "1.7:order", "expected 60 replies to 60 messages, got %d", i)
		}),
	}
}

// A badMessage is one that must be refused, and what the refusal must name.
type badMessage struct{ text, names string }

var (
	missingFields = []badMessage{
		{`{"type":"prompt"}`, "content"}, {`{"type":"tool_response","call_id":"c"}`, "approved"},
		{`{"type":"server_request_response","request_id":"r"}`, "request_type"}, {`{"type":"utility_command_start","command":"true"}`, "command_id"},
	}
	wrongTypes = []badMessage{
		{`{"type":"prompt","content":7}`, "content"}, {`{"type":"prompt","content":null}`, "content"},
		{`{"type":"prompt","content":"x","attachments":"y"}`, "attachments"}, {`{"type":"prompt","content":"x","attachments":[1]}`, "attachments"},
		{`{"type":"init","approval_mode":"sometimes"}`, "approval_mode"},
		{`{"type":"client_tool_result","call_id":"c","content":[{"type":"video"}],"is_error":false}`, "content"},
	}
)

// refuses sends messages that must be refused without effect.
func refuses(rule string, list ...badMessage) func(*Session) {
	return func(s *Session) {
		d := s.pilot()
		from := len(d.p.log)
		d.p.refusing = rule
		d.quietly(rule, func() {
			for _, m := range list {
				if strings.HasPrefix(m.text, `{"type":"utility_`) && !s.listsUtilities() {
					continue
				}
				if d.c != nil {
					d.c.malformed(rule, m.text, m.names)
					continue
				}
				d.p.pos = len(d.p.log)
				d.p.refused(d.p.commandText([]byte(m.text)), parseRefusal(rule, m.names))
			}
		})
		d.p.none(rule, from, noEffect)
	}
}

func parseRefusal(rule, names string) refusal {
	return refusal{rule: rule, prefix: "Failed to parse command: ", names: names,
		kind: contracts.ErrorProtocol, code: contracts.CodeBadRequest}
}

// noEffect wants what a prompt would have led to.
var noEffect = anyOf(message("response_start"), message("status").where("about a prompt", func(f *Frame) bool {
	return strings.HasPrefix(f.str("message"), "Prompt: ")
}))

func initNothing() contracts.Command { return &contracts.Init{} }

var initNothingReply = message("status").with("message", "Init received with no changes")

func countOf(frames []*Frame, w want) int {
	n := 0
	for _, f := range frames {
		if w.ok(f) {
			n++
		}
	}
	return n
}

// last returns the latest frame that w wants, which an expectation has seen.
func (p *Peer) last(w want) *Frame {
	for _, f := range slices.Backward(p.log) {
		if w.ok(f) {
			return f
		}
	}
	p.s.fail("R22", "%s: expected %s before", p.name, w.text)
	return nil
}

func (p *Peer) closeInput(rule string) {
	p.s.trace.add(p.s.now(), p.name, ">", []byte("(end of input)"))
	err := p.link.CloseInput()
	p.s.failIf(err != nil, rule, "%s: close the input: %v", p.name, err)
}

// exits waits for the process to end by itself with a status.
func (p *Peer) exits(rule string, status int) {
	ctx, cancel := p.s.within(p.s.exitTime())
	defer cancel()
	for p.pull(ctx) { // a server that is ending must not be held up by what it still has to say
	}
	got, err := p.link.Wait(ctx)
	switch {
	case err != nil:
		p.s.fail(rule, "%s: expected exit status %d within %s, got: %v", p.name, status, p.s.exitTime(), err)
	case got != status:
		p.s.fail(rule, "%s: expected exit status %d, got %d", p.name, status, got)
	}
}
