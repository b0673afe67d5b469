package contracts

import "encoding/json"

// A Command is one message from a client to the server.
// The types below are the only ones.
type Command interface {
	// CommandType returns the value of the message's type key.
	CommandType() string
}

// ClientInfo names the program at the other end.
type ClientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Capabilities says what a client can answer and what it wants to use. Both
// lists are sets.
type Capabilities struct {
	ServerRequests    []RequestType      `json:"server_requests,omitempty" wire:"unique"` // what the client can answer; a controller gets approvals also without it
	UtilityOperations []UtilityOperation `json:"utility_operations,omitempty" wire:"unique"`
	RawAgentEvents    bool               `json:"raw_agent_events,omitempty"` // asks for raw_agent_event messages
	People            bool               `json:"people,omitempty"`           // asks who did what; others do not see it
}

// ToolResult carries the explanatory text of an approval answer. It never
// replaces the tool's own result.
type ToolResult struct {
	Success bool   `json:"success"`
	Output  string `json:"output"`
	Error   string `json:"error,omitempty"`
}

// A ContentBlock is a piece of an answer: text, or an image in base64. Exactly
// the keys of its type are on the wire.
type ContentBlock struct {
	Type     string `json:"type" wire:"oneof=text|image"`
	Text     string `json:"text,omitempty"`     // text only
	Data     string `json:"data,omitempty"`     // image only, base64
	MimeType string `json:"mimeType,omitempty"` // image only
}

// A ClientTool is a tool that a client runs for the agent when it gets a
// client_tool request. InputSchema is a JSON Schema of the request's args.
type ClientTool struct {
	Name        string          `json:"name"` // 1 to 64 letters, digits, _ or -; differs from the names of the client's other tools
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"` // an object
}

// Hello identifies a client, chooses its role and negotiates. Every later hello
// replaces all values except the role (R29). A later hello that changes nothing is
// answered and not published.
type Hello struct {
	ProtocolVersion     string         `json:"protocol_version,omitempty"` // version the client was built for; another version is no error
	ClientInfo          *ClientInfo    `json:"client_info,omitempty"`
	Capabilities        *Capabilities  `json:"capabilities,omitempty"`
	Role                Role           `json:"role,omitempty"`                  // cannot change once set
	OptOutNotifications []Notification `json:"opt_out_notifications,omitempty"` // duplicates are allowed
	ClientTools         []ClientTool   `json:"client_tools,omitempty"`          // needs client_tool in server_requests; offered to the agent while the client holds the lease
	DisplayName         string         `json:"display_name,omitempty"`          // name that the user gives themselves; see [Author]
}

// Init changes the run configuration; fields are applied in this order (R33).
type Init struct {
	SystemPrompt       *string       `json:"system_prompt,omitempty"`        // replaces the prompt; may be empty
	AppendSystemPrompt *string       `json:"append_system_prompt,omitempty"` // added after a blank line
	ThinkingLevel      ThinkingLevel `json:"thinking_level,omitempty"`
	ApprovalMode       ApprovalMode  `json:"approval_mode,omitempty"`
}

// Prompt starts a run, or waits in the queue of the session. Attachments are paths on
// the server's file system.
type Prompt struct {
	Content     string     `json:"content"`
	Attachments []string   `json:"attachments,omitempty"`
	When        PromptTime `json:"when,omitempty"` // needs the capability people; default: now
}

// Interrupt stops the active run.
type Interrupt struct{}

// Cancel stops the active run like interrupt, with other reason texts.
type Cancel struct{}

// Shutdown ends the runtime.
type Shutdown struct{}

// ToolResponse is the legacy answer to an approval.
type ToolResponse struct {
	CallID   string      `json:"call_id"`
	Approved bool        `json:"approved"`
	Result   *ToolResult `json:"result,omitempty"` // only its text is used
}

// ClientToolResult is the legacy answer to a client tool, user input or
// elicitation.
type ClientToolResult struct {
	CallID  string         `json:"call_id"`
	Content []ContentBlock `json:"content"`
	IsError bool           `json:"is_error"` // the request ends as failed
}

// ServerRequestResponse answers any server request. An absent Approved denies
// (R54) and an absent DecisionAction aborts (R56).
type ServerRequestResponse struct {
	RequestID      string         `json:"request_id"`
	RequestType    RequestType    `json:"request_type"`              // must be that of the request
	Approved       *bool          `json:"approved,omitempty"`        // approvals
	Result         *ToolResult    `json:"result,omitempty"`          // approvals
	DecisionAction RetryAction    `json:"decision_action,omitempty"` // tool retries
	Reason         string         `json:"reason,omitempty"`          // tool retries, and approvals without a result
	Content        []ContentBlock `json:"content,omitempty"`         // client tools, elicitations and user input; for approvals additional content, such as an answer note
	IsError        bool           `json:"is_error,omitempty"`        // client tools, elicitations and user input: the request ends as failed
	Digest         string         `json:"digest,omitempty"`          // of the request that the client showed; another one is refused
}

// UtilityCommandStart runs a command.
type UtilityCommandStart struct {
	CommandID    string            `json:"command_id" wire:"id"`
	Command      string            `json:"command"`
	Cwd          *string           `json:"cwd,omitempty"`           // default: the workspace
	Env          map[string]string `json:"env,omitempty"`           // added to the server's environment
	ShellMode    ShellMode         `json:"shell_mode,omitempty"`    // default: shell
	TerminalMode TerminalMode      `json:"terminal_mode,omitempty"` // default: pipe
	AllowStdin   bool              `json:"allow_stdin,omitempty"`   // utility_command_stdin will be accepted
	Columns      *int64            `json:"columns,omitempty"`       // terminals only; default: 80
	Rows         *int64            `json:"rows,omitempty"`          // terminals only; default: 24
}

// UtilityCommandTerminate stops a command; Force kills at once.
type UtilityCommandTerminate struct {
	CommandID string `json:"command_id" wire:"id"`
	Force     bool   `json:"force,omitempty"`
}

// UtilityCommandStdin writes to a command's standard input.
type UtilityCommandStdin struct {
	CommandID string `json:"command_id" wire:"id"`
	Content   string `json:"content"`
	EOF       bool   `json:"eof,omitempty"` // ends the input after the content
}

// UtilityCommandResize sets the size of a command's terminal.
type UtilityCommandResize struct {
	CommandID string `json:"command_id" wire:"id"`
	Columns   int64  `json:"columns"`
	Rows      int64  `json:"rows"`
}

// UtilityFileSearch finds files by name.
type UtilityFileSearch struct {
	SearchID string  `json:"search_id" wire:"id"`
	Query    string  `json:"query"`
	Cwd      *string `json:"cwd,omitempty"`   // default: the workspace
	Limit    *int64  `json:"limit,omitempty"` // 1 to 500; default: 50
}

// UtilityFileRead reads lines of a text file.
type UtilityFileRead struct {
	ReadID string  `json:"read_id" wire:"id"`
	Path   string  `json:"path"`             // relative to cwd, or absolute inside it
	Cwd    *string `json:"cwd,omitempty"`    // default: the workspace
	Offset *int64  `json:"offset,omitempty"` // first line, from 1
	Limit  *int64  `json:"limit,omitempty"`  // lines, 1 to 2000; default: 400
}

// UtilityFileWatchStart watches a tree.
type UtilityFileWatchStart struct {
	WatchID         string   `json:"watch_id" wire:"id"`
	RootDir         *string  `json:"root_dir,omitempty"`         // default: the workspace
	IncludePatterns []string `json:"include_patterns,omitempty"` // globs; default: everything
	ExcludePatterns []string `json:"exclude_patterns,omitempty"` // added to the built-in ones
	DebounceMS      *int64   `json:"debounce_ms,omitempty"`      // quiet time per path; default: 100
}

// UtilityFileWatchStop stops a watch.
type UtilityFileWatchStop struct {
	WatchID string `json:"watch_id" wire:"id"`
}

func (*Hello) CommandType() string                   { return "hello" }
func (*Init) CommandType() string                    { return "init" }
func (*Prompt) CommandType() string                  { return "prompt" }
func (*Interrupt) CommandType() string               { return "interrupt" }
func (*ToolResponse) CommandType() string            { return "tool_response" }
func (*ClientToolResult) CommandType() string        { return "client_tool_result" }
func (*ServerRequestResponse) CommandType() string   { return "server_request_response" }
func (*UtilityCommandStart) CommandType() string     { return "utility_command_start" }
func (*UtilityCommandTerminate) CommandType() string { return "utility_command_terminate" }
func (*UtilityCommandStdin) CommandType() string     { return "utility_command_stdin" }
func (*UtilityCommandResize) CommandType() string    { return "utility_command_resize" }
func (*UtilityFileSearch) CommandType() string       { return "utility_file_search" }
func (*UtilityFileRead) CommandType() string         { return "utility_file_read" }
func (*UtilityFileWatchStart) CommandType() string   { return "utility_file_watch_start" }
func (*UtilityFileWatchStop) CommandType() string    { return "utility_file_watch_stop" }
func (*Cancel) CommandType() string                  { return "cancel" }
func (*Shutdown) CommandType() string                { return "shutdown" }
func (*QueueEdit) CommandType() string               { return "queue_edit" }
func (*QueueMove) CommandType() string               { return "queue_move" }
func (*QueueCancel) CommandType() string             { return "queue_cancel" }
func (*QueueResume) CommandType() string             { return "queue_resume" }

// allCommands has a nil command of each type, in wire order.
var allCommands = []Command{
	(*Hello)(nil), (*Init)(nil), (*Prompt)(nil), (*Interrupt)(nil), (*ToolResponse)(nil), (*ClientToolResult)(nil),
	(*ServerRequestResponse)(nil), (*UtilityCommandStart)(nil), (*UtilityCommandTerminate)(nil),
	(*UtilityCommandStdin)(nil), (*UtilityCommandResize)(nil), (*UtilityFileSearch)(nil), (*UtilityFileRead)(nil),
	(*UtilityFileWatchStart)(nil), (*UtilityFileWatchStop)(nil), (*Cancel)(nil), (*Shutdown)(nil),
	(*QueueEdit)(nil), (*QueueMove)(nil), (*QueueCancel)(nil), (*QueueResume)(nil),
}

// MarshalJSON writes the keys of the block's type and no others.
func (b ContentBlock) MarshalJSON() ([]byte, error) {
	if b.Type != "image" {
		b.Type = "text"
	}
	var w writer
	w.block(&b)
	return w.buf, nil
}
