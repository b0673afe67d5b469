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

// exampleBodies returns the lines of testdata/bodies.jsonl by the name of their
// type, in the exact form the encoder gives them. Every body stands there, but
// for the manifest, which is in another.
func exampleBodies(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile("testdata/bodies.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]json.RawMessage{}
	for line := range bytes.Lines(text) {
		if err := json.Unmarshal(line, &all); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return all
}

// newBody returns a pointer to an empty body of the type.
func newBody(t testing.TB, name string) any {
	t.Helper()
	for _, body := range bodies {
		if typ := reflect.TypeOf(body).Elem(); typ.Name() == name {
			return reflect.New(typ).Interface()
		}
	}
	t.Fatalf("got an example of %s, want only those of bodies", name)
	return nil
}

func TestBodiesSurviveStrictRoundTrip(t *testing.T) {
	for name, text := range exampleBodies(t) {
		body := newBody(t, name)
		if err := (&Decoder{Strict: true}).Body(text, body); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, err := EncodeBody(body); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s, round trip:\n got %s, %v\nwant %s", name, again, err, text)
		}
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{``, "Invalid request body: "},
		{`{`, "Invalid request body: "},
		{`[]`, "Expected object"},
		{`null`, "Expected object"},
		{`{"role":"owner"}`, "/role"},
		{`{"takeControl":"yes"}`, "/takeControl Expected boolean"},
		{`{"role":"viewer","role":"viewer"}`, "role"},
		{`{"capabilities":{"serverRequests":["approval","approval"]}}`, "/capabilities/serverRequests"},
		{`{"optOutNotifications":["noise"]}`, "/optOutNotifications/0"},
		{`{"clientInfo":{}}`, "/clientInfo/name"},
		{strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200), "Invalid request body: "},
	} {
		err := (&Decoder{}).Body([]byte(tt.text), new(AttachRequest))
		if !errors.Is(err, &Error{Code: CodeBadRequest}) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: got %v, want a refusal that says %q", tt.text, err, tt.want)
		}
	}
}

func TestUnknownKeyOfBodyIsIgnoredUnlessStrict(t *testing.T) { // D13
	var got AttachRequest
	text := []byte(`{"shade":"blue","role":"viewer","model":null}`)
	if err := (&Decoder{}).Body(text, &got); err != nil || got.Role != RoleViewer {
		t.Errorf("tolerant: got %+v, %v; want the viewer", got, err)
	}
	if err := (&Decoder{Strict: true}).Body(text, &got); err == nil {
		t.Error("strict: got no error, want one")
	}
}

func TestRequestSaysWhatHelloWould(t *testing.T) {
	var req AttachRequest
	if err := (&Decoder{}).Body(exampleBodies(t)["AttachRequest"], &req); err != nil {
		t.Fatal(err)
	}
	got := req.Hello()
	want := &Hello{
		ProtocolVersion: "2026-04-02", ClientInfo: &ClientInfo{Name: "ops", Version: "1"}, Role: RoleController,
		Capabilities: &Capabilities{
			ServerRequests: []RequestType{RequestApproval, RequestClientTool}, RawAgentEvents: true, People: true,
			UtilityOperations: []UtilityOperation{OperationFileRead},
		},
		OptOutNotifications: []Notification{NotifyStatus}, DisplayName: "ann",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func FuzzBody(f *testing.F) {
	for name, text := range exampleBodies(f) {
		f.Add(name, []byte(text))
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		for _, body := range bodies {
			typ := reflect.TypeOf(body).Elem()
			if typ.Name() != name {
				continue
			}
			body := reflect.New(typ).Interface()
			if err := (&Decoder{}).Body(text, body); err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Fatalf("an error that a client cannot be shown: %v", err)
				}
			}
		}
	})
}
