package contracts

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
)

const (
	// maxValueDepth is the greatest nesting of a value that is sent. It leaves room for
	// the message or snapshot around the value, so that a decoder with the same
	// MaxDepth accepts it.
	maxValueDepth = MaxDepth - 16

	// maxBodyDepth is the nesting of an encoded body inside a frame.
	maxBodyDepth = MaxDepth - 1

	// maxValueHead is how many bytes of a cut value are sent.
	maxValueHead = 4 << 10
)

// A writer encodes one object following its type and records violations.
type writer struct {
	location
	buf        []byte
	start, end int // span of the mergeable content in buf
}

// object writes the struct v.
func (w *writer) object(t *Type, v reflect.Value) {
	start := len(w.buf)
	w.buf = append(w.buf, t.opening...)
	for i := range t.prepare().Fields {
		f := &t.Fields[i]
		if f.absent(v.Field(f.index)) {
			continue
		}
		w.buf = append(w.buf, f.prefix...)
		w.pushName(f.Name)
		w.member(f, v.Field(f.index))
		w.pop()
	}
	if len(w.buf) == start {
		w.buf = append(w.buf, '{')
	}
	w.buf[start] = '{' // in place of the first comma
	w.buf = append(w.buf, '}')
}

// absent reports whether an optional field is omitted.
func (f *Field) absent(v reflect.Value) bool {
	switch {
	case f.Required:
		return false
	case f.Kind == KindNullString:
		return !nullString(v).Present
	case f.keepsEmpty:
		return v.IsNil()
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

func (w *writer) member(f *Field, v reflect.Value) {
	switch {
	case f.pointer && v.IsNil(), f.Kind == KindRaw && f.Nullable && v.Len() == 0:
		w.buf = append(w.buf, "null"...)
	case f.text:
		w.start = len(w.buf) + 1
		w.value(&f.Value, v)
		w.end = len(w.buf) - 1
	default:
		w.value(&f.Value, v)
	}
}

func (w *writer) value(s *Value, v reflect.Value) {
	if s.pointer {
		v = v.Elem()
	}
	switch s.Kind {
	case KindString:
		w.string(s, v.String())
	case KindNullString:
		if p := nullString(v).Value; p != nil {
			w.buf = appendString(w.buf, *p)
		} else {
			w.buf = append(w.buf, "null"...)
		}
	case KindBool:
		w.buf = strconv.AppendBool(w.buf, v.Bool())
	case KindInt:
		w.buf = strconv.AppendInt(w.buf, v.Int(), 10)
	case KindUint:
		w.buf = strconv.AppendUint(w.buf, v.Uint(), 10)
	case KindFloat:
		w.float(v.Float())
	case KindRaw:
		w.raw(s, v.Bytes())
	case KindList:
		w.list(s, v)
	case KindMap:
		w.stringMap(v.Interface().(map[string]string))
	case KindBlock:
		w.block(v.Addr().Interface().(*ContentBlock))
	case KindObject:
		w.object(s.Object, v)
	}
}

func (w *writer) string(s *Value, text string) {
	switch {
	case s.Enum != nil && !slices.Contains(s.Enum, text):
		w.violate("Expected union value")
	case s.MaxBytes > 0 && text == "":
		w.violate("Expected non-empty string")
	case s.MaxBytes > 0 && len(text) > s.MaxBytes:
		w.violate("Expected at most " + strconv.Itoa(s.MaxBytes) + " bytes")
	}
	w.buf = appendString(w.buf, text)
}

// float writes a number in the shortest form that parses to the same value, with an
// exponent where ECMAScript uses one.
func (w *writer) float(f float64) {
	format := byte('f')
	if abs := math.Abs(f); math.IsNaN(f) || math.IsInf(f, 0) {
		w.violate("Expected number")
	} else if abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	w.buf = strconv.AppendFloat(w.buf, f, format, -1, 64)
}

func (w *writer) list(s *Value, v reflect.Value) {
	w.buf = append(w.buf, '[')
	for i := range v.Len() {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.pushIndex(i)
		w.value(s.Item, v.Index(i))
		w.pop()
		if s.Unique && repeats(v, i) {
			w.violate("Expected unique items")
			break
		}
	}
	w.buf = append(w.buf, ']')
}

// stringMap writes entries sorted by key, so that equal maps have equal bytes.
func (w *writer) stringMap(m map[string]string) {
	w.buf = append(w.buf, '{')
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(appendString(w.buf, key), ':')
		w.buf = appendString(w.buf, m[key])
	}
	w.buf = append(w.buf, '}')
}

func (w *writer) block(b *ContentBlock) {
	switch b.Type {
	case "text":
		w.buf = append(w.buf, `{"type":"text","text":`...)
		w.buf = appendString(w.buf, b.Text)
	case "image":
		w.buf = append(w.buf, `{"type":"image","data":`...)
		w.buf = appendString(w.buf, b.Data)
		w.buf = append(w.buf, `,"mimeType":`...)
		w.buf = appendString(w.buf, b.MimeType)
	default:
		w.violateAt("type", "Expected union value")
		return
	}
	w.buf = append(w.buf, '}')
}

// raw writes encoded JSON. Bodies are written whole. Values that are too long or
// too deep are replaced by a marker.
func (w *writer) raw(s *Value, value []byte) {
	if len(value) == 0 {
		w.violate("Required property")
		return
	}
	if s.ready {
		w.buf = append(w.buf, value...)
		return
	}
	limit := maxValueDepth
	if s.Body != "" {
		limit = maxBodyDepth
	}
	check := scanner{text: value, limit: limit}
	check.space()
	check.skip()
	check.end()
	syntax := check.err
	if syntax != nil && (!syntax.deep || s.Body != "") {
		w.violate("Expected JSON: " + syntax.Error())
		return
	}
	start := len(w.buf)
	if syntax == nil {
		w.buf = appendCompact(w.buf, value)
		if s.Body != "" || len(w.buf)-start <= MaxValueBytes {
			return
		}
	}
	w.buf = appendMarker(w.buf[:start], value)
}

// appendMarker appends the marker for a value that cannot be sent:
// {"truncated":true,"bytes":N,"head":"..."}. bytes is the length of the value and
// head its beginning as text.
func appendMarker(dst, value []byte) []byte {
	dst = append(dst, `{"truncated":true,"bytes":`...)
	dst = strconv.AppendInt(dst, int64(len(value)), 10)
	dst = append(dst, `,"head":`...)
	head := string(value[:min(len(value), maxValueHead+4)])
	dst = appendString(dst, SplitText(head, maxValueHead)[0])
	return append(dst, '}')
}
