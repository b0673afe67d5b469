package llm

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

const (
	// maxResultBytes bounds a result for the model; maxShownBytes bounds a result
	// for clients that was not streamed.
	maxResultBytes = 100_000
	maxShownBytes  = 32 << 10

	maxLabelChars = 120
)

// offer returns the tools of the next turn. A client or a person answers a tool
// without Run. If tools have the same name the first counts: ours, then those of
// servers, then the client's.
func (r *run) offer(ctx context.Context) []tool.Tool {
	all := slices.Concat([]tool.Tool{{Tool: askUser}}, r.opts.Tools, r.opts.ServerTools(ctx))
	for _, t := range r.opts.ClientTools() {
		if goodID().MatchString(t.Name) { // no provider takes another name
			all = append(all, tool.Tool{Tool: t})
		}
	}
	taken := map[string]bool{}
	return slices.DeleteFunc(all, func(t tool.Tool) bool {
		again := taken[t.Name]
		taken[t.Name] = true
		return again || r.opts.Offers != nil && !r.opts.Offers(t.Name)
	})
}

// offered returns the tool of a name in the current turn, or nil.
func (r *run) offered(name string) *tool.Tool {
	if i := slices.IndexFunc(r.offers, func(t tool.Tool) bool { return t.Name == name }); i >= 0 {
		return &r.offers[i]
	}
	return nil
}

// A call is a call of the model on its way to a result.
type call struct {
	model.Call            // as in the history
	tool       *tool.Tool // nil if there is no such tool
	problem    string     // why it cannot run, for the model; "" if it can
	late       bool       // a restart gave it a result already

	args    json.RawMessage // as clients see them
	omitted int             // bytes that are not in args
	hides   bool            // args hide something that looks like a credential

	announce *contracts.ToolCall // its first event; nil once it is published
	started  bool
}

// runs reports whether the agent runs the call, and no client or person answers it.
func (c *call) runs() bool { return c.tool != nil && c.tool.Run != nil }

// labels says what a call does, for people, without secrets.
func (c *call) labels() (title, label, action string) {
	title, label, action = c.Tool, c.Tool, c.Tool
	if c.tool != nil && c.tool.Title != "" {
		title = short(c.tool.Title)
		label, action = title, title
	}
	if c.tool != nil && c.tool.Brief != nil {
		label, action = c.tool.Brief(c.args)
	}
	return title, short(label), short(action)
}

// short returns the first line of a text, at most maxLabelChars of it.
func short(text string) string { return abridge.Line(valid(text), maxLabelChars) }

// calls runs the calls of a reply in order. Neighbours that only read run together.
func (r *run) calls(ctx context.Context, calls []*call) error {
	for len(calls) > 0 {
		n := 0
		for n < len(calls) && r.readsOnly(calls[n]) {
			n++
		}
		var err error
		if n > 1 {
			err = r.together(ctx, calls[:n])
		} else {
			n, err = 1, r.one(ctx, calls[0])
		}
		if err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// readsOnly reports whether a call changes nothing and needs no answer.
func (r *run) readsOnly(c *call) bool {
	if c.problem != "" || !c.runs() || c.tool.Gated || r.recent.times(c) > 0 {
		return false
	}
	d, _ := r.judge(c)
	return d == allow && lacking(c.tool.Tool, c.Args) == ""
}

// one brings a call to its result.
func (r *run) one(ctx context.Context, c *call) error {
	switch {
	case c.tool == nil:
		return r.refuse(ctx, c, "unknown_tool", "There is no tool "+c.Tool+".")
	case c.problem != "":
		return r.refuse(ctx, c, "invalid_arguments", c.problem)
	case lacking(c.tool.Tool, c.Args) != "":
		return r.refuse(ctx, c, "invalid_arguments", "The argument "+lacking(c.tool.Tool, c.Args)+" is missing.")
	}
	d, why := r.judge(c)
	if d == deny {
		return r.denied(ctx, c, contracts.VerdictDenied, why+".")
	}
	repeats := r.recent.times(c) >= maxRepeats
	if repeats {
		d, why = ask, fmt.Sprintf("The same call has had the same result %d times in a row", maxRepeats)
	}
	if d == ask {
		asked := subjectOf(r.opts.Workspace, c.Tool, c.Args)
		if c.tool.Look != nil {
			look := c.tool.Look(c.Args)
			switch {
			case look.IsError && !repeats: // no answer would change that
				if err := r.start(ctx, c); err != nil {
					return err
				}
				return r.finish(ctx, done{call: c, result: look})
			case look.Text != "" && !look.IsError:
				why += ". " + look.Text
			}
		}
		if run, err := r.approve(ctx, c, asked, why, repeats); err != nil || !run {
			return err
		}
	}
	switch {
	case c.Tool == askUser.Name:
		return r.question(ctx, c)
	case !c.runs():
		return r.clientTool(ctx, c)
	}
	return r.finish(ctx, r.perform(ctx, c))
}

// ask asks a client about a call. suffix tells the questions of a call apart.
func (r *run) ask(ctx context.Context, c *call, suffix string, req *contracts.ServerRequest) (contracts.Outcome, error) {
	req.RequestID, req.CallID, req.Tool = c.Shown+suffix, c.Shown, c.Tool
	out, err := r.host.Ask(ctx, req, contracts.AskOptions{})
	switch {
	case err != nil && ctx.Err() != nil:
		return out, context.Cause(ctx)
	case err != nil:
		return out, r.failed(err)
	}
	if out.Announced {
		c.announce = nil
	}
	return out, nil
}

// approve asks whether a call may run. A repetition that nobody sees ends the run. A
// call whose subject is no longer the one that was asked about does not run.
func (r *run) approve(ctx context.Context, c *call, asked subject, why string, repeats bool) (bool, error) {
	title, label, action := c.labels()
	reason := why
	if c.omitted > 0 {
		reason += fmt.Sprintf(". Its arguments are too long: %d bytes of them are NOT SHOWN", c.omitted)
	}
	if c.hides {
		reason += ". Not all is shown: a value that looks like a credential is hidden"
	}
	out, err := r.ask(ctx, c, "", &contracts.ServerRequest{
		RequestType: contracts.RequestApproval, DisplayName: title, SummaryLabel: label, ActionDescription: action,
		Args: c.args, Reason: reason,
	})
	if err != nil {
		return false, err
	}
	if repeats && out.By == contracts.ResolvedByPolicy {
		err := r.denied(ctx, c, contracts.VerdictDenied, "Not run: "+reason+".")
		if err == nil {
			err = ended(contracts.ErrorTool, "Stopped: the model repeats itself. "+reason+": "+label)
		}
		return false, err
	}
	if run, err := r.allowed(ctx, c, out); err != nil || !run {
		return false, err
	}
	// A link or a rule may be new since the question.
	d, why := r.judge(c)
	if d != deny {
		if reflect.DeepEqual(subjectOf(r.opts.Workspace, c.Tool, c.Args), asked) {
			return true, nil
		}
		why = "its path leads elsewhere than when it was asked about"
	}
	return false, r.denied(ctx, c, contracts.VerdictDenied, "Not run: "+why+".")
}

// allowed acts on the answer to an approval, and reports whether the call runs. A yes
// with a note that cannot be read is no consent: it may have been meant for another
// call, or with a condition.
func (r *run) allowed(ctx context.Context, c *call, out contracts.Outcome) (bool, error) {
	if out.By == contracts.ResolvedByUser {
		r.recent = repetition{} // a person has looked at it
	}
	approved, status := out.Verdict == contracts.VerdictApproved, ""
	note, reason, err := out.Note()
	if err == nil && note.OptionID != "" {
		err = errors.New("there are no options to choose from")
	}
	unreadable := err
	if err == nil {
		status, err = r.heed(c, approved, note)
	}
	if err != nil {
		status = "Not remembered: " + shownError(err)
	}
	verdict, no := out.Verdict, "" // no tells the model why the call does not run
	switch {
	case !approved:
		no = "Not run: the request was " + string(out.Verdict) + " by " + string(out.By) + "."
		if reason != "" {
			no += " Reason: " + reason
		}
	case unreadable != nil:
		verdict = contracts.VerdictDenied
		no = "Not run: the person's answer could not be read. If the call is still wanted, make it again, so that they are asked again."
		status = "Not run: the answer is not understood: " + shownError(unreadable) + `. Want a plain yes, or one such as {"remember":"session"}`
	}
	if status != "" {
		if err := r.status(ctx, status); err != nil {
			return false, err
		}
	}
	if no == "" {
		return true, nil
	}
	return false, errors.Join(r.denied(ctx, c, verdict, no), r.withdrawn(ctx, out))
}

// withdrawn returns why the run ends if the runtime cancelled a question to stop it.
func (r *run) withdrawn(ctx context.Context, out contracts.Outcome) error {
	switch {
	case out.Verdict != contracts.VerdictCancelled || out.By != contracts.ResolvedByRuntime:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return ended(contracts.ErrorCancelled, "Run stopped: a question was cancelled")
}

// refuse ends a call that cannot be run and tells the model why.
func (r *run) refuse(ctx context.Context, c *call, code, why string) error {
	return r.conclude(ctx, c, tool.Result{Text: why, IsError: true}, &contracts.ToolEnd{CallID: c.Shown, ErrorCode: code})
}

// denied ends a call that may not run and tells the model why.
func (r *run) denied(ctx context.Context, c *call, verdict contracts.Verdict, why string) error {
	return r.conclude(ctx, c, tool.Result{Text: why, IsError: true}, turn.After(c.Shown, verdict))
}

// conclude keeps the result of a call and shows its end.
func (r *run) conclude(ctx context.Context, c *call, result tool.Result, end *contracts.ToolEnd) error {
	if err := r.keep(c, result); err != nil {
		return err
	}
	_, label, _ := c.labels()
	r.Finished(c.Tool, end.Success, label)
	r.recent.note(c, result)
	return r.host.Publish(ctx, c.announced(end)...)
}

// announced returns an event of a call, after its first event if that is still due.
func (c *call) announced(ev contracts.Event) []contracts.Event {
	if c.announce == nil {
		return []contracts.Event{ev}
	}
	first := c.announce
	c.announce = nil
	return []contracts.Event{first, ev}
}

// keep makes the result of a call part of the history.
func (r *run) keep(c *call, result tool.Result) error {
	if result.Text == "" && len(result.Images) == 0 {
		result.Text = "(nothing)"
	}
	kept := model.CallResult{ID: c.ID, Text: bounded(result.Text, maxResultBytes), Images: result.Images, IsError: result.IsError}
	if c.late {
		return r.add(record{Message: lateMessage(c, kept)})
	}
	return r.add(resultRecord(kept))
}

// maxRepeats is how often a call may have the same result in a row unasked.
const maxRepeats = 3

// A repetition counts how often the last call had the same result in a row.
type repetition struct {
	call, result [sha256.Size]byte
	count        int
}

// times returns how often the last call was c, with the same result.
func (r *repetition) times(c *call) int {
	if r.call == c.sum() {
		return r.count
	}
	return 0
}

func (r *repetition) note(c *call, result tool.Result) {
	text, _ := json.Marshal(result) // text and bytes can be encoded
	now := repetition{c.sum(), sha256.Sum256(text), 1}
	if r.call == now.call && r.result == now.result {
		now.count += r.count
	}
	*r = now
}

func (c *call) sum() [sha256.Size]byte {
	return sha256.Sum256([]byte(c.Tool + "\x00" + c.problem + "\x00" + string(c.Args)))
}
