package contracts

import "encoding/json"

// A Snapshot is the runtime's state at Cursor: it includes the effects of every
// entry up to and including Cursor, and of no other.
type Snapshot struct {
	ProtocolVersion string          `json:"protocolVersion"`
	SessionID       string          `json:"session_id"`
	Cursor          uint64          `json:"cursor"`
	LastInit        json.RawMessage `json:"last_init" wire:"nullable,body=init"` // the last init message with its type, or null
	State           State           `json:"state"`
}

// State is the runtime state. Lists keep insertion
// order and are never null.
type State struct {
	ProtocolVersion          string            `json:"protocol_version,omitempty"`
	ClientProtocolVersion    string            `json:"client_protocol_version,omitempty"`
	ClientInfo               *ClientInfo       `json:"client_info,omitempty"`
	Capabilities             *Capabilities     `json:"capabilities,omitempty"`
	OptOutNotifications      []Notification    `json:"opt_out_notifications,omitempty" wire:"open"`
	ConnectionRole           Role              `json:"connection_role,omitempty"`
	ConnectionCount          int64             `json:"connection_count"` // all, listed or not
	SubscriberCount          int64             `json:"subscriber_count"`
	ControllerSubscriptionID NullString        `json:"controller_subscription_id,omitzero"`
	ControllerConnectionID   NullString        `json:"controller_connection_id,omitzero"`
	Connections              []ConnectionState `json:"connections"`
	Model                    string            `json:"model,omitempty"`
	Provider                 string            `json:"provider,omitempty"`
	SessionID                NullString        `json:"session_id,omitzero"`
	Cwd                      string            `json:"cwd,omitempty"`
	GitBranch                NullString        `json:"git_branch,omitzero"`
	CurrentResponse          *CurrentResponse  `json:"current_response,omitempty"`
	PendingRequests          []PendingRequest  `json:"pending_requests" wire:"lenient"`
	PendingApprovals         []PendingEntry    `json:"pending_approvals"`
	PendingClientTools       []PendingEntry    `json:"pending_client_tools"`
	PendingMCPElicitations   []PendingEntry    `json:"pending_mcp_elicitations"`
	PendingUserInputs        []PendingEntry    `json:"pending_user_inputs"`
	PendingToolRetries       []PendingEntry    `json:"pending_tool_retries"`
	ActiveTools              []ActiveTool      `json:"active_tools"`
	ActiveUtilityCommands    []ActiveCommand   `json:"active_utility_commands"`
	ActiveFileWatches        []ActiveWatch     `json:"active_file_watches"`
	TrackedTools             []PendingEntry    `json:"tracked_tools"`
	LastError                *string           `json:"last_error,omitempty"`
	LastErrorType            ErrorType         `json:"last_error_type,omitempty"`
	LastStatus               *string           `json:"last_status,omitempty"`
	LastResponseDurationMS   *int64            `json:"last_response_duration_ms,omitempty"`
	LastTTFTMS               *int64            `json:"last_ttft_ms,omitempty"`
	IsReady                  bool              `json:"is_ready"`
	IsResponding             bool              `json:"is_responding"`
	People                   *People           `json:"people,omitempty"` // only for clients that asked; the last key, see [AddPeople]
}

// CurrentResponse is the open response so far.
type CurrentResponse struct {
	ResponseID string `json:"response_id"`
	Text       string `json:"text"`
	Thinking   string `json:"thinking"`
	Usage      *Usage `json:"usage,omitempty"`
}

// PendingEntry is a pending request or a tracked tool. RequestID is present only if
// it differs from CallID (R74).
type PendingEntry struct {
	CallID            string          `json:"call_id"`
	RequestID         string          `json:"request_id,omitempty"`
	Tool              string          `json:"tool"`
	DisplayName       string          `json:"display_name,omitempty"`
	SummaryLabel      string          `json:"summary_label,omitempty"`
	ActionDescription string          `json:"action_description,omitempty"`
	Args              json.RawMessage `json:"args"`
}

// ID returns the effective id: RequestID if present, otherwise CallID.
func (e *PendingEntry) ID() string {
	if e.RequestID != "" {
		return e.RequestID
	}
	return e.CallID
}

// PendingRequest describes one pending request of any type (R73).
type PendingRequest struct {
	ID                string          `json:"id"`
	Kind              RequestType     `json:"kind"`
	Status            string          `json:"status" wire:"oneof=pending"`
	Visibility        string          `json:"visibility" wire:"oneof=user"`
	SessionID         NullString      `json:"session_id,omitzero"`
	ToolCallID        string          `json:"tool_call_id"`
	CallID            string          `json:"call_id"`
	RequestID         string          `json:"request_id,omitempty"`
	ToolName          string          `json:"tool_name"`
	Tool              string          `json:"tool"`
	DisplayName       string          `json:"display_name,omitempty"`
	SummaryLabel      string          `json:"summary_label,omitempty"`
	ActionDescription string          `json:"action_description,omitempty"`
	Args              json.RawMessage `json:"args"`
	Source            string          `json:"source" wire:"oneof=local|platform"`
	Platform          json.RawMessage `json:"platform,omitempty"`
}

// ActiveTool is a running tool. Output keeps its last 32,768 characters.
type ActiveTool struct {
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	Output string `json:"output"`
}

// ActiveCommand is a running utility command. Output keeps its last 32,768
// characters (R78).
type ActiveCommand struct {
	CommandID         string       `json:"command_id"`
	Command           string       `json:"command"`
	Cwd               string       `json:"cwd,omitempty"`
	ShellMode         ShellMode    `json:"shell_mode"`
	TerminalMode      TerminalMode `json:"terminal_mode"`
	PID               int64        `json:"pid,omitempty"`
	Columns           int64        `json:"columns,omitempty"`
	Rows              int64        `json:"rows,omitempty"`
	OwnerConnectionID string       `json:"owner_connection_id,omitempty"`
	Output            string       `json:"output"`
}

// ActiveWatch is a running file watch.
type ActiveWatch struct {
	WatchID           string   `json:"watch_id"`
	RootDir           string   `json:"root_dir"`
	IncludePatterns   []string `json:"include_patterns,omitempty"`
	ExcludePatterns   []string `json:"exclude_patterns,omitempty"`
	DebounceMS        int64    `json:"debounce_ms"`
	OwnerConnectionID string   `json:"owner_connection_id,omitempty"`
}
