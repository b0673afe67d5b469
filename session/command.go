package session

import (
	"cmp"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// ApplyCommand folds one accepted command into the state (section 4.3). It must
// not be called for a refused one: refusals change nothing.
//
// Of a hello only what the client said is recorded. Who is connected comes with
// the connection_info that follows.
func (s *State) ApplyCommand(cmd contracts.Command) {
	switch c := cmd.(type) {
	case *contracts.Hello:
		s.setClient(c.ProtocolVersion, c.ClientInfo, c.Capabilities, c.OptOutNotifications)
		s.facts.ConnectionRole = cmp.Or(c.Role, s.facts.ConnectionRole, contracts.RoleController)
	case *contracts.Init:
		if text, err := contracts.EncodeCommand(c); err == nil { // else no client can have sent it
			s.lastInit = text // whole, and not merged with earlier ones (R35)
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

// approvalAnswered drops the approval that id names. A legacy answer may name
// it by its request or, failing that, by its call.
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
		s.untrack(callID) // not id, which may be that of the request
	}
}

// contentAnswered drops what a legacy answer with content names: a client tool,
// a question to the user or an elicitation (R80).
func (s *State) contentAnswered(id string) {
	lists := []*[]contracts.PendingEntry{
		&s.facts.PendingClientTools, &s.facts.PendingUserInputs, &s.facts.PendingMCPElicitations,
	}
	found := false
	for _, list := range lists {
		found = drop(list, hasID(id)) || found
	}
	if found {
		return
	}
	for _, list := range lists {
		drop(list, hasCall(id))
	}
}

func (s *State) requestAnswered(c *contracts.ServerRequestResponse) {
	list := s.waiting(c.RequestType)
	if list == nil {
		return
	}
	denied := c.RequestType == contracts.RequestApproval && (c.Approved == nil || !*c.Approved)
	for _, e := range *list {
		if e.ID() == c.RequestID && denied {
			s.untrack(e.CallID)
		}
	}
	drop(list, hasID(c.RequestID))
}
