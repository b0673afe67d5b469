package localmodel

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A FaultKind is a way to fail.
type FaultKind string

// The kinds of faults. Those of the second block break a stream.
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
	FaultSlow        FaultKind = "slow"         // a pause of 20 ms before each event
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

	// RetryAfterMS is the wait that a refusal asks for, in milliseconds. 0 means
	// 1,000 for a 429 and no wait for the others.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`

	// Abort breaks the connection where a cut would end the response normally.
	Abort bool `json:"abort,omitempty"`
}

// A failure is an error answer.
type failure struct {
	status     int    // of HTTP
	typ        string // empty: invalid_request_error
	message    string // empty: the page of a proxy instead
	code       any    // of OpenAI; nil without one
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
		{status: 400, code: "context_length_exceeded", message: "Your input exceeds the context window of this model. Please adjust your input and try again."},
	},
	FaultNoQuota: {
		{status: 400, message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."},
		{status: 429, typ: "insufficient_quota", code: "insufficient_quota", message: "You exceeded your current quota, please check your plan and billing details."},
	},
	FaultHTML: {{status: 502}, {status: 502}},
}

// delayed returns a refusal with the wait that the fault says.
func (f Fault) delayed(refused failure) failure {
	refused.retryAfter = time.Duration(f.RetryAfterMS) * time.Millisecond
	if f.Kind == FaultRateLimited {
		refused.retryAfter = cmp.Or(refused.retryAfter, time.Second)
	}
	return refused
}

// invalid returns the refusal of a request that breaks the rules of the service.
func invalid(format string, args ...any) *failure {
	return &failure{status: 400, message: fmt.Sprintf(format, args...)}
}

// A section says to which part of a reply an event belongs, so that a fault can
// find its place.
type section int

const (
	inStart section = iota
	inThinking
	inText
	inArgs
	inEnd
)

// A frame is one server-sent event.
type frame struct {
	in    section
	event string // empty if the form has no names
	data  []byte
}

// bytes returns the event as sent.
func (f frame) bytes() []byte {
	name := ""
	if f.event != "" {
		name = "event: " + f.event + "\n"
	}
	return fmt.Appendf(nil, "%sdata: %s\n\n", name, f.data)
}

// strike breaks the events of a reply.
func (f Fault) strike(frames []frame, form wire) []frame {
	middle := middleOf(frames, inText, inThinking, inArgs)
	switch f.Kind {
	case FaultCutText, FaultHang:
		return frames[:middle]
	case FaultCutArgs:
		return frames[:middleOf(frames, inArgs, inText, inThinking)]
	case FaultCutEnd:
		return slices.DeleteFunc(frames, func(f frame) bool { return f.in == inEnd })
	case FaultMalformed:
		wrong := &frames[middle]
		wrong.data = wrong.data[:len(wrong.data)*2/3]
		return frames[:middle+1]
	case FaultErrorEvent, FaultFailedEvent:
		return append(frames[:middle], form.failedFrame(f.Kind, middle))
	}
	return frames
}

// middleOf returns the index after the first half of the events of a section.
// It takes the first of the given sections that the reply has. If the reply has
// none of them, middleOf returns the index after the first event.
func middleOf(frames []frame, sections ...section) int {
	for _, in := range sections {
		var at []int
		for i, f := range frames {
			if f.in == in {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			return at[(len(at)-1)/2] + 1
		}
	}
	return 1
}

const slowPause = 20 * time.Millisecond

// stream writes the events of a reply and ends it as a fault says.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, frames []frame, f Fault) {
	wait := s.opts.Pause
	if f.Kind == FaultSlow {
		wait = slowPause
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for _, f := range frames {
		if sleep.For(ctx, wait) != nil {
			return
		}
		if _, err := w.Write(f.bytes()); err != nil || out.Flush() != nil {
			return
		}
	}
	switch {
	case f.Kind == FaultHang:
		<-ctx.Done()
	case f.Abort:
		panic(http.ErrAbortHandler)
	}
}
