package hub

import (
	"context"

	"github.com/seed-028515a8/maestro/contracts"
)

// An Agent is the hub's view of a runtime. The rooms under agent/ provide them.
//
// The hub calls Start once, then Run once at a time, Configure at any time, and
// Close last.
type Agent interface {
	// Start makes the agent ready for prompts. host stays valid until Close
	// returns; ctx bounds the start only.
	Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error)

	// Configure applies an accepted init. It must not block.
	Configure(init *contracts.Init)

	// Run serves one prompt to its end: when it returns, the agent has nothing
	// more to say about it. ctx ends on interrupt; Run then returns soon, and
	// the hub closes whatever response and tools it left open. An error is
	// shown to clients.
	Run(ctx context.Context, work contracts.Work) error

	// Close ends the agent and every process it started.
	Close(ctx context.Context) error
}

// A Resumer is an agent that can act on the answer to a question asked before
// the server restarted. Resume is a run like any other: one at a time, ended by
// ctx, and the hub closes what it leaves open.
type Resumer interface {
	Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error
}

// A Checker is an agent that can tell at once that it cannot serve a prompt. An
// error that is a *contracts.Error refuses it before anything changes. Check
// must not block.
type Checker interface {
	Check(content string) error
}
