package contracts

import (
	"context"
	"time"
)

// What passes between the hub and an agent. The hub declares the interface an
// agent satisfies; the types in it live here because neither imports the other.

// AgentInfo is what an agent says about itself once it has started.
type AgentInfo struct {
	Model    string
	Provider string
	Executor ExecutorType
	Requests []RequestType // the server requests it may make

	// KeepsRequests says that questions outlive the run they were asked in.
	KeepsRequests bool

	// Forgets says that a question ends with the process it was asked in: nothing
	// could be done with a later answer, so the next process withdraws it.
	Forgets bool

	// Immediate says that most runs end at once, so that the answer to a prompt
	// over HTTP waits a moment for them.
	Immediate bool

	// Echoes says that the answer to a question is shown as it comes, whether or
	// not the question waits: what suites of the public profile expect.
	Echoes bool
}

// A Work is one accepted prompt.
type Work struct {
	Content     string
	Attachments []Attachment
}

// An Attachment is a file that came with a prompt, already checked and read.
type Attachment struct {
	Path     string // as the client gave it
	MimeType string
	Text     string // a text document
	Data     []byte // an image
}

// An Outcome is how a question ended, with what the answer carried.
type Outcome struct {
	Verdict   Verdict
	Reason    string
	By        Resolver
	Content   []ContentBlock // client tools, elicitations and user input; beside the decision of an approval, such as how long it is to hold
	Announced bool           // false when policy decided and no client was asked (R51)
}

// AskOptions bound one question.
type AskOptions struct {
	// Timeout is how long the question may wait. Zero means the default of its
	// type; a negative one means that it never expires.
	Timeout time.Duration

	// Opened, if not nil, is called once the question has been shown.
	Opened func()
}

// A Host is the hub as an agent sees it. All methods may be called from any
// goroutine.
type Host interface {
	// Publish shows events to every client, in order and together. It returns
	// an error only when an event is malformed or the hub has ended. It may
	// wait for a local client that cannot be reset to read on.
	Publish(ctx context.Context, events ...Event) error

	// Ask puts a question to the clients and waits for its end. It publishes
	// the legacy message that belongs to it (tool_call or client_tool_request),
	// the request and its resolution. It returns an error only when ctx or the
	// hub ended, or the question is malformed or its id is taken.
	Ask(ctx context.Context, req *ServerRequest, opts AskOptions) (Outcome, error)

	// Withdraw ends an open question for the agent's own reasons, as verdict
	// by by. It reports whether the question was still open.
	Withdraw(requestID string, verdict Verdict, reason string, by Resolver) bool

	// Restored reports whether an earlier process had this session: then ids
	// that it used are taken.
	Restored() bool

	// ApprovalMode returns the policy in force.
	ApprovalMode() ApprovalMode

	// ClientTools returns what the client that controls does for the agent. It
	// changes with who controls.
	ClientTools() []ClientTool
}
