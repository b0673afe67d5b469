package contracts

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// hostedTypes are the types of testdata/hosted.jsonl, each line of which is an
// object with the type's name as its only key.
var hostedTypes = map[string]func() any{
	"RunnerIdentity": func() any { return new(RunnerIdentity) },
	"DrainRequest":   func() any { return new(DrainRequest) },
	"DrainAnswer":    func() any { return new(DrainAnswer) },
	"Manifest":       func() any { return new(Manifest) },
}

// A hostedExample is one line of testdata/hosted.jsonl.
type hostedExample struct {
	name string
	body []byte
}

func hostedExamples(t testing.TB) []hostedExample {
	t.Helper()
	text, err := os.ReadFile("testdata/hosted.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var list []hostedExample
	for line := range bytes.Lines(text) {
		var example map[string]json.RawMessage
		if err := json.Unmarshal(line, &example); err != nil {
			t.Fatal(err)
		}
		for name, body := range example {
			list = append(list, hostedExample{name, body})
		}
	}
	return list
}

// noteHosted notes which fields of which types stand in the examples.
func noteHosted(t testing.TB, seen map[string]map[string]bool) {
	t.Helper()
	for _, e := range hostedExamples(t) {
		var fields map[string]any
		if err := json.Unmarshal(e.body, &fields); err != nil {
			t.Fatal(err)
		}
		noteFields(seen, byGoType[reflect.TypeOf(hostedTypes[e.name]()).Elem()], fields)
	}
}

func TestHostedExamplesSurviveStrictRoundTrip(t *testing.T) {
	for _, e := range hostedExamples(t) {
		value := hostedTypes[e.name]()
		if err := (&Decoder{Strict: true}).Body(e.body, value); err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		if again, err := EncodeBody(value); err != nil || !bytes.Equal(again, e.body) {
			t.Errorf("%s:\n got %s, %v\nwant %s", e.name, again, err, e.body)
		}
	}
}

func TestHostedExamplesCoverEveryField(t *testing.T) {
	seen := make(map[string]map[string]bool)
	noteHosted(t, seen)
	for name := range hostedTypes {
		if seen[name] == nil {
			t.Errorf("no example of %s", name)
		}
	}
	for _, typ := range Types() {
		for _, f := range typ.Fields {
			// The state in the snapshot has an example of its own.
			if seen[typ.Name] != nil && typ.Name != "State" && !seen[typ.Name][f.Name] {
				t.Errorf("no example has %s.%s", typ.Name, f.Name)
			}
		}
	}
}

func TestDrainRequestIsRead(t *testing.T) {
	for body, want := range map[string]DrainRequest{
		"":                              {},
		" \r\n":                         {},
		"{}":                            {},
		`{"reason":" a ","x":{"y":[]}}`: {Reason: "a"},
		`{"stop_reason":"a","requestedBy":"b","exportPaths":["c"]}`:              {Reason: "a", RequestedBy: "b", ExportPaths: []string{"c"}},
		`{"stop_reason":"a","reason":"b","requestedBy":"c"}`:                     {Reason: "b", RequestedBy: "c"},
		`{"stop_reason":"a","reason":null,"requested_by":" ","requestedBy":"b"}`: {Reason: "a", RequestedBy: "b"},
		`{"export_paths":null}`:                       {},
		`{"export_paths":[]}`:                         {},
		`{"export_paths":[],"exportPaths":["a"]}`:     {ExportPaths: []string{"a"}},
		`{"export_paths":["a","./b"," c ","\u00e4"]}`: {ExportPaths: []string{"a", "./b", " c ", "ä"}},
	} {
		got, err := (&Decoder{}).DrainRequest([]byte(body))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", body, got, err, want)
		}
	}
}

func TestWrongDrainRequestIsNamed(t *testing.T) {
	many := `{"export_paths":["a"` + strings.Repeat(`,"a"`, MaxExportPaths) + `]}`
	for body, want := range map[string]string{
		"[]":                                 "Drain payload must be a JSON object",
		"null":                               "Drain payload must be a JSON object",
		"reason":                             "Drain payload must be a JSON object",
		`{"reason":1}`:                       "reason must be a string",
		`{"stop_reason":{}}`:                 "reason must be a string",
		`{"requestedBy":["a"]}`:              "requested_by must be a string",
		`{"requested_by":true}`:              "requested_by must be a string",
		`{"export_paths":"a"}`:               "export_paths must be an array",
		`{"exportPaths":{}}`:                 "export_paths must be an array",
		`{"export_paths":["a","b",3]}`:       "export_paths[2] must be a non-empty string",
		`{"export_paths":["a","b",null]}`:    "export_paths[2] must be a non-empty string",
		`{"export_paths":["a",""]}`:          "export_paths[1] must be a non-empty string",
		`{"export_paths":["a","\t"]}`:        "export_paths[1] must be a non-empty string",
		`{"export_paths":["a\u0000b"]}`:      "export_paths[0] must be a non-empty string",
		many:                                 "export_paths must have at most 1024 entries",
		`{"reason":"a","reason":"b"}`:        "Invalid drain payload: /reason Duplicate property",
		`{"reason":"a"`:                      "Invalid drain payload: unexpected end of text at byte 13",
		`{"reason":"a"} {}`:                  "Invalid drain payload: unexpected text after the value at byte 15",
		"{\"reason\":\"\xff\"}":              "Invalid drain payload: invalid UTF-8 at byte 11",
		strings.Repeat(" ", MaxDrainBytes+1): "Drain payload must be at most 64000 bytes",
	} {
		got, err := (&Decoder{}).DrainRequest([]byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%.60s: got %+v, %v; want %s", body, got, err, want)
		}
	}
	large := &Error{Code: CodePayloadTooLarge}
	if _, err := (&Decoder{}).DrainRequest(make([]byte, MaxDrainBytes+1)); !errors.Is(err, large) {
		t.Errorf("got %v, want payload_too_large", err)
	}
	if _, err := (&Decoder{}).DrainRequest([]byte(`{}` + strings.Repeat(" ", MaxDrainBytes-2))); err != nil {
		t.Errorf("got %v, want the longest body accepted", err)
	}
	if got, err := (&Decoder{Strict: true}).DrainRequest([]byte(`{"x":1}`)); err == nil {
		t.Errorf("got %+v, want an unknown key refused by a strict decoder", got)
	}
}

func TestRefusalsOfRunnersAreInTheirDomain(t *testing.T) {
	for _, code := range Codes() {
		want := "maestro.headless"
		if code == CodeRuntimeNotReady || code == CodeRuntimeOwnedElsewhere {
			want = "maestro.hosted_runner"
		}
		if got := (&Error{Code: code}).Details()[0].Domain; got != want {
			t.Errorf("%s: got %s, want %s", code, got, want)
		}
	}
}

// FuzzDrainRequest holds the decoder to JSON as the standard library reads it,
// and to errors that clients can be shown.
func FuzzDrainRequest(f *testing.F) {
	f.Add([]byte(`{"reason":" a ","export_paths":["b"]}`))
	f.Add([]byte(`{"stop_reason":null,"exportPaths":[""],"x":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := (&Decoder{}).DrainRequest(body)
		if err != nil {
			refusal, ok := errors.AsType[*Error](err)
			if !ok || len(refusal.Message) > 2000 {
				t.Fatalf("got %v, want an error that can be shown", err)
			}
			return
		}
		if len(bytes.TrimSpace(body)) > 0 && !json.Valid(body) {
			t.Fatalf("accepted %q, which is not JSON", body)
		}
		text, err := EncodeBody(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&Decoder{Strict: true}).DrainRequest(text)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("round trip: got %+v, %v; want %+v", again, err, got)
		}
	})
}

// FuzzManifest looks for texts that a restore takes for a manifest but that are
// none by the encoder, once the blocks that restore does not read are there.
func FuzzManifest(f *testing.F) {
	for _, e := range hostedExamples(f) {
		if e.name == "Manifest" {
			f.Add(e.body)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := (&Decoder{}).Manifest(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid_snapshot_manifest: ") {
				t.Fatalf("got %v, want it to say what is invalid", err)
			}
			return
		}
		got.PlatformEvidence.Status, got.PlatformEvidence.RuntimeFlushStatus = Drained, FlushCompleted
		for i := range got.PendingRequests {
			got.PendingRequests[i].Request = json.RawMessage("{}") // of any depth when it is read
		}
		got.Snapshot = json.RawMessage("{}")
		if _, err := EncodeBody(got); err != nil {
			t.Errorf("got %v of what was read, want a manifest", err)
		}
	})
}
