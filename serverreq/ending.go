package serverreq

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A kind has the rules of one type of request.
type kind struct {
	timeout time.Duration                              // default
	expired contracts.Outcome                          // when the deadline has passed (R62)
	failed  string                                     // the reason if the client reports an error
	legal   map[contracts.Resolver][]contracts.Verdict // how it may end, beside cancelled by the runtime (R52)
}

// kinds has the rules of all types. The default timeout is 1 minute for programs and
// 1 hour for people. A policy approves when the approval mode changes.
var kinds = map[contracts.RequestType]kind{
	contracts.RequestApproval: {
		timeout: time.Hour,
		expired: byPolicy(contracts.VerdictDenied, "Approval request timed out"),
		legal: map[contracts.Resolver][]contracts.Verdict{
			contracts.ResolvedByUser:   {contracts.VerdictApproved, contracts.VerdictDenied},
			contracts.ResolvedByPolicy: {contracts.VerdictApproved, contracts.VerdictDenied},
		},
	},
	contracts.RequestClientTool: {
		timeout: time.Minute,
		expired: byPolicy(contracts.VerdictFailed, "Client tool execution timed out"),
		failed:  "Client tool result reported an error",
		legal: map[contracts.Resolver][]contracts.Verdict{
			contracts.ResolvedByClient: {contracts.VerdictCompleted, contracts.VerdictFailed},
			contracts.ResolvedByPolicy: {contracts.VerdictFailed},
		},
	},
	contracts.RequestMCPElicitation: {
		timeout: time.Hour,
		expired: byPolicy(contracts.VerdictFailed, "MCP elicitation request timed out before the connected client responded."),
		failed:  "MCP elicitation request reported an error",
		legal:   answered,
	},
	contracts.RequestUserInput: {
		timeout: time.Hour,
		expired: byPolicy(contracts.VerdictFailed, "User input request timed out before the connected client responded."),
		failed:  "User input request reported an error",
		legal:   answered,
	},
	contracts.RequestToolRetry: {
		timeout: time.Hour,
		expired: byPolicy(contracts.VerdictCancelled, "Tool retry request timed out before a retry decision was provided."),
		legal: map[contracts.Resolver][]contracts.Verdict{
			contracts.ResolvedByUser:   {contracts.VerdictRetried, contracts.VerdictSkipped, contracts.VerdictAborted},
			contracts.ResolvedByPolicy: {contracts.VerdictCancelled},
		},
	},
}

// answered has the legal endings of a question that a person answers.
var answered = map[contracts.Resolver][]contracts.Verdict{
	contracts.ResolvedByClient: {contracts.VerdictAnswered, contracts.VerdictFailed},
	contracts.ResolvedByPolicy: {contracts.VerdictFailed},
}

func end(verdict contracts.Verdict, by contracts.Resolver, reason string) contracts.Outcome {
	return contracts.Outcome{Verdict: verdict, Reason: reason, By: by}
}

func byPolicy(verdict contracts.Verdict, reason string) contracts.Outcome {
	return end(verdict, contracts.ResolvedByPolicy, reason)
}

// Legal reports whether a request of the type may end with verdict, resolved by by
// (R52).
func Legal(of contracts.RequestType, verdict contracts.Verdict, by contracts.Resolver) bool {
	k, known := kinds[of]
	cancelled := verdict == contracts.VerdictCancelled && by == contracts.ResolvedByRuntime
	return known && (cancelled || slices.Contains(k.legal[by], verdict))
}

// DefaultTimeout returns the default timeout of a request type.
func DefaultTimeout(of contracts.RequestType) time.Duration { return kinds[of].timeout }

// Policy returns how the mode decides an approval without asking (R51).
func Policy(mode contracts.ApprovalMode) (out contracts.Outcome, decided bool) {
	switch mode {
	case contracts.ApprovalAuto:
		return byPolicy(contracts.VerdictApproved, "Auto-approved by policy"), true
	case contracts.ApprovalFail:
		return byPolicy(contracts.VerdictDenied, "Denied by approval policy"), true
	}
	return contracts.Outcome{}, false
}

// answerEnding returns the ending of a request by a client's answer (R54 to R58).
// It ignores the answer's own request type.
func answerEnding(kind contracts.RequestType, a *contracts.ServerRequestResponse) contracts.Outcome {
	switch kind {
	case contracts.RequestApproval:
		return approvalEnding(a)
	case contracts.RequestToolRetry:
		return retryEnding(a)
	}
	e := end(contracts.VerdictAnswered, contracts.ResolvedByClient, "")
	e.Content = a.Content
	if kind == contracts.RequestClientTool {
		e.Verdict = contracts.VerdictCompleted
	}
	if a.IsError {
		e.Verdict, e.Reason = contracts.VerdictFailed, kinds[kind].failed
	}
	return e
}

// approvalEnding returns the ending of an approval. An answer without a decision
// denies (R54). The content is for the agent, such as an AnswerNote.
func approvalEnding(a *contracts.ServerRequestResponse) contracts.Outcome {
	var result contracts.ToolResult
	if a.Result != nil {
		result = *a.Result
	}
	e := end(contracts.VerdictDenied, contracts.ResolvedByUser, cmp.Or(result.Error, a.Reason, "Denied by user"))
	if a.Approved != nil && *a.Approved {
		e.Verdict, e.Reason = contracts.VerdictApproved, cmp.Or(result.Output, a.Reason, "Approved")
	}
	e.Content = a.Content
	return e
}

// retryEnding returns the ending of a tool retry. An answer without an action
// aborts (R56).
func retryEnding(a *contracts.ServerRequestResponse) contracts.Outcome {
	switch a.DecisionAction {
	case contracts.RetryActionRetry:
		return end(contracts.VerdictRetried, contracts.ResolvedByUser, a.Reason)
	case contracts.RetryActionSkip:
		return end(contracts.VerdictSkipped, contracts.ResolvedByUser, a.Reason)
	}
	return end(contracts.VerdictAborted, contracts.ResolvedByUser, a.Reason)
}

// resolve returns the resolution of row, which was removed, with the ending e.
func (t *Table) resolve(row contracts.KeptRequest, e contracts.Outcome, from string, now time.Time) Resolution {
	req := row.Request
	res := Resolution{
		Request: req,
		Event: contracts.ServerRequestResolved{
			RequestID: req.RequestID, RequestType: req.RequestType, CallID: req.CallID,
			Resolution: e.Verdict, Reason: e.Reason, ResolvedBy: e.By,
		},
		Content: e.Content, From: from, At: now, Digest: row.Digest,
	}
	if slices.Contains(contentTypes, req.RequestType) && e.By != contracts.ResolvedByClient {
		res.Content = []contracts.ContentBlock{{Type: "text", Text: e.Reason}}
	}
	t.recent.add(res)
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
