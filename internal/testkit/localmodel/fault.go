package localmodel

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A FaultKind is a way to fail.
type FaultKind string

// The kinds of faults. The second block needs a stream; a reply without
// streaming is cut or broken as a whole instead.
const (
	FaultRateLimited  FaultKind = "rate_limited" // 429 with Retry-After
	FaultOverloaded   FaultKind = "overloaded"   // 529 of Anthropic, 503 of OpenAI
	FaultServerError  FaultKind = "server_error" // 500
	FaultUnauthorized FaultKind = "unauthorized" // 401
	FaultTooLong      FaultKind = "too_long"     // 400: the context is too long
	FaultNoQuota      FaultKind = "no_quota"     // the quota is used up: 400 of Anthropic, 429 of OpenAI
	FaultHTML         FaultKind = "html"         // 502 with the HTML page of a proxy
	FaultSilent       FaultKind = "silent"       // no answer until the client leaves
	FaultEmpty        FaultKind = "empty"        // a finished reply without content

	FaultCutText     FaultKind = "cut_text"     // the stream ends in the middle of the text
	FaultCutArgs     FaultKind = "cut_args"     // the stream ends in the middle of the arguments of a call
	FaultCutEnd      FaultKind = "cut_end"      // only the event that ends the stream is missing
	FaultMalformed   FaultKind = "malformed"    // an event that is not JSON
	FaultErrorEvent  FaultKind = "error_event"  // an error event in the middle of the stream
	FaultFailedEvent FaultKind = "failed_event" // the same, as response.failed in Responses
	FaultSlow        FaultKind = "slow"         // a pause before each event
	FaultHang        FaultKind = "hang"         // the stream stops in the middle until the client leaves
)

// broken has the faults that have no entry in refusals.
var broken = []FaultKind{
	FaultSilent, FaultEmpty, FaultCutText, FaultCutArgs, FaultCutEnd, FaultMalformed,
	FaultErrorEvent, FaultFailedEvent, FaultSlow, FaultHang,
}

// A Fault says how a request fails.
type Fault struct {
	Kind FaultKind `json:"kind"`

	// Times is how many requests for the turn fail before one succeeds. 0 means
	// that all fail.
	Times int `json:"times,omitempty"`

	// RetryAfterMS is the wait that a 429 or an overload asks for, in
	// milliseconds. 0 means 1,000 for a 429 and no wait for an overload.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`

	// PauseMS is the pause of slow, in milliseconds. 0 means 100.
	PauseMS int64 `json:"pause_ms,omitempty"`

	// Abort breaks the connection where a cut would end the response normally.
	Abort bool `json:"abort,omitempty"`
}

func (f *Fault) pause() time.Duration {
	if f.PauseMS == 0 {
		return 100 * time.Millisecond
	}
	return time.Duration(f.PauseMS) * time.Millisecond
}

// check returns an error if the fault is not valid.
func (f *Fault) check() error {
	if f == nil {
		return nil
	}
	_, refused := refusals[f.Kind]
	switch {
	case !refused && !slices.Contains(broken, f.Kind):
		return fmt.Errorf("unknown fault %q", f.Kind)
	case f.Times < 0, f.RetryAfterMS < 0, f.PauseMS < 0:
		return fmt.Errorf("a fault with a negative number")
	}
	return nil
}

// A failure is an error answer.
type failure struct {
	status     int    // of HTTP
	typ        string // empty: invalid_request_error
	message    string // empty: the page of a proxy instead
	code       string // of OpenAI; may be empty
	param      string // of OpenAI; may be empty
	retryAfter time.Duration
}

// refusals has the error answers to faults: of Anthropic, and of OpenAI.
var refusals = map[FaultKind][2]failure{
	FaultRateLimited: {
		{status: 429, typ: "rate_limit_error", message: "This request would exceed your organization's rate limit. Please try again later."},
		{status: 429, typ: "requests", code: "rate_limit_exceeded", message: "Rate limit reached for local on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 1s."},
	},
	FaultOverloaded: {
		{status: 529, typ: "overloaded_error", message: "Overloaded"},
		{status: 503, typ: "server_error", code: "server_overloaded", message: "The engine is currently overloaded, please try again later."},
	},
	FaultServerError: {
		{status: 500, typ: "api_error", message: "Internal server error"},
		{status: 500, typ: "server_error", message: "The server had an error while processing your request. Sorry about that!"},
	},
	FaultUnauthorized: {
		{status: 401, typ: "authentication_error", message: "invalid x-api-key"},
		{status: 401, code: "invalid_api_key", message: "Incorrect API key provided."},
	},
	FaultTooLong: {
		{status: 400, message: "prompt is too long: 214351 tokens > 200000 maximum"},
		{status: 400, code: "context_length_exceeded", param: "input", message: "Your input exceeds the context window of this model. Please adjust your input and try again."},
	},
	FaultNoQuota: {
		{status: 400, message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."},
		{status: 429, typ: "insufficient_quota", code: "insufficient_quota", message: "You exceeded your current quota, please check your plan and billing details."},
	},
	FaultHTML: {{status: 502}, {status: 502}},
}

// failure returns the error that a fault answers instead of a reply. It returns
// nil if the fault breaks the reply itself.
func (f *Fault) failure(form Form) *failure {
	of, refused := refusals[f.Kind]
	if !refused {
		return nil
	}
	out := of[1]
	switch {
	case form == FormAnthropic:
		out = of[0]
	case form == FormChat && f.Kind == FaultTooLong:
		out.param, out.message = "messages", "This model's maximum context length is 128000 tokens. However, your messages resulted in 214351 tokens. Please reduce the length of the messages."
	}
	out.retryAfter = time.Duration(f.RetryAfterMS) * time.Millisecond
	if f.Kind == FaultRateLimited {
		out.retryAfter = cmp.Or(out.retryAfter, time.Second)
	}
	return &out
}

// invalid returns the refusal of a request that breaks the rules of the
// service.
func invalid(format string, args ...any) *failure {
	return &failure{status: 400, message: fmt.Sprintf(format, args...)}
}

func tooLarge(form Form) *failure {
	f := &failure{status: 413, message: "Request exceeds the maximum size"}
	if form == FormAnthropic {
		f.typ = "request_too_large"
	}
	return f
}
