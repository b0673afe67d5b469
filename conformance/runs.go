package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// runs judges init and prompts: R33 to R49.
func runs() []Scenario {
	onSocket := Needs{Transport: Socket}
	return []Scenario{
		Needs{}.scenario("run/init", "R33", "init names what it applied, in a fixed order", func(s *Session) {
			p := s.controller()
			text := "Be brief."
			for _, c := range []struct {
				init contracts.Init
				want string
			}{
				{contracts.Init{}, "Init received with no changes"},
				{contracts.Init{ApprovalMode: contracts.ApprovalPrompt}, "Initialized: approval_mode"},
				{contracts.Init{ApprovalMode: contracts.ApprovalPrompt, ThinkingLevel: contracts.ThinkingHigh, AppendSystemPrompt: &text, SystemPrompt: &text},
					"Initialized: system_prompt, append_system_prompt, thinking_level, approval_mode"},
			} {
				p.accepted("R33", p.command(&c.init))
				if got := p.expect("R33", message("status")).str("message"); got != c.want {
					s.fail("R33", "expected status %q, got %q", c.want, got)
				}
			}
		}),
		onSocket.scenario("run/last-init", "R35", "A snapshot holds the last accepted init whole", func(s *Session) {
			p := s.controller()
			if got := p.last(control("snapshot")).at("last_init"); got != nil {
				s.fail("R35", "expected last_init null in a fresh session, got %s", show(got))
			}
			text := "Be brief."
			p.accepted("R35", p.command(&contracts.Init{SystemPrompt: &text}))
			p.accepted("R35", p.command(&contracts.Init{ThinkingLevel: contracts.ThinkingLow}))
			f := s.viewer("vera").last(control("snapshot"))
			if got := show(f.at("last_init")); got != `{"thinking_level":"low","type":"init"}` {
				s.fail("R35", "expected the last init alone, with its type, got %s", got)
			}
		}),
		Needs{}.scenario("run/prompt", "6.2", "A prompt reaches the runtime", func(s *Session) {
			p := s.controller()
			for _, content := range []string{"hello", "", "naïve 🚀 \u202e \"quoted\"\n\ttabbed"} {
				p.prompt(content)
				p.expect("6.2", message("status").with("message", "Prompt: "+content))
			}
		}),
		Needs{Seed: true}.scenario("run/every-prompt-ends", "R37", "Every accepted prompt leads to a response_end", func(s *Session) {
			p := s.controller()
			p.prompt("hello")
			p.expect("R37", message("response_end"))
		}),
		Needs{}.scenario("run/response", "R36 R38 R39 R40 R41", "A response starts, streams and ends once, with a coherent summary", response),
		Needs{}.scenario("run/responses-in-turn", "R36", "Responses follow one another with fresh ids", func(s *Session) {
			p := s.controller()
			seen := map[string]bool{}
			for range 3 {
				p.prompt(streamOf(2, 0))
				id := p.expect("R36", message("response_start")).str("response_id")
				if seen[id] {
					s.fail("R36", "response id %q was used before", id)
				}
				seen[id] = true
				p.expect("R37", message("response_end").with("response_id", id))
			}
			p.still("R36", len(p.log), message("response_start"))
			if n := countOf(p.log, message("response_start")); n != 3 {
				s.fail("R36", "expected one response for each of three prompts, got %d", n)
			}
		}),
		onSocket.scenario("run/responding", "R36 R72", "A snapshot in the middle of a response shows it, one after it does not", func(s *Session) {
			alice := s.controller()
			alice.prompt(streamOf(200, 10))
			alice.expect("R36", message("response_chunk"))
			vera := s.viewer("vera")
			f := vera.last(control("snapshot"))
			if f.at("state.is_responding") != true || f.str("state.current_response.text") == "" {
				s.fail("R36", "expected is_responding and the text so far, got %s and %s", show(f.at("state.is_responding")), show(f.at("state.current_response")))
			}
			start := alice.last(message("response_start"))
			whole := f.str("state.current_response.text")
			vera.await("R36", 0, message("response_end"))
			alice.expect("R36", message("response_end"))
			if got, want := whole+chunksOf(vera.log), chunksOf(alice.log); got != want {
				s.fail("R36", "response %s: the snapshot's text and the chunks after it make %q, the chunks alone %q", start.str("response_id"), got, want)
			}
			after := s.viewer("victor").last(control("snapshot"))
			if after.at("state.is_responding") != false || after.at("state.current_response") != nil {
				s.fail("R36", "expected no response after its end, got is_responding %s, current_response %s", show(after.at("state.is_responding")), show(after.at("state.current_response")))
			}
		}),
		Needs{}.scenario("run/busy", "R42 A71", "A prompt during a run is refused and disturbs nothing", busy),
		onSocket.scenario("run/busy-state", "R42", "A refused prompt leaves the state as it was", func(s *Session) {
			p := s.controller()
			p.prompt(streamOf(100, 10))
			p.expect("R36", message("response_chunk"))
			before := p.log[len(p.log)-1].At
			p.refused(p.command(&contracts.Prompt{Content: "too early"}), busyRefusal("R42"))
			f := s.viewer("vera").last(control("snapshot"))
			if f.at("state.is_responding") != true || f.str("state.current_response.text") == "" {
				s.fail("R42", "expected the response of %.3fs to be still open in the state, got %s", before.Seconds(), show(f.at("state.current_response")))
			}
			p.expect("R42", message("response_end"))
		}),
		Needs{}.scenario("run/missing-attachment", "R43", "An unreadable attachment costs one tool error and the prompt runs", func(s *Session) {
			s.conformanceAgent()
			p := s.controller()
			const name = "conformance-no-such-file.txt"
			id := p.command(&contracts.Prompt{Content: "look", Attachments: []string{name}})
			p.accepted("R43", id)
			p.expect("R43", message("error").with("message", "Attachment not readable: "+name).with("error_type", "tool"))
			p.expect("R43", message("status").with("message", "Prompt: look"))
		}),
		Needs{}.scenario("run/error-keeps-responding", "R49", "A refusal during a response leaves it open", func(s *Session) {
			p := s.controller()
			p.prompt(streamOf(200, 10))
			p.expect("R49", message("response_chunk"))
			p.refused(p.command(&contracts.ToolResponse{CallID: "nobody", Approved: true}),
				refusal{rule: "R61", names: "nobody", kind: contracts.ErrorTool, code: contracts.CodeRequestNotFound})
			p.expect("R49", message("response_chunk"))
			p.expect("R49", message("response_end"))
		}),
	}
}

func response(s *Session) {
	p := s.controller()
	p.prompt(streamOf(8, 5))
	start := p.expect("R36", message("response_start"))
	id := start.str("response_id")
	from := len(p.log)
	p.expect("R36", message("response_end").with("response_id", id))
	if countOf(p.log, message("response_chunk").with("response_id", id)) == 0 {
		s.fail("R36", "expected chunks between response_start and response_end, got none in %d frames", len(p.log)-from)
	}
	p.still("R36", len(p.log), message("response_chunk"))
}

// chunksOf joins the text of a response.
func chunksOf(frames []*Frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Type == "response_chunk" && f.at("is_thinking") == false {
			b.WriteString(f.str("content"))
		}
	}
	return b.String()
}

// busyRefusal is how a prompt during a run is refused.
func busyRefusal(rule string) refusal {
	return refusal{rule: rule, text: textBusy, kind: contracts.ErrorProtocol, code: contracts.CodeRuntimeBusy}
}

func busy(s *Session) {
	p := s.controller()
	p.prompt(hang())
	p.refused(p.command(&contracts.Prompt{Content: "too early"}), busyRefusal("R42"))
	p.still("R42", p.pos, anyOf(message("response_end"), message("status").with("message", "Prompt: too early")))
	p.command(&contracts.Interrupt{})
	p.prompt("afterwards")
	p.expect("R42", message("status").with("message", "Prompt: afterwards"))
}
