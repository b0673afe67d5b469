package main

import (
	"context"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// A publisher is an agent that says what it is told to, in one response that
// never ends.
type publisher struct{ host contracts.Host }

func (p *publisher) begin() error {
	return p.host.Publish(context.Background(), &contracts.ResponseStart{ResponseID: control.ResponseID})
}

func (p *publisher) publish(text []byte) error {
	return p.host.Publish(context.Background(), &contracts.ResponseChunk{ResponseID: control.ResponseID, Content: string(text)})
}

// Start implements [contracts.Agent].
func (p *publisher) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	p.host = host
	return contracts.AgentInfo{Model: "none", Provider: "bench", Executor: contracts.ExecutorReplay}, nil
}

// Configure implements [contracts.Agent]; there is nothing to configure.
func (p *publisher) Configure(*contracts.Init) {}

// Run implements [contracts.Agent]; viewers cannot prompt.
func (p *publisher) Run(context.Context, contracts.Work) error { return nil }

// Close implements [contracts.Agent].
func (p *publisher) Close(context.Context) error { return nil }
