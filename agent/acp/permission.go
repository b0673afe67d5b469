package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// maxOptions bounds the options of one question. More are not shown, and the
// question is answered with one of the first.
const maxOptions = 32

// A choice is an option of a question, as clients see it in "_acp".
type choice struct {
	ID   string `json:"id"` // a digest of one that is too long to be shown
	Name string `json:"name"`
	Kind string `json:"kind"`

	id string // as the program knows it
}

func (c choice) allows() bool  { return strings.HasPrefix(c.Kind, "allow") }
func (c choice) rejects() bool { return strings.HasPrefix(c.Kind, "reject") }
func (c choice) always() bool  { return strings.HasSuffix(c.Kind, "_always") }

// A wish is what an answer may carry beside its verdict: an option, or that one is
// to be chosen which holds for the session.
type wish struct {
	option  string
	session bool
}

// A question is a permission that the program asks for. c and r are guarded by
// peer.mu.
type question struct {
	r       *run
	c       *call
	own     bool // the question has a call of its own: c was announced before
	options []choice
	ask     *contracts.ServerRequest
}

// permission puts a question of the program to the clients. Only its reader calls
// it; the answer comes from a goroutine that ends with the question.
func (p *peer) permission(m rpc.Message) {
	if m.ID == nil {
		return
	}
	var params struct {
		Call    callUpdate `json:"toolCall"`
		Options list[struct {
			ID   string `json:"optionId"`
			Name string `json:"name"`
			Kind string `json:"kind"`
		}] `json:"options"`
	}
	if err := decode(m.Params, &params); err != nil || len(params.Options.kept) == 0 {
		p.refuse(m.ID, acp.NewInvalidParams("a permission needs options"))
		return
	}
	var options []choice
	for _, o := range params.Options.kept[:min(len(params.Options.kept), maxOptions)] {
		options = append(options, choice{ID: key(o.ID), Name: shown(o.Name, maxLabel), Kind: shown(o.Kind, maxKind), id: o.ID})
	}
	ctx, done := p.admit(m)
	if ctx == nil {
		return
	}
	q := p.pose(&params.Call, options, len(params.Options.kept)-len(options)+params.Options.more)
	if q == nil {
		done()
		p.respond(m.ID, chosen(nil))
		return
	}
	id := m.ID // the rest of the message, which may be long, is not kept meanwhile
	p.serving.Go(func() {
		defer q.r.work.Done()
		defer done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(q.r.ctx, cancel)() // the run may end before
		out, err := p.a.host.Ask(ctx, q.ask, contracts.AskOptions{})
		p.respond(id, chosen(p.decide(q, out, err)))
	})
}

// pose makes a question of a permission, nil if it cannot be asked. It has more
// options than can be shown.
func (p *peer) pose(u *callUpdate, options []choice, more int) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.active()
	if r == nil {
		p.stray("ask for permission")
		return nil
	}
	c := p.find(r, u)
	if c == nil {
		return nil
	}
	q := &question{r: r, c: c, options: options, own: c.stage != held}
	if c.stage == ended { // its texts are gone; what the question says is all there is
		q.c = &call{id: c.id, kind: c.kind, stage: ended}
	}
	status := q.c.status
	q.c.merge(u)
	q.c.status = status // it runs when it is told to, not because it asks
	id, about := q.c.id, ""
	if q.own {
		id, about = turn.ID("call_"), q.c.id
	} else {
		q.c.release()
		q.c.stage = asking
	}
	p.pause(r)
	args, cut := q.c.args(options, about)
	if more > 0 {
		cut = append(cut, fmt.Sprintf("%d options", more))
	}
	q.ask = &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestApproval, CallID: id, Tool: q.c.kind,
		DisplayName: display(q.c.kind), SummaryLabel: q.c.label(), ActionDescription: q.c.aim(),
		Args: args, Reason: reason(options, cut),
	}
	r.work.Add(1)
	return q
}

// reason says what the clients are asked, and plainly if they do not see all that
// they would approve.
func reason(options []choice, cut []string) string {
	text := "The agent asks for permission"
	if len(cut) > 0 {
		text += ". Not all of it is shown, what is too long is left out: " + strings.Join(cut, ", ")
	}
	for _, may := range []struct {
		verb, answer string
		fits         func(choice) bool
	}{{"allow", "an approval", choice.allows}, {"deny", "a denial", choice.rejects}} {
		if o := lasting(options, may.fits); o != nil {
			text += fmt.Sprintf(". There is no option to %s it only once: %s means %q, which holds for more than this call", may.verb, may.answer, cmp.Or(o.Name, o.Kind))
		}
	}
	return text
}

// lasting returns the option that an answer without a wish is, of those that fit,
// if it holds for more than one call.
func lasting(options []choice, fits func(choice) bool) *choice {
	var first *choice
	for i, o := range options {
		switch {
		case !fits(o):
		case !o.always():
			return nil
		case first == nil:
			first = &options[i]
		}
	}
	return first
}

// display is a kind as a name for people.
func display(kind string) string {
	r, size := utf8.DecodeRuneInString(kind)
	return string(unicode.ToUpper(r)) + kind[size:]
}

// decide shows what an answer means for the call and returns the option that it
// is, nil if there was none.
func (p *peer) decide(q *question, out contracts.Outcome, err error) *choice {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || out.Verdict == contracts.VerdictCancelled {
		if err != nil && !errors.Is(err, context.Canceled) {
			p.log.Debug("ask for agent process", "error", err)
		}
		p.drop(q)
		return nil
	}
	option, remark := choose(q.options, out)
	if option == nil {
		remark = cmp.Or(remark, "The agent offers no option that means "+string(out.Verdict)) + ": the question was cancelled"
	}
	if remark != "" {
		p.publish(&contracts.Status{Message: remark})
	}
	if option != nil && option.always() && !out.Announced { // nobody saw what the question says of it
		p.publish(&contracts.Status{Message: fmt.Sprintf("The agent was answered %q, which holds for more than one call: it offers nothing else", cmp.Or(option.Name, option.Kind))})
	}
	allowed := option != nil && !option.rejects() && out.Verdict == contracts.VerdictApproved
	p.show(q, out, allowed)
	return option
}

// drop ends a question without an answer. If the run is being stopped the call is
// the hub's to close, because the question may wait for the next process.
func (p *peer) drop(q *question) {
	if q.own || q.c.stage != asking || p.active() != q.r || q.r.stopping {
		return
	}
	p.end(q.r, q.c, &contracts.ToolEnd{CallID: q.c.id})
}

// show shows what follows from an answer. p.mu is held.
func (p *peer) show(q *question, out contracts.Outcome, allowed bool) {
	if p.active() != q.r {
		return
	}
	end := turn.After(q.ask.CallID, contracts.VerdictDenied)
	if q.own {
		if allowed {
			end = turn.After(q.ask.CallID, contracts.VerdictApproved)
		}
		if out.Announced {
			p.publish(end)
		}
		return
	}
	if q.c.stage != asking {
		return
	}
	if !out.Announced {
		p.publish(&contracts.ToolCall{CallID: q.c.id, Tool: q.c.kind, Args: q.ask.Args})
	}
	if allowed {
		p.begun(q.r, q.c)
		return
	}
	p.end(q.r, q.c, end)
}

// choose returns the option that an answer means, nil if there is none, and what
// is to be said of it if that is not what the answer asked for. A wish that cannot
// be followed for certain is no consent: a slip must not become one.
func choose(options []choice, out contracts.Outcome) (option *choice, remark string) {
	approved := out.Verdict == contracts.VerdictApproved
	w, err := wishes(out)
	if err == nil && w.option != "" {
		for i, o := range options {
			if o.ID == w.option && (approved || !o.allows()) {
				return &options[i], ""
			}
		}
		if !slices.ContainsFunc(options, func(o choice) bool { return o.ID == w.option }) {
			err = fmt.Errorf("the agent offers no option %q", head(w.option, maxKind))
		}
	}
	if err != nil {
		remark = fmt.Sprintf("The answer counts as a denial: %v", err)
		approved, w = false, wish{}
	}
	option = nearest(options, approved, w.session)
	if err != nil && option != nil && option.always() {
		return nil, remark // nor a denial for good
	}
	if option != nil && w.session && !option.always() {
		remark = fmt.Sprintf("The agent offers no such answer for the session: it was answered %q, which holds for this call only", cmp.Or(option.Name, option.Kind))
	}
	return option, remark
}

// nearest returns the option that allows or rejects for as long as is wanted, or
// else for another time: that is better than none, as the only way to say so.
func nearest(options []choice, allow, session bool) (second *choice) {
	for i, o := range options {
		if allow && !o.allows() || !allow && !o.rejects() {
			continue
		}
		if o.always() == session {
			return &options[i]
		}
		if second == nil {
			second = &options[i]
		}
	}
	return second
}

// wishes returns what an answer carries beside its verdict, in its reason or in
// its content: clients that let people type have the first only. What looks like
// a wish and cannot be read is an error.
func wishes(out contracts.Outcome) (wish, error) {
	texts := []string{out.Reason}
	for _, b := range out.Content {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	for _, text := range texts {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") {
			return readWish(text)
		}
	}
	return wish{}, nil
}

// readWish reads one wish. It may have a reason, which the program cannot be told.
func readWish(text string) (w wish, err error) {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return w, errors.New("it begins as a JSON object and is none")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, isText := fields[name].(string)
		switch {
		case fields[name] == nil, name == "reason" && isText:
		case name == "option_id" && isText:
			w.option = value
		case name == "remember" && value == "session":
			w.session = true
		case name == "rule":
			return w, errors.New("rules are not for this agent")
		default:
			return w, fmt.Errorf("%q is no wish that is known, or has another value than it may have", head(name, maxKind))
		}
	}
	return w, nil
}

// chosen is the answer to a permission.
func chosen(o *choice) acp.RequestPermissionResponse {
	if o == nil {
		return acp.RequestPermissionResponse{Outcome: acp.RequestPermissionOutcome{Cancelled: &acp.RequestPermissionOutcomeCancelled{}}}
	}
	return acp.RequestPermissionResponse{Outcome: acp.RequestPermissionOutcome{
		Selected: &acp.RequestPermissionOutcomeSelected{OptionId: acp.PermissionOptionId(o.id)},
	}}
}
