package heddle

import "encoding/json"

// Version is the newest protocol version that the package knows.
const Version = "0.5.0"

// The types of requests.
const (
	TypeInit     = "init"
	TypeSend     = "send"
	TypeStatus   = "status"
	TypeCancel   = "cancel"
	TypeShutdown = "shutdown"
)

// The types of responses.
const (
	TypeInitOK     = "init_ok"
	TypeEvent      = "event"
	TypeResult     = "result"
	TypeStatusOK   = "status_ok"
	TypeShutdownOK = "shutdown_ok"
)

// The kinds of events, each with the members that it has.
const (
	EventContentDelta      = "content_delta"      // text
	EventToolStart         = "tool_start"         // name, args
	EventToolEnd           = "tool_end"           // name, result_preview
	EventUsage             = "usage"              // the members of Usage
	EventError             = "error"              // the members of Error, provider
	EventPermissionRequest = "permission_request" // name, reason
	EventPermissionDenied  = "permission_denied"  // name, reason
	EventPlanComplete      = "plan_complete"      // plan
	EventContextPrune      = "context_prune"      // messages_pruned, tokens_before, tokens_after
	EventContextCompact    = "context_compact"
	EventContextHandoff    = "context_handoff"
	EventHeartbeat         = "heartbeat"         // duration_ms
	EventRoutedModel       = "routed_model"      // model; since 0.3
	EventUpstreamProvider  = "upstream_provider" // provider
	EventTurnState         = "turn_state"        // state; since 0.5
)

// The codes of errors.
const (
	CodeProviderError   = "provider_error"
	CodeProtocolError   = "protocol_error"
	CodeVersionMismatch = "protocol_version_mismatch"
	CodeToolError       = "tool_error"
	CodeLoopDetected    = "loop_detected"
	CodeCancelled       = "cancelled"
	CodeMaxIterations   = "max_iterations" // since 0.5
)

// The values of Result.Status.
const (
	ResultOK    = "ok"
	ResultError = "error"
)

// The states of a turn_state event.
const (
	StateQueued     = "queued"
	StateRunning    = "running"
	StateCancelling = "cancelling"
	StateCompleted  = "completed"
)

// UnknownID is the id of the answer to a line that has no usable id.
const UnknownID = "unknown"

// MaxPreview is the number of code points of a result that a tool_end event shows.
const MaxPreview = 500

// A Request is a message of the client. Type says which members count.
type Request struct {
	Type            string  `json:"type"`
	ID              string  `json:"id"`
	ProtocolVersion *string `json:"protocol_version,omitempty"` // of init
	Config          *Config `json:"config,omitempty"`           // of init
	Message         *string `json:"message,omitempty"`          // of send
	TargetID        *string `json:"target_id,omitempty"`        // of cancel: the id of a send
}

// A Config says what a session is to be. Model, SystemPrompt and Tools are required.
type Config struct {
	Model         *string      `json:"model,omitempty"`
	SystemPrompt  *string      `json:"system_prompt,omitempty"`
	Tools         *[]string    `json:"tools,omitempty"`          // the only tools of the model
	MaxIterations *int         `json:"max_iterations,omitempty"` // at least 1
	TaskID        string       `json:"task_id,omitempty"`        // repeated in events and results
	WorkerID      string       `json:"worker_id,omitempty"`      // repeated in events and results
	Attribution   *Attribution `json:"app_attribution,omitempty"`
	Runtime       *Runtime     `json:"runtime,omitempty"`
	Routing       *Routing     `json:"routing,omitempty"`
	Extensions    []string     `json:"extensions,omitempty"` // of this implementation; see the Extension constants
}

// An Attribution names the client's application. It is known since 0.3.
type Attribution struct {
	Referer    string   `json:"referer,omitempty"`
	Title      string   `json:"title,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

// The runtime modes.
const (
	ModeDefault  = "default"
	ModeIsolated = "isolated"
)

// A Runtime says where a session keeps its state. It is known since 0.4.
type Runtime struct {
	Mode                 string `json:"mode,omitempty"`
	StateRoot            string `json:"state_root,omitempty"`      // absolute; required if Mode is ModeIsolated
	TranscriptPath       string `json:"transcript_path,omitempty"` // absolute
	InheritAmbientConfig *bool  `json:"inherit_ambient_config,omitempty"`
}

// A Routing has ids by which gateways know a request. It is known since 0.4.
type Routing struct {
	Gateway          string `json:"gateway,omitempty"`
	UpstreamProvider string `json:"upstream_provider,omitempty"`
	DirectProvider   string `json:"direct_provider,omitempty"`
	RequestID        string `json:"request_id,omitempty"`
	GroupingID       string `json:"grouping_id,omitempty"`
}

// An InitOK accepts an init.
type InitOK struct {
	Type             string        `json:"type"`
	ID               string        `json:"id"`
	SessionID        string        `json:"session_id"`
	ProtocolVersion  string        `json:"protocol_version"`
	Error            *Error        `json:"error,omitempty"`             // some servers report a version mismatch here
	Routing          *Routing      `json:"routing,omitempty"`           // since 0.4
	RequestedRouting *Routing      `json:"requested_routing,omitempty"` // since 0.5
	Profile          *Profile      `json:"profile,omitempty"`
	Capabilities     *Capabilities `json:"capabilities,omitempty"`
}

// A Profile identifies the settings of a session. It is known since 0.5.
type Profile struct {
	Fingerprint string `json:"fingerprint"` // sha256: and 64 hex digits
	Model       string `json:"model"`
}

// Capabilities say what a server can do. They are known since 0.5.
type Capabilities struct {
	EnabledTools           []string `json:"enabled_tools"` // sorted
	ExplicitToolAllowlist  bool     `json:"explicit_tool_allowlist"`
	RuntimeModes           []string `json:"runtime_modes"`
	TranscriptPlacement    bool     `json:"transcript_placement"`
	FailureDetailsVersion  string   `json:"failure_details_version"`
	RoutingRequestMetadata bool     `json:"routing_request_metadata"`
	EffectiveRouting       bool     `json:"effective_routing_metadata"`
	CacheUsageMetrics      bool     `json:"cache_usage_metrics"`
	Cancellation           bool     `json:"cancellation"`
	TurnStateEvents        bool     `json:"turn_state_events"`
}

// An Event is one event of a send. The first of each send has EventSeq 0.
type Event struct {
	Type      string `json:"type"`
	Event     Body   `json:"event"`
	EventSeq  int    `json:"event_seq"`
	SendID    string `json:"send_id"`
	SessionID string `json:"session_id,omitempty"`
	TaskID    string `json:"task_id,omitempty"`
	WorkerID  string `json:"worker_id,omitempty"`
}

// A Body is what an event says. Event is one of the Event constants, which say which
// members count.
type Body struct {
	Event         string          `json:"event"`
	Text          *string         `json:"text,omitempty"`
	Name          *string         `json:"name,omitempty"`
	Args          json.RawMessage `json:"args,omitempty"`
	ResultPreview *string         `json:"result_preview,omitempty"`
	*Usage                        // of a usage event
	Code          *string         `json:"code,omitempty"`
	Message       *string         `json:"message,omitempty"`
	Retryable     *bool           `json:"retryable,omitempty"`
	Provider      *string         `json:"provider,omitempty"`
	Details       json.RawMessage `json:"details,omitempty"`
	Reason        *string         `json:"reason,omitempty"`
	Plan          *string         `json:"plan,omitempty"`
	DurationMS    *int64          `json:"duration_ms,omitempty"`
	Model         *string         `json:"model,omitempty"`
	State         *string         `json:"state,omitempty"`
	CallID        string          `json:"call_id,omitempty"` // with ExtensionCallIDs
	Thinking      bool            `json:"thinking,omitempty"`
}

// A Usage is what model calls used. The members after TotalTokens are known since 0.3.
type Usage struct {
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	TotalTokens      int64  `json:"total_tokens"`
	CostMicros       int64  `json:"cost_micros,omitempty"` // millionths of CostCurrency
	CostCurrency     string `json:"cost_currency,omitempty"`
	CachedTokens     int64  `json:"cached_tokens,omitempty"`
	CacheWriteTokens int64  `json:"cache_write_tokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoning_tokens,omitempty"`
	GenerationID     string `json:"generation_id,omitempty"`
}

// An Error says why a request failed.
type Error struct {
	Code      string          `json:"code"`
	Message   string          `json:"message"`
	Retryable bool            `json:"retryable"`
	Details   json.RawMessage `json:"details,omitempty"`
}

// A Call is a tool call of a send.
type Call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // null if the model's arguments were not JSON
}

// A Result ends a send, or refuses another request.
type Result struct {
	Type           string   `json:"type"`
	ID             string   `json:"id"`
	Status         string   `json:"status"`
	Response       *string  `json:"response,omitempty"`
	Error          *Error   `json:"error,omitempty"`
	ToolCallsMade  []Call   `json:"tool_calls_made"` // in the order of their starts
	Usage          *Usage   `json:"usage,omitempty"`
	Iterations     int      `json:"iterations"` // finished model calls
	SessionID      string   `json:"session_id,omitempty"`
	TaskID         string   `json:"task_id,omitempty"`
	WorkerID       string   `json:"worker_id,omitempty"`
	ModelLatencyMS *int64   `json:"model_latency_ms,omitempty"`
	ToolLatencyMS  *int64   `json:"tool_latency_ms,omitempty"`
	TotalLatencyMS *int64   `json:"total_latency_ms,omitempty"`
	Failure        *Failure `json:"failure,omitempty"`
}

// A Failure says more about a send that failed. It is known since 0.4.
type Failure struct {
	Code               string      `json:"code"`
	TerminationReason  string      `json:"termination_reason"`
	Iterations         int         `json:"iterations"`
	ToolCallsMade      int         `json:"tool_calls_made"`
	LastToolName       string      `json:"last_tool_name,omitempty"`
	LastTool           *Call       `json:"last_tool,omitempty"`
	LoopCount          int         `json:"loop_count,omitempty"`
	LoopThreshold      int         `json:"loop_threshold,omitempty"`
	Provider           *Provider   `json:"provider,omitempty"`
	Permission         *Permission `json:"permission,omitempty"`
	MalformedToolCall  bool        `json:"malformed_tool_call,omitempty"`
	CancellationSource string      `json:"cancellation_source,omitempty"`
}

// A Provider says what a model provider answered to a failed call.
type Provider struct {
	Name           string `json:"name,omitempty"`
	Status         int    `json:"status,omitempty"`
	StatusCategory string `json:"status_category,omitempty"` // such as 5xx
	RetryAfterMS   int64  `json:"retry_after_ms,omitempty"`
	ErrorType      string `json:"error_type,omitempty"`
	ProviderCode   any    `json:"provider_code,omitempty"`
}

// A Permission says which tool was refused.
type Permission struct {
	Name   string `json:"name"`
	CallID string `json:"call_id,omitempty"`
	Reason string `json:"reason"`
}

// A StatusOK answers a status request.
type StatusOK struct {
	Type            string `json:"type"`
	ID              string `json:"id"`
	Model           string `json:"model"`
	MessagesCount   int    `json:"messages_count"` // of the user and the assistant
	SessionID       string `json:"session_id"`
	Active          bool   `json:"active"`
	LastRoutedModel string `json:"last_routed_model,omitempty"` // since 0.3
}

// A ShutdownOK is the last message of a server.
type ShutdownOK struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// The values of Config.Extensions. A server that does not know them ignores them.
const (
	ExtensionTakeControl = "take_control" // a send takes control of the session from another client at once
	ExtensionApproveAll  = "approve_all"  // approvals are granted at once
	ExtensionDenyAll     = "deny_all"     // approvals are refused at once
	ExtensionCallIDs     = "call_ids"     // tool events and calls have ids
	ExtensionThinking    = "thinking"     // content_delta events with "thinking":true show reasoning
)
