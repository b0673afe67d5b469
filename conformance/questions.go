package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// requests judges server requests: R50 to R65.
func requests() []Scenario {
	seed, onSocket := Needs{Seed: true}, Needs{Transport: Socket}
	asking := func(kinds ...contracts.RequestType) Needs { return Needs{Seed: true, Asks: kinds} }
	list := []Scenario{
		seed.controller("request/approval-announced", "R50", "An approval is a gated tool_call, then one server_request", func(s *Session, p *Peer) {
			p.prompt(approval("appr-1"))
			f := p.expect("R50", anyOf(message("tool_call"), message("server_request")))
			s.failIf(f.Type != "tool_call" || f.at("requires_approval") != true || f.str("tool") != "bash",
				"R50", "expected the gated tool_call first, got %s", abridge(f.Raw, maxTraceText))
			p.expect("R50", message("server_request").with("request_type", "approval").with("request_id", "appr-1").
				with("call_id", f.str("call_id")).with("tool", "bash").with("reason", "for conformance").with("args.command", "ls"))
			p.still("R50", p.pos, anyOf(message("server_request"), message("server_request_resolved"), message("tool_start")))
		}),
		asking(contracts.RequestClientTool, contracts.RequestUserInput).controller("request/client-tool-announced", "R59", "A client tool is announced in both forms; ask_user is user input", func(s *Session, p *Peer) {
			for _, kind := range []contracts.RequestType{contracts.RequestClientTool, contracts.RequestUserInput} {
				id := "announced-" + string(kind)
				p.prompt(s.question(kind, id, toolFor(kind)))
				f := p.expect("R59", message("client_tool_request").with("tool", toolFor(kind)))
				p.expect("R59", requested(id).with("request_type", kind).with("call_id", f.str("call_id")))
				p.still("R59", p.pos, message("server_request"))
				p.command(&contracts.ClientToolResult{CallID: f.str("call_id"), Content: []contracts.ContentBlock{}})
				p.expect("R58", resolved(id))
			}
		}),
		seed.controller("request/second-answer", "R53 R61", "The second answer to a request is refused", func(_ *Session, p *Peer) {
			p.ask(contracts.RequestApproval, "twice")
			p.accepted("R53", p.command(approve("twice", true)))
			p.expect("R53", resolved("twice"))
			from := len(p.log)
			p.refused(p.command(approve("twice", false)), unknownRefusal("R53", "twice"))
			p.refused(p.command(&contracts.ToolResponse{CallID: "twice", Approved: false}), unknownRefusal("R53", "twice"))
			p.still("R52", from, message("server_request_resolved"))
		}),
		asking(contracts.RequestUserInput).pilot("request/type-mismatch", "R60", "An answer of another type is refused and the request stays", typeMismatch("R60")),
		seed.pilot("request/unknown-id", "R61", "An answer to an unknown request is refused, naming the id", answersNothing("R61")),
		Needs{}.scenario("request/unadvertised", "R63", "Types that the controller cannot answer are not asked", func(s *Session) {
			p := s.join("alice", &contracts.Hello{Role: contracts.RoleController})
			for _, kind := range []contracts.RequestType{contracts.RequestToolRetry, contracts.RequestMCPElicitation} {
				from := len(p.log)
				p.prompt(s.question(kind, "unasked-"+string(kind), toolFor(kind)))
				p.still("R63", from, message("server_request"))
			}
		}),
		seed.controller("request/auto-mode", "R51", "In mode auto nothing is asked or announced", withoutAsking(contracts.ApprovalAuto)),
		seed.controller("request/fail-mode", "R51", "In mode fail nothing is asked or announced", withoutAsking(contracts.ApprovalFail)),
		seed.controller("request/mode-to-auto", "R65", "Switching to auto approves what waits", modeChange(contracts.ApprovalAuto, "approved")),
		seed.controller("request/mode-to-fail", "R65", "Switching to fail denies what waits", modeChange(contracts.ApprovalFail, "denied")),
		onSocket.scenario("request/in-snapshot", "R73 R74 A67", "All five kinds wait in the snapshot, in the stated order", func(s *Session) {
			kinds := s.negotiateRequests(contracts.RequestTypes()...)
			p := s.controller()
			for _, kind := range slices.Backward(kinds) {
				p.ask(kind, "all-"+string(kind))
			}
			f := s.viewer("vera").last(control("snapshot")) // checkState compares the lists
			waiting := listOf(f, "state.pending_requests")
			s.failIf(len(waiting) != len(kinds),
				"R73", "expected %d pending requests, got %s", len(kinds), show(waiting))
			for i, kind := range kinds {
				r := waiting[i]
				s.lists("R73", r, fields{"id": "all-" + string(kind), "kind": kind, "tool": toolFor(kind),
					"tool_name": toolFor(kind), "status": "pending", "visibility": "user", "source": "local", "tool_call_id": r["call_id"]})
				s.failIf(show(r["args"]) != `{"path":"a.txt"}`, "R73", "pending_requests[%d]: expected the arguments as given, got %s", i, show(r["args"]))
			}
		}),
		Needs{Transport: Socket, Seed: true}.controller("request/other-session", "R64", "Requests of another session are not shown", func(s *Session, alice *Peer) {
			other := s.attach("oscar", entry{session: s.ID + "-other", create: true, role: contracts.RoleController})
			from := len(other.log)
			alice.ask(contracts.RequestApproval, "secret")
			other.still("R64", from, anyOf(aboutApprovals, noEffect))
			other.refused(other.command(approve("secret", true)), unknownRefusal("R64", "secret"))
			alice.still("R64", 0, message("server_request_resolved"))
		}),
		onSocket.watched("request/viewer-cannot-answer", "A37", "A viewer cannot answer", func(_ *Session, alice, vera *Peer) {
			alice.ask(contracts.RequestApproval, "mine")
			vera.expect("A43", requested("mine"))
			vera.refused(vera.command(approve("mine", true)), viewerRefusal("A37"))
			alice.still("A37", 0, message("server_request_resolved"))
			alice.accepted("R53", alice.command(approve("mine", false)))
			vera.expect("R52", resolved("mine").with("resolution", "denied"))
		}),
		onSocket.watched("request/outlives-controller", "D8 3.6", "A request waits for the next controller", func(s *Session, alice, vera *Peer) {
			alice.ask(contracts.RequestApproval, "inherited")
			alice.send([]byte(`{"type":"ws.bye","keep":false}`))
			alice.closes("9.5", 1000)
			bob := s.attach("bob", entry{role: contracts.RoleController})
			f := bob.last(control("snapshot"))
			s.failIf(len(waitingIn(f)) != 1 || !pending(f, "inherited"),
				"D8", "expected the request to wait for the next controller, got %s", abridge(f.Raw, maxTraceText))
			bob.accepted("D8", bob.command(approve("inherited", true)))
			vera.expect("D8", resolved("inherited").with("resolution", "approved"))
		}),
		seed.controller("request/first-answer-wins", "R52 R53 D8", "Of answers racing from one client one resolves the request", func(s *Session, p *Peer) {
			p.ask(contracts.RequestApproval, "raced")
			from := len(p.log)
			for i := range 10 {
				p.command(approve("raced", i%2 == 0))
			}
			p.expect("R52", resolved("raced").with("resolution", "approved"))
			p.fence()
			refusals := anyOf(control("ws.error"), message("error")).where("naming raced", func(f *Frame) bool {
				return strings.Contains(string(f.Raw), "raced")
			})
			s.equal("R53", "the number of ten answers that are refused by naming the request", countOf(p.log[from:], refusals), 9)
			p.still("R52", p.pos, message("server_request_resolved"))
		}),
	}
	for _, a := range answerCases() {
		list = append(list, Scenario{Name: "request/" + a.name, Title: a.title, Rules: a.rules, Needs: asking(a.kind), Run: a.run})
	}
	return list
}

// An answerCase is one kind of answer to one kind of request, and how the
// request must end.
type answerCase struct {
	name, title string
	rules       []string
	kind        contracts.RequestType
	answer      func(id string) contracts.Command
	verdict     string
	by          string
	reason      any // nil: the resolution carries none
}

func answerCases() []answerCase {
	yes, no := true, false
	text := []contracts.ContentBlock{{Type: "text", Text: "42"}}
	respond := func(r contracts.ServerRequestResponse) func(string) contracts.Command {
		return func(id string) contracts.Command { r := r; r.RequestID = id; return &r }
	}
	legacyTool := func(ok bool, result *contracts.ToolResult) func(string) contracts.Command {
		return func(id string) contracts.Command {
			return &contracts.ToolResponse{CallID: id, Approved: ok, Result: result}
		}
	}
	legacyContent := func(isError bool) func(string) contracts.Command {
		return func(id string) contracts.Command {
			return &contracts.ClientToolResult{CallID: id, Content: text, IsError: isError}
		}
	}
	denial := &contracts.ToolResult{Error: "Not on a Friday"}
	ok := &contracts.ToolResult{Success: true, Output: "Go ahead"}
	const appr, tool, elic, user, retry = contracts.RequestApproval, contracts.RequestClientTool,
		contracts.RequestMCPElicitation, contracts.RequestUserInput, contracts.RequestToolRetry
	return []answerCase{
		{"approved", "An approval is granted", []string{"R52", "R53", "R55"}, appr, respond(contracts.ServerRequestResponse{RequestType: appr, Approved: &yes}), "approved", "user", "Approved"},
		{"approved-with-reason", "An approval carries the client's text", []string{"R55"}, appr, respond(contracts.ServerRequestResponse{RequestType: appr, Approved: &yes, Result: ok}), "approved", "user", "Go ahead"},
		{"approved-legacy", "An approval is granted by tool_response", []string{"R53", "R55"}, appr, legacyTool(true, nil), "approved", "user", "Approved"},
		{"denied", "A denial carries the client's text", []string{"R55", "A68"}, appr, respond(contracts.ServerRequestResponse{RequestType: appr, Approved: &no, Result: denial}), "denied", "user", "Not on a Friday"},
		{"denied-without-reason", "A denial without a text has the default one", []string{"R55"}, appr, respond(contracts.ServerRequestResponse{RequestType: appr, Approved: &no}), "denied", "user", "Denied by user"},
		{"denied-legacy", "An approval is denied by tool_response", []string{"R53", "R55"}, appr, legacyTool(false, denial), "denied", "user", "Not on a Friday"},
		{"absent-denies", "An answer without approved denies", []string{"R54"}, appr, respond(contracts.ServerRequestResponse{RequestType: appr}), "denied", "user", "Denied by user"},
		{"client-tool", "A client tool is completed by the client", []string{"R58"}, tool, respond(contracts.ServerRequestResponse{RequestType: tool, Content: text}), "completed", "client", nil},
		{"client-tool-legacy", "A client tool is completed by client_tool_result", []string{"R58"}, tool, legacyContent(false), "completed", "client", nil},
		{"client-tool-error", "A client tool that reports an error has failed", []string{"R58"}, tool, respond(contracts.ServerRequestResponse{RequestType: tool, Content: text, IsError: true}), "failed", "client", "Client tool result reported an error"},
		{"user-input", "User input is answered by the client", []string{"R58"}, user, respond(contracts.ServerRequestResponse{RequestType: user, Content: text}), "answered", "client", nil},
		{"user-input-legacy", "User input is answered by client_tool_result", []string{"R58"}, user, legacyContent(false), "answered", "client", nil},
		{"user-input-error", "User input that reports an error has failed", []string{"R58"}, user, respond(contracts.ServerRequestResponse{RequestType: user, IsError: true}), "failed", "client", "User input request reported an error"},
		{"elicitation", "An elicitation is answered by the client", []string{"R58", "R80"}, elic, respond(contracts.ServerRequestResponse{RequestType: elic, Content: text}), "answered", "client", nil},
		{"elicitation-legacy", "An elicitation is answered by client_tool_result", []string{"R58", "R80"}, elic, legacyContent(false), "answered", "client", nil},
		{"elicitation-error", "An elicitation that reports an error has failed", []string{"R58"}, elic, legacyContent(true), "failed", "client", "MCP elicitation request reported an error"},
		{"retry", "A failed tool is retried", []string{"R57"}, retry, respond(contracts.ServerRequestResponse{RequestType: retry, DecisionAction: contracts.RetryActionRetry, Reason: "Network is back"}), "retried", "user", "Network is back"},
		{"retry-skip", "A failed tool is skipped", []string{"R57"}, retry, respond(contracts.ServerRequestResponse{RequestType: retry, DecisionAction: contracts.RetryActionSkip, Reason: "Not needed"}), "skipped", "user", "Not needed"},
		{"retry-abort", "A failed tool aborts the run", []string{"R57"}, retry, respond(contracts.ServerRequestResponse{RequestType: retry, DecisionAction: contracts.RetryActionAbort}), "aborted", "user", nil},
		{"retry-without-action", "An answer without an action aborts", []string{"R56"}, retry, respond(contracts.ServerRequestResponse{RequestType: retry}), "aborted", "user", nil},
	}
}

func toolFor(kind contracts.RequestType) string {
	return map[contracts.RequestType]string{
		contracts.RequestApproval: "bash", contracts.RequestClientTool: "open_editor", contracts.RequestUserInput: "ask_user",
		contracts.RequestMCPElicitation: "mcp_elicitation", contracts.RequestToolRetry: "bash",
	}[kind]
}

func (p *Peer) ask(kind contracts.RequestType, id string) *Frame {
	p.prompt(p.s.question(kind, id, toolFor(kind)))
	return p.expect("R50", requested(id).with("request_type", kind))
}

func (a answerCase) run(s *Session) {
	p := s.controller()
	id := "req-" + a.name
	request := p.ask(a.kind, id)
	p.accepted(a.rules[0], p.command(a.answer(id)))
	f := p.expect(a.rules[0], resolved(id))
	s.shows(a.rules[0], f, fields{"request_type": a.kind, "call_id": request.at("call_id"),
		"resolution": a.verdict, "resolved_by": a.by, "reason": a.reason})
	p.still("R52", p.pos, resolved(id))
	if s.socket() {
		left := waitingIn(s.viewer("vera").last(control("snapshot")))
		s.failIf(len(left) != 0, "R73", "expected nothing to wait after the answer, got %+v", left)
	}
}

func unknownRefusal(rule, id string) refusal {
	return refusal{rule: rule, names: id, kind: contracts.ErrorTool, code: contracts.CodeRequestNotFound}
}

func approve(id string, yes bool) contracts.Command {
	return &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestApproval, Approved: &yes}
}

// aboutApprovals wants anything that shows an approval to clients.
var aboutApprovals = anyOf(message("server_request"), message("server_request_resolved"),
	message("tool_call").with("requires_approval", true))

func withoutAsking(mode contracts.ApprovalMode) func(*Session, *Peer) {
	return func(s *Session, p *Peer) {
		p.accepted("R51", p.command(&contracts.Init{ApprovalMode: contracts.ApprovalPrompt}))
		p.prompt(s.question(contracts.RequestApproval, "asked", "bash"))
		if p.seek(p.pos, requested("asked"), s.config.Patience) == nil {
			s.skip("the server asks for no approval in mode prompt")
		}
		p.accepted("R51", p.command(approve("asked", true)))
		p.expect("R51", resolved("asked"))
		p.accepted("R51", p.command(&contracts.Init{ApprovalMode: mode}))
		from := len(p.log)
		p.prompt(s.question(contracts.RequestApproval, "unasked", "bash"))
		p.prompt("sentinel")
		p.expect("R51", prompted("sentinel"))
		p.still("R51", from, aboutApprovals)
	}
}

func modeChange(mode contracts.ApprovalMode, verdict string) func(*Session, *Peer) {
	return func(_ *Session, p *Peer) {
		p.ask(contracts.RequestApproval, "waiting")
		p.accepted("R65", p.command(&contracts.Init{ApprovalMode: mode}))
		p.expect("R65", resolved("waiting").with("resolution", verdict).with("resolved_by", "policy"))
	}
}

func typeMismatch(rule string) func(*Session, *pilot) {
	return func(_ *Session, d *pilot) {
		d.poses(contracts.RequestUserInput, "mixed")
		from := len(d.p.log)
		d.quietly(rule, func() {
			d.refused(approve("mixed", true), refusal{rule: rule, text: "Pending request mixed is user_input, not approval",
				kind: contracts.ErrorTool, code: contracts.CodeRequestTypeMismatch})
		})
		d.p.still(rule, from, message("server_request_resolved"))
		d.tell(rule, &contracts.ClientToolResult{CallID: "mixed", Content: []contracts.ContentBlock{}})
		d.p.expect(rule, resolved("mixed").with("resolution", "answered"))
	}
}

func answersNothing(rule string) func(*Session, *pilot) {
	return func(_ *Session, d *pilot) {
		from := len(d.p.log)
		for _, cmd := range []contracts.Command{approve("ghost", true), &contracts.ToolResponse{CallID: "ghost", Approved: true},
			&contracts.ClientToolResult{CallID: "ghost", Content: []contracts.ContentBlock{}},
			&contracts.ServerRequestResponse{RequestID: "ghost", RequestType: contracts.RequestToolRetry}} {
			d.refused(cmd, unknownRefusal(rule, "ghost"))
		}
		d.p.still(rule, from, message("server_request_resolved"))
	}
}
