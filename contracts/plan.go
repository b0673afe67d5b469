package contracts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// A Type describes one object of the wire, by its Go struct type. Decoding,
// encoding, validation and the generators of schemas and documents all follow it,
// so they agree. Do not change a type.
type Type struct {
	Name   string // Go name
	Group  Group
	Wire   string // value of the type key; empty for GroupObject
	Fields []Field

	goType   reflect.Type
	opening  string // the type key, with a comma before it; empty for GroupObject
	required uint64 // bit i is set if Fields[i] must be present

	// prepare sets Fields and required when the type is used first. Reading the
	// tags of all types would take a tenth of the program's start.
	once sync.Once
}

// A Group says where objects of a type occur.
type Group string

const (
	GroupCommand       Group = "command"        // bare client message
	GroupClientControl Group = "client control" // ws.* frame from a client
	GroupEvent         Group = "event"          // bare server message
	GroupServerFrame   Group = "server frame"   // envelope, or ws.* frame from a server
	GroupObject        Group = "object"         // inside other objects, the snapshot, and whole HTTP bodies
)

// A Field is one property. Its tags are those of the Go field:
//
//	json:"name"       required
//	json:",omitempty" optional (also omitzero)
//	wire:"unique"     a list whose items differ
//	wire:"lenient"    required when sent, but old servers leave it out or send null
//	wire:"open"       a list of strings; clients accept unknown strings in it
//	wire:"nullable"   required, null allowed (pointers are so without the tag)
//	wire:"filled"     not empty
//	wire:"id"         not empty and at most MaxIDBytes long
//	wire:"sendid"     not empty and at most MaxSendIDBytes long
//	wire:"body=X"     an event, command, init or snapshot that is encoded already and
//	                  checked when it is sent; raw values without the tag are any
//	                  JSON, cut to MaxValueBytes when sent
//	wire:"ready"      a body that this package encoded; it is not checked when sent
//	wire:"text"       content that may be joined with the next message's
//	wire:"oneof=a|b"  the only strings allowed
type Field struct {
	Value
	Name     string // on the wire
	GoName   string
	Required bool
	Nullable bool
	Lenient  bool // required, but a client accepts its absence

	prefix     string // a comma, the quoted name and a colon
	index      int    // of the Go field
	keepsEmpty bool   // an empty list is sent as [], not omitted
	text       bool
}

// A Value describes the values of a property.
type Value struct {
	Kind     Kind
	Enum     []string // allowed strings; nil allows all
	EnumName string   // name of a named string type
	MaxBytes int      // longest allowed string, which must not be empty; 0 allows all
	Unique   bool     // the items of a list differ
	Body     string   // family of an encoded body: event, command, init or snapshot; empty for any JSON
	Item     *Value   // of a list
	Object   *Type    // of an object

	pointer bool // the Go value is behind a pointer
	open    bool // clients accept other strings than those of Enum
	ready   bool // a body that was encoded by this package
}

// A Kind is a class of JSON values with one Go representation.
type Kind uint8

const (
	KindString     Kind = iota // string or a named string type
	KindNullString             // NullString
	KindBool                   // bool
	KindInt                    // int64
	KindUint                   // uint64
	KindFloat                  // float64
	KindRaw                    // json.RawMessage
	KindList                   // slice
	KindMap                    // map[string]string
	KindObject                 // struct
	KindBlock                  // ContentBlock
)

// String returns the name of a kind in documents.
func (k Kind) String() string {
	return []string{
		"string", "string", "boolean", "integer", "non-negative integer", "number",
		"any JSON", "array", "object of strings", "object", "content block",
	}[k]
}

// expectation returns the violation text for a value of another kind.
func (v *Value) expectation() string {
	if v.Enum != nil {
		return "Expected union value"
	}
	return "Expected " + []string{
		"string", "string", "boolean", "number", "number", "number",
		"any value", "array", "object", "object", "object",
	}[v.Kind]
}

// find returns the index of the field named key, or -1. Messages usually keep
// the order of the Go fields, so the field at hint is tried first.
func (t *Type) find(key []byte, hint int) int {
	if hint < len(t.Fields) && t.Fields[hint].Name == string(key) {
		return hint
	}
	for i := range t.Fields {
		if t.Fields[i].Name == string(key) {
			return i
		}
	}
	return -1
}

// nested holds the types without a type key: those of nested objects, of the
// snapshot and of whole HTTP bodies. Once the program has started, preparing guards
// it.
var (
	nested    = map[reflect.Type]*Type{}
	preparing sync.Mutex
)

// nestedType returns the type of a nested object.
func nestedType(goType reflect.Type) *Type {
	t, ok := nested[goType]
	if !ok {
		t = &Type{Name: goType.Name(), Group: GroupObject, goType: goType}
		nested[goType] = t
	}
	return t
}

// prepare sets the fields of t, and returns t.
func (t *Type) prepare() *Type {
	t.once.Do(func() {
		preparing.Lock()
		defer preparing.Unlock()
		for i := range t.goType.NumField() {
			t.add(newField(i, t.goType.Field(i)))
		}
	})
	return t
}

func (t *Type) add(f Field) {
	i := len(t.Fields)
	if i == 64 {
		panic(fmt.Sprintf("contracts: %v has more fields than a type has bits", t.goType))
	}
	if f.Required {
		t.required |= 1 << i
	}
	t.Fields = append(t.Fields, f)
}

// newField reads the tags of one Go field.
func newField(index int, sf reflect.StructField) Field {
	name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
	f := Field{Name: name, GoName: sf.Name, prefix: `,"` + name + `":`, index: index, Value: newValue(sf.Type)}
	f.Required = !strings.Contains(options, "omit")
	f.keepsEmpty = f.Kind == KindList && options != "omitempty"
	f.Nullable = f.pointer && f.Required || f.Kind == KindNullString
	for tag := range strings.SplitSeq(sf.Tag.Get("wire"), ",") {
		key, value, _ := strings.Cut(tag, "=")
		switch key {
		case "":
		case "unique":
			f.Unique = true
		case "lenient":
			f.Lenient = true
		case "open":
			f.Item.open = true
		case "nullable":
			f.Nullable = true
		case "filled":
			f.MaxBytes = math.MaxInt
		case "id":
			f.MaxBytes = MaxIDBytes
		case "sendid":
			f.MaxBytes = MaxSendIDBytes
		case "body":
			f.Body = value
		case "ready":
			f.ready = true
		case "text":
			f.text = true
		case "oneof":
			f.Enum = strings.Split(value, "|")
		default:
			panic(fmt.Sprintf("contracts: unknown tag %q on field %s", tag, sf.Name))
		}
	}
	return f
}

// simpleKinds holds the kinds that say all about the values of a Go type.
var simpleKinds = map[reflect.Type]Kind{
	reflect.TypeFor[bool]():              KindBool,
	reflect.TypeFor[int64]():             KindInt,
	reflect.TypeFor[uint64]():            KindUint,
	reflect.TypeFor[float64]():           KindFloat,
	reflect.TypeFor[NullString]():        KindNullString,
	reflect.TypeFor[json.RawMessage]():   KindRaw,
	reflect.TypeFor[map[string]string](): KindMap,
	reflect.TypeFor[ContentBlock]():      KindBlock,
}

// newValue describes the values of a Go type. It panics for types without a wire form.
func newValue(goType reflect.Type) Value {
	if kind, ok := simpleKinds[goType]; ok {
		return Value{Kind: kind}
	}
	switch goType.Kind() {
	case reflect.Pointer:
		v := newValue(goType.Elem())
		v.pointer = true
		return v
	case reflect.String:
		v := Value{Kind: KindString, Enum: enums[goType]}
		if goType.Name() != "string" {
			v.EnumName = goType.Name()
		}
		return v
	case reflect.Slice:
		item := newValue(goType.Elem())
		return Value{Kind: KindList, Item: &item}
	case reflect.Struct:
		return Value{Kind: KindObject, Object: nestedType(goType)}
	}
	panic(fmt.Sprintf("contracts: no wire form for %v", goType))
}

// A family is a set of message types.
type family struct {
	types  []*Type // in wire order
	byWire map[string]*Type
	texts  *texts
}

// texts are the error texts of a family.
type texts struct{ parse, invalid, typeless, unknown string }

var (
	commandTexts = &texts{
		parse:    "Failed to parse command: ",
		invalid:  "Invalid headless command: ",
		typeless: "$.type Expected known headless command type",
		unknown:  "Unknown headless command type",
	}
	messageTexts = &texts{
		parse:    "Failed to parse message: ",
		invalid:  "Invalid headless message: ",
		typeless: "$.type Expected known headless message type",
		unknown:  "Unknown headless message type",
	}
	bodyTexts = &texts{parse: "Invalid request body: "}

	commands       = familyOf(GroupCommand, commandTexts, allCommands, Command.CommandType)
	clientControls = familyOf(GroupClientControl, commandTexts, allClientControls, Frame.FrameType)
	events         = familyOf(GroupEvent, messageTexts, allEvents, Event.EventType)
	serverFrames   = familyOf(GroupServerFrame, messageTexts, allServerFrames, Frame.FrameType)
	clientFrames   = union(commands, clientControls)
	messageTypes   = slices.Concat(commands.types, clientControls.types, events.types, serverFrames.types)
	snapshotType   = nestedType(reflect.TypeFor[Snapshot]())

	// bodies has a nil pointer to each type of whole HTTP requests and responses.
	bodies = []any{
		(*AttachRequest)(nil), (*SubscriptionRequest)(nil), (*ConnectionAnswer)(nil), (*SubscriptionAnswer)(nil),
		(*HeartbeatAnswer)(nil), (*DisconnectAnswer)(nil), (*MessageAnswer)(nil), (*SuccessAnswer)(nil),
		(*SessionList)(nil), (*Overview)(nil), (*OverviewEvent)(nil), (*SessionSummary)(nil), (*SessionUpdate)(nil),
		(*Inbox)(nil), (*InboxEvent)(nil), (*InboxAnswer)(nil), (*InboxReceipt)(nil), (*DeliveryList)(nil),
		(*PushRequest)(nil), (*PushAnswer)(nil),
		(*WhoAmI)(nil), (*TicketRequest)(nil), (*TicketAnswer)(nil), (*ShareRequest)(nil), (*ShareAnswer)(nil), (*ShareList)(nil),
		(*ConnectionList)(nil), (*AgentOffer)(nil), (*HistoryPage)(nil), (*RunnerIdentity)(nil), (*DrainRequest)(nil), (*DrainAnswer)(nil), (*Manifest)(nil),
	}

	// byGoType holds each type that can be encoded.
	byGoType = indexTypes()
)

// familyOf makes the types of a family from nil messages of each.
func familyOf[T any](group Group, t *texts, messages []T, typeOf func(T) string) *family {
	f := &family{byWire: make(map[string]*Type), texts: t}
	for _, m := range messages {
		goType := reflect.TypeOf(m).Elem()
		t := &Type{Name: goType.Name(), Group: group, Wire: typeOf(m), goType: goType}
		t.opening = `,"type":"` + t.Wire + `"`
		f.types, f.byWire[t.Wire] = append(f.types, t), t
	}
	return f
}

// union returns a family of the types of two, with the texts of the first.
func union(a, b *family) *family {
	both := &family{byWire: maps.Clone(a.byWire), texts: a.texts}
	maps.Copy(both.byWire, b.byWire)
	return both
}

func indexTypes() map[reflect.Type]*Type {
	index := map[reflect.Type]*Type{snapshotType.goType: snapshotType, peopleType.goType: peopleType}
	for _, body := range bodies {
		goType := reflect.TypeOf(body).Elem()
		index[goType] = nestedType(goType)
	}
	for _, t := range messageTypes {
		index[t.goType] = t
	}
	return index
}

// Types lists every type: messages in wire order, then objects by name.
func Types() []*Type {
	for _, t := range messageTypes {
		t.prepare()
	}
	var objects []*Type
	for known := -1; known < len(objects); { // preparing an object may find others inside it
		known = len(objects)
		objects = slices.Collect(maps.Values(nested))
		for _, t := range objects {
			t.prepare()
		}
	}
	slices.SortFunc(objects, func(a, b *Type) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Concat(messageTypes, objects)
}

// enums lists the values of string types in canonical order. Code is not in it:
// clients must accept unknown codes.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[Role]():             enumValues(RoleViewer, RoleApprover, RoleController),
	reflect.TypeFor[RequestType]():      enumValues(RequestTypes()...),
	reflect.TypeFor[Verdict]():          enumValues(VerdictApproved, VerdictDenied, VerdictCompleted, VerdictFailed, VerdictAnswered, VerdictRetried, VerdictSkipped, VerdictAborted, VerdictCancelled),
	reflect.TypeFor[Resolver]():         enumValues(ResolvedByUser, ResolvedByPolicy, ResolvedByClient, ResolvedByRuntime),
	reflect.TypeFor[RetryAction]():      enumValues(RetryActionRetry, RetryActionSkip, RetryActionAbort),
	reflect.TypeFor[Notification]():     enumValues(Notifications()...),
	reflect.TypeFor[ThinkingLevel]():    enumValues(ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingUltra),
	reflect.TypeFor[ApprovalMode]():     enumValues(ApprovalAuto, ApprovalPrompt, ApprovalFail),
	reflect.TypeFor[PromptTime]():       enumValues(PromptNow, PromptNext, PromptSteer),
	reflect.TypeFor[ErrorType]():        enumValues(ErrorTransient, ErrorFatal, ErrorTool, ErrorCancelled, ErrorProtocol),
	reflect.TypeFor[UtilityOperation](): enumValues(OperationCommandExec, OperationFileSearch, OperationFileWatch, OperationFileRead),
	reflect.TypeFor[Stream]():           enumValues(StreamStdout, StreamStderr),
	reflect.TypeFor[ShellMode]():        enumValues(ShellModeShell, ShellModeDirect),
	reflect.TypeFor[TerminalMode]():     enumValues(TerminalPipe, TerminalPTY),
	reflect.TypeFor[FileChange]():       enumValues(FileCreated, FileModified, FileDeleted, FileRenamed),
	reflect.TypeFor[ExecutorType]():     enumValues(ExecutorLive, ExecutorReplay),
	reflect.TypeFor[ResetReason]():      enumValues(ResetLagged, ResetGap, ResetRestored),
	reflect.TypeFor[SessionStatus]():    enumValues(SessionStatuses()...),
	reflect.TypeFor[ListName]():         enumValues(ListSessions, ListInbox),
	reflect.TypeFor[HistoryKind]():      enumValues(HistoryEntries, HistoryTurns, HistorySearch),
	reflect.TypeFor[TurnOutcome]():      enumValues(TurnRunning, TurnCompleted, TurnFailed, TurnCancelled),
	reflect.TypeFor[LeaseReason]():      enumValues(LeaseGranted, LeaseTakenOver, LeaseExpired, LeaseReleased, LeaseDraining, LeaseDenied),
}

func enumValues[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}
