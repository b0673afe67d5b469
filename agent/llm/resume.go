package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
)

// Resume acts on the answer to a question that was asked before the server
// restarted, and lets the model go on. A call that is approved runs with its own
// arguments, if the history has them and clients were shown the same; else with
// what clients were shown, if nothing in that was hidden.
func (a *Agent) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	r := a.newRun()
	r.offers = r.offer(ctx)
	if req.RequestType == contracts.RequestMCPElicitation {
		return r.abandonElicitation(ctx, req)
	}
	c, lost := r.recall(req)
	end := turn.After(c.shown, out.Verdict)
	var result tool.Result
	switch req.RequestType {
	case contracts.RequestApproval:
		result, end = r.decideLate(ctx, c, lost, out)
	case contracts.RequestToolRetry:
		if out.Verdict == contracts.VerdictAborted {
			return r.late(ctx, c, tool.Result{Text: "Failed, and the person aborted the run.", IsError: true}, end, aborted(c.Tool))
		}
		if result = (tool.Result{Text: "Failed before the server was restarted.", IsError: true}); out.Verdict == contracts.VerdictRetried {
			result, end = r.runLate(ctx, c, lost)
		}
	default:
		result = answerOf(req.RequestType, out)
	}
	return r.late(ctx, c, result, end, nil)
}

// recall returns the call that a question was about, and why it cannot be run; ""
// if it can.
func (r *run) recall(req *contracts.ServerRequest) (c *call, lost string) {
	kept, known := r.journal.find(req.CallID)
	c = &call{Call: kept, shown: req.CallID}
	if shown, _ := shownArgs(kept.Args); !known {
		c.Call = model.Call{Tool: req.Tool, Args: argsOf(req)}
		lost = missing(c.Args)
	} else if req.RequestType == contracts.RequestApproval && !sameJSON(shown, req.Args) {
		lost = "what was approved is not what the call would do"
	}
	c.offer = r.offered(c.Tool)
	if c.offer == nil || c.offer.runs == nil {
		lost = "there is no such tool any more"
	}
	return c, lost
}

// argsOf returns the arguments of the call that a question is about.
func argsOf(req *contracts.ServerRequest) json.RawMessage {
	var failed retryArgs
	if req.RequestType != contracts.RequestToolRetry {
		return req.Args
	}
	if err := json.Unmarshal(req.Args, &failed); err != nil {
		return nil
	}
	return failed.Args
}

// missing says what was not shown of arguments; "" if they are all that there was.
func missing(args json.RawMessage) string {
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(args, &object); {
	case err != nil:
		return "its arguments were not kept"
	case bytes.Contains(args, []byte(mask.Mark)):
		return "a secret in its arguments was not kept"
	case object[omittedKey] != nil:
		return "its arguments were too long to be kept"
	}
	return ""
}

// sameJSON reports whether two texts hold the same value.
func sameJSON(a, b json.RawMessage) bool {
	var values [2]any
	for i, text := range []json.RawMessage{a, b} {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// decideLate acts on an approval or a denial.
func (r *run) decideLate(ctx context.Context, c *call, lost string, out contracts.Outcome) (tool.Result, *contracts.ToolEnd) {
	re := r.react(c, out)
	if re.status != "" {
		if err := r.status(ctx, re.status); err != nil {
			r.opts.Log.Error("publish status", slog.Any("err", err))
		}
	}
	if re.no == "" {
		return r.runLate(ctx, c, lost)
	}
	return tool.Result{Text: re.no, IsError: true}, turn.After(c.shown, re.verdict)
}

// runLate runs a call that clients know, unless it is lost or a rule denies it.
func (r *run) runLate(ctx context.Context, c *call, lost string) (tool.Result, *contracts.ToolEnd) {
	end := &contracts.ToolEnd{CallID: c.shown}
	if lost == "" {
		if d, why := r.judge(c); d == deny {
			lost = why
		}
	}
	if lost != "" {
		return tool.Result{Text: "Not run: " + lost + ".", IsError: true}, end
	}
	d := r.perform(ctx, c)
	switch {
	case d.err != nil && ctx.Err() != nil:
		return tool.Result{Text: "Interrupted: it may have run in part.", IsError: true}, end
	case d.err != nil:
		return tool.Result{Text: "Failed: " + shownError(d.err), IsError: true}, end
	}
	if text := shownResult(d); text != "" {
		if err := r.host.Publish(ctx, &contracts.ToolOutput{CallID: c.shown, Content: text}); err != nil {
			r.opts.Log.Error("publish output", slog.Any("err", err))
		}
	}
	end.Success = !d.result.IsError
	return d.result, end
}

// late keeps a result that came after the history was closed over its call,
// shows its end and lets the model go on, unless the run ends with stop.
func (r *run) late(ctx context.Context, c *call, result tool.Result, end *contracts.ToolEnd, stop error) error {
	kept := model.CallResult{ID: c.ID, Text: bounded(result.Text, maxResultBytes), Images: result.Images, IsError: result.IsError}
	rec := record{Amend: &kept}
	if !r.amendable(c.ID) {
		shown, _ := c.show()
		parts := []model.Part{textPart(fmt.Sprintf("The call of %s with %s, which was interrupted, has now ended: %s",
			c.Tool, short(string(shown)), kept.Text))}
		for _, image := range kept.Images {
			parts = append(parts, model.Part{Image: &image})
		}
		rec = record{Message: &model.Message{Role: model.RoleUser, Parts: parts}}
	}
	if err := r.journal.add(rec); err != nil {
		return r.failed(err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, label, _ := c.labels()
	r.Finished(c.Tool, end.Success, label)
	if err := r.host.Publish(ctx, end); err != nil {
		return err
	}
	if stop != nil {
		return stop
	}
	return r.serve(ctx)
}

// amendable reports whether the result of a call is the last that was said.
func (r *run) amendable(id string) bool {
	if id == "" || r.journal.last() != model.RoleUser {
		return false
	}
	last := r.journal.messages[len(r.journal.messages)-1]
	found := false
	for _, p := range last.Parts {
		if p.Result == nil {
			return false // a prompt came after it
		}
		found = found || p.Result.ID == id
	}
	return found
}

// abandonElicitation ends a question of a server that is not waiting any more.
func (r *run) abandonElicitation(ctx context.Context, req *contracts.ServerRequest) error {
	who, _, _ := strings.Cut(strings.TrimPrefix(req.CallID, "mcp_elicitation:"), ":")
	return r.host.Publish(ctx,
		&contracts.Status{Message: "The server " + short(who) + " does not wait for the answer any more: it was asked before a restart"},
		&contracts.ToolEnd{CallID: req.CallID})
}
