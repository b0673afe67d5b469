package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	// A failing provider is asked again so often per turn of the model, after
	// delays that double.
	maxModelRetries = 4
	firstDelay      = time.Second

	// maxRetryAfter is the longest wait that a provider may ask for. A run does
	// not wait longer: its end says how long it would have been.
	maxRetryAfter = time.Minute

	// maxShrinks bounds how often a turn compacts a history that the provider
	// finds too long.
	maxShrinks = 3

	// maxCalls bounds the calls of one reply. More of them are not kept.
	maxCalls = 64
)

// A reply is a turn of the model's that is part of the history.
type reply struct {
	text  string
	calls []*call
	stop  model.Stop
}

// A spoken is what came of a stream while it lasted.
type spoken struct {
	text     strings.Builder
	anything bool  // text or thinking
	unkept   bool  // drafts cannot be written
	broken   error // why it could not be shown
}

// reply has the model take its turn, whatever tries it takes, and keeps what it
// said. An error is fit for clients.
func (r *run) reply(ctx context.Context) (reply, error) {
	failures, shrinks := 0, 0
	for {
		if err := r.makeRoom(ctx); err != nil {
			return reply{}, r.stopped(ctx, err)
		}
		if !r.Open() {
			if err := r.Turn.Start(ctx); err != nil {
				return reply{}, err
			}
		}
		got, heard, err := r.stream(ctx)
		if err == nil {
			return r.accept(ctx, got, heard)
		}
		if kept := r.keep(heard); kept != nil {
			return reply{}, r.failed(kept)
		}
		r.spend(got.Usage)
		cause, _ := errors.AsType[*model.Error](err)
		switch {
		case ctx.Err() != nil:
			return reply{}, context.Cause(ctx)
		case heard.broken != nil:
			return reply{}, heard.broken
		case cause != nil && cause.Kind == model.KindTooLong && shrinks < maxShrinks:
			shrinks++
			err = r.overflowed(ctx, shrinks)
		case cause != nil && blamesImages(cause) && slices.ContainsFunc(r.journal.messages, hasImages):
			err = r.dropImages(ctx, cause)
		case cause != nil && cause.Retryable() && failures < maxModelRetries && cause.RetryAfter <= maxRetryAfter:
			failures++
			err = r.pause(ctx, cause, failures)
		default:
			return reply{}, r.giveUp(ctx, heard, err)
		}
		if err == nil && heard.anything {
			err = r.again(ctx, heard)
		}
		if err != nil {
			return reply{}, err
		}
	}
}

// stream has the model say its turn and shows it as it comes.
func (r *run) stream(ctx context.Context) (model.Reply, *spoken, error) {
	heard := &spoken{}
	got, err := r.opts.Model.Stream(ctx, r.request(ctx), func(d model.Delta) error {
		d.Text = strings.ToValidUTF8(d.Text, "\ufffd")
		heard.broken = r.show(ctx, d, heard)
		return heard.broken
	})
	return got, heard, err
}

// request returns the conversation so far for the model to continue.
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

// show writes a piece of an answer down and shows it.
func (r *run) show(ctx context.Context, d model.Delta, heard *spoken) error {
	heard.anything = heard.anything || d.Text != ""
	var err error
	for _, piece := range contracts.SplitText(d.Text, contracts.MaxTextBytes) {
		if d.Thinking {
			err = r.Think(ctx, piece)
		} else {
			heard.text.WriteString(piece)
			r.draft(piece, heard)
			err = r.Say(ctx, piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// draft writes a piece of an answer down before it is shown. Where that fails it is
// left to the whole message, whose failure ends the run.
func (r *run) draft(piece string, heard *spoken) {
	if heard.unkept {
		return
	}
	if err := r.journal.add(record{Draft: piece}); err != nil {
		heard.unkept = true
		r.opts.Log.Error("keep draft", slog.Any("err", err))
	}
}

// keep makes the text of an answer that broke off part of the history.
func (r *run) keep(heard *spoken) error {
	if text := heard.text.String(); strings.TrimSpace(text) != "" {
		return r.journal.add(record{Message: said(text)})
	}
	return nil
}

// cutOff is what the model is told after a stream that broke.
const cutOff = "Your last message was cut off by a failure of the connection. Continue exactly where it stopped, without repeating what you said. Calls that were in it have not been run."

// again ends the response that broke off, so that what follows is one of its own.
func (r *run) again(ctx context.Context, heard *spoken) error {
	if err := r.end(ctx, model.Usage{}, ""); err != nil {
		return err
	}
	if strings.TrimSpace(heard.text.String()) == "" {
		return nil
	}
	if err := r.journal.add(record{Message: told(cutOff)}); err != nil {
		return r.failed(err)
	}
	return nil
}

// pause waits before the next try and says so.
func (r *run) pause(ctx context.Context, cause *model.Error, failures int) error {
	wait := max(firstDelay<<(failures-1), cause.RetryAfter)
	what := "could not be reached"
	switch cause.Kind {
	case model.KindOverloaded:
		what = "is overloaded"
	case model.KindCut:
		what = "broke off its answer"
	case model.KindMalformed:
		what = "gave an answer that was not understood"
	}
	text := fmt.Sprintf("The model %s. Trying again in %s (%d/%d)", what, wait.Round(time.Millisecond), failures, maxModelRetries)
	if err := r.status(ctx, text); err != nil {
		return err
	}
	return sleep.For(ctx, wait)
}

// giveUp ends a response that said something, with what it cost, and returns why
// the run fails. One that said nothing is left to the host, which shows the error
// in it.
func (r *run) giveUp(ctx context.Context, heard *spoken, cause error) error {
	if heard.anything {
		if err := r.end(ctx, model.Usage{}, ""); err != nil {
			return err
		}
	}
	return r.failed(cause)
}

// spend counts what the next response's end has to tell.
func (r *run) spend(u model.Usage) {
	r.spent.Input += u.Input
	r.spent.Output += u.Output
	r.spent.CacheRead += u.CacheRead
	r.spent.CacheWrite += u.CacheWrite
}

// end closes the response with all that was spent since the last one ended.
func (r *run) end(ctx context.Context, u model.Usage, name string) error {
	r.spend(u)
	u, r.spent = r.spent, model.Usage{}
	return r.End(ctx, contracts.Usage{
		InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite,
		TotalCostUSD: r.opts.Price.of(u), ModelID: name,
	})
}

// accept makes a whole reply part of the history and ends its response.
func (r *run) accept(ctx context.Context, got model.Reply, heard *spoken) (reply, error) {
	text := textOf(got.Message)
	if rest, ok := strings.CutPrefix(text, heard.text.String()); ok && rest != "" { // it was not streamed
		if err := r.show(ctx, model.Delta{Text: rest}, heard); err != nil {
			return reply{}, err
		}
	}
	rec, calls := r.tidy(got, heard.text.String())
	if rec.Message != nil {
		if err := r.journal.add(rec); err != nil {
			return reply{}, r.failed(err)
		}
	}
	if total := got.Usage.Input + got.Usage.CacheRead + got.Usage.CacheWrite; total > 0 {
		r.counted = counted{total + got.Usage.Output, len(r.journal.messages)}
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
			text.WriteString(strings.ToValidUTF8(*p.Text, "\ufffd"))
		}
	}
	return text.String()
}

// tidy returns what of a reply is kept, and the calls in it. Ids, names and
// arguments that a provider would not take back are exchanged. There is no
// message if nothing was said. What was heard is kept even if the reply has no
// text.
func (r *run) tidy(got model.Reply, heard string) (record, []*call) {
	rec := record{Message: &model.Message{Role: model.RoleAssistant}, Shown: map[string]string{}}
	var calls []*call
	spoke := false
	if strings.TrimSpace(heard) != "" && strings.TrimSpace(textOf(got.Message)) == "" {
		spoke = true
		rec.Message.Parts = append(rec.Message.Parts, textPart(heard))
	}
	for _, p := range got.Message.Parts {
		switch {
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			spoke = true
			rec.Message.Parts = append(rec.Message.Parts, textPart(*p.Text))
		case p.Thinking != nil && (p.Thinking.Text != "" || len(p.Thinking.Opaque) > 0):
			rec.Message.Parts = append(rec.Message.Parts, thinkingPart(*p.Thinking))
		case p.Call != nil && got.Stop != model.StopRefused && len(calls) < maxCalls:
			c := r.newCall(*p.Call, rec.Shown)
			if c.problem != "" && got.Stop == model.StopLength {
				continue // it was cut in the middle
			}
			calls = append(calls, c)
			rec.Shown[c.ID] = c.shown
			rec.Message.Parts = append(rec.Message.Parts, model.Part{Call: &c.Call})
		}
	}
	if !spoke && len(calls) == 0 {
		return record{}, nil
	}
	return rec, calls
}

func thinkingPart(t model.Thinking) model.Part {
	t.Text = strings.ToValidUTF8(t.Text, "\ufffd")
	if !json.Valid(t.Opaque) {
		t.Opaque = nil
	}
	return model.Part{Thinking: &t}
}

var (
	goodID     = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	badInNames = lazyregexp.New(`[^A-Za-z0-9_-]`)
)

// newCall returns a call as it is kept. taken are the ids of the message so far.
func (r *run) newCall(got model.Call, taken map[string]string) *call {
	c := &call{Call: got, shown: turn.ID("call_")}
	_, used := r.journal.shown[c.ID]
	if used || taken[c.ID] != "" || !goodID().MatchString(c.ID) {
		c.ID = c.shown
	}
	name := badInNames().ReplaceAllString(c.Tool, "_")
	c.Tool = cmp.Or(name[:min(len(name), 64)], "unknown")
	args, err := plainArgs(got.Args)
	if err != nil {
		c.problem = "The arguments are not usable: " + err.Error()
	}
	c.Args = args
	c.offer = r.offered(got.Tool)
	return c
}

// A continuation counts how often a reply that hit the output limit was gone on
// with.
type continuation struct {
	times int
	small int // replies in a row that hardly brought anything
}

const (
	maxContinuations = 5

	// A continuation of fewer bytes is no progress; two of them in a row end it.
	minProgress = 200

	goOnWriting = "Your last message hit the output limit. Continue exactly where it stopped, without repeating what you said."
)

// proceed has the model go on after it hit the output limit, and reports whether
// it shall.
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
	if err := r.journal.add(record{Message: told(goOnWriting)}); err != nil {
		return false, r.failed(err)
	}
	return true, nil
}
