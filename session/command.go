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
		s.approvalAnswered(c.CallID, c.Approved)
	case *contracts.ClientToolResult:
		s.contentAnswered(c.CallID)
	case *contracts.ServerRequestResponse:
		s.requestAnswered(c)
	case *contracts.Interrupt, *contracts.Cancel:
		s.clear()
	case *contracts.Shutdown:
		s.clear()
		s.facts.IsReady = false
	}
}

// approvalAnswered removes the approval that id names: by its request id, otherwise
// by its call id, which legacy answers may use.
func (s *State) approvalAnswered(id string, approved bool) {
	list := &s.facts.PendingApprovals
	i := slices.IndexFunc(*list, hasID(id))
	if i < 0 {
		i = slices.IndexFunc(*list, hasCall(id))
	}
	if i < 0 {
		return
	}
	callID := (*list)[i].CallID
	*list = slices.Delete(*list, i, i+1)
	if !approved {
		s.untrack(callID) // id may be the id of the request
	}
}

// contentAnswered removes the request that a legacy answer with content names: a
// client tool, user input or elicitation (R80).
func (s *State) contentAnswered(id string) {
	lists := []*[]contracts.PendingEntry{
		&s.facts.PendingClientTools, &s.facts.PendingUserInputs, &s.facts.PendingMCPElicitations,
	}
	found := false
	for _, list := range lists {
		found = dropEntries(list, hasID(id)) || found
	}
	if found {
		return
	}
	for _, list := range lists {
		dropEntries(list, hasCall(id))
	}
}

func (s *State) requestAnswered(c *contracts.ServerRequestResponse) {
	list := s.pendingList(c.RequestType)
	if list == nil {
		return
	}
	denied := c.RequestType == contracts.RequestApproval && (c.Approved == nil || !*c.Approved)
	for _, e := range *list {
		if e.ID() == c.RequestID && denied {
			s.untrack(e.CallID)
		}
	}
	dropEntries(list, hasID(c.RequestID))
}
