// Package turn publishes the responses of one run, in the order of R36 and with
// the telemetry of R38 to R40.
package turn

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// errNotResponding is the error of a call that needs an open response.
var errNotResponding = errors.New("no response is open")

// A Turn publishes the responses of one run, one after the other (R36), and
// collects the telemetry for their ends. There is one per run. It is not safe
// for concurrent use.
type Turn struct {
	host     contracts.Host
	model    string
	provider string

	// The open response; id is "" between responses.
	id    string
	began time.Time
	first time.Time // of the first chunk; zero before it

	// Counted since the last response ended (R39).
	tools             []string // sorted, unique
	labels            []string // in order of first appearance, unique
	succeeded, failed int64
}

// New returns the turn of a run; model and provider are part of every response.
func New(host contracts.Host, model, provider string) *Turn {
	return &Turn{host: host, model: model, provider: provider}
}

// Start opens a response with a new id.
func (t *Turn) Start(ctx context.Context) error {
	if t.id != "" {
		return errors.New("a response is open already")
	}
	t.id = ID("resp_")
	t.began, t.first = time.Now(), time.Time{}
	return t.host.Publish(ctx, &contracts.ResponseStart{ResponseID: t.id})
}

// Open reports whether a response is open.
func (t *Turn) Open() bool { return t.id != "" }

// Say appends text to the answer. An empty text is not published.
func (t *Turn) Say(ctx context.Context, text string) error {
	return t.chunk(ctx, text, false)
}

// Think appends text to the reasoning. An empty text is not published.
func (t *Turn) Think(ctx context.Context, text string) error {
	return t.chunk(ctx, text, true)
}

func (t *Turn) chunk(ctx context.Context, text string, thinking bool) error {
	if t.id == "" {
		return errNotResponding
	}
	if text == "" {
		return nil
	}
	if t.first.IsZero() {
		t.first = time.Now()
	}
	return t.host.Publish(ctx, &contracts.ResponseChunk{ResponseID: t.id, Content: text, IsThinking: thinking})
}

// maxListed bounds the tools and the labels that a response lists.
const maxListed = 128

// Finished counts a tool that ended, by success, denial or failure, for the
// next End. It may be called in or between responses. An empty label is not
// listed, nor are more than 128 tools or labels of one response.
func (t *Turn) Finished(tool string, ok bool, label string) {
	if at, found := slices.BinarySearch(t.tools, tool); !found && len(t.tools) < maxListed {
		t.tools = slices.Insert(t.tools, at, tool)
	}
	if label != "" && len(t.labels) < maxListed && !slices.Contains(t.labels, label) {
		t.labels = append(t.labels, label)
	}
	if ok {
		t.succeeded++
	} else {
		t.failed++
	}
}

// End closes the response. It computes the total of usage (R38). model and
// provider are the turn's unless usage names others.
func (t *Turn) End(ctx context.Context, usage contracts.Usage) error {
	if t.id == "" {
		return errNotResponding
	}
	usage.TotalTokens = usage.InputTokens + usage.OutputTokens + usage.CacheReadTokens + usage.CacheWriteTokens
	usage.ModelID = cmp.Or(usage.ModelID, t.model)
	usage.Provider = cmp.Or(usage.Provider, t.provider)
	end := &contracts.ResponseEnd{
		ResponseID: t.id,
		Usage:      usage,
		ToolsSummary: contracts.ToolsSummary{
			ToolsUsed:      append([]string{}, t.tools...), // an empty list, never null
			CallsSucceeded: t.succeeded,
			CallsFailed:    t.failed,
			SummaryLabels:  t.labels,
		},
		DurationMS: time.Since(t.began).Milliseconds(),
	}
	if !t.first.IsZero() {
		end.TTFTMS = new(t.first.Sub(t.began).Milliseconds())
	}
	t.id = ""
	t.tools, t.labels, t.succeeded, t.failed = nil, nil, 0, 0
	return t.host.Publish(ctx, end)
}

// After returns the end of a call whose question had the given verdict: success
// if it ran, and otherwise how it was refused (R47). A cancelled question has
// no such outcome.
func After(callID string, v contracts.Verdict) *contracts.ToolEnd {
	end := &contracts.ToolEnd{CallID: callID}
	switch v {
	case contracts.VerdictApproved, contracts.VerdictCompleted, contracts.VerdictAnswered, contracts.VerdictRetried:
		end.Success = true
	case contracts.VerdictDenied:
		end.ErrorCode, end.GovernedOutcome = "governance_denied", "denied"
	}
	return end
}

// ID returns prefix and a UUID of version 7 in hex, so that ids in logs sort by
// age.
func ID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + hex.EncodeToString(id[:])
}

// Failed returns the error of a run that the client may repeat.
func Failed(err error) error {
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTransient, Message: err.Error()}
}
