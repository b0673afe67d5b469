package llm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

// failureKinds says what a provider's failure means for clients.
var failureKinds = map[model.Kind]struct {
	code  contracts.Code
	class contracts.ErrorType
	ends  string // the run, if there is no retry
	retry string // says why there is one
}{
	model.KindOverloaded: {contracts.CodeOverloaded, contracts.ErrorTransient, "The model is overloaded", "is overloaded"},
	model.KindTransient:  {contracts.CodeRuntimeFailed, contracts.ErrorTransient, "The model could not be reached", "could not be reached"},
	model.KindCut:        {contracts.CodeRuntimeFailed, contracts.ErrorTransient, "The model's answer broke off", "broke off its answer"},
	model.KindMalformed:  {contracts.CodeRuntimeFailed, contracts.ErrorTransient, "The model's answer was not understood", "gave an answer that was not understood"},
	model.KindTooLong:    {contracts.CodePayloadTooLarge, contracts.ErrorFatal, "The conversation does not fit the model's context", ""},
	model.KindQuota:      {contracts.CodeRuntimeFailed, contracts.ErrorFatal, "The provider's quota or credit is used up", ""},
	model.KindAuth:       {contracts.CodeUnauthenticated, contracts.ErrorFatal, "The provider does not accept the credentials", ""},
	model.KindInvalid:    {contracts.CodeRuntimeFailed, contracts.ErrorFatal, "The provider refused the request", ""},
}

// failed returns an error of a run as clients may see it, without secrets.
func (r *run) failed(err error) error {
	if own, ok := errors.AsType[*contracts.Error](err); ok {
		return own
	}
	text := shownError(err)
	if failure, ok := errors.AsType[*model.Error](err); ok {
		means := failureKinds[failure.Kind]
		return &contracts.Error{Code: means.code, Message: means.ends + ": " + text, Type: means.class}
	}
	r.opts.Log.Error("run of the model", slog.Any("err", err))
	return &contracts.Error{
		Code: contracts.CodeInternal, Message: "The agent failed: " + text, Type: contracts.Classify(text, false),
	}
}

// gaveUp is [run.failed] for the failure of a turn. It also tells what the provider
// said.
func (r *run) gaveUp(ctx context.Context, err error) error {
	shown := r.failed(err)
	failure, ok := errors.AsType[*model.Error](err)
	if !ok {
		return shown
	}
	event := map[string]any{
		"type": "model_error", "message": bounded(cmp.Or(failure.Said, failure.Message), maxErrorBytes), "provider": r.provider,
		"status": failure.Status, "retry_after_ms": failure.RetryAfter.Milliseconds(), "retryable": failure.Retryable(),
	}
	if failure.Details != nil {
		event["details"] = failure.Details
	}
	if err := r.tell(ctx, event); err != nil {
		return err
	}
	return shown
}

// ended returns the error of a run that ends with a text.
func ended(class contracts.ErrorType, text string) error {
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: text, Type: class}
}

// maxErrorBytes bounds an error's text.
const maxErrorBytes = 2000

// shownError returns the text of an error without what looks like a credential.
func shownError(err error) string { return bounded(mask.Text(err.Error()), maxErrorBytes) }

// Retryable marks the failure of a tool that may go away by itself, such as a
// broken connection. Timeouts count as well.
func Retryable(err error) error { return retryableError{err} }

type retryableError struct{ error }

func (e retryableError) Unwrap() error { return e.error }

// mayPass reports whether the failure of a tool may go away by itself.
func mayPass(err error) bool {
	_, marked := errors.AsType[retryableError](err)
	e, ok := errors.AsType[net.Error](err)
	return marked || ok && e.Timeout()
}
