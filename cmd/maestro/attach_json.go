package main

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A jsonUpdate is one line of --json.
type jsonUpdate struct {
	Kind     client.Kind           `json:"kind"`
	Cursor   uint64                `json:"cursor"`
	Epoch    string                `json:"epoch,omitempty"`
	Replayed bool                  `json:"replayed,omitempty"`
	Message  json.RawMessage       `json:"message,omitempty"`
	Reason   contracts.ResetReason `json:"reason,omitempty"`
	Snapshot json.RawMessage       `json:"snapshot,omitempty"`
	Control  json.RawMessage       `json:"control,omitempty"`
	Error    string                `json:"error,omitempty"`
	RetryMS  int64                 `json:"retry_ms,omitempty"`
}

// writeJSON writes an update as one line, without the secret of the connection.
func writeJSON(w io.Writer, u client.Update) error {
	line := jsonUpdate{
		Kind: u.Kind, Cursor: u.Cursor, Epoch: u.Epoch, Replayed: u.Replayed,
		Reason: u.Reason, RetryMS: u.Retry.Milliseconds(),
	}
	switch u.Kind {
	case client.KindEvent, client.KindUnknown:
		line.Message = u.Body
	case client.KindSnapshot, client.KindReset:
		line.Snapshot = u.Body
	}
	if u.Err != nil {
		line.Error = u.Err.Error()
	}
	frame := u.Control
	if u.Attached != nil {
		public := *u.Attached
		public.ConnectionToken = ""
		frame = &public
	}
	if frame != nil {
		text, err := contracts.EncodeFrame(frame)
		if err != nil {
			return err
		}
		line.Control = text
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, harmless(string(text))+"\n")
	return err
}

// harmless escapes the characters in JSON strings that a terminal acts on. The values
// stay the same.
func harmless(text string) string {
	hostile := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
	return show.Replaced(text, hostile, func(r rune) string { return fmt.Sprintf(`\u%04x`, r) })
}
