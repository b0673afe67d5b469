package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// maxOptions bounds the options of one question. Further ones are not shown and
// cannot be selected.
const maxOptions = 32

// A question is a permission request of the program. peer.mu guards c and r.
type question struct {
	r       *run
	c       *call
	first   bool // the question announces the call, which was not announced before
	options contracts.ApprovalOptions
	ask     *contracts.ServerRequest
	partial bool            // ask does not show all of the request as it was sent
	earlier <-chan struct{} // closed when the previous question about the call has ended; nil if there was none
	ended   chan struct{}   // closed when this question has ended
}

// permission asks the clients a permission request of the program. Only its
// reader calls it; a goroutine that ends with the question sends the answer.
func (p *peer) permission(m rpc.Message) {
	var params struct {
		Call    callUpdate `json:"toolCall"`
		Options list[struct {
			ID   string `json:"optionId"`
			Name string `json:"name"`
			Kind string `json:"kind"`
		}] `json:"options"`
	}
	if decode(m.Params, &params); len(params.Options.kept) == 0 {
		p.refuse(m.ID, acp.NewInvalidParams("a permission needs options"))
		return
	}
	var options contracts.ApprovalOptions // as clients see them in "_acp", with digests for ids that are too long
	var ids []string                      // as the program knows them
	more := max(len(params.Options.kept)-maxOptions, 0) + params.Options.more
	altered := more > 0
	for _, o := range params.Options.kept[:min(len(params.Options.kept), maxOptions)] {
		option := contracts.ApprovalOption{ID: key(o.ID), Name: shown(o.Name, maxLabel), Kind: shown(o.Kind, maxKind)}
		altered = altered || option.Name != o.Name || option.Kind != o.Kind
		options = append(options, option)
		ids = append(ids, o.ID)
	}
	p.prepare(m, func() (*run, handler) {
		q := p.pose(m.Params, &params.Call, options, more, altered)
		if q == nil {
			return nil, func(context.Context, *run) (any, error) { return chosen(nil, -1), nil }
		}
		return q.r, func(ctx context.Context, _ *run) (any, error) {
			defer close(q.ended)
			out, err := p.put(ctx, q)
			return chosen(ids, p.decide(q, out, err)), nil
		}
	})
}

// put asks the clients, one question about a call after the other. If the call
// has ended by then, the question is not asked and counts as denied.
func (p *peer) put(ctx context.Context, q *question) (contracts.Outcome, error) {
	if q.earlier != nil {
		select {
		case <-q.earlier:
		case <-ctx.Done():
			return contracts.Outcome{}, context.Cause(ctx)
		}
		p.mu.Lock()
		over := q.c.stage == ended
		p.mu.Unlock()
		if over {
			return contracts.Outcome{Verdict: contracts.VerdictDenied}, nil
		}
	}
	return p.a.host.Ask(ctx, q.ask, contracts.AskOptions{Truncated: q.partial})
}

// pose makes a question of a permission request, or nil if it cannot be asked.
// raw is all of the request. more is the number of options that are not shown, and
// altered says that they are not shown as they were sent.
//
// A question about an announced call gets its own id. A call that has ended
// begins again.
func (p *peer) pose(raw []byte, u *callUpdate, options contracts.ApprovalOptions, more int, altered bool) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.active()
	if r == nil {
		p.reportStray("ask for permission")
		return nil
	}
	c := p.find(r, u)
	if c == nil {
		return nil
	}
	if c.stage == ended {
		c = &call{
			id: turn.ID("call_"), kind: c.kind, title: c.title, clipped: c.clipped, locations: c.locations, elsewhere: c.elsewhere,
			sent: c.sent, altered: c.altered,
		}
		r.calls[key(u.ID)] = c
	}
	q := &question{r: r, c: c, options: options, first: c.stage == held, earlier: c.asked, ended: make(chan struct{})}
	c.asked = q.ended
	c.questions++
	status, content, early := c.status, c.content, c.early
	c.take(raw)
	c.merge(u)
	c.status = status // the program, not the question, sets the status
	id := c.id
	p.endResponse(r)
	args, cut, partial := c.args(options, altered)
	if q.first {
		c.release()
		c.stage = asking
	} else {
		id = turn.ID("req_")
		c.content, c.early = content, early // content of the question is not output of the call
	}
	if more > 0 {
		cut = append(cut, fmt.Sprintf("%d options", more))
	}
	q.partial = partial
	q.ask = &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestApproval, CallID: c.id, Tool: c.kind,
		DisplayName: display(c.kind), SummaryLabel: c.label(), ActionDescription: c.description(),
		Args: args, Reason: reason(options, cut),
	}
	r.work.Add(1)
	return q
}

// reason returns the question's text. It says what clients do not see of what
// they would approve.
func reason(options contracts.ApprovalOptions, cut []string) string {
	text := "The agent asks for permission"
	if len(cut) > 0 {
		text += ". Not all of it is shown, what is too long is left out: " + strings.Join(cut, ", ")
	}
	for _, may := range []struct {
		verb, answer string
		approved     bool
	}{{"allow", "an approval", true}, {"deny", "a denial", false}} {
		if i := options.Meant(may.approved, contracts.AnswerNote{}); i >= 0 && options[i].Always() {
			text += fmt.Sprintf(". There is no option to %s it only once: %s means %q, which holds for more than this call", may.verb, may.answer, nameOf(options[i]))
		}
	}
	return text
}

// nameOf returns the name of an option for people.
func nameOf(o contracts.ApprovalOption) string { return cmp.Or(o.Name, o.Kind) }

// display returns a kind as a name for people.
func display(kind string) string {
	r, size := utf8.DecodeRuneInString(kind)
	return string(unicode.ToUpper(r)) + kind[size:]
}

// decide publishes what an answer means for the call and returns the index of
// its option, -1 if there is none.
func (p *peer) decide(q *question, out contracts.Outcome, err error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { // the end of the call may have waited for this
		q.c.questions--
		if q.c.stage == started && p.active() == q.r {
			p.progress(q.r, q.c)
		}
	}()
	announces := q.first && q.c.stage == asking && p.active() == q.r
	if err != nil || out.Verdict == contracts.VerdictCancelled {
		if err != nil && !errors.Is(err, context.Canceled) {
			p.log.Debug("cannot ask a question of the agent process", "error", err)
		}
		// If the run is being stopped, the hub closes the call, because the question
		// may wait for the next process.
		if announces && !q.r.stopping {
			p.end(q.r, q.c, &contracts.ToolEnd{CallID: q.c.id})
		}
		return -1
	}
	i, remark := choose(q.options, out)
	var option contracts.ApprovalOption
	if i >= 0 {
		option = q.options[i]
	} else {
		remark = cmp.Or(remark, "The agent offers no option that means "+string(out.Verdict)) + ": the question was cancelled"
	}
	if remark != "" {
		p.publish(&contracts.Status{Message: remark})
	}
	if option.Always() && !out.Announced { // no client saw the question's reason
		p.publish(&contracts.Status{Message: fmt.Sprintf("The agent was answered %q, which holds for more than one call: it offers nothing else", nameOf(option))})
	}
	if announces && !out.Announced {
		p.publish(&contracts.ToolCall{CallID: q.c.id, Tool: q.c.kind, Args: q.ask.Args})
	}
	switch allowed := i >= 0 && !option.Rejects() && out.Verdict == contracts.VerdictApproved; {
	case !announces: // the program reports the rest of a running call
	case allowed:
		p.begun(q.r, q.c)
	default:
		p.end(q.r, q.c, turn.After(q.c.id, contracts.VerdictDenied))
	}
	return i
}

// choose returns the index of the option that an answer means, -1 if there is
// none, and a remark if the option is not what the answer asked for. A note
// that is not understood counts as a denial, so that a mistake is never
// consent.
func choose(options contracts.ApprovalOptions, out contracts.Outcome) (i int, remark string) {
	approved := out.Verdict == contracts.VerdictApproved
	w, _, err := out.Note()
	switch {
	case w.Rule != "":
		err = errors.New("rules are not for this agent")
	case w.OptionID != "" && options.Index(w.OptionID) < 0:
		err = fmt.Errorf("the agent offers no option %q", abridge.Bytes(w.OptionID, maxKind))
	}
	if err != nil {
		remark = fmt.Sprintf("The answer counts as a denial: %v", err)
		approved, w = false, contracts.AnswerNote{}
	}
	i = options.Meant(approved, w)
	if i < 0 || err != nil && options[i].Always() { // a lasting denial is not chosen either
		return -1, remark
	}
	if o := options[i]; w.Remember != "" && w.OptionID == "" && !o.Always() {
		remark = fmt.Sprintf("The agent offers no such answer for the session: it was answered %q, which holds for this call only", nameOf(o))
	}
	return i, remark
}

// chosen returns the answer to a permission request: the option at i by its id,
// or none.
func chosen(ids []string, i int) acp.RequestPermissionResponse {
	outcome := acp.NewRequestPermissionOutcomeCancelled()
	if i >= 0 {
		outcome = acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(ids[i]))
	}
	return acp.RequestPermissionResponse{Outcome: outcome}
}

// elicitation asks the clients an elicitation of the program, or of an MCP
// server behind it. Only the reader calls it; a goroutine that ends with the
// question sends the answer.
//
// The params are decoded as our own type, because the library's types do not
// keep the whole schema.
func (p *peer) elicitation(m rpc.Message) {
	var q elicit.Question
	decode(m.Params, &q)
	if (q.Mode == "" || q.Mode == elicit.ModeForm) && isNull(q.RequestedSchema) {
		q.RequestedSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	p.mu.Lock()
	err := q.Check(abridge.Bytes(p.name, 40))
	if err != nil {
		p.status("The agent's question was refused: " + err.Error())
	}
	p.mu.Unlock()
	if err != nil {
		p.refuse(m.ID, acp.NewInvalidParams(map[string]any{"details": err.Error()}))
		return
	}
	p.prepare(m, func() (*run, handler) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r := p.active()
		if r == nil {
			p.reportStray("ask for input")
			return nil, func(context.Context, *run) (any, error) { return elicit.Answer{Action: elicit.Cancel}, nil }
		}
		p.endResponse(r)
		r.work.Add(1)
		return r, func(ctx context.Context, r *run) (any, error) { return p.elicit(ctx, r, &q), nil }
	})
}

// elicit asks a checked question and ends its calls. Only a clear answer of a
// client is accepted; any other outcome cancels the question.
func (p *peer) elicit(ctx context.Context, r *run, q *elicit.Question) elicit.Answer {
	// The protocol does not say whether an MCP server behind the program asks.
	answer, out, why, err := q.Put("The agent asks for input", func(req *contracts.ServerRequest) (contracts.Outcome, error) {
		out, err := p.a.host.Ask(ctx, req, contracts.AskOptions{})
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err != nil:
		case p.active() != r || r.stopping:
			err = errors.New("the run has ended")
		case out.Announced: // otherwise the hub has said why nobody was asked
			p.publish(turn.After(req.CallID, out.Verdict))
		}
		return out, err
	})
	if answer != nil {
		return *answer
	}
	if err == nil && out.Announced {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.status("The agent's question was cancelled: " + why)
	}
	return elicit.Answer{Action: elicit.Cancel}
}
