package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

var (
	// ErrClosed is returned by methods after Close.
	ErrClosed = errors.New("client closed")

	// ErrAnswerLost means that a command was sent and its connection ended before the
	// answer. It cannot be sent again, because it might be executed twice.
	ErrAnswerLost = errors.New("connection lost before the answer; it may have been executed")

	// ErrNotConnected means that there is no connection to send a frame that is never
	// repeated.
	ErrNotConnected = errors.New("not connected")

	errSilent = errors.New("the server has been silent for three heartbeats")
)

// Close codes that the client sets in a CloseError.
const (
	codeNormal   = 1000
	codeProtocol = 1002 // the server broke the protocol
	codeLost     = 1006 // the connection ended without a code
)

// A CloseError says how a connection ended, or why none was made. If the server
// refused, errors.Is also matches a *contracts.Error of the same code.
//
// The client reconnects by itself after 1001, 1005, 1006, 1011, 1012, 1013, 4408, 4429 and
// 4503, and if the server no longer knows the connection (stale_connection or
// stale_subscription). After 4404 it attaches once more, without its old position. All other
// codes are final, such as 4401 and 4403 when the server ended the rights of the user: Next
// returns the error, and the caller needs another Dial. A failed Dial is not repeated.
type CloseError struct {
	Code       int            // the close code (9.5); 1006 if the network failed
	Reason     contracts.Code // the server's code; empty if it sent none
	Message    string         // the server's message
	Status     int            // the HTTP status that refused the upgrade; 0 if none did
	RetryAfter time.Duration  // do not retry earlier; zero if the server did not say
	Err        error          // the cause, if the server did not end the connection

	undialed bool // no connection was made
}

// Error implements error.
func (e *CloseError) Error() string {
	text := fmt.Sprintf("connection closed: %d", e.Code)
	switch {
	case e.undialed:
		text = "cannot connect"
	case e.Status >= 200 && e.Status < 300:
		text = fmt.Sprintf("not a Maestro server: status %d", e.Status)
	case e.Status != 0:
		text = fmt.Sprintf("refused with status %d", e.Status)
	}
	for _, part := range []string{string(e.Reason), e.Message} {
		if part != "" && !strings.HasSuffix(text, part) {
			text += ": " + part
		}
	}
	if e.Err != nil && !e.refusalInErr() {
		text += ": " + e.Err.Error()
	}
	return text
}

// refusalInErr reports whether Err is what Reason and Message say, with metadata.
func (e *CloseError) refusalInErr() bool {
	_, ok := e.Err.(*contracts.Error)
	return ok
}

// temporary reports whether another attempt may succeed.
func (e *CloseError) temporary() bool {
	return slices.Contains([]int{1001, 1005, codeLost, 1011, 1012, 1013, 4408, 4429, 4503}, e.Code)
}

// Unwrap returns the refusal and the cause.
func (e *CloseError) Unwrap() []error {
	var errs []error
	if e.Reason != "" && !e.refusalInErr() {
		errs = append(errs, &contracts.Error{Code: e.Reason, Message: e.Message})
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// closeError describes the end of a link. err is the error of its read.
func (l *link) closeError(err error) *CloseError {
	if _, ok := errors.AsType[*protocolError](err); ok {
		return &CloseError{Code: codeProtocol, Err: err}
	}
	e := &CloseError{Code: codeLost}
	frame, closed := errors.AsType[websocket.CloseError](err)
	switch {
	case closed:
		e.Code, e.Reason = int(frame.Code), contracts.Code(frame.Reason)
	case l.goodbye == nil:
		e.Err = err
	}
	if g := l.goodbye; g != nil {
		if !closed {
			e.Code = int(g.Code)
		}
		e.Reason = cmp.Or(e.Reason, contracts.Code(g.Reason))
		e.RetryAfter = time.Duration(g.RetryAfterMS) * time.Millisecond
	}
	if r := l.refusal; r != nil {
		e.Reason, e.Message = r.Code, r.Message
	}
	if e.Code == codeNormal {
		e.Reason = "" // not a refusal
	}
	return e
}

// maxErrorBody bounds the bytes read from an HTTP refusal.
const maxErrorBody = 16 << 10

// upgradeError describes a failed upgrade. res is nil if there was no HTTP
// response.
func upgradeError(err error, res *http.Response) *CloseError {
	if e, ok := errors.AsType[*CloseError](err); ok {
		return e
	}
	if res == nil {
		return &CloseError{Code: codeLost, Err: err, undialed: true}
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return cmp.Or(wrongProtocol(res.Header.Get("Sec-WebSocket-Protocol")), &CloseError{Code: codeLost, Err: err})
	}
	e, _ := refusedRequest(res)
	if e.Status < 300 && res.Request != nil {
		u := *res.Request.URL
		u.RawQuery, u.User = "", nil // they may contain a ticket or a password
		e.Message = "from " + u.String()
	}
	return e
}

// refusedRequest describes a refusal. refused has its metadata; it is nil if the server
// gave no code.
func refusedRequest(res *http.Response) (e *CloseError, refused *contracts.Error) {
	var body struct {
		Error   string                  `json:"error"`
		Code    contracts.Code          `json:"code"`
		Details []contracts.ErrorDetail `json:"details"`
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // with a partial body only the message is lost
	e = &CloseError{Status: res.StatusCode, Message: http.StatusText(res.StatusCode)}
	if json.Unmarshal(text, &body) == nil && body.Code != "" {
		e.Reason, e.Message = body.Code, body.Error
		refused = refusal(&contracts.Refusal{Code: body.Code, Message: body.Error, Details: body.Details})
	}
	e.Code = statusCode(e.Status, e.Reason)
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e, refused
}

// wrongProtocol returns an error if the server chose another subprotocol.
func wrongProtocol(chosen string) *CloseError {
	if chosen == contracts.Subprotocol {
		return nil
	}
	return &CloseError{Code: 4426, Message: fmt.Sprintf("the server chose subprotocol %q, want %q", chosen, contracts.Subprotocol)}
}

// statusCode returns the close code that an HTTP refusal corresponds to.
func statusCode(status int, code contracts.Code) int {
	if own := code.CloseCode(); code != "" && own != 1011 {
		return own
	}
	if slices.Contains([]int{401, 403, 404, 408, 409, 426, 429, 503}, status) {
		return 4000 + status
	}
	if status >= 500 {
		return 1011
	}
	return 4400
}
