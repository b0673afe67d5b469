package session

import (
	"encoding/json"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// Bounds of the lists. When one is full, its oldest entry makes room, and the
// state treats what comes later for that entry as it treats an unknown id.
// Connections are cut to the first contracts.MaxListed instead; their count
// stays exact.
const (
	MaxTools    = 1024 // tracked tools, and active tools
	MaxPending  = 256  // waiting requests of one type
	MaxCommands = 256  // active utility commands
	MaxWatches  = 256  // active file watches
)

// A State is the runtime state. Its zero value is a fresh session's.
// It is not safe for concurrent use.
//
// What Apply and ApplyCommand are given is kept in part and shared with every
// snapshot, so it must not change afterwards. Texts are expected in UTF-8, as
// everything decoded is.
type State struct {
	// facts is the state as it is sent, but for the fields below and the
	// unified list, which Snapshot fills in.
	facts    contracts.State
	response *response
	tools    []tool
	commands []command

	lastInit  json.RawMessage // nil until an init is applied
	sessionID string          // the latest known; stays when a message says null
}

// A response is the open response. Its texts keep the last
// contracts.MaxStateText bytes each.
type response struct {
	id             string
	text, thinking tail
	usage          *contracts.Usage
}

// A tool is a running tool.
type tool struct {
	callID, name string
	output       tail
}

// A command is a running utility command; the Output of its facts is empty.
type command struct {
	facts  contracts.ActiveCommand
	output tail
}

// New returns the state of a fresh session (R72).
func New() *State { return new(State) }

// OpenResponse returns the id of the response that is open.
func (s *State) OpenResponse() (id string, ok bool) {
	if s.response == nil {
		return "", false
	}
	return s.response.id, true
}

// IsResponding reports whether a prompt or a response is open. It is false
// between the responses of one run, while tools run.
func (s *State) IsResponding() bool { return s.facts.IsResponding }

// ActiveTools returns the running tools, the one started first first, without
// their output.
func (s *State) ActiveTools() []contracts.ActiveTool {
	list := make([]contracts.ActiveTool, len(s.tools))
	for i, t := range s.tools {
		list[i] = contracts.ActiveTool{CallID: t.callID, Tool: t.name}
	}
	return list
}

// TrackedTool returns the announced tool with the given call id, if it has not
// ended.
func (s *State) TrackedTool(callID string) (contracts.PendingEntry, bool) {
	i := slices.IndexFunc(s.facts.TrackedTools, hasCall(callID))
	if i < 0 {
		return contracts.PendingEntry{}, false
	}
	return s.facts.TrackedTools[i], true
}

// waiting returns the list of the pending requests of a type, or nil if the
// type is unknown.
func (s *State) waiting(kind contracts.RequestType) *[]contracts.PendingEntry {
	switch kind {
	case contracts.RequestApproval:
		return &s.facts.PendingApprovals
	case contracts.RequestClientTool:
		return &s.facts.PendingClientTools
	case contracts.RequestMCPElicitation:
		return &s.facts.PendingMCPElicitations
	case contracts.RequestUserInput:
		return &s.facts.PendingUserInputs
	case contracts.RequestToolRetry:
		return &s.facts.PendingToolRetries
	}
	return nil
}

// track puts an entry in the list of announced tools.
func (s *State) track(e contracts.PendingEntry) {
	put(&s.facts.TrackedTools, e, hasCall(e.CallID), MaxTools)
}

// wait puts an entry in the list of its type.
func (s *State) wait(kind contracts.RequestType, e contracts.PendingEntry) {
	if list := s.waiting(kind); list != nil {
		put(list, e, hasCall(e.CallID), MaxPending)
	}
}

// untrack drops an announced tool.
func (s *State) untrack(callID string) { drop(&s.facts.TrackedTools, hasCall(callID)) }

// toolName returns the name under which a call was announced.
func (s *State) toolName(callID string) string {
	lists := []*[]contracts.PendingEntry{&s.facts.TrackedTools}
	for _, kind := range contracts.RequestTypes() {
		lists = append(lists, s.waiting(kind))
	}
	for _, list := range lists {
		if i := slices.IndexFunc(*list, hasCall(callID)); i >= 0 {
			return (*list)[i].Tool
		}
	}
	return "unknown" // R77
}

// clear forgets everything that runs or waits.
func (s *State) clear() {
	s.response = nil
	for _, kind := range contracts.RequestTypes() {
		*s.waiting(kind) = nil
	}
	s.facts.TrackedTools, s.tools, s.commands, s.facts.ActiveFileWatches = nil, nil, nil, nil
	s.facts.IsResponding = false
}

// setSession records the session's id, or nil if the message did not know it.
func (s *State) setSession(id *string) {
	s.facts.SessionID = contracts.NullableString(id)
	if id != nil {
		s.sessionID = *id
	}
}

// setClient records what a client said about itself. What it left out is
// cleared.
func (s *State) setClient(version string, info *contracts.ClientInfo, caps *contracts.Capabilities, optOuts []contracts.Notification) {
	s.facts.ClientProtocolVersion, s.facts.ClientInfo, s.facts.Capabilities = version, info, caps
	s.facts.OptOutNotifications = nil
	for _, n := range optOuts {
		if !slices.Contains(s.facts.OptOutNotifications, n) {
			s.facts.OptOutNotifications = append(s.facts.OptOutNotifications, n)
		}
	}
}

// entry makes a list entry; requestID is kept only where it says more than the
// call id (R74).
func entry(callID, requestID, tool string, args json.RawMessage) contracts.PendingEntry {
	if requestID == callID {
		requestID = ""
	}
	return contracts.PendingEntry{CallID: callID, RequestID: requestID, Tool: tool, Args: args}
}

// UtilitiesActive reports whether a utility command or a file watch runs.
func (s *State) UtilitiesActive() bool {
	return len(s.commands) > 0 || len(s.facts.ActiveFileWatches) > 0
}

// CommandOwner returns the connection that started a command that runs, "" if
// none does.
func (s *State) CommandOwner(id string) string {
	if i := slices.IndexFunc(s.commands, isCommand(id)); i >= 0 {
		return s.commands[i].facts.OwnerConnectionID
	}
	return ""
}

// Utilities returns the ids of the utility commands and file watches that run,
// each in the order they were started.
func (s *State) Utilities() (commands, watches []string) {
	for i := range s.commands {
		commands = append(commands, s.commands[i].facts.CommandID)
	}
	for _, w := range s.facts.ActiveFileWatches {
		watches = append(watches, w.WatchID)
	}
	return commands, watches
}
