package session

import (
	"encoding/json"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// Limits of the lists. If a list is full, a new entry replaces the oldest one, and
// later messages about that one count as messages about an unknown id. Connections
// are cut to the first contracts.MaxListed; their count stays exact.
const (
	MaxTools    = 1024 // tracked tools, and active tools
	MaxPending  = 256  // pending requests of one type
	MaxCommands = 256  // active utility commands
	MaxWatches  = 256  // active file watches
)

// A State is the runtime state (section 4). Its zero value is the state of a new
// session. It is not safe for concurrent use.
//
// It keeps parts of the arguments of Apply and ApplyCommand and shares them with
// snapshots, so they must not change afterwards. Texts must be UTF-8, as all
// decoded texts are.
type State struct {
	// facts is the state as it is sent, except for the fields below and the unified
	// list, which Snapshot adds.
	facts    contracts.State
	response *response
	tools    []tool
	commands []command

	people *contracts.People // nil until an event or a snapshot tells of people

	lastInit  json.RawMessage // nil until an init is applied
	sessionID string          // latest known id; a message with null does not change it
}

// A response is the open response. Each of its texts keeps the last
// contracts.MaxStateText bytes.
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

// A command is a running utility command. The Output of its facts is empty.
type command struct {
	facts  contracts.ActiveCommand
	output tail
}

// New returns the state of a new session (R72).
func New() *State { return new(State) }

// TrackedTool returns the announced tool with the given call id, if it has not
// ended.
func (s *State) TrackedTool(callID string) (contracts.PendingEntry, bool) {
	i := slices.IndexFunc(s.facts.TrackedTools, hasCall(callID))
	if i < 0 {
		return contracts.PendingEntry{}, false
	}
	return s.facts.TrackedTools[i], true
}

// pendingList returns the list of pending requests of a type, or nil if the type is
// unknown.
func (s *State) pendingList(kind contracts.RequestType) *[]contracts.PendingEntry {
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

func (s *State) track(e contracts.PendingEntry) {
	putEntry(&s.facts.TrackedTools, e, hasCall(e.CallID), MaxTools)
}

func (s *State) addPending(kind contracts.RequestType, e contracts.PendingEntry) {
	if list := s.pendingList(kind); list != nil {
		putEntry(list, e, hasCall(e.CallID), MaxPending)
	}
}

func (s *State) untrack(callID string) { dropEntries(&s.facts.TrackedTools, hasCall(callID)) }

// toolName returns the tool of an announced call.
func (s *State) toolName(callID string) string {
	lists := []*[]contracts.PendingEntry{&s.facts.TrackedTools}
	for _, kind := range contracts.RequestTypes() {
		lists = append(lists, s.pendingList(kind))
	}
	for _, list := range lists {
		if i := slices.IndexFunc(*list, hasCall(callID)); i >= 0 {
			return (*list)[i].Tool
		}
	}
	return "unknown" // R77
}

func (s *State) clear() {
	s.response = nil
	for _, kind := range contracts.RequestTypes() {
		*s.pendingList(kind) = nil
	}
	s.facts.TrackedTools, s.tools, s.commands, s.facts.ActiveFileWatches = nil, nil, nil, nil
	s.facts.IsResponding = false
}

// setSession sets the session's id; nil if the message does not have it.
func (s *State) setSession(id *string) {
	s.facts.SessionID = contracts.NullableString(id)
	if id != nil {
		s.sessionID = *id
	}
}

// setClient sets the client's values. Values that the client left out are cleared.
func (s *State) setClient(version string, info *contracts.ClientInfo, caps *contracts.Capabilities, optOuts []contracts.Notification) {
	s.facts.ClientProtocolVersion, s.facts.ClientInfo, s.facts.Capabilities = version, info, caps
	s.facts.OptOutNotifications = nil
	for _, n := range optOuts {
		if !slices.Contains(s.facts.OptOutNotifications, n) {
			s.facts.OptOutNotifications = append(s.facts.OptOutNotifications, n)
		}
	}
}

// newEntry makes a list entry. It keeps requestID only if it differs from callID
// (R74).
func newEntry(callID, requestID, tool string, args json.RawMessage) contracts.PendingEntry {
	if requestID == callID {
		requestID = ""
	}
	return contracts.PendingEntry{CallID: callID, RequestID: requestID, Tool: tool, Args: args}
}

// UtilitiesActive reports whether a utility command or a file watch runs.
func (s *State) UtilitiesActive() bool {
	return len(s.commands) > 0 || len(s.facts.ActiveFileWatches) > 0
}

// CommandOwner returns the connection that started a running command, or "" if it
// does not run.
func (s *State) CommandOwner(id string) string {
	if i := slices.IndexFunc(s.commands, isCommand(id)); i >= 0 {
		return s.commands[i].facts.OwnerConnectionID
	}
	return ""
}
