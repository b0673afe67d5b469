package contracts

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

// Codes lists every code, in the order above.
func Codes() []Code {
	return []Code{
		CodeRuntimeNotReady, CodeRuntimeOwnedElsewhere, CodeRuntimeFailed, CodeRuntimeBusy,
		CodeAccessDenied, CodeWorkspaceViolation, CodeUnsupportedCapability, CodeBadRequest,
		CodeNotFound, CodeMethodNotAllowed, CodeStaleSession, CodeStaleConnection,
		CodeStaleSubscription, CodeControllerLeaseHeld, CodeRoleConflict, CodeRequestNotFound,
		CodeRequestTypeMismatch, CodeUnauthenticated, CodePayloadTooLarge, CodeRateLimited,
		CodeOverloaded, CodeUpgradeRequired, CodeSlowConsumer, CodeTimeout, CodeSuperseded,
		CodeGoingAway, CodeInternal,
	}
}

// HTTPStatus returns the status of an HTTP response with this code.
func (c Code) HTTPStatus() int {
	switch c {
	case CodeBadRequest:
		return 400
	case CodeUnauthenticated:
		return 401
	case CodeAccessDenied, CodeWorkspaceViolation:
		return 403
	case CodeNotFound, CodeStaleSession, CodeStaleConnection, CodeStaleSubscription, CodeRequestNotFound:
		return 404
	case CodeMethodNotAllowed:
		return 405
	case CodeRuntimeBusy, CodeRuntimeOwnedElsewhere, CodeControllerLeaseHeld, CodeRoleConflict, CodeRequestTypeMismatch, CodeSuperseded:
		return 409
	case CodeTimeout:
		return 408
	case CodePayloadTooLarge:
		return 413
	case CodeUpgradeRequired:
		return 426
	case CodeRateLimited, CodeSlowConsumer:
		return 429
	case CodeUnsupportedCapability:
		return 501
	case CodeRuntimeNotReady, CodeOverloaded, CodeGoingAway:
		return 503
	}
	return 500
}

// Retryable reports whether the same request may succeed later unchanged.
func (c Code) Retryable() bool {
	switch c {
	case CodeRuntimeNotReady, CodeRuntimeBusy, CodeRateLimited, CodeOverloaded, CodeGoingAway, CodeSlowConsumer, CodeTimeout:
		return true
	}
	return false
}

// CloseCode returns the WebSocket close code.
func (c Code) CloseCode() int {
	switch c {
	case CodeBadRequest:
		return 4400
	case CodeUnauthenticated:
		return 4401
	case CodeAccessDenied:
		return 4403
	case CodeStaleSession, CodeNotFound:
		return 4404
	case CodeTimeout:
		return 4408
	case CodeControllerLeaseHeld, CodeRoleConflict:
		return 4409
	case CodeSuperseded:
		return 4410
	case CodeRuntimeOwnedElsewhere:
		return 4421
	case CodeUpgradeRequired:
		return 4426
	case CodeSlowConsumer, CodeRateLimited:
		return 4429
	case CodeRuntimeNotReady:
		return 4503
	case CodeGoingAway:
		return 1001
	case CodeOverloaded:
		return 1013
	case CodePayloadTooLarge:
		return 1009
	}
	return 1011
}

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

// Event returns the error as a non-fatal error message.
func (e *Error) Event() *ErrorEvent {
	t := e.Type
	if t == "" {
		t = ErrorProtocol
	}
	return &ErrorEvent{RequestID: e.RequestID, Message: e.Message, ErrorType: t}
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
