package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

// Resume acts on the answer to a question that was asked before the server
// restarted, and lets the model go on. An approved call runs with its own arguments
// if the history has them and clients saw the same. Without a history it runs with
// the arguments that clients saw, if nothing in them was hidden.
func (a *Agent) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	r := &run{Agent: a, Turn: turn.New(a.host, a.model, a.provider)}
	r.offers = r.offer(ctx)
	if req.RequestType == contracts.RequestMCPElicitation {
		server, _, _ := strings.Cut(strings.TrimPrefix(req.CallID, "mcp_elicitation:"), ":")
		return r.host.Publish(ctx,
			&contracts.Status{Message: "The server " + short(server) + " does not wait for the answer any more: it was asked before a restart"},
			&contracts.ToolEnd{CallID: req.CallID})
	}
	c, lost := r.recall(req)
	end := turn.After(c.Shown, out.Verdict)
	var err error
	switch {
	case req.RequestType == contracts.RequestApproval:
		var run bool
		if run, err = r.allowed(ctx, c, out); run && err == nil {
			err = r.runLate(ctx, c, lost)
		}
	case req.RequestType != contracts.RequestToolRetry:
		err = r.conclude(ctx, c, answerOf(req.RequestType, out), end)
	case out.Verdict == contracts.VerdictRetried:
		err = r.runLate(ctx, c, lost)
	case out.Verdict == contracts.VerdictAborted:
		if err = r.conclude(ctx, c, tool.Result{Text: "Failed, and the person aborted the run.", IsError: true}, end); err == nil {
			err = aborted(c)
		}
	default:
		err = r.conclude(ctx, c, tool.Result{Text: "Failed before the server was restarted.", IsError: true}, end)
	}
	if err != nil {
		return err
	}
	return r.serve(ctx)
}

// recall returns the call of a question, and why it cannot run; "" if it can.
func (r *run) recall(req *contracts.ServerRequest) (c *call, lost string) {
	kept, known := r.journal.find(req.CallID)
	if !known {
		kept = model.Call{Tool: req.Tool, Args: req.Args, Shown: req.CallID}
		if req.RequestType == contracts.RequestToolRetry {
			var failed retryArgs
			_ = json.Unmarshal(req.Args, &failed) // else there are no arguments
			kept.Args = failed.Args
		}
		lost = missing(kept.Args)
	}
	c = &call{Call: kept, late: true, tool: r.offered(kept.Tool)}
	c.args, c.omitted, c.hides = shownArgs(kept.Args)
	if known && req.RequestType == contracts.RequestApproval && !sameJSON(c.args, req.Args) {
		lost = "what was approved is not what the call would do"
	}
	if !c.runs() {
		lost = "there is no such tool any more"
	}
	return c, lost
}

// missing says which arguments clients did not see; "" if they saw all.
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

// sameJSON reports whether two texts hold the same object.
func sameJSON(a, b json.RawMessage) bool {
	object := objectOf(a)
	return object != nil && reflect.DeepEqual(object, objectOf(b))
}

// runLate runs a call unless it is lost or a rule denies it.
func (r *run) runLate(ctx context.Context, c *call, lost string) error {
	if d, why := r.judge(c); lost == "" && d == deny {
		lost = why
	}
	if lost != "" {
		return r.conclude(ctx, c, tool.Result{Text: "Not run: " + lost + ".", IsError: true}, &contracts.ToolEnd{CallID: c.Shown})
	}
	return r.finish(ctx, r.perform(ctx, c))
}

// lateMessage tells the model how a call ended to which a restart gave a result.
func lateMessage(c *call, result model.CallResult) *model.Message {
	how := "ended"
	if result.IsError {
		how = "failed"
	}
	msg := told(fmt.Sprintf("The call of %s with %s, which was interrupted, has now %s: %s", c.Tool, short(string(c.args)), how, result.Text))
	for _, image := range result.Images {
		msg.Parts = append(msg.Parts, model.Part{Image: &image})
	}
	return msg
}
