package rpc

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Error codes of JSON-RPC itself.
const (
	CodeParse   = -32700 // the line is not JSON
	CodeInvalid = -32600 // the JSON is not a message
)

// An Error is an error answer of either side.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// maxError bounds the text of an error, in bytes.
const maxError = 1 << 10

// Error returns the peer's text, with its details if they are text, at most 1
// KiB.
func (e *Error) Error() string {
	text, details := cmp.Or(e.Message, "error "+strconv.Itoa(e.Code)), ""
	switch data := e.Data.(type) {
	case string:
		details = data
	case map[string]any:
		for _, key := range []string{"details", "message", "error"} {
			if s, ok := data[key].(string); ok && details == "" {
				details = s
			}
		}
	}
	if details != "" && details != text {
		text += ": " + details
	}
	return abridge.Bytes(text, maxError)
}

// problem decodes the error of an answer, nil if it has none. Members of a
// wrong type are ignored.
func problem(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	e := &Error{}
	if json.Unmarshal(raw, e) != nil && e.Message == "" {
		e.Message = "an error that cannot be read"
	}
	return e
}

// A BadLine is a line of the peer that is not a message, or one that was not
// kept.
type BadLine struct {
	Text string

	// Head is the beginning of the line, at most 80 bytes.
	Head string

	// Code is the code of the error to answer the line with. Zero means no
	// answer, because an answer to an error might be answered with another.
	Code int

	// ID is the id of the request in the line, nil if it is no request or
	// unknown.
	ID json.RawMessage

	// Lost says that the line was too long and nothing is known of it: it may be
	// the answer to any waiting call.
	Lost bool
}

// Error returns the fault of the line.
func (b *BadLine) Error() string { return b.Text }
