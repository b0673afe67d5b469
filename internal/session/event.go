package session

import (
	"cmp"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// Apply folds one message from the server into the state (rule 4.2). It accepts
// messages that change nothing and messages that no longer apply, such as chunks of
// a closed response.
func (s *State) Apply(ev contracts.Event) {
	switch e := ev.(type) {
	case *contracts.HelloOK:
		s.helloOK(e)
	case *contracts.Ready:
		s.ready(e)
	case *contracts.SessionInfo:
		s.setSession(e.SessionID)
		s.facts.Cwd = e.Cwd
		s.facts.GitBranch = contracts.NullableString(e.GitBranch)
	case *contracts.ConnectionInfo:
		s.connectionInfo(e)
	case *contracts.ResponseStart:
		s.response = &response{id: e.ResponseID}
		s.facts.IsResponding = true
	case *contracts.ResponseChunk:
		s.chunk(e)
	case *contracts.ResponseEnd:
		s.responseEnd(e)
	case *contracts.ToolCall:
		s.toolCall(e)
	case *contracts.ToolStart:
		putEntry(&s.tools, tool{callID: e.CallID, name: s.toolName(e.CallID)}, isTool(e.CallID), MaxTools)
	case *contracts.ToolOutput:
		if i := slices.IndexFunc(s.tools, isTool(e.CallID)); i >= 0 {
			s.tools[i].output.write(e.Content, outputBound)
		}
	case *contracts.ToolEnd:
		s.toolEnd(e)
	case *contracts.ClientToolRequest:
		s.clientToolRequest(e)
	case *contracts.ServerRequest:
		s.serverRequest(e)
	case *contracts.ServerRequestResolved:
		s.resolved(e)
	case *contracts.UtilityCommandStarted:
		s.commandStarted(e)
	case *contracts.UtilityCommandResized:
		if i := slices.IndexFunc(s.commands, isCommand(e.CommandID)); i >= 0 {
			s.commands[i].facts.Columns, s.commands[i].facts.Rows = e.Columns, e.Rows
		}
	case *contracts.UtilityCommandOutput:
		if i := slices.IndexFunc(s.commands, isCommand(e.CommandID)); i >= 0 {
			s.commands[i].output.write(e.Content, outputBound)
		}
	case *contracts.UtilityCommandExited:
		dropEntries(&s.commands, isCommand(e.CommandID))
	case *contracts.UtilityFileWatchStarted:
		s.watchStarted(e)
	case *contracts.UtilityFileWatchStopped:
		dropEntries(&s.facts.ActiveFileWatches, isWatch(e.WatchID))
	case *contracts.ErrorEvent:
		s.facts.LastError, s.facts.LastErrorType = &e.Message, e.ErrorType
	case *contracts.Status:
		s.facts.LastStatus = &e.Message
	case *contracts.PromptAccepted:
		s.promptAccepted(e)
	case *contracts.QueueChanged:
		s.queueChanged(e)
	case *contracts.RequestShown:
		s.requestShown(e)
	case *contracts.RequestVoted:
		s.requestVoted(e)
	case *contracts.ControlChanged:
		s.knownPeople().Controller = e.To
	}
}

func (s *State) helloOK(e *contracts.HelloOK) {
	s.facts.ProtocolVersion = e.ProtocolVersion
	s.setClient(e.ClientProtocolVersion, e.ClientInfo, e.Capabilities, e.OptOutNotifications)
	s.facts.ConnectionRole = e.Role
	s.facts.ControllerConnectionID = e.ControllerConnectionID
}

func (s *State) ready(e *contracts.Ready) {
	s.facts.ProtocolVersion = e.ProtocolVersion
	s.facts.Model, s.facts.Provider = e.Model, e.Provider
	s.setSession(e.SessionID)
	s.facts.IsReady = true
}

func (s *State) connectionInfo(e *contracts.ConnectionInfo) {
	s.setClient(e.ClientProtocolVersion, e.ClientInfo, e.Capabilities, e.OptOutNotifications)
	s.facts.ConnectionRole = e.Role
	s.facts.ControllerConnectionID = e.ControllerConnectionID
	s.facts.ConnectionCount = int64(len(e.Connections))
	if e.ConnectionCount != nil {
		s.facts.ConnectionCount = *e.ConnectionCount
	}
	switch {
	case e.Connections != nil:
		s.facts.Connections = e.Connections[:min(len(e.Connections), contracts.MaxListed)]
	case e.ConnectionID != "":
		s.facts.Connections = changeConnection(s.facts.Connections, e)
	}
}

// changeConnection applies the change of one connection to the list. Without a
// role, the connection is removed. The event does not have the numbers of
// subscriptions; a new connection gets 1.
func changeConnection(list []contracts.ConnectionState, e *contracts.ConnectionInfo) []contracts.ConnectionState {
	one := contracts.ConnectionState{SubscriptionCount: 1, AttachedSubscriptionCount: 1}
	is := func(c contracts.ConnectionState) bool { return c.ConnectionID == e.ConnectionID }
	if i := slices.IndexFunc(list, is); i >= 0 {
		one = list[i]
	}
	one.ConnectionID, one.Role, one.MayAnswer = e.ConnectionID, e.Role, e.MayAnswer
	one.ClientProtocolVersion, one.ClientInfo = e.ClientProtocolVersion, e.ClientInfo
	one.Capabilities, one.OptOutNotifications = e.Capabilities, e.OptOutNotifications
	list = slices.DeleteFunc(slices.Clone(list), is)
	if e.Role != "" && len(list) < contracts.MaxListed {
		list = append(list, one)
	}
	for i := range list {
		list[i].ControllerLeaseGranted = list[i].ConnectionID == e.ControllerConnectionID.Get()
	}
	SortConnections(list)
	return list
}

// SortConnections sorts a list of connections: the holder of the lease, other
// controllers, viewers, each by id.
func SortConnections(list []contracts.ConnectionState) {
	rank := func(c contracts.ConnectionState) int {
		switch {
		case c.ControllerLeaseGranted:
			return 0
		case c.Role == contracts.RoleController:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b contracts.ConnectionState) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ConnectionID, b.ConnectionID))
	})
}

func (s *State) chunk(e *contracts.ResponseChunk) {
	switch {
	case s.response == nil || s.response.id != e.ResponseID: // R70
	case e.IsThinking:
		s.response.thinking.write(e.Content, answerBound)
	default:
		s.response.text.write(e.Content, answerBound)
	}
}

// responseEnd closes the open response, even if e names another: at most one is
// open (R36).
func (s *State) responseEnd(e *contracts.ResponseEnd) {
	s.facts.LastResponseDurationMS, s.facts.LastTTFTMS = &e.DurationMS, e.TTFTMS
	s.response = nil
	s.facts.IsResponding = false
}

func (s *State) toolCall(e *contracts.ToolCall) {
	call := newEntry(e.CallID, "", e.Tool, e.Args)
	s.track(call)
	if e.RequiresApproval {
		s.addPending(contracts.RequestApproval, call)
	}
}

func (s *State) toolEnd(e *contracts.ToolEnd) {
	dropEntries(&s.tools, isTool(e.CallID))
	s.untrack(e.CallID)
	for _, kind := range contracts.RequestTypes() {
		dropEntries(s.pendingList(kind), hasCall(e.CallID))
	}
}

// askUser is the client tool whose requests ask the user (R59).
const askUser = "ask_user"

func (s *State) clientToolRequest(e *contracts.ClientToolRequest) {
	call := newEntry(e.CallID, "", e.Tool, e.Args)
	s.track(call)
	kind := contracts.RequestClientTool
	if e.Tool == askUser {
		kind = contracts.RequestUserInput
	}
	s.addPending(kind, call)
}

func (s *State) serverRequest(e *contracts.ServerRequest) {
	if s.pendingList(e.RequestType) == nil {
		return // of unknown type; its end could not be recognized
	}
	_, tracked := s.TrackedTool(e.CallID)
	if e.RequestType != contracts.RequestToolRetry || !tracked { // R75
		s.track(newEntry(e.CallID, "", e.Tool, e.Args))
	}
	request := newEntry(e.CallID, e.RequestID, e.Tool, e.Args)
	if e.RequestType == contracts.RequestApproval {
		request.DisplayName, request.SummaryLabel, request.ActionDescription = e.DisplayName, e.SummaryLabel, e.ActionDescription
	}
	s.addPending(e.RequestType, request)
}

func (s *State) resolved(e *contracts.ServerRequestResolved) {
	if e.Author != nil {
		s.addAnswer(contracts.AnswerRecord{
			RequestID: e.RequestID, CallID: e.CallID, Resolution: e.Resolution, Author: *e.Author, Timestamp: e.Timestamp,
		})
	}
	list := s.pendingList(e.RequestType)
	if list == nil {
		return
	}
	dropEntries(list, hasID(e.RequestID))
	over := false // the call has ended, and no tool_end will come
	switch e.RequestType {
	case contracts.RequestApproval:
		over = e.Resolution != contracts.VerdictApproved // R76
	case contracts.RequestClientTool:
		over = e.Resolution == contracts.VerdictCancelled
	case contracts.RequestUserInput, contracts.RequestMCPElicitation:
		over = e.Resolution != contracts.VerdictAnswered
	}
	if over {
		s.untrack(e.CallID)
	}
}

func (s *State) commandStarted(e *contracts.UtilityCommandStarted) {
	putEntry(&s.commands, command{facts: contracts.ActiveCommand{
		CommandID: e.CommandID, Command: e.Command, Cwd: e.Cwd,
		ShellMode: e.ShellMode, TerminalMode: e.TerminalMode,
		PID: e.PID, Columns: e.Columns, Rows: e.Rows,
		OwnerConnectionID: e.OwnerConnectionID,
	}}, isCommand(e.CommandID), MaxCommands)
}

func (s *State) watchStarted(e *contracts.UtilityFileWatchStarted) {
	putEntry(&s.facts.ActiveFileWatches, contracts.ActiveWatch{
		WatchID: e.WatchID, RootDir: e.RootDir,
		IncludePatterns: e.IncludePatterns, ExcludePatterns: e.ExcludePatterns,
		DebounceMS: e.DebounceMS, OwnerConnectionID: e.OwnerConnectionID,
	}, isWatch(e.WatchID), MaxWatches)
}
