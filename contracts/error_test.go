package contracts

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestErrorsAreEqualByCode(t *testing.T) {
	err := fmt.Errorf("admit: %w", &Error{Code: CodeAccessDenied, Message: "Viewers may not"})
	if !errors.Is(err, &Error{Code: CodeAccessDenied}) {
		t.Errorf("got %v, want access_denied", err)
	}
	if errors.Is(err, &Error{Code: CodeNotFound}) {
		t.Errorf("got %v, want it to differ from not_found", err)
	}
}

func TestErrorsAreShownToTheirRequester(t *testing.T) {
	got := (&Error{Code: CodeWorkspaceViolation, Message: "outside", Type: ErrorTool, RequestID: "r"}).Event()
	if want := (ErrorEvent{RequestID: "r", Message: "outside", ErrorType: ErrorTool}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestEveryCodeIsListedOnce(t *testing.T) {
	codes := Codes()
	slices.Sort(codes)
	if got := len(slices.Compact(codes)); got != len(Codes()) {
		t.Errorf("got %d different codes of %d", got, len(Codes()))
	}
	for _, code := range codes {
		if s := code.HTTPStatus(); s < 400 || s > 599 {
			t.Errorf("%s: got status %d", code, s)
		}
		if c := code.CloseCode(); len(code) > 123 || c < 1000 || c > 4999 || slices.Contains([]int{1000, 1002, 1005, 1006, 1010, 1015}, c) {
			t.Errorf("%s: got close code %d, which we may not send", code, c)
		}
	}
}

func TestDetailsNameTheCode(t *testing.T) {
	err := &Error{Code: CodeControllerLeaseHeld, Metadata: map[string]string{"session_id": "s"}}
	got := err.Details()
	if len(got) != 1 || got[0].Reason != "controller_lease_held" || got[0].Metadata["session_id"] != "s" {
		t.Errorf("got %+v, want one detail with the code and the metadata", got)
	}
}

func TestOnlyPassingTroubleIsRetryable(t *testing.T) {
	var got []Code
	for _, code := range Codes() {
		if code.Retryable() {
			got = append(got, code)
		}
	}
	want := []Code{CodeRuntimeNotReady, CodeRuntimeBusy, CodeRateLimited, CodeOverloaded, CodeSlowConsumer, CodeTimeout, CodeGoingAway}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
