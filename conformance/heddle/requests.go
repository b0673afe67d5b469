package heddle

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// requests are about init, and about what is no valid request.
func requests() []conformance.Scenario {
	return []conformance.Scenario{
		unstarted("init/silent-start", "H1", "A server waits for the first request", func(p *play) {
			c := p.start()
			p.None(c.During(3*lines.Quiet), "no output before the first request")
			c.init(nil)
		}),
		scenario("line/objects", "H2", "Each line is one object, whatever the texts in it have", nil, func(p *play, c *client) {
			p.Model.On("odd text", lines.Reply{Text: "one\ntwo\r\n\u2028three \"four\" \x00 end"})
			c.Text("not json\n")
			c.runsWell("odd", "odd text\r\n{}\n")
			c.shutdown(p.Long())
			p.FailIf(c.Ended() != io.EOF, "expected the output to end after a whole line, got: %v", c.Ended())
		}),
		unstarted("init/answer", "H3", "An init is answered once", func(p *play) {
			c := p.start()
			ok := c.init(nil)
			p.FailIf(ok.Str("session_id") == "", "expected a session_id in init_ok, got %s", ok)
			p.FailIf(!semver.MatchString(ok.Str("protocol_version")), "expected a protocol_version such as 1.2.3 in init_ok, got %s", ok)
			more, _ := c.status("after")
			p.None(more, "one answer to init")
		}),
		unstarted("init/sessions-differ", "H4", "Each init makes a session of its own", func(p *play) {
			seen := map[string]bool{}
			for range 2 {
				c := p.start()
				for range 2 {
					ok := c.init(nil)
					id := ok.Str("session_id")
					p.FailIf(id == "" || seen[id], "expected a session_id that no other init got, got %s", ok)
					seen[id] = true
				}
			}
		}),
		unstarted("init/other-major", "H5", "Another major version ends the process", func(p *play) {
			c := p.start()
			request := c.request(nil)
			request["protocol_version"] = "99.0.0"
			c.Send(request)
			all, status := c.Exit(p.Long())
			p.FailIf(len(all) != 1, "expected one line before the end, got %d: %s", len(all), lines.First(all))
			p.checkRefusal(all[0], "protocol_version_mismatch", "", "init-1")
			p.FailIf(status != 1, "expected the exit status 1, got %d", status)
		}),
		unstarted("init/other-minor", "H6", "Another minor version is accepted", func(p *play) {
			c := p.start()
			request := c.request(nil)
			delete(request, "protocol_version")
			version := c.initAs(request).Str("protocol_version")
			c.Close()
			major, _, _ := strings.Cut(version, ".")
			for _, other := range []string{major + ".99.0", major + ".0.99", major + ".2.7"} {
				c := p.start()
				request := c.request(nil)
				request["protocol_version"] = other
				c.initAs(request)
				c.Close()
			}
		}),
		unstarted("init/first", "H7", "Nothing is served before init", func(p *play) {
			const words = "Not initialized. Send 'init' first."
			c := p.start()
			for _, request := range []object{{"type": "send", "id": "early-send", "message": "hello"}, {"type": "status", "id": "early-status"}} {
				p.checkRefusal(c.answerTo(request), "protocol_error", words, request["id"].(string))
			}
			c.init(nil)
		}),
		unstarted("line/not-json", "H8", "A line that is not JSON is refused", func(p *play) {
			c := p.start()
			p.checkRefusal(c.answerTo("not json"), "protocol_error", "Invalid JSON", "unknown")
			c.init(nil)
			p.checkRefusal(c.answerTo(`{"type":"status"`), "protocol_error", "Invalid JSON", "unknown")
			more, _ := c.status("next")
			p.None(more, "one answer to a bad line")
		}),
		scenario("line/not-a-request", "H9", "A text that is no request is refused", nil, func(p *play, c *client) {
			for _, row := range []struct{ text, message string }{
				{`[1]`, "Expected JSON object"},
				{`"text"`, "Expected JSON object"},
				{`{"id":"x"}`, "Missing 'type' field"},
				{`{"id":"x","type":7}`, "Missing 'type' field"},
				{`{"type":"status"}`, "Missing 'id' field"},
				{`{"type":"status","id":7}`, "Missing 'id' field"},
			} {
				// A server may repeat an id that the line has.
				p.checkRefusal(c.answerTo(row.text), "protocol_error", row.message, "unknown", "x")
			}
			c.status("next")
		}),
		scenario("line/bad-requests", "H10", "A request without what it needs is refused", nil, func(p *play, c *client) {
			for i, request := range []object{
				{"type": "send"}, {"type": "send", "message": 7}, {"type": "cancel"}, {"type": "bogus"},
				{"type": "init"}, {"type": "init", "config": object{"model": "conformance"}},
			} {
				id := fmt.Sprint("bad-", i)
				request["id"] = id
				p.checkRefusal(c.answerTo(request), "protocol_error", "", id, "unknown")
			}
			c.status("next")
		}),
		unstarted("line/unknown-fields", "H11", "Unknown fields change nothing", func(p *play) {
			c := p.start()
			request := c.request(object{"x_unknown": object{"a": []int{1}}})
			request["x_unknown"] = nil
			ok := c.initAs(request)
			c.Send(object{"type": "send", "id": "s", "message": "unknown fields", "x_unknown": object{"message": "other"}})
			_, result := c.result("s")
			p.FailIf(result.Str("response") != "Done.", "expected the response \"Done.\", got %s", result)
			c.Send(object{"type": "status", "id": "t", "x_unknown": true})
			_, status := c.Until("status_ok", func(l lines.Line) bool { return isAnswer(l, "status_ok", "t") })
			p.FailIf(status.Str("session_id") != ok.Str("session_id"), "expected the session of init_ok, got %s", status)
			c.Send(object{"type": "shutdown", "id": "u", "x_unknown": 1})
			c.Until("shutdown_ok", func(l lines.Line) bool { return isAnswer(l, "shutdown_ok", "u") })
		}),
	}
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+([-+].*)?$`)

// answerTo sends a request, or a text as it is, and returns the next line.
func (c *client) answerTo(request any) lines.Line {
	text, raw := request.(string)
	if raw {
		c.Text(text + "\n")
	} else {
		c.Send(request)
	}
	return c.Next(fmt.Sprintf("an answer to %v", request))
}

// outcomes are about status, the end of a process, and what results say.
func outcomes() []conformance.Scenario {
	return []conformance.Scenario{
		unstarted("status/counts", "H28", "The status counts messages", func(p *play) {
			c := p.start()
			ok := c.init(nil)
			for i, want := range []float64{0, 2} {
				if want > 0 {
					c.runsWell("s", "count me")
				}
				_, got := c.status(fmt.Sprint("t", i))
				n, _ := got.Num("messages_count")
				p.FailIf(n != want || got.Body["active"] != false || got.Str("session_id") != ok.Str("session_id") || got.Str("model") != "conformance",
					"expected messages_count %v, active false, the model conformance and the session_id %s, got %s", want, ok.Str("session_id"), got)
			}
		}),
		unstarted("end/all-at-once", "H29", "Requests that are sent all at once are answered in order", func(p *play) {
			p.Model.On("at once", lines.Reply{Text: "Fine.", Delay: lines.Quiet})
			c := p.start()
			c.Send(c.request(nil), object{"type": "send", "id": "s", "message": "at once"}, object{"type": "shutdown", "id": "bye"})
			all, status := c.Exit(p.Long())
			var order []string
			for _, l := range all {
				if kind := l.Str("type"); kind != "event" || len(order) == 0 || order[len(order)-1] != "event" {
					order = append(order, kind)
				}
			}
			got := strings.Join(order, " ")
			p.FailIf(got != "init_ok event result shutdown_ok" && got != "init_ok result shutdown_ok",
				"expected init_ok, events, result and shutdown_ok in this order, got: %s", got)
			p.FailIf(status != 0, "expected the exit status 0, got %d", status)
		}),
		scenario("end/input", "H30", "The end of the input does not end a send", nil, func(p *play, c *client) {
			p.Model.On("to the end", lines.Reply{Text: "Fine.", Delay: lines.Quiet})
			c.say("s", "to the end")
			c.EndInput()
			all, status := c.Exit(p.Long())
			results := resultsOf(all, "s")
			p.FailIf(len(results) != 1 || results[0].Str("status") != "ok", "expected the result of s with the status ok, got %s", lines.First(results))
			p.FailIf(status != 0, "expected the exit status 0, got %d", status)
		}),
		unstarted("result/names", "H31", "Events and results repeat the names of a task and a worker", func(p *play) {
			for _, config := range []object{{"task_id": "task-7", "worker_id": "worker-9"}, {}} {
				c := p.begin(config)
				before, result := c.runsWell("s", "names")
				events := lines.Only(before, func(l lines.Line) bool { return l.Str("type") == "event" && l.Str("send_id") == "s" })
				for _, l := range append(events, result) {
					for _, name := range []string{"task_id", "worker_id"} {
						p.FailIf(l.Body[name] != config[name], "expected the %s %v, got %s", name, config[name], l)
					}
				}
				c.Close()
			}
		}),
		scenario("result/model-fails", "H32", "A failure of the model is told twice, in the same words", nil, func(p *play, c *client) {
			p.Model.Always("fail", lines.Reply{Status: 500, Text: `{"error":{"message":"The model broke","type":"error","code":500}}`})
			before, result := c.run("s", "fail")
			failures := ofKind(before, "error")
			p.FailIf(result.Str("status") != "error" || len(failures) == 0, "expected an error event and a result with the status error, got the result %s after %d error events", result, len(failures))
			last := failures[len(failures)-1]
			p.FailIf(result.Str("error.code") == "", "expected an error with a code, got %s", result)
			for _, name := range []string{"code", "message", "retryable"} {
				p.FailIf(lines.At(last.Body, "event."+name) != lines.At(result.Body, "error."+name),
					"expected the same code, message and retryable, got the event %s and the result %s", last, result)
			}
		}),
		scenario("result/latencies", "H38", "Latencies add up", allow("glob"), func(p *play, c *client) {
			p.Model.On("how long", lines.Reply{Calls: []lines.Call{glob("*")}}, lines.Reply{Text: "Fine.", Delay: 100 * time.Millisecond})
			_, result := c.runsWell("s", "how long")
			model, one := result.Num("model_latency_ms")
			tool, two := result.Num("tool_latency_ms")
			total, three := result.Num("total_latency_ms")
			if !one && !two && !three {
				p.S.Skip("not applicable: the result has no latencies")
			}
			p.FailIf(!one || !two || !three || model < 0 || tool < 0 || max(model+tool-total, total-model-tool) > 1,
				"expected three latencies that are not negative, with model + tool = total, got %s", result)
		}),
	}
}
