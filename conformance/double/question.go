package double

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// ask puts a question to the clients, unless policy or capability decides.
func (r *room) ask(c *client, q *contracts.ServerRequest) {
	switch {
	case q.RequestType == contracts.RequestApproval && r.mode != contracts.ApprovalPrompt:
		return
	case q.RequestType != contracts.RequestApproval && !canAnswer(c, q.RequestType):
		return
	}
	switch {
	case r.s.scripted():
	case q.RequestType == contracts.RequestApproval:
		r.publish(&contracts.ToolCall{CallID: q.CallID, Tool: q.Tool, Args: q.Args, RequiresApproval: true})
	case q.RequestType == contracts.RequestClientTool || q.RequestType == contracts.RequestUserInput:
		r.publish(&contracts.ClientToolRequest{CallID: q.CallID, Tool: q.Tool, Args: q.Args})
	}
	r.questions = append(r.questions, q)
	r.publish(q)
	if r.s.has(RequestTwice) {
		r.publish(q)
	}
}

// canAnswer reports whether a client announced that it answers a type.
func canAnswer(c *client, kind contracts.RequestType) bool {
	return c.hello.Capabilities != nil && slices.Contains(c.hello.Capabilities.ServerRequests, kind)
}

// resolve ends a question.
func (r *room) resolve(q *contracts.ServerRequest, verdict contracts.Verdict, reason string, by contracts.Resolver) {
	if !r.s.has(AcceptsSecondAnswer) {
		r.questions = slices.DeleteFunc(r.questions, func(o *contracts.ServerRequest) bool { return o == q })
	}
	r.publish(&contracts.ServerRequestResolved{RequestID: q.RequestID, RequestType: q.RequestType, CallID: q.CallID,
		Resolution: verdict, Reason: reason, ResolvedBy: by})
	r.settle(q, verdict)
}

func (r *room) cancelQuestions(reason string) {
	for _, q := range slices.Clone(r.questions) {
		r.resolve(q, contracts.VerdictCancelled, reason, contracts.ResolvedByRuntime)
	}
	r.questions = nil
}

// settleApprovals applies a new policy to approvals that wait.
func (r *room) settleApprovals() {
	verdict, reason := contracts.VerdictApproved, "Auto-approved by policy"
	switch r.mode {
	case contracts.ApprovalPrompt:
		return
	case contracts.ApprovalFail:
		verdict, reason = contracts.VerdictDenied, "Denied by approval policy"
	}
	for _, q := range slices.Clone(r.questions) {
		if q.RequestType == contracts.RequestApproval {
			r.resolve(q, verdict, reason, contracts.ResolvedByPolicy)
		}
	}
}

// waiting finds a question.
func (r *room) waiting(id string) *contracts.ServerRequest {
	for _, q := range r.questions {
		if q.RequestID == id {
			return q
		}
	}
	return nil
}

func unknown(what, key, id string) *contracts.Error {
	return refuse(contracts.CodeRequestNotFound, contracts.ErrorTool, fmt.Sprintf("No pending %s found for %s: %s", what, key, id))
}

func (r *room) answerApproval(id, what string, approved bool, result *contracts.ToolResult, cmd contracts.Command) *contracts.Error {
	q := r.waiting(id)
	if q == nil || q.RequestType != contracts.RequestApproval && !r.s.has(NoTypeCheck) {
		return unknown(what, "call_id", id)
	}
	applyCommand(&r.state, cmd)
	if result == nil {
		result = &contracts.ToolResult{}
	}
	if approved {
		r.resolve(q, contracts.VerdictApproved, cmp.Or(result.Output, "Approved"), contracts.ResolvedByUser)
	} else {
		r.resolve(q, contracts.VerdictDenied, cmp.Or(result.Error, "Denied by user"), contracts.ResolvedByUser)
	}
	return nil
}

func (r *room) answerContent(cmd *contracts.ClientToolResult) *contracts.Error {
	q := r.waiting(cmd.CallID)
	if q == nil || q.RequestType == contracts.RequestApproval || q.RequestType == contracts.RequestToolRetry {
		return unknown("client tool request", "call_id", cmd.CallID)
	}
	applyCommand(&r.state, cmd)
	r.complete(q, cmd.IsError)
	return nil
}

// complete ends a question that the client answered with content.
func (r *room) complete(q *contracts.ServerRequest, isError bool) {
	verdict, what := contracts.VerdictAnswered, "User input request"
	switch q.RequestType {
	case contracts.RequestClientTool:
		verdict, what = contracts.VerdictCompleted, "Client tool result"
	case contracts.RequestMCPElicitation:
		what = "MCP elicitation request"
	}
	if isError {
		r.resolve(q, contracts.VerdictFailed, what+" reported an error", contracts.ResolvedByClient)
		return
	}
	r.resolve(q, verdict, "", contracts.ResolvedByClient)
}

func (r *room) respond(cmd *contracts.ServerRequestResponse) *contracts.Error {
	if r.s.scripted() {
		r.respondUnchecked(cmd)
		return nil
	}
	q := r.waiting(cmd.RequestID)
	if q == nil {
		return unknown("server request", "request_id", cmd.RequestID)
	}
	if q.RequestType != cmd.RequestType && !r.s.has(NoTypeCheck) {
		return refuse(contracts.CodeRequestTypeMismatch, contracts.ErrorTool,
			fmt.Sprintf("Pending request %s is %s, not %s", cmd.RequestID, q.RequestType, cmd.RequestType))
	}
	switch cmd.RequestType {
	case contracts.RequestApproval:
		approved := r.s.has(AbsentApproves)
		if cmd.Approved != nil {
			approved = *cmd.Approved
		}
		return r.answerApproval(cmd.RequestID, "approval", approved, cmd.Result, cmd)
	case contracts.RequestToolRetry:
		applyCommand(&r.state, cmd)
		verdict := map[contracts.RetryAction]contracts.Verdict{contracts.RetryActionRetry: contracts.VerdictRetried,
			contracts.RetryActionSkip: contracts.VerdictSkipped}[cmd.DecisionAction]
		r.resolve(q, cmp.Or(verdict, contracts.VerdictAborted), cmd.Reason, contracts.ResolvedByUser)
	default:
		applyCommand(&r.state, cmd)
		r.complete(q, cmd.IsError)
	}
	return nil
}
