package contracts

import "encoding/json"

// An Event is one message from the server to a client. Only the types of this package can
// be encoded.
type Event interface {
	// EventType returns the value of the message's type key.
	EventType() string
}

// A NullString is an optional string that may also be null. Its zero value is
// absent, which is not null.
type NullString struct {
	Present bool    // the key is on the wire
	Value   *string // nil means null
}

// Null is a present null.
func Null() NullString { return NullString{Present: true} }

// String is a present string.
func String(s string) NullString { return NullString{Present: true, Value: &s} }

// NullableString is a present string, or a present null if p is nil.
func NullableString(p *string) NullString { return NullString{Present: true, Value: p} }

// Get returns the string, or "" if it is absent or null.
func (n NullString) Get() string {
	if n.Value == nil {
		return ""
	}
	return *n.Value
}

// IsZero reports whether the key is absent. It implements omitzero of
// encoding/json.
func (n NullString) IsZero() bool { return !n.Present }

// MarshalJSON writes the string or null.
func (n NullString) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// ServerCapabilities says what this runtime can ask and offer. It is newer than the
// published schemas and is not sent in the public profile.
type ServerCapabilities struct {
	ServerRequests    []RequestType      `json:"server_requests"`
	UtilityOperations []UtilityOperation `json:"utility_operations"`
	RawAgentEvents    bool               `json:"raw_agent_events"`
	ConnectionRoles   []Role             `json:"connection_roles"`
	People            bool               `json:"people,omitempty"` // only for a client that asked for it
}

// HelloOK answers one accepted hello. Only the sender gets it (A60).
type HelloOK struct {
	ProtocolVersion        string              `json:"protocol_version"`        // the server's
	ConnectionID           string              `json:"connection_id,omitempty"` // local on stdio
	ClientProtocolVersion  string              `json:"client_protocol_version,omitempty"`
	ClientInfo             *ClientInfo         `json:"client_info,omitempty"`
	Capabilities           *Capabilities       `json:"capabilities,omitempty"`
	OptOutNotifications    []Notification      `json:"opt_out_notifications,omitempty" wire:"unique,open"`
	Role                   Role                `json:"role,omitempty"`
	ControllerConnectionID NullString          `json:"controller_connection_id,omitzero"` // null when the lease is free
	LeaseExpiresAt         NullString          `json:"lease_expires_at,omitzero"`         // ISO-8601 UTC; null on stdio
	ServerCapabilities     *ServerCapabilities `json:"server_capabilities,omitempty"`
}

// Ready says that the runtime can take prompts.
type Ready struct {
	ProtocolVersion string       `json:"protocol_version" wire:"lenient"` // the server's
	Model           string       `json:"model"`
	Provider        string       `json:"provider"`
	ExecutorType    ExecutorType `json:"executor_type,omitempty"` // absent means live
	SessionID       *string      `json:"session_id" wire:"lenient"`
}

// SessionInfo says where the session runs.
type SessionInfo struct {
	SessionID *string `json:"session_id" wire:"lenient"`
	Cwd       string  `json:"cwd"`                       // absolute
	GitBranch *string `json:"git_branch" wire:"lenient"` // null outside a repository or without a branch
}

// ConnectionState is one connection as others see it.
type ConnectionState struct {
	ConnectionID              string         `json:"connection_id"`
	Role                      Role           `json:"role"`
	MayAnswer                 bool           `json:"may_answer,omitempty"` // an approver, whose role is listed as viewer
	ClientProtocolVersion     string         `json:"client_protocol_version,omitempty"`
	ClientInfo                *ClientInfo    `json:"client_info,omitempty"`
	Capabilities              *Capabilities  `json:"capabilities,omitempty"`
	OptOutNotifications       []Notification `json:"opt_out_notifications,omitempty" wire:"open"`
	SubscriptionCount         int64          `json:"subscription_count"`
	AttachedSubscriptionCount int64          `json:"attached_subscription_count"`
	ControllerLeaseGranted    bool           `json:"controller_lease_granted"`
	LeaseExpiresAt            NullString     `json:"lease_expires_at,omitzero"` // ISO-8601 UTC; null on stdio
}

// ConnectionInfo says who is connected. Without Connections (absent, not empty), it
// reports one change: the connection ConnectionID was added or changed, or has gone
// if there is no Role. The client then updates its list. The count is always exact.
type ConnectionInfo struct {
	ConnectionID           string            `json:"connection_id,omitempty"`
	ClientProtocolVersion  string            `json:"client_protocol_version,omitempty"`
	ClientInfo             *ClientInfo       `json:"client_info,omitempty"`
	Capabilities           *Capabilities     `json:"capabilities,omitempty"`
	OptOutNotifications    []Notification    `json:"opt_out_notifications,omitempty" wire:"open"`
	Role                   Role              `json:"role,omitempty"`
	MayAnswer              bool              `json:"may_answer,omitempty"` // an approver, whose role is shown as viewer
	ConnectionCount        *int64            `json:"connection_count,omitempty"`
	ControllerConnectionID NullString        `json:"controller_connection_id,omitzero"` // null when the lease is free
	LeaseExpiresAt         NullString        `json:"lease_expires_at,omitzero"`         // ISO-8601 UTC; null on stdio
	Connections            []ConnectionState `json:"connections,omitzero"`
}

// Compaction says that history was summarised. Timestamp is ISO-8601.
type Compaction struct {
	Summary             string `json:"summary"`
	FirstKeptEntryIndex int64  `json:"first_kept_entry_index"` // first entry of the history that was kept
	TokensBefore        int64  `json:"tokens_before"`          // size of the context before
	Auto                bool   `json:"auto"`                   // the server decided to
	CustomInstructions  string `json:"custom_instructions,omitempty"`
	Timestamp           string `json:"timestamp"`
}

// ResponseStart opens a response; at most one is open at a time (R36).
type ResponseStart struct {
	ResponseID string `json:"response_id"`
}

// ResponseChunk is an append-only piece of text or of reasoning.
type ResponseChunk struct {
	ResponseID string `json:"response_id"`
	Content    string `json:"content" wire:"text"`
	IsThinking bool   `json:"is_thinking"` // reasoning, not answer
}

// Usage is what a response cost. TotalTokens is the sum of the four counts
// (R38); everything is zero when unknown.
type Usage struct {
	InputTokens      int64   `json:"input_tokens"`
	OutputTokens     int64   `json:"output_tokens"`
	CacheReadTokens  int64   `json:"cache_read_tokens"`
	CacheWriteTokens int64   `json:"cache_write_tokens"`
	TotalTokens      int64   `json:"total_tokens"`
	TotalCostUSD     float64 `json:"total_cost_usd"`
	ModelID          string  `json:"model_id"`
	Provider         string  `json:"provider"`
}

// ToolsSummary counts the tools finished since the previous response of the
// run ended. ToolsUsed is sorted (R39).
type ToolsSummary struct {
	ToolsUsed      []string `json:"tools_used"`
	CallsSucceeded int64    `json:"calls_succeeded"`
	CallsFailed    int64    `json:"calls_failed"`
	SummaryLabels  []string `json:"summary_labels,omitempty"` // in order of first appearance
}

// ResponseEnd closes a response. Durations are milliseconds.
type ResponseEnd struct {
	ResponseID   string       `json:"response_id"`
	Usage        Usage        `json:"usage" wire:"lenient"`
	ToolsSummary ToolsSummary `json:"tools_summary" wire:"lenient"`
	DurationMS   int64        `json:"duration_ms" wire:"lenient"` // since response_start
	TTFTMS       *int64       `json:"ttft_ms,omitempty"`          // until the first chunk; absent if there was none
}

// ToolCall announces a tool; RequiresApproval means that the call waits for an approval.
type ToolCall struct {
	CallID           string          `json:"call_id"`
	Tool             string          `json:"tool"`
	Args             json.RawMessage `json:"args"`
	RequiresApproval bool            `json:"requires_approval"`
}

// ToolStart says that execution begins.
type ToolStart struct {
	CallID string `json:"call_id"`
}

// ToolOutput is an append-only piece of a tool's output.
type ToolOutput struct {
	CallID  string `json:"call_id"`
	Content string `json:"content" wire:"text"`
}

// ToolEnd ends a call: executed, denied or skipped.
type ToolEnd struct {
	CallID            string `json:"call_id"`
	Success           bool   `json:"success"` // false also when denied or skipped
	ErrorCode         string `json:"error_code,omitempty"`
	ApprovalRequestID string `json:"approval_request_id,omitempty"`
	GovernedOutcome   string `json:"governed_outcome,omitempty"`
}

// ClientToolRequest is the legacy form of a client tool or user-input request.
type ClientToolRequest struct {
	CallID string          `json:"call_id"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
}

// ServerRequest is a question that the runtime waits for.
type ServerRequest struct {
	RequestID         string          `json:"request_id"`
	RequestType       RequestType     `json:"request_type"`
	CallID            string          `json:"call_id"` // the tool call it is about
	Tool              string          `json:"tool"`
	DisplayName       string          `json:"display_name,omitempty"`
	SummaryLabel      string          `json:"summary_label,omitempty"`
	ActionDescription string          `json:"action_description,omitempty"`
	Args              json.RawMessage `json:"args"` // depends on the request type
	Reason            string          `json:"reason"`
}

// ServerRequestResolved ends a server request; there is exactly one per
// request (R52).
type ServerRequestResolved struct {
	RequestID   string      `json:"request_id"`
	RequestType RequestType `json:"request_type"`
	CallID      string      `json:"call_id"`
	Resolution  Verdict     `json:"resolution"`
	Reason      string      `json:"reason,omitempty"`
	ResolvedBy  Resolver    `json:"resolved_by"`
	Author      *Author     `json:"author,omitempty"`    // who answered; only for clients with the capability people
	Timestamp   string      `json:"timestamp,omitempty"` // ISO-8601 UTC; beside author
}

// RawAgentEvent is an internal event for clients that asked for them.
type RawAgentEvent struct {
	EventKind string          `json:"event_type"` // the type key of event
	Event     json.RawMessage `json:"event"`
}

// UserMessage returns the prompt of a user, which is in no other event. It returns
// false if e is another event.
func (e *RawAgentEvent) UserMessage() (text string, ok bool) {
	var event struct {
		Message struct{ Role, Content string } `json:"message"`
	}
	ok = e.EventKind == "message_start" && json.Unmarshal(e.Event, &event) == nil && event.Message.Role == "user"
	return event.Message.Content, ok
}

// UtilityCommandStarted is a command's first event.
type UtilityCommandStarted struct {
	CommandID         string       `json:"command_id"`
	Command           string       `json:"command"`
	Cwd               string       `json:"cwd,omitempty"` // absolute
	ShellMode         ShellMode    `json:"shell_mode"`
	TerminalMode      TerminalMode `json:"terminal_mode"`
	PID               int64        `json:"pid,omitempty"`
	Columns           int64        `json:"columns,omitempty"` // terminals only
	Rows              int64        `json:"rows,omitempty"`    // terminals only
	OwnerConnectionID string       `json:"owner_connection_id,omitempty"`
}

// UtilityCommandResized confirms the size applied.
type UtilityCommandResized struct {
	CommandID string `json:"command_id"`
	Columns   int64  `json:"columns"`
	Rows      int64  `json:"rows"`
}

// UtilityCommandOutput is a piece of a command's output, at most 64 KiB.
type UtilityCommandOutput struct {
	CommandID string `json:"command_id"`
	Stream    Stream `json:"stream"`
	Content   string `json:"content" wire:"text"`
}

// UtilityCommandExited is a command's last event. ExitCode is null when a signal
// ended it; Signal is null when none did.
type UtilityCommandExited struct {
	CommandID string  `json:"command_id"`
	Success   bool    `json:"success"`
	ExitCode  *int64  `json:"exit_code" wire:"lenient"`
	Signal    *string `json:"signal" wire:"lenient"`
	Reason    string  `json:"reason,omitempty"`
}

// FileMatch is one search result.
type FileMatch struct {
	Path  string `json:"path"`
	Score int64  `json:"score"`
}

// UtilityFileSearchResults answers a file search.
type UtilityFileSearchResults struct {
	SearchID  string      `json:"search_id"`
	Query     string      `json:"query"`     // trimmed
	Cwd       string      `json:"cwd"`       // absolute
	Results   []FileMatch `json:"results"`   // best first
	Truncated bool        `json:"truncated"` // there were more
}

// UtilityFileReadResult answers a file read. Lines count from 1.
type UtilityFileReadResult struct {
	ReadID       string `json:"read_id"`
	Path         string `json:"path"`          // absolute
	RelativePath string `json:"relative_path"` // to cwd
	Cwd          string `json:"cwd"`           // absolute
	Content      string `json:"content"`
	StartLine    int64  `json:"start_line"`
	EndLine      int64  `json:"end_line"`
	TotalLines   int64  `json:"total_lines"`
	Truncated    bool   `json:"truncated"` // there are more lines
}

// UtilityFileWatchStarted is a watch's first event.
type UtilityFileWatchStarted struct {
	WatchID           string   `json:"watch_id"`
	RootDir           string   `json:"root_dir"` // absolute
	IncludePatterns   []string `json:"include_patterns,omitempty"`
	ExcludePatterns   []string `json:"exclude_patterns,omitempty"` // without the built-in ones
	DebounceMS        int64    `json:"debounce_ms"`
	OwnerConnectionID string   `json:"owner_connection_id,omitempty"`
}

// UtilityFileWatchEvent is one change. Timestamp is epoch milliseconds.
type UtilityFileWatchEvent struct {
	WatchID      string     `json:"watch_id"`
	ChangeType   FileChange `json:"change_type"`
	Path         string     `json:"path"`          // absolute
	RelativePath string     `json:"relative_path"` // to the root
	Timestamp    int64      `json:"timestamp"`
	IsDirectory  bool       `json:"is_directory"` // false for deletions
}

// UtilityFileWatchStopped is a watch's last event.
type UtilityFileWatchStopped struct {
	WatchID string `json:"watch_id"`
	Reason  string `json:"reason,omitempty"`
}

// ErrorEvent is the error message. Fatal means that the runtime is about to
// end (R104). RequestID names the client's request that it answers.
type ErrorEvent struct {
	RequestID string    `json:"request_id,omitempty"`
	Message   string    `json:"message"`
	Fatal     bool      `json:"fatal"`
	ErrorType ErrorType `json:"error_type" wire:"lenient"`
}

// StatusWorking is the message of a status that shows that a silent run is alive.
const StatusWorking = "Working"

// Status is progress for humans.
type Status struct {
	Message string `json:"message"`
}

func (*HelloOK) EventType() string                  { return "hello_ok" }
func (*Ready) EventType() string                    { return "ready" }
func (*ResponseStart) EventType() string            { return "response_start" }
func (*ResponseChunk) EventType() string            { return "response_chunk" }
func (*ResponseEnd) EventType() string              { return "response_end" }
func (*ToolCall) EventType() string                 { return "tool_call" }
func (*ToolStart) EventType() string                { return "tool_start" }
func (*ToolOutput) EventType() string               { return "tool_output" }
func (*ToolEnd) EventType() string                  { return "tool_end" }
func (*ClientToolRequest) EventType() string        { return "client_tool_request" }
func (*ServerRequest) EventType() string            { return "server_request" }
func (*ServerRequestResolved) EventType() string    { return "server_request_resolved" }
func (*RawAgentEvent) EventType() string            { return "raw_agent_event" }
func (*UtilityCommandStarted) EventType() string    { return "utility_command_started" }
func (*UtilityCommandResized) EventType() string    { return "utility_command_resized" }
func (*UtilityCommandOutput) EventType() string     { return "utility_command_output" }
func (*UtilityCommandExited) EventType() string     { return "utility_command_exited" }
func (*UtilityFileSearchResults) EventType() string { return "utility_file_search_results" }
func (*UtilityFileReadResult) EventType() string    { return "utility_file_read_result" }
func (*UtilityFileWatchStarted) EventType() string  { return "utility_file_watch_started" }
func (*UtilityFileWatchEvent) EventType() string    { return "utility_file_watch_event" }
func (*UtilityFileWatchStopped) EventType() string  { return "utility_file_watch_stopped" }
func (*ErrorEvent) EventType() string               { return "error" }
func (*Status) EventType() string                   { return "status" }
func (*Compaction) EventType() string               { return "compaction" }
func (*SessionInfo) EventType() string              { return "session_info" }
func (*ConnectionInfo) EventType() string           { return "connection_info" }

// allEvents has a nil event of each type, in wire order.
var allEvents = []Event{
	(*HelloOK)(nil), (*Ready)(nil), (*ResponseStart)(nil), (*ResponseChunk)(nil), (*ResponseEnd)(nil), (*ToolCall)(nil),
	(*ToolStart)(nil), (*ToolOutput)(nil), (*ToolEnd)(nil), (*ClientToolRequest)(nil), (*ServerRequest)(nil),
	(*ServerRequestResolved)(nil), (*RawAgentEvent)(nil), (*UtilityCommandStarted)(nil), (*UtilityCommandResized)(nil),
	(*UtilityCommandOutput)(nil), (*UtilityCommandExited)(nil), (*UtilityFileSearchResults)(nil),
	(*UtilityFileReadResult)(nil), (*UtilityFileWatchStarted)(nil), (*UtilityFileWatchEvent)(nil),
	(*UtilityFileWatchStopped)(nil), (*ErrorEvent)(nil), (*Status)(nil), (*Compaction)(nil), (*SessionInfo)(nil),
	(*ConnectionInfo)(nil), (*PromptAccepted)(nil), (*ControlChanged)(nil),
	(*RequestShown)(nil), (*RequestVoted)(nil), (*QueueChanged)(nil),
}
