package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// runs judges init, prompts, interrupt, cancel and shutdown: R18, R19, R33 to R49, R66 to
// R71.
func runs() []Scenario {
	onStdio, onSocket := Needs{Transport: Stdio}, Needs{Transport: Socket}
	interrupt, cancel := &contracts.Interrupt{}, &contracts.Cancel{}
	asking := Needs{Asks: waitingKinds}
	return []Scenario{
		Needs{}.controller("run/init", "R33", "init names what it applied, in a fixed order", func(s *Session, p *Peer) {
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
				s.equal("R33", "the status", p.expect("R33", message("status")).str("message"), c.want)
			}
		}),
		onSocket.controller("run/last-init", "R35", "A snapshot holds the last accepted init whole", func(s *Session, p *Peer) {
			s.equal("R35", "last_init in a fresh session", p.last(control("snapshot")).at("last_init"), nil)
			p.accepted("R35", p.command(&contracts.Init{SystemPrompt: new("Be brief.")}))
			p.accepted("R35", p.command(&contracts.Init{ThinkingLevel: contracts.ThinkingLow}))
			got := show(s.viewer("vera").last(control("snapshot")).at("last_init"))
			s.failIf(got != `{"thinking_level":"low","type":"init"}`, "R35", "expected the last init alone, with its type, got %s", got)
		}),
		Needs{}.controller("run/prompt", "6.2", "A prompt reaches the runtime", func(_ *Session, p *Peer) {
			for _, content := range []string{"hello", "", "naïve 🚀 \u202e \"quoted\"\n\ttabbed"} {
				p.prompted("6.2", content)
			}
		}),
		Needs{Seed: true}.controller("run/every-prompt-ends", "R37", "Every accepted prompt leads to a response_end", func(_ *Session, p *Peer) {
			p.prompt("hello")
			p.expect("R37", message("response_end"))
		}),
		Needs{}.controller("run/response", "R36 R38 R39 R40 R41", "A response starts, streams and ends once, with a coherent summary", func(s *Session, p *Peer) {
			p.prompt(streamOf(8, 5))
			id := p.expect("R36", message("response_start")).str("response_id")
			from := len(p.log)
			p.expect("R36", message("response_end").with("response_id", id))
			s.failIf(countOf(p.log, message("response_chunk").with("response_id", id)) == 0,
				"R36", "expected chunks between response_start and response_end, got none in %d frames", len(p.log)-from)
			p.still("R36", len(p.log), message("response_chunk"))
		}),
		Needs{}.controller("run/responses-in-turn", "R36", "Responses follow one another with fresh ids", func(s *Session, p *Peer) {
			seen := map[string]bool{}
			for range 3 {
				p.prompt(streamOf(2, 0))
				id := p.expect("R36", message("response_start")).str("response_id")
				s.failIf(seen[id], "R36", "response id %q was used before", id)
				seen[id] = true
				p.expect("R37", message("response_end").with("response_id", id))
			}
			p.still("R36", len(p.log), message("response_start"))
			s.equal("R36", "the number of responses to three prompts", countOf(p.log, message("response_start")), 3)
		}),
		onSocket.controller("run/responding", "R36 R72", "A snapshot in the middle of a response shows it, one after it does not", func(s *Session, alice *Peer) {
			alice.speaks("R36", speaking())
			vera := s.viewer("vera")
			f := vera.last(control("snapshot"))
			s.failIf(f.at("state.is_responding") != true || f.str("state.current_response.text") == "",
				"R36", "expected is_responding and the text so far, got %s and %s", show(f.at("state.is_responding")), show(f.at("state.current_response")))
			start, whole := alice.last(message("response_start")), f.str("state.current_response.text")
			vera.goesOn("R36", f.Cursor)
			alice.command(interrupt)
			vera.await("R36", 0, message("response_end"))
			alice.expect("R36", message("response_end"))
			got, want := whole+chunksOf(vera.log), chunksOf(alice.log)
			s.failIf(got != want, "R36", "response %s: the snapshot's text and the chunks after it make %q, the chunks alone %q",
				start.str("response_id"), got, want)
			s.shows("R36", s.viewer("victor").last(control("snapshot")), responseOver)
		}),
		Needs{}.controller("run/busy", "R42 A71", "A prompt during a run is refused and disturbs nothing", func(_ *Session, p *Peer) {
			p.prompt(hang())
			p.refused(p.command(&contracts.Prompt{Content: "too early"}), busyRefusal("R42"))
			p.still("R42", p.pos, anyOf(message("response_end"), prompted("too early")))
			p.command(&contracts.Interrupt{})
			p.prompted("R42", "afterwards")
		}),
		onSocket.pilot("run/busy-state", "R42", "A refused prompt leaves the state as it was", busyState("R42")),
		Needs{Triggers: true}.controller("run/missing-attachment", "R43", "An unreadable attachment costs one tool error and the prompt runs", func(_ *Session, p *Peer) {
			const name = "conformance-no-such-file.txt"
			p.accepted("R43", p.command(&contracts.Prompt{Content: "look", Attachments: []string{name}}))
			p.expect("R43", message("error").with("message", "Attachment not readable: "+name).with("error_type", "tool"))
			p.expect("R43", prompted("look"))
		}),
		Needs{}.controller("run/error-keeps-responding", "R49", "A refusal during a response leaves it open", func(_ *Session, p *Peer) {
			p.speaks("R49", speaking())
			p.refused(p.command(&contracts.ToolResponse{CallID: "nobody", Approved: true}),
				refusal{rule: "R61", names: "nobody", kind: contracts.ErrorTool, code: contracts.CodeRequestNotFound})
			p.expect("R49", message("response_chunk"))
			p.command(interrupt)
			p.expect("R49", message("response_end"))
		}),
		asking.controller("interrupt/cancels-requests", "R66", "interrupt cancels every pending request", cancels(interrupt, "Interrupted before request completed")),
		asking.controller("interrupt/cancel-cancels-requests", "R66", "cancel does so with its own reason", cancels(cancel, "Cancelled before request completed")),
		Needs{}.controller("interrupt/ends-run", "R37 3.5", "interrupt ends a response and the run says so", endsRun(interrupt, "Run interrupted by user")),
		Needs{}.controller("interrupt/cancel-ends-run", "R37 3.5", "cancel ends a response and the run says so", endsRun(cancel, "Run cancelled by user")),
		Needs{}.controller("interrupt/ends-silent-run", "R37", "interrupt ends a run that has said nothing yet", func(_ *Session, p *Peer) {
			p.prompt(hang())
			p.still("R37", p.pos, want{"end of the run before the interrupt", message("response_end").ok})
			p.accepted("R37", p.command(&contracts.Interrupt{}))
			p.expect("R37", message("response_end"))
		}),
		Needs{}.controller("interrupt/idle", "R68", "interrupt with nothing active is no error", func(_ *Session, p *Peer) {
			from := len(p.log)
			for _, cmd := range []contracts.Command{&contracts.Interrupt{}, &contracts.Cancel{}} {
				p.accepted("R68", p.command(cmd))
			}
			p.prompted("R68", "still here")
			p.none("R68", from, message("error").where("of an interrupt", func(f *Frame) bool { return f.str("message") != textUnknownType }))
		}),
		Needs{}.controller("interrupt/then-prompt", "3.5", "A prompt right after interrupt is accepted", func(_ *Session, p *Peer) {
			p.prompt(hang())
			p.accepted("3.5:held", p.command(&contracts.Interrupt{}))
			p.accepted("3.5:held", p.command(&contracts.Prompt{Content: "at once"}))
			p.expect("3.5:held", prompted("at once"))
			p.none("3.5:held", 0, message("error").with("message", textBusy))
		}),
		onSocket.controller("interrupt/clean-state", "R69", "After interrupt the state shows nothing going on", func(s *Session, p *Peer) {
			p.ask(contracts.RequestApproval, "cut")
			p.speaks("R36", speaking())
			p.accepted("R69", p.command(&contracts.Interrupt{}))
			p.expect("R37", message("response_end"))
			checkIdle(s, "R69", s.viewer("vera").last(control("snapshot")))
		}),
		onSocket.watched("interrupt/snapshot", "A69", "interrupt publishes the cancellations, then one snapshot without them", func(s *Session, p, vera *Peer) {
			p.ask(contracts.RequestApproval, "cut")
			from := vera.indexAfter(vera.await("A43", 0, requested("cut")))
			p.accepted("A69", p.command(&contracts.Interrupt{}))
			snap := vera.await("A69", from, control("snapshot"))
			checkIdle(s, "A69", snap)
			at := slices.Index(vera.log, snap)
			s.failIf(countOf(vera.log[from:at], resolved("cut")) != 1,
				"A69", "expected the cancellation of cut before the snapshot")
			vera.still("A69", at+1, control("snapshot"))
		}),
		onStdio.controller("shutdown/exit", "R18", "shutdown ends the process with status 0", func(_ *Session, p *Peer) {
			p.command(&contracts.Init{})
			p.command(&contracts.Shutdown{})
			p.exits("R18", 0)
			p.expect("R18:flushed", initNothingReply)
		}),
		onStdio.controller("shutdown/ignores-input", "3.8 R18", "What follows a shutdown in the same write is ignored", func(_ *Session, p *Peer) {
			from := len(p.log)
			p.sendRaw(append(encodeCommand(&contracts.Shutdown{}), "\n{\"type\":\"hello\"}\n{\"type\":\"prompt\",\"content\":\"late\"}\n{\"type\":\"nobody knows it\"}\n"...))
			p.exits("R18", 0)
			p.none("3.8:ignored", from, anyOf(message("hello_ok"), message("error"), message("response_start")))
		}),
		onStdio.controller("shutdown/resolves-requests", "R71 R18", "shutdown cancels what waits", func(_ *Session, p *Peer) {
			p.ask(contracts.RequestApproval, "shut")
			p.command(&contracts.Shutdown{})
			p.exits("R18", 0)
			p.expect("R18:flushed", resolved("shut").
				with("resolution", "cancelled").with("resolved_by", "runtime").with("reason", shutReason))
		}),
		onStdio.controller("shutdown/eof", "R19", "EOF ends the process with status 0, cancelling what waits", func(_ *Session, p *Peer) {
			p.ask(contracts.RequestApproval, "eof")
			p.closeInput("R19")
			p.exits("R19:ended", 0)
			p.expect("R19:ended", resolved("eof").with("reason", shutReason))
		}),
		onStdio.controller("shutdown/eof-in-run", "R19", "EOF during a run ends the process all the same", func(_ *Session, p *Peer) {
			p.prompt(hang())
			p.closeInput("R19:ended")
			p.exits("R19:ended", 0)
		}),
		onSocket.watched("shutdown/socket", "R71 A76 9.5", "shutdown ends every socket normally, and the session with it", func(s *Session, p, vera *Peer) {
			p.ask(contracts.RequestApproval, "shut")
			p.command(&contracts.Shutdown{})
			vera.expect("R71", resolved("shut").with("reason", shutReason))
			s.shows("R71", vera.expect("3.8", control("snapshot")), fields{"state.is_ready": false})
			p.closes("9.5", 1000)
			vera.closes("9.5", 1000)
			s.try("late", entry{role: contracts.RoleViewer}).refusedWith(s, "A76", contracts.CodeStaleSession, contracts.CodeNotFound)
		}),
	}
}

func (p *Peer) speaks(rule, content string) {
	p.prompt(content)
	p.expect(rule, message("response_chunk"))
}

func (p *Peer) prompted(rule, content string) {
	p.prompt(content)
	p.expect(rule, prompted(content))
}

func chunksOf(frames []*Frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Type == "response_chunk" && f.at("is_thinking") == false {
			b.WriteString(f.str("content"))
		}
	}
	return b.String()
}

func busyRefusal(rule string) refusal {
	return refusal{rule: rule, text: textBusy, kind: contracts.ErrorProtocol, code: contracts.CodeRuntimeBusy}
}

// waitingKinds are the types of the requests that wait when a run is interrupted.
var waitingKinds = []contracts.RequestType{contracts.RequestUserInput, contracts.RequestApproval, contracts.RequestToolRetry}

func cancels(cmd contracts.Command, reason string) func(*Session, *Peer) {
	return func(_ *Session, p *Peer) {
		for _, kind := range waitingKinds {
			p.ask(kind, "cut-"+string(kind))
		}
		from := len(p.log)
		p.accepted("R66", p.command(cmd))
		for _, kind := range waitingKinds {
			p.await("R66", from, resolved("cut-"+string(kind)).
				with("resolution", "cancelled").with("resolved_by", "runtime").with("reason", reason))
		}
		p.still("R52", p.pos, message("server_request_resolved").with("resolution", "approved"))
	}
}

func endsRun(cmd contracts.Command, text string) func(*Session, *Peer) {
	return func(_ *Session, p *Peer) {
		p.prompt(speaking())
		id := p.expect("R36", message("response_start")).str("response_id")
		p.expect("R36", message("response_chunk"))
		from := len(p.log)
		p.accepted("R37", p.command(cmd))
		p.await("R37", from, message("response_end").with("response_id", id))
		p.await("3.5:told", from, interrupted(text))
		p.prompted("3.5", "next")
	}
}

// nothingGoingOn lists what interrupt empties.
var nothingGoingOn = []string{"pending_requests", "pending_approvals", "pending_client_tools", "pending_mcp_elicitations",
	"pending_user_inputs", "pending_tool_retries", "active_tools", "tracked_tools", "active_utility_commands", "active_file_watches"}

// responseOver is what a state without a response says of it.
var responseOver = fields{"state.is_responding": false, "state.current_response": nil}

// checkIdle fails unless a snapshot shows nothing going on.
func checkIdle(s *Session, rule string, f *Frame) {
	for _, key := range nothingGoingOn {
		list := listOf(f, "state."+key)
		s.failIf(len(list) != 0, rule, "expected an empty %s, got %s", key, show(list))
	}
	s.shows(rule, f, responseOver)
}

// shutReason is why shutdown and EOF cancel what waits.
const shutReason = "Shutdown before request completed"

func busyState(rule string) func(*Session, *pilot) {
	return func(s *Session, d *pilot) {
		d.triggers(speaking())
		d.p.expect("R36", message("response_chunk"))
		d.refused(&contracts.Prompt{Content: "too early"}, busyRefusal(rule))
		f := d.now()
		s.failIf(f.at("state.is_responding") != true || f.str("state.current_response.text") == "",
			rule, "expected the first response to be still open, got %s", show(f.at("state.current_response")))
		d.p.goesOn(rule, f.Cursor)
		d.tell(rule, &contracts.Interrupt{})
		d.p.expect(rule, message("response_end"))
		d.p.none(rule, 0, prompted("too early"))
		d.end()
	}
}
