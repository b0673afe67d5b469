package contracts

import (
	"cmp"
	"reflect"
	"slices"
)

// A Type describes one object of the wire for the generators of schemas and
// documents. It is read from the plans that decode and encode.
type Type struct {
	Name   string // Go name
	Group  Group
	Wire   string // value of the type key; empty for GroupObject
	Fields []Field
}

// A Group says where objects of a type occur.
type Group string

const (
	GroupCommand       Group = "command"        // bare client message
	GroupClientControl Group = "client control" // ws.* frame from a client
	GroupEvent         Group = "event"          // bare server message
	GroupServerFrame   Group = "server frame"   // envelope, or ws.* frame from a server
	GroupObject        Group = "object"         // inside other objects, and the snapshot
)

// A Field describes one property.
type Field struct {
	Name     string // on the wire
	GoName   string
	Value    Value
	Required bool
	Nullable bool
	Lenient  bool // required, but a client accepts its absence
}

// A Value describes the values of a property.
type Value struct {
	Kind     ValueKind
	Name     string   // Go type of an object or of a named string
	Enum     []string // allowed strings; nil allows all
	MaxBytes int      // longest allowed string, which must not be empty; 0 allows all
	Unique   bool     // the items of an array differ
	Item     *Value   // of an array
}

// A ValueKind is a class of values. A body is an object of the family Name:
// event, command, init or snapshot.
type ValueKind string

const (
	ValueString  ValueKind = "string"
	ValueBoolean ValueKind = "boolean"
	ValueInteger ValueKind = "integer"
	ValueNatural ValueKind = "non-negative integer"
	ValueNumber  ValueKind = "number"
	ValueAny     ValueKind = "any JSON"
	ValueBody    ValueKind = "body"
	ValueArray   ValueKind = "array"
	ValueStrings ValueKind = "object of strings"
	ValueBlock   ValueKind = "content block"
	ValueObject  ValueKind = "object"
)

// Types lists every type: messages in wire order, then objects by name.
func Types() []Type {
	types := slices.Concat(
		describeFamily(GroupCommand, newCommand),
		describeFamily(GroupClientControl, newClientControl),
		describeFamily(GroupEvent, newEvent),
		describeFamily(GroupServerFrame, newServerFrame),
	)
	var objects []Type
	for _, p := range nestedPlans {
		objects = append(objects, p.describe(GroupObject))
	}
	slices.SortFunc(objects, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	return append(types, objects...)
}

func describeFamily[T any](group Group, constructors []func() T) []Type {
	types := make([]Type, len(constructors))
	for i, construct := range constructors {
		types[i] = plansByType[reflect.TypeOf(construct()).Elem()].describe(group)
	}
	return types
}

func (p *plan) describe(group Group) Type {
	t := Type{Name: p.goType.Name(), Group: group, Wire: p.wire}
	for i := range p.fields {
		f := &p.fields[i]
		if f.kind == kindType {
			continue
		}
		t.Fields = append(t.Fields, Field{
			Name: f.name, GoName: p.goType.Field(f.index).Name, Value: f.shape.describe(),
			Required: !f.optional, Nullable: f.nullable, Lenient: f.lenient,
		})
	}
	return t
}

var valueKinds = map[kind]ValueKind{
	kindString: ValueString, kindNullString: ValueString, kindBool: ValueBoolean,
	kindInt: ValueInteger, kindUint: ValueNatural, kindFloat: ValueNumber, kindRaw: ValueAny,
	kindList: ValueArray, kindMap: ValueStrings, kindBlock: ValueBlock, kindObject: ValueObject,
}

func (s *shape) describe() Value {
	v := Value{
		Kind: valueKinds[s.kind], Name: s.typeName, Enum: slices.Clone(s.enum),
		MaxBytes: s.maxBytes, Unique: s.unique,
	}
	switch {
	case s.kind == kindObject:
		v.Name = s.object.goType.Name()
	case s.kind == kindList:
		item := s.elem.describe()
		v.Item = &item
	case s.body != "":
		v.Kind, v.Name = ValueBody, s.body
	}
	return v
}
