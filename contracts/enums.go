package contracts

// A Role is what a connection may do. It never changes once set.
type Role string

const (
	RoleViewer     Role = "viewer"     // reads only
	RoleApprover   Role = "approver"   // reads, and answers approvals and user input without the lease
	RoleController Role = "controller" // may hold the lease and send commands
)

// Shown returns the role that lists of connections name: an approver is listed as a
// viewer that may answer, because older clients do not know the role.
func (r Role) Shown() Role {
	if r == RoleApprover {
		return RoleViewer
	}
	return r
}

// A RequestType is a kind of question the runtime asks a client.
type RequestType string

// The request types in canonical order, which is also the class order in which
// simultaneous cancellations are listed.
const (
	RequestApproval       RequestType = "approval"
	RequestClientTool     RequestType = "client_tool"
	RequestMCPElicitation RequestType = "mcp_elicitation"
	RequestUserInput      RequestType = "user_input"
	RequestToolRetry      RequestType = "tool_retry"
)

// RequestTypes lists every request type in canonical order.
func RequestTypes() []RequestType {
	return []RequestType{RequestApproval, RequestClientTool, RequestMCPElicitation, RequestUserInput, RequestToolRetry}
}

// A Verdict is how a request ended; the wire key is resolution.
type Verdict string

const (
	VerdictApproved  Verdict = "approved"
	VerdictDenied    Verdict = "denied"
	VerdictCompleted Verdict = "completed"
	VerdictFailed    Verdict = "failed"
	VerdictAnswered  Verdict = "answered"
	VerdictRetried   Verdict = "retried"
	VerdictSkipped   Verdict = "skipped"
	VerdictAborted   Verdict = "aborted"
	VerdictCancelled Verdict = "cancelled"
)

// A Resolver says who ended a request.
type Resolver string

const (
	ResolvedByUser    Resolver = "user"
	ResolvedByPolicy  Resolver = "policy"
	ResolvedByClient  Resolver = "client"
	ResolvedByRuntime Resolver = "runtime"
)

// A RetryAction is a client's decision about a failed tool.
type RetryAction string

const (
	RetryActionRetry RetryAction = "retry"
	RetryActionSkip  RetryAction = "skip"
	RetryActionAbort RetryAction = "abort"
)

// A Notification is a kind of message or envelope a client may opt out of.
type Notification string

const (
	NotifyStatus         Notification = "status"
	NotifyHeartbeat      Notification = "heartbeat"
	NotifyConnectionInfo Notification = "connection_info"
	NotifyCompaction     Notification = "compaction"
)

// Notifications lists every notification in canonical order. All but the heartbeat are
// the types of the events that a client does not get.
func Notifications() []Notification {
	return []Notification{NotifyStatus, NotifyHeartbeat, NotifyConnectionInfo, NotifyCompaction}
}

// A ThinkingLevel is how hard the model is asked to think.
type ThinkingLevel string

const (
	ThinkingOff     ThinkingLevel = "off"
	ThinkingMinimal ThinkingLevel = "minimal"
	ThinkingLow     ThinkingLevel = "low"
	ThinkingMedium  ThinkingLevel = "medium"
	ThinkingHigh    ThinkingLevel = "high"
	ThinkingUltra   ThinkingLevel = "ultra"
)

// An ApprovalMode is the policy for gated tools.
type ApprovalMode string

const (
	ApprovalAuto   ApprovalMode = "auto"   // run without asking
	ApprovalPrompt ApprovalMode = "prompt" // ask; the default
	ApprovalFail   ApprovalMode = "fail"   // refuse without asking
)

// A PromptTime says when a prompt begins.
type PromptTime string

const (
	PromptNow   PromptTime = "now"   // at once; refused during a run
	PromptNext  PromptTime = "next"  // after the active run and the queue
	PromptSteer PromptTime = "steer" // in the active run, if the agent takes it; otherwise as next
)

// An ErrorType classifies an error message for clients.
type ErrorType string

const (
	ErrorTransient ErrorType = "transient"
	ErrorFatal     ErrorType = "fatal"
	ErrorTool      ErrorType = "tool"
	ErrorCancelled ErrorType = "cancelled"
	ErrorProtocol  ErrorType = "protocol"
)

// A UtilityOperation is a service of the server that clients can use beside the
// agent.
type UtilityOperation string

const (
	OperationCommandExec UtilityOperation = "command_exec"
	OperationFileSearch  UtilityOperation = "file_search"
	OperationFileWatch   UtilityOperation = "file_watch"
	OperationFileRead    UtilityOperation = "file_read"
)

// A Stream names one output of a command. A terminal reports stdout only.
type Stream string

const (
	StreamStdout Stream = "stdout"
	StreamStderr Stream = "stderr"
)

// A ShellMode says whether a command line goes through a shell.
type ShellMode string

const (
	ShellModeShell  ShellMode = "shell"
	ShellModeDirect ShellMode = "direct"
)

// A TerminalMode says what a command's standard streams are.
type TerminalMode string

const (
	TerminalPipe TerminalMode = "pipe"
	TerminalPTY  TerminalMode = "pty"
)

// A FileChange is what happened to a watched path.
type FileChange string

const (
	FileCreated  FileChange = "create"
	FileModified FileChange = "modify"
	FileDeleted  FileChange = "delete"
	FileRenamed  FileChange = "rename"
)

// An ExecutorType says whether answers come from a live runtime or from a script.
// Clients mark the latter.
type ExecutorType string

const (
	ExecutorLive   ExecutorType = "live"
	ExecutorReplay ExecutorType = "replay"
)

// A ResetReason says why a client must discard its state.
type ResetReason string

const (
	ResetLagged   ResetReason = "lagged"                 // the client is further behind than the journal retains
	ResetGap      ResetReason = "replay_gap"             // the journal does not have its cursor
	ResetRestored ResetReason = "restored_from_snapshot" // the runtime was restored elsewhere
)

// A LeaseReason says why the holder of the controller lease changed.
type LeaseReason string

const (
	LeaseGranted   LeaseReason = "granted"
	LeaseTakenOver LeaseReason = "taken_over"
	LeaseExpired   LeaseReason = "expired"
	LeaseReleased  LeaseReason = "released"
	LeaseDraining  LeaseReason = "draining"
	LeaseDenied    LeaseReason = "denied" // a request for control was denied; the holder is unchanged
)
