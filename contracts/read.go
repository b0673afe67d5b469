package contracts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A reader decodes one text in one pass, following a type. A syntax error ends the
// reading. Anything else that is wrong is recorded as a violation, so that one error
// can name several.
type reader struct {
	scanner
	location
	strict  bool // unknown keys, and null in optional fields, are violations
	lenient bool // fields tagged lenient may be absent
	unknown func(pointer string)

	// Set by header.
	wire   []byte // the type of the message, nil if it has none; valid until the next string is read
	inline bool   // the type is the first member and has been read
}

// begin starts to read a text, and checks its encoding.
func (r *reader) begin(d *Decoder, text []byte, fromServer bool) {
	r.text, r.limit = text, MaxDepth
	r.strict, r.lenient, r.unknown = d.Strict, fromServer && !d.Strict, d.Unknown
	r.space()
	if !utf8.Valid(text) {
		r.pos = 0
		for c, size := utf8.DecodeRune(text); c != utf8.RuneError || size > 1; c, size = utf8.DecodeRune(text[r.pos:]) {
			r.pos += size
		}
		r.fail("invalid UTF-8")
	}
}

// header enters a message and finds its type. If type is the first member, as usual,
// the next read is the second member, otherwise the first.
func (r *reader) header() {
	if r.peek() != '{' {
		r.skip()
		r.end()
		return
	}
	r.open()
	start := r.pos
	if key, ok := r.key(); ok && string(key) == "type" && r.peek() == '"' {
		r.wire, r.inline = r.str(), true
		return
	}
	r.reenter(start)
	found := false
	for key, ok := r.key(); ok; key, ok = r.key() {
		first := string(key) == "type" && !found
		found = found || first
		if first && r.peek() == '"' {
			r.wire = bytes.Clone(r.str())
		} else {
			r.skip()
		}
	}
	r.end()
	r.reenter(start)
}

// reenter moves back to the start of the message's members, unless the text is not
// JSON.
func (r *reader) reenter(start int) {
	if r.err == nil {
		r.pos, r.depth, r.first = start, 1, true
	}
}

// members reads the members of an object into v, up to and including its end. typed
// says that the type key of the object has been read. Bit i of given is set if
// t.Fields[i] was there and not null.
func (r *reader) members(t *Type, v reflect.Value, typed bool) (given uint64) {
	t.prepare()
	var others map[string]bool // unknown keys so far
	var seen uint64            // bit i: t.Fields[i] has been read
	hint := 0
	for key, ok := r.key(); ok; key, ok = r.key() {
		i := t.find(key, hint)
		switch {
		case i < 0 && t.Wire != "" && string(key) == "type":
			if typed {
				r.violateAt("type", "Duplicate property")
			}
			typed = true
			r.skip() // header has read it
		case i < 0:
			others = r.unknownKey(key, others)
			r.skip()
		case seen&(1<<i) != 0:
			r.violateAt(t.Fields[i].Name, "Duplicate property")
			r.skip()
		default:
			seen |= 1 << i
			hint = i + 1
			r.pushName(t.Fields[i].Name)
			if r.member(&t.Fields[i], v) {
				given |= 1 << i
			}
			r.pop()
		}
	}
	r.absent(t, v, t.required&^seen)
	return given
}

// unknownKey handles a key that is not in the type. It does not check a server's
// unknown keys for duplicates.
func (r *reader) unknownKey(key []byte, others map[string]bool) map[string]bool {
	name := string(key)
	if others[name] {
		r.violateAt(name, "Duplicate property")
		return others
	}
	r.unexpected(name)
	if r.lenient {
		return nil
	}
	if others == nil {
		others = make(map[string]bool)
	}
	others[name] = true
	return others
}

// unexpected refuses an unknown key, or ignores it.
func (r *reader) unexpected(key string) {
	r.pushName(key)
	if r.strict {
		r.violate("Unexpected property")
	} else if r.unknown != nil {
		r.unknown(r.pointer())
	}
	r.pop()
}

// absent records a violation for each missing required field, and gives missing
// lenient fields of a server their empty value.
func (r *reader) absent(t *Type, v reflect.Value, missing uint64) {
	for ; missing != 0; missing &= missing - 1 {
		i := bits.TrailingZeros64(missing)
		f := &t.Fields[i]
		if r.lenient && f.Lenient {
			f.clear(v.Field(f.index))
		} else {
			r.violateAt(f.Name, "Required property")
		}
	}
}

// clear sets v to the value of a missing lenient field. Lists become empty, not
// nil, so that encoding v gives the same JSON.
func (s *Value) clear(v reflect.Value) {
	v.SetZero()
	switch {
	case s.pointer:
	case s.Kind == KindList:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case s.Kind == KindObject:
		for i := range s.Object.prepare().Fields {
			f := &s.Object.Fields[i]
			if f.Required {
				f.clear(v.Field(f.index))
			}
		}
	}
}

// member reads one field of the object v. It returns false for null.
func (r *reader) member(f *Field, v reflect.Value) bool {
	v = v.Field(f.index)
	if r.peek() == 'n' && (f.Kind != KindRaw || f.Nullable) {
		r.null(f, v)
		return false
	}
	r.value(&f.Value, v)
	if f.keepsEmpty && v.IsNil() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	return true
}

// null reads a null. Where the type does not allow null, it counts as absent unless
// the reader is strict (D13).
func (r *reader) null(f *Field, v reflect.Value) {
	r.word("null")
	switch {
	case f.Kind == KindNullString:
		*nullString(v) = Null()
	case f.Nullable, !f.Required && !r.strict:
	case f.Lenient && r.lenient:
		f.clear(v)
	default:
		r.violate(f.expectation())
	}
}

func nullString(v reflect.Value) *NullString { return v.Addr().Interface().(*NullString) }

// value reads one value into v.
func (r *reader) value(s *Value, v reflect.Value) {
	if s.pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch c := r.peek(); {
	case s.Kind == KindRaw:
		r.raw(v)
	case s.Kind == KindBool && (c == 't' || c == 'f'):
		v.SetBool(c == 't')
		r.skip()
	case (s.Kind == KindString || s.Kind == KindNullString) && c == '"':
		r.string(s, v)
	case (s.Kind == KindInt || s.Kind == KindUint || s.Kind == KindFloat) && (c == '-' || isDigit(c)):
		r.numeric(s, v)
	case s.Kind == KindList && c == '[':
		r.list(s, v)
	case s.Kind == KindMap && c == '{':
		r.stringMap(v)
	case s.Kind == KindBlock && c == '{':
		r.block(v)
	case s.Kind == KindObject && c == '{':
		r.open()
		r.members(s.Object, v, false)
	default:
		r.violate(s.expectation())
		r.skip()
	}
}

// raw stores a value as compact JSON.
func (r *reader) raw(v reflect.Value) {
	start := r.pos
	if r.skip(); r.err == nil {
		value := r.text[start:r.pos]
		v.SetBytes(appendCompact(make(json.RawMessage, 0, len(value)), value))
	}
}

func (r *reader) string(s *Value, v reflect.Value) {
	content := r.str()
	switch {
	case s.Enum != nil && !(s.open && r.lenient):
		if i := slices.Index(s.Enum, string(content)); i >= 0 {
			v.SetString(s.Enum[i]) // does not allocate
		} else {
			r.violate(s.expectation())
		}
		return
	case s.MaxBytes == 0:
	case len(content) == 0:
		r.violate("Expected non-empty string")
	case len(content) > s.MaxBytes:
		r.violate(fmt.Sprintf("Expected at most %d bytes", s.MaxBytes))
	}
	if s.Kind == KindNullString {
		*nullString(v) = String(string(content))
	} else {
		v.SetString(string(content))
	}
}

func (r *reader) numeric(s *Value, v reflect.Value) {
	text := r.number()
	if text == nil {
		return
	}
	if s.Kind == KindFloat {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			r.violate("Expected number in range")
		}
		v.SetFloat(f)
		return
	}
	negative, magnitude, ok := parseInteger(text)
	switch {
	case s.Kind == KindUint && (!ok || negative):
		r.violate("Expected non-negative integer")
	case s.Kind == KindUint:
		v.SetUint(magnitude)
	case !ok || magnitude > math.MaxInt64 && (!negative || magnitude > 1<<63):
		r.violate("Expected integer")
	case negative:
		v.SetInt(-int64(magnitude))
	default:
		v.SetInt(int64(magnitude))
	}
}

// list reads an array. After a violation it no longer stores items: a short text of
// many items could otherwise use much memory.
func (r *reader) list(s *Value, v reflect.Value) {
	r.open()
	for n := 0; r.more(']'); n++ {
		if len(r.violations) > 0 {
			r.skip()
			continue
		}
		v.Grow(1)
		v.SetLen(n + 1)
		r.pushIndex(n)
		r.value(s.Item, v.Index(n))
		r.pop()
		if s.Unique && repeats(v, n) {
			r.violate("Expected unique items")
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

func (r *reader) stringMap(v reflect.Value) {
	entries := make(map[string]string)
	r.open()
	for key, ok := r.key(); ok; key, ok = r.key() {
		name := string(key)
		_, repeated := entries[name]
		switch {
		case repeated:
			r.violateAt(name, "Duplicate property")
			r.skip()
		case r.peek() != '"':
			r.violateAt(name, "Expected string")
			r.skip()
		default:
			entries[name] = string(r.str())
		}
	}
	if len(entries) > 0 {
		v.Set(reflect.ValueOf(entries))
	}
}

var blockType = &Type{goType: reflect.TypeFor[ContentBlock]()}

// block reads a content block. The keys of its own type are required, and those of the
// other type unknown.
func (r *reader) block(v reflect.Value) {
	r.open()
	given := r.members(blockType, v, false)
	kind := v.Interface().(ContentBlock).Type
	if kind == "" {
		return // a violation
	}
	for i := 1; i < len(blockType.Fields); i++ { // the first one is the type
		f := &blockType.Fields[i]
		own := (f.Name == "text") == (kind == "text")
		switch isGiven := given&(1<<i) != 0; {
		case own && !isGiven:
			r.violateAt(f.Name, "Required property")
		case isGiven && !own:
			v.Field(f.index).SetZero()
			r.unexpected(f.Name)
		}
	}
}
