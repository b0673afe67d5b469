package heddle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/lines"
)

// events are about the events of a send and its result.
func events() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("event/numbers", "H12", "Events are numbered without gaps", eventNumbers),
		scenario("event/numbers-restart", "H13", "The numbers begin again with each send", numbersRestart),
		scenario("event/before-result", "H14", "Nothing about a send follows its result", beforeResult),
		scenario("result/once", "H15", "Each send has one result", resultOnce),
		scenario("result/response", "H16", "The response is the text of the events", response),
		scenario("heartbeat/running", "H20", "A send that takes long has heartbeats", heartbeatRunning),
		scenario("heartbeat/idle", "H21", "There are no heartbeats between sends", heartbeatIdle),
		slow(scenario("heartbeat/default", "H22", "A short send has no heartbeat", heartbeatDefault)),
	}
}

// tools are about calls of tools.
func tools() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("tool/pairs", "H17", "Each call begins and ends once", toolPairs),
		scenario("tool/calls-made", "H18", "The result lists the calls", callsMade),
		scenario("tool/interrupted-call", "H18", "The result lists a call that was interrupted", interruptedCall),
		scenario("tool/preview", "H19", "The preview of a result is short and whole", preview),
		scenario("tool/allow-list", "H33", "A tool that is not allowed does not run", allowList),
		scenario("tool/loop", "H35", "The same call three times is a loop", loop),
		slow(scenario("tool/permission", "H40", "A request for permission is followed by what came of it", permission)),
	}
}

// talk makes the model call a tool and then answer, with heartbeats in between.
func (p *play) talk(prompt string) {
	p.Model.On(prompt, lines.Reply{Text: "Looking.", Calls: []lines.Call{glob("*")}},
		lines.Reply{Pieces: []string{"Here ", "are ", "the files."}, Pause: 60 * time.Millisecond, Usage: []int{42, 15, 57}})
}

// numbered expects the events of a send to be numbered from 0, and no other events.
func (p *play) numbered(before []lines.Line, send string) {
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

func eventNumbers(p *play) {
	p.talk("number them")
	c := p.begin(allow("glob"), heartbeats, "50")
	before, _ := c.runsWell("s", "number them")
	p.numbered(before, "s")
}

func numbersRestart(p *play) {
	c := p.begin(allow("glob"))
	for _, send := range []string{"first", "second"} {
		p.talk("send " + send)
		before, _ := c.runsWell(send, "send "+send)
		p.numbered(before, send)
	}
}

func beforeResult(p *play) {
	p.talk("events first")
	c := p.begin(allow("glob"), heartbeats, "50")
	c.runsWell("s", "events first")
	late := c.During(lines.Quiet)
	c.Send(object{"type": "shutdown", "id": "bye"})
	rest, _ := c.Exit(p.Rule, p.Long())
	for _, l := range append(late, rest...) {
		p.FailIf(l.Str("send_id") == "s" || l.Str("id") == "s", "expected nothing about a send after its result, got %s", l)
	}
}

func resultOnce(p *play) {
	p.Model.On("go well", lines.Reply{Text: "Fine."})
	p.Model.Always("go wrong", lines.Reply{Status: 400, Text: `{"error":{"message":"Bad request","type":"invalid_request_error"}}`})
	p.Model.Always("take long", lines.Reply{Text: "Late.", Delay: time.Minute})
	c := p.begin(nil)
	c.say("ok", "go well")
	c.say("failed", "go wrong")
	c.say("cancelled", "take long")
	c.cancel("cancel", "cancelled")
	c.Send(object{"type": "shutdown", "id": "bye"})
	all, _ := c.Exit(p.Rule, p.Long()+10*time.Second)
	for _, send := range []string{"ok", "failed", "cancelled"} {
		results := lines.Only(all, func(l lines.Line) bool { return isAnswer(l, "result", send) })
		p.FailIf(len(results) != 1, "expected one result of the send %s, got %d", send, len(results))
	}
}

func response(p *play) {
	p.talk("respond")
	before, result := p.begin(allow("glob")).runsWell("s", "respond")
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
}

func heartbeatRunning(p *play) {
	p.Model.On("beat", lines.Reply{Text: "Fine.", Delay: 600 * time.Millisecond})
	before, _ := p.begin(nil, heartbeats, "100").runsWell("s", "beat")
	beats := ofKind(before, "heartbeat")
	p.FailIf(len(beats) == 0, "expected a heartbeat in a send of 600 ms with an interval of 100 ms, got none")
	last := -1.0
	for _, l := range beats {
		n, ok := l.Num("event.duration_ms")
		p.FailIf(!ok || n <= last, "expected a duration_ms above %v, got %s", last, l)
		last = n
	}
}

func heartbeatIdle(p *play) {
	p.Model.On("then rest", lines.Reply{Text: "Fine."})
	c := p.begin(nil, heartbeats, "50")
	early := c.During(250 * time.Millisecond)
	c.runsWell("s", "then rest")
	idle := append(early, c.During(250*time.Millisecond)...)
	p.FailIf(len(idle) > 0, "expected no line while no send runs, got %s", lines.First(idle))
}

func heartbeatDefault(p *play) {
	p.Model.On("a while", lines.Reply{Text: "Fine.", Delay: 3 * time.Second})
	before, _ := p.begin(nil, heartbeats, "").runsWell("s", "a while")
	beats := ofKind(before, "heartbeat")
	p.FailIf(len(beats) > 0, "expected no heartbeat in a send of 3 s, got %s", lines.First(beats))
}

// twoCalls makes the model call a tool twice.
func (p *play) twoCalls(prompt string) {
	p.Model.On(prompt, lines.Reply{Calls: []lines.Call{glob("*.one")}}, lines.Reply{Calls: []lines.Call{glob("*.two")}}, lines.Reply{Text: "Fine."})
}

func toolPairs(p *play) {
	p.twoCalls("call twice")
	before, _ := p.begin(allow("glob")).runsWell("s", "call twice")
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
}

// listed expects the calls of a result to be those that began.
func (p *play) listed(before []lines.Line, result lines.Line, least int) {
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

func callsMade(p *play) {
	p.twoCalls("list calls")
	before, result := p.begin(allow("glob")).runsWell("s", "list calls")
	p.Offered("list calls", "glob")
	p.listed(before, result, 2)
}

// startedShell runs a command that takes 30 s in the server's shell tool. It returns the
// path of a file with the id of a process, and the lines up to the start of the tool.
func (c *client) startedShell(prompt string) (string, []lines.Line) {
	p := c.p
	pid := filepath.Join(p.Dir, "pid")
	p.Model.On(prompt, lines.Reply{Calls: []lines.Call{lines.Shell("sleep 30 & echo $! > '" + pid + "'; wait")}})
	c.say("s", prompt)
	before := c.UntilWithin(p.Rule, c.p.Long(), "tool_start", func(l lines.Line) bool {
		kind := l.Str("event.event")
		return kind == "tool_start" || kind == "permission_request" || kind == "permission_denied" || isAnswer(l, "result", "s")
	})
	p.Offered(prompt, "shell")
	if before[len(before)-1].Str("event.event") != "tool_start" {
		p.S.Skip("not applicable: the server does not run its shell tool unasked")
	}
	if _, known := lines.Alive(pid, p.S.Config().Patience); !known {
		p.S.Skip("not applicable: the command of the shell tool wrote no file")
	}
	return pid, before
}

func interruptedCall(p *play) {
	c := p.begin(allow("shell"))
	_, before := c.startedShell("list the interrupted call")
	c.cancel("cancel", "s")
	more, result := c.result("s")
	p.listed(append(before, more...), result, 1)
}

func preview(p *play) {
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
	}}}}, lines.Reply{Text: "Fine."})
	before, _ := p.begin(allow("read")).runsWell("s", "read much")
	p.Offered("read much", "read")
	ends := ofKind(before, "tool_end")
	p.FailIf(len(ends) == 0, "expected a tool_end, got none")
	text := ends[0].Str("event.result_preview")
	if !strings.Contains(text, "😀") {
		p.S.Skip("not applicable: the tool did not return the file: %s", ends[0])
	}
	p.FailIf(utf8.RuneCountInString(text) > 500, "expected a result_preview of at most 500 characters, got %d", utf8.RuneCountInString(text))
	p.FailIf(strings.ContainsRune(text, utf8.RuneError), "expected a result_preview of whole characters, got %q", text)
}

func allowList(p *play) {
	p.Model.On("which tools", lines.Reply{Text: "Fine."})
	probe := p.begin(allow("shell"))
	probe.runsWell("probe", "which tools")
	tool := p.Offered("which tools", "shell")
	probe.Close()
	for i, config := range []object{{"tools": []string{}}, allow("glob", "read")} {
		file := filepath.Join(p.Dir, fmt.Sprint("ran-", i))
		prompt := fmt.Sprint("forbidden call ", i)
		call := lines.Call{Name: tool.Name, Args: func(lines.Tool) object { return lines.Shell("echo ran > '" + file + "'").Args(tool) }}
		p.Model.On(prompt, lines.Reply{Calls: []lines.Call{call}}, lines.Reply{Text: "Fine."})
		c := p.begin(config)
		c.run("s", prompt)
		_, err := os.Stat(file)
		p.FailIf(err == nil, "expected the tool %s not to run with the tools %v, but it wrote a file", tool.Name, config["tools"])
		c.Close()
	}
}

func loop(p *play) {
	p.Model.Always("again and again", lines.Reply{Calls: []lines.Call{glob("*.same")}})
	c := p.start()
	ok := c.init(allow("glob"))
	_, result := c.run("s", "again and again")
	p.Offered("again and again", "glob")
	p.FailIf(result.Str("status") != "error" || result.Str("error.code") != "loop_detected", "expected a result with the error loop_detected, got %s", result)
	if minor(ok) < 4 {
		return // a result has no failure yet
	}
	count, _ := result.Num("failure.loop_count")
	threshold, _ := result.Num("failure.loop_threshold")
	p.FailIf(count != 3 || threshold != 3, "expected loop_count 3 and loop_threshold 3 in failure, got %s", result)
}

// minor returns the minor version in init_ok.
func minor(ok lines.Line) (n int) {
	var major int
	_, _ = fmt.Sscanf(ok.Str("protocol_version"), "%d.%d", &major, &n) // 0 if there is none
	return n
}

func permission(p *play) {
	p.Model.On("ask first", lines.Reply{Calls: []lines.Call{lines.Shell("echo asked")}}, lines.Reply{Text: "Fine."})
	config := allow("shell")
	config["permissions"] = object{"allow": []string{}, "deny": []string{}, "ask": lines.Names("shell")}
	c := p.begin(config)
	c.say("s", "ask first")
	isOver := func(l lines.Line) bool { return isAnswer(l, "result", "s") }
	before := c.UntilWithin(p.Rule, p.Long(), "permission_request or the result", func(l lines.Line) bool {
		return l.Str("event.event") == "permission_request" || isOver(l)
	})
	request := before[len(before)-1]
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
}

// same reports whether two JSON values are equal.
func same(a, b any) bool {
	x, _ := json.Marshal(a) // values that were JSON
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
