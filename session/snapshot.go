package session

import (
	"bytes"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// Snapshot returns the state as of cursor. It does not change afterwards; what
// it shares with the state, neither side changes. Its lists are never nil and
// its texts are cut to their ends.
//
// The snapshot's session is the last one that was named, by a message or a
// restored snapshot, and empty before that.
func (s *State) Snapshot(cursor uint64) *contracts.Snapshot {
	state := s.facts
	state.OptOutNotifications = slices.Clone(state.OptOutNotifications)
	state.Connections = own(state.Connections)
	state.PendingApprovals = own(state.PendingApprovals)
	state.PendingClientTools = own(state.PendingClientTools)
	state.PendingMCPElicitations = own(state.PendingMCPElicitations)
	state.PendingUserInputs = own(state.PendingUserInputs)
	state.PendingToolRetries = own(state.PendingToolRetries)
	state.TrackedTools = own(state.TrackedTools)
	state.ActiveFileWatches = own(state.ActiveFileWatches)
	state.PendingRequests = s.pendingRequests()
	state.CurrentResponse = s.currentResponse()
	state.ActiveTools = s.ActiveTools()
	for i := range s.tools {
		state.ActiveTools[i].Output = s.tools[i].output.text(outputBound)
	}
	state.ActiveUtilityCommands = make([]contracts.ActiveCommand, len(s.commands))
	for i := range s.commands {
		state.ActiveUtilityCommands[i] = s.commands[i].facts
		state.ActiveUtilityCommands[i].Output = s.commands[i].output.text(outputBound)
	}
	return &contracts.Snapshot{
		ProtocolVersion: contracts.ProtocolVersion,
		SessionID:       s.sessionID,
		Cursor:          cursor,
		LastInit:        s.lastInit,
		State:           state,
	}
}

// Restore replaces the state by that of a snapshot. The snapshot may come from
// elsewhere: it is cut to this package's bounds, its repeated keys count once,
// and its unified list is made anew from the five others. It must not change
// afterwards.
func (s *State) Restore(snap *contracts.Snapshot) {
	from := &snap.State
	*s = State{facts: *from, sessionID: snap.SessionID}
	if !bytes.Equal(bytes.TrimSpace(snap.LastInit), []byte("null")) {
		s.lastInit = snap.LastInit
	}
	s.facts.OptOutNotifications = slices.Clone(from.OptOutNotifications)
	s.facts.Connections = from.Connections[:min(len(from.Connections), contracts.MaxListed)]
	for _, kind := range contracts.RequestTypes() {
		list := s.waiting(kind)
		entries := *list
		*list = nil
		for _, e := range entries {
			s.wait(kind, normal(e))
		}
	}
	s.facts.TrackedTools = nil
	for _, e := range from.TrackedTools {
		s.track(normal(e))
	}
	s.facts.ActiveFileWatches = nil
	for _, w := range from.ActiveFileWatches {
		put(&s.facts.ActiveFileWatches, w, isWatch(w.WatchID), MaxWatches)
	}
	s.restoreTexts(from)
}

// restoreTexts brings back what is kept in a form of its own because its texts
// grow.
func (s *State) restoreTexts(from *contracts.State) {
	if r := from.CurrentResponse; r != nil {
		s.response = &response{id: r.ResponseID, usage: r.Usage}
		s.response.text.write(r.Text, answerBound)
		s.response.thinking.write(r.Thinking, answerBound)
	}
	for _, t := range from.ActiveTools {
		restored := tool{callID: t.CallID, name: t.Tool}
		restored.output.write(t.Output, outputBound)
		put(&s.tools, restored, isTool(t.CallID), MaxTools)
	}
	for _, c := range from.ActiveUtilityCommands {
		restored := command{facts: c}
		restored.facts.Output = ""
		restored.output.write(c.Output, outputBound)
		put(&s.commands, restored, isCommand(c.CommandID), MaxCommands)
	}
	s.facts.PendingRequests, s.facts.CurrentResponse = nil, nil
	s.facts.ActiveTools, s.facts.ActiveUtilityCommands = nil, nil
}

func (s *State) currentResponse() *contracts.CurrentResponse {
	if s.response == nil {
		return nil
	}
	return &contracts.CurrentResponse{
		ResponseID: s.response.id,
		Text:       s.response.text.text(answerBound),
		Thinking:   s.response.thinking.text(answerBound),
		Usage:      s.response.usage,
	}
}

// pendingRequests makes the unified list (R73).
func (s *State) pendingRequests() []contracts.PendingRequest {
	all := []contracts.PendingRequest{}
	for _, kind := range contracts.RequestTypes() {
		for _, e := range *s.waiting(kind) {
			all = append(all, contracts.PendingRequest{
				ID: e.ID(), Kind: kind, Status: "pending", Visibility: "user",
				SessionID:  s.facts.SessionID,
				ToolCallID: e.CallID, CallID: e.CallID, RequestID: e.RequestID,
				ToolName: e.Tool, Tool: e.Tool,
				DisplayName: e.DisplayName, SummaryLabel: e.SummaryLabel, ActionDescription: e.ActionDescription,
				Args: e.Args, Source: "local",
			})
		}
	}
	return all
}

// normal returns e as this package would have made it (R74).
func normal(e contracts.PendingEntry) contracts.PendingEntry {
	if e.RequestID == e.CallID {
		e.RequestID = ""
	}
	return e
}

// own returns a copy of list that is not nil.
func own[T any](list []T) []T { return append([]T{}, list...) }
