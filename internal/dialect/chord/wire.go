package chord

import "encoding/json"

// MaxLine is the longest line of the protocol in bytes, without its end, in both
// directions. Known clients stop reading at a longer one.
const MaxLine = 1 << 20

// An Envelope is one line of a server.
type Envelope struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"` // an object
}

// Types of envelopes. Clients always get the first group. They subscribe to the second
// group. An error that answers a command is never filtered; it has no agent id.
const (
	TypeReady             = "ready"              // Ready
	TypeSubscribeResponse = "subscribe_response" // SubscribeResponse
	TypeStatusResponse    = "status_response"    // Status
	TypeModelsResponse    = "models_response"    // ModelsResponse
	TypeError             = "error"              // CommandError, or Failure of the runtime

	TypeActivity         = "activity"           // Activity
	TypeAssistantMessage = "assistant_message"  // AssistantMessage
	TypeIdle             = "idle"               // Idle
	TypeDoneCompletion   = "done_completion"    // DoneCompletion
	TypeConfirmRequest   = "confirm_request"    // ConfirmRequest
	TypeQuestionRequest  = "question_request"   // QuestionRequest
	TypeHandoffRequest   = "handoff_request"    // not sent by this package
	TypeAgentStarted     = "agent_started"      // not sent by this package
	TypeAgentNotify      = "agent_notify"       // not sent by this package
	TypeAgentDone        = "agent_done"         // not sent by this package
	TypeRollback         = "assistant_rollback" // not sent by this package
	TypeInfo             = "info"               // Info
	TypeToast            = "toast"              // Toast
	TypeTodos            = "todos"              // Todos
	TypeLocalShellResult = "local_shell_result" // LocalShellResult
)

// subscribable are the types that a client can subscribe to.
var subscribable = []string{
	TypeActivity, TypeAssistantMessage, TypeIdle, TypeDoneCompletion, TypeConfirmRequest, TypeQuestionRequest,
	TypeHandoffRequest, TypeAgentStarted, TypeAgentNotify, TypeAgentDone, TypeRollback, TypeInfo, TypeToast, TypeTodos,
	TypeLocalShellResult, TypeError,
}

// Types of commands.
const (
	CommandSubscribe  = "subscribe"
	CommandStatus     = "status"
	CommandSend       = "send"
	CommandModels     = "models"
	CommandConfirm    = "confirm"
	CommandQuestion   = "question"
	CommandCancel     = "cancel"
	CommandHandoff    = "handoff"
	CommandLocalShell = "local_shell"
)

// A Command is one line of a client. Each type uses some of the members.
type Command struct {
	Type          string   `json:"type"`
	Events        []string `json:"events,omitempty"`          // subscribe
	Content       string   `json:"content,omitempty"`         // send, local_shell
	Action        string   `json:"action,omitempty"`          // models, confirm, handoff
	Pool          string   `json:"pool,omitempty"`            // models, handoff
	RequestID     string   `json:"request_id,omitempty"`      // confirm, question, handoff
	FinalArgsJSON string   `json:"final_args_json,omitempty"` // confirm
	EditSummary   string   `json:"edit_summary,omitempty"`    // confirm
	DenyReason    string   `json:"deny_reason,omitempty"`     // confirm, handoff
	RulePattern   string   `json:"rule_pattern,omitempty"`    // confirm
	RuleScope     string   `json:"rule_scope,omitempty"`      // confirm
	Answers       []string `json:"answers,omitempty"`         // question
	Cancelled     bool     `json:"cancelled,omitempty"`       // question
	Agent         string   `json:"agent,omitempty"`           // handoff
	Command       string   `json:"command,omitempty"`         // local_shell
}

// Ready is the first envelope.
type Ready struct {
	SessionID string    `json:"session_id"`
	Worktree  *Worktree `json:"worktree,omitempty"`
}

// A Worktree is a second working directory of a git repository, with a branch of its own.
type Worktree struct {
	Name     string `json:"name"`
	Branch   string `json:"branch"`
	Path     string `json:"path"`
	RepoRoot string `json:"repo_root"`
}

// SubscribeResponse answers subscribe.
type SubscribeResponse struct {
	Events    []string `json:"events"`    // as requested; null if the request had none
	Effective []string `json:"effective"` // the types that are delivered from now on
}

// Status is the payload of status_response.
type Status struct {
	SessionID       string           `json:"session_id"`
	Busy            bool             `json:"busy"`
	Phase           string           `json:"phase"` // type of the last activity; empty when idle
	PhaseDetail     string           `json:"phase_detail"`
	PendingConfirm  *ConfirmRequest  `json:"pending_confirm"`
	PendingQuestion *QuestionRequest `json:"pending_question"`
	PendingHandoff  json.RawMessage  `json:"pending_handoff"`
	LastError       string           `json:"last_error"`   // empty when idle
	LastOutcome     string           `json:"last_outcome"` // empty before the first idle
	UpdatedAt       string           `json:"updated_at"`   // RFC 3339, in seconds
}

// ModelsResponse answers models. Status is text for people.
type ModelsResponse struct {
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
	Status  string `json:"status,omitempty"`
}

// A CommandError says why a command had no effect.
type CommandError struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

// A Failure is an error of the runtime. It does not end the turn.
type Failure struct {
	AgentID string `json:"agent_id"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

// Types of activities.
const (
	PhaseConnecting     = "connecting"
	PhaseWaitingHeaders = "waiting_headers"
	PhaseWaitingToken   = "waiting_token"
	PhaseStreaming      = "streaming"
	PhaseExecuting      = "executing"
	PhaseCompacting     = "compacting"
	PhaseRetrying       = "retrying"
	PhaseRetryingKey    = "retrying_key"
	PhaseCooling        = "cooling"
)

// Activity says what an agent does. The id of the main agent is "main" here, and empty
// in all other payloads.
type Activity struct {
	AgentID string `json:"agent_id"`
	Type    string `json:"type"`
	Detail  string `json:"detail"`
}

// AssistantMessage is the whole text of one model round.
type AssistantMessage struct {
	AgentID       string `json:"agent_id"`
	Text          string `json:"text"`       // empty if the round has only tool calls
	ToolCalls     int    `json:"tool_calls"` // tool calls in the round
	TaskID        string `json:"task_id"`
	AgentType     string `json:"agent_type"`
	ParentAgentID string `json:"parent_agent_id"`
}

// Outcomes of a turn.
const (
	OutcomeCompleted = "completed"
	OutcomeCancelled = "cancelled"
	OutcomeError     = "error"
)

// Idle says that no agent is running and no message is queued.
type Idle struct {
	LastOutcome              string `json:"last_outcome"`
	SuppressUserNotification bool   `json:"suppress_user_notification"`
}

// DoneCompletion is the report of an agent that ended its task.
type DoneCompletion struct {
	CallID  string `json:"call_id"`
	Report  string `json:"report"`
	Reason  string `json:"reason"`
	Status  string `json:"status"` // may be error
	AgentID string `json:"agent_id"`
	Mode    string `json:"mode"`
}

// A ConfirmRequest asks whether a tool may run.
type ConfirmRequest struct {
	RequestID           string   `json:"request_id"`
	ToolName            string   `json:"tool_name"`
	ArgsJSON            string   `json:"args_json"`      // JSON text
	NeedsApproval       []string `json:"needs_approval"` // what rule patterns are matched against
	NeedsApprovalRules  []string `json:"needs_approval_rules"`
	AlreadyAllowed      []string `json:"already_allowed"`
	AlreadyAllowedRules []string `json:"already_allowed_rules"`
	TimeoutMS           int64    `json:"timeout_ms"` // 0: none
	DoneReport          string   `json:"done_report"`
	DoneReason          string   `json:"done_reason"`
}

// A QuestionRequest asks people a question.
type QuestionRequest struct {
	RequestID     string   `json:"request_id"`
	ToolName      string   `json:"tool_name"`
	Header        string   `json:"header"`
	Question      string   `json:"question"`
	Options       []string `json:"options"`
	OptionDetails []string `json:"option_details"`
	DefaultAnswer string   `json:"default_answer"` // the first option; empty for free text
	Multiple      bool     `json:"multiple"`
	TimeoutMS     int64    `json:"timeout_ms"` // 0: none
}

// Info is a text for people.
type Info struct {
	AgentID string `json:"agent_id"`
	Message string `json:"message"`
}

// Toast is a text that clients may ignore.
type Toast struct {
	AgentID string `json:"agent_id"`
	Message string `json:"message"`
	Level   string `json:"level"` // info, warn or error
}

// Todos replaces the list of tasks.
type Todos struct {
	Todos []Todo `json:"todos"`
}

// A Todo is one task.
type Todo struct {
	ID         string `json:"id"`
	Content    string `json:"content"`
	Status     string `json:"status"`
	ActiveForm string `json:"active_form,omitempty"`
}

// LocalShellResult answers local_shell.
type LocalShellResult struct {
	Command string `json:"command"`
	Output  string `json:"output"`
	Failed  bool   `json:"failed"`
	Error   string `json:"error,omitempty"`
}
