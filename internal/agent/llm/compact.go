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

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	// bytesPerToken and imageTokens estimate tokens that no provider has counted.
	bytesPerToken = 4
	imageTokens   = 1600

	// maxReserve bounds the tokens for the next reply, a fifth of a small context.
	maxReserve = 20_000

	// maxHistoryBytes bounds the images of a history, which cost few tokens.
	maxHistoryBytes = 64 << 20

	// squeezedBytes is what remains of a long text when a history must become shorter at
	// once, and of most texts that are to be summarised.
	squeezedBytes = 4000

	maxSummaryTokens = 8000
)

// counted is a provider's count of the system prompt, tools and first messages.
type counted struct {
	tokens   int64
	messages int
}

func estimateText(text string) int64 { return int64(len(text)+bytesPerToken-1) / bytesPerToken }

// estimate returns about how many tokens messages have.
func estimate(messages []model.Message) int64 {
	tokens := 4*int64(len(messages)) + imageTokens*int64(len(images(messages)))
	for _, msg := range messages {
		for _, p := range msg.Parts {
			switch {
			case p.Text != nil:
				tokens += estimateText(*p.Text)
			case p.Thinking != nil:
				tokens += estimateText(p.Thinking.Text) + estimateText(string(p.Thinking.Opaque))
			case p.Call != nil:
				tokens += estimateText(p.Call.Tool) + estimateText(string(p.Call.Args)) + 8
			case p.Result != nil:
				tokens += estimateText(p.Result.Text) + 8
			}
		}
	}
	return tokens
}

// images returns the images of messages, with those of results.
func images(messages []model.Message) []model.Image {
	var all []model.Image
	for _, msg := range messages {
		for _, p := range msg.Parts {
			if p.Image != nil {
				all = append(all, *p.Image)
			} else if p.Result != nil {
				all = append(all, p.Result.Images...)
			}
		}
	}
	return all
}

// imageBytes returns the size of the images of messages.
func imageBytes(messages []model.Message) int {
	size := 0
	for _, image := range images(messages) {
		size += len(image.Data)
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

// full reports whether the history is about to outgrow the model's context.
func (r *run) full() bool {
	size := r.tokens()
	return size > r.bound() && size > r.floor || imageBytes(r.journal.messages) > maxHistoryBytes
}

// compact replaces old messages by a summary. The first time it keeps a tail of
// recent messages as they are. From the second time on it keeps only the last
// exchange, with its texts cut. Calls stay with their results.
func (r *run) compact(ctx context.Context, times int) error {
	before := r.tokens()
	if err := r.status(ctx, "Compacting"); err != nil {
		return err
	}
	messages := r.journal.messages
	at := cutAt(messages, 0)
	if times == 1 {
		if longer := cutAt(messages, r.bound()/4); longer > 0 {
			at = longer
		}
	}
	tail := messages[at:]
	if times > 1 || at == 0 || estimate(tail) > r.bound()/2 || imageBytes(tail) > maxHistoryBytes/2 {
		tail = mapParts(tail, squeezed)
	}
	summary := "Long texts were cut to make room."
	if at > 0 {
		summary = r.summary(ctx, messages[:at])
		tail = append([]model.Message{*told(summary)}, tail...)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.counted = counted{} // also if the shorter history cannot be written
	if err := r.journal.replace(tail); err != nil {
		return r.failed(err)
	}
	r.floor = r.tokens() * 3 / 2 // a history that stays long is not compacted every turn
	return r.host.Publish(ctx, &contracts.Compaction{
		Summary: summary, FirstKeptEntryIndex: int64(at), TokensBefore: before, Auto: true,
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
	})
}

// cutAt returns the first message of the longest tail that has at most so many
// tokens and begins with no result. The tail is never shorter than the last
// exchange.
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

// mapParts returns messages with every part replaced.
func mapParts(messages []model.Message, replace func(model.Part) model.Part) []model.Message {
	mapped := slices.Clone(messages)
	for i, msg := range messages {
		mapped[i].Parts = make([]model.Part, len(msg.Parts))
		for n, p := range msg.Parts {
			mapped[i].Parts[n] = replace(p)
		}
	}
	return mapped
}

// squeezed returns a part with long texts cut and without images.
func squeezed(p model.Part) model.Part {
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

// aboutImages matches the messages of providers that refuse an image.
var aboutImages = lazyregexp.New(`(?i)\b(images?|image_url|pictures?|multimodal|mmproj)\b`)

// blamesImages reports whether a provider may have refused a request because of an
// image: a damaged one, a large one, one of an unknown form, or any image if the
// model sees none.
func blamesImages(err *model.Error) bool {
	badRequest := err.Status == http.StatusBadRequest || err.Status == http.StatusUnprocessableEntity
	return err.Kind == model.KindInvalid && badRequest ||
		(err.Kind == model.KindInvalid || err.Kind == model.KindTransient) && aboutImages().MatchString(err.Message)
}

// dropImages removes the images, for which the provider would refuse every request.
func (r *run) dropImages(ctx context.Context, cause *model.Error) error {
	r.counted = counted{}
	if err := r.journal.replace(mapParts(r.journal.messages, withoutImages)); err != nil {
		return r.failed(err)
	}
	return r.status(ctx, "Trying again without the images of the conversation, which the provider may not take: "+shownError(cause))
}

const (
	summarize = `Summarise the conversation between a person and a coding agent that you are given, so that the agent can go on from your summary alone. Write down what the person asked for, in their words where they matter; what was decided and why; which files were read, made or changed and how; what commands showed; what failed; and what is left to do next. Be complete about facts and brief about everything else. Do not answer the conversation and do not call tools.`

	summaryHead = "What went before, in summary:\n\n"
	forgotten   = "[What went before was removed because it did not fit the context any more, and it could not be summarised.]"
)

// summary returns the text that replaces old messages. If the model fails to
// summarise them the text repeats only the person's last request.
func (r *run) summary(ctx context.Context, messages []model.Message) string {
	text, err := r.askSummary(ctx, messages)
	if err == nil {
		return summaryHead + text
	}
	r.opts.Log.Warn("summarise history", slog.Any("err", err))
	if request := lastRequest(messages); request != "" {
		return forgotten + "\n\nThe last request in it was:\n\n" + bounded(request, squeezedBytes)
	}
	return forgotten
}

func (r *run) askSummary(ctx context.Context, messages []model.Message) (string, error) {
	req := &model.Request{
		System: summarize, Thinking: model.EffortOff, MaxTokens: maxSummaryTokens, Metadata: r.opts.Metadata,
		Messages: []model.Message{*told(recount(messages, int(r.bound())*bytesPerToken/2))},
	}
	if r.opts.MaxTokens > 0 {
		req.MaxTokens = min(req.MaxTokens, r.opts.MaxTokens)
	}
	for failures := 0; ; {
		got, err := r.opts.Model.Stream(ctx, req, func(model.Delta) error { return nil })
		r.spend(got.Usage)
		if err == nil {
			if text := strings.TrimSpace(textOf(got.Message)); text != "" && got.Stop != model.StopRefused {
				return text, nil
			}
			return "", errors.New("the model gave no summary")
		}
		if failures++; !mayRetry(err, failures, maxSummaryRetries) {
			return "", err
		}
		if err := r.pause(ctx, err, failures, maxSummaryRetries); err != nil {
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
				fmt.Fprintf(&text, "Person: %s\n\n", bounded(*p.Text, 4*squeezedBytes))
			case p.Text != nil:
				fmt.Fprintf(&text, "Agent: %s\n\n", bounded(*p.Text, squeezedBytes))
			case p.Call != nil:
				fmt.Fprintf(&text, "Agent calls %s %s\n\n", p.Call.Tool, bounded(string(p.Call.Args), squeezedBytes/2))
			case p.Result != nil:
				fmt.Fprintf(&text, "Result: %s\n\n", bounded(p.Result.Text, squeezedBytes/2))
			case p.Image != nil:
				text.WriteString("Person: [an image]\n\n")
			}
		}
	}
	whole := text.String()
	if limit = max(limit, 2*squeezedBytes); len(whole) <= limit {
		return whole
	}
	// The beginning holds an earlier summary. The end matters most.
	return abridge.Head(whole, limit/4) + "\n[...]\n" + contracts.TailText(whole, limit*3/4)
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
