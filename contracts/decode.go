package contracts

import (
	"errors"
	"reflect"
	"strings"
)

// A Decoder reads JSON texts from the wire. Its zero value is tolerant of
// additions as D13 rules. It is safe for concurrent use if Unknown is.
//
// Every error is an [*Error] with code bad_request and type protocol. Its
// RequestID is the id the text gave itself, if one can be told. What a decoder
// returns does not share memory with the text.
type Decoder struct {
	// Strict also refuses unknown keys, and null in optional fields. What a
	// server sends must then be complete, too.
	Strict bool
	// Unknown, if set, is told the JSON pointer of each ignored key while the
	// text is read, which may turn out to be refused. Long keys are cut.
	Unknown func(pointer string)
}

// ErrUnknownType is wrapped by the error for a message or frame of a type that
// this version does not know. A client skips such a message and goes on.
var ErrUnknownType = errors.New("unknown message type")

// ErrMalformed is wrapped by the error for a text that is not one JSON value.
var ErrMalformed = errors.New("malformed text")

// Command decodes a bare client message. The texts of its errors are those
// that clients match on (R5-R9).
func (d *Decoder) Command(text []byte) (Command, error) {
	r := newReader(d, text, false)
	wire, inline, err := r.header()
	return decode(&r, commands, wire, inline, err)
}

// ClientFrame decodes a networked client's frame: a [*Message] holding a bare
// command, or a ws.* control frame.
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

// Event decodes a server's message as a client should: unknown fields are
// ignored, and fields that old servers leave out may be absent. The error for
// an unknown type wraps [ErrUnknownType].
func (d *Decoder) Event(text []byte) (Event, error) {
	r := newReader(d, text, true)
	wire, inline, err := r.header()
	return decode(&r, events, wire, inline, err)
}

// ServerFrame decodes an envelope or a server's ws.* control frame as a client
// should. The body of an envelope stays encoded: it is checked to be JSON and
// no more.
func (d *Decoder) ServerFrame(text []byte) (Frame, error) {
	r := newReader(d, text, true)
	wire, inline, err := r.header()
	return decode(&r, serverFrames, wire, inline, err)
}

// Snapshot decodes the body of a snapshot or reset envelope as a client should.
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

// refusal returns the error for what is wrong with the text, nil if nothing is.
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

// unknownType refuses a type; a text that is not JSON is refused as such.
func (r *reader) unknownType(t *texts, inline bool) error {
	if err := r.leave(!inline); err != nil {
		return r.refusal(t, err)
	}
	refusal := r.refuse(t.parse + t.unknown)
	refusal.cause = ErrUnknownType
	return refusal
}

// idKeys name requests, the most telling first.
var idKeys = []string{"request_id", "call_id", "read_id", "search_id", "watch_id", "command_id", "id"}

// requestID returns the id that a refused text gives itself, or "". The text
// may be anything.
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

// rankOf returns the place of key among the first rank idKeys, else rank.
func rankOf(key []byte, rank int) int {
	for i, k := range idKeys[:rank] {
		if k == string(key) {
			return i
		}
	}
	return rank
}
