package contracts

import (
	"cmp"
	"slices"
	"strings"
)

// A Code is a stable machine-readable reason.
type Code string

const (
	CodeRuntimeNotReady       Code = "runtime_not_ready"
	CodeRuntimeOwnedElsewhere Code = "runtime_owned_elsewhere"
	CodeRuntimeFailed         Code = "runtime_failed"
	CodeRuntimeBusy           Code = "runtime_busy"
	CodeAccessDenied          Code = "access_denied"
	CodeWorkspaceViolation    Code = "workspace_violation"
	CodeUnsupportedCapability Code = "unsupported_capability"
	CodeBadRequest            Code = "bad_request"
	CodeNotFound              Code = "not_found"
	CodeMethodNotAllowed      Code = "method_not_allowed"
	CodeStaleSession          Code = "stale_session"
	CodeStaleConnection       Code = "stale_connection"
	CodeStaleSubscription     Code = "stale_subscription"
	CodeControllerLeaseHeld   Code = "controller_lease_held"
	CodeRoleConflict          Code = "role_conflict"
	CodeRequestNotFound       Code = "request_not_found"
	CodeRequestTypeMismatch   Code = "request_type_mismatch"
	CodeDigestMismatch        Code = "digest_mismatch"
	CodeDigestRequired        Code = "digest_required"
	CodeAlreadyVoted          Code = "already_voted"
	CodeUnauthenticated       Code = "unauthenticated"
	CodePayloadTooLarge       Code = "payload_too_large"
	CodeRateLimited           Code = "rate_limited"
	CodeOverloaded            Code = "overloaded"
	CodeUpgradeRequired       Code = "upgrade_required"
	CodeSlowConsumer          Code = "slow_consumer"
	CodeTimeout               Code = "timeout"
	CodeSuperseded            Code = "superseded"
	CodeGoingAway             Code = "going_away"
	CodeInternal              Code = "internal_error"
)

// codeTraits says what a code is over HTTP and WebSocket.
type codeTraits struct {
	code      Code
	status    int // of an HTTP response
	close     int // the WebSocket close code
	retryable bool
}

// codes lists the codes in the order above. The last one stands for the codes of
// newer servers.
var codes = []codeTraits{
	{CodeRuntimeNotReady, 503, 4503, true},
	{CodeRuntimeOwnedElsewhere, 409, 4421, false},
	{CodeRuntimeFailed, 500, 1011, false},
	{CodeRuntimeBusy, 409, 1011, true},
	{CodeAccessDenied, 403, 4403, false},
	{CodeWorkspaceViolation, 403, 1011, false},
	{CodeUnsupportedCapability, 501, 1011, false},
	{CodeBadRequest, 400, 4400, false},
	{CodeNotFound, 404, 4404, false},
	{CodeMethodNotAllowed, 405, 1011, false},
	{CodeStaleSession, 404, 4404, false},
	{CodeStaleConnection, 404, 1011, false},
	{CodeStaleSubscription, 404, 1011, false},
	{CodeControllerLeaseHeld, 409, 4409, false},
	{CodeRoleConflict, 409, 4409, false},
	{CodeRequestNotFound, 404, 1011, false},
	{CodeRequestTypeMismatch, 409, 1011, false},
	{CodeDigestMismatch, 409, 1011, false},
	{CodeDigestRequired, 400, 1011, false},
	{CodeAlreadyVoted, 409, 1011, false},
	{CodeUnauthenticated, 401, 4401, false},
	{CodePayloadTooLarge, 413, 1009, false},
	{CodeRateLimited, 429, 4429, true},
	{CodeOverloaded, 503, 1013, true},
	{CodeUpgradeRequired, 426, 4426, false},
	{CodeSlowConsumer, 429, 4429, true},
	{CodeTimeout, 408, 4408, true},
	{CodeSuperseded, 409, 4410, false},
	{CodeGoingAway, 503, 1001, true},
	{CodeInternal, 500, 1011, false},
}

// Codes lists every code, in the order above.
func Codes() []Code {
	list := make([]Code, len(codes))
	for i, t := range codes {
		list[i] = t.code
	}
	return list
}

func (c Code) traits() codeTraits {
	i := slices.IndexFunc(codes, func(t codeTraits) bool { return t.code == c })
	if i < 0 {
		i = len(codes) - 1
	}
	return codes[i]
}

// HTTPStatus returns the status of an HTTP response with this code.
func (c Code) HTTPStatus() int { return c.traits().status }

// CloseCode returns the WebSocket close code.
func (c Code) CloseCode() int { return c.traits().close }

// Retryable reports whether the same request may succeed later unchanged.
func (c Code) Retryable() bool { return c.traits().retryable }

// An Error is a refusal of a client's request. errors.Is compares the codes.
type Error struct {
	Code      Code
	Message   string    // the specified text if the specification names one
	Type      ErrorType // error_type on transports that answer with an error message
	RequestID string    // id of the client's request, if it named one
	Metadata  map[string]string

	cause error // also found by errors.Is; usually nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Unwrap returns the cause, such as [ErrUnknownType].
func (e *Error) Unwrap() error { return e.cause }

// WithCause returns a copy of e that wraps cause. Clients do not see the cause; the log of a
// server may have it.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Event returns the error as a non-fatal error message.
func (e *Error) Event() *ErrorEvent {
	return &ErrorEvent{RequestID: e.RequestID, Message: e.Message, ErrorType: cmp.Or(e.Type, ErrorProtocol)}
}

// ErrorDetail is machine-readable context in an error body.
type ErrorDetail struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Details returns the error's ErrorInfo.
func (e *Error) Details() []ErrorDetail {
	domain := "maestro.headless"
	if e.Code == CodeRuntimeNotReady || e.Code == CodeRuntimeOwnedElsewhere {
		domain = "maestro.hosted_runner" // gateways look for these codes in this domain
	}
	return []ErrorDetail{{
		Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: string(e.Code),
		Domain: domain, Metadata: e.Metadata,
	}}
}

// errorWords lists the words that decide the type of an error text, in order of
// precedence (R102).
var errorWords = []struct {
	errorType ErrorType
	words     []string
}{
	{ErrorCancelled, []string{"abort", "interrupted", "cancel"}},
	{ErrorTransient, []string{"rate limit", "overloaded", "timeout", "temporar"}},
	{ErrorTool, []string{"tool", "permission", "approval"}},
	{ErrorProtocol, []string{"parse", "json", "protocol"}},
}

// Classify guesses the type of an error from its text (R102). It is for errors from
// outside, such as a provider's. A contracts.Error carries its type.
func Classify(text string, fatal bool) ErrorType {
	text = strings.ToLower(text)
	for _, group := range errorWords {
		for _, word := range group.words {
			if strings.Contains(text, word) {
				return group.errorType
			}
		}
	}
	if fatal {
		return ErrorFatal
	}
	return ErrorTool
}
