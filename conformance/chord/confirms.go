package chord

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// confirms are about confirmations and rules.
func confirms() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("confirm/status", "C21", "The status has the pending confirmation", func(p *play, c *client) {
			_, request := c.asksToRun("show pending")
			p.FailIf(request.Str("payload.request_id") == "", "expected a request_id, got %s", request)
			c.awaitsConfirm(request, "before the answer")
			c.answer(request, "allow", nil)
			c.checkOutcome(c.finish(), "completed")
			_, status := c.status()
			p.FailIf(status.Has("payload.pending_confirm"), "expected pending_confirm null after the answer, got %s", status)
		}),
		scenario("confirm/allow-deny", "C22", "What is allowed runs, what is denied does not", func(p *play, c *client) {
			for _, action := range []string{"allow", "deny"} {
				prompt := "please " + action
				file, request := c.asksToRun(prompt)
				p.FailIf(ran(file), "expected the tool to wait for the confirmation, but it ran")
				c.answer(request, action, object{"deny_reason": "because of the moon"})
				c.untilIdle()
				p.FailIf(ran(file) != (action == "allow"), "expected a tool that ran: %t after %s, got the opposite", action == "allow", action)
			}
			p.FailIf(!p.Model.Saw("please deny", "because of the moon", "tool", "user"), "expected the deny_reason in the next request to the model, got none")
		}),
		scenario("confirm/other-id", "C23", "A confirm of another request changes nothing", func(p *play, c *client) {
			file, request := c.asksToRun("confirm me")
			c.Send(object{"type": "confirm", "request_id": "does-not-exist", "action": "allow"})
			p.None(lines.Only(c.During(lines.Quiet), isType("idle", "assistant_message", "confirm_request")), "nothing for another request_id")
			p.FailIf(ran(file), "expected the tool not to run after a confirm with another request_id, but it did")
			c.awaitsConfirm(request, "after a confirm with another request_id")
			c.allows(request, file)
		}),
		scenario("confirm/bad-scope", "C24", "A bad rule is refused, and the request stays", func(p *play, c *client) {
			file, request := c.asksToRun("rule me")
			for _, rule := range []object{{"rule_pattern": "x", "rule_scope": "galaxy"}, {"rule_scope": "session"}} {
				c.answer(request, "allow", rule)
				before, _ := c.status()
				p.FailIf(len(lines.Only(before, isRefusal)) != 1, "expected one error for the rule %v, got %s", rule, lines.First(before))
				p.FailIf(ran(file), "expected the tool not to run after the rule %v, but it did", rule)
				c.awaitsConfirm(request, "after a bad rule")
			}
			c.allows(request, file)
		}),
		scenario("rule/session", "C25", "A rule of a session holds in that session", func(p *play, c *client) {
			p.gitCalls("git first", "git second", "git elsewhere")
			c.allowGit("git first", "session")
			request, asks := c.runGit("git second")
			p.FailIf(asks, "expected the second call of git to run without a request, got %s", request)
			p.Dir = p.S.Scratch()
			request, asks = p.begin().runGit("git elsewhere")
			p.FailIf(!asks, "expected another session to ask, got %s", request)
		}),
		scenario("rule/forgotten", "C26", "A rule of a session is not kept", ruleKept("session", false, false)),
		scenario("rule/project", "C26", "A rule of a project holds in its later sessions", ruleKept("project", false, true)),
		scenario("rule/global", "C26", "A rule of a user holds in other projects", ruleKept("user_global", true, true)),
		scenario("confirm/final-args", "C27", "The final arguments are those that run", func(p *play, c *client) {
			file, request := c.asksToRun("edit me")
			var args object
			p.FailIf(json.Unmarshal([]byte(request.Str("payload.args_json")), &args) != nil, "expected JSON text in args_json, got %s", request)
			other := file + "-edited"
			args["command"] = writes(other)
			text, _ := json.Marshal(args) // it was JSON
			c.answer(request, "allow", object{"final_args_json": string(text), "edit_summary": "another file"})
			all := c.untilIdle()
			if refusals := lines.Only(all, isRefusal); len(refusals) > 0 && !ran(file) && !ran(other) {
				p.S.Skip("not applicable: the server refuses edited arguments, and runs nothing: %s", refusals[0])
			}
			p.FailIf(ran(file), "expected the tool not to run with the arguments of the model, but it did")
			p.FailIf(!ran(other), "expected the tool to run with the final_args_json, but it did not")
		}),
		scenario("confirm/bad-final-args", "C27", "Final arguments that are no JSON do not run", func(p *play, c *client) {
			file, request := c.asksToRun("edit me badly")
			c.answer(request, "allow", object{"final_args_json": "{not json"})
			c.Try(c.p.S.Config().Patience, func(l lines.Line) bool { return isType("idle")(l) || isRefusal(l) })
			p.FailIf(ran(file), "expected the tool not to run with final_args_json that is no JSON, but it did")
		}),
	}
}

// ran reports whether a command wrote its file.
func ran(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// gitCalls makes the model run git on each of the prompts.
func (p *play) gitCalls(prompts ...string) {
	for _, prompt := range prompts {
		p.Model.On(prompt, lines.Reply{Calls: []lines.Call{lines.Shell("git --version")}})
	}
}

// allowGit allows a call of git together with a rule about git.
func (c *client) allowGit(prompt, scope string) {
	_, request := c.asked(prompt)
	c.answer(request, "allow", object{"rule_pattern": "git *", "rule_scope": scope})
	_, l := c.UntilWithin(c.p.Long(), "idle", func(l lines.Line) bool { return isType("idle")(l) || isRefusal(l) })
	if isRefusal(l) {
		c.p.S.Skip("not applicable: the server refuses rules of the scope %s: %s", scope, l)
	}
}

// runGit sends a message on which the model runs git, and reports whether the server asks.
func (c *client) runGit(prompt string) (lines.Line, bool) {
	c.say(prompt)
	_, l := c.UntilWithin(c.p.Long(), "idle or confirm_request", isType("idle", "confirm_request"))
	return l, isType("confirm_request")(l)
}

// ruleKept returns the story of a rule of a scope, and of the next session, in another
// directory or the same.
func ruleKept(scope string, elsewhere, kept bool) func(*play, *client) {
	return func(p *play, c *client) {
		p.gitCalls("git first", "git later")
		c.allowGit("git first", scope)
		c.EndInput()
		c.Exit(p.Long())
		if elsewhere {
			p.Dir = p.S.Scratch()
		}
		last, asks := p.begin().runGit("git later")
		p.FailIf(asks == kept, "expected a later session to ask: %t after a rule of the scope %s, got %s", !kept, scope, last)
	}
}

// pendingRequests are about questions, and about messages while something is pending.
func pendingRequests() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("question/multiple", "C28", "All answers reach the model in order", func(p *play, c *client) {
			request := c.questions("ask many", true)
			if lines.At(request.Body, "payload.multiple") != true {
				p.S.Skip("not applicable: the server's questions have one answer: %s", request)
			}
			c.Send(object{"type": "question", "request_id": request.Str("payload.request_id"), "answers": []string{"Gamma", "Alpha"}, "cancelled": false})
			c.checkOutcome(c.finish(), "completed")
			for _, r := range p.Model.Requests("ask many") {
				for _, m := range r.Messages {
					text := string(m.Content)
					gamma, alpha := strings.Index(text, "Gamma"), strings.LastIndex(text, "Alpha")
					if (m.Role == "tool" || m.Role == "user") && gamma >= 0 && gamma < alpha {
						return
					}
				}
			}
			p.Fail("expected Gamma and then Alpha in a result of the next request to the model, got none")
		}),
		scenario("question/cancelled", "C29", "A cancelled question does not end the turn", func(p *play, c *client) {
			request := c.questions("ask in vain", false)
			c.Send(object{"type": "question", "request_id": request.Str("payload.request_id"), "answers": []string{}, "cancelled": true})
			all := c.finish()
			c.checkOutcome(all, "completed")
			requests := p.Model.Requests("ask in vain")
			p.FailIf(requests[len(requests)-1].Step == 0, "expected another request to the model after its call, got none")
			p.says(all, "Done.")
		}),
		scenario("pending/confirm", "C30", "A message denies the pending confirmation", func(p *play, c *client) {
			file, _ := c.asksToRun("ask me")
			c.supersede()
			p.FailIf(ran(file), "expected the tool not to run, but it did")
		}),
		scenario("pending/question", "C31", "A message cancels the pending question", func(p *play, c *client) {
			c.questions("which one", false)
			c.supersede()
		}),
		scenario("pending/both", "C32", "A message dismisses both", func(p *play, c *client) {
			file := p.Dir + "/both"
			p.Model.On("two at once", lines.Reply{Calls: []lines.Call{question("Which one do you want?", false, "Alpha", "Beta"), lines.Shell(writes(file))}})
			c.say("two at once")
			seen := map[string]bool{}
			c.UntilWithin(p.Long(), "a request", isRequest(seen))
			p.Offered("two at once", "question")
			p.Offered("two at once", "shell")
			c.Try(p.S.Config().Patience, isRequest(seen))
			if len(seen) < 2 {
				p.S.Skip("not applicable: the server does not show a confirmation and a question at a time")
			}
			c.supersede()
			p.FailIf(ran(file), "expected the tool not to run, but it did")
		}),
		scenario("pending/refused-message", "C32", "A message that is refused dismisses nothing", func(p *play, c *client) {
			file, request := c.asksToRun("keep asking")
			for _, message := range []string{"/export x", "/resume"} {
				c.say(message)
				c.Until("an error for "+message, isRefusal)
			}
			c.awaitsConfirm(request, "after messages that are refused")
			c.allows(request, file)
		}),
	}
}

// question returns a call that asks a question, with arguments that fit the tool.
func question(text string, multiple bool, options ...string) lines.Call {
	return lines.Call{Kind: "question", Args: func(t lines.Tool) object {
		schema := t.Parameters
		list := lines.At(schema, "properties.questions.items") != nil
		if list {
			schema = lines.At(schema, "properties.questions.items").(object)
		}
		one := object{"question": text}
		for _, name := range []string{"multiple", "multiSelect", "multi_select", "multiselect"} {
			if lines.At(schema, "properties."+name) != nil {
				one[name] = multiple
			}
		}
		var choices []any
		for _, option := range options {
			choice := object{"label": option, "description": "It is " + option}
			if lines.At(schema, "properties.options.items.properties.id") != nil {
				choice["id"] = option // each another one
			}
			if lines.At(schema, "properties.options.items.type") == "string" {
				choices = append(choices, option)
			} else {
				choices = append(choices, lines.Fill(schema, "options", choice))
			}
		}
		one["options"] = choices
		if !list {
			return one
		}
		return object{"questions": []any{lines.Fill(t.Parameters, "questions", one)}}
	}}
}

// questions sends a message on which the model asks a question, and waits for it.
func (c *client) questions(prompt string, multiple bool) lines.Line {
	c.p.Model.On(prompt, lines.Reply{Calls: []lines.Call{question("Which ones do you want?", multiple, "Alpha", "Beta", "Gamma")}})
	_, request := c.awaits(prompt, "question", "question_request")
	return request
}

// supersede sends another message while something is pending, and expects it to be
// answered, with one idle.
func (c *client) supersede() {
	p := c.p
	p.Model.On("something else", lines.Reply{Text: "Something new."})
	c.say("something else")
	all := append(c.untilIdle(), c.During(lines.Quiet)...)
	p.FailIf(len(p.Model.Requests("something else")) == 0, "expected the new message to reach the model, but it did not")
	p.says(all, "Something new.")
	idles := lines.Only(all, isType("idle"))
	p.FailIf(len(idles) != 1, "expected one idle, got %d", len(idles))
	_, status := c.status()
	p.FailIf(status.Has("payload.pending_confirm") || status.Has("payload.pending_question"), "expected nothing pending, got %s", status)
}

// isRequest returns a test for a request or idle that notes the kinds of requests.
func isRequest(seen map[string]bool) func(lines.Line) bool {
	return func(l lines.Line) bool {
		if isType("confirm_request", "question_request")(l) {
			seen[l.Str("type")] = true
			return true
		}
		return isType("idle")(l)
	}
}
