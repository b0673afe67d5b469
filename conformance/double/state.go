package double

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// freshState has lists that are empty, not null.
func freshState() contracts.State {
	var st contracts.State
	clearWork(&st)
	return st
}

// clearWork empties what an interrupt empties.
func clearWork(st *contracts.State) {
	st.CurrentResponse, st.IsResponding = nil, false
	st.PendingRequests = []contracts.PendingRequest{}
	for _, list := range lists(st) {
		*list = []contracts.PendingEntry{}
	}
	st.TrackedTools, st.ActiveTools = []contracts.PendingEntry{}, []contracts.ActiveTool{}
	st.ActiveUtilityCommands, st.ActiveFileWatches = []contracts.ActiveCommand{}, []contracts.ActiveWatch{}
}

// lists returns the five pending lists in canonical order.
func lists(st *contracts.State) []*[]contracts.PendingEntry {
	return []*[]contracts.PendingEntry{&st.PendingApprovals, &st.PendingClientTools, &st.PendingMCPElicitations,
		&st.PendingUserInputs, &st.PendingToolRetries}
}

// listOf returns the pending list of a type.
func listOf(st *contracts.State, kind contracts.RequestType) *[]contracts.PendingEntry {
	return lists(st)[slices.Index(contracts.RequestTypes(), kind)]
}

// put replaces the entry with the same call, as the newest. Slices are not
// changed in place: snapshots may be in the making.
func put(list []contracts.PendingEntry, e contracts.PendingEntry) []contracts.PendingEntry {
	return append(drop(list, e.CallID), e)
}

func drop(list []contracts.PendingEntry, id string) []contracts.PendingEntry {
	kept := []contracts.PendingEntry{}
	for _, e := range list {
		if e.ID() != id && e.CallID != id {
			kept = append(kept, e)
		}
	}
	return kept
}

// apply folds an event into the state (maestro-messages 4.2).
func apply(st *contracts.State, ev contracts.Event) {
	switch ev := ev.(type) {
	case *contracts.Ready:
		st.ProtocolVersion, st.Model, st.Provider, st.IsReady = ev.ProtocolVersion, ev.Model, ev.Provider, true
		st.SessionID = contracts.NullableString(ev.SessionID)
	case *contracts.SessionInfo:
		st.SessionID, st.Cwd, st.GitBranch = contracts.NullableString(ev.SessionID), ev.Cwd, contracts.NullableString(ev.GitBranch)
	case *contracts.ResponseStart:
		st.CurrentResponse, st.IsResponding = &contracts.CurrentResponse{ResponseID: ev.ResponseID}, true
	case *contracts.ResponseChunk:
		if cur := st.CurrentResponse; cur != nil && cur.ResponseID == ev.ResponseID {
			next := *cur
			next.Text += ev.Content
			st.CurrentResponse = &next
		}
	case *contracts.ResponseEnd:
		st.LastResponseDurationMS, st.LastTTFTMS = &ev.DurationMS, ev.TTFTMS
		st.CurrentResponse, st.IsResponding = nil, false
	case *contracts.ToolCall:
		e := contracts.PendingEntry{CallID: ev.CallID, Tool: ev.Tool, Args: ev.Args}
		st.TrackedTools = put(st.TrackedTools, e)
		if ev.RequiresApproval {
			st.PendingApprovals = put(st.PendingApprovals, e)
		}
	case *contracts.ToolStart:
		name := "unknown"
		for _, t := range st.TrackedTools {
			if t.CallID == ev.CallID {
				name = t.Tool
			}
		}
		st.ActiveTools = append(idle(st.ActiveTools, ev.CallID), contracts.ActiveTool{CallID: ev.CallID, Tool: name})
	case *contracts.ToolOutput:
		st.ActiveTools = slices.Clone(st.ActiveTools)
		for i := range st.ActiveTools {
			if st.ActiveTools[i].CallID == ev.CallID {
				st.ActiveTools[i].Output += ev.Content
			}
		}
	case *contracts.ToolEnd:
		st.ActiveTools, st.TrackedTools = idle(st.ActiveTools, ev.CallID), drop(st.TrackedTools, ev.CallID)
		for _, list := range lists(st) {
			*list = drop(*list, ev.CallID)
		}
	case *contracts.ClientToolRequest:
		e := contracts.PendingEntry{CallID: ev.CallID, Tool: ev.Tool, Args: ev.Args}
		st.TrackedTools = put(st.TrackedTools, e)
		kind := contracts.RequestClientTool
		if ev.Tool == "ask_user" {
			kind = contracts.RequestUserInput
		}
		*listOf(st, kind) = put(*listOf(st, kind), e)
	case *contracts.ServerRequest:
		e := contracts.PendingEntry{CallID: ev.CallID, Tool: ev.Tool, Args: ev.Args}
		if ev.RequestID != ev.CallID {
			e.RequestID = ev.RequestID
		}
		tracked := slices.ContainsFunc(st.TrackedTools, func(t contracts.PendingEntry) bool { return t.CallID == ev.CallID })
		if !tracked || ev.RequestType != contracts.RequestToolRetry {
			st.TrackedTools = put(st.TrackedTools, contracts.PendingEntry{CallID: ev.CallID, Tool: ev.Tool, Args: ev.Args})
		}
		*listOf(st, ev.RequestType) = put(*listOf(st, ev.RequestType), e)
	case *contracts.ServerRequestResolved:
		resolved(st, ev)
	case *contracts.ErrorEvent:
		st.LastError, st.LastErrorType = &ev.Message, ev.ErrorType
	case *contracts.Status:
		st.LastStatus = &ev.Message
	}
	unify(st)
}

// idle returns the tools but one.
func idle(list []contracts.ActiveTool, call string) []contracts.ActiveTool {
	kept := []contracts.ActiveTool{}
	for _, t := range list {
		if t.CallID != call {
			kept = append(kept, t)
		}
	}
	return kept
}

func resolved(st *contracts.State, ev *contracts.ServerRequestResolved) {
	*listOf(st, ev.RequestType) = drop(*listOf(st, ev.RequestType), ev.RequestID)
	var untrack bool
	switch ev.RequestType {
	case contracts.RequestApproval:
		untrack = ev.Resolution != contracts.VerdictApproved
	case contracts.RequestClientTool:
		untrack = ev.Resolution == contracts.VerdictCancelled
	case contracts.RequestUserInput, contracts.RequestMCPElicitation:
		untrack = ev.Resolution != contracts.VerdictAnswered
	}
	if untrack {
		st.TrackedTools = drop(st.TrackedTools, ev.CallID)
	}
}

// applyCommand folds an accepted command into the state (4.3). What answers
// change, their resolutions change too.
func applyCommand(st *contracts.State, cmd contracts.Command) {
	switch cmd.(type) {
	case *contracts.Prompt:
		st.CurrentResponse, st.LastError, st.LastErrorType, st.LastStatus = nil, nil, "", nil
		st.IsResponding = true
	case *contracts.Interrupt, *contracts.Cancel:
		clearWork(st)
	case *contracts.Shutdown:
		clearWork(st)
		st.IsReady = false
	}
}

// unify makes the list of all pending requests (R73).
func unify(st *contracts.State) {
	st.PendingRequests = []contracts.PendingRequest{}
	for i, list := range lists(st) {
		for _, e := range *list {
			st.PendingRequests = append(st.PendingRequests, contracts.PendingRequest{ID: e.ID(), Kind: contracts.RequestTypes()[i],
				Status: "pending", Visibility: "user", SessionID: st.SessionID, ToolCallID: e.CallID, CallID: e.CallID, RequestID: e.RequestID,
				ToolName: e.Tool, Tool: e.Tool, Args: e.Args, Source: "local"})
		}
	}
}
