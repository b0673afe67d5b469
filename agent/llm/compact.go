package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	// bytesPerToken is how much text a token is taken to be until a provider has
	// counted, and imageTokens what an image is.
	bytesPerToken = 4
	imageTokens   = 1600

	// maxReserve bounds what is left free for the next reply; a small context
	// leaves a fifth of itself.
	maxReserve = 20_000

	// maxHistoryBytes compacts a history of many images, which cost few tokens.
	maxHistoryBytes = 64 << 20

	// What is left of long texts in a history that must become shorter at once,
	// and of the parts of one that is to be summarised.
	squeezedBytes  = 4000
	recountedBytes = 4000

	maxSummaryTokens = 8000
)

// counted is what a provider has counted: so many tokens for the system, the
// tools and the first messages.
type counted struct {
	tokens   int64
	messages int
}

func estimateText(text string) int64 { return int64(len(text)+bytesPerToken-1) / bytesPerToken }

// estimate returns about how many tokens messages are.
func estimate(messages []model.Message) int64 {
	var tokens int64
	for _, msg := range messages {
		tokens += 4
		for _, p := range msg.Parts {
			tokens += estimatePart(p)
		}
	}
	return tokens
}

func estimatePart(p model.Part) int64 {
	switch {
	case p.Text != nil:
		return estimateText(*p.Text)
	case p.Thinking != nil:
		return estimateText(p.Thinking.Text) + estimateText(string(p.Thinking.Opaque))
	case p.Call != nil:
		return estimateText(p.Call.Tool) + estimateText(string(p.Call.Args)) + 8
	case p.Result != nil:
		return estimateText(p.Result.Text) + int64(len(p.Result.Images))*imageTokens + 8
	}
	return imageTokens
}

// heldBytes returns what the images of messages weigh.
func heldBytes(messages []model.Message) int {
	size := 0
	for _, msg := range messages {
		for _, p := range msg.Parts {
			if p.Image != nil {
				size += len(p.Image.Data)
			}
			if p.Result != nil {
				for _, image := range p.Result.Images {
					size += len(image.Data)
				}
			}
		}
	}
	return size
}

// bound returns how many tokens the next request may have.
func (a *Agent) bound() int64 {
	reserve := min(max(a.opts.MaxTokens, maxReserve), a.opts.ContextTokens/5)
	return a.opts.ContextTokens - reserve
}

// tokens returns about how many tokens the next request has.
func (r *run) tokens() int64 {
	messages := r.journal.messages
	if c := r.counted; c.tokens > 0 && c.messages <= len(messages) {
		return c.tokens + estimate(messages[c.messages:])
	}
	system, _ := r.system()
	tokens := estimateText(system) + estimate(messages)
	for _, o := range r.offers {
		tokens += estimateText(o.Description) + estimateText(string(o.Schema)) + 8
	}
	return tokens
}

// makeRoom compacts the history before it outgrows the model's context.
func (r *run) makeRoom(ctx context.Context) error {
	if size := r.tokens(); size > r.bound() && size > r.floor || heldBytes(r.journal.messages) > maxHistoryBytes {
		return r.compact(ctx, 1)
	}
	return nil
}

// overflowed compacts a history that the provider found too long, more with each
// time.
func (r *run) overflowed(ctx context.Context, times int) error {
	if err := r.status(ctx, "Prompt exceeded the context window. Compacting history and continuing automatically..."); err != nil {
		return err
	}
	if err := r.compact(ctx, times); err != nil {
		return r.stopped(ctx, err)
	}
	return nil
}

// compact puts a summary in the place of what is old. The first time a tail of
// recent messages is kept as it is, the second time only the last exchange, and
// the texts in that are cut. Calls stay with their results.
func (r *run) compact(ctx context.Context, times int) error {
	before := r.tokens()
	if err := r.status(ctx, "Compacting"); err != nil {
		return err
	}
	keep := r.bound() / 4
	if times > 1 {
		keep = 0
	}
	messages := r.journal.messages
	at := cutAt(messages, keep)
	if at == 0 {
		at = cutAt(messages, 0)
	}
	tail := slices.Clone(messages[at:])
	if held := heldBytes(tail); times > 1 || at == 0 || estimate(tail) > r.bound()/2 || held > maxHistoryBytes/2 {
		tail = squeeze(tail)
	}
	summary, err := r.summary(ctx, messages[:at])
	if err != nil {
		return err
	}
	var recs []record
	if at > 0 {
		recs = append(recs, record{Message: told(summary)})
	} else {
		summary = "Long texts were cut to make room."
	}
	for _, msg := range tail {
		recs = append(recs, record{Message: &msg, Shown: r.journal.shown})
	}
	r.counted = counted{} // also if the shorter history cannot be written
	if err := r.journal.replace(recs); err != nil {
		return err
	}
	r.floor = r.tokens() * 3 / 2 // what could not be made shorter is not tried every turn
	return r.host.Publish(ctx, &contracts.Compaction{
		Summary: summary, FirstKeptEntryIndex: int64(at), TokensBefore: before, Auto: true,
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
	})
}

// cutAt returns the first message of the longest tail that has at most so many
// tokens and begins with no result. The last exchange always belongs to it.
func cutAt(messages []model.Message, tokens int64) int {
	at := len(messages)
	var size int64
	for i, msg := range slices.Backward(messages) {
		if size += estimate(messages[i : i+1]); size > tokens && at < len(messages) {
			break
		}
		if !answersCalls(msg) {
			at = i
		}
	}
	return min(at, max(len(messages)-1, 0))
}

func answersCalls(msg model.Message) bool {
	return slices.ContainsFunc(msg.Parts, func(p model.Part) bool { return p.Result != nil })
}

// squeeze cuts what is long in messages, and leaves out images.
func squeeze(messages []model.Message) []model.Message {
	short := make([]model.Message, len(messages))
	for i, msg := range messages {
		short[i].Role = msg.Role
		for _, p := range msg.Parts {
			short[i].Parts = append(short[i].Parts, squeezePart(p))
		}
	}
	return short
}

func squeezePart(p model.Part) model.Part {
	p = withoutImages(p)
	switch {
	case p.Text != nil:
		return textPart(bounded(*p.Text, squeezedBytes))
	case p.Call != nil && len(p.Call.Args) > squeezedBytes:
		c := *p.Call
		c.Args = json.RawMessage(`{"left_out":"the arguments were too long to be kept"}`)
		return model.Part{Call: &c}
	case p.Result != nil:
		result := *p.Result
		result.Text = bounded(result.Text, squeezedBytes)
		return model.Part{Result: &result}
	}
	return p
}

// hasImages reports whether there is an image in a message, if only an empty one.
func hasImages(msg model.Message) bool {
	return slices.ContainsFunc(msg.Parts, func(p model.Part) bool { return p.Image != nil || p.Result != nil && len(p.Result.Images) > 0 })
}

func withoutImages(p model.Part) model.Part {
	switch {
	case p.Image != nil:
		return textPart("[an image that was left out]")
	case p.Result != nil && len(p.Result.Images) > 0:
		result := *p.Result
		result.Text += "\n[images that were left out]"
		result.Images = nil
		return model.Part{Result: &result}
	}
	return p
}

// aboutImages are the words of providers that do not take a picture, or none.
var aboutImages = lazyregexp.New(`(?i)\b(images?|image_url|pictures?|multimodal|mmproj)\b`)

// blamesImages reports whether a provider may have refused a request for a picture
// in it: one that is damaged, too large or of a form that it does not know, or any
// for a model that sees none.
func blamesImages(err *model.Error) bool {
	switch err.Kind {
	case model.KindInvalid:
		return err.Status == http.StatusBadRequest || err.Status == http.StatusUnprocessableEntity || aboutImages().MatchString(err.Message)
	case model.KindTransient:
		return aboutImages().MatchString(err.Message)
	}
	return false
}

// dropImages leaves the pictures out of the history: the provider would refuse
// every request with them, and so every prompt from now on.
func (r *run) dropImages(ctx context.Context, cause *model.Error) error {
	var recs []record
	for _, msg := range r.journal.messages {
		parts := make([]model.Part, len(msg.Parts))
		for i, p := range msg.Parts {
			parts[i] = withoutImages(p)
		}
		recs = append(recs, record{Message: &model.Message{Role: msg.Role, Parts: parts}, Shown: r.journal.shown})
	}
	r.counted = counted{}
	if err := r.journal.replace(recs); err != nil {
		return r.failed(err)
	}
	return r.status(ctx, "Trying again without the images of the conversation, which the provider may not take: "+shownError(cause))
}

const (
	summarize = `Summarise the conversation between a person and a coding agent that you are given, so that the agent can go on from your summary alone. Write down what the person asked for, in their words where they matter; what was decided and why; which files were read, made or changed and how; what commands showed; what failed; and what is left to do next. Be complete about facts and brief about everything else. Do not answer the conversation and do not call tools.`

	summaryHead = "What went before, in summary:\n\n"
	forgotten   = "[What went before was removed because it did not fit the context any more, and it could not be summarised.]"
)

// summary returns what stands for older messages. If the model cannot summarise
// them they are forgotten, but for the person's last request in them.
func (r *run) summary(ctx context.Context, messages []model.Message) (string, error) {
	if len(messages) == 0 {
		return "", nil
	}
	text, err := r.askSummary(ctx, messages)
	switch {
	case err == nil:
		return summaryHead + text, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	}
	r.opts.Log.Warn("summarise history", slog.Any("err", err))
	marker := forgotten
	if request := lastRequest(messages); request != "" {
		marker += "\n\nThe last request in it was:\n\n" + bounded(request, recountedBytes)
	}
	return marker, nil
}

func (r *run) askSummary(ctx context.Context, messages []model.Message) (string, error) {
	req := &model.Request{
		System: summarize, Thinking: model.EffortOff, MaxTokens: maxSummaryTokens, Metadata: r.opts.Metadata,
		Messages: []model.Message{*told(recount(messages, int(r.bound())*bytesPerToken/2))},
	}
	if r.opts.MaxTokens > 0 {
		req.MaxTokens = min(req.MaxTokens, r.opts.MaxTokens)
	}
	for try := 1; ; try++ {
		got, err := r.opts.Model.Stream(ctx, req, func(model.Delta) error { return nil })
		r.spend(got.Usage)
		text := strings.TrimSpace(textOf(got.Message))
		failure, _ := errors.AsType[*model.Error](err)
		switch {
		case err == nil && text != "" && got.Stop != model.StopRefused:
			return text, nil
		case err == nil:
			return "", errors.New("the model gave no summary")
		case failure == nil || !failure.Retryable() || failure.RetryAfter > maxRetryAfter || try > 2:
			return "", err
		}
		if err := sleep.For(ctx, max(firstDelay<<(try-1), failure.RetryAfter)); err != nil {
			return "", err
		}
	}
}

// recount writes a conversation down as a text of about limit bytes.
func recount(messages []model.Message, limit int) string {
	var text strings.Builder
	for _, msg := range messages {
		for _, p := range msg.Parts {
			switch {
			case p.Text != nil && msg.Role == model.RoleUser:
				fmt.Fprintf(&text, "Person: %s\n\n", bounded(*p.Text, 4*recountedBytes))
			case p.Text != nil:
				fmt.Fprintf(&text, "Agent: %s\n\n", bounded(*p.Text, recountedBytes))
			case p.Call != nil:
				fmt.Fprintf(&text, "Agent calls %s %s\n\n", p.Call.Tool, bounded(string(p.Call.Args), recountedBytes/2))
			case p.Result != nil:
				fmt.Fprintf(&text, "Result: %s\n\n", bounded(p.Result.Text, recountedBytes/2))
			case p.Image != nil:
				text.WriteString("Person: [an image]\n\n")
			}
		}
	}
	whole := text.String()
	if limit = max(limit, 2*recountedBytes); len(whole) <= limit {
		return whole
	}
	// An earlier summary stands at the beginning; what is newest matters most.
	head := abridge.Head(whole, limit/4)
	return head + "\n[...]\n" + contracts.TailText(whole, limit*3/4)
}

// lastRequest returns the newest text of the person in messages.
func lastRequest(messages []model.Message) string {
	for _, msg := range slices.Backward(messages) {
		if msg.Role != model.RoleUser || answersCalls(msg) {
			continue
		}
		for _, p := range slices.Backward(msg.Parts) {
			if p.Text != nil && *p.Text != cutOff && *p.Text != goOnWriting {
				return *p.Text
			}
		}
	}
	return ""
}
