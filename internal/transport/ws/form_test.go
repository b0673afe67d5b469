package ws

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestFramesCarryTheEnvelopes(t *testing.T) {
	body, snapshot := []byte(`{"type":"ready"}`), []byte(`{"cursor":7}`)
	f := Form{}
	for name, tt := range map[string]struct {
		frame []byte
		want  string
	}{
		"message":  {f.AppendMessage(nil, 17, body), `{"type":"message","cursor":17,"message":{"type":"ready"}}`},
		"first":    {f.AppendMessage(nil, 0, body), `{"type":"message","cursor":0,"message":{"type":"ready"}}`},
		"last":     {f.AppendMessage(nil, math.MaxUint64, body), `{"type":"message","cursor":18446744073709551615,"message":{"type":"ready"}}`},
		"snapshot": {f.AppendSnapshot(nil, 7, snapshot), `{"type":"snapshot","snapshot":{"cursor":7}}`},
		"reset":    {f.AppendReset(nil, 7, contracts.ResetLagged, snapshot), `{"type":"reset","reason":"lagged","snapshot":{"cursor":7}}`},
		"history":  {f.AppendHistory(nil, []byte(`{"type":"history"}`)), `{"type":"history"}`},
		"control":  {f.AppendControl(nil, []byte(`{"type":"ws.pong"}`)), `{"type":"ws.pong"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := &raw{t: t, r: bufio.NewReader(bytes.NewReader(tt.frame))}
			first, payload, err := p.receive()
			if err != nil || first != finText || string(payload) != tt.want || p.r.Buffered() > 0 {
				t.Fatalf("got %#x %s, %v, want %s alone", first, payload, err, tt.want)
			}
		})
	}
}

func TestHeartbeatIsAPingAndAnEnvelope(t *testing.T) {
	ping := []byte{0x89, 0}
	if got := (Form{}).AppendHeartbeat(nil, 18, true); !bytes.Equal(got, ping) {
		t.Errorf("quiet: got % x, want % x", got, ping)
	}
	want := append(ping, text(`{"type":"heartbeat","cursor":18}`)...)
	if got := (Form{}).AppendHeartbeat(nil, 18, false); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFrameLengthsAtTheirBounds(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 20} {
		want := strings.Repeat("x", n)
		frame := Form{}.AppendControl([]byte("before"), []byte(want))
		rest, ok := bytes.CutPrefix(frame, []byte("before"))
		p := &raw{t: t, r: bufio.NewReader(bytes.NewReader(rest))}
		first, payload, err := p.receive()
		if !ok || err != nil || first != finText || string(payload) != want {
			t.Errorf("%d bytes: got %#x and %d bytes, %v", n, first, len(payload), err)
		}
	}
}

func TestAppendingDoesNotAllocate(t *testing.T) {
	dst, body := make([]byte, 0, 4<<10), []byte(strings.Repeat("x", 200))
	var f contracts.Form = Form{}
	for name, step := range map[string]func(){
		"message":   func() { f.AppendMessage(dst, math.MaxUint64, body) },
		"snapshot":  func() { f.AppendSnapshot(dst, 1, body) },
		"reset":     func() { f.AppendReset(dst, 1, contracts.ResetGap, body) },
		"heartbeat": func() { f.AppendHeartbeat(dst, math.MaxUint64, false) },
		"control":   func() { f.AppendControl(dst, body) },
	} {
		if got := testing.AllocsPerRun(100, step); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, got)
		}
	}
}

func TestAllFormsAreEqual(t *testing.T) {
	if (&Conn{}).Form() != (&Conn{}).Form() {
		t.Error("forms of two connections differ, want them equal")
	}
}

func TestCloseFrameFitsAControlFrame(t *testing.T) {
	frame := closeFrame(4400, strings.Repeat("x", 500))
	if len(frame) != 127 || frame[1] != 125 {
		t.Errorf("got %d bytes that claim %d, want 127 and 125", len(frame), frame[1])
	}
	if code, _, ok := closing(frame); !ok || code != 4400 {
		t.Errorf("got code %d, %v, want 4400", code, ok)
	}
	if _, _, ok := closing([]byte{finClose, 0}); ok {
		t.Error("got a code from a close frame without one")
	}
}

// Whatever the body, the envelope around it is one JSON text with that body.
func FuzzMessageFrame(f *testing.F) {
	f.Add(uint64(1), `{"type":"ready"}`)
	f.Fuzz(func(t *testing.T, cursor uint64, body string) {
		if !json.Valid([]byte(body)) {
			return
		}
		p := &raw{t: t, r: bufio.NewReader(bytes.NewReader(Form{}.AppendMessage(nil, cursor, []byte(body))))}
		_, payload, err := p.receive()
		if err != nil {
			t.Fatal(err)
		}
		var got contracts.MessageEnvelope
		if err := json.Unmarshal(payload, &got); err != nil {
			t.Fatal(err)
		}
		if compact(t, got.Message) != compact(t, []byte(body)) || got.Cursor != cursor {
			t.Fatalf("got %d %s, want %d %s", got.Cursor, got.Message, cursor, body)
		}
	})
}

func compact(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func BenchmarkAppendMessage(b *testing.B) {
	dst, body := make([]byte, 0, 4<<10), []byte(strings.Repeat("x", 200))
	b.ReportAllocs()
	for b.Loop() {
		Form{}.AppendMessage(dst, 123456, body)
	}
}
