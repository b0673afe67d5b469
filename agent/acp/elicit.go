package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// elicitationTool is the tool that the wire has for elicitations.
const elicitationTool = "mcp_elicitation"

// What became of an elicitation.
const (
	elicitAccept  = "accept"
	elicitDecline = "decline"
	elicitCancel  = "cancel"
)

// An elicited is the answer to an elicitation, of clients and to the program.
type elicited struct {
	Action  string                     `json:"action"`
	Content map[string]json.RawMessage `json:"content,omitempty"`
}

// An elicitation is a question of the program, or of an MCP server behind it, as
// clients see it. What the program sends is passed on as it is: the types of the
// library keep neither the whole schema nor what the question is about.
type elicitation struct {
	ServerName    string          `json:"serverName"`
	RequestID     string          `json:"requestId"`
	Mode          string          `json:"mode"`
	Message       string          `json:"message"`
	Schema        json.RawMessage `json:"requestedSchema,omitempty"`
	URL           string          `json:"url,omitempty"`
	ElicitationID string          `json:"elicitationId,omitempty"`
}

// elicitation puts an elicitation to the clients. Only the reader calls it; the
// answer comes from a goroutine that ends with the question.
func (p *peer) elicitation(m rpc.Message) {
	if m.ID == nil {
		return
	}
	var e elicitation
	err := decode(m.Params, &e)
	if e.Mode == "" {
		e.Mode = "form" // as in MCP, where it came later
	}
	if err != nil || e.Mode != "form" && e.Mode != "url" {
		p.refuse(m.ID, acp.NewInvalidParams("the elicitation is neither a form nor a URL"))
		return
	}
	ctx, done := p.admit(m)
	if ctx == nil {
		return
	}
	r, req := p.poseElicitation(&e)
	if r == nil {
		done()
		p.respond(m.ID, elicited{Action: elicitCancel})
		return
	}
	p.serving.Go(func() {
		defer r.work.Done()
		defer done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.ctx, cancel)() // the run may end before
		out, err := p.a.host.Ask(ctx, req, contracts.AskOptions{})
		p.respond(m.ID, p.elicited(r, req, out, err))
	})
}

// poseElicitation makes a question of an elicitation. r is nil if there is no run
// to ask in.
func (p *peer) poseElicitation(e *elicitation) (r *run, req *contracts.ServerRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r = p.active(); r == nil {
		p.stray("ask for input")
		return nil, nil
	}
	p.pause(r)
	e.ServerName, e.RequestID = head(p.name, 40), turn.ID("elicit_")
	if isNull(e.Schema) {
		e.Schema = nil
		if e.Mode == "form" {
			e.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
	}
	id := elicitationTool + ":" + e.ServerName + ":" + e.RequestID
	r.work.Add(1)
	return r, &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestMCPElicitation, CallID: id, Tool: elicitationTool,
		Args: encode(e), Reason: "MCP server requested additional user input",
	}
}

// elicited ends the call that the question was, and returns the answer for the
// program. Nothing but a clear answer of a client is one.
func (p *peer) elicited(r *run, req *contracts.ServerRequest, out contracts.Outcome, err error) elicited {
	answer, why := elicited{Action: elicitCancel}, ""
	if err == nil {
		answer, why = verdictOf(out)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.active() != r || r.stopping {
		return elicited{Action: elicitCancel}
	}
	if out.Announced { // else the hub has said why nobody was asked
		if why != "" {
			p.publish(&contracts.Status{Message: "The agent's question was cancelled: " + why})
		}
		p.publish(turn.After(req.CallID, out.Verdict))
	}
	return answer
}

// verdictOf returns the answer that an outcome is, and why if it is none.
func verdictOf(out contracts.Outcome) (answer elicited, why string) {
	answer = elicited{Action: elicitCancel}
	if out.Verdict != contracts.VerdictAnswered {
		return answer, cmp.Or(out.Reason, string(out.Verdict))
	}
	read, err := readElicited(out.Content)
	if err != nil {
		return answer, err.Error()
	}
	return read, ""
}

// readElicited reads a client's answer.
func readElicited(content []contracts.ContentBlock) (elicited, error) {
	var answer elicited
	if len(content) == 0 || content[0].Type != "text" || json.Unmarshal([]byte(content[0].Text), &answer) != nil {
		return answer, errors.New("the answer cannot be read")
	}
	switch answer.Action {
	case elicitAccept:
		for name, value := range answer.Content {
			if !elementary(value) {
				return answer, fmt.Errorf("the answer's %s is neither text, a number, a boolean nor a list of texts", head(name, 80))
			}
		}
		return answer, nil
	case elicitDecline, elicitCancel:
		answer.Content = nil
		return answer, nil
	}
	return answer, errors.New("the answer has no known action")
}

// elementary reports whether a value is one that a form can have.
func elementary(raw json.RawMessage) bool {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return false
	}
	switch v := value.(type) {
	case string, float64, bool:
		return true
	case []any:
		for _, e := range v {
			if _, ok := e.(string); !ok {
				return false
			}
		}
		return true
	}
	return false
}
