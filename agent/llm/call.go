package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	// maxResultBytes bounds what a result tells the model; maxShownBytes what of
	// it clients are shown if it was not streamed.
	maxResultBytes = 100_000
	maxShownBytes  = 32 << 10

	maxLabelChars = 120
)

// An offer is a tool that the model may call.
type offer struct {
	model.Tool
	runs *tool.Tool // nil if a client or a person answers
}

// offer returns the tools of the next turn. Of tools with one name the first
// counts: ours, then those of servers, then the client's.
func (r *run) offer(ctx context.Context) []offer {
	offers := []offer{{Tool: askUser}}
	taken := map[string]bool{askUser.Name: true}
	tools := r.opts.Tools
	if r.opts.MCP != nil {
		tools = append(tools[:len(tools):len(tools)], r.opts.MCP.Tools(ctx)...)
	}
	for _, t := range tools {
		if !taken[t.Name] {
			taken[t.Name] = true
			offers = append(offers, offer{t.Tool, &t})
		}
	}
	if r.opts.ClientTools == nil {
		return offers
	}
	for _, t := range r.opts.ClientTools() {
		if !taken[t.Name] && goodID().MatchString(t.Name) { // which no provider takes otherwise
			taken[t.Name] = true
			offers = append(offers, offer{Tool: t})
		}
	}
	return offers
}

// offered returns the tool of a name in the turn that goes on, or nil.
func (r *run) offered(name string) *offer {
	for i := range r.offers {
		if r.offers[i].Name == name {
			return &r.offers[i]
		}
	}
	return nil
}

// A call is one that the model made, on its way to a result.
type call struct {
	model.Call        // as in the history
	shown      string // the id that clients know
	offer      *offer // nil if there is no such tool
	problem    string // why it cannot be run, for the model; "" if it can

	// display is what clients are shown of the arguments, made when it is first
	// needed, and omitted the bytes that are left out of it.
	display json.RawMessage
	omitted int
	hides   bool // something that looks like a credential

	// announce is the call's first event while it is still to be published; nil if
	// a question has announced it.
	announce *contracts.ToolCall
	started  bool
}

// show returns what clients are shown of the arguments, and how many bytes they are
// not, and notes whether anything in them is hidden.
func (c *call) show() (json.RawMessage, int) {
	if c.display == nil {
		c.display, c.omitted = shownArgs(c.Args)
		c.hides = !bytes.Equal(mask.Args(c.Args), c.Args)
	}
	return c.display, c.omitted
}

// announced makes the call's first event, which is still to be published.
func (c *call) announced() {
	shown, _ := c.show()
	c.announce = &contracts.ToolCall{CallID: c.shown, Tool: c.Tool, Args: shown}
}

func (c *call) gated() bool { return c.offer != nil && c.offer.runs != nil && c.offer.runs.Gated }

// labels says what a call does, for people. Secrets in its arguments are not in
// it.
func (c *call) labels() (title, label, action string) {
	title = c.Tool
	if c.offer == nil || c.offer.runs == nil {
		return title, title, title
	}
	if t := c.offer.runs.Title; t != "" {
		title = short(t)
	}
	label, action = title, title
	if brief := c.offer.runs.Brief; brief != nil {
		shown, _ := c.show()
		label, action = brief(shown)
	}
	return title, short(label), short(action)
}

// short returns the first line of a text, at most so many characters of it.
func short(text string) string {
	return abridge.Line(strings.ToValidUTF8(text, "\ufffd"), maxLabelChars)
}

// calls takes the calls of a reply to their results, in order. Those that only
// look at things run together where they follow one another.
func (r *run) calls(ctx context.Context, calls []*call) error {
	for len(calls) > 0 {
		n := 0
		for n < len(calls) && r.looksOnly(calls[n]) {
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

// looksOnly reports whether a call changes nothing and needs no answer.
func (r *run) looksOnly(c *call) bool {
	if c.problem != "" || c.offer == nil || c.offer.runs == nil || c.gated() || r.recent.times(c) > 0 {
		return false
	}
	d, _ := r.judge(c)
	return d == allow && lacking(c.offer.Tool, c.Args) == ""
}

// one takes a call to its result.
func (r *run) one(ctx context.Context, c *call) error {
	c.announced()
	switch {
	case c.offer == nil:
		return r.refuse(ctx, c, "unknown_tool", "There is no tool "+c.Tool+".")
	case c.problem != "":
		return r.refuse(ctx, c, "invalid_arguments", c.problem)
	case lacking(c.offer.Tool, c.Args) != "":
		return r.refuse(ctx, c, "invalid_arguments", "The argument "+lacking(c.offer.Tool, c.Args)+" is missing.")
	}
	d, why := r.judge(c)
	if d == deny {
		return r.denied(ctx, c, contracts.VerdictDenied, why+".")
	}
	loops := r.recent.times(c) >= maxRepeats
	if loops {
		d, why = ask, fmt.Sprintf("The same call has had the same result %d times in a row", maxRepeats)
	}
	if d == ask {
		asked := subjectOf(r.opts.Workspace, c.Tool, c.Args)
		if look := c.look(); look.IsError && !loops { // whatever is answered
			return r.fruitless(ctx, c, look)
		} else if look.Text != "" && !look.IsError {
			why += ". " + look.Text
		}
		if run, err := r.approve(ctx, c, why, loops); err != nil || !run {
			return err
		}
		if why := r.changed(c, asked); why != "" {
			return r.denied(ctx, c, contracts.VerdictDenied, "Not run: "+why+".")
		}
	}
	switch {
	case c.offer.Name == askUser.Name:
		return r.question(ctx, c)
	case c.offer.runs == nil:
		return r.clientTool(ctx, c)
	}
	return r.finish(ctx, r.perform(ctx, c))
}

// look returns what a call would do, or why it can't.
func (c *call) look() tool.Result {
	if c.offer.runs == nil || c.offer.runs.Look == nil {
		return tool.Result{}
	}
	return c.offer.runs.Look(c.Args)
}

// fruitless ends a call that could not do what it is for, without asking anybody.
func (r *run) fruitless(ctx context.Context, c *call, result tool.Result) error {
	if err := r.start(ctx, c); err != nil {
		return err
	}
	return r.finish(ctx, done{call: c, result: result})
}

// changed says why a call that was approved may not run all the same, "" if it may:
// links may have been laid, or rules made, while it was asked about.
func (r *run) changed(c *call, asked subject) string {
	if d, why := r.judge(c); d == deny {
		return why
	}
	if now := subjectOf(r.opts.Workspace, c.Tool, c.Args); !reflect.DeepEqual(now, asked) {
		return "its path leads elsewhere than when it was asked about"
	}
	return ""
}

// approve asks whether a call may run. A call that repeats itself stops the run
// if there is nobody who looks at it.
func (r *run) approve(ctx context.Context, c *call, why string, loops bool) (bool, error) {
	title, label, action := c.labels()
	shown, omitted := c.show()
	if omitted > 0 {
		why += fmt.Sprintf(". Its arguments are too long: %d bytes of them are NOT SHOWN", omitted)
	}
	if c.hides {
		why += ". Not all is shown: a value that looks like a credential is hidden"
	}
	out, err := r.host.Ask(ctx, &contracts.ServerRequest{
		RequestID: c.shown, RequestType: contracts.RequestApproval, CallID: c.shown,
		Tool: c.Tool, DisplayName: title, SummaryLabel: label, ActionDescription: action,
		Args: shown, Reason: why,
	}, contracts.AskOptions{})
	if err != nil {
		return false, r.stopped(ctx, err)
	}
	if out.Announced {
		c.announce = nil
	}
	if loops && out.By == contracts.ResolvedByPolicy {
		stuck := &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTool, Message: "Stopped: the model repeats itself. " + why + ": " + label}
		if err := r.denied(ctx, c, contracts.VerdictDenied, "Not run: "+why+"."); err != nil {
			return false, err
		}
		return false, stuck
	}
	return r.allowed(ctx, c, out)
}

// allowed acts on the answer to an approval, and reports whether the call runs.
func (r *run) allowed(ctx context.Context, c *call, out contracts.Outcome) (bool, error) {
	re := r.react(c, out)
	if re.status != "" {
		if err := r.status(ctx, re.status); err != nil {
			return false, err
		}
	}
	if out.By == contracts.ResolvedByUser {
		r.recent = repetition{} // somebody has looked at it
	}
	if re.no == "" {
		return true, nil
	}
	return false, errors.Join(r.denied(ctx, c, re.verdict, re.no), r.withdrawn(ctx, out))
}

// withdrawn returns why the run ends with a question that the runtime cancelled:
// it does that when it stops the run.
func (r *run) withdrawn(ctx context.Context, out contracts.Outcome) error {
	switch {
	case out.Verdict != contracts.VerdictCancelled || out.By != contracts.ResolvedByRuntime:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "Run stopped: a question was cancelled", Type: contracts.ErrorCancelled}
}

// stopped returns why the run ends on an error: because it was stopped, if it
// was.
func (r *run) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.failed(err)
}

// refuse ends a call that cannot be run and tells the model why.
func (r *run) refuse(ctx context.Context, c *call, code, why string) error {
	return r.conclude(ctx, c, tool.Result{Text: why, IsError: true}, &contracts.ToolEnd{CallID: c.shown, ErrorCode: code})
}

// denied ends a call that may not run and tells the model why.
func (r *run) denied(ctx context.Context, c *call, verdict contracts.Verdict, why string) error {
	return r.conclude(ctx, c, tool.Result{Text: why, IsError: true}, turn.After(c.shown, verdict))
}

// conclude keeps the result of a call and shows its end.
func (r *run) conclude(ctx context.Context, c *call, result tool.Result, end *contracts.ToolEnd) error {
	if err := r.result(c, result); err != nil {
		return r.failed(err)
	}
	_, label, _ := c.labels()
	r.Finished(c.Tool, end.Success, label)
	r.recent.note(c, result)
	events := []contracts.Event{end}
	if c.announce != nil {
		events = []contracts.Event{c.announce, end}
		c.announce = nil
	}
	return r.host.Publish(ctx, events...)
}

// result makes the result of a call part of the history.
func (r *run) result(c *call, result tool.Result) error {
	if result.Text == "" && len(result.Images) == 0 {
		result.Text = "(nothing)"
	}
	return r.journal.add(resultRecord(model.CallResult{
		ID: c.ID, Text: bounded(result.Text, maxResultBytes), Images: result.Images, IsError: result.IsError,
	}))
}
