package sse

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestEventsCarryTheEnvelopes(t *testing.T) {
	body, snapshot := []byte(`{"type":"ready"}`), []byte(`{"cursor":7}`)
	f := Form{"e7f3"}
	for name, tt := range map[string]struct {
		got  []byte
		want string
	}{
		"message":   {f.AppendMessage(nil, 17, body), "id: e7f3.17\ndata: {\"type\":\"message\",\"cursor\":17,\"message\":{\"type\":\"ready\"}}\n\n"},
		"first":     {f.AppendMessage(nil, 0, body), "id: e7f3.0\ndata: {\"type\":\"message\",\"cursor\":0,\"message\":{\"type\":\"ready\"}}\n\n"},
		"snapshot":  {f.AppendSnapshot(nil, 7, snapshot), "id: e7f3.7\ndata: {\"type\":\"snapshot\",\"snapshot\":{\"cursor\":7}}\n\n"},
		"reset":     {f.AppendReset(nil, 7, contracts.ResetLagged, snapshot), "id: e7f3.7\ndata: {\"type\":\"reset\",\"reason\":\"lagged\",\"snapshot\":{\"cursor\":7}}\n\n"},
		"heartbeat": {f.AppendHeartbeat(nil, 18, false), "data: {\"type\":\"heartbeat\",\"cursor\":18}\n\n"},
		"keepalive": {f.AppendHeartbeat(nil, 18, true), ": ka\n\n"},
		"opening":   {f.AppendOpening(nil), "retry: 2000\n\n"},
		"data":      {AppendData(nil, []byte(`{"a":1}`)), "data: {\"a\":1}\n\n"},
		"history":   {f.AppendHistory(nil, []byte(`{"type":"history"}`)), "data: {\"type\":\"history\"}\n\n"},
		"control":   {f.AppendControl(nil, []byte(`{"type":"ws.pong"}`)), ""},
		"appended":  {f.AppendOpening(f.AppendHeartbeat([]byte("before "), 1, true)), "before : ka\n\nretry: 2000\n\n"},
		"last": {f.AppendMessage(nil, math.MaxUint64, body),
			"id: e7f3.18446744073709551615\ndata: {\"type\":\"message\",\"cursor\":18446744073709551615,\"message\":{\"type\":\"ready\"}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if string(tt.got) != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
			if events, err := parse(strings.TrimPrefix(tt.want, "before ")); err != nil || (len(events) == 0) != (tt.want == "") {
				t.Errorf("got %v, %v, want events", events, err)
			}
		})
	}
}

func TestFormsOfOneEpochShareTheirBytes(t *testing.T) {
	var a, b, other contracts.Form = Form{"e7f3"}, Form{strings.Clone("e7f3")}, Form{"a001"}
	if a != b || a == other {
		t.Errorf("got %v and %v, want equal forms for equal epochs only", a == b, a == other)
	}
}

func TestFormsAllocateNothing(t *testing.T) {
	f, body, buf := Form{"e7f3"}, []byte(`{"type":"ready"}`), make([]byte, 0, 4096)
	if got := testing.AllocsPerRun(100, func() {
		b := f.AppendOpening(buf)
		b = f.AppendSnapshot(b, 1<<40, body)
		b = f.AppendReset(b, 1<<40, contracts.ResetGap, body)
		b = f.AppendMessage(b, 1<<40, body)
		b = f.AppendHeartbeat(b, 1<<40, false)
		f.AppendControl(b, body)
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// The parser has to be strict, or the tests that rely on it mean nothing.
func TestParserForgivesNothing(t *testing.T) {
	for _, stream := range []string{
		"data: {}", "data: {}\n", "data: {}\r\n\r\n", "data:{}\n\n", "data: {\n\n", "data: {}\ndata: {}\n\n", "data: \n\n", "event: x\ndata: {}\n\n",
		"id: 1\nid: 2\n\n", "data: {}\n\n\n", "data\n\n", "\n\n", "data: \"\xff\"\n\n", "id: \x00\n\n", "\ufeffdata: {}\n\n", "data: {}\n\nid: 1",
	} {
		if events, err := parse(stream); err == nil {
			t.Errorf("%q: got %v, want an error", stream, events)
		}
	}
}

// FuzzEvents encodes events with hostile text and looks for what was put in.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"", "plain", "a\nb", "a\r\nb\rc", "\n\ndata: {\"type\":\"reset\"}\n\n", "\u2028\u2029\u0085", "id: 5\nretry: 1\n", "\x00\xff\xfe", "\ufeff", "\"}\n\n", "]]>",
	} {
		f.Add(text, uint64(17), "e7f3")
	}
	f.Fuzz(func(t *testing.T, text string, cursor uint64, epoch string) {
		if strings.Trim(epoch, "0123456789abcdef") != "" || epoch == "" || len(epoch) > contracts.MaxIDBytes {
			epoch = "e"
		}
		args, err := json.MarshalIndent(map[string]string{"text": text}, "\r\n", "\n")
		if err != nil {
			t.Fatal(err)
		}
		form := Form{epoch}
		stream := form.AppendOpening(nil)
		for _, e := range []contracts.Event{
			&contracts.ResponseChunk{ResponseID: "r", Content: text},
			&contracts.RawAgentEvent{EventKind: "x", Event: args}, // values are the agents' own bytes
			&contracts.Status{Message: text},
		} {
			encoded, err := contracts.EncodeEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			stream = form.AppendMessage(stream, cursor, encoded.Body)
			stream = form.AppendHeartbeat(stream, cursor, false)
			stream = form.AppendHeartbeat(stream, cursor, true)
			stream = form.AppendSnapshot(stream, cursor, encoded.Body) // any JSON text will do
		}
		events, err := parse(string(stream))
		if err != nil || len(events) != 1+3*4 {
			t.Fatalf("got %d events, %v, want 13", len(events), err)
		}
		for _, e := range events {
			if want := fmt.Sprintf("%s.%d", epoch, cursor); e.id != "" && e.id != want {
				t.Errorf("got id %q, want %q", e.id, want)
			}
			if e.id == "" && e.comment != "ka" && e.retry != "2000" && !strings.Contains(e.data, `"heartbeat"`) {
				t.Errorf("got %+v without an id", e)
			}
			if gotEpoch, got, ok := ParseID(e.id); e.id != "" && cursor <= math.MaxInt64 && (!ok || gotEpoch != epoch || got != int64(cursor)) {
				t.Errorf("%q: got %q, %d, %v, want what was written", e.id, gotEpoch, got, ok)
			}
		}
		var chunk struct{ Message struct{ Content string } }
		err = json.Unmarshal([]byte(events[1].data), &chunk)
		if want := repaired(text); err != nil || chunk.Message.Content != want {
			t.Errorf("got %q, %v, want %q", chunk.Message.Content, err, want)
		}
	})
}

// repaired is text as encoding/json repairs it, a mark for each bad byte.
func repaired(text string) string {
	quoted, err := json.Marshal(text)
	if err == nil {
		err = json.Unmarshal(quoted, &text)
	}
	if err != nil {
		panic(err)
	}
	return text
}

func TestIDsAreReadBack(t *testing.T) {
	long := strings.Repeat("e", contracts.MaxIDBytes)
	for _, tt := range []struct {
		id     string
		epoch  string
		cursor int64
		ok     bool
	}{
		{"e7f3.17", "e7f3", 17, true},
		{"e7f3.0", "e7f3", 0, true},
		{"e.9223372036854775807", "e", math.MaxInt64, true},
		{"a.b.5", "a.b", 5, true},
		{"a..5", "a.", 5, true},
		{long + ".1", long, 1, true},
		{"", "", 0, false},
		{".", "", 0, false},
		{".5", "", 0, false},
		{"e.", "", 0, false},
		{"e", "", 0, false},
		{"5", "", 0, false},
		{"e.9223372036854775808", "", 0, false},
		{"e.99999999999999999999999", "", 0, false},
		{"e.-1", "", 0, false},
		{"e.-0", "", 0, false},
		{"e.+1", "", 0, false},
		{"e.01", "", 0, false},
		{"e.1_0", "", 0, false},
		{"e.0x1", "", 0, false},
		{"e.1 ", "", 0, false},
		{"e. 1", "", 0, false},
		{"e.1e3", "", 0, false},
		{"e.٣", "", 0, false}, // a digit, but not of ours
		{"e.1\n", "", 0, false},
		{long + "e.1", "", 0, false},
	} {
		if epoch, cursor, ok := ParseID(tt.id); epoch != tt.epoch || cursor != tt.cursor || ok != tt.ok {
			t.Errorf("%q: got %q, %d, %v, want %q, %d, %v", tt.id, epoch, cursor, ok, tt.epoch, tt.cursor, tt.ok)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, id := range []string{"e7f3.17", "", ".", "e.", ".1", "a.b.5", "e.-0", "e.+1", "e.00", "e.9223372036854775808", "\x00.1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		epoch, cursor, ok := ParseID(id)
		switch {
		case !ok && (epoch != "" || cursor != 0):
			t.Errorf("%q: got %q, %d beside no id", id, epoch, cursor)
		case ok && (epoch == "" || len(epoch) > contracts.MaxIDBytes || cursor < 0):
			t.Errorf("%q: got %q, %d, want them within bounds", id, epoch, cursor)
		case ok && epoch+"."+strconv.FormatInt(cursor, 10) != id:
			t.Errorf("%q: got %q, %d, which is another id", id, epoch, cursor)
		}
	})
}
