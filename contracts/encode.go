package contracts

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Encoded is an event's JSON. Clients share Body; do not change it.
type Encoded struct {
	Body []byte

	// Body[TextStart:TextEnd] is the content of a response_chunk, tool_output or
	// utility_command_output, without the quotes; both are 0 for other types.
	// Bodies with equal bytes before TextStart and after TextEnd may be merged by
	// joining their spans.
	TextStart, TextEnd int
}

// EncodeEvent encodes an event, with its type first. The result is one line: it has
// no raw newline, U+2028 or U+2029. Text that is not UTF-8 is repaired. Values
// longer than MaxValueBytes are replaced by a marker object.
//
// The error for an event that the schema does not allow (R15) is an [*Error] with
// code internal_error. Its message can be shown to clients instead of the event
// (R16).
func EncodeEvent(e Event) (Encoded, error) { return EncodeEventInto(nil, e) }

// EncodeEventInto is EncodeEvent with a buffer for Body, whose contents are
// overwritten. If the buffer is too small, Body is allocated.
func EncodeEventInto(buf []byte, e Event) (Encoded, error) {
	return encode(buf, e, CodeInternal, "Failed to emit headless message: ")
}

// ValidateEvent returns the error EncodeEvent would return.
func ValidateEvent(e Event) error {
	_, err := EncodeEvent(e)
	return err
}

// EncodeSnapshot encodes a snapshot under the rules of [EncodeEvent]. size is how many
// bytes it is expected to take, or zero: a large snapshot is then not copied while it
// grows.
func EncodeSnapshot(s *Snapshot, size int) ([]byte, error) {
	pooled := snapshotBuffers.Get().(*[]byte)
	defer snapshotBuffers.Put(pooled)
	buf := *pooled
	if size > maxPooled {
		buf = make([]byte, 0, size+size/16)
	}
	encoded, err := encode(buf, s, CodeInternal, "Failed to emit headless snapshot: ")
	if err != nil {
		return nil, err
	}
	if cap(encoded.Body) <= maxPooled {
		*pooled = encoded.Body
	} else if cap(encoded.Body)-len(encoded.Body) <= len(encoded.Body)/8 {
		return encoded.Body, nil
	}
	return bytes.Clone(encoded.Body), nil // without spare memory: the snapshot may stay for a while
}

// snapshotBuffers holds buffers of at most maxPooled bytes in which snapshots are encoded
// before they are copied.
var snapshotBuffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 256 << 10

// EncodeCommand encodes a client's message. A command that a server would refuse
// returns an [*Error] with code bad_request.
func EncodeCommand(c Command) ([]byte, error) {
	encoded, err := encode(nil, c, CodeBadRequest, "Failed to encode command: ")
	return encoded.Body, err
}

// EncodeFrame encodes an envelope or control frame of either side, or the command
// of a [*Message]. Bodies inside are checked to be JSON and made compact. The error
// is an [*Error] with code bad_request.
func EncodeFrame(f Frame) ([]byte, error) {
	if m, ok := f.(*Message); ok && m != nil {
		return EncodeCommand(m.Command)
	}
	encoded, err := encode(nil, f, CodeBadRequest, "Failed to encode frame: ")
	return encoded.Body, err
}

// EncodeBody encodes a pointer to one of the body types under the rules of
// [EncodeEvent].
func EncodeBody(body any) ([]byte, error) {
	encoded, err := encode(nil, body, CodeInternal, "Failed to encode body: ")
	return encoded.Body, err
}

// encode writes a message of a known type, into buf if it is large enough. The error
// has the code, and says first what was being done.
func encode(buf []byte, message any, code Code, doing string) (Encoded, error) {
	fault := func(text string) (Encoded, error) {
		return Encoded{}, &Error{Code: code, Type: ErrorProtocol, Message: doing + text}
	}
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fault(fmt.Sprintf("$ Expected a message, not %T", message))
	}
	t := byGoType[v.Type().Elem()]
	if t == nil {
		return fault(fmt.Sprintf("$ Expected a known message, not %T", message))
	}
	if cap(buf) == 0 {
		buf = make([]byte, 0, 256)
	}
	w := writer{buf: buf[:0]}
	w.object(t, v.Elem())
	if len(w.violations) > 0 {
		return fault(strings.Join(w.violations, "; "))
	}
	return Encoded{Body: w.buf, TextStart: w.start, TextEnd: w.end}, nil
}
