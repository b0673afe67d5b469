package rpc

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Codes of errors that JSON-RPC itself has.
const (
	CodeParse   = -32700 // the line is no JSON
	CodeInvalid = -32600 // it is no message
)

// An Error is an error that one side answers with.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// maxError bounds the text of an error, in bytes.
const maxError = 1 << 10

// Error returns what the peer says, with its details if it gives any in words, as
// far as they fit in a kilobyte.
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

// problem decodes the error of an answer, nil if it has none. What has the wrong
// type in it is left out.
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

// A BadLine is a line of the peer that is no message, or one that was not kept.
type BadLine struct {
	Text string

	// Head is how the line begins, at most 80 bytes of it.
	Head string

	// Code is that of the error to answer the line with, zero if it wants none: an
	// answer to an error might be answered with another.
	Code int

	// ID is the request that the line is, nil if it is none or that is not known.
	ID json.RawMessage

	// Lost says that the line was too long, and that nothing is known of it: whoever
	// waits may wait for it.
	Lost bool
}

// Error returns what is wrong with the line.
func (b *BadLine) Error() string { return b.Text }
