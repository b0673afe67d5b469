package contracts

import (
	"errors"
	"reflect"
	"strings"
)

// A Decoder reads JSON texts from the wire. Its zero value accepts additions as D13
// requires. It is safe for concurrent use if Unknown is.
//
// Every error is an [*Error] with code bad_request and type protocol. Its RequestID
// is the id in the text, if there is one. Results share no memory with the text.
type Decoder struct {
	// Strict also refuses unknown keys, and null in optional fields. It also
	// refuses server messages without their lenient fields.
	Strict bool
	// Unknown, if set, is called with the JSON pointer of each ignored key while
	// the text is read. The text may still be refused afterwards. Long keys are
	// cut.
	Unknown func(pointer string)
}

// ErrUnknownType is wrapped by the error for a message or frame of an unknown type.
// A client should skip such a message.
var ErrUnknownType = errors.New("unknown message type")

// ErrMalformed is wrapped by the error for a text that is not one JSON value.
var ErrMalformed = errors.New("malformed text")

// Command decodes a bare client message. Clients match on the texts of its errors
// (R5-R9).
func (d *Decoder) Command(text []byte) (Command, error) {
	r := newReader(d, text, false)
	wire, inline, err := r.header()
	return decode(&r, commands, wire, inline, err)
}

// ClientFrame decodes a networked client's frame: a [*Message] with a bare command,
// or a ws.* control frame.
func (d *Decoder) ClientFrame(text []byte) (Frame, error) {
	r := newReader(d, text, false)
	wire, inline, err := r.header()
	if strings.HasPrefix(string(wire), "ws.") {
		return decode(&r, clientControls, wire, inline, err)
	}
	command, err := decode(&r, commands, wire, inline, err)
	if err != nil {
		return nil, err
	}
	return &Message{Command: command}, nil
}

// Event decodes a server's message for a client: it ignores unknown fields, and
// lenient fields may be absent. The error for an unknown type wraps
// [ErrUnknownType].
func (d *Decoder) Event(text []byte) (Event, error) {
	r := newReader(d, text, true)
	wire, inline, err := r.header()
	return decode(&r, events, wire, inline, err)
}

// ServerFrame decodes an envelope or a server's ws.* control frame for a client. It
// only checks that the body of an envelope is JSON, and leaves it encoded.
func (d *Decoder) ServerFrame(text []byte) (Frame, error) {
	r := newReader(d, text, true)
	wire, inline, err := r.header()
	return decode(&r, serverFrames, wire, inline, err)
}

// Snapshot decodes the body of a snapshot or reset envelope for a client.
func (d *Decoder) Snapshot(text []byte) (*Snapshot, error) {
	r := newReader(d, text, true)
	snapshot := new(Snapshot)
	err := r.begin()
	if err == nil {
		err = r.value(&shape{kind: kindObject, object: snapshotPlan}, reflect.ValueOf(snapshot).Elem())
	}
	if err == nil {
		err = r.end()
	}
	if err := r.refusal(messageTexts, err); err != nil {
		return nil, err
	}
	return snapshot, nil
}

// decode reads the members of a message whose header has been read.
func decode[T any](r *reader, f family[T], wire []byte, inline bool, err error) (T, error) {
	var none T
	if err != nil {
		return none, r.refusal(f.texts, err)
	}
	if wire == nil {
		return none, r.refuse(f.texts.parse + f.texts.invalid + f.texts.typeless)
	}
	m, known := f.members[string(wire)]
	if !known {
		return none, r.unknownType(f.texts, inline)
	}
	message := m.make()
	var seen uint64
	if inline {
		seen = 1
	}
	err = r.members(m.plan, reflect.ValueOf(message).Elem(), seen)
	if err == nil {
		err = r.end()
	}
	if err := r.refusal(f.texts, err); err != nil {
		return none, err
	}
	return message, nil
}

// refusal returns the error for err or for the violations, or nil.
func (r *reader) refusal(t *texts, err error) error {
	switch {
	case err != nil:
		refusal := r.refuse(t.parse + err.Error())
		refusal.cause = ErrMalformed
		return refusal
	case len(r.violations) > 0:
		return r.refuse(t.parse + t.invalid + strings.Join(r.violations, "; "))
	}
	return nil
}

func (r *reader) refuse(message string) *Error {
	return &Error{Code: CodeBadRequest, Type: ErrorProtocol, Message: message, RequestID: requestID(r.text)}
}

// unknownType refuses a text of unknown type. If the rest of the text is not JSON,
// it returns that error instead.
func (r *reader) unknownType(t *texts, inline bool) error {
	if err := r.skipMembers(!inline); err != nil {
		return r.refusal(t, err)
	}
	refusal := r.refuse(t.parse + t.unknown)
	refusal.cause = ErrUnknownType
	return refusal
}

// idKeys lists the keys that may hold a request's id, by precedence.
var idKeys = []string{"request_id", "call_id", "read_id", "search_id", "watch_id", "command_id", "id"}

// requestID returns the id in a refused text, or "". The text may be anything.
func requestID(text []byte) string {
	s := scanner{text: text, limit: MaxDepth}
	s.space()
	if s.peek() != '{' || s.open() != nil {
		return ""
	}
	id, rank := "", len(idKeys)
	for first := true; ; first = false {
		if more, err := s.more('}', first); err != nil || !more {
			return id
		}
		key, err := s.key()
		if err != nil {
			return id
		}
		r := rankOf(key, rank)
		if r == rank || s.peek() != '"' {
			err = s.skip()
		} else {
			var content []byte
			if content, err = s.str(); err == nil && len(content) <= MaxIDBytes {
				id, rank = string(content), r
			}
		}
		if err != nil {
			return id
		}
	}
}

// rankOf returns the index of key among the first rank idKeys, or rank.
func rankOf(key []byte, rank int) int {
	for i, k := range idKeys[:rank] {
		if k == string(key) {
			return i
		}
	}
	return rank
}
