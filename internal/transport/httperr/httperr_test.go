package httperr

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestRefusalHasOneBody(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, fmt.Errorf("attach: %w", &contracts.Error{
		Code: contracts.CodeControllerLeaseHeld, Message: "Controller lease is already held by another connection",
		Metadata: map[string]string{"controller_connection_id": "conn_1"},
	}))
	want := `{"error":"Controller lease is already held by another connection","error_type":"controller_lease_held",` +
		`"code":"controller_lease_held","retryable":false,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",` +
		`"reason":"controller_lease_held","domain":"maestro.headless","metadata":{"controller_connection_id":"conn_1"}}]}` + "\n"
	if w.Code != 409 || w.Body.String() != want {
		t.Errorf("got %d %s, want 409 %s", w.Code, w.Body, want)
	}
	if got, want := w.Header().Get("Content-Type"), "application/json; charset=utf-8"; got != want {
		t.Errorf("content type: got %q, want %q", got, want)
	}
}

func TestFaultIsNotShown(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, errors.New("open /home/alice/secret"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "alice") || !strings.Contains(w.Body.String(), `"code":"internal_error"`) {
		t.Errorf("got %d %s, want a fixed text", w.Code, w.Body)
	}
}

func TestHeadersSayWhatToDoNext(t *testing.T) {
	for _, tt := range []struct {
		code         contracts.Code
		before       string // Retry-After set by the caller
		header, want string
	}{
		{contracts.CodeUnauthenticated, "", "WWW-Authenticate", `Bearer realm="maestro"`},
		{contracts.CodeRateLimited, "", "Retry-After", "1"},
		{contracts.CodeRateLimited, "7", "Retry-After", "7"},
		{contracts.CodeOverloaded, "", "Retry-After", "1"},
		{contracts.CodeBadRequest, "", "Retry-After", ""},
	} {
		w := httptest.NewRecorder()
		if tt.before != "" {
			w.Header().Set("Retry-After", tt.before)
		}
		Write(w, &contracts.Error{Code: tt.code})
		if got := w.Header().Get(tt.header); got != tt.want {
			t.Errorf("%s: %s: got %q, want %q", tt.code, tt.header, got, tt.want)
		}
	}
}

// A told writer keeps the refusals that it is told of.
type told struct {
	*httptest.ResponseRecorder
	refusals []*contracts.Error
}

func (w *told) Refused(refusal *contracts.Error) { w.refusals = append(w.refusals, refusal) }

func TestOtherBodiesAreToldAndHideFaults(t *testing.T) {
	w := &told{ResponseRecorder: httptest.NewRecorder()}
	WriteAs(w, errors.New("open /home/alice/secret"), func(refusal *contracts.Error, status int) (int, []byte) {
		return status + 3, []byte(refusal.Message)
	})
	if len(w.refusals) != 1 || w.Code != 503 || w.Body.String() != "Internal server error" {
		t.Errorf("got %d %s, told %d times; want 503 with a fixed text, told once", w.Code, w.Body, len(w.refusals))
	}
}
