package heddle

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/lines"
)

// cancels are about sends that are cancelled.
func cancels() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("cancel/running", "H23", "A cancel ends the running send", cancelRunning),
		scenario("cancel/no-answer", "H24", "A cancel has no answer", cancelNoAnswer),
		scenario("cancel/waiting", "H25", "A cancel ends a send that waits", cancelWaiting),
		scenario("cancel/tool", "H26", "A cancel ends the processes of a tool", cancelTool),
		scenario("cancel/next", "H27", "After a cancel the next send runs", cancelNext),
	}
}

// cancelled expects the result of a send that was cancelled.
func (p *play) cancelled(result lines.Line) {
	p.FailIf(result.Str("status") != "error" || result.Str("error.code") != "cancelled" || result.Str("error.message") != "cancelled" ||
		lines.At(result.Body, "error.retryable") != false || result.Has("response"),
		"expected a result with the code and message cancelled, retryable false and no response, got %s", result)
}

// interrupted runs a send, cancels it in the middle of its answer, and returns the lines
// after the cancel and the result.
func (c *client) interrupted() ([]lines.Line, lines.Line) {
	c.p.Model.On("talk long", lines.Reply{Pieces: []string{"early", "late"}, Pause: 3 * time.Second})
	c.say("s", "talk long")
	c.Until(c.p.Rule, "content_delta", func(l lines.Line) bool { return l.Str("event.event") == "content_delta" })
	c.cancel("the-cancel", "s")
	return c.result("s")
}

func cancelRunning(p *play) {
	c := p.begin(nil)
	after, result := c.interrupted()
	p.cancelled(result)
	for _, l := range append(after, c.During(lines.Quiet)...) { // lines may have been on their way
		p.FailIf(strings.Contains(l.Str("event.text"), "late"), "expected no content 3 s after the cancel, got %s", l)
	}
}

func cancelNoAnswer(p *play) {
	c := p.begin(nil)
	c.cancel("the-cancel", "nothing")
	more, _ := c.status("t")
	p.FailIf(len(more) > 0, "expected no line for a cancel of an unknown send, got %s", lines.First(more))
	after, _ := c.interrupted()
	c.cancel("the-cancel", "s") // it is over
	rest, _ := c.status("u")
	for _, l := range append(after, rest...) {
		p.FailIf(l.Str("id") == "the-cancel", "expected no line with the id of a cancel, got %s", l)
	}
	p.FailIf(len(rest) > 0, "expected no line for a cancel of a send that is over, got %s", lines.First(rest))
}

func cancelWaiting(p *play) {
	p.Model.On("one runs", lines.Reply{Text: "One.", Delay: time.Second})
	p.Model.On("two waits", lines.Reply{Text: "Two."})
	p.Model.On("three waits", lines.Reply{Text: "Three."})
	c := p.begin(nil)
	c.say("one", "one runs")
	c.say("two", "two waits")
	c.cancel("the-cancel", "two")
	c.say("three", "three waits")
	results := map[string]lines.Line{}
	c.UntilWithin(p.Rule, p.Long(), "the results of three sends", func(l lines.Line) bool {
		if l.Str("type") == "result" {
			results[l.Str("id")] = l
		}
		return len(results) == 3
	})
	p.cancelled(results["two"])
	for _, other := range []string{"one", "three"} {
		p.FailIf(results[other].Str("status") != "ok", "expected the send %s to end well, got %s", other, results[other])
	}
}

func cancelTool(p *play) {
	c := p.begin(allow("shell"))
	pid, _ := c.startedShell("sleep long")
	began := time.Now()
	c.cancel("the-cancel", "s")
	_, result := c.result("s")
	p.cancelled(result)
	for alive := true; alive; time.Sleep(50 * time.Millisecond) {
		p.FailIf(time.Since(began) > 8*time.Second, "expected the result and the end of the tool's processes within 8 s after the cancel")
		alive, _ = lines.Alive(pid, 0)
	}
}

func cancelNext(p *play) {
	c := p.begin(nil)
	_, result := c.interrupted()
	p.FailIf(result.Str("error.code") != "cancelled", "expected the send to be cancelled, got %s", result)
	p.Model.On("go on", lines.Reply{Text: "Gone on."})
	_, next := c.runsWell("next", "go on")
	p.FailIf(next.Str("response") != "Gone on.", "expected the response \"Gone on.\", got %s", next)
}

// configs are about the configuration and versions.
func configs() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("config/max-iterations", "H34", "The calls of the model for a send are limited", maxIterations),
		scenario("config/isolated", "H36", "An isolated mode needs an absolute directory", isolated),
		scenario("config/older-version", "H37", "A client of an older version sees nothing new", olderVersion),
	}
}

func maxIterations(p *play) {
	var replies []lines.Reply
	for i := range 8 {
		replies = append(replies, lines.Reply{Calls: []lines.Call{glob(fmt.Sprintf("*.%d", i))}})
	}
	p.Model.On("many rounds", replies...)
	config := allow("glob")
	config["max_iterations"] = 2
	c := p.start()
	ok := c.init(config)
	_, result := c.run("s", "many rounds")
	p.Offered("many rounds", "glob")
	for _, r := range p.Model.Requests("many rounds") {
		p.FailIf(r.Step > 1, "expected at most 2 calls of the model, got %d", r.Step+1)
	}
	code := result.Str("error.code")
	p.FailIf(result.Str("status") != "error" || code != "max_iterations" && (code != "provider_error" || minor(ok) >= 5),
		"expected a result with the error max_iterations (provider_error before the version 0.5), got %s", result)
}

func isolated(p *play) {
	probe := p.start()
	if ok := probe.init(nil); minor(ok) < 4 {
		p.S.Skip("not applicable: the server's version is %s, and config.runtime came with 0.4", ok.Str("protocol_version"))
	}
	probe.Close()
	c := p.start()
	for _, runtime := range []object{{"mode": "isolated"}, {"mode": "isolated", "state_root": "relative/path"}} {
		request := c.request(object{"runtime": runtime})
		l := c.answerTo(request)
		p.refusal(l, "protocol_error", "", request["id"].(string))
		p.FailIf(!strings.Contains(string(l.Raw), "state_root"), "expected an error that names state_root, got %s", l)
		p.refusal(c.answerTo(object{"type": "status", "id": "t"}), "protocol_error", "", "t")
	}
	c.init(nil)
}

// newer are the fields and kinds of events that a version does not have yet.
var newer = []struct {
	version        string
	minor          int
	fields, events []string
}{
	{"0.4.0", 4, []string{"capabilities", "profile", "requested_routing", "effective_routing"}, []string{"turn_state"}},
	{"0.3.0", 3, []string{"failure", "runtime", "routing"}, []string{"turn_state"}},
	{"0.2.0", 2, []string{"failure", "last_routed_model", "usage.generation_id", "usage.cached_tokens", "event.generation_id", "event.cached_tokens"}, []string{"turn_state", "routed_model"}},
}

func olderVersion(p *play) {
	p.Model.On("go well", lines.Reply{Text: "Fine.", Usage: []int{4, 2, 6}, ID: "chatcmpl-old"})
	p.Model.Always("go wrong", lines.Reply{Status: 400, Text: `{"error":{"message":"Bad request","type":"invalid_request_error"}}`})
	for _, row := range newer {
		c := p.start()
		request := c.request(nil)
		request["protocol_version"] = row.version
		ok := c.initAs(request)
		if used := ok.Str("protocol_version"); minor(ok) > row.minor {
			p.S.Skip("not applicable: the server answers a client of the version %s with its own version %s", row.version, used)
		}
		all := []lines.Line{ok}
		for _, prompt := range []string{"go well", "go wrong"} {
			before, result := c.run(prompt, prompt)
			all = append(append(all, before...), result)
		}
		_, status := c.status("t")
		for _, l := range append(all, status) {
			for _, field := range row.fields {
				p.FailIf(l.Has(field), "expected no %s for a client of the version %s, got %s", field, row.version, l)
			}
			p.FailIf(len(ofKind([]lines.Line{l}, row.events...)) > 0, "expected no %s event for a client of the version %s, got %s", l.Str("event.event"), row.version, l)
		}
		c.Close()
	}
}
