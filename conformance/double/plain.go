package double

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// plain answers a prompt as an agent with one tool would:
//
//	say TEXT   says TEXT
//	work       speaks for some seconds
//	ask        runs its tool, which needs approval
func (r *room) plain(c *client, content string) {
	verb, rest, _ := strings.Cut(content, " ")
	switch verb {
	case "work":
		r.respondStart()
		go r.stream(r.run, 250, 20*time.Millisecond) // ends with its chunks or its run
	case "ask":
		r.useTool(c)
	default:
		r.conclude(rest)
	}
}

// useTool calls the tool as far as policy lets it.
func (r *room) useTool(c *client) {
	call, args := fmt.Sprintf("call_%d", r.runs), json.RawMessage(`{"command":"ls"}`)
	if r.mode == contracts.ApprovalPrompt || r.s.has(AsksAnyway) {
		r.run.call = call
		mode := r.mode
		r.mode = contracts.ApprovalPrompt
		r.ask(c, &contracts.ServerRequest{RequestID: call, RequestType: contracts.RequestApproval, CallID: call, Tool: "bash", Args: args, Reason: "It may change files"})
		r.mode = mode
		return
	}
	r.publish(&contracts.ToolCall{CallID: call, Tool: "bash", Args: args})
	r.perform(call, r.mode == contracts.ApprovalAuto)
}

// settle goes on with a run whose question has ended.
func (r *room) settle(q *contracts.ServerRequest, verdict contracts.Verdict) {
	if r.run == nil || r.run.call != q.CallID {
		return
	}
	r.run.call = ""
	if verdict == contracts.VerdictCancelled {
		r.publish(&contracts.ToolEnd{CallID: q.CallID}) // what cancelled it ends the run
		return
	}
	r.perform(q.CallID, verdict == contracts.VerdictApproved)
}

// perform ends a call, and the run with it.
func (r *room) perform(call string, allowed bool) {
	if allowed || r.s.has(StartsDenied) {
		r.publish(&contracts.ToolStart{CallID: call})
		r.publish(&contracts.ToolOutput{CallID: call, Content: "notes.md\n"})
	}
	if allowed || !r.s.has(ForgetsDenied) {
		r.publish(&contracts.ToolEnd{CallID: call, Success: allowed})
	}
	if r.s.has(EndsCallsTwice) {
		r.publish(&contracts.ToolEnd{CallID: call, Success: allowed})
	}
	r.run.tools.ToolsUsed = []string{"bash"}
	if r.s.has(UnsortedTools) {
		r.run.tools.ToolsUsed = []string{"bash", "bash"}
	}
	if allowed {
		r.run.tools.CallsSucceeded++
	} else {
		r.run.tools.CallsFailed++
	}
	r.conclude("Done.")
}

// conclude gives a response of one text and ends the run.
func (r *room) conclude(text string) {
	r.respondStart()
	r.run.chunks++
	r.publish(&contracts.ResponseChunk{ResponseID: r.run.open, Content: text})
	r.endRun("")
}
