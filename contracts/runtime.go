package contracts

import (
	"context"
	"time"
)

// Types that the hub and an agent exchange. They are here because neither imports the
// other.

// An Agent serves prompts. Package agent and those below internal/agent implement it.
//
// The hub calls Start once, then Run once at a time, Configure at any time, and
// Close last.
type Agent interface {
	// Start makes the agent ready for prompts. host is valid until Close returns.
	// ctx bounds only the start.
	Start(ctx context.Context, host Host) (AgentInfo, error)

	// Configure applies an accepted init. It must not block.
	Configure(init *Init)

	// Run serves one prompt. When it returns, the agent publishes nothing more
	// about the prompt. ctx ends on interrupt; Run must then return soon. The hub
	// closes the response and tools that Run left open. Clients see the error.
	Run(ctx context.Context, work Work) error

	// Close ends the agent and every process it started.
	Close(ctx context.Context) error
}

// An Offering is an agent that offers commands. Offer may be called from Start to Close,
// from any goroutine. It must not block.
type Offering interface{ Offer() AgentOffer }

// AgentInfo describes an agent that has started.
type AgentInfo struct {
	Model    string
	Provider string
	Executor ExecutorType
	Requests []RequestType // server requests that it may make

	// KeepsRequests says that questions outlive the run in which they were asked.
	KeepsRequests bool

	// Forgets says that a question ends with the process that asked it. The agent
	// could not use a later answer, so the next process withdraws the question.
	Forgets bool

	// Steers says that the agent calls Host.Steering during its runs.
	Steers bool

	// Immediate says that most runs end at once. The answer to a prompt over HTTP
	// then waits for the run for a short time.
	Immediate bool

	// Echoes says that every answer to a question is published, whether or not the
	// question is open. Suites of the public profile expect it.
	Echoes bool
}

// A Work is one accepted prompt.
type Work struct {
	Content     string
	Attachments []Attachment
}

// An Attachment is a file of a prompt, checked and read.
type Attachment struct {
	Path     string // as the client named it
	MimeType string
	Text     string // content of a text document
	Data     []byte // content of an image
}

// An Outcome is the end of a question, with the content of the answer.
type Outcome struct {
	Verdict   Verdict
	Reason    string
	By        Resolver
	Content   []ContentBlock // client tools, elicitations and user input; for approvals additional content, such as an AnswerNote
	Announced bool           // false if policy decided and no client was asked (R51)
}

// AskOptions configure one question.
type AskOptions struct {
	// Timeout is how long the question may stay open. Zero means the default of its
	// type; negative means without limit.
	Timeout time.Duration

	// Truncated says that the request has only the beginning of what the agent would do.
	// Clients see it in request_shown.
	Truncated bool

	// Opened, if not nil, is called after the question has been published.
	Opened func()
}

// A Host is the hub's interface for an agent. All methods may be called from any
// goroutine.
type Host interface {
	// Publish publishes events to every client, in order and without others in
	// between. It returns an error only if ctx or the hub has ended, or the session
	// is drained. It may wait for a local client, which cannot be reset, to read.
	Publish(ctx context.Context, events ...Event) error

	// Ask asks the clients a question and waits for its end. It publishes the
	// legacy message of the question (tool_call or client_tool_request), the
	// request and its resolution. It returns an error only if ctx, the run or the
	// hub ended, the question is malformed, its id is in use, or too many questions
	// are open.
	Ask(ctx context.Context, req *ServerRequest, opts AskOptions) (Outcome, error)

	// Withdraw ends an open question with verdict; by is the resolver that clients
	// see. It reports whether the question was still open.
	Withdraw(requestID string, verdict Verdict, reason string, by Resolver) bool

	// Steering takes the prompts with which users steer the active run from the queue,
	// the oldest first. Clients see them as accepted. A prompt that no call takes
	// before the end of the run starts a run of its own.
	Steering(ctx context.Context) []Work

	// Restored reports whether an earlier process had this session. Ids that it
	// used must not be used again.
	Restored() bool

	// ApprovalMode returns the current policy. It is prompt instead of auto if calls may
	// need the votes of several principals.
	ApprovalMode() ApprovalMode

	// ClientTools returns the tools that the controller offers. They change with
	// the controller.
	ClientTools() []ClientTool
}
