package heddle

import (
	"encoding/json"
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	wire "github.com/seed-028515a8/maestro/internal/dialect/heddle"
)

// A response is a message of the program of any type, as far as it is read. Unlike the
// types in internal/dialect/heddle it can be decoded before its type is known.
type response struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Session string `json:"session_id"`
	Version string `json:"protocol_version"`
	Profile struct {
		Model string `json:"model"`
	} `json:"profile"`
	Error *wire.Error `json:"error"`

	SendID string `json:"send_id"`
	Event  event  `json:"event"`

	Status   string      `json:"status"`
	Response string      `json:"response"`
	Usage    *wire.Usage `json:"usage"`
}

// An event is the payload of an event, of any kind.
type event struct {
	Kind     string          `json:"event"`
	Text     string          `json:"text"`
	Name     string          `json:"name"`
	Args     json.RawMessage `json:"args"`
	Preview  string          `json:"result_preview"`
	Reason   string          `json:"reason"`
	Plan     json.RawMessage `json:"plan"`
	Pruned   int64           `json:"messages_pruned"`
	Before   int64           `json:"tokens_before"`
	Duration int64           `json:"duration_ms"`
	Model    string          `json:"model"`
	Provider string          `json:"provider"`
	CallID   string          `json:"call_id"`
	Thinking bool            `json:"thinking"`
	wire.Error
	wire.Usage
}

// message returns the text of an error for clients.
func message(e *wire.Error) string {
	if e.Message == "" {
		return fmt.Sprintf("the agent failed with the code %q", abridge.Bytes(e.Code, maxName))
	}
	return abridge.Bytes(e.Message, maxText)
}

// errorType returns the type of an error for clients.
func errorType(e *wire.Error) contracts.ErrorType {
	switch e.Code {
	case wire.CodeCancelled:
		return contracts.ErrorCancelled
	case wire.CodeProtocolError, wire.CodeVersionMismatch:
		return contracts.ErrorProtocol
	case wire.CodeToolError, wire.CodeLoopDetected, wire.CodeMaxIterations:
		return contracts.ErrorTool
	}
	if e.Retryable {
		return contracts.ErrorTransient
	}
	return contracts.Classify(e.Message, false)
}

// maxCount bounds token counts and costs, so that their sums are exact.
const maxCount = 1 << 50

// counted returns a usage for clients. Most services count cached tokens as part of the
// prompt; the total shows whether this one does.
func counted(u *wire.Usage, model, provider string) contracts.Usage {
	count := func(n int64) int64 { return min(max(n, 0), maxCount) }
	c := contracts.Usage{
		InputTokens: count(u.PromptTokens), OutputTokens: count(u.CompletionTokens),
		CacheReadTokens: count(u.CachedTokens), CacheWriteTokens: count(u.CacheWriteTokens),
		ModelID: model, Provider: provider,
	}
	if cached := c.CacheReadTokens + c.CacheWriteTokens; u.TotalTokens == u.PromptTokens+u.CompletionTokens && cached <= c.InputTokens {
		c.InputTokens -= cached
	}
	if u.CostCurrency == "" || u.CostCurrency == "USD" {
		c.TotalCostUSD = float64(count(u.CostMicros)) / 1e6
	}
	return c
}
