package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

// step reads one step. Each kind of step has a function, which reads its value
// and returns how it is played.
func (l *loader) step(at place) (s step) {
	o := l.object(at,
		may("say", &s, l.speech(false)), may("think", &s, l.speech(true)), may("tool", &s, l.tool), may("ask", &s, l.ask),
		may("delay_ms", &s, l.pause), may("error", &s, l.failure), may("usage", &s, l.usage), may("status", &s, l.status),
		may("compaction", &s, l.compaction), may("raw", &s, l.rawEvent), may("repeat", &s, l.repeat), may("end", &s, l.end))
	if len(o) != 1 {
		l.fail(at, "a step has exactly one key, this one has %d", len(o))
	}
	return s
}

// speech returns a reader of a text that is said or thought.
func (l *loader) speech(thinking bool) func(place) step {
	return func(at place) step {
		var words text
		var chunk int64
		var delay time.Duration
		if startsWith(at, `"`) {
			words = l.text(at)
		} else {
			l.object(at,
				must("text", &words, l.text), may("chunk", &chunk, l.integer(1, contracts.MaxTextBytes)),
				may("delay_ms", &delay, l.delay))
		}
		return speech(words, chunk, delay, thinking)
	}
}

// speech says or thinks a text: at once, or if chunk is not zero in chunks of
// that many bytes, with a delay before each.
func speech(words text, chunk int64, delay time.Duration, thinking bool) step {
	return step{pieces(words, chunk), func(ctx context.Context, p *player) error {
		if err := p.open(ctx); err != nil {
			return err
		}
		say := p.turn.Say
		if thinking {
			say = p.turn.Think
		}
		pieces := []string{words.at(p.n)}
		if chunk > 0 {
			pieces = contracts.SplitText(pieces[0], int(chunk))
		}
		for _, piece := range pieces {
			if err := p.wait(ctx, delay); err != nil {
				return err
			}
			if err := say(ctx, piece); err != nil {
				return err
			}
		}
		return nil
	}}
}

// pieces returns the number of chunks of a text; without chunk it is one.
func pieces(words text, chunk int64) int64 {
	if chunk == 0 {
		return 1
	}
	return max(1, (int64(len(words))+chunk-1)/chunk)
}

// tool calls a tool, if it is gated after a request for approval.
func (l *loader) tool(at place) step {
	t, gated := toolUse{args: "{}", success: true}, false
	l.object(at,
		must("name", &t.name, l.name), may("args", &t.args, l.json), may("output", &t.output, l.text),
		may("chunk", &t.chunk, l.integer(1, contracts.MaxTextBytes)), may("delay_ms", &t.delay, l.delay),
		may("success", &t.success, l.boolean), may("gated", &gated, l.boolean), may("label", &t.label, l.str))
	return step{pieces(t.output, t.chunk), func(ctx context.Context, p *player) error {
		call := &contracts.ToolCall{CallID: turn.ID("call_"), Tool: t.name, Args: json.RawMessage(t.args.at(p.n))}
		if !gated {
			return p.call(ctx, call.CallID, contracts.VerdictApproved, t, call)
		}
		out, err := p.out.Ask(ctx, &contracts.ServerRequest{
			RequestID: call.CallID, RequestType: contracts.RequestApproval, CallID: call.CallID,
			Tool: call.Tool, SummaryLabel: t.label, Args: call.Args, Reason: "Approval required",
		}, contracts.AskOptions{})
		switch {
		case err != nil:
			return err
		case out.Announced:
			return p.call(ctx, call.CallID, out.Verdict, t)
		}
		return p.call(ctx, call.CallID, out.Verdict, t, call)
	}}
}

// verdicts lists the possible verdicts of each request type.
var verdicts = map[contracts.RequestType][]contracts.Verdict{
	contracts.RequestApproval:       {contracts.VerdictApproved, contracts.VerdictDenied, contracts.VerdictCancelled},
	contracts.RequestClientTool:     {contracts.VerdictCompleted, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestMCPElicitation: {contracts.VerdictAnswered, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestUserInput:      {contracts.VerdictAnswered, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestToolRetry:      {contracts.VerdictRetried, contracts.VerdictSkipped, contracts.VerdictAborted, contracts.VerdictCancelled},
}

// ask asks the clients, and plays the steps for their verdict.
func (l *loader) ask(at place) step {
	var kind contracts.RequestType
	var tool string
	var timeout time.Duration // as in contracts.AskOptions
	args, reason := text("{}"), text("Asked by the script")
	size, on := int64(1), map[contracts.Verdict][]step{}
	l.object(at,
		must("type", &kind, oneOf(l, contracts.RequestTypes()...)), must("tool", &tool, l.name),
		may("args", &args, l.json), may("reason", &reason, l.text), may("timeout_ms", &timeout, l.milliseconds(-1, maxScriptWait)),
		member{key: "on", read: func(p place) {
			var known []member
			for _, v := range verdicts[kind] {
				known = append(known, member{key: string(v), read: func(p place) {
					on[v] = l.steps(p)
					size += sizeOf(on[v])
				}})
			}
			l.object(p, known...)
		}})
	return step{size, func(ctx context.Context, p *player) error {
		req := &contracts.ServerRequest{
			RequestID: turn.ID("req_"), RequestType: kind, Tool: tool,
			Args: json.RawMessage(args.at(p.n)), Reason: reason.at(p.n),
		}
		req.CallID = req.RequestID
		if kind == contracts.RequestToolRetry {
			req.CallID = turn.ID("call_")
			req.RequestID = req.CallID + ":retry:1"
		}
		out, err := p.out.Ask(ctx, req, contracts.AskOptions{Timeout: timeout})
		switch {
		case err != nil || !out.Announced:
		case kind == contracts.RequestApproval: // it announced a call, which clients list until it ends
			err = p.call(ctx, req.CallID, out.Verdict, toolUse{name: tool, success: true})
		default: // the call happens at the client, and does not start here
			end := turn.After(req.CallID, out.Verdict)
			p.turn.Finished(tool, end.Success, "")
			err = p.out.Publish(ctx, end)
		}
		if err != nil {
			return err
		}
		return p.steps(ctx, on[out.Verdict])
	}}
}

func (l *loader) pause(at place) step {
	delay := l.delay(at)
	return step{1, func(ctx context.Context, p *player) error { return p.wait(ctx, delay) }}
}

// failure publishes an error, and may end the run.
func (l *loader) failure(at place) step {
	var message text
	var end bool
	kind := contracts.ErrorTransient
	l.object(at,
		must("message", &message, l.text), may("end", &end, l.boolean),
		// A script must not report that the runtime ends.
		may("type", &kind, oneOf(l, contracts.ErrorTransient, contracts.ErrorTool, contracts.ErrorCancelled, contracts.ErrorProtocol)))
	return step{1, func(ctx context.Context, p *player) error {
		if end && !p.spoke { // a run that fails early also needs a response (R37)
			if err := p.open(ctx); err != nil {
				return err
			}
		}
		err := p.out.Publish(ctx, &contracts.ErrorEvent{Message: message.at(p.n), ErrorType: kind})
		if err == nil && end {
			return errScriptEnded
		}
		return err
	}}
}

// usage adds to what the end of the response reports.
func (l *loader) usage(at place) step {
	var u contracts.Usage
	const most = 1_000_000_000_000
	count := l.integer(0, most)
	l.object(at,
		may("input_tokens", &u.InputTokens, count), may("output_tokens", &u.OutputTokens, count),
		may("cache_read_tokens", &u.CacheReadTokens, count), may("cache_write_tokens", &u.CacheWriteTokens, count),
		may("total_cost_usd", &u.TotalCostUSD, l.decimal(0, most)))
	return step{1, func(_ context.Context, p *player) error {
		p.usage.InputTokens += u.InputTokens
		p.usage.OutputTokens += u.OutputTokens
		p.usage.CacheReadTokens += u.CacheReadTokens
		p.usage.CacheWriteTokens += u.CacheWriteTokens
		p.usage.TotalCostUSD += u.TotalCostUSD
		return nil
	}}
}

func (l *loader) status(at place) step {
	message := l.text(at)
	return step{1, func(ctx context.Context, p *player) error {
		return p.out.Publish(ctx, &contracts.Status{Message: message.at(p.n)})
	}}
}

func (l *loader) compaction(at place) step {
	var c contracts.Compaction
	var summary text
	count := l.integer(0, 1<<53-1)
	l.object(at,
		must("summary", &summary, l.text), may("first_kept_entry_index", &c.FirstKeptEntryIndex, count),
		may("tokens_before", &c.TokensBefore, count), may("auto", &c.Auto, l.boolean),
		may("custom_instructions", &c.CustomInstructions, l.str))
	return step{1, func(ctx context.Context, p *player) error {
		c := c
		c.Summary = summary.at(p.n)
		c.Timestamp = time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
		return p.out.Publish(ctx, &c)
	}}
}

func (l *loader) rawEvent(at place) step {
	var kind string
	var event text
	l.object(at, must("type", &kind, l.name), must("event", &event, l.json))
	return step{1, func(ctx context.Context, p *player) error {
		return p.out.Publish(ctx, &contracts.RawAgentEvent{EventKind: kind, Event: json.RawMessage(event.at(p.n))})
	}}
}

// repeat plays steps several times, as fast as possible or at an even rate: after
// an iteration that took too long the next one starts at once, so that the
// average rate is right.
func (l *loader) repeat(at place) step {
	var times int64
	var steps []step
	var rate float64
	l.object(at,
		must("times", &times, l.integer(1, maxScriptSteps)), must("steps", &steps, l.steps),
		may("rate", &rate, l.decimal(1/maxScriptDelay.Seconds(), maxScriptRate)))
	period := time.Duration(0)
	if rate > 0 {
		period = time.Duration(float64(time.Second) / rate)
	}
	size := min(times*min(max(sizeOf(steps), 1), tooMany), tooMany) // cannot overflow: both are bounded
	return step{size, func(ctx context.Context, p *player) error {
		outer := p.n
		defer func() { p.n = outer }()
		start := time.Now()
		for i := range times {
			if period > 0 {
				if err := p.wait(ctx, time.Until(start.Add(time.Duration(i)*period))); err != nil {
					return err
				}
			}
			p.n = int(i) + 1
			if err := p.steps(ctx, steps); err != nil {
				return err
			}
		}
		return nil
	}}
}

// end ends the open response, if there is one.
func (l *loader) end(at place) step {
	if !l.boolean(at) {
		l.fail(at, "must be true")
	}
	return step{1, func(ctx context.Context, p *player) error { return p.end(ctx) }}
}
