package contracts

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	notParsed = "Failed to parse command: "
	invalid   = notParsed + "Invalid headless command: "
	typeless  = invalid + "$.type Expected known headless command type"
	unknown   = notParsed + "Unknown headless command type"
)

// refusals are texts that both policies refuse with the same words.
var refusals = []struct{ name, text, want string }{
	{"empty", ``, notParsed + "unexpected end of text at byte 0"},
	{"blank", " \t\r\n", notParsed + "unexpected end of text at byte 4"},
	{"word", `prompt`, notParsed + "expected a value at byte 0"},
	{"cut", `{"type":"prompt","content":"`, notParsed + "unexpected end of text at byte 28"},
	{"cut after an escape", `{"type":"prompt","content":"\`, notParsed + "unexpected end of text at byte 29"},
	{"cut word", `{"type":"ws.bye","keep":tru`, notParsed + "expected a value at byte 24"},
	{"two values", `{"type":"cancel"}{"type":"cancel"}`, notParsed + "unexpected text after the value at byte 17"},
	{"byte order mark", "\ufeff" + `{"type":"cancel"}`, notParsed + "expected a value at byte 0"},
	{"trailing comma", `{"type":"cancel",}`, notParsed + "expected a property name at byte 17"},
	{"leading comma", `{,"type":"cancel"}`, notParsed + "expected a property name at byte 1"},
	{"no comma", `{"type":"cancel" "a":1}`, notParsed + "expected a comma or the end of the object at byte 17"},
	{"no comma in array", `{"type":"cancel","a":[1 2]}`, notParsed + "expected a comma or the end of the array at byte 24"},
	{"no colon", `{"type" "cancel"}`, notParsed + "expected a colon at byte 8"},
	{"bare key", `{type:"cancel"}`, notParsed + "expected a property name at byte 1"},
	{"raw control", "{\"type\":\"prompt\",\"content\":\"a\tb\"}", notParsed + "control character in a string at byte 29"},
	{"raw control after an escape", "{\"type\":\"prompt\",\"content\":\"\\na\tb\"}", notParsed + "control character in a string at byte 31"},
	{"bad escape", `{"type":"prompt","content":"\x"}`, notParsed + "invalid escape in a string at byte 28"},
	{"bad unicode escape", `{"type":"prompt","content":"\u12g4"}`, notParsed + `invalid \u escape in a string at byte 28`},
	{"leading zero", `{"type":"ws.ack","cursor":01}`, notParsed + "expected a comma or the end of the object at byte 27"},
	{"plus", `{"type":"ws.ack","cursor":+1}`, notParsed + "expected a value at byte 26"},
	{"bare minus", `{"type":"ws.ack","cursor":-}`, notParsed + "expected a digit at byte 27"},
	{"no fraction digits", `{"type":"ws.ack","cursor":1.}`, notParsed + "expected a digit at byte 28"},
	{"no exponent digits", `{"type":"ws.ack","cursor":1e+}`, notParsed + "expected a digit at byte 29"},
	{"not a number", `{"type":"ws.ack","cursor":NaN}`, notParsed + "expected a value at byte 26"},
	{"invalid UTF-8", "{\"type\":\"prompt\",\"content\":\"é\xff\"}", notParsed + "invalid UTF-8 at byte 30"},
	{"invalid UTF-8 in a key", "{\"type\":\"cancel\",\"\xc0\xaf\":1}", notParsed + "invalid UTF-8 at byte 18"},
	{"encoded surrogate", "{\"type\":\"prompt\",\"content\":\"\xed\xa0\x80\"}", notParsed + "invalid UTF-8 at byte 28"},
	{"syntax error after unknown type", `{"type":"nap",}`, notParsed + "expected a property name at byte 14"},
	{"syntax error before the type", `{"a":tru,"type":"cancel"}`, notParsed + "expected a value at byte 5"},

	{"null", `null`, typeless},
	{"number", `5`, typeless},
	{"string", `"prompt"`, typeless},
	{"array", `[{"type":"prompt","content":""}]`, typeless},
	{"no type", `{}`, typeless},
	{"type in other case", `{"Type":"prompt","content":"a"}`, typeless},
	{"type not a string", `{"type":17,"content":"a"}`, typeless},
	{"type null", `{"content":"a","type":null}`, typeless},
	{"first type not a string", `{"type":{},"type":"cancel"}`, typeless},

	{"unknown type", `{"type":"nap"}`, unknown},
	{"empty type", `{"type":""}`, unknown},
	{"type value in other case", `{"type":"Prompt","content":"a"}`, unknown},
	{"server's type", `{"type":"status","message":"a"}`, unknown},
	{"unknown type last", `{"content":"a","type":"nap"}`, unknown},
	{"unknown control frame", `{"type":"ws.nap","id":"n"}`, unknown},
	{"server's control frame", `{"type":"ws.pong","id":null,"lease_expires_at":null}`, unknown},

	{"missing key", `{"type":"prompt"}`, invalid + "/content Required property"},
	{"wrong string", `{"type":"prompt","content":7}`, invalid + "/content Expected string"},
	{"wrong boolean", `{"type":"tool_response","call_id":"a","approved":"yes"}`, invalid + "/approved Expected boolean"},
	{"wrong number", `{"type":"utility_command_resize","command_id":"a","columns":"80","rows":24}`, invalid + "/columns Expected number"},
	{"fraction", `{"type":"utility_command_resize","command_id":"a","columns":80.5,"rows":24}`, invalid + "/columns Expected integer"},
	{"too large", `{"type":"utility_command_resize","command_id":"a","columns":9223372036854775808,"rows":24}`, invalid + "/columns Expected integer"},
	{"huge exponent", `{"type":"utility_command_resize","command_id":"a","columns":1e99999999999999999999,"rows":24}`, invalid + "/columns Expected integer"},
	{"negative cursor", `{"type":"ws.ack","cursor":-1}`, invalid + "/cursor Expected non-negative integer"},
	{"wrong array", `{"type":"prompt","content":"","attachments":"a"}`, invalid + "/attachments Expected array"},
	{"wrong item", `{"type":"prompt","content":"","attachments":["a",1]}`, invalid + "/attachments/1 Expected string"},
	{"null item", `{"type":"prompt","content":"","attachments":[null]}`, invalid + "/attachments/0 Expected string"},
	{"wrong object", `{"type":"hello","client_info":[]}`, invalid + "/client_info Expected object"},
	{"wrong map", `{"type":"utility_command_start","command_id":"a","command":"b","env":"c"}`, invalid + "/env Expected object"},
	{"wrong map value", `{"type":"utility_command_start","command_id":"a","command":"b","env":{"c/d~e":1}}`, invalid + "/env/c~1d~0e Expected string"},
	{"null map value", `{"type":"utility_command_start","command_id":"a","command":"b","env":{"":null}}`, invalid + "/env/ Expected string"},
	{"missing nested key", `{"type":"hello","client_info":{}}`, invalid + "/client_info/name Required property"},
	{"wrong enum", `{"type":"hello","role":"Viewer"}`, invalid + "/role Expected union value"},
	{"empty enum", `{"type":"hello","role":""}`, invalid + "/role Expected union value"},
	{"enum not a string", `{"type":"hello","role":1}`, invalid + "/role Expected union value"},
	{"wrong enum item", `{"type":"hello","capabilities":{"server_requests":["approval","review"]}}`, invalid + "/capabilities/server_requests/1 Expected union value"},
	{"repeated item", `{"type":"hello","capabilities":{"utility_operations":["file_read","file_read"]}}`, invalid + "/capabilities/utility_operations Expected unique items"},
	{"repeated key", `{"type":"prompt","content":"a","content":"b"}`, invalid + "/content Duplicate property"},
	{"repeated type", `{"type":"cancel","type":"cancel"}`, invalid + "/type Duplicate property"},
	{"repeated type, not first", `{"content":"","type":"prompt","type":"cancel"}`, invalid + "/type Duplicate property"},
	{"repeated key spelt differently", `{"type":"prompt","content":"a","c\u006fntent":"b"}`, invalid + "/content Duplicate property"},
	{"repeated map key", `{"type":"utility_command_start","command_id":"a","command":"b","env":{"c":"","c":""}}`, invalid + "/env/c Duplicate property"},
	{"null in required", `{"type":"prompt","content":null}`, invalid + "/content Expected string"},
	{"block without type", `{"type":"client_tool_result","call_id":"a","content":[{"text":"b"}],"is_error":false}`, invalid + "/content/0/type Required property"},
	{"block of unknown type", `{"type":"client_tool_result","call_id":"a","content":[{"type":"audio"}],"is_error":false}`, invalid + "/content/0/type Expected union value"},
	{"text block without text", `{"type":"client_tool_result","call_id":"a","content":[{"type":"text"}],"is_error":false}`, invalid + "/content/0/text Required property"},
	{"image block without its keys", `{"type":"client_tool_result","call_id":"a","content":[{"type":"image"}],"is_error":false}`, invalid + "/content/0/data Required property; /content/0/mimeType Required property"},
	{"block not an object", `{"type":"client_tool_result","call_id":"a","content":["b"],"is_error":false}`, invalid + "/content/0 Expected object"},
	{"empty command id", `{"type":"utility_command_terminate","command_id":""}`, invalid + "/command_id Expected non-empty string"},
	{"empty search id", `{"type":"utility_file_search","search_id":"","query":"q"}`, invalid + "/search_id Expected non-empty string"},
	{"empty read id", `{"type":"utility_file_read","read_id":"","path":"p"}`, invalid + "/read_id Expected non-empty string"},
	{"empty watch id", `{"type":"utility_file_watch_start","watch_id":""}`, invalid + "/watch_id Expected non-empty string"},
	{"long command id", `{"type":"utility_command_terminate","command_id":"` + strings.Repeat("x", MaxIDBytes+1) + `"}`, invalid + "/command_id Expected at most 128 bytes"},
	{"long send id", `{"type":"ws.send","id":"` + strings.Repeat("é", 33) + `","message":{}}`, invalid + "/id Expected at most 64 bytes"},
	{"send without message", `{"type":"ws.send","id":"a"}`, invalid + "/message Required property"},
	{"several", `{"type":"server_request_response","request_type":"review","approved":1}`, invalid + "/request_type Expected union value; /approved Expected boolean; /request_id Required property"},
}

func TestRefusalTexts(t *testing.T) {
	for _, test := range refusals {
		for _, strict := range []bool{false, true} {
			_, err := (&Decoder{Strict: strict}).ClientFrame([]byte(test.text))
			refusal, ok := errors.AsType[*Error](err)
			if !ok {
				t.Errorf("%s (strict %v): got %v, want an *Error", test.name, strict, err)
				continue
			}
			if refusal.Message != test.want {
				t.Errorf("%s (strict %v):\n got %s\nwant %s", test.name, strict, refusal.Message, test.want)
			}
			if refusal.Code != CodeBadRequest || refusal.Type != ErrorProtocol {
				t.Errorf("%s: got code %s and type %s, want bad_request and protocol", test.name, refusal.Code, refusal.Type)
			}
		}
	}
}

// additions are texts that only a strict decoder refuses (D13).
var additions = []struct{ name, text, want, pointers string }{
	{"unknown key", `{"type":"prompt","content":"hello","unexpected":true}`, "/unexpected Unexpected property", "/unexpected"},
	{"unknown key before the type", `{"a":[{}],"type":"cancel"}`, "/a Unexpected property", "/a"},
	{"empty key", `{"type":"cancel","":1}`, "/ Unexpected property", "/"},
	{"key in other case", `{"type":"hello","Role":7}`, "/Role Unexpected property", "/Role"},
	{"nested unknown key", `{"type":"hello","client_info":{"name":"a","a/b":1}}`, "/client_info/a~1b Unexpected property", "/client_info/a~1b"},
	{"unknown key in a block", `{"type":"client_tool_result","call_id":"a","content":[{"type":"text","text":"","note":1}],"is_error":false}`, "/content/0/note Unexpected property", "/content/0/note"},
	{"key of another block", `{"type":"client_tool_result","call_id":"a","content":[{"type":"text","text":"","data":""}],"is_error":false}`, "/content/0/data Unexpected property", "/content/0/data"},
	{"unknown result key", `{"type":"tool_response","call_id":"a","approved":true,"result":{"success":true,"output":"","details":{}}}`, "/result/details Unexpected property", "/result/details"},
	{"several", `{"type":"cancel","a":1,"b":2}`, "/a Unexpected property; /b Unexpected property", "/a /b"},
	{"null string", `{"type":"hello","protocol_version":null}`, "/protocol_version Expected string", ""},
	{"null enum", `{"type":"init","approval_mode":null}`, "/approval_mode Expected union value", ""},
	{"null object", `{"type":"hello","capabilities":null}`, "/capabilities Expected object", ""},
	{"null array", `{"type":"prompt","content":"","attachments":null}`, "/attachments Expected array", ""},
	{"null boolean", `{"type":"server_request_response","request_id":"a","request_type":"approval","approved":null}`, "/approved Expected boolean", ""},
	{"null integer", `{"type":"utility_file_search","search_id":"a","query":"","limit":null}`, "/limit Expected number", ""},
	{"long key", `{"type":"cancel","` + strings.Repeat("k", 100) + `":1}`, "/" + strings.Repeat("k", maxPointerBytes) + "… Unexpected property", "/" + strings.Repeat("k", maxPointerBytes) + "…"},
}

func TestAdditionsAreIgnoredUnlessStrict(t *testing.T) {
	for _, test := range additions {
		var pointers []string
		tolerant := &Decoder{Unknown: func(p string) { pointers = append(pointers, p) }}
		if _, err := tolerant.Command([]byte(test.text)); err != nil {
			t.Errorf("%s: tolerant decoder: %v", test.name, err)
		}
		if got := strings.Join(pointers, " "); got != test.pointers {
			t.Errorf("%s: got ignored keys %q, want %q", test.name, got, test.pointers)
		}
		_, err := (&Decoder{Strict: true}).Command([]byte(test.text))
		if err == nil || err.Error() != invalid+test.want {
			t.Errorf("%s: strict decoder:\n got %v\nwant %s", test.name, err, invalid+test.want)
		}
	}
}

func TestUnknownKeysMayNotRepeat(t *testing.T) {
	for _, text := range []string{`{"type":"cancel","a":1,"a":2}`, `{"type":"hello","client_info":{"name":"n","a":1,"a":2}}`} {
		_, err := (&Decoder{}).Command([]byte(text))
		if err == nil || !strings.HasSuffix(err.Error(), "/a Duplicate property") {
			t.Errorf("%s: got %v, want a duplicate property", text, err)
		}
	}
}

func TestNullMeansAbsent(t *testing.T) {
	got, err := (&Decoder{}).Command([]byte(`{"type":"utility_command_start","command_id":"a","command":"b","cwd":null,"env":null,"shell_mode":null,"allow_stdin":null,"rows":null}`))
	want := &UtilityCommandStart{CommandID: "a", Command: "b"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestOptOutsMayRepeat(t *testing.T) { // R12
	got, err := (&Decoder{Strict: true}).Command([]byte(`{"type":"hello","opt_out_notifications":["status","status"]}`))
	want := &Hello{OptOutNotifications: []Notification{NotifyStatus, NotifyStatus}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestStringsAreDecodedExactly(t *testing.T) {
	for _, test := range []struct{ literal, want string }{
		{`""`, ""},
		{`"plain é 日本 🙂"`, "plain é 日本 🙂"},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{`"\u0041\u00e9\u65e5\u0000"`, "Aé日\x00"},
		{`"\ud83d\ude42"`, "🙂"},
		{`"\uD83D\uDE42"`, "🙂"},
		{`"a\ud83d"`, "a\ufffd"},
		{`"\ude42b"`, "\ufffdb"},
		{`"\ud83d\ud83d\ude42"`, "\ufffd🙂"},
		{`"\ud83dx\ude42"`, "\ufffdx\ufffd"},
		{`"\ud83d\n"`, "\ufffd\n"},
		{`"\ufffd"`, "\ufffd"},
		{`"\\ud83d"`, `\ud83d`},
	} {
		got, err := (&Decoder{}).Command([]byte(`{"type":"prompt","content":` + test.literal + `}`))
		if err != nil || got.(*Prompt).Content != test.want {
			t.Errorf("%s: got %+v, %v; want %q", test.literal, got, err, test.want)
		}
	}
}

func TestAnySpellingOfAnIntegerIsRead(t *testing.T) {
	const refused = int64(-99)
	for _, test := range []struct {
		literal string
		want    int64
	}{
		{"0", 0}, {"-0", 0}, {"0.0", 0}, {"0e5", 0}, {"0e-5", 0}, {"-0.000e9", 0},
		{"7", 7}, {"7.0", 7}, {"1e3", 1000}, {"1E+3", 1000}, {"1.5e1", 15}, {"120e-1", 12}, {"-3", -3},
		{"9223372036854775807", 9223372036854775807}, {"-9223372036854775808", -9223372036854775808},
		{"0.9223372036854775807e19", 9223372036854775807}, {"10000000000000000000000e-20", 100},
		{"9223372036854775808", refused}, {"-9223372036854775809", refused}, {"1e19", refused},
		{"99999999999999999999", refused}, {"18446744073709551616", refused}, {"1e20", refused},
		{"1.5", refused}, {"1e-1", refused}, {"0.1", refused}, {"15e-2", refused},
		{"1e9999999999999999999999", refused}, {"1e-9999999999999999999999", refused},
		{"0e9999999999999999999999", refused},
	} {
		got, err := (&Decoder{}).Command([]byte(`{"type":"utility_file_search","search_id":"a","query":"","limit":` + test.literal + `}`))
		if test.want == refused {
			if err == nil || err.Error() != invalid+"/limit Expected integer" {
				t.Errorf("%s: got %v, want a refusal", test.literal, err)
			}
		} else if err != nil || *got.(*UtilityFileSearch).Limit != test.want {
			t.Errorf("%s: got %v, want %d", test.literal, err, test.want)
		}
	}
}

func TestCursorsUseAll64Bits(t *testing.T) {
	got, err := (&Decoder{}).ServerFrame([]byte(`{"type":"heartbeat","cursor":18446744073709551615}`))
	want := &HeartbeatEnvelope{Cursor: 18446744073709551615}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestNestingIsBounded(t *testing.T) {
	nested := func(levels int) []byte { // the message itself is one level
		return []byte(`{"type":"cancel","a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`)
	}
	if _, err := (&Decoder{}).Command(nested(MaxDepth)); err != nil {
		t.Errorf("%d levels: got %v, want nil", MaxDepth, err)
	}
	_, err := (&Decoder{}).Command(nested(MaxDepth + 1))
	want := notParsed + "nesting deeper than 128 levels at byte 148"
	if err == nil || err.Error() != want {
		t.Errorf("%d levels: got %v, want %s", MaxDepth+1, err, want)
	}
	bottomless := []byte(`{"type":"cancel","a":` + strings.Repeat(`{"a":`, 1<<20))
	if _, err := (&Decoder{}).Command(bottomless); err == nil || err.Error() != "Failed to parse command: nesting deeper than 128 levels at byte 656" {
		t.Errorf("bottomless: got %v", err)
	}
}

// A hostile text cannot make us say much, nor keep much.
func TestRefusalsStayShort(t *testing.T) {
	text := `{"type":"client_tool_result","call_id":"a","is_error":false,"content":[` + strings.Repeat(`{},`, 1<<18) + `{}]`
	for i := range 1000 {
		text += `,"` + strings.Repeat("k", 200) + string(rune('a'+i%26)) + strings.Repeat("k", i) + `":1`
	}
	_, err := (&Decoder{Strict: true}).Command([]byte(text + "}"))
	if err == nil || len(err.Error()) > 1500 {
		t.Errorf("got %v, want a short refusal", err)
	}
}

func TestRefusalNamesTheRequest(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"type":"utility_file_read","read_id":"r"}`, "r"},
		{`{"type":"utility_file_search","search_id":"s"}`, "s"},
		{`{"type":"utility_file_watch_start","watch_id":"w","root_dir":1}`, "w"},
		{`{"type":"utility_command_start","command_id":"c"}`, "c"},
		{`{"type":"tool_response","call_id":"t"}`, "t"},
		{`{"type":"server_request_response","request_id":"q"}`, "q"},
		{`{"call_id":"t","type":"server_request_response","request_id":"q"}`, "q"},
		{`{"type":"nap","call_id":"t"}`, "t"},
		{`{"type":"ws.send","id":"n"}`, "n"},
		{`{"call_id":"t"}`, "t"},
		{`{"type":"tool_response","call_id":"t",`, "t"},
		{`{"type":"tool_response","call_id":7}`, ""},
		{`{"type":"utility_command_start","command_id":"` + strings.Repeat("x", 129) + `"}`, ""},
		{`[{"call_id":"t"}]`, ""},
		{`{"type":"nap","inner":{"call_id":"t"}}`, ""},
	} {
		_, err := (&Decoder{}).ClientFrame([]byte(test.text))
		refusal, ok := errors.AsType[*Error](err)
		if !ok || refusal.RequestID != test.want {
			t.Errorf("%s: got %#v, want request id %q", test.text, err, test.want)
		}
	}
}

func TestResultsDoNotShareMemoryWithTheText(t *testing.T) {
	text := []byte(`{"type":"ws.send","id":"n-1","message":{"type":"cancel"}}`)
	got, err := (&Decoder{}).ClientFrame(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		text[i] = 'x'
	}
	if send := got.(*Send); send.ID != "n-1" || string(send.Message) != `{"type":"cancel"}` {
		t.Errorf("got %s %s, want the frame as it was", send.ID, send.Message)
	}
}

func TestControlFramesAreNotCommands(t *testing.T) {
	if _, err := (&Decoder{}).Command([]byte(`{"type":"ws.ping"}`)); err == nil || err.Error() != unknown {
		t.Errorf("got %v, want %s", err, unknown)
	}
}

// Old servers leave fields out or send null for them; a client copes.
func TestClientToleratesOldServers(t *testing.T) {
	for _, test := range []struct {
		text string
		want Event
	}{
		{`{"type":"ready","model":"m","provider":"p"}`, &Ready{Model: "m", Provider: "p"}},
		{`{"type":"ready","protocol_version":null,"model":"m","provider":"p","session_id":null,"executor_type":null}`, &Ready{Model: "m", Provider: "p"}},
		{`{"type":"session_info","cwd":"/"}`, &SessionInfo{Cwd: "/"}},
		{`{"type":"response_end","response_id":"a"}`, &ResponseEnd{ResponseID: "a", ToolsSummary: ToolsSummary{ToolsUsed: []string{}}}},
		{`{"type":"response_end","response_id":"a","usage":null,"tools_summary":null,"duration_ms":null,"ttft_ms":null}`, &ResponseEnd{ResponseID: "a", ToolsSummary: ToolsSummary{ToolsUsed: []string{}}}},
		{`{"type":"utility_command_exited","command_id":"a","success":true}`, &UtilityCommandExited{CommandID: "a", Success: true}},
		{`{"type":"error","message":"a","fatal":false}`, &ErrorEvent{Message: "a"}},
		{`{"type":"status","message":"a","colour":"red","nested":{"x":1}}`, &Status{Message: "a"}},
		{`{"type":"hello_ok","protocol_version":"1","role":null}`, &HelloOK{ProtocolVersion: "1"}},
		{`{"type":"connection_info","controller_connection_id":null}`, &ConnectionInfo{ControllerConnectionID: Null()}},
	} {
		got, err := (&Decoder{}).Event([]byte(test.text))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", test.text, got, err, test.want)
		}
	}
}

func TestClientStillNeedsTheEssentials(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"tool_start"}`:                                               "/call_id Required property",
		`{"type":"tool_start","call_id":null}`:                                "/call_id Expected string",
		`{"type":"error","message":"a","fatal":0}`:                            "/fatal Expected boolean",
		`{"type":"response_start","response_id":"a","x":1,"response_id":"b"}`: "/response_id Duplicate property",
	} {
		_, err := (&Decoder{}).Event([]byte(text))
		if err == nil || err.Error() != "Failed to parse message: Invalid headless message: "+want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestStrictDecoderWantsCompleteServers(t *testing.T) {
	_, err := (&Decoder{Strict: true}).Event([]byte(`{"type":"ready","model":"m","provider":"p","colour":1}`))
	want := "Failed to parse message: Invalid headless message: /colour Unexpected property; /protocol_version Required property; /session_id Required property"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestUnknownTypeCanBeSkipped(t *testing.T) {
	d := &Decoder{}
	_, commandErr := d.Command([]byte(`{"type":"nap"}`))
	_, eventErr := d.Event([]byte(`{"type":"nap","x":1}`))
	_, frameErr := d.ServerFrame([]byte(`{"x":1,"type":"ws.nap"}`))
	for _, err := range []error{commandErr, eventErr, frameErr} {
		if !errors.Is(err, ErrUnknownType) || !errors.Is(err, &Error{Code: CodeBadRequest}) {
			t.Errorf("got %v, want ErrUnknownType and bad_request", err)
		}
	}
	if _, err := d.Event([]byte(`{"type":"status"}`)); errors.Is(err, ErrUnknownType) {
		t.Errorf("got %v, want another error", err)
	}
}

func TestOldSnapshotNeedsNoPendingRequests(t *testing.T) {
	text := strings.Replace(string(exampleSnapshot(t)), `"pending_requests"`, `"pending_elsewhere"`, 1)
	var ignored []string
	d := &Decoder{Unknown: func(p string) { ignored = append(ignored, p) }}
	got, err := d.Snapshot([]byte(text))
	if err != nil || got.State.PendingRequests == nil || len(got.State.PendingRequests) > 0 {
		t.Errorf("got %+v, %v; want an empty list", got, err)
	}
	if want := []string{"/state/pending_elsewhere"}; !slices.Equal(ignored, want) {
		t.Errorf("got ignored keys %q, want %q", ignored, want)
	}
}

func TestSnapshotRefusals(t *testing.T) {
	for text, want := range map[string]string{
		``:     "Failed to parse message: unexpected end of text at byte 0",
		`[]`:   "Failed to parse message: Invalid headless message: $ Expected object",
		`{} 1`: "Failed to parse message: unexpected text after the value at byte 3",
		`{"protocolVersion":"1","session_id":"s","cursor":1,"last_init":7}`: "Failed to parse message: Invalid headless message: /state Required property",
	} {
		_, err := (&Decoder{}).Snapshot([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// A client of an older version attaches although another client opts out of something new.
func TestClientTakesUnknownNotifications(t *testing.T) {
	const text = `{"type":"connection_info","opt_out_notifications":["status","gossip"],"connection_count":1,"subscriber_count":1,"connections":[]}`
	ev, err := new(Decoder).Event([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := ev.(*ConnectionInfo).OptOutNotifications; !slices.Equal(got, []Notification{"status", "gossip"}) {
		t.Errorf("got %q, want both", got)
	}
	if _, err := (&Decoder{Strict: true}).Event([]byte(text)); err == nil {
		t.Error("a strict decoder: got no error, want one")
	}
	if _, err := new(Decoder).Command([]byte(`{"type":"hello","opt_out_notifications":["gossip"]}`)); err == nil {
		t.Error("a server: got no error, want one")
	}
}
