package acp

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// Prompts of the conformance agent.
const (
	hang     = `__maestro_conformance_hang__:{}`
	question = `__maestro_conformance_approval__:{"request_id":"q1","tool":"bash","args":{"command":"ls"},"reason":"why"}`
)

func scenarios() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("upgrade/credential", "P1", "No credential, or a wrong one, is refused", func(p *play) {
			if p.S.Config().Token == "" {
				p.S.Skip("needs a server with authentication, and --token-file")
			}
			for _, header := range []http.Header{{"X-None": {"1"}}, {"Authorization": {"Bearer " + strings.Repeat("x", 32)}}} {
				p.refusesUpgrade(websocket.DialOptions{HTTPHeader: header}, http.StatusUnauthorized)
			}
		}),
		scenario("upgrade/host", "P2", "A Host that is not the server's is refused", func(p *play) {
			p.refusesUpgrade(websocket.DialOptions{Host: "other.example"}, http.StatusForbidden, http.StatusMisdirectedRequest)
		}),
		scenario("upgrade/origin", "P3", "A page of another origin is refused", func(p *play) {
			header := p.credential()
			header.Set("Origin", "https://other.example")
			p.refusesUpgrade(websocket.DialOptions{HTTPHeader: header}, http.StatusForbidden)
		}),
		scenario("upgrade/id", "P4", "Each connection has an id", func(p *play) {
			seen := map[string]bool{"": true}
			for range 2 {
				s, resp := p.dial("", websocket.DialOptions{})
				p.FailIf(s == nil, "expected the upgrade to succeed, got status %d", resp.StatusCode)
				_ = s.Close() // only its id is of interest
				p.FailIf(seen[s.id], "expected an Acp-Connection-Id of its own, got %q", s.id)
				seen[s.id] = true
			}
		}),
		scenario("initialize/first", "P5", "Nothing is served before initialize, which comes once", func(p *play) {
			c := p.connect("")
			c.refused("session/list", object{})
			_, l := c.asks("initialize", hello)
			version, _ := l.Num("result.protocolVersion")
			p.FailIf(version != 1 || !l.Has("result.agentCapabilities"), "expected version 1 and capabilities, got %s", l)
			c.asks("session/list", object{})
			c.refused("initialize", hello)
		}),
		scenario("session/new", "P6", "A session is attached with its position", func(p *play) {
			n := p.native("", false)
			c := p.connect("?sessionId=" + n.session)
			c.asks("initialize", hello)
			_, l := c.asks("session/new", object{"cwd": n.dir, "mcpServers": []any{}})
			_, cursor := l.Num("result._meta.maestro.cursor")
			p.FailIf(l.Str("result.sessionId") != n.session || !cursor || l.Str("result._meta.maestro.epoch") == "" ||
				lines.At(l.Body, "result._meta.maestro.inControl") != true, "expected session %s with epoch, cursor and control, got %s", n.session, l)
		}),
		scenario("session/directory", "P7", "Another directory is refused", func(p *play) {
			n := p.native("", false)
			c := p.connect("?sessionId=" + n.session)
			c.asks("initialize", hello)
			c.refused("session/new", object{"cwd": "/no/such/directory", "mcpServers": []any{}})
		}),
		scenario("prompt/answer", "P8", "The updates of a prompt come before its answer", func(p *play) {
			n, c := p.begin("")
			before, l := c.asks("session/prompt", prompt(n.session, "hello"))
			shown := lines.Only(before, func(l lines.Line) bool { return isUpdate(l, "agent_thought_chunk", "Prompt: hello") })
			p.FailIf(len(shown) != 1 || shown[0].Str("params.sessionId") != n.session || l.Str("result.stopReason") != "end_turn",
				"expected the text of the agent once and then end_turn, got %s", l)
			p.None(c.During(lines.Quiet), "no more after the answer")
		}),
		scenario("prompt/cursor", "P9", "Updates say how far the client has read", func(p *play) {
			n, c := p.begin("")
			for _, text := range []string{"one", "two"} {
				before := c.last
				c.asks("session/prompt", prompt(n.session, text)) // check judges each update
				p.FailIf(c.last <= before, "expected updates with a cursor after %.0f, got %.0f", before, c.last)
			}
		}),
		scenario("permission/selected", "P10", "The selected option decides", func(p *play) {
			for kind, resolution := range map[string]string{"allow_once": "approved", "reject_once": "denied"} {
				n, c := p.begin("")
				c.request("session/prompt", prompt(n.session, question))
				ask := c.asked()
				c.Send(object{"jsonrpc": "2.0", "id": lines.At(ask.Body, "id"), "result": object{
					"outcome": object{"outcome": "selected", "optionId": c.option(ask, kind)}}})
				n.resolves(resolution)
			}
		}),
		scenario("permission/withdrawn", "P11", "A request is withdrawn when control is taken", func(p *play) {
			n, c := p.begin("")
			c.request("session/prompt", prompt(n.session, question))
			ask := c.asked()
			p.native(n.session, true)
			c.Until("$/cancel_request of the question", func(l lines.Line) bool {
				return l.Str("method") == "$/cancel_request" && lines.At(l.Body, "params.requestId") == lines.At(ask.Body, "id")
			})
		}),
		scenario("cancel/run", "P12", "A cancelled run answers the prompt", func(p *play) {
			n, c := p.begin("")
			id := c.request("session/prompt", prompt(n.session, hang))
			n.runs()
			c.Send(object{"jsonrpc": "2.0", "method": "session/cancel", "params": object{"sessionId": n.session}})
			_, l := c.answer(id)
			p.FailIf(l.Str("result.stopReason") != "cancelled", "expected cancelled, got %s", l)
		}),
		scenario("viewer/refused", "P13", "A viewer sends nothing and is asked nothing", func(p *play) {
			n, c := p.begin("&role=viewer")
			c.refused("session/prompt", prompt(n.session, "hello"))
			p.native(n.session, true).sends(object{"type": "prompt", "content": question})
			c.updates("user_message_chunk", "conformance_approval")
			p.None(lines.Only(c.During(lines.Quiet), isAsk), "no question to a viewer")
		}),
		scenario("beside/prompt", "P14", "What another client does is shown", func(p *play) {
			n, c := p.begin("")
			p.native(n.session, true).sends(object{"type": "prompt", "content": "from the other"})
			c.updates("user_message_chunk", "from the other")
			c.updates("agent_thought_chunk", "Prompt: from the other")
		}),
		scenario("beside/control", "P15", "Another client in control is named, and excludes prompts", func(p *play) {
			n, c := p.begin("")
			before, _ := c.asks("session/prompt", prompt(n.session, "mine"))
			p.native(n.session, true).sends(object{"type": "prompt", "content": "theirs"})
			after := c.updates("user_message_chunk", "theirs")
			held := lines.Only(before, func(l lines.Line) bool { return lines.At(l.Body, "params._meta.maestro.inControl") == true })
			p.FailIf(len(held) == 0 || lines.At(after.Body, "params._meta.maestro.inControl") != false,
				"expected control before and none after the other client took it, got %s and %s", lines.First(held), after)
			c.refused("session/prompt", prompt(n.session, "mine"))
		}),
		scenario("line/hostile", "P16", "Texts that are no requests are answered with errors", func(p *play) {
			c := p.connect("")
			c.asks("initialize", hello)
			for text, want := range map[string]float64{
				"{": -32700, "[]": -32600, "7": -32600, `{"jsonrpc":"2.0","id":"x"}`: -32600, strings.Repeat("[", 1000): -32700,
				`{"jsonrpc":"2.0","id":"x","method":"no/such","params":{}}`:         -32601,
				`{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":[7]}`: -32602,
			} {
				c.Text(text)
				l := c.Next("an error")
				code, _ := l.Num("error.code")
				p.FailIf(code != want, "%.100s: expected error %.0f, got %s", text, want, l)
			}
			c.asks("session/list", object{})
		}),
		scenario("line/frames", "P17", "Wrong frames close the connection", func(p *play) {
			for _, row := range []struct {
				kind websocket.MessageType
				text string
				want int
			}{
				{websocket.MessageBinary, "{}", 1003}, {websocket.MessageText, "{\"\xff\":1}", 1007},
				{websocket.MessageText, `{"x":"` + strings.Repeat("x", 2<<20) + `"}`, 1009},
			} {
				s, resp := p.dial("", websocket.DialOptions{})
				p.FailIf(s == nil, "expected the upgrade to succeed, got status %d", resp.StatusCode)
				_ = s.Write(p.S.Context(), row.kind, []byte(row.text)) // the server may close in the middle
				c := p.join(s)
				c.During(p.S.Config().Patience)
				end, ok := errors.AsType[*conformance.Closed](c.Ended())
				p.FailIf(!ok || end.Code != row.want, "expected a close with %d, got %v", row.want, c.Ended())
			}
		}),
	}
}

// refusesUpgrade expects an upgrade to be refused with one of the statuses.
func (p *play) refusesUpgrade(o websocket.DialOptions, statuses ...int) {
	s, resp := p.dial("", o)
	if s != nil {
		_ = s.Close() // the scenario ends
		p.Fail("expected status %v, but the upgrade succeeded", statuses)
	}
	p.FailIf(!slices.Contains(statuses, resp.StatusCode) || resp.Header.Get("Acp-Connection-Id") != "",
		"expected status %v without an id, got %d", statuses, resp.StatusCode)
}

func isAsk(l lines.Line) bool { return l.Str("method") == "session/request_permission" }

// asked waits for a permission request.
func (c *client) asked() lines.Line {
	_, l := c.Until("session/request_permission", isAsk)
	return l
}

// option returns the id of an option of a kind.
func (c *client) option(ask lines.Line, kind string) any {
	options, _ := lines.At(ask.Body, "params.options").([]any)
	for _, o := range options {
		if option, _ := o.(object); option["kind"] == kind {
			return option["optionId"]
		}
	}
	c.p.Fail("expected an option %s, got %s", kind, ask)
	return nil
}

// resolves waits until the history has how the question ended.
func (n *native) resolves(resolution string) {
	n.awaits("the question to be "+resolution, "history?limit=100", `"resolution":"`+resolution+`"`)
}

// runs waits until a run has begun.
func (n *native) runs() { n.awaits("a run", "state", `"is_responding":true`) }

func (n *native) awaits(what, path, text string) {
	for until := time.Now().Add(n.p.S.Config().Patience); ; time.Sleep(50 * time.Millisecond) {
		status, answer := n.gets(path)
		if status == http.StatusOK && strings.Contains(answer, text) {
			return
		}
		n.p.FailIf(time.Now().After(until), "expected %s, got %d %.300s", what, status, answer)
	}
}
