package conformance

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// callingTools and its like are the needs of scenarios in which the agent calls tools of clients.
var (
	callingTools = Needs{Transport: Anywhere, Triggers: true, Seed: true,
		Asks: []contracts.RequestType{contracts.RequestClientTool}}
	callingToolsOnSocket  = Needs{Transport: Socket, Triggers: true, Seed: true, Asks: callingTools.Asks}
	callingToolsNetworked = Needs{Transport: Networked, Triggers: true, Seed: true, Asks: callingTools.Asks}
)

// offers judges the tools that clients announce in hello and run for the
// agent: 3.1, R29, R58, D8.
func offers() []Scenario {
	return []Scenario{
		callingTools.pilot("offer/announced", "3.1 R29", "The agent is offered the tools of the controller's latest hello", func(s *Session, d *pilot) {
			d.offered("3.1")
			d.announces("3.1", s.announcing(contracts.RoleController, "lint", "open_file"))
			d.offered("3.1", "lint", "open_file")
			d.announces("3.1", s.announcing(contracts.RoleController, "format"))
			d.offered("R29", "format")
			d.announces("3.1", s.hello(contracts.RoleController))
			d.offered("R29")
		}),
		callingTools.pilot("offer/called", "R58 R59", "A call of an announced tool is a request to the controller, and its answer ends it", func(s *Session, d *pilot) {
			d.announces("3.1", s.announcing(contracts.RoleController, "lint"))
			d.offered("3.1", "lint")
			q := d.calledTool("call-lint", "lint")
			got := show(q.at("args"))
			s.failIf(got != `{"path":"a.txt"}`, "R59", "expected the arguments of the call in the request, got %s", got)
			d.tell("R58", toolAnswer("call-lint"))
			d.resolved("R58", q, "completed", "client")
			d.refused(toolAnswer("call-lint"), unknownRefusal("R53", "call-lint"))
		}),
		callingTools.pilot("offer/malformed", "3.1", "Tools that no agent could be offered are refused, and those before stay", func(s *Session, d *pilot) {
			d.announces("3.1", s.announcing(contracts.RoleController, "lint"))
			for _, bad := range badTools() {
				h := s.hello(contracts.RoleController)
				h.ClientTools = bad
				d.announcesInVain(h)
			}
			d.offered("3.1", "lint")
		}),
		callingTools.pilot("offer/without-capability", "3.1", "Who does not take client_tool requests cannot announce tools", func(s *Session, d *pilot) {
			h := s.announcing(contracts.RoleController, "lint")
			h.Capabilities = &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}}
			d.announcesInVain(h)
			d.offered("3.1")
		}),
		callingToolsOnSocket.pilot("offer/of-a-viewer", "R27 D8", "The agent is not offered what a viewer announces", func(s *Session, d *pilot) {
			s.attach("vera", entry{role: contracts.RoleViewer, hello: s.announcing(contracts.RoleViewer, "peek")})
			d.offered("R27")
			d.announces("3.1", s.announcing(contracts.RoleController, "lint"))
			d.offered("D8", "lint")
		}),
		callingToolsNetworked.pilot("offer/take-over", "D8 A27", "With control the offer changes, and what was called waits for the new controller", func(s *Session, alice *pilot) {
			alice.announces("3.1", s.announcing(contracts.RoleController, "lint"))
			q := alice.calledTool("open", "lint")
			bob := s.successor("bob")
			bob.offered("D8")
			bob.announces("3.1", s.announcing(contracts.RoleController, "format"))
			bob.offered("D8", "format")
			s.waits("D8", bob.now(), "open", true)
			alice.refused(toolAnswer("open"), notHolder("A27"))
			bob.tell("D8", toolAnswer("open"))
			for _, p := range []*Peer{alice.p, bob.p} {
				p.await("D8", 0, resolved(q.str("request_id")).with("resolution", "completed").with("resolved_by", "client"))
			}
		}),
	}
}

// announcing is a hello of a role with these tools.
func (s *Session) announcing(role contracts.Role, names ...string) *contracts.Hello {
	h := s.hello(role)
	if role == contracts.RoleViewer {
		h.Capabilities = &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestClientTool}}
	}
	for _, name := range names {
		h.ClientTools = append(h.ClientTools, contracts.ClientTool{
			Name: name, Description: "Does " + name + ".", InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`),
		})
	}
	return h
}

func (d *pilot) announces(rule string, h *contracts.Hello) {
	from := len(d.p.log)
	if d.c != nil {
		d.c.hello(h).ok(rule)
	} else {
		d.p.hello(h)
	}
	d.p.await(rule, from, message("hello_ok"))
}

// announcesInVain says a hello that must be refused.
func (d *pilot) announcesInVain(h *contracts.Hello) {
	d.p.watch.hellos++ // a wrong hello_ok is judged here
	d.refused(h, refusal{rule: "3.1", kind: contracts.ErrorProtocol, code: contracts.CodeBadRequest})
}

// offered fails unless the agent says that these are the tools of clients that it
// is offered.
func (d *pilot) offered(rule string, names ...string) {
	const said = "Client tools: "
	if names == nil {
		names = []string{}
	}
	d.prompt(trigger("client_tools", struct{}{}))
	f := d.awaits(rule, message("status").where("that answers the prompt", func(f *Frame) bool {
		return strings.HasPrefix(f.str("message"), said) || strings.HasPrefix(f.str("message"), "Prompt: ")
	}))
	switch got, known := strings.CutPrefix(f.str("message"), said); {
	case !known:
		d.s.skip("the conformance agent does not say which tools it is offered")
	case got != string(encode(names)):
		d.s.fail(rule, "expected the agent to be offered %s, got %s", encode(names), got)
	}
}

// calledTool has the agent call a tool of the client, and returns the request.
func (d *pilot) calledTool(id, tool string) *Frame {
	d.prompt(d.s.question(contracts.RequestClientTool, id, tool))
	return d.awaits("R59", requested(id).with("request_type", contracts.RequestClientTool).with("tool", tool))
}

func toolAnswer(id string) contracts.Command {
	return &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestClientTool, Content: []contracts.ContentBlock{{Type: "text", Text: "3 problems"}}}
}

func badTools() [][]contracts.ClientTool {
	object := json.RawMessage(`{"type":"object"}`)
	named := func(names ...string) (tools []contracts.ClientTool) {
		for _, name := range names {
			tools = append(tools, contracts.ClientTool{Name: name, InputSchema: object})
		}
		return tools
	}
	many := make([]string, contracts.MaxClientTools+1)
	for i := range many {
		many[i] = fmt.Sprintf("tool_%d", i)
	}
	large := named("large")
	large[0].Description = strings.Repeat("x", contracts.MaxClientToolBytes)
	return [][]contracts.ClientTool{
		named(""), named("open file"), named(strings.Repeat("a", 65)), named("lint", "lint"),
		{{Name: "lint", InputSchema: json.RawMessage(`[]`)}}, named(many...), large,
	}
}
