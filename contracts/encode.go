package contracts

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Encoded is an event's JSON, made once and shared by every client: nothing
// may change Body.
type Encoded struct {
	Body []byte

	// Body[TextStart:TextEnd] is the content of a response_chunk, tool_output or
	// utility_command_output as it stands between the quotes; both are 0 for
	// other types. Bodies whose bytes before TextStart and after TextEnd are
	// equal may be merged by joining their spans.
	TextStart, TextEnd int
}

// EncodeEvent encodes an event, with its type first. The result is one line:
// it has no raw newline, not even one that only JavaScript takes for one.
// Text that is not UTF-8 is repaired, and values longer than MaxValueBytes are
// replaced by a marker object.
//
// The error for an event that no schema allows (R15) is an [*Error] with code
// internal_error whose message can be shown to clients instead (R16).
func EncodeEvent(e Event) (Encoded, error) { return EncodeEventInto(nil, e) }

// EncodeEventInto is EncodeEvent with a buffer to write Body into, whose contents
// are lost. If it is too small, Body is elsewhere.
func EncodeEventInto(buf []byte, e Event) (Encoded, error) {
	encoded, err := encode(buf, e)
	if err != nil {
		return Encoded{}, failure(CodeInternal, "Failed to emit headless message: ", err)
	}
	return encoded, nil
}

// ValidateEvent returns the error EncodeEvent would return.
func ValidateEvent(e Event) error {
	_, err := EncodeEvent(e)
	return err
}

// EncodeSnapshot encodes a snapshot, with the same care and the same errors as
// [EncodeEvent].
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	encoded, err := encode(make([]byte, 0, roughSize(s)), s)
	if err != nil {
		return nil, failure(CodeInternal, "Failed to emit headless snapshot: ", err)
	}
	if cap(encoded.Body)-len(encoded.Body) > spare {
		return bytes.Clone(encoded.Body), nil // clients may keep it in memory for a while
	}
	return encoded.Body, nil
}

// spare is how much larger than a snapshot its buffer may be.
const spare = 64 << 10

// roughSize estimates how long a snapshot is, so that its buffer hardly grows.
func roughSize(s *Snapshot) int {
	const (
		few    = 2 << 10 // most of the state
		person = 320     // a connection with a name
		lists  = 3       // that a question is in
	)
	if s == nil {
		return few
	}
	size := few + person*len(s.State.Connections)
	if r := s.State.CurrentResponse; r != nil {
		size += len(r.Text) + len(r.Thinking)
	}
	for _, r := range s.State.PendingRequests {
		size += lists * (few/4 + len(r.Args))
	}
	for _, t := range s.State.ActiveTools {
		size += len(t.Output)
	}
	return size
}

// EncodeCommand encodes a client's message. It refuses what a server would
// refuse, with an [*Error] of code bad_request.
func EncodeCommand(c Command) ([]byte, error) {
	encoded, err := encode(nil, c)
	if err != nil {
		return nil, failure(CodeBadRequest, "Failed to encode command: ", err)
	}
	return encoded.Body, nil
}

// EncodeFrame encodes an envelope or control frame of either side; of a
// [*Message] it encodes the command. Bodies inside are checked to be JSON and
// made compact. The error is an [*Error] of code bad_request.
func EncodeFrame(f Frame) ([]byte, error) {
	if m, ok := f.(*Message); ok && m != nil {
		return EncodeCommand(m.Command)
	}
	encoded, err := encode(nil, f)
	if err != nil {
		return nil, failure(CodeBadRequest, "Failed to encode frame: ", err)
	}
	return encoded.Body, nil
}

func failure(code Code, doing string, err error) *Error {
	return &Error{Code: code, Type: ErrorProtocol, Message: doing + err.Error()}
}

// encode writes a message whose Go type has a plan, into buf if that is large
// enough.
func encode(buf []byte, message any) (Encoded, error) {
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Encoded{}, fmt.Errorf("$ Expected a message, not %T", message)
	}
	p := plansByType[v.Type().Elem()]
	if p == nil {
		return Encoded{}, fmt.Errorf("$ Expected a known message, not %T", message)
	}
	if cap(buf) == 0 {
		buf = make([]byte, 0, 256)
	}
	w := writer{buf: buf[:0]}
	w.object(p, v.Elem())
	if len(w.violations) > 0 {
		return Encoded{}, errors.New(strings.Join(w.violations, "; "))
	}
	return Encoded{Body: w.buf, TextStart: w.start, TextEnd: w.end}, nil
}
