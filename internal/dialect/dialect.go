// Package dialect has what the translations between sessions and the clients of other
// protocols have in common. The packages below it are the translations. They do no I/O
// and have no clock and no goroutine; internal/transport/foreign runs them on connections.
package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Translator translates between one client, whose messages are lines of JSON, and
// sessions. Its methods are called one at a time. They must not block. They answer
// through out.
type Translator interface {
	// Begin is called first, before the client's first line is read.
	Begin(out *Out)

	// Line translates a line of the client, without its end. text is valid until Line
	// returns.
	Line(out *Out, text []byte)

	// LongLine is called in place of Line for a line that is longer than the limit.
	LongLine(out *Out)

	// EOF is called when the client will send no more. It may still read.
	EOF(out *Out)

	// Frame translates a frame of the session that was opened last. ev is the event in
	// a *contracts.MessageEnvelope, otherwise nil. Snapshots are encoded; see
	// [contracts.Decoder.Snapshot].
	Frame(out *Out, f contracts.Frame, ev contracts.Event)

	// Detached is called when the session that was opened last could not be opened or
	// sends no more frames.
	Detached(out *Out, err error)

	// Wake is called at the time set by [Out.WakeAt].
	Wake(out *Out)
}

// A Start says which session a client wants. The zero value asks for the server's
// session with its own settings.
type Start struct {
	SessionID     string   // an existing session; empty for the server's choice
	Model         string   // model of the agent; empty for the server's choice
	SystemPrompt  *string  // replaces the agent's system prompt; nil keeps it
	Tools         []string // the only tools that the agent may use, if Limited
	Limited       bool     // Tools is meant; it may be empty
	MaxIterations int      // model calls for one prompt; 0 for the server's choice
}

// An Out collects what a [Translator] decides: lines for the client, frames for the
// session, and when to be called again.
type Out struct {
	// Now is the time of the call.
	Now time.Time

	lines  [][]byte
	frames [][]byte
	wake   time.Time
	start  *Start
	ended  bool
	code   int
}

// Reply sends v to the client, as one line of JSON. It panics if v cannot be encoded.
func (o *Out) Reply(v any) { o.lines = append(o.lines, Encode(v)) }

// Encode returns v as JSON without a line end. Unlike [json.Marshal] it does not
// escape characters for HTML. It panics if v cannot be encoded.
func Encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("dialect: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Do sends a command to the session. The session answers with a *contracts.Result or a
// *contracts.Refusal with the same id, which is not empty and has at most 64 bytes. The
// error of a command that is not valid is returned, and nothing is sent.
func (o *Out) Do(id string, cmd contracts.Command) error {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		return err
	}
	return o.Send(&contracts.Send{ID: id, Message: text})
}

// Send sends a frame to the session.
func (o *Out) Send(f contracts.Frame) error {
	text, err := contracts.EncodeFrame(f)
	if err == nil {
		o.frames = append(o.frames, text)
	}
	return err
}

// Open leaves the present session, if there is one, and opens another one. Frames that
// were sent before to the present session may be lost; frames sent after go to the new
// one, of which the first must be a *contracts.Message with a hello.
func (o *Out) Open(s Start) { o.start, o.frames = &s, nil }

// Hello sends the hello of a controller that answers the given types of questions. The
// session sends it raw agent events too, which say when runs begin and end.
func (o *Out) Hello(name, version string, answers ...contracts.RequestType) error {
	return o.Send(&contracts.Message{Command: &contracts.Hello{
		ProtocolVersion: contracts.ProtocolVersion, Role: contracts.RoleController,
		ClientInfo:   &contracts.ClientInfo{Name: name, Version: version},
		Capabilities: &contracts.Capabilities{ServerRequests: answers, RawAgentEvents: true},
	}})
}

// WakeAt sets when [Translator.Wake] is called, in place of an earlier time. The zero
// time means never.
func (o *Out) WakeAt(at time.Time) { o.wake = at }

// End ends the connection once the client has got all lines. code is the exit code of
// the process if it serves only this client. Nothing is translated after it.
func (o *Out) End(code int) { o.ended, o.code = true, code }

// Take returns what was decided since the last call. The runner of a translator calls
// it after each method.
func (o *Out) Take() (d Decision) {
	d = Decision{Lines: o.lines, Frames: o.frames, Start: o.start, Wake: o.wake, Ended: o.ended, Code: o.code}
	o.lines, o.frames, o.start = nil, nil, nil
	return d
}

// A Decision is what one call of a [Translator] has decided.
type Decision struct {
	Lines  [][]byte  // for the client
	Start  *Start    // the session to open; nil keeps the present one
	Frames [][]byte  // for the session, after it was opened
	Wake   time.Time // when to call Wake; zero: never
	Ended  bool
	Code   int // exit code, if Ended
}
