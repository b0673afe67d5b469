package hub

import (
	"context"

	"github.com/seed-028515a8/maestro/contracts"
)

// An Agent serves prompts. The packages under agent/ implement it.
//
// The hub calls Start once, then Run once at a time, Configure at any time, and
// Close last.
type Agent interface {
	// Start makes the agent ready for prompts. host is valid until Close returns.
	// ctx bounds only the start.
	Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error)

	// Configure applies an accepted init. It must not block.
	Configure(init *contracts.Init)

	// Run serves one prompt. When it returns, the agent publishes nothing more
	// about the prompt. ctx ends on interrupt; Run must then return soon. The hub
	// closes the response and tools that Run left open. Clients see the error.
	Run(ctx context.Context, work contracts.Work) error

	// Close ends the agent and every process it started.
	Close(ctx context.Context) error
}

// A Resumer is an agent that can act on the answer to a question that was asked
// before the server restarted. Resume follows the rules of Run: one run at a time,
// ended by ctx, and the hub closes what it leaves open.
type Resumer interface {
	Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error
}

// A Checker is an agent that can tell before the run that it cannot serve a prompt.
// If Check returns a *contracts.Error, the prompt is refused and nothing changes.
// Check must not block.
type Checker interface {
	Check(content string) error
}
