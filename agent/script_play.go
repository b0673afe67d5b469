package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
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

func (s speech) play(ctx context.Context, p *player) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	say := p.turn.Say
	if s.thinking {
		say = p.turn.Think
	}
	pieces := []string{s.text.at(p.n)}
	if s.chunk > 0 {
		pieces = contracts.SplitText(pieces[0], int(s.chunk))
	}
	for _, piece := range pieces {
		if err := p.wait(ctx, s.delay); err != nil {
			return err
		}
		if err := say(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

func (t toolUse) play(ctx context.Context, p *player) error {
	call := &contracts.ToolCall{CallID: turn.ID("call_"), Tool: t.name, Args: json.RawMessage(t.args.at(p.n))}
	announced, verdict := false, contracts.VerdictApproved
	if t.gated {
		out, err := p.out.Ask(ctx, &contracts.ServerRequest{
			RequestID: call.CallID, RequestType: contracts.RequestApproval, CallID: call.CallID,
			Tool: call.Tool, SummaryLabel: t.label, Args: call.Args, Reason: "Approval required",
		}, contracts.AskOptions{})
		if err != nil {
			return err
		}
		announced, verdict = out.Announced, out.Verdict
	}
	if announced {
		return p.call(ctx, call.CallID, verdict, t)
	}
	return p.call(ctx, call.CallID, verdict, t, call)
}

// call publishes events, and finishes an announced call: an approved one runs,
// any other ends without a start (R46).
func (p *player) call(ctx context.Context, id string, verdict contracts.Verdict, t toolUse, events ...contracts.Event) error {
	end := turn.After(id, verdict)
	if verdict == contracts.VerdictApproved {
		end.Success = t.success
		events = append(events, &contracts.ToolStart{CallID: id})
		if output := t.output.at(p.n); output != "" {
			events = append(events, &contracts.ToolOutput{CallID: id, Content: output})
		}
	}
	p.turn.Finished(t.name, end.Success, t.label)
	return p.out.Publish(ctx, append(events, end)...)
}

func (q inquiry) play(ctx context.Context, p *player) error {
	req := &contracts.ServerRequest{
		RequestID: turn.ID("req_"), RequestType: q.kind, Tool: q.tool,
		Args: json.RawMessage(q.args.at(p.n)), Reason: q.reason.at(p.n),
	}
	req.CallID = req.RequestID
	if q.kind == contracts.RequestToolRetry {
		req.CallID = turn.ID("call_")
		req.RequestID = req.CallID + ":retry:1"
	}
	out, err := p.out.Ask(ctx, req, contracts.AskOptions{Timeout: q.timeout})
	if err != nil {
		return err
	}
	if out.Announced { // Ask announced a call, which clients list until it ends
		if q.kind == contracts.RequestApproval {
			err = p.call(ctx, req.CallID, out.Verdict, toolUse{name: req.Tool, success: true})
		} else { // the call happens at the client, and does not start here
			end := turn.After(req.CallID, out.Verdict)
			p.turn.Finished(req.Tool, end.Success, "")
			err = p.out.Publish(ctx, end)
		}
		if err != nil {
			return err
		}
	}
	return p.steps(ctx, q.on[out.Verdict])
}

func (d pause) play(ctx context.Context, p *player) error { return p.wait(ctx, time.Duration(d)) }

func (f failure) play(ctx context.Context, p *player) error {
	if f.end && !p.spoke { // a run that fails early also needs a response (R37)
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	err := p.out.Publish(ctx, &contracts.ErrorEvent{Message: f.message.at(p.n), ErrorType: f.kind})
	if err == nil && f.end {
		return errScriptEnded
	}
	return err
}

func (c cost) play(_ context.Context, p *player) error {
	p.usage.InputTokens += c.InputTokens
	p.usage.OutputTokens += c.OutputTokens
	p.usage.CacheReadTokens += c.CacheReadTokens
	p.usage.CacheWriteTokens += c.CacheWriteTokens
	p.usage.TotalCostUSD += c.TotalCostUSD
	return nil
}

func (r remark) play(ctx context.Context, p *player) error {
	return p.out.Publish(ctx, &contracts.Status{Message: text(r).at(p.n)})
}

func (s summary) play(ctx context.Context, p *player) error {
	c := s.message
	c.Summary = s.text.at(p.n)
	c.Timestamp = time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return p.out.Publish(ctx, &c)
}

func (r rawEvent) play(ctx context.Context, p *player) error {
	return p.out.Publish(ctx, &contracts.RawAgentEvent{EventKind: r.kind, Event: json.RawMessage(r.event.at(p.n))})
}

// play keeps a schedule: after an iteration that took too long the next one
// starts at once, so that the average rate is right.
func (r repeat) play(ctx context.Context, p *player) error {
	outer := p.n
	defer func() { p.n = outer }()
	start := time.Now()
	for i := range r.times {
		if r.period > 0 {
			if err := p.wait(ctx, time.Until(start.Add(time.Duration(i)*r.period))); err != nil {
				return err
			}
		}
		p.n = int(i) + 1
		if err := p.steps(ctx, r.steps); err != nil {
			return err
		}
	}
	return nil
}

func (finish) play(ctx context.Context, p *player) error { return p.end(ctx) }

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
