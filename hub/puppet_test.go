package hub_test

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A puppet is an agent that does what the test orders, one thing at a time.
type puppet struct {
	host   contracts.Host
	orders chan order // taken by the run that is active

	mu       sync.Mutex
	runs     int // active now
	outcomes map[string][]contracts.Outcome
	inits    []*contracts.Init
}

// An order is one thing to do in a run. It reports whether the run is over.
type order func(ctx context.Context) (over bool, err error)

func newPuppet() *puppet {
	return &puppet{orders: make(chan order), outcomes: map[string][]contracts.Outcome{}}
}

func (p *puppet) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	p.host = host
	return contracts.AgentInfo{Model: "puppet", Provider: "test", Executor: contracts.ExecutorLive, Requests: contracts.RequestTypes()}, nil
}

func (p *puppet) Configure(init *contracts.Init) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inits = append(p.inits, init)
}

func (p *puppet) Run(ctx context.Context, _ contracts.Work) error {
	p.count(+1)
	defer p.count(-1)
	for {
		select {
		case do := <-p.orders:
			if over, err := do(ctx); over {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *puppet) Close(context.Context) error { return nil }

func (p *puppet) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs += n
}

func (p *puppet) active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

func (p *puppet) learn(id string, out contracts.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes[id] = append(p.outcomes[id], out)
}

// learned returns the outcomes the agent got, by request id.
func (p *puppet) learned() map[string][]contracts.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.outcomes)
}

func (p *puppet) publish(events ...contracts.Event) order {
	return func(ctx context.Context) (bool, error) { return false, p.host.Publish(ctx, events...) }
}

func end(err error) order {
	return func(context.Context) (bool, error) { return true, err }
}

// ask puts a question without waiting for it. Once it is decided the agent
// publishes after, unless the question was cancelled: then the run is over and
// the agent has nothing more to say.
func (p *puppet) ask(req *contracts.ServerRequest, opts contracts.AskOptions, after ...contracts.Event) order {
	return func(ctx context.Context) (bool, error) {
		go func() { // ends with the question
			out, err := p.host.Ask(ctx, req, opts)
			if err != nil {
				return
			}
			p.learn(req.RequestID, out)
			if out.Announced && out.Verdict != contracts.VerdictCancelled {
				_ = p.host.Publish(ctx, after...) // the hub may have ended meanwhile
			}
		}()
		return false, nil
	}
}

// A resumer is a puppet that can act on answers to the questions of an earlier
// process.
type resumer struct{ *puppet }

func (r resumer) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	r.learn(req.RequestID, out)
	return r.Run(ctx, contracts.Work{})
}

// question makes a request of a type; the call has the request's id but for
// retries, as on the wire.
func question(kind contracts.RequestType, id string) *contracts.ServerRequest {
	tools := map[contracts.RequestType]string{
		contracts.RequestUserInput: "ask_user", contracts.RequestMCPElicitation: "mcp_elicitation",
	}
	req := &contracts.ServerRequest{RequestID: id, RequestType: kind, CallID: id, Tool: "bash", Args: []byte(`{}`), Reason: "test"}
	if tool := tools[kind]; tool != "" {
		req.Tool = tool
	}
	if kind == contracts.RequestToolRetry {
		req.RequestID = id + ":retry:1"
	}
	return req
}

// openCalls returns the calls that were announced and have not ended, and how
// often a call ended that was not open.
func openCalls(events []contracts.Event) (open []string, stray []string) {
	for _, ev := range events {
		switch e := ev.(type) {
		case *contracts.ToolCall:
			open = append(open, e.CallID)
		case *contracts.ClientToolRequest:
			open = append(open, e.CallID)
		case *contracts.ServerRequest:
			if !slices.Contains(open, e.CallID) {
				open = append(open, e.CallID)
			}
		case *contracts.ToolEnd:
			if i := slices.Index(open, e.CallID); i >= 0 {
				open = slices.Delete(open, i, i+1)
			} else {
				stray = append(stray, e.CallID)
			}
		}
	}
	return open, stray
}
