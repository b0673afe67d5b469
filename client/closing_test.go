package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// A step is what a client does after a connection ended.
type step int

const (
	stepStop step = iota
	stepResume
	stepNewConnection
	stepStartOver
)

// stepAfter returns what a client that was connected does after why.
func stepAfter(why *CloseError) step {
	c := &Client{position: position{connection: "conn_1", epoch: "e1", known: true}}
	switch {
	case !c.prepareRetry(why):
		return stepStop
	case c.position == position{}:
		return stepStartOver
	case c.position.connection == "":
		return stepNewConnection
	}
	return stepResume
}

func TestRefusedUpgradesAreDescribed(t *testing.T) {
	cause := errors.New("dial")
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   CloseError
		step   step
	}{
		{"no answer", 0, nil, "", CloseError{Code: 1006, Err: cause, undialed: true}, stepResume},
		{"another subprotocol", 101, http.Header{"Sec-Websocket-Protocol": {"other"}}, "",
			CloseError{Code: 4426, Message: `the server chose subprotocol "other", want "` + contracts.Subprotocol + `"`}, stepStop},
		{"a broken upgrade", 101, http.Header{"Sec-Websocket-Protocol": {contracts.Subprotocol}}, "", CloseError{Code: 1006, Err: cause}, stepResume},
		{"credential", 401, nil, "no JSON", CloseError{Code: 4401, Status: 401, Message: "Unauthorized"}, stepStop},
		{"role", 403, nil, "", CloseError{Code: 4403, Status: 403, Message: "Forbidden"}, stepStop},
		{"session", 404, nil, "", CloseError{Code: 4404, Status: 404, Message: "Not Found"}, stepStartOver},
		{"conflict", 409, nil, "", CloseError{Code: 4409, Status: 409, Message: "Conflict"}, stepStop},
		{"version", 426, nil, "", CloseError{Code: 4426, Status: 426, Message: "Upgrade Required"}, stepStop},
		{"time", 408, nil, "", CloseError{Code: 4408, Status: 408, Message: "Request Timeout"}, stepResume},
		{"rate", 429, http.Header{"Retry-After": {"7"}}, "", CloseError{Code: 4429, Status: 429, Message: "Too Many Requests", RetryAfter: 7 * time.Second}, stepResume},
		{"draining", 503, http.Header{"Retry-After": {"soon"}}, "", CloseError{Code: 4503, Status: 503, Message: "Service Unavailable"}, stepResume},
		{"internal", 500, nil, "", CloseError{Code: 1011, Status: 500, Message: "Internal Server Error"}, stepResume},
		{"another 5xx", 502, nil, "", CloseError{Code: 1011, Status: 502, Message: "Bad Gateway"}, stepResume},
		{"another 4xx", 418, nil, "", CloseError{Code: 4400, Status: 418, Message: "I'm a teapot"}, stepStop},
		{"a code in the body", 400, nil, `{"error":"gone","code":"stale_session"}`, CloseError{Code: 4404, Status: 400, Reason: "stale_session", Message: "gone"}, stepStartOver},
		{"a code without a close code", 403, nil, `{"error":"x","code":"new_code"}`, CloseError{Code: 4403, Status: 403, Reason: "new_code", Message: "x"}, stepStop},
		{"a body without a code", 403, nil, `{"error":"x"}`, CloseError{Code: 4403, Status: 403, Message: "Forbidden"}, stepStop},
		{"a body that is too long", 403, nil, `{"code":"stale_session","error":"` + strings.Repeat("x", maxErrorBody) + `"}`, CloseError{Code: 4403, Status: 403, Message: "Forbidden"}, stepStop},
	} {
		var res *http.Response
		if tt.status != 0 {
			if tt.header == nil {
				tt.header = http.Header{}
			}
			res = &http.Response{StatusCode: tt.status, Header: tt.header, Body: io.NopCloser(strings.NewReader(tt.body))}
		}
		if got := upgradeError(cause, res); *got != tt.want || stepAfter(got) != tt.step {
			t.Errorf("%s: got %+v, step %d, want %+v, step %d", tt.name, *got, stepAfter(got), tt.want, tt.step)
		}
	}
	if given := (&CloseError{Code: 4000}); upgradeError(given, nil) != given {
		t.Error("got another error for one that describes itself, want the same")
	}
}

func TestEndsOfConnectionsAreDescribed(t *testing.T) {
	cause := errors.New("reset by peer")
	goodbye := &contracts.Goodbye{Code: 4503, Reason: "runtime_not_ready", RetryAfterMS: 1500}
	for _, tt := range []struct {
		name string
		link link
		err  error
		want CloseError
	}{
		{"a fault", link{goodbye: goodbye}, &protocolError{errors.New("bad frame")}, CloseError{Code: 1002, Err: &protocolError{errors.New("bad frame")}}},
		{"the network", link{}, cause, CloseError{Code: 1006, Err: cause}},
		{"a close frame", link{}, websocket.CloseError{Code: 4409, Reason: "stale_connection"}, CloseError{Code: 4409, Reason: "stale_connection"}},
		{"a normal end", link{}, websocket.CloseError{Code: 1000, Reason: "bye"}, CloseError{Code: 1000}},
		{"a goodbye, then the network", link{goodbye: goodbye}, cause, CloseError{Code: 4503, Reason: "runtime_not_ready", RetryAfter: 1500 * time.Millisecond}},
		{"a goodbye and a close frame", link{goodbye: goodbye}, websocket.CloseError{Code: 4408, Reason: "idle"},
			CloseError{Code: 4408, Reason: "idle", RetryAfter: 1500 * time.Millisecond}},
		{"a goodbye and a bare close frame", link{goodbye: goodbye}, websocket.CloseError{Code: 1001}, CloseError{Code: 1001, Reason: "runtime_not_ready", RetryAfter: 1500 * time.Millisecond}},
		{"a refusal", link{refusal: &contracts.Refusal{Code: "access_denied", Message: "no"}}, websocket.CloseError{Code: 4403, Reason: "denied"},
			CloseError{Code: 4403, Reason: "access_denied", Message: "no"}},
	} {
		got := tt.link.closeError(tt.err)
		if got.Err != nil && tt.want.Err != nil && got.Err.Error() == tt.want.Err.Error() {
			tt.want.Err = got.Err
		}
		if *got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, *got, tt.want)
		}
	}
}

func TestCloseErrorSaysAndMatchesWhatIsKnown(t *testing.T) {
	cause := errors.New("cause")
	for want, e := range map[string]*CloseError{
		"connection closed: 1006":                              {Code: 1006},
		"connection closed: 1006: cause":                       {Code: 1006, Err: cause},
		"connection closed: 4403: access_denied: no":           {Code: 4403, Reason: "access_denied", Message: "no"},
		"connection closed: 4403: access_denied":               {Code: 4403, Reason: "access_denied", Message: "access_denied"},
		"connection closed: 4403: access_denied: no: cause":    {Code: 4403, Reason: "access_denied", Message: "no", Err: cause},
		"connection closed: 4401: Unauthorized":                {Code: 4401, Message: "Unauthorized"},
		"cannot connect: cause":                                {Code: 1006, Err: cause, undialed: true},
		"not a Maestro server: status 200":                     {Code: 4400, Status: 200},
		"refused with status 300: Multiple Choices":            {Code: 4400, Status: 300, Message: "Multiple Choices"},
		"connection closed: 4503: runtime_not_ready: draining": {Code: 4503, Reason: "runtime_not_ready", Message: "draining"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		refusal, ok := errors.AsType[*contracts.Error](e)
		if ok != (e.Reason != "") || ok && (refusal.Code != e.Reason || refusal.Message != e.Message) {
			t.Errorf("%s: got refusal %+v, want the reason and message", want, refusal)
		}
		if errors.Is(e, cause) != (e.Err != nil) {
			t.Errorf("%s: got errors.Is %t for the cause", want, e.Err == nil)
		}
	}
}
