package acp

import (
	"cmp"
	"context"
	"encoding/json"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/elicit"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// asksForInput is the reason of a question. The protocol does not say whether
// the question comes from an MCP server behind the program.
const asksForInput = "The agent asks for input"

// elicitation asks the clients an elicitation of the program, or of an MCP
// server behind it. Only the reader calls it; a goroutine that ends with the
// question sends the answer.
//
// The params are decoded as our own type, because the library's types do not
// keep the whole schema.
func (p *peer) elicitation(m rpc.Message) {
	if !m.Asks() {
		return
	}
	var q elicit.Question
	err := decode(m.Params, &q)
	if (q.Mode == "" || q.Mode == elicit.ModeForm) && isNull(q.RequestedSchema) {
		q.RequestedSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	if err == nil {
		p.mu.Lock()
		err = q.Check(abridge.Bytes(p.name, 40))
		p.mu.Unlock()
	}
	if err != nil {
		p.mu.Lock()
		p.status("The agent's question was refused: " + err.Error())
		p.mu.Unlock()
		p.refuse(m.ID, acp.NewInvalidParams(map[string]any{"details": err.Error()}))
		return
	}
	req, err := q.Request(asksForInput)
	if err != nil {
		p.refuse(m.ID, refusal(err))
		return
	}
	ctx, done := p.admit(m)
	if ctx == nil {
		return
	}
	r := p.beginElicitation()
	if r == nil {
		done()
		p.respond(m.ID, elicit.Answer{Action: elicit.Cancel})
		return
	}
	id := m.ID // so that the rest of the message, which may be long, can be freed
	p.serving.Go(func() {
		defer r.work.Done()
		defer done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.ctx, cancel)() // the run may end first
		for again := true; again; {
			var answer elicit.Answer
			out, err := p.a.host.Ask(ctx, req, contracts.AskOptions{})
			if answer, again = p.elicited(r, &q, req, out, err); again {
				req, err = q.Request(asksForInput)
				again = err == nil // cannot fail: the question was encoded before
			}
			if !again {
				p.respond(id, answer)
			}
		}
	})
}

// beginElicitation returns the run to ask in, or nil if there is none.
func (p *peer) beginElicitation() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.active()
	if r == nil {
		p.reportStray("ask for input")
		return nil
	}
	p.endResponse(r)
	r.work.Add(1)
	return r
}

// elicited ends the question's call. It returns the answer for the program, or
// that the question must be asked again. Only a clear answer of a client is
// accepted.
func (p *peer) elicited(r *run, q *elicit.Question, req *contracts.ServerRequest, out contracts.Outcome, err error) (said elicit.Answer, again bool) {
	none := elicit.Answer{Action: elicit.Cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.active() != r || r.stopping {
		return none, false
	}
	var answer *elicit.Answer
	why := cmp.Or(out.Reason, string(out.Verdict))
	if out.Verdict == contracts.VerdictAnswered {
		answer, why = q.Read(out.Content)
		again = answer == nil && q.Again(why)
	}
	if out.Announced { // otherwise the hub has said why nobody was asked
		if answer == nil && !again {
			p.publish(&contracts.Status{Message: "The agent's question was cancelled: " + why})
		}
		p.publish(turn.After(req.CallID, out.Verdict))
	}
	if answer == nil {
		return none, again
	}
	return *answer, false
}
