package serverreq

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An ending is a way for a request to end.
type ending struct {
	verdict contracts.Verdict
	by      contracts.Resolver
	reason  string
	content []contracts.ContentBlock // of the client's answer
	isError bool                     // of the client's answer
}

// Legal reports whether a request of the type may end with verdict, resolved by by
// (R52). A policy approves when the approval mode changes.
func Legal(kind contracts.RequestType, verdict contracts.Verdict, by contracts.Resolver) bool {
	type pair struct {
		verdict contracts.Verdict
		by      contracts.Resolver
	}
	var legal []pair
	switch kind {
	case contracts.RequestApproval:
		legal = []pair{
			{contracts.VerdictApproved, contracts.ResolvedByUser},
			{contracts.VerdictDenied, contracts.ResolvedByUser},
			{contracts.VerdictApproved, contracts.ResolvedByPolicy},
			{contracts.VerdictDenied, contracts.ResolvedByPolicy},
		}
	case contracts.RequestClientTool:
		legal = []pair{
			{contracts.VerdictCompleted, contracts.ResolvedByClient},
			{contracts.VerdictFailed, contracts.ResolvedByClient},
			{contracts.VerdictFailed, contracts.ResolvedByPolicy},
		}
	case contracts.RequestMCPElicitation, contracts.RequestUserInput:
		legal = []pair{
			{contracts.VerdictAnswered, contracts.ResolvedByClient},
			{contracts.VerdictFailed, contracts.ResolvedByClient},
			{contracts.VerdictFailed, contracts.ResolvedByPolicy},
		}
	case contracts.RequestToolRetry:
		legal = []pair{
			{contracts.VerdictRetried, contracts.ResolvedByUser},
			{contracts.VerdictSkipped, contracts.ResolvedByUser},
			{contracts.VerdictAborted, contracts.ResolvedByUser},
			{contracts.VerdictCancelled, contracts.ResolvedByPolicy},
		}
	default:
		return false
	}
	legal = append(legal, pair{contracts.VerdictCancelled, contracts.ResolvedByRuntime})
	return slices.Contains(legal, pair{verdict, by})
}

// DefaultTimeout returns the default timeout of a request type: 1 minute for
// programs, 1 hour for people.
func DefaultTimeout(kind contracts.RequestType) time.Duration {
	if kind == contracts.RequestClientTool {
		return time.Minute
	}
	return time.Hour
}

// expiryEnding returns the ending of a request whose deadline has passed (R62).
func expiryEnding(kind contracts.RequestType) ending {
	end := ending{verdict: contracts.VerdictFailed, by: contracts.ResolvedByPolicy}
	switch kind {
	case contracts.RequestApproval:
		end.verdict, end.reason = contracts.VerdictDenied, "Approval request timed out"
	case contracts.RequestClientTool:
		end.reason = "Client tool execution timed out"
	case contracts.RequestMCPElicitation:
		end.reason = "MCP elicitation request timed out before the connected client responded."
	case contracts.RequestUserInput:
		end.reason = "User input request timed out before the connected client responded."
	case contracts.RequestToolRetry:
		end.verdict, end.reason = contracts.VerdictCancelled, "Tool retry request timed out before a retry decision was provided."
	}
	return end
}

// cancelEnding returns the ending of a request that is cancelled with its run or
// runtime.
func cancelEnding(reason string) ending {
	return ending{verdict: contracts.VerdictCancelled, by: contracts.ResolvedByRuntime, reason: reason}
}

// policyEnding returns the ending of an approval in a mode that does not ask.
func policyEnding(mode contracts.ApprovalMode) (end ending, decided bool) {
	switch mode {
	case contracts.ApprovalAuto:
		return ending{verdict: contracts.VerdictApproved, by: contracts.ResolvedByPolicy, reason: "Auto-approved by policy"}, true
	case contracts.ApprovalFail:
		return ending{verdict: contracts.VerdictDenied, by: contracts.ResolvedByPolicy, reason: "Denied by approval policy"}, true
	}
	return ending{}, false
}

// answerEnding returns the ending of a request by a client's answer (R54 to R58).
// It ignores the answer's own request type.
func answerEnding(kind contracts.RequestType, a *contracts.ServerRequestResponse) ending {
	switch kind {
	case contracts.RequestApproval:
		return approvalEnding(a)
	case contracts.RequestToolRetry:
		return retryEnding(a)
	}
	end := ending{verdict: contracts.VerdictAnswered, by: contracts.ResolvedByClient, content: a.Content, isError: a.IsError}
	if kind == contracts.RequestClientTool {
		end.verdict = contracts.VerdictCompleted
	}
	if a.IsError {
		end.verdict, end.reason = contracts.VerdictFailed, errorReason(kind)
	}
	return end
}

// approvalEnding returns the ending of an approval. An answer without a decision
// denies (R54). The content is for the agent, such as an AnswerNote.
func approvalEnding(a *contracts.ServerRequestResponse) ending {
	var result contracts.ToolResult
	if a.Result != nil {
		result = *a.Result
	}
	if a.Approved != nil && *a.Approved {
		return ending{verdict: contracts.VerdictApproved, by: contracts.ResolvedByUser, content: a.Content, reason: cmp.Or(result.Output, a.Reason, "Approved")}
	}
	return ending{verdict: contracts.VerdictDenied, by: contracts.ResolvedByUser, content: a.Content, reason: cmp.Or(result.Error, a.Reason, "Denied by user")}
}

// retryEnding returns the ending of a tool retry. An answer without an action
// aborts (R56).
func retryEnding(a *contracts.ServerRequestResponse) ending {
	end := ending{verdict: contracts.VerdictAborted, by: contracts.ResolvedByUser, reason: a.Reason}
	switch a.DecisionAction {
	case contracts.RetryActionRetry:
		end.verdict = contracts.VerdictRetried
	case contracts.RetryActionSkip:
		end.verdict = contracts.VerdictSkipped
	}
	return end
}

// errorReason returns the reason of a request whose client reported an error.
func errorReason(kind contracts.RequestType) string {
	switch kind {
	case contracts.RequestMCPElicitation:
		return "MCP elicitation request reported an error"
	case contracts.RequestUserInput:
		return "User input request reported an error"
	}
	return "Client tool result reported an error"
}

// resolve returns the resolution of row with this ending.
func (e ending) resolve(row Row, from string, now time.Time) Resolution {
	req := row.Request
	res := Resolution{
		Request: req,
		Event: contracts.ServerRequestResolved{
			RequestID: req.RequestID, RequestType: req.RequestType, CallID: req.CallID,
			Resolution: e.verdict, Reason: e.reason, ResolvedBy: e.by,
		},
		Content: e.content, IsError: e.isError,
		From: from, Opened: row.Opened, At: now,
	}
	if slices.Contains(contentTypes, req.RequestType) && e.by != contracts.ResolvedByClient {
		res.Content = []contracts.ContentBlock{{Type: "text", Text: e.reason}}
		res.IsError = true
	}
	return res
}

// contentTypes are the request types whose answer is content. client_tool_result
// can answer them.
var contentTypes = []contracts.RequestType{
	contracts.RequestClientTool, contracts.RequestMCPElicitation, contracts.RequestUserInput,
}

// legacyTypes returns the types that a legacy answer cannot distinguish from kind.
func legacyTypes(kind contracts.RequestType) []contracts.RequestType {
	if slices.Contains(contentTypes, kind) {
		return contentTypes
	}
	return []contracts.RequestType{kind}
}

// Outcome returns the resolution as the agent's outcome.
func (r *Resolution) Outcome() contracts.Outcome {
	return contracts.Outcome{
		Verdict: r.Event.Resolution, Reason: r.Event.Reason, By: r.Event.ResolvedBy,
		Content: r.Content, Announced: true,
	}
}
