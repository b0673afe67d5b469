package contracts

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
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
	message, err := d.message(text, false, commands)
	command, _ := message.(Command)
	return command, err
}

// ClientFrame decodes a networked client's frame: a [*Message] with a bare command,
// or a ws.* control frame.
func (d *Decoder) ClientFrame(text []byte) (Frame, error) {
	message, err := d.message(text, false, clientFrames)
	if command, ok := message.(Command); ok {
		return &Message{Command: command}, nil
	}
	frame, _ := message.(Frame)
	return frame, err
}

// Event decodes a server's message for a client: it ignores unknown fields, and
// lenient fields may be absent. The error for an unknown type wraps
// [ErrUnknownType].
func (d *Decoder) Event(text []byte) (Event, error) {
	message, err := d.message(text, true, events)
	event, _ := message.(Event)
	return event, err
}

// ServerFrame decodes an envelope or a server's ws.* control frame for a client. It
// only checks that the body of an envelope is JSON, and leaves it encoded.
func (d *Decoder) ServerFrame(text []byte) (Frame, error) {
	message, err := d.message(text, true, serverFrames)
	frame, _ := message.(Frame)
	return frame, err
}

// Snapshot decodes the body of a snapshot or reset envelope for a client.
func (d *Decoder) Snapshot(text []byte) (*Snapshot, error) {
	snapshot := new(Snapshot)
	if err := d.object(snapshotType, text, true, snapshot, messageTexts); err != nil {
		return nil, err
	}
	return snapshot, nil
}

// Body decodes the JSON of a request or response into a pointer to one of the body
// types, such as [AttachRequest]. It panics for other types.
func (d *Decoder) Body(text []byte, into any) error {
	t := byGoType[reflect.TypeOf(into).Elem()]
	if t == nil || t.Wire != "" {
		panic(fmt.Sprintf("contracts: %T is not a body", into))
	}
	return d.object(t, text, false, into, bodyTexts)
}

// object decodes a text that is one object into a pointer to the Go type of t.
func (d *Decoder) object(t *Type, text []byte, fromServer bool, into any, say *texts) error {
	var r reader
	r.begin(d, text, fromServer)
	r.value(&Value{Kind: KindObject, Object: t}, reflect.ValueOf(into).Elem())
	r.end()
	return r.refusal(say)
}

// message decodes a text that is one message of a family. It returns nil or a pointer
// to the message.
func (d *Decoder) message(text []byte, fromServer bool, f *family) (any, error) {
	var r reader
	r.begin(d, text, fromServer)
	r.header()
	t := f.byWire[string(r.wire)]
	switch {
	case r.err != nil:
		return nil, r.refusal(f.texts)
	case r.wire == nil:
		return nil, r.refuse(f.texts.parse+f.texts.invalid+f.texts.typeless, nil)
	case t == nil:
		r.skipMembers()
		if r.end(); r.err != nil {
			return nil, r.refusal(f.texts)
		}
		return nil, r.refuse(f.texts.parse+f.texts.unknown, ErrUnknownType)
	}
	message := reflect.New(t.goType)
	r.members(t, message.Elem(), r.inline)
	r.end()
	if err := r.refusal(f.texts); err != nil {
		return nil, err
	}
	return message.Interface(), nil
}

// refusal returns the error for a syntax error or for the violations, or nil.
func (r *reader) refusal(say *texts) error {
	switch {
	case r.err != nil:
		return r.refuse(say.parse+r.err.Error(), ErrMalformed)
	case len(r.violations) > 0:
		return r.refuse(say.parse+say.invalid+strings.Join(r.violations, "; "), nil)
	}
	return nil
}

func (r *reader) refuse(message string, cause error) error {
	return &Error{Code: CodeBadRequest, Type: ErrorProtocol, Message: message, RequestID: requestID(r.text), cause: cause}
}

// idKeys lists the keys that may hold a request's id, by precedence.
var idKeys = []string{"request_id", "call_id", "read_id", "search_id", "watch_id", "command_id", "id"}

// requestID returns the id in a refused text, or "". The text may be anything.
func requestID(text []byte) string {
	s := scanner{text: text, limit: MaxDepth}
	if s.space(); s.peek() != '{' {
		return ""
	}
	s.open()
	id, rank := "", len(idKeys)
	for key, ok := s.key(); ok; key, ok = s.key() {
		i := slices.Index(idKeys[:rank], string(key))
		if i < 0 || s.peek() != '"' {
			s.skip()
		} else if content := s.str(); s.err == nil && len(content) <= MaxIDBytes {
			id, rank = string(content), i
		}
	}
	return id
}
