package chord

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// commands are about the first line, subscriptions, bad commands and status.
func commands() []conformance.Scenario {
	return []conformance.Scenario{
		unstarted("start/ready", "C1", "The first line is ready", func(p *play) {
			c := p.start()
			c.Send(object{"type": "status"})
			id := c.ready().Str("payload.session_id")
			l := c.Next("status_response for a status before ready")
			p.FailIf(!isType("status_response")(l) || l.Str("payload.session_id") != id,
				"expected status_response with the session_id %s, got %s", id, l)
		}),
		scenario("line/envelopes", "C2", "Each line is an envelope", func(p *play, c *client) {
			p.Model.On("odd text", lines.Reply{Text: "one\ntwo\r\n\u2028three \"four\" end"})
			c.Text("not json\n[1]\n")
			c.turn("odd text\r\n{}\n", "completed")
			c.status()
			c.subscribe([]string{"idle"})
			_, _ = c.command(object{"type": "models", "action": "status"}, "models_response")
		}),
		scenario("subscribe/default", "C3", "Without a subscription everything is delivered", func(p *play, c *client) {
			all := c.turn("hello there", "completed")
			for _, kind := range []string{"activity", "assistant_message", "idle"} {
				p.FailIf(!slices.ContainsFunc(all, isType(kind)), "expected %s in a turn, got none", kind)
			}
		}),
		scenario("subscribe/one", "C4", "A subscription to one type delivers only that", func(p *play, c *client) {
			c.subscribe([]string{"idle"})
			all := append(c.turn("hello there", "completed"), c.During(lines.Quiet)...)
			optional := lines.Only(all, isOptional)
			p.FailIf(len(optional) != 1, "expected idle alone, got %d optional lines, first %s", len(optional), lines.First(optional))
		}),
		scenario("subscribe/replace", "C5", "A later subscription replaces the earlier one", func(p *play, c *client) {
			c.subscribe([]string{"idle", "assistant_message"})
			c.subscribe([]string{"idle", "activity"})
			all := c.turn("hello there", "completed")
			p.FailIf(!slices.ContainsFunc(all, isType("activity")), "expected activity after the second subscription, got none")
			p.None(lines.Only(all, isType("assistant_message")), "no assistant_message after the second subscription")
		}),
		scenario("subscribe/unknown", "C6", "Unknown types are no error", func(p *play, c *client) {
			for _, names := range [][]string{{"idle", "bogus"}, {"bogus", "notification"}} {
				answer := c.subscribe(names)
				got, _ := json.Marshal(lines.At(answer.Body, "payload.events")) // it was JSON
				want, _ := json.Marshal(names)
				p.FailIf(string(got) != string(want), "expected the events %s in the answer, got %s", want, answer)
			}
			c.say("hello there")
			p.None(c.awaitTurnEnd(), "nothing after a subscription to unknown types only")
		}),
		unstarted("subscribe/nothing", "C7", "A subscription to nothing delivers nothing", func(p *play) {
			for _, cmd := range []object{{"type": "subscribe", "events": []string{}}, {"type": "subscribe"}} {
				c := p.begin()
				c.command(cmd, "subscribe_response")
				c.say("hello again")
				p.None(c.awaitTurnEnd(), "nothing optional after %v", cmd)
				c.refused(`{"type":"bogus"}`, "unknown command type: bogus")
				c.Close()
			}
		}),
		scenario("subscribe/bad", "C8", "A bad subscription changes nothing", func(p *play, c *client) {
			c.subscribe([]string{"idle"})
			c.refused(`{"type":"subscribe","events":"activity"}`, invalid)
			optional := lines.Only(c.turn("hello there", "completed"), isOptional)
			p.FailIf(len(optional) != 1, "expected idle alone, as subscribed before, got %d optional lines, first %s", len(optional), lines.First(optional))
		}),
		scenario("line/not-an-object", "C9", "What is no object is refused", func(p *play, c *client) {
			for _, text := range []string{`{not json`, `[1,2]`, `7`, `"status"`, `{"type":"status"`} {
				c.refused(text, invalid)
			}
			more, _ := c.status()
			p.None(more, "one error for each bad line")
		}),
		scenario("line/empty", "C10", "Empty lines are ignored", func(p *play, c *client) {
			c.Text("\n\r\n\n")
			more, _ := c.status()
			p.None(more, "nothing for empty lines")
		}),
		scenario("line/unknown-type", "C11", "An unknown command is refused", func(p *play, c *client) {
			c.refused(`{"type":"bogus"}`, "unknown command type: bogus")
			c.refused(`{"content":"no type"}`, "unknown command type: ")
			c.status()
		}),
		scenario("line/unknown-members", "C12", "Unknown members change nothing", func(p *play, c *client) {
			extra := func(cmd object) object {
				cmd["x_unknown"] = object{"type": []int{1}}
				return cmd
			}
			more, _ := c.command(extra(object{"type": "status"}), "status_response")
			c.command(extra(object{"type": "subscribe", "events": []string{"idle"}}), "subscribe_response")
			c.Send(extra(object{"type": "send", "content": "hello there"}))
			all := append(more, c.untilIdle()...)
			c.checkOutcome(all, "completed")
			p.None(lines.Only(all, isRefusal), "no error for unknown members")
		}),
		scenario("line/too-long", "C13", "A line that is too long is refused", func(p *play, c *client) {
			c.Send(object{"type": "status", "pad": strings.Repeat("x", 1<<20)})
			more, _ := c.status()
			p.FailIf(len(more) != 1 || !isRefusal(more[0]) || more[0].Str("payload.code") != "stdin_line_too_long",
				"expected one error with the code stdin_line_too_long, got %d lines, first %s", len(more), lines.First(more))
			p.None(c.During(lines.Quiet), "one status_response")
		}),
		scenario("status/first", "C14", "The first status is that of an idle session", func(p *play, c *client) {
			_, status := c.status()
			p.FailIf(isBusy(status) != false, "expected busy false, got %s", status)
			for _, name := range []string{"phase", "phase_detail", "last_outcome", "last_error"} {
				p.FailIf(status.Str("payload."+name) != "", "expected an empty %s, got %s", name, status)
			}
			for _, name := range []string{"pending_confirm", "pending_question"} {
				p.FailIf(status.Has("payload."+name), "expected %s null, got %s", name, status)
			}
		}),
		scenario("status/streaming", "C15", "The status says that the server is busy", func(p *play, c *client) {
			goOn := c.streams()
			_, status := c.status()
			p.FailIf(isBusy(status) != true || status.Str("payload.phase") == "", "expected busy true and a phase, got %s", status)
			goOn()
			c.untilIdle()
		}),
		scenario("status/always", "C16", "The status is answered while a confirmation is pending", func(p *play, c *client) {
			_, request := c.asksToRun("status while pending")
			for _, events := range [][]string{{"idle"}, {}} {
				c.subscribe(events)
				c.awaitsConfirm(request, "whatever the client subscribed to")
			}
		}),
		scenario("models/commands", "C39", "The models command says whether it worked", func(p *play, c *client) {
			for _, row := range []struct {
				cmd object
				ok  bool
			}{
				{object{"type": "models"}, true},
				{object{"type": "models", "action": "status"}, true},
				{object{"type": "models", "action": "set_current_model_pool"}, false},
				{object{"type": "models", "action": "bogus"}, false},
			} {
				_, answer := c.command(row.cmd, "models_response")
				p.FailIf(lines.At(answer.Body, "payload.ok") != row.ok, "expected ok %t for %v, got %s", row.ok, row.cmd, answer)
				p.FailIf(row.ok && answer.Str("payload.status") == "", "expected a status text for %v, got %s", row.cmd, answer)
				p.FailIf(!row.ok && answer.Str("payload.message") == "", "expected a message for %v, got %s", row.cmd, answer)
			}
		}),
		scenario("models/message", "C40", "The message /models shows the models", func(p *play, c *client) {
			var texts []string
			for _, message := range []string{"/models", "/models status"} {
				c.say(message)
				_, info := c.Until("info", isType("info"))
				texts = append(texts, info.Str("payload.message"))
			}
			p.FailIf(texts[0] == "" || texts[0] != texts[1], "expected the same text twice, got %q", texts)
			p.modelNotCalled()
		}),
		scenario("send/local-only", "C41", "Messages for a local screen are refused", func(p *play, c *client) {
			for _, message := range []string{"/export x", "/resume", "/mcp"} {
				c.say(message)
				_, l := c.Until("an error for "+message, isType("error", "idle", "assistant_message"))
				p.FailIf(!strings.HasSuffix(l.Str("payload.message"), "is only available in local TUI mode"),
					"expected an error that ends with \"is only available in local TUI mode\", got %s", l)
			}
			_, status := c.status()
			p.FailIf(isBusy(status) != false, "expected busy false, got %s", status)
			p.modelNotCalled()
		}),
	}
}

// invalid is the message for what is no command.
const invalid = "invalid JSON command"

// awaitModelCall waits until the model was asked about a prompt.
func (p *play) awaitModelCall(prompt string) {
	for until := time.Now().Add(p.Long()); len(p.Model.Requests(prompt)) == 0; time.Sleep(10 * time.Millisecond) {
		p.FailIf(time.Now().After(until) || p.S.Context().Err() != nil, "expected the message %q to reach the model within %s", prompt, p.Long())
	}
}

// modelNotCalled expects that the model was not asked.
func (p *play) modelNotCalled() {
	n := len(p.Model.Requests(""))
	p.FailIf(n > 0, "expected no call of the model, got %d", n)
}

// turns are about what a turn shows.
func turns() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("turn/text", "C17", "A turn has activities, a message and an end", func(p *play, c *client) {
			p.Model.On("talk to me", lines.Reply{Pieces: []string{"One ", "two ", "three."}, Pause: 20 * time.Millisecond})
			all := c.turn("talk to me", "completed")
			var order []string
			for _, l := range append(all, c.During(lines.Quiet)...) {
				if kind := l.Str("type"); slices.Contains([]string{"activity", "assistant_message", "idle"}, kind) &&
					(kind != "activity" || !slices.Contains(order, kind) || order[len(order)-1] != kind) {
					order = append(order, kind)
				}
			}
			p.FailIf(strings.Join(order, " ") != "activity assistant_message idle", "expected activities, one assistant_message and one idle, got: %s", strings.Join(order, " "))
			message := lines.Only(all, isType("assistant_message"))[0]
			n, ok := message.Num("payload.tool_calls")
			p.FailIf(message.Str("payload.text") != "One two three." || !ok || n != 0, "expected the text \"One two three.\" and tool_calls 0, got %s", message)
		}),
		scenario("turn/rounds", "C18", "Each answer of the model is a message", func(p *play, c *client) {
			p.Model.On("two rounds", lines.Reply{Calls: []lines.Call{lines.Shell("echo one")}},
				lines.Reply{Text: "Again.", Calls: []lines.Call{lines.Shell("echo two")}})
			c.say("two rounds")
			messages := lines.Only(c.finish(), isType("assistant_message"))
			p.Offered("two rounds", "shell")
			p.FailIf(len(messages) != 3, "expected 3 assistant_message lines for 3 answers, got %d", len(messages))
			for i, want := range []struct {
				text  string
				calls bool
			}{{"", true}, {"Again.", true}, {"Done.", false}} {
				n, _ := messages[i].Num("payload.tool_calls")
				p.FailIf(messages[i].Str("payload.text") != want.text || (n >= 1) != want.calls,
					"expected the text %q and calls %t in message %d, got %s", want.text, want.calls, i+1, messages[i])
			}
		}),
		scenario("turn/message-first", "C19", "The message of an answer comes before its confirmation", func(p *play, c *client) {
			p.Model.On("say and ask", lines.Reply{Text: "I ask.", Calls: []lines.Call{lines.Shell("echo one")}})
			before, _ := c.asked("say and ask")
			p.FailIf(!slices.Equal(messages(before), []string{"I ask."}),
				"expected the assistant_message \"I ask.\" before the confirm_request, got %q", messages(before))
		}),
		scenario("turn/activities", "C20", "No activity is idle", func(p *play, c *client) {
			p.runs("be active")
			c.say("be active")
			shown := lines.Only(append(c.finish(), c.During(lines.Quiet)...), isType("activity"))
			p.FailIf(len(shown) == 0, "expected activities, got none")
			for _, l := range shown {
				kind := l.Str("payload.type")
				p.FailIf(kind == "" || kind == "idle", "expected no activity of this type, got %s", l)
			}
		}),
		scenario("turn/while-busy", "C37", "Messages that are sent while busy are answered", func(p *play, c *client) {
			hold := make(chan struct{})
			p.Model.On("the first", lines.Reply{Text: "First answer.", Hold: hold})
			p.Model.On("the second", lines.Reply{Text: "Second answer."})
			c.say("the first")
			p.awaitModelCall("the first")
			c.say("the second")
			all, _ := c.status() // now the server has read the second message
			close(hold)
			all = slices.Concat(all, c.untilIdle(), c.During(2*lines.Quiet))
			p.says(all, "First answer.")
			p.says(all, "Second answer.")
			idles := lines.Only(all, isType("idle"))
			p.FailIf(len(idles) != 1, "expected one idle at the end, got %d", len(idles))
		}),
		scenario("turn/model-fails", "C38", "A failure of the model is shown", func(p *play, c *client) {
			p.Model.Always("fail", lines.BadRequest)
			c.say("fail")
			isOver := isType("idle")
			_, l := c.UntilWithin(p.Long(), "error", isType("error", "idle"))
			p.FailIf(isRefusal(l) || isOver(l), "expected an error with an agent_id before idle, got %s", l)
			before, status := c.status()
			if !slices.ContainsFunc(before, isOver) {
				p.FailIf(status.Str("payload.last_error") == "", "expected last_error before idle, got %s", status)
				if more, found := c.Try(p.Long()/2, isOver); found {
					before = more
				} else { // a server may try again for a long time
					c.Send(object{"type": "cancel"})
					before = c.untilIdle()
				}
			}
			c.checkOutcome(lines.Only(before, isOver), "error")
			_, status = c.status()
			p.FailIf(status.Str("payload.last_error") != "" || status.Str("payload.last_outcome") != "error", "expected no last_error and the last_outcome error after idle, got %s", status)
		}),
		scenario("turn/todos", "C44", "Todos are an object with a list", func(p *play, c *client) {
			p.Model.On("plan it", lines.Reply{Calls: []lines.Call{{Kind: "todo", Args: func(t lines.Tool) object {
				item := lines.Fill(t.Parameters, "todos", object{"id": "1", "content": "First", "status": "pending"})
				return object{"todos": []any{item}}
			}}}})
			c.say("plan it")
			shown := lines.Only(c.finish(), isType("todos"))
			p.Offered("plan it", "todo")
			p.FailIf(len(shown) == 0, "expected todos after a call of the tool, got none")
			list, ok := lines.At(shown[0].Body, "payload.todos").([]any)
			p.FailIf(!ok || len(list) != 1, "expected a payload with a todos array of one, got %s", shown[0])
		}),
		scenario("turn/long-text", "C46", "A long text is cut", func(p *play, c *client) {
			p.Model.On("talk very long", lines.Reply{Text: strings.Repeat("xxxx xxxx ", 150_000)})
			texts := messages(c.turn("talk very long", "completed"))
			p.FailIf(len(texts) != 1, "expected one assistant_message, got %d", len(texts))
			text := texts[0]
			p.FailIf(len(text) < 1000 || strings.Trim(text, "x ") == "", "expected a text that is cut with a mark, got %d bytes that end with %q", len(text), text[max(0, len(text)-40):])
		}),
	}
}
