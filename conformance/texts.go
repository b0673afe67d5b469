package conformance

import (
	"fmt"
	"io"
	"strings"
)

// exactTexts are the texts that scenarios demand word by word, with what they say. A word in
// angle brackets stands for what differs.
var exactTexts = []struct{ text, of string }{
	// Refusals and errors.
	{"Failed to parse command: Unknown headless command type", "a message of an unknown type"},
	{"Failed to parse command: Invalid headless command: /<key> Unexpected property", "an unknown key, if the server is strict"},
	{"Failed to parse command: <cause>", "any other text that is no message"},
	{"Viewer headless connections cannot send messages", "a viewer's action"},
	{"viewer headless connections cannot negotiate <type> requests", "a viewer that offers to answer questions"},
	{"viewer headless connections cannot enable client-side tools", "a viewer with client tools"},
	{"client_tool capability is required when enableClientTools is true", "client tools without their capability"},
	{"headless connection role cannot change after hello", "a hello with another role"},
	{"Headless connection role does not match subscription role", "a subscription with another role than its connection"},
	{"Headless subscription does not belong to the message connection", "a message whose subscription is another connection's"},
	{"Headless runtime is already processing a prompt", "a prompt during a run"},
	{"Controller lease is already held by another connection", "a second controller that attaches"},
	{"Controller lease is currently held by another connection", "an action without the lease"},
	{"Headless connection not found", "an unknown connection"},
	{"Headless subscriber not found", "an unknown subscription"},
	{"Headless session not found", "an unknown session"},
	{"Pending request <id> is <type>, not <type>", "an answer of another type than the question"},
	{"Attachment not readable: <path>", "an attachment that cannot be read"},
	{"<message type> requires <operation> capability", "an operation that was not negotiated"},
	{"Headless command <id> is owned by another connection", "an action on another connection's command"},
	{"Headless file watch <id> is owned by another connection", "a stop of another connection's watch"},
	{"Run interrupted by user", "the error at the end of a run after `interrupt`"},
	{"Run cancelled by user", "the error at the end of a run after `cancel`"},
	// Commands.
	{"Too many utility commands", "the 33rd command at once"},
	{"Utility command already exists: <id>", "the id of a running command"},
	{"Utility command not found: <id>", "input for an unknown or ended command"},
	{"Utility command stdin is not enabled: <id>", "input without `allow_stdin`"},
	{"Utility command stdin is not writable: <id>", "input after its end"},
	{"Utility command columns and rows require terminal_mode=pty", "a size without a terminal"},
	{"Utility command columns must be a positive integer", "columns below 1"},
	{"Utility command rows must be a positive integer", "rows below 1"},
	{"Utility command resize is only supported for PTY commands: <id>", "a new size without a terminal"},
	{"command is required and cannot be empty", "a blank command"},
	{"Command contains invalid control characters", "a command with control characters, or too long"},
	{"Command contains unterminated quotes", "direct mode: an open quote"},
	{"Command ends with unfinished escape sequence", "direct mode: a backslash at the end"},
	{"cwd is required and cannot be empty", "a blank working directory"},
	{"Working directory contains invalid characters", "a working directory with control characters, or too long"},
	{"Working directory not found: <path>", "a missing working directory"},
	{"environment variable key is required and cannot be empty", "a variable without a name"},
	{"Environment variable <name> contains invalid characters", "a malformed variable, or a long one"},
	// Files.
	{"Path traversal detected: <path>", "a read that leaves the directory given"},
	{"outside workspace root", "any path that leaves the workspace, in the text of the refusal"},
	{"File not found: <path>", "a missing file"},
	{"File not readable: <path>", "a file that the server may not read"},
	{"File size exceeds maximum allowed limit: <path> (<n> bytes, max: <n> bytes)", "a file over 2 MiB"},
	{"Offset <line> is beyond end of file (<lines> lines total)", "an offset after the last line"},
	{"utility_file_read only supports text files: <path>", "a binary file"},
	{"utility_file_read only supports regular files: <path>", "a directory or a pipe"},
	{"Utility file watch already exists: <id>", "the id of a watch in use"},
	{"Utility file watch root directory does not exist: <path>", "a watch of a missing directory"},
	// Reasons.
	{"Denied by user", "a denial without a reason"},
	{"Approved", "an approval without a reason"},
	{"Interrupted before request completed", "a question that `interrupt` cancelled"},
	{"Cancelled before request completed", "a question that `cancel` cancelled"},
	{"Shutdown before request completed", "a question that `shutdown` or the end of input cancelled"},
	{"Terminated by controller", "a command that was terminated"},
	{"Force terminated by controller", "a command that was terminated with `force`"},
	{"<cause> while utility command was still running", "a command that ended for the cause `Interrupted`, `Cancelled`, `Headless runtime shutdown` or `Owning connection closed`"},
	{"<cause> while file watch was still running", "a watch that ended for one of these causes"},
	{"Stopped by controller", "a watch that was stopped"},
	{"Watch root removed", "a watch whose directory was removed"},
	// Statuses.
	{"Init received with no changes", "an `init` without fields"},
	{"Initialized: <fields>", "an `init`, with the fields in a fixed order"},
	{"Client protocol <version> attached to server <version>", "a `hello` with another protocol version"},
	// Hosted runners.
	{"hosted runner is not accepting new attachments", "an attachment after a drain"},
	{"hosted runner is draining", "a message after a drain"},
	{"Hosted runner is draining: <reason>", "the status at the beginning of a drain"},
	{"Drained", "the last status after a drain"},
	{"Drain interrupted before runtime flush completed", "the last status after a drain whose flush failed"},
	{"Drain payload must be a JSON object", "the body of a drain that is no object"},
	{"<key> must be a string", "a `reason` or `requested_by` that is no string"},
	{"export_paths[<n>] must be a non-empty string", "an export path that is none"},
	{"Export path is unavailable: <path>", "an export path that is missing"},
	{"Restored from snapshot", "the last status after a restore"},
	{"Restore interrupted before runtime flush completed", "the last status after a restore from a failed flush"},
	{"Restore incomplete: runtime flush skipped", "the last status after a restore from a skipped flush"},
	{"runtime flush was skipped; no runtime activity was persisted", "the last error after a restore from a skipped flush"},
	{"runtime flush failed before restore", "the last error after a restore from a failed flush without an error of its own"},
	{"not a directory", "a workspace that is a file, in the text of a failed start"},
	{"must be <host:port> or <port>", "a listen address that is none, in the text of a failed start"},
	{"must be a TCP port between 1 and 65535", "a port out of range, in the text of a failed start"},
	{"failed to read hosted runner restore manifest", "a manifest that cannot be read, in the text of a failed start"},
}

// WriteTexts writes the texts that scenarios demand as a table.
func WriteTexts(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Text | Of |\n| --- | --- |\n")
	for _, t := range exactTexts {
		fmt.Fprintf(&b, "| `%s` | %s |\n", t.text, t.of)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
