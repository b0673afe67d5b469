package llm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	// maxModelRetries bounds the retries of a failing provider in one turn of the
	// model, maxSummaryRetries in one summary. The delays between them double.
	maxModelRetries   = 4
	maxSummaryRetries = 2
	firstDelay        = time.Second

	// maxRetryAfter is the longest wait that a provider may ask for. If it asks for
	// more the run ends with an error that says so.
	maxRetryAfter = time.Minute

	// maxShrinks bounds how often a turn compacts what the provider finds too long.
	maxShrinks = 3

	// maxReplyID bounds a provider's id of a reply in bytes. Longer ones are left out.
	maxReplyID = 256

	// maxCalls bounds the calls of one reply. Further calls are dropped.
	maxCalls = 64
)

// A reply is a turn of the model that is part of the history.
type reply struct {
	text  string
	calls []*call
	stop  model.Stop
}

// reply gets the next turn of the model and keeps it. An error is fit for clients.
func (r *run) reply(ctx context.Context) (reply, error) {
	failures, shrinks := 0, 0
	for {
		if r.full() {
			if err := r.compact(ctx, 1); err != nil {
				return reply{}, err
			}
		}
		if !r.Open() {
			if err := r.Turn.Start(ctx); err != nil {
				return reply{}, err
			}
		}
		r.journal.draft = nil
		shown := false
		got, err := r.opts.Model.Stream(ctx, r.request(ctx), func(d model.Delta) error {
			shown = shown || d.Text != ""
			return r.show(ctx, d)
		})
		if err == nil {
			return r.accept(ctx, got)
		}
		partial := len(bytes.TrimSpace(r.journal.draft)) > 0
		if partial {
			if err := r.add(r.journal.repairs("")...); err != nil {
				return reply{}, err
			}
		}
		r.spend(got.Usage)
		cause, _ := errors.AsType[*model.Error](err)
		switch {
		case ctx.Err() != nil:
			return reply{}, context.Cause(ctx)
		case cause != nil && cause.Kind == model.KindTooLong && shrinks < maxShrinks:
			shrinks++
			if err = r.status(ctx, "Prompt exceeded the context window. Compacting history and continuing automatically..."); err == nil {
				err = r.compact(ctx, shrinks)
			}
		case cause != nil && blamesImages(cause) && len(images(r.journal.messages)) > 0:
			err = r.dropImages(ctx, cause)
		case !r.opts.NoRetries && mayRetry(err, failures+1, maxModelRetries):
			failures++
			err = r.pause(ctx, err, failures, maxModelRetries)
		default:
			// A response that showed nothing is left to the host, which shows the error in it.
			if shown {
				if err := r.end(ctx, model.Usage{}, ""); err != nil {
					return reply{}, err
				}
			}
			return reply{}, r.gaveUp(ctx, err)
		}
		if err == nil && shown { // what follows gets a response of its own
			err = r.end(ctx, model.Usage{}, "")
		}
		if err == nil && partial {
			err = r.add(record{Message: told(cutOff)})
		}
		if err != nil {
			return reply{}, err
		}
	}
}

// cutOff tells the model that its stream broke.
const cutOff = "Your last message was cut off by a failure of the connection. Continue exactly where it stopped, without repeating what you said. Calls that were in it have not been run."

// request returns a request to continue the conversation.
func (r *run) request(ctx context.Context) *model.Request {
	r.offers = r.offer(ctx)
	system, effort := r.system()
	req := &model.Request{
		System: system, Messages: r.journal.messages, Thinking: effort,
		MaxTokens: r.opts.MaxTokens, Metadata: r.opts.Metadata,
	}
	for _, o := range r.offers {
		req.Tools = append(req.Tools, o.Tool)
	}
	return req
}

// show keeps a piece of an answer as a draft and then shows it.
func (r *run) show(ctx context.Context, d model.Delta) error {
	for _, piece := range contracts.SplitText(valid(d.Text), contracts.MaxTextBytes) {
		var err error
		if d.Thinking {
			err = r.Think(ctx, piece)
		} else if err = r.add(record{Draft: piece}); err == nil {
			err = r.Say(ctx, piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayRetry reports whether a provider's failure may go away by itself. failures
// counts the failures so far.
func mayRetry(err error, failures, most int) bool {
	cause, ok := errors.AsType[*model.Error](err)
	return ok && cause.Retryable() && cause.RetryAfter <= maxRetryAfter && failures <= most
}

// pause says why the model is asked again and waits. mayRetry(cause) is true.
func (r *run) pause(ctx context.Context, cause error, failures, most int) error {
	failure, _ := errors.AsType[*model.Error](cause)
	wait := max(firstDelay<<(failures-1), failure.RetryAfter)
	text := fmt.Sprintf("The model %s. Trying again in %s (%d/%d)", failureKinds[failure.Kind].retry, wait.Round(time.Millisecond), failures, most)
	if err := r.status(ctx, text); err != nil {
		return err
	}
	return sleep.For(ctx, wait)
}

// spend counts the usage for the end of the next response.
func (r *run) spend(u model.Usage) {
	r.spent.Input += u.Input
	r.spent.Output += u.Output
	r.spent.CacheRead += u.CacheRead
	r.spent.CacheWrite += u.CacheWrite
}

// end closes the response with the usage since the last one ended.
func (r *run) end(ctx context.Context, u model.Usage, name string) error {
	r.spend(u)
	u, r.spent = r.spent, model.Usage{}
	return r.End(ctx, contracts.Usage{
		InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite,
		TotalCostUSD: r.opts.Price.of(u), ModelID: name,
	})
}

// accept makes a whole reply part of the history and ends its response.
func (r *run) accept(ctx context.Context, got model.Reply) (reply, error) {
	text := textOf(got.Message)
	if rest, ok := strings.CutPrefix(text, string(r.journal.draft)); ok && rest != "" { // the rest was not streamed
		if err := r.show(ctx, model.Delta{Text: rest}); err != nil {
			return reply{}, err
		}
	}
	msg, calls := r.tidy(got)
	if msg != nil {
		if err := r.add(record{Message: msg}); err != nil {
			return reply{}, err
		}
	}
	if total := got.Usage.Input + got.Usage.CacheRead + got.Usage.CacheWrite; total > 0 {
		r.counted = counted{total + got.Usage.Output, len(r.journal.messages)}
	}
	if got.ID != "" && len(got.ID) <= maxReplyID {
		if err := r.tell(ctx, map[string]any{"type": "model_reply", "generation_id": valid(got.ID)}); err != nil {
			return reply{}, err
		}
	}
	if err := r.end(ctx, got.Usage, got.Model); err != nil {
		return reply{}, err
	}
	return reply{text, calls, got.Stop}, nil
}

func textOf(msg model.Message) string {
	var text strings.Builder
	for _, p := range msg.Parts {
		if p.Text != nil {
			text.WriteString(valid(*p.Text))
		}
	}
	return text.String()
}

// tidy returns the message of a reply that is kept, nil if there is neither text nor
// a call, and the calls in it. It replaces ids, names and arguments that a provider
// would not take back. It keeps a streamed text that the reply lacks.
func (r *run) tidy(got model.Reply) (*model.Message, []*call) {
	msg := &model.Message{Role: model.RoleAssistant}
	var calls []*call
	if draft := string(r.journal.draft); strings.TrimSpace(draft) != "" && strings.TrimSpace(textOf(got.Message)) == "" {
		msg.Parts = append(msg.Parts, textPart(draft))
	}
	for _, p := range got.Message.Parts {
		switch {
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			msg.Parts = append(msg.Parts, textPart(*p.Text))
		case p.Thinking != nil && (p.Thinking.Text != "" || len(p.Thinking.Opaque) > 0):
			t := *p.Thinking
			t.Text = valid(t.Text)
			if !json.Valid(t.Opaque) {
				t.Opaque = nil
			}
			msg.Parts = append(msg.Parts, model.Part{Thinking: &t})
		case p.Call != nil && got.Stop != model.StopRefused && len(calls) < maxCalls:
			c := r.newCall(*p.Call, calls)
			if c.problem != "" && got.Stop == model.StopLength {
				continue // the limit cut it
			}
			calls = append(calls, c)
			msg.Parts = append(msg.Parts, model.Part{Call: &c.Call})
		}
	}
	if !slices.ContainsFunc(msg.Parts, func(p model.Part) bool { return p.Text != nil || p.Call != nil }) {
		return nil, nil
	}
	return msg, calls
}

var (
	goodID     = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	badInNames = lazyregexp.New(`[^A-Za-z0-9_-]`)
)

// newCall returns a call as it is kept. others are the calls before it in the reply.
func (r *run) newCall(got model.Call, others []*call) *call {
	c := &call{Call: got, tool: r.offered(got.Tool)}
	c.Shown = turn.ID("call_")
	used := r.journal.ids[c.ID] || slices.ContainsFunc(others, func(o *call) bool { return o.ID == c.ID })
	if used || !goodID().MatchString(c.ID) {
		c.ID = c.Shown
	}
	name := badInNames().ReplaceAllString(c.Tool, "_")
	c.Tool = cmp.Or(name[:min(len(name), 64)], "unknown")
	args, err := plainArgs(got.Args)
	if err != nil {
		c.problem = "The arguments are not usable: " + err.Error()
	}
	c.Args = args
	c.args, c.omitted, c.hides = shownArgs(args)
	c.announce = &contracts.ToolCall{CallID: c.Shown, Tool: c.Tool, Args: c.args}
	return c
}

const (
	maxContinuations = 5

	// A continuation of fewer bytes is no progress; two of them in a row end it.
	minProgress = 200

	goOnWriting = "Your last message hit the output limit. Continue exactly where it stopped, without repeating what you said."
)

// A continuation counts the replies in a row that hit the output limit.
type continuation struct {
	times int
	small int // replies in a row without progress
}

// proceed lets the model go on after the output limit, and reports whether it shall.
func (r *run) proceed(ctx context.Context, last reply) (bool, error) {
	c := &r.resumes
	if c.small++; c.times == 0 || len(last.text) >= minProgress {
		c.small = 0
	}
	switch {
	case c.times == maxContinuations:
		return false, r.status(ctx, fmt.Sprintf("Stopped after %d automatic continuations because the response kept hitting the output limit.", maxContinuations))
	case c.small == 2:
		return false, r.status(ctx, fmt.Sprintf("Stopped automatic continuation early after %d/%d retries because recent responses made minimal progress.", c.times, maxContinuations))
	}
	c.times++
	text := "Response hit the output limit. Continuing automatically..."
	if c.times > 1 {
		text = fmt.Sprintf("Response still hit the output limit. Continuing automatically (%d/%d)...", c.times, maxContinuations)
	}
	if err := r.status(ctx, text); err != nil {
		return false, err
	}
	return true, r.add(record{Message: told(goOnWriting)})
}
