package llm

import (
	"context"
	"errors"
	"log/slog"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/contracts"
)

// failed returns an error of a run as clients may see it: with the type that
// tells what may be done about it, and without secrets.
func (r *run) failed(err error) error {
	if own, ok := errors.AsType[*contracts.Error](err); ok {
		return own
	}
	if provider, ok := errors.AsType[*model.Error](err); ok {
		return providerError(provider)
	}
	r.opts.Log.Error("run of the model", slog.Any("err", err))
	text := shownError(err)
	return &contracts.Error{
		Code: contracts.CodeInternal, Message: "The agent failed: " + text, Type: contracts.Classify(text, false),
	}
}

// providerError tells what a provider's failure means for clients.
func providerError(err *model.Error) *contracts.Error {
	text := shownError(err)
	switch err.Kind {
	case model.KindOverloaded:
		return &contracts.Error{Code: contracts.CodeOverloaded, Message: "The model is overloaded: " + text, Type: contracts.ErrorTransient}
	case model.KindTransient:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The model could not be reached: " + text, Type: contracts.ErrorTransient}
	case model.KindCut:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The model's answer broke off: " + text, Type: contracts.ErrorTransient}
	case model.KindMalformed:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The model's answer was not understood: " + text, Type: contracts.ErrorTransient}
	case model.KindTooLong:
		return &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "The conversation does not fit the model's context: " + text, Type: contracts.ErrorFatal}
	case model.KindQuota:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The provider's quota or credit is used up: " + text, Type: contracts.ErrorFatal}
	case model.KindAuth:
		return &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "The provider does not accept the credentials: " + text, Type: contracts.ErrorFatal}
	}
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The provider refused the request: " + text, Type: contracts.ErrorFatal}
}

// refused is the end of a run that the model does not want to go on with.
func refused(reply reply) error {
	text := "The model refused to answer"
	if reply.text != "" {
		text = "The model refused to go on"
	}
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: text, Type: contracts.ErrorTool}
}

// maxErrorBytes bounds an error's text.
const maxErrorBytes = 2000

// shownError returns the text of an error without what looks like a credential.
func shownError(err error) string { return bounded(mask.Text(err.Error()), maxErrorBytes) }

// Retryable marks the failure of a tool that may go away by itself, such as a
// connection that broke. What implements interface{ Retryable() bool } counts
// as well, and so do timeouts.
func Retryable(err error) error { return retryableError{err} }

type retryableError struct{ error }

func (e retryableError) Unwrap() error   { return e.error }
func (e retryableError) Retryable() bool { return true }

// mayPass reports whether the failure of a tool may go away by itself.
func mayPass(err error) bool {
	if e, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](err); ok {
		return e.Retryable()
	}
	if e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok {
		return e.Timeout()
	}
	return errors.Is(err, context.DeadlineExceeded)
}
