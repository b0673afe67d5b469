package contracts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"
)

// examples returns the lines of testdata/examples.jsonl: at least one message
// or frame of every type, in the exact form the encoders give it.
func examples(t testing.TB) [][]byte {
	t.Helper()
	file, err := os.Open("testdata/examples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines [][]byte
	for scan := bufio.NewScanner(file); scan.Scan(); {
		lines = append(lines, slices.Clone(scan.Bytes()))
	}
	return lines
}

// exampleSnapshot returns testdata/snapshot.json, which has every field.
func exampleSnapshot(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(text)
}

// typeOf returns the type key of a text.
func typeOf(t testing.TB, text []byte) string {
	t.Helper()
	var message struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &message); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return message.Type
}

// recode decodes a text of any family and encodes the result.
func recode(t testing.TB, d *Decoder, text []byte) (any, []byte, error) {
	t.Helper()
	wire := typeOf(t, text)
	if _, ok := events.byWire[wire]; ok {
		event, err := d.Event(text)
		if err != nil {
			return nil, nil, err
		}
		encoded, err := EncodeEvent(event)
		return event, encoded.Body, err
	}
	read := d.ServerFrame
	if _, ok := serverFrames.byWire[wire]; !ok {
		read = d.ClientFrame
	}
	frame, err := read(text)
	if err != nil {
		return nil, nil, err
	}
	again, err := EncodeFrame(frame)
	return frame, again, err
}

func TestExamplesSurviveStrictRoundTrip(t *testing.T) {
	d := &Decoder{Strict: true}
	for _, text := range examples(t) {
		_, again, err := recode(t, d, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if !bytes.Equal(again, text) {
			t.Errorf("round trip:\n got %s\nwant %s", again, text)
		}
	}
}

func TestExamplesCoverEveryType(t *testing.T) {
	seen := make(map[string]bool)
	for _, text := range examples(t) {
		seen[typeOf(t, text)] = true
	}
	for _, typ := range Types() {
		if typ.Group != GroupObject && !seen[typ.Wire] {
			t.Errorf("no example of %s", typ.Wire)
		}
	}
}

// Every optional key of every message type stands in some example, and so does
// every nested object's, so the round trip covers each field.
func TestExamplesCoverEveryField(t *testing.T) {
	seen := make(map[string]map[string]bool) // by type, the keys seen
	texts := append(examples(t), []byte(`{"type":"snapshot","snapshot":`+string(exampleSnapshot(t))+`}`))
	for _, text := range texts {
		var value map[string]any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		noteFields(seen, typesByWire()[typeOf(t, text)], value)
	}
	for name, text := range exampleBodies(t) {
		var value map[string]any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		noteFields(seen, byGoType[reflect.TypeOf(newBody(t, name)).Elem()], value)
	}
	for _, typ := range Types() {
		for _, f := range typ.Fields {
			if !seen[typ.Name][f.Name] {
				t.Errorf("no example has %s.%s", typ.Name, f.Name)
			}
		}
	}
}

func typesByWire() map[string]*Type {
	types := make(map[string]*Type)
	for _, typ := range byGoType {
		types[typ.Wire] = typ
	}
	return types
}

func noteFields(seen map[string]map[string]bool, typ *Type, value map[string]any) {
	typ.prepare()
	name := typ.Name
	if seen[name] == nil {
		seen[name] = make(map[string]bool)
	}
	for i := range typ.Fields {
		f := &typ.Fields[i]
		inner, ok := value[f.Name]
		if !ok {
			continue
		}
		seen[name][f.Name] = true
		nested, items := f.Object, []any{inner}
		if f.Kind == KindList {
			nested, items = f.Item.Object, inner.([]any)
		}
		if f.Body == "snapshot" {
			nested = snapshotType
		}
		for _, item := range items {
			if object, ok := item.(map[string]any); ok && nested != nil {
				noteFields(seen, nested, object)
			}
		}
	}
}

func TestSnapshotSurvivesStrictRoundTrip(t *testing.T) {
	want := exampleSnapshot(t)
	snapshot, err := (&Decoder{Strict: true}).Snapshot(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := EncodeSnapshot(snapshot, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("round trip:\n got %s\nwant %s", got, want)
	}
}

// What is on the wire does not depend on our own decoder: the standard one,
// given our structs, reads the same.
func TestExamplesAgreeWithEncodingJSON(t *testing.T) {
	for _, text := range examples(t) {
		got, _, err := recode(t, &Decoder{}, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if message, ok := got.(*Message); ok {
			got = message.Command
		}
		switch got.(type) {
		case *HelloOK, *ConnectionInfo:
			continue // encoding/json writes a NullString but cannot read one
		}
		want := reflect.New(reflect.TypeOf(got).Elem()).Interface()
		if err := json.Unmarshal(text, want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", text, got, want)
		}
	}
}

// The structs mean the same to encoding/json: what it writes of them is what
// our encoder writes, but for the type key.
func TestStandardEncoderAgrees(t *testing.T) {
	for _, text := range examples(t) {
		message, _, err := recode(t, &Decoder{}, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if bare, ok := message.(*Message); ok {
			message = bare.Command
		}
		standard, err := json.Marshal(message)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got, want map[string]any
		if err := errors.Join(json.Unmarshal(standard, &got), json.Unmarshal(text, &want)); err != nil {
			t.Fatal(err)
		}
		delete(want, "type")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", text, got, want)
		}
	}
}

func TestFramesNameTheirType(t *testing.T) {
	for _, text := range examples(t) {
		message, _, err := recode(t, &Decoder{}, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got string
		switch m := message.(type) {
		case Frame:
			got = m.FrameType()
		case Event:
			got = m.EventType()
		}
		if want := typeOf(t, text); got != want {
			t.Errorf("got type %q, want %q", got, want)
		}
	}
}
