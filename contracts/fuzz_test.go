package contracts

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each target holds a decoder to the same promises: its error is one a client
// can be shown; it takes for JSON what encoding/json takes for JSON; a strict
// decoder accepts less and reads the same; and what was decoded survives being
// encoded and decoded again.

func addSeeds(f *testing.F) {
	for _, text := range examples(f) {
		f.Add(text)
	}
	for _, test := range refusals {
		f.Add([]byte(test.text))
	}
	for _, test := range additions {
		f.Add([]byte(test.text))
	}
	f.Add([]byte(`{"Type":"prompt","TYPE":"hello"}`))
	f.Add([]byte(`{"type":"tool_call","call_id":"a","tool":"b","args":"\ud800","requires_approval":false}`))
	f.Add([]byte(`{"type":"tool_call","call_id":"a","tool":"b","args":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `,"requires_approval":false}`))
}

func FuzzCommand(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := decodeBoth(t, text, (*Decoder).Command)
		if !ok {
			return
		}
		checkRoundTrip(t, got, EncodeCommand, (*Decoder).Command)
		checkStandardDecoder(t, text, got, EncodeCommand)
	})
}

func FuzzClientFrame(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := decodeBoth(t, text, (*Decoder).ClientFrame)
		if !ok {
			return
		}
		checkRoundTrip(t, got, EncodeFrame, (*Decoder).ClientFrame)
		if _, bare := got.(*Message); !bare {
			checkStandardDecoder(t, text, got, EncodeFrame)
		}
	})
}

func FuzzEvent(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := decodeBoth(t, text, (*Decoder).Event)
		if !ok {
			return
		}
		encode := func(e Event) ([]byte, error) {
			encoded, err := EncodeEvent(e)
			return encoded.Body, err
		}
		if e, isError := got.(*ErrorEvent); isError && e.ErrorType == "" {
			return // an old server's; we do not send such errors
		}
		checkRoundTrip(t, got, encode, (*Decoder).Event)
		checkSpan(t, mustEncode(t, got))
	})
}

func FuzzServerFrame(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := decodeBoth(t, text, (*Decoder).ServerFrame)
		if ok {
			checkRoundTrip(t, got, EncodeFrame, (*Decoder).ServerFrame)
			checkStandardDecoder(t, text, got, EncodeFrame)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add(exampleSnapshot(f))
	f.Add([]byte(`{"protocolVersion":"","session_id":"","cursor":0,"last_init":null,"state":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := decodeBoth(t, text, (*Decoder).Snapshot)
		if ok {
			checkRoundTrip(t, got, func(s *Snapshot) ([]byte, error) { return EncodeSnapshot(s, 0) }, (*Decoder).Snapshot)
		}
	})
}

// decodeBoth decodes a text with both policies and returns what the tolerant
// one makes of it.
func decodeBoth[T any](t *testing.T, text []byte, decode func(*Decoder, []byte) (T, error)) (T, bool) {
	ignored := 0
	got, err := decode(&Decoder{Unknown: func(string) { ignored++ }}, text)
	strict, strictErr := decode(&Decoder{Strict: true}, text)
	checkError(t, text, err)
	checkError(t, text, strictErr)
	if strictErr == nil && (err != nil || ignored > 0 || !reflect.DeepEqual(got, strict)) {
		t.Errorf("the tolerant decoder differs: got %#v, %v (%d keys ignored); want %#v", got, err, ignored, strict)
	}
	return got, err == nil
}

// checkError holds a decoding error to what clients may be shown, and its
// absence to what encoding/json thinks of the text.
func checkError(t *testing.T, text []byte, err error) {
	valid := json.Valid(text) && utf8.Valid(text)
	if err == nil {
		if !valid {
			t.Errorf("accepted %q, which is not JSON", text)
		}
		return
	}
	refusal, ok := errors.AsType[*Error](err)
	if !ok || refusal.Code != CodeBadRequest || refusal.Type != ErrorProtocol {
		t.Fatalf("got %#v, want a bad_request of type protocol", err)
	}
	if len(refusal.Message) > 2000 || !utf8.ValidString(refusal.Message) || len(refusal.RequestID) > MaxIDBytes {
		t.Errorf("got an error that is not fit to be shown: %q, %q", refusal.Message, refusal.RequestID)
	}
	_, reason, _ := strings.Cut(refusal.Message, ": ")
	syntax := !strings.HasPrefix(reason, "Invalid headless ") && !strings.HasPrefix(reason, "Unknown headless ")
	deep := strings.HasPrefix(reason, "nesting deeper")
	if syntax && !deep && valid {
		t.Errorf("refused %q as not JSON: %s", text, reason)
	}
	if !syntax && !valid {
		t.Errorf("refused %q as %s, but it is not JSON", text, reason)
	}
}

// checkRoundTrip encodes a message, decodes and encodes it again. The second
// encoding must be the first: only values too large to send may have changed.
func checkRoundTrip[T any](t *testing.T, message T, encode func(T) ([]byte, error), decode func(*Decoder, []byte) (T, error)) {
	first, err := encode(message)
	if err != nil {
		t.Fatalf("encoding what was decoded: %v", err)
	}
	if bytes.ContainsAny(first, "\n\u2028\u2029") || !utf8.Valid(first) {
		t.Errorf("got %q, want one line of UTF-8", first)
	}
	again, err := decode(&Decoder{Strict: true}, first)
	if err != nil {
		t.Fatalf("decoding %s: %v", first, err)
	}
	second, err := encode(again)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("round trip: got %s, %v; want %s", second, err, first)
	}
	if !bytes.Contains(first, []byte(`"truncated":true`)) && !reflect.DeepEqual(message, again) {
		t.Errorf("round trip: got %#v, want %#v", again, message)
	}
}

// checkStandardDecoder compares a message with what encoding/json reads, where
// it can read the text: it takes null for any value, but no 1.0 for an integer.
func checkStandardDecoder[T any](t *testing.T, text []byte, got T, encode func(T) ([]byte, error)) {
	want := reflect.New(reflect.TypeOf(got).Elem()).Interface()
	if json.Unmarshal(text, want) != nil || hasFoldedKeys(text) {
		return
	}
	a, _ := encode(got)
	b, err := encode(want.(T))
	if err == nil && !bytes.Equal(a, b) {
		t.Errorf("%s:\n got %s\nwant %s", text, a, b)
	}
}

// hasFoldedKeys reports whether a text may hold keys in another case, which
// encoding/json takes for ours.
func hasFoldedKeys(text []byte) bool {
	return !bytes.Equal(text, bytes.ToLower(text)) || bytes.ContainsRune(text, 'ſ') || bytes.ContainsRune(text, '\u212a') || bytes.ContainsRune(text, '\\')
}

// checkSpan decodes the span of an event's content by itself.
func checkSpan(t *testing.T, e Encoded) {
	if e.TextEnd == 0 {
		return
	}
	var alone string
	span := e.Body[e.TextStart:e.TextEnd]
	if err := json.Unmarshal([]byte(`"`+string(span)+`"`), &alone); err != nil {
		t.Errorf("got span %s of %s: %v", span, e.Body, err)
	}
	var message struct{ Content string }
	if err := json.Unmarshal(e.Body, &message); err != nil || message.Content != alone {
		t.Errorf("got span %q, %v; want %q", alone, err, message.Content)
	}
}
