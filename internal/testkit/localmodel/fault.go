package localmodel

import (
	"fmt"
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

var faultKinds = map[FaultKind]bool{
	FaultRateLimited: true, FaultOverloaded: true, FaultServerError: true, FaultUnauthorized: true,
	FaultTooLong: true, FaultNoQuota: true, FaultHTML: true, FaultSilent: true, FaultEmpty: true,
	FaultCutText: true, FaultCutArgs: true, FaultCutEnd: true, FaultMalformed: true,
	FaultErrorEvent: true, FaultFailedEvent: true, FaultSlow: true, FaultHang: true,
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
	switch {
	case f == nil:
	case !faultKinds[f.Kind]:
		return fmt.Errorf("unknown fault %q", f.Kind)
	case f.Times < 0, f.RetryAfterMS < 0, f.PauseMS < 0:
		return fmt.Errorf("a fault with a negative number")
	}
	return nil
}

// A failure is an error answer, independent of the wire form.
type failure struct {
	status     int // of HTTP
	kind       FaultKind
	message    string
	code       string // of OpenAI; may be empty
	param      string // of OpenAI; may be empty
	retryAfter time.Duration
}

// failure returns the error that a fault answers instead of a reply. It returns
// nil if the fault breaks the reply itself.
func (f *Fault) failure(form Form) *failure {
	out := &failure{kind: f.Kind, retryAfter: time.Duration(f.RetryAfterMS) * time.Millisecond}
	anthropic := form == FormAnthropic
	pick := func(status int, ofAnthropic, ofOpenAI string) *failure {
		out.status, out.message = status, ofOpenAI
		if anthropic {
			out.message = ofAnthropic
		}
		return out
	}
	switch f.Kind {
	case FaultRateLimited:
		if out.retryAfter == 0 {
			out.retryAfter = time.Second
		}
		out.code = "rate_limit_exceeded"
		return pick(429, "This request would exceed your organization's rate limit. Please try again later.",
			"Rate limit reached for local on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 1s.")
	case FaultOverloaded:
		out.code = "server_overloaded"
		if anthropic {
			return pick(529, "Overloaded", "")
		}
		return pick(503, "", "The engine is currently overloaded, please try again later.")
	case FaultServerError:
		return pick(500, "Internal server error",
			"The server had an error while processing your request. Sorry about that!")
	case FaultUnauthorized:
		out.code = "invalid_api_key"
		return pick(401, "invalid x-api-key", "Incorrect API key provided.")
	case FaultTooLong:
		out.code, out.param = "context_length_exceeded", "input"
		if form == FormChat {
			out.param = "messages"
			return pick(400, "", "This model's maximum context length is 128000 tokens. However, your messages resulted in 214351 tokens. Please reduce the length of the messages.")
		}
		return pick(400, "prompt is too long: 214351 tokens > 200000 maximum",
			"Your input exceeds the context window of this model. Please adjust your input and try again.")
	case FaultNoQuota:
		out.code = "insufficient_quota"
		if anthropic {
			return pick(400, "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.", "")
		}
		return pick(429, "", "You exceeded your current quota, please check your plan and billing details.")
	case FaultHTML:
		return pick(502, "", "")
	}
	return nil
}

// invalid returns the refusal of a request that breaks the rules of the
// service.
func invalid(format string, args ...any) *failure {
	return &failure{status: 400, message: fmt.Sprintf(format, args...)}
}

func tooLargeFailure() *failure {
	return &failure{status: 413, kind: "too_large", message: "Request exceeds the maximum size"}
}
