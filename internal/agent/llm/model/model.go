// Package model defines what an agent loop and a model provider exchange: requests,
// replies and failures. The types are plain values, so that a history can be kept as
// JSON and read by another provider.
package model

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// A Model is one model of one provider. One goroutine at a time may call Stream.
type Model interface {
	// Stream sends a request and passes text and thinking to say as they come. It
	// returns the whole reply. When ctx ends, the stream breaks or say fails, it
	// returns the error with the reply so far, without calls whose arguments are
	// incomplete. Ids of calls may be empty or repeat. An error of the provider is an
	// *Error.
	Stream(ctx context.Context, req *Request, say func(Delta) error) (Reply, error)
}

// A Request is a conversation to be continued by the model.
type Request struct {
	System    string
	Messages  []Message // the first is the user's; roles alternate
	Tools     []Tool
	Thinking  Effort
	MaxTokens int64 // of the reply; zero means the provider's default for the model

	// Metadata are ids that the provider or a gateway records, never content.
	Metadata map[string]string
}

// Effort is how much a model is to think before it answers.
type Effort string

// The efforts, from none.
const (
	EffortOff     Effort = "off"
	EffortMinimal Effort = "minimal"
	EffortLow     Effort = "low"
	EffortMedium  Effort = "medium"
	EffortHigh    Effort = "high"
	EffortUltra   Effort = "ultra"
)

// Role is who a message is from.
type Role string

// The roles. The results of tools are from the user.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// A Message is one side's turn.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// A Part is a piece of a message: exactly one field is set.
type Part struct {
	Text     *string     `json:"text,omitempty"`
	Thinking *Thinking   `json:"thinking,omitempty"`
	Call     *Call       `json:"call,omitempty"`
	Result   *CallResult `json:"result,omitempty"`
	Image    *Image      `json:"image,omitempty"`
}

// Thinking is reasoning that a provider wants to see again. Only the named provider
// can read Opaque; another provider sends nothing of it.
type Thinking struct {
	Text     string          `json:"text,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Opaque   json.RawMessage `json:"opaque,omitempty"`
}

// A Call is a tool that the model wants to have run. In a request Args is a JSON
// object, and ID is unique and has at most 64 letters, digits, _ and -.
type Call struct {
	ID   string          `json:"id"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`

	// Shown is the id that clients know. Providers neither get nor set it.
	Shown string `json:"shown,omitempty"`
}

// A CallResult answers a call. The messages of a valid history answer every call
// of an assistant's message in the message that follows it.
type CallResult struct {
	ID      string  `json:"id"`
	Text    string  `json:"text"`
	Images  []Image `json:"images,omitempty"`
	IsError bool    `json:"is_error,omitempty"`
}

// An Image is a picture in one of the usual formats.
type Image struct {
	MimeType string `json:"mime_type"`
	Data     []byte `json:"data"`
}

// A Tool is what the model may call. Schema is a JSON Schema of an object.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// A Delta is a piece of a reply: text or thinking.
type Delta struct {
	Text     string
	Thinking bool
}

// A Reply is a finished message with its usage.
type Reply struct {
	Message Message
	Usage   Usage
	Stop    Stop
	Model   string // as the provider names it; may be empty
	ID      string `json:",omitempty"` // of the reply at the provider; may be empty
}

// Usage counts tokens. Input excludes those read from or written to a cache.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
}

// Stop is why a model stopped.
type Stop string

// The reasons to stop.
const (
	StopDone    Stop = "done"
	StopCalls   Stop = "calls"   // the model waits for the results of its calls
	StopLength  Stop = "length"  // MaxTokens, or the end of its context
	StopRefused Stop = "refused" // by the provider's or the model's policy
)

// Kind classifies a failure by what may be done about it.
type Kind string

// The kinds of failures.
const (
	KindOverloaded Kind = "overloaded" // 429, 529 and the like: try again, later
	KindTransient  Kind = "transient"  // 5xx, no connection: try again
	KindCut        Kind = "cut"        // the answer broke off: try again
	KindTooLong    Kind = "too_long"   // the conversation does not fit: shorten it
	KindAuth       Kind = "auth"       // no or wrong credentials
	KindQuota      Kind = "quota"      // the quota or credit is used up: the account's owner must act
	KindInvalid    Kind = "invalid"    // the provider refuses the request
	KindMalformed  Kind = "malformed"  // the provider's answer is not understood: try again
)

// An Error is a failure of a provider. Its text is fit to be shown: it contains no
// credentials and no request bodies.
type Error struct {
	Kind       Kind
	Status     int           // of HTTP; zero if there was no answer
	RetryAfter time.Duration // the wait that the provider asks for; zero if none
	Message    string

	// Said and Details are what the provider said: its message, and the whole answer as
	// JSON. They are fit to be shown, and empty if it said nothing.
	Said    string          `json:",omitempty"`
	Details json.RawMessage `json:",omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool {
	return slices.Contains([]Kind{KindOverloaded, KindTransient, KindCut, KindMalformed}, e.Kind)
}
