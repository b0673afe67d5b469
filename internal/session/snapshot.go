package session

import (
	"bytes"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// Snapshot returns the state as of cursor. It does not change afterwards; neither
// side changes memory that they share. Its lists are never nil, and its texts are
// cut to their ends.
//
// The snapshot's session id is the last one in a message or restored snapshot, and
// empty before.
func (s *State) Snapshot(cursor uint64) *contracts.Snapshot {
	state := s.facts
	state.OptOutNotifications = slices.Clone(state.OptOutNotifications)
	state.Connections = copyList(state.Connections)
	state.PendingApprovals = copyList(state.PendingApprovals)
	state.PendingClientTools = copyList(state.PendingClientTools)
	state.PendingMCPElicitations = copyList(state.PendingMCPElicitations)
	state.PendingUserInputs = copyList(state.PendingUserInputs)
	state.PendingToolRetries = copyList(state.PendingToolRetries)
	state.TrackedTools = copyList(state.TrackedTools)
	state.ActiveFileWatches = copyList(state.ActiveFileWatches)
	state.PendingRequests = s.pendingRequests()
	state.CurrentResponse = s.currentResponse()
	state.ActiveTools = make([]contracts.ActiveTool, len(s.tools))
	for i, t := range s.tools {
		state.ActiveTools[i] = contracts.ActiveTool{CallID: t.callID, Tool: t.name, Output: t.output.text(outputBound)}
	}
	state.ActiveUtilityCommands = make([]contracts.ActiveCommand, len(s.commands))
	for i := range s.commands {
		state.ActiveUtilityCommands[i] = s.commands[i].facts
		state.ActiveUtilityCommands[i].Output = s.commands[i].output.text(outputBound)
	}
	if s.people != nil {
		state.People = s.People()
	}
	return &contracts.Snapshot{
		ProtocolVersion: contracts.ProtocolVersion,
		SessionID:       s.sessionID,
		Cursor:          cursor,
		LastInit:        s.lastInit,
		State:           state,
	}
}

// Restore replaces the state by that of a snapshot, which must not change
// afterwards. The snapshot may come from another program: Restore cuts it to this
// package's limits, removes repeated keys, and makes the unified list from the five
// others. A snapshot without people leaves the people as they are: those that are
// published for all clients have none.
func (s *State) Restore(snap *contracts.Snapshot) {
	from := &snap.State
	*s = State{facts: *from, sessionID: snap.SessionID, people: s.people}
	s.facts.People = nil
	if from.People != nil {
		s.restorePeople(from.People)
	}
	if !bytes.Equal(bytes.TrimSpace(snap.LastInit), []byte("null")) {
		s.lastInit = snap.LastInit
	}
	s.facts.OptOutNotifications = slices.Clone(from.OptOutNotifications)
	s.facts.Connections = from.Connections[:min(len(from.Connections), contracts.MaxListed)]
	for _, kind := range contracts.RequestTypes() {
		list := s.pendingList(kind)
		entries := *list
		*list = nil
		for _, e := range entries {
			s.addPending(kind, normalize(e))
		}
	}
	s.facts.TrackedTools = nil
	for _, e := range from.TrackedTools {
		s.track(normalize(e))
	}
	s.facts.ActiveFileWatches = nil
	for _, w := range from.ActiveFileWatches {
		putEntry(&s.facts.ActiveFileWatches, w, isWatch(w.WatchID), MaxWatches)
	}
	s.restoreTexts(from)
}

// restoreTexts restores the entries with growing texts, which have types of their
// own.
func (s *State) restoreTexts(from *contracts.State) {
	if r := from.CurrentResponse; r != nil {
		s.response = &response{id: r.ResponseID, usage: r.Usage}
		s.response.text.write(r.Text, answerBound)
		s.response.thinking.write(r.Thinking, answerBound)
	}
	for _, t := range from.ActiveTools {
		restored := tool{callID: t.CallID, name: t.Tool}
		restored.output.write(t.Output, outputBound)
		putEntry(&s.tools, restored, isTool(t.CallID), MaxTools)
	}
	for _, c := range from.ActiveUtilityCommands {
		restored := command{facts: c}
		restored.facts.Output = ""
		restored.output.write(c.Output, outputBound)
		putEntry(&s.commands, restored, isCommand(c.CommandID), MaxCommands)
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

// pendingRequests returns the unified list (R73).
func (s *State) pendingRequests() []contracts.PendingRequest {
	all := []contracts.PendingRequest{}
	for _, kind := range contracts.RequestTypes() {
		for _, e := range *s.pendingList(kind) {
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

// normalize returns e as newEntry makes it (R74).
func normalize(e contracts.PendingEntry) contracts.PendingEntry {
	if e.RequestID == e.CallID {
		e.RequestID = ""
	}
	return e
}

// copyList returns a copy of list that is not nil.
func copyList[T any](list []T) []T { return append([]T{}, list...) }
