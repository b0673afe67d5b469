package agent

import (
	"context"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// errScriptEnded ends a run at a step that ends it.
var errScriptEnded = errors.New("the script ended the run")

// A player plays the steps of one run. It is not safe for concurrent use.
type player struct {
	out   *batch
	turn  *turn.Turn
	spoke bool            // a response was opened (R37)
	usage contracts.Usage // for the next response_end
	n     int             // iteration of the innermost repeat; zero outside one
}

func newPlayer(s *Script) *player {
	out := &batch{Host: s.host}
	return &player{out: out, turn: turn.New(out, s.scenario.model, s.scenario.provider)}
}

// play plays a whole run. When ctx ends, the hub closes what is open.
func (p *player) play(ctx context.Context, steps []step) error {
	if err := p.steps(ctx, steps); err != nil && !errors.Is(err, errScriptEnded) {
		return err
	}
	if !p.spoke {
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	if err := p.end(ctx); err != nil {
		return err
	}
	return p.out.flush(ctx)
}

func (p *player) steps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil { // a step that does not publish would not notice
			return err
		}
		if err := s.play(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// open opens a response unless one is open.
func (p *player) open(ctx context.Context) error {
	if p.turn.Open() {
		return nil
	}
	p.spoke = true
	return p.turn.Start(ctx)
}

// end ends the open response, if there is one, with the usage so far.
func (p *player) end(ctx context.Context) error {
	if !p.turn.Open() {
		return nil
	}
	usage := p.usage
	p.usage = contracts.Usage{}
	return p.turn.End(ctx, usage)
}

// wait publishes the batch and waits for d.
func (p *player) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	if err := p.out.flush(ctx); err != nil {
		return err
	}
	return sleep.For(ctx, d)
}

// A toolUse is a tool call that runs in the script.
type toolUse struct {
	name, label  string
	args, output text // args are JSON
	success      bool
	chunk        int64         // the bytes of a piece of the output; zero publishes it at once
	delay        time.Duration // before each piece
}

// call publishes events, and finishes an announced call: an approved one runs,
// any other ends without a start (R46).
func (p *player) call(ctx context.Context, id string, verdict contracts.Verdict, t toolUse, events ...contracts.Event) error {
	end := turn.After(id, verdict)
	if verdict == contracts.VerdictApproved {
		end.Success = t.success
		events = append(events, &contracts.ToolStart{CallID: id})
		output := []string{t.output.at(p.n)}
		if t.chunk > 0 {
			output = contracts.SplitText(output[0], int(t.chunk))
		}
		for _, piece := range output {
			if err := p.out.Publish(ctx, events...); err != nil {
				return err
			}
			if err := p.wait(ctx, t.delay); err != nil {
				return err
			}
			events = nil
			if piece != "" {
				events = append(events, &contracts.ToolOutput{CallID: id, Content: piece})
			}
		}
	}
	p.turn.Finished(t.name, end.Success, t.label)
	return p.out.Publish(ctx, append(events, end)...)
}

// Bounds of a batch: when either is reached, it is published.
const (
	maxBatchEvents = 64
	maxBatchBytes  = 256 << 10 // of text
)

// A batch is a host that collects events and publishes them together, which
// saves most of the hub's work per event in a long stream. Events published
// before a question reach the host before it. It is not safe for concurrent
// use.
type batch struct {
	contracts.Host
	events []contracts.Event
	bytes  int
}

// Publish adds events and publishes them when there are enough.
func (b *batch) Publish(ctx context.Context, events ...contracts.Event) error {
	for _, ev := range events {
		b.events = append(b.events, ev)
		b.bytes += textSize(ev)
		if len(b.events) < maxBatchEvents && b.bytes < maxBatchBytes {
			continue
		}
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Ask publishes the batch and then asks.
func (b *batch) Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error) {
	if err := b.flush(ctx); err != nil {
		return contracts.Outcome{}, err
	}
	return b.Host.Ask(ctx, req, opts)
}

// flush publishes the batch, unless ctx has ended.
func (b *batch) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil || len(b.events) == 0 {
		return err
	}
	err := b.Host.Publish(ctx, b.events...)
	clear(b.events)
	b.events, b.bytes = b.events[:0], 0
	return err
}

// textSize returns the length of an event's text, in bytes. The rest of an
// event is small.
func textSize(ev contracts.Event) int {
	switch e := ev.(type) {
	case *contracts.ResponseChunk:
		return len(e.Content)
	case *contracts.ToolCall:
		return len(e.Args)
	case *contracts.ToolOutput:
		return len(e.Content)
	case *contracts.Status:
		return len(e.Message)
	case *contracts.ErrorEvent:
		return len(e.Message)
	case *contracts.Compaction:
		return len(e.Summary)
	case *contracts.RawAgentEvent:
		return len(e.Event)
	}
	return 0
}
