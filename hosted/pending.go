package hosted

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// addPending adds the open questions to a state that has none. It uses the
// questions and not the lists of the drained snapshot, so that a client sees
// exactly those that it can answer.
func addPending(st *contracts.State, kept []contracts.KeptRequest) {
	lists := map[contracts.RequestType]*[]contracts.PendingEntry{
		contracts.RequestApproval:       &st.PendingApprovals,
		contracts.RequestClientTool:     &st.PendingClientTools,
		contracts.RequestMCPElicitation: &st.PendingMCPElicitations,
		contracts.RequestUserInput:      &st.PendingUserInputs,
		contracts.RequestToolRetry:      &st.PendingToolRetries,
	}
	for _, kind := range contracts.RequestTypes() {
		for _, k := range kept {
			if k.Request.RequestType != kind {
				continue
			}
			e := pendingEntry(k.Request)
			*lists[kind] = append(*lists[kind], e)
			st.PendingRequests = append(st.PendingRequests, contracts.PendingRequest{
				ID: e.ID(), Kind: kind, Status: "pending", Visibility: "user", SessionID: st.SessionID,
				ToolCallID: e.CallID, CallID: e.CallID, RequestID: e.RequestID, ToolName: e.Tool, Tool: e.Tool,
				DisplayName: e.DisplayName, SummaryLabel: e.SummaryLabel, ActionDescription: e.ActionDescription,
				Args: e.Args, Source: "local",
			})
			track(st, k.Request)
		}
	}
}

// track lists the tool of a question, unless it is listed already: a retry does
// not change the tool's args (R75).
func track(st *contracts.State, r *contracts.ServerRequest) {
	if !slices.ContainsFunc(st.TrackedTools, func(e contracts.PendingEntry) bool { return e.CallID == r.CallID }) {
		st.TrackedTools = append(st.TrackedTools, contracts.PendingEntry{CallID: r.CallID, Tool: r.Tool, Args: r.Args})
	}
}

// pendingEntry returns a question's entry in the state. It has a request id
// only if that differs from the call's, and labels only for an approval (R74).
func pendingEntry(r *contracts.ServerRequest) contracts.PendingEntry {
	e := contracts.PendingEntry{CallID: r.CallID, Tool: r.Tool, Args: r.Args}
	if r.RequestID != r.CallID {
		e.RequestID = r.RequestID
	}
	if r.RequestType == contracts.RequestApproval {
		e.DisplayName, e.SummaryLabel, e.ActionDescription = r.DisplayName, r.SummaryLabel, r.ActionDescription
	}
	return e
}
