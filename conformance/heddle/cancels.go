package heddle

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// cancels are about sends that are cancelled.
func cancels() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("cancel/running", "H23", "A cancel ends the running send", nil, func(p *play, c *client) {
			after, result := c.cancelMidway()
			p.checkCancelled(result)
			for _, l := range append(after, c.During(lines.Quiet)...) { // lines may have been on their way
				p.FailIf(strings.Contains(l.Str("event.text"), "late"), "expected no content after the cancel, got %s", l)
			}
		}),
		scenario("cancel/no-answer", "H24", "A cancel has no answer", nil, func(p *play, c *client) {
			c.cancel("the-cancel", "nothing")
			more, _ := c.status("t")
			p.None(more, "no line for a cancel of an unknown send")
			after, _ := c.cancelMidway()
			c.cancel("the-cancel", "s") // it is over
			rest, _ := c.status("u")
			for _, l := range append(after, rest...) {
				p.FailIf(l.Str("id") == "the-cancel", "expected no line with the id of a cancel, got %s", l)
			}
			p.None(rest, "no line for a cancel of a send that is over")
		}),
		scenario("cancel/waiting", "H25", "A cancel ends a send that waits", nil, func(p *play, c *client) {
			// No line tells that the server has read the cancel, so the first send takes long.
			p.Model.On("one runs", lines.Reply{Text: "One.", Delay: 3 * time.Second})
			c.say("one", "one runs")
			c.say("two", "two waits")
			c.cancel("the-cancel", "two")
			c.say("three", "three waits")
			results := map[string]lines.Line{}
			c.UntilWithin(p.Long(), "the results of three sends", func(l lines.Line) bool {
				if l.Str("type") == "result" {
					results[l.Str("id")] = l
				}
				return len(results) == 3
			})
			p.checkCancelled(results["two"])
			for _, other := range []string{"one", "three"} {
				p.FailIf(results[other].Str("status") != "ok", "expected the send %s to end well, got %s", other, results[other])
			}
		}),
		scenario("cancel/tool", "H26", "A cancel ends the processes of a tool", allow("shell"), func(p *play, c *client) {
			pid, _ := c.startedShell("sleep long")
			until := time.Now().Add(8 * time.Second)
			c.cancel("the-cancel", "s")
			_, result := c.result("s")
			p.checkCancelled(result)
			p.Gone(pid, until, "the result and the end of the tool's processes within 8 s after the cancel")
		}),
		scenario("cancel/next", "H27", "After a cancel the next send runs", nil, func(p *play, c *client) {
			_, result := c.cancelMidway()
			p.FailIf(result.Str("error.code") != "cancelled", "expected the send to be cancelled, got %s", result)
			p.Model.On("go on", lines.Reply{Text: "Gone on."})
			_, next := c.runsWell("next", "go on")
			p.FailIf(next.Str("response") != "Gone on.", "expected the response \"Gone on.\", got %s", next)
		}),
	}
}

// checkCancelled expects the result of a send that was cancelled.
func (p *play) checkCancelled(result lines.Line) {
	p.FailIf(result.Str("status") != "error" || result.Str("error.code") != "cancelled" || result.Str("error.message") != "cancelled" ||
		lines.At(result.Body, "error.retryable") != false || result.Has("response"),
		"expected a result with the code and message cancelled, retryable false and no response, got %s", result)
}

// cancelMidway runs a send, cancels it in the middle of its answer, and returns the lines
// after the cancel and the result. The model says the rest of the answer after the result.
func (c *client) cancelMidway() ([]lines.Line, lines.Line) {
	hold := make(chan struct{})
	defer close(hold)
	c.p.Model.On("talk long", lines.Reply{Pieces: []string{"early", "late"}, Hold: hold})
	c.say("s", "talk long")
	c.Until("content_delta", func(l lines.Line) bool { return l.Str("event.event") == "content_delta" })
	c.cancel("the-cancel", "s")
	return c.result("s")
}

// configs are about the configuration and versions.
func configs() []conformance.Scenario {
	return []conformance.Scenario{
		unstarted("config/max-iterations", "H34", "The calls of the model for a send are limited", func(p *play) {
			var replies []lines.Reply
			for i := range 8 {
				replies = append(replies, lines.Reply{Calls: []lines.Call{glob(fmt.Sprintf("*.%d", i))}})
			}
			p.Model.On("many rounds", replies...)
			config := allow("glob")
			config["max_iterations"] = 2
			c := p.start()
			c.init(config)
			_, result := c.run("s", "many rounds")
			p.Offered("many rounds", "glob")
			for _, r := range p.Model.Requests("many rounds") {
				p.FailIf(r.Step > 1, "expected at most 2 calls of the model, got %d", r.Step+1)
			}
			code := result.Str("error.code")
			p.FailIf(result.Str("status") != "error" || code != "max_iterations" && (code != "provider_error" || c.minor >= 5),
				"expected a result with the error max_iterations (provider_error before the version 0.5), got %s", result)
		}),
		unstarted("config/isolated", "H36", "An isolated mode needs an absolute directory", func(p *play) {
			probe := p.start()
			if ok := probe.init(nil); probe.minor < 4 {
				p.S.Skip("not applicable: the server's version is %s, and config.runtime came with 0.4", ok.Str("protocol_version"))
			}
			probe.Close()
			c := p.start()
			for _, runtime := range []object{{"mode": "isolated"}, {"mode": "isolated", "state_root": "relative/path"}} {
				request := c.request(object{"runtime": runtime})
				l := c.answerTo(request)
				p.checkRefusal(l, "protocol_error", "", request["id"].(string))
				p.FailIf(!strings.Contains(string(l.Raw), "state_root"), "expected an error that names state_root, got %s", l)
				p.checkRefusal(c.answerTo(object{"type": "status", "id": "t"}), "protocol_error", "", "t")
			}
			c.init(nil)
		}),
		unstarted("config/older-version", "H37", "A client of an older version sees nothing new", func(p *play) {
			p.Model.On("go well", lines.Reply{Text: "Fine.", Usage: []int{4, 2, 6}, ID: "chatcmpl-old"})
			p.Model.Always("go wrong", lines.BadRequest)
			for _, row := range newer {
				c := p.start()
				request := c.request(nil)
				request["protocol_version"] = row.version
				ok := c.initAs(request)
				if used := ok.Str("protocol_version"); c.minor > row.minor {
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
		}),
	}
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
