package contracts

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// mustEncode encodes an event that must be valid.
func mustEncode(t testing.TB, e Event) Encoded {
	t.Helper()
	encoded, err := EncodeEvent(e)
	if err != nil {
		t.Fatalf("%#v: %v", e, err)
	}
	return encoded
}

func TestTextIsMadeSafeToSend(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ``},
		{"plain é 日本 🙂", `plain é 日本 🙂`},
		{"<a href='x'>&</a>", `<a href='x'>&</a>`},
		{"\"\\/", `\"\\/`},
		{"\n\r\t\b\f\x00\x1f\x7f", `\n\r\t\b\f\u0000\u001f` + "\x7f"},
		{"a\u2028b\u2029c", `a\u2028b\u2029c`},
		{"a\xffb\xc3", "a\ufffdb\ufffd"},
		{"\xed\xa0\xbd", "\ufffd\ufffd\ufffd"},
		{"\ufffd", "\ufffd"},
	} {
		got := string(mustEncode(t, &Status{Message: test.text}).Body)
		if want := `{"type":"status","message":"` + test.want + `"}`; got != want {
			t.Errorf("%q:\n got %s\nwant %s", test.text, got, want)
		}
	}
}

func TestRawValuesAreMadeSafeToSend(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{`null`, `null`},
		{" { \"a\" :\t[ 1 ,\n2.50, \"x y\" ] } \r\n", `{"a":[1,2.50,"x y"]}`},
		{`"a\ud83db"`, `"a\ufffdb"`},
		{`"\ud83d\ude42"`, `"\ud83d\ude42"`},
		{`"\ude42\ud83d"`, `"\ufffd\ufffd"`},
		{`"\\ud83d\""`, `"\\ud83d\""`},
		{`{"\udead":1}`, `{"\ufffd":1}`},
		{"\"a\u2028b\"", `"a\u2028b"`},
		{"\"a\xffb\"", "\"a\ufffdb\""},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{`"<&>"`, `"<&>"`},
	} {
		got := string(mustEncode(t, &ToolCall{Args: json.RawMessage(test.value)}).Body)
		if want := `{"type":"tool_call","call_id":"","tool":"","args":` + test.want + `,"requires_approval":false}`; got != want {
			t.Errorf("%q:\n got %s\nwant %s", test.value, got, want)
		}
	}
}

func TestNumbersAreWrittenPlainly(t *testing.T) { // R41
	end := &ResponseEnd{DurationMS: math.MaxInt64}
	for _, test := range []struct {
		cost float64
		want string
	}{{0, "0"}, {3, "3"}, {0.1, "0.1"}, {1e20, "100000000000000000000"}, {1e21, "1e+21"}, {0.000001, "0.000001"}} {
		end.Usage.TotalCostUSD = test.cost
		got := string(mustEncode(t, end).Body)
		if !strings.Contains(got, `"total_cost_usd":`+test.want+`,`) || !strings.Contains(got, `"duration_ms":9223372036854775807}`) {
			t.Errorf("%v: got %s, want %s", test.cost, got, test.want)
		}
	}
}

func TestSpanIsTheContent(t *testing.T) {
	const content = "say \"hi\"\nü"
	const want = `say \"hi\"\nü`
	for _, event := range []Event{
		&ResponseChunk{ResponseID: `content":"`, Content: content, IsThinking: true},
		&ToolOutput{CallID: "content", Content: content},
		&UtilityCommandOutput{CommandID: "c", Stream: StreamStderr, Content: content},
	} {
		e := mustEncode(t, event)
		if got := string(e.Body[e.TextStart:e.TextEnd]); got != want {
			t.Errorf("%s: got span %s, want %s", e.Body, got, want)
		}
	}
	e := mustEncode(t, &UtilityFileReadResult{Content: content})
	if e.TextStart != 0 || e.TextEnd != 0 {
		t.Errorf("%s: got span %d:%d, want none", e.Body, e.TextStart, e.TextEnd)
	}
}

func TestSpansMergeToTheJoinedText(t *testing.T) {
	first := mustEncode(t, &ToolOutput{CallID: "t", Content: "one\n"})
	second := mustEncode(t, &ToolOutput{CallID: "t", Content: "\"two\""})
	merged := string(first.Body[:first.TextEnd]) + string(second.Body[second.TextStart:])
	got, err := (&Decoder{Strict: true}).Event([]byte(merged))
	if want := (&ToolOutput{CallID: "t", Content: "one\n\"two\""}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestLongValuesAreMarked(t *testing.T) {
	value := json.RawMessage(`"` + strings.Repeat("é", MaxValueBytes/2) + `"`)
	body := mustEncode(t, &RawAgentEvent{EventKind: "k", Event: value}).Body
	event, err := (&Decoder{Strict: true}).Event(body)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Truncated bool
		Bytes     int
		Head      string
	}
	if err := json.Unmarshal(event.(*RawAgentEvent).Event, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Truncated || got.Bytes != len(value) || got.Head == "" || !strings.HasPrefix(string(value), got.Head) {
		t.Errorf("got %+v, want the head of %d bytes", got, len(value))
	}
	if strings.Contains(got.Head, "\ufffd") {
		t.Error("the head ends inside a code point")
	}
}

func TestValuesOfTheGreatestLengthAreKept(t *testing.T) {
	value := `"` + strings.Repeat("x", MaxValueBytes-2) + `"`
	body := mustEncode(t, &RawAgentEvent{Event: json.RawMessage(" " + value)}).Body
	if !strings.Contains(string(body), value) {
		t.Errorf("got %d bytes, want the whole value", len(body))
	}
}

// Whatever is put in, a decoder with the same limits can read what comes out,
// even inside a snapshot inside an envelope.
func TestDeepValuesAreMarked(t *testing.T) {
	for levels := range MaxDepth + 2 {
		args := json.RawMessage(strings.Repeat("[", levels) + "0" + strings.Repeat("]", levels))
		snapshot := &Snapshot{State: State{PendingRequests: []PendingRequest{{
			Kind: RequestApproval, Status: "pending", Visibility: "user", Source: "local", Args: args,
		}}}}
		body, err := EncodeSnapshot(snapshot, 0)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := EncodeFrame(&ResetEnvelope{Reason: ResetGap, Snapshot: body})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&Decoder{}).ServerFrame(frame); err != nil {
			t.Fatalf("%d levels: %v", levels, err)
		}
		if marked := strings.Contains(string(body), "truncated"); marked != (levels > maxValueDepth) {
			t.Errorf("%d levels: got marked %v", levels, marked)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	got := string(mustEncode(t, &UtilityFileSearchResults{}).Body)
	if want := `{"type":"utility_file_search_results","search_id":"","query":"","cwd":"","results":[],"truncated":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInvalidEventsAreNotEncoded(t *testing.T) { // R15, R16
	for _, test := range []struct {
		event Event
		want  string
	}{
		{&ErrorEvent{Message: "a"}, "/error_type Expected union value"},
		{&ServerRequest{RequestType: "review", Args: json.RawMessage(`1`)}, "/request_type Expected union value"},
		{&ServerRequestResolved{RequestType: RequestApproval}, "/resolution Expected union value; /resolved_by Expected union value"},
		{&ToolCall{}, "/args Required property"},
		{&ToolCall{Args: json.RawMessage{}}, "/args Required property"},
		{&ToolCall{Args: json.RawMessage(` `)}, "/args Expected JSON: unexpected end of text at byte 1"},
		{&ToolCall{Args: json.RawMessage(`{"a":}`)}, "/args Expected JSON: expected a value at byte 5"},
		{&ToolCall{Args: json.RawMessage(`1 2`)}, "/args Expected JSON: unexpected text after the value at byte 2"},
		{&HelloOK{OptOutNotifications: []Notification{"status", "status"}}, "/opt_out_notifications Expected unique items"},
		{&HelloOK{Capabilities: &Capabilities{UtilityOperations: []UtilityOperation{"dance"}}}, "/capabilities/utility_operations/0 Expected union value"},
		{&ConnectionInfo{Connections: []ConnectionState{{Role: RoleViewer}, {}}}, "/connections/1/role Expected union value"},
		{&ResponseEnd{Usage: Usage{TotalCostUSD: math.NaN()}}, "/usage/total_cost_usd Expected number"},
		{&ResponseEnd{Usage: Usage{TotalCostUSD: math.Inf(-1)}}, "/usage/total_cost_usd Expected number"},
		{(*Status)(nil), "$ Expected a message, not *contracts.Status"},
		{nil, "$ Expected a message, not <nil>"},
		{foreignEvent{}, "$ Expected a message, not contracts.foreignEvent"},
		{&foreignEvent{}, "$ Expected a known message, not *contracts.foreignEvent"},
	} {
		err := ValidateEvent(test.event)
		refusal, ok := errors.AsType[*Error](err)
		if want := "Failed to emit headless message: " + test.want; !ok || refusal.Message != want {
			t.Errorf("%#v:\n got %v\nwant %s", test.event, err, want)
			continue
		}
		if shown := refusal.Event(); shown.Fatal || shown.ErrorType != ErrorProtocol || ValidateEvent(shown) != nil {
			t.Errorf("%#v: got %+v, want a non-fatal protocol error", test.event, shown)
		}
	}
}

type foreignEvent struct{}

func (foreignEvent) EventType() string { return "status" }

func TestInvalidCommandsAreNotEncoded(t *testing.T) {
	for _, test := range []struct {
		frame Frame
		want  string
	}{
		{&Message{&UtilityFileRead{}}, "Failed to encode command: /read_id Expected non-empty string"},
		{&Message{&Init{ThinkingLevel: "deep"}}, "Failed to encode command: /thinking_level Expected union value"},
		{&Message{&ClientToolResult{Content: []ContentBlock{{Type: "audio"}}}}, "Failed to encode command: /content/0/type Expected union value"},
		{&Message{}, "Failed to encode command: $ Expected a message, not <nil>"},
		{(*Message)(nil), "Failed to encode frame: $ Expected a message, not *contracts.Message"},
		{&Send{ID: strings.Repeat("x", 65), Message: json.RawMessage(`{}`)}, "Failed to encode frame: /id Expected at most 64 bytes"},
		{&MessageEnvelope{Message: json.RawMessage(`{`)}, "Failed to encode frame: /message Expected JSON: unexpected end of text at byte 1"},
		{&ResetEnvelope{Snapshot: json.RawMessage(`{}`)}, "Failed to encode frame: /reason Expected union value"},
	} {
		if _, err := EncodeFrame(test.frame); err == nil || err.Error() != test.want {
			t.Errorf("%#v:\n got %v\nwant %s", test.frame, err, test.want)
		}
	}
	if _, err := EncodeSnapshot(nil, 0); err == nil {
		t.Error("nil snapshot: got nil, want an error")
	}
}

// Bodies were encoded by us and stay whole, however long they are.
func TestBodiesAreNotMarked(t *testing.T) {
	body := mustEncode(t, &Status{Message: strings.Repeat("x", 2*MaxValueBytes)}).Body
	frame, err := EncodeFrame(&MessageEnvelope{Cursor: 9, Message: body})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"message","cursor":9,"message":` + string(body) + `}`; string(frame) != want {
		t.Errorf("got %d bytes, want %d", len(frame), len(want))
	}
}

func TestEqualMapsHaveEqualBytes(t *testing.T) {
	env := map[string]string{"c": "3", "a": "1", "b": "2"}
	got, err := EncodeCommand(&UtilityCommandStart{CommandID: "x", Env: env})
	if want := `{"type":"utility_command_start","command_id":"x","command":"","env":{"a":"1","b":"2","c":"3"}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

// Strings are written eight bytes at a time. What they become is what they become
// byte by byte, whatever stands where.
func TestStringsAreEncodedExactly(t *testing.T) {
	slow := func(s string) string {
		var out strings.Builder
		for _, r := range s { // bytes that are not UTF-8 are U+FFFD
			switch short := strings.IndexRune("\"\\\n\r\t\b\f", r); {
			case short >= 0:
				out.WriteString(`\` + string(`"\nrtbf`[short]))
			case r < ' ', r == '\u2028', r == '\u2029':
				fmt.Fprintf(&out, `\u%04x`, r)
			default:
				out.WriteRune(r)
			}
		}
		return `"` + out.String() + `"`
	}
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"\u2028", "\u2029", "é", "€", "😀", "\xf0\x9f", "\xed\xa0\x80", "01234567", "\r\n", `"`, `\`, "!", "#", "[", "]", "\x7f", "\x80"}
	for range 100_000 {
		var s []byte
		for range rng.IntN(30) {
			if rng.IntN(3) == 0 {
				s = append(s, pieces[rng.IntN(len(pieces))]...)
			} else {
				s = append(s, byte(rng.IntN(256)))
			}
		}
		if got, want := string(appendString(nil, string(s))), slow(string(s)); got != want {
			t.Fatalf("%q became %s, want %s", s, got, want)
		}
	}
}
