package contracts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// A reader decodes one text in one pass, following a plan. Its methods return only
// syntax errors, which end the reading. Anything else that is wrong is recorded as
// a violation, so that one error can name several.
type reader struct {
	scanner
	location
	strict  bool // unknown keys, and null in optional fields, are violations
	lenient bool // fields tagged lenient may be absent
	unknown func(pointer string)
}

func newReader(d *Decoder, text []byte, fromServer bool) reader {
	return reader{
		scanner: scanner{text: text, limit: MaxDepth},
		strict:  d.Strict,
		lenient: fromServer && !d.Strict,
		unknown: d.Unknown,
	}
}

// begin checks the encoding and skips white space.
func (r *reader) begin() error {
	if !utf8.Valid(r.text) {
		return &syntaxError{what: "invalid UTF-8", offset: invalidUTF8(r.text)}
	}
	r.space()
	return nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8.
func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

// header enters a message and returns its type, or nil if it has none. If type is
// the first member, as usual, header has read it and inline is true. Otherwise the
// next read is the first member. The type is valid until the next string is read.
func (r *reader) header() (wire []byte, inline bool, err error) {
	if err := r.begin(); err != nil {
		return nil, false, err
	}
	if r.peek() != '{' {
		return nil, false, r.skipValue()
	}
	start := r.pos
	if err := r.open(); err != nil {
		return nil, false, err
	}
	if more, err := r.more('}', true); err == nil && more {
		if key, err := r.key(); err == nil && string(key) == "type" && r.peek() == '"' {
			wire, err := r.str()
			return wire, true, err
		}
	}
	r.pos, r.depth = start, 0
	wire, err = r.findType()
	r.pos, r.depth = start+1, 1
	return wire, false, err
}

// skipValue skips the whole value and checks that nothing follows.
func (r *reader) skipValue() error {
	if err := r.skip(); err != nil {
		return err
	}
	return r.end()
}

// findType skips a whole message and returns its type.
func (r *reader) findType() (wire []byte, err error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	found := false
	for first := true; ; first = false {
		more, err := r.more('}', first)
		if err != nil {
			return nil, err
		}
		if !more {
			return wire, r.end()
		}
		key, err := r.key()
		if err != nil {
			return nil, err
		}
		if string(key) != "type" || found || r.peek() != '"' {
			found = found || string(key) == "type"
			err = r.skip()
		} else {
			found = true
			wire, err = r.str()
			wire = bytes.Clone(wire)
		}
		if err != nil {
			return nil, err
		}
	}
}

// skipMembers skips the remaining members of the message.
func (r *reader) skipMembers(first bool) error {
	for ; ; first = false {
		more, err := r.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			return r.end()
		}
		if _, err := r.key(); err != nil {
			return err
		}
		if err := r.skip(); err != nil {
			return err
		}
	}
}

// members reads the members of an object into v, up to and including its end. Bit i
// of seen means that p.fields[i] has been read.
func (r *reader) members(p *plan, v reflect.Value, seen uint64) error {
	var others map[string]bool // unknown keys so far
	hint := bits.Len64(seen)
	for first := seen == 0; ; first = false {
		more, err := r.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := r.key()
		if err != nil {
			return err
		}
		i := p.find(key, hint)
		switch {
		case i < 0:
			others = r.unknownKey(key, others)
			err = r.skip()
		case seen&(1<<i) != 0:
			r.violateAt(p.fields[i].name, "Duplicate property")
			err = r.skip()
		default:
			seen |= 1 << i
			hint = i + 1
			r.pushName(p.fields[i].name)
			err = r.member(&p.fields[i], v)
			r.pop()
		}
		if err != nil {
			return err
		}
	}
	r.absent(p, v, p.required&^seen)
	return nil
}

// unknownKey handles a key that is not in the plan. It does not check a server's
// unknown keys for duplicates.
func (r *reader) unknownKey(key []byte, others map[string]bool) map[string]bool {
	if r.lenient {
		r.ignore(string(key))
		return nil
	}
	if others[string(key)] {
		r.violateAt(string(key), "Duplicate property")
		return others
	}
	if others == nil {
		others = make(map[string]bool)
	}
	others[string(key)] = true
	if r.strict {
		r.violateAt(string(key), "Unexpected property")
	} else {
		r.ignore(string(key))
	}
	return others
}

func (r *reader) ignore(key string) {
	if r.unknown != nil {
		r.unknown(r.pointerTo(key))
	}
}

// absent records a violation for each missing required field, and gives missing
// lenient fields of a server their empty value.
func (r *reader) absent(p *plan, v reflect.Value, missing uint64) {
	for ; missing != 0; missing &= missing - 1 {
		i := bits.TrailingZeros64(missing)
		f := &p.fields[i]
		if r.lenient && f.lenient {
			f.clear(v.Field(f.index))
		} else {
			r.violateAt(f.name, "Required property")
		}
	}
}

// clear sets v to the value of a missing lenient field. Lists become empty, not
// nil, so that encoding v gives the same JSON.
func (s *shape) clear(v reflect.Value) {
	v.SetZero()
	switch {
	case s.pointer:
	case s.kind == kindList:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case s.kind == kindObject:
		for i := range s.object.fields {
			f := &s.object.fields[i]
			if !f.optional {
				f.clear(v.Field(f.index))
			}
		}
	}
}

// member reads one field of the object v.
func (r *reader) member(f *field, v reflect.Value) error {
	if f.kind == kindType {
		return r.skip() // read by header
	}
	v = v.Field(f.index)
	if r.peek() == 'n' && (f.kind != kindRaw || f.nullable) {
		return r.null(f, v)
	}
	if err := r.value(&f.shape, v); err != nil {
		return err
	}
	if f.keepsEmpty && v.IsNil() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	return nil
}

// null reads a null. Where the plan does not allow null, it counts as absent unless
// the reader is strict (D13).
func (r *reader) null(f *field, v reflect.Value) error {
	if err := r.word("null"); err != nil {
		return err
	}
	switch {
	case f.kind == kindNullString:
		setNullString(v, Null())
	case f.nullable, f.optional && !r.strict:
	case f.lenient && r.lenient:
		f.clear(v)
	default:
		r.violate(f.expectation())
	}
	return nil
}

func setNullString(v reflect.Value, n NullString) {
	*v.Addr().Interface().(*NullString) = n
}

// value reads one value into v.
func (r *reader) value(s *shape, v reflect.Value) error {
	if s.pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch c := r.peek(); {
	case s.kind == kindRaw:
		return r.raw(v)
	case s.kind == kindBool && (c == 't' || c == 'f'):
		v.SetBool(c == 't')
		return r.skip()
	case (s.kind == kindString || s.kind == kindNullString) && c == '"':
		return r.string(s, v)
	case (s.kind == kindInt || s.kind == kindUint || s.kind == kindFloat) && (c == '-' || isDigit(c)):
		return r.numeric(s, v)
	case s.kind == kindList && c == '[':
		return r.list(s, v)
	case s.kind == kindMap && c == '{':
		return r.stringMap(v)
	case s.kind == kindBlock && c == '{':
		return r.block(v)
	case s.kind == kindObject && c == '{':
		if err := r.open(); err != nil {
			return err
		}
		return r.members(s.object, v, 0)
	}
	r.violate(s.expectation())
	return r.skip()
}

// raw stores a value as compact JSON.
func (r *reader) raw(v reflect.Value) error {
	start := r.pos
	if err := r.skip(); err != nil {
		return err
	}
	value := r.text[start:r.pos]
	v.SetBytes(appendCompact(make(json.RawMessage, 0, len(value)), value))
	return nil
}

func (r *reader) string(s *shape, v reflect.Value) error {
	content, err := r.str()
	if err != nil {
		return err
	}
	if s.enum != nil {
		r.enumerated(s, content, v)
		return nil
	}
	switch {
	case s.maxBytes == 0:
	case len(content) == 0:
		r.violate("Expected non-empty string")
	case len(content) > s.maxBytes:
		r.violate(fmt.Sprintf("Expected at most %d bytes", s.maxBytes))
	}
	if s.kind == kindNullString {
		setNullString(v, String(string(content)))
	} else {
		v.SetString(string(content))
	}
	return nil
}

// enumerated sets v to a member of an enum without allocating.
func (r *reader) enumerated(s *shape, content []byte, v reflect.Value) {
	for _, allowed := range s.enum {
		if allowed == string(content) {
			v.SetString(allowed)
			return
		}
	}
	r.violate(s.expectation())
}

func (r *reader) numeric(s *shape, v reflect.Value) error {
	text, err := r.number()
	if err != nil {
		return err
	}
	if s.kind == kindFloat {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			r.violate("Expected number in range")
		}
		v.SetFloat(f)
		return nil
	}
	negative, magnitude, ok := parseInteger(text)
	if s.kind == kindUint {
		if !ok || negative {
			r.violate("Expected non-negative integer")
			return nil
		}
		v.SetUint(magnitude)
		return nil
	}
	n, fits := toInt64(negative, magnitude)
	if !ok || !fits {
		r.violate("Expected integer")
		return nil
	}
	v.SetInt(n)
	return nil
}

// list reads an array. After a violation it no longer stores items: a short text of
// many items could otherwise use much memory.
func (r *reader) list(s *shape, v reflect.Value) error {
	if err := r.open(); err != nil {
		return err
	}
	repeated := false
	for n := 0; ; n++ {
		more, err := r.more(']', n == 0)
		if err != nil || !more {
			return err
		}
		if len(r.violations) > 0 {
			err = r.skip()
		} else {
			v.Grow(1)
			v.SetLen(n + 1)
			r.pushIndex(n)
			err = r.value(s.elem, v.Index(n))
			r.pop()
			repeated = s.unique && repeats(v, n)
		}
		if err != nil {
			return err
		}
		if repeated {
			r.violate("Expected unique items")
			repeated = false
		}
	}
}

// repeats reports whether item n of a list of strings also occurs before it. Items
// of such lists are enum values, so unique lists are short.
func repeats(list reflect.Value, n int) bool {
	for i := range n {
		if list.Index(i).String() == list.Index(n).String() {
			return true
		}
	}
	return false
}

func (r *reader) stringMap(v reflect.Value) error {
	if err := r.open(); err != nil {
		return err
	}
	entries := make(map[string]string)
	for first := true; ; first = false {
		more, err := r.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := r.key()
		if err != nil {
			return err
		}
		if err := r.entry(entries, string(key)); err != nil {
			return err
		}
	}
	if len(entries) > 0 {
		v.Set(reflect.ValueOf(entries))
	}
	return nil
}

func (r *reader) entry(entries map[string]string, key string) error {
	if _, ok := entries[key]; ok {
		r.violateAt(key, "Duplicate property")
		return r.skip()
	}
	if r.peek() != '"' {
		r.violateAt(key, "Expected string")
		return r.skip()
	}
	content, err := r.str()
	if err == nil {
		entries[key] = string(content)
	}
	return err
}
