package session

import (
	"cmp"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// ApplyCommand folds one accepted command into the state (section 4.3). Do not call
// it for a refused command: refusals change nothing.
//
// A hello only sets what the client said. The connections come with the
// connection_info that follows.
func (s *State) ApplyCommand(cmd contracts.Command) {
	switch c := cmd.(type) {
	case *contracts.Hello:
		s.setClient(c.ProtocolVersion, c.ClientInfo, c.Capabilities, c.OptOutNotifications)
		s.facts.ConnectionRole = cmp.Or(c.Role, s.facts.ConnectionRole, contracts.RoleController)
	case *contracts.Init:
		if text, err := contracts.EncodeCommand(c); err == nil { // an error is impossible for a decoded command
			s.lastInit = text // not merged with earlier ones (R35)
		}
	case *contracts.Prompt:
		s.response = nil
		s.facts.LastError, s.facts.LastErrorType, s.facts.LastStatus = nil, "", nil
		s.facts.IsResponding = true
	case *contracts.ToolResponse:
		s.legacyAnswered(!c.Approved, c.CallID, contracts.RequestApproval)
	case *contracts.ClientToolResult:
		s.legacyAnswered(false, c.CallID, contracts.RequestClientTool, contracts.RequestUserInput, contracts.RequestMCPElicitation) // R80
	case *contracts.ServerRequestResponse:
		denied := c.RequestType == contracts.RequestApproval && (c.Approved == nil || !*c.Approved)
		s.answered(denied, hasID(c.RequestID), c.RequestType)
	case *contracts.Interrupt, *contracts.Cancel:
		s.clear()
	case *contracts.Shutdown:
		s.clear()
		s.facts.IsReady = false
	}
}

// legacyAnswered removes the requests that a legacy answer names: by request id,
// otherwise by call id.
func (s *State) legacyAnswered(denied bool, id string, kinds ...contracts.RequestType) {
	if !s.answered(denied, hasID(id), kinds...) {
		s.answered(denied, hasCall(id), kinds...)
	}
}

// answered removes requests of the given types, and the tools of those that were
// denied. It reports whether there were any.
func (s *State) answered(denied bool, is func(contracts.PendingEntry) bool, kinds ...contracts.RequestType) (found bool) {
	for _, kind := range kinds {
		list := s.pendingList(kind)
		if list == nil {
			continue
		}
		*list = slices.DeleteFunc(*list, func(e contracts.PendingEntry) bool {
			if !is(e) {
				return false
			}
			if found = true; denied {
				s.untrack(e.CallID)
			}
			return true
		})
	}
	return found
}
