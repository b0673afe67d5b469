package heddle

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// events are about the events of a send and its result.
func events() []conformance.Scenario {
	return []conformance.Scenario{
		unstarted("event/numbers", "H12", "Events are numbered without gaps", func(p *play) {
			p.answerWithTool("number them")
			c := p.begin(allow("glob"), heartbeats, "50")
			before, _ := c.runsWell("s", "number them")
			p.checkNumbers(before, "s")
		}),
		scenario("event/numbers-restart", "H13", "The numbers begin again with each send", allow("glob"), func(p *play, c *client) {
			for _, send := range []string{"first", "second"} {
				p.answerWithTool("send " + send)
				before, _ := c.runsWell(send, "send "+send)
				p.checkNumbers(before, send)
			}
		}),
		unstarted("event/before-result", "H14", "Nothing about a send follows its result", func(p *play) {
			p.answerWithTool("events first")
			c := p.begin(allow("glob"), heartbeats, "50")
			c.runsWell("s", "events first")
			late := c.During(lines.Quiet)
			rest, _ := c.shutdown(p.Long())
			for _, l := range append(late, rest...) {
				p.FailIf(l.Str("send_id") == "s" || l.Str("id") == "s", "expected nothing about a send after its result, got %s", l)
			}
		}),
		scenario("result/once", "H15", "Each send has one result", nil, func(p *play, c *client) {
			p.Model.Always("go wrong", lines.BadRequest)
			p.Model.Always("take long", lines.Reply{Text: "Late.", Delay: time.Minute})
			c.say("ok", "go well")
			c.say("failed", "go wrong")
			c.say("cancelled", "take long")
			c.cancel("cancel", "cancelled")
			all, _ := c.shutdown(p.Long() + 10*time.Second)
			for _, send := range []string{"ok", "failed", "cancelled"} {
				n := len(resultsOf(all, send))
				p.FailIf(n != 1, "expected one result of the send %s, got %d", send, n)
			}
		}),
		scenario("result/response", "H16", "The response is the text of the events", allow("glob"), func(p *play, c *client) {
			p.answerWithTool("respond")
			before, result := c.runsWell("s", "respond")
			var text strings.Builder
			for _, l := range before {
				switch l.Str("event.event") {
				case "tool_end":
					text.Reset()
				case "content_delta":
					text.WriteString(l.Str("event.text"))
				}
			}
			p.FailIf(!result.Has("response") || result.Str("response") != text.String(), "expected the response %q, as in the events, got %s", text.String(), result)
		}),
		unstarted("heartbeat/running", "H20", "A send that takes long has heartbeats", func(p *play) {
			hold := make(chan struct{})
			p.Model.On("beat", lines.Reply{Text: "Fine.", Hold: hold})
			c := p.begin(nil, heartbeats, "100")
			c.say("s", "beat")
			last := -1.0
			for range 3 {
				_, l := c.UntilWithin(p.Long(), "a heartbeat, with an interval of 100 ms", func(l lines.Line) bool {
					return l.Str("event.event") == "heartbeat"
				})
				n, ok := l.Num("event.duration_ms")
				p.FailIf(!ok || n <= last, "expected a duration_ms above %v, got %s", last, l)
				last = n
			}
			close(hold)
			_, result := c.result("s")
			p.FailIf(result.Str("status") != "ok", "expected a result with the status ok, got %s", result)
		}),
		unstarted("heartbeat/idle", "H21", "There are no heartbeats between sends", func(p *play) {
			c := p.begin(nil, heartbeats, "50")
			early := c.During(250 * time.Millisecond)
			c.runsWell("s", "then rest")
			p.None(append(early, c.During(250*time.Millisecond)...), "no line while no send runs")
		}),
		slow(unstarted("heartbeat/default", "H22", "A short send has no heartbeat", func(p *play) {
			p.Model.On("a while", lines.Reply{Text: "Fine.", Delay: 3 * time.Second})
			before, _ := p.begin(nil, heartbeats, "").runsWell("s", "a while")
			for _, l := range ofKind(before, "heartbeat") { // the send may take longer on a busy machine
				n, _ := l.Num("event.duration_ms")
				p.FailIf(n < 3000, "expected no heartbeat in the first 3 s of a send, got %s", l)
			}
		})),
	}
}

// tools are about calls of tools.
func tools() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("tool/pairs", "H17", "Each call begins and ends once", allow("glob"), func(p *play, c *client) {
			p.twoCalls("call twice")
			before, _ := c.runsWell("s", "call twice")
			p.Offered("call twice", "glob")
			running, ended := "", 0
			for _, l := range ofKind(before, "tool_start", "tool_end") {
				name := l.Str("event.name")
				if l.Str("event.event") == "tool_start" {
					p.FailIf(running != "" || name == "", "expected the tool_end of %q first, got %s", running, l)
					running = name
					continue
				}
				p.FailIf(name != running, "expected the tool_end of %q, got %s", running, l)
				running = ""
				ended++
			}
			p.FailIf(running != "" || ended != 2, "expected two calls that begin and end before the result, got %d that ended", ended)
		}),
		scenario("tool/calls-made", "H18", "The result lists the calls", allow("glob"), func(p *play, c *client) {
			p.twoCalls("list calls")
			before, result := c.runsWell("s", "list calls")
			p.Offered("list calls", "glob")
			p.checkCallsMade(before, result, 2)
		}),
		scenario("tool/interrupted-call", "H18", "The result lists a call that was interrupted", allow("shell"), func(p *play, c *client) {
			_, before := c.startedShell("list the interrupted call")
			c.cancel("cancel", "s")
			more, result := c.result("s")
			p.checkCallsMade(append(before, more...), result, 1)
		}),
		scenario("tool/preview", "H19", "The preview of a result is short and whole", allow("read"), func(p *play, c *client) {
			path := filepath.Join(p.Dir, "long.txt")
			if err := os.WriteFile(path, bytes.Repeat([]byte("a😀é\n"), 900), 0o600); err != nil {
				p.S.Skip("the suite cannot write a file: %v", err)
			}
			p.Model.On("read much", lines.Reply{Calls: []lines.Call{{Kind: "read", Args: func(t lines.Tool) object {
				for _, name := range []string{"path", "file_path", "filename"} {
					if lines.At(t.Parameters, "properties."+name) != nil {
						return object{name: path}
					}
				}
				return object{"path": path}
			}}}})
			before, _ := c.runsWell("s", "read much")
			p.Offered("read much", "read")
			ends := ofKind(before, "tool_end")
			p.FailIf(len(ends) == 0, "expected a tool_end, got none")
			text := ends[0].Str("event.result_preview")
			if !strings.Contains(text, "😀") {
				p.S.Skip("not applicable: the tool did not return the file: %s", ends[0])
			}
			p.FailIf(utf8.RuneCountInString(text) > 500, "expected a result_preview of at most 500 characters, got %d", utf8.RuneCountInString(text))
			p.FailIf(strings.ContainsRune(text, utf8.RuneError), "expected a result_preview of whole characters, got %q", text)
		}),
		unstarted("tool/allow-list", "H33", "A tool that is not allowed does not run", func(p *play) {
			p.Model.On("which tools")
			probe := p.begin(allow("shell"))
			probe.runsWell("probe", "which tools")
			tool := p.Offered("which tools", "shell")
			probe.Close()
			for i, config := range []object{{"tools": []string{}}, allow("glob", "read")} {
				file := filepath.Join(p.Dir, fmt.Sprint("ran-", i))
				prompt := fmt.Sprint("forbidden call ", i)
				call := lines.Call{Name: tool.Name, Args: func(lines.Tool) object { return lines.Shell("echo ran > '" + file + "'").Args(tool) }}
				p.Model.On(prompt, lines.Reply{Calls: []lines.Call{call}})
				c := p.begin(config)
				c.run("s", prompt)
				_, err := os.Stat(file)
				p.FailIf(err == nil, "expected the tool %s not to run with the tools %v, but it wrote a file", tool.Name, config["tools"])
				c.Close()
			}
		}),
		scenario("tool/loop", "H35", "The same call three times is a loop", allow("glob"), func(p *play, c *client) {
			p.Model.Always("again and again", lines.Reply{Calls: []lines.Call{glob("*.same")}})
			_, result := c.run("s", "again and again")
			p.Offered("again and again", "glob")
			p.FailIf(result.Str("status") != "error" || result.Str("error.code") != "loop_detected", "expected a result with the error loop_detected, got %s", result)
			if c.minor < 4 {
				return // a result has no failure yet
			}
			count, _ := result.Num("failure.loop_count")
			threshold, _ := result.Num("failure.loop_threshold")
			p.FailIf(count != 3 || threshold != 3, "expected loop_count 3 and loop_threshold 3 in failure, got %s", result)
		}),
		slow(unstarted("tool/permission", "H40", "A request for permission is followed by what came of it", func(p *play) {
			p.Model.On("ask first", lines.Reply{Calls: []lines.Call{lines.Shell("echo asked")}})
			config := allow("shell")
			config["permissions"] = object{"allow": []string{}, "deny": []string{}, "ask": lines.Names("shell")}
			c := p.begin(config)
			c.say("s", "ask first")
			isOver := func(l lines.Line) bool { return isAnswer(l, "result", "s") }
			_, request := c.UntilWithin(p.Long(), "permission_request or the result", func(l lines.Line) bool {
				return l.Str("event.event") == "permission_request" || isOver(l)
			})
			if isOver(request) {
				p.S.Skip("not applicable: the server asks for no permission")
			}
			patience := max(p.S.Config().Timeout-p.Long(), 5*time.Second)
			after, found := c.Try(patience, func(l lines.Line) bool {
				kind := l.Str("event.event")
				return isOver(l) || (kind == "tool_start" || kind == "permission_denied") && l.Str("event.name") == request.Str("event.name")
			})
			if !found {
				p.S.Skip("not applicable: the server still waits for the permission after %s; give it longer with --timeout", patience)
			}
			p.FailIf(isOver(after[len(after)-1]), "expected the tool_start or permission_denied of %s before the result", request)
		})),
	}
}

// answerWithTool makes the model call a tool and then answer, with heartbeats in between.
func (p *play) answerWithTool(prompt string) {
	p.Model.On(prompt, lines.Reply{Text: "Looking.", Calls: []lines.Call{glob("*")}},
		lines.Reply{Pieces: []string{"Here ", "are ", "the files."}, Pause: 60 * time.Millisecond, Usage: []int{42, 15, 57}})
}

// checkNumbers expects the events of a send to be numbered from 0, and no other events.
func (p *play) checkNumbers(before []lines.Line, send string) {
	p.FailIf(len(ofKind(before, "content_delta")) == 0, "expected events with content before the result of %s, got none", send)
	next := 0
	for _, l := range before {
		if l.Str("type") != "event" {
			continue
		}
		n, ok := l.Num("event_seq")
		p.FailIf(l.Str("send_id") != send || !ok || n != float64(next), "expected the send_id %s and the event_seq %d, got %s", send, next, l)
		next++
	}
}

// twoCalls makes the model call a tool twice.
func (p *play) twoCalls(prompt string) {
	p.Model.On(prompt, lines.Reply{Calls: []lines.Call{glob("*.one")}}, lines.Reply{Calls: []lines.Call{glob("*.two")}})
}

// checkCallsMade expects the calls of a result to be those that began.
func (p *play) checkCallsMade(before []lines.Line, result lines.Line, least int) {
	calls, _ := result.Body["tool_calls_made"].([]any)
	starts := ofKind(before, "tool_start")
	p.FailIf(len(starts) < least, "expected %d tool_start events, got %d", least, len(starts))
	p.FailIf(len(calls) != len(starts), "expected %d calls in tool_calls_made, got %s", len(starts), result)
	for i, start := range starts {
		call, _ := calls[i].(object)
		p.FailIf(call["name"] != start.Str("event.name") || !reflect.DeepEqual(call["args"], lines.At(start.Body, "event.args")),
			"expected the call %d in tool_calls_made to have the name and args of %s, got %s", i+1, start, result)
	}
}

// startedShell runs a command that takes 30 s in the server's shell tool. It returns the
// path of a file with the id of a process, and the lines up to the start of the tool.
func (c *client) startedShell(prompt string) (string, []lines.Line) {
	p := c.p
	pid := p.Sleep(prompt)
	c.say("s", prompt)
	before, start := c.UntilWithin(p.Long(), "tool_start", func(l lines.Line) bool {
		return isAnswer(l, "result", "s") || slices.Contains([]string{"tool_start", "permission_request", "permission_denied"}, l.Str("event.event"))
	})
	p.Offered(prompt, "shell")
	if start.Str("event.event") != "tool_start" {
		p.S.Skip("not applicable: the server does not run its shell tool unasked")
	}
	p.Sleeping(pid)
	return pid, append(before, start)
}
