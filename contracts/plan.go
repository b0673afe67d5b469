package contracts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A plan describes the JSON form of a Go struct type. Decoding, encoding,
// validation and the generated schemas all follow it, so they agree. Plans are made
// once, at program start.
type plan struct {
	wire     string // value of the type key; empty for nested objects
	goType   reflect.Type
	fields   []field
	required uint64 // bit i is set if fields[i] must be present
	lenient  uint64 // required fields that old servers may omit
}

// A field is one property. Its tags are those of the Go field:
//
//	json:"name"       required
//	json:",omitempty" optional (also omitzero)
//	wire:"unique"     a list whose items differ
//	wire:"lenient"    required when sent, but old servers leave it out or send null
//	wire:"nullable"   required, null allowed (pointers are so without the tag)
//	wire:"id"         not empty and at most MaxIDBytes long
//	wire:"sendid"     not empty and at most MaxSendIDBytes long
//	wire:"body=X"     an already encoded event, command, init or snapshot; raw
//	                  values without it are any JSON, cut to MaxValueBytes when sent
//	wire:"ready"      a body that this package encoded; it is not checked again
//	wire:"text"       content that may be joined with the next message's
//	wire:"oneof=a|b"  the only strings allowed
type field struct {
	shape
	name       string
	prefix     string // the quoted name and the colon
	index      int    // of the Go field
	optional   bool
	keepsEmpty bool // an empty list is sent as [], not omitted
	nullable   bool
	lenient    bool
	text       bool
}

// A shape is the kind of a value and its restrictions.
type shape struct {
	kind     kind
	pointer  bool     // the Go value is behind a pointer
	enum     []string // allowed strings; nil allows all
	typeName string   // name of a named string type
	maxBytes int      // longest allowed string, which must not be empty; 0 allows all
	unique   bool     // the items of a list must differ
	body     string   // family of an encoded body in a raw value; empty for any JSON
	ready    bool     // a raw value was encoded by this package
	elem     *shape   // item of a list
	object   *plan    // of an object
}

// A kind is a class of JSON values with one Go representation.
type kind uint8

const (
	kindString     kind = iota // string or a named string type
	kindBool                   // bool
	kindInt                    // int64
	kindUint                   // uint64
	kindFloat                  // float64
	kindNullString             // NullString
	kindRaw                    // json.RawMessage
	kindList                   // slice
	kindMap                    // map[string]string
	kindObject                 // struct
	kindBlock                  // ContentBlock
	kindType                   // the type key, which is not a Go field
)

// expectation returns the violation text for a value of another kind.
func (s *shape) expectation() string {
	switch s.kind {
	case kindBool:
		return "Expected boolean"
	case kindInt, kindUint, kindFloat:
		return "Expected number"
	case kindRaw:
		return "Expected any value"
	case kindList:
		return "Expected array"
	case kindMap, kindObject, kindBlock:
		return "Expected object"
	}
	if s.enum != nil {
		return "Expected union value"
	}
	return "Expected string"
}

// find returns the index of the field named key, or -1. Messages usually keep
// the order of the Go fields, so the field at hint is tried first.
func (p *plan) find(key []byte, hint int) int {
	if hint < len(p.fields) && p.fields[hint].name == string(key) {
		return hint
	}
	for i := range p.fields {
		if p.fields[i].name == string(key) {
			return i
		}
	}
	return -1
}

// A planner makes plans and caches those of nested types.
type planner map[reflect.Type]*plan

// message makes the plan of a type with a type key, which comes first.
func (ps planner) message(wire string, t reflect.Type) *plan {
	p := &plan{wire: wire, goType: t, fields: make([]field, 0, 1+t.NumField())}
	p.add(field{name: "type", shape: shape{kind: kindType, enum: []string{wire}}})
	ps.addFields(p)
	return p
}

// object returns the plan of a nested type.
func (ps planner) object(t reflect.Type) *plan {
	if p, ok := ps[t]; ok {
		return p
	}
	p := &plan{goType: t}
	ps[t] = p
	ps.addFields(p)
	return p
}

func (p *plan) add(f field) {
	i := len(p.fields)
	if i == 64 {
		panic(fmt.Sprintf("contracts: %v has more fields than a plan has bits", p.goType))
	}
	f.prefix = `"` + f.name + `":`
	if !f.optional {
		p.required |= 1 << i
	}
	if f.lenient {
		p.lenient |= 1 << i
	}
	p.fields = append(p.fields, f)
}

func (ps planner) addFields(p *plan) {
	p.fields = slices.Grow(p.fields, p.goType.NumField())
	for i := range p.goType.NumField() {
		p.add(ps.field(i, p.goType.Field(i)))
	}
}

// field reads the tags of one Go field.
func (ps planner) field(index int, sf reflect.StructField) field {
	name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
	f := field{name: name, index: index, shape: ps.shape(sf.Type)}
	f.optional = strings.Contains(options, "omit")
	f.keepsEmpty = f.kind == kindList && options != "omitempty"
	f.nullable = f.pointer && !f.optional || f.kind == kindNullString
	for tag := range strings.SplitSeq(sf.Tag.Get("wire"), ",") {
		key, value, _ := strings.Cut(tag, "=")
		switch key {
		case "":
		case "unique":
			f.unique = true
		case "lenient":
			f.lenient = true
		case "nullable":
			f.nullable = true
		case "id":
			f.maxBytes = MaxIDBytes
		case "sendid":
			f.maxBytes = MaxSendIDBytes
		case "body":
			f.body = value
		case "ready":
			f.ready = true
		case "text":
			f.text = true
		case "oneof":
			f.enum = strings.Split(value, "|")
		default:
			panic(fmt.Sprintf("contracts: unknown tag %q on field %s", tag, sf.Name))
		}
	}
	return f
}

var (
	rawType        = reflect.TypeFor[json.RawMessage]()
	nullStringType = reflect.TypeFor[NullString]()
	blockType      = reflect.TypeFor[ContentBlock]()
)

// shape returns the shape of a Go type. It panics for types without a wire form.
func (ps planner) shape(t reflect.Type) shape {
	switch t {
	case rawType:
		return shape{kind: kindRaw}
	case nullStringType:
		return shape{kind: kindNullString}
	case blockType:
		return shape{kind: kindBlock}
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := ps.shape(t.Elem())
		s.pointer = true
		return s
	case reflect.String:
		s := shape{kind: kindString, enum: enums[t]}
		if t.Name() != "string" {
			s.typeName = t.Name()
		}
		return s
	case reflect.Bool:
		return shape{kind: kindBool}
	case reflect.Int64:
		return shape{kind: kindInt}
	case reflect.Uint64:
		return shape{kind: kindUint}
	case reflect.Float64:
		return shape{kind: kindFloat}
	case reflect.Slice:
		elem := ps.shape(t.Elem())
		return shape{kind: kindList, elem: &elem}
	case reflect.Map:
		return shape{kind: kindMap}
	case reflect.Struct:
		return shape{kind: kindObject, object: ps.object(t)}
	}
	panic(fmt.Sprintf("contracts: no wire form for %v", t))
}
