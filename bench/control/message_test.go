package control

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

func TestMessagesAreOfOneSizeAndCarryTheirMark(t *testing.T) {
	sent := time.UnixMicro(1_700_000_000_123_456)
	for _, n := range []uint64{0, 7, 1<<32 - 1, 9_999_999_999} {
		m := Envelope(Text(n, sent))
		if len(m) != MessageSize {
			t.Errorf("message %d: got %d bytes, want %d", n, len(m), MessageSize)
		}
		if c := bytes.Count(m, []byte{Mark}); c != 1 {
			t.Fatalf("message %d: got %d marks, want 1", n, c)
		}
		got, micros, ok := ParseMark(m[bytes.IndexByte(m, Mark):])
		if !ok || got != n || micros != sent.UnixMicro() {
			t.Errorf("mark of message %d: got %d, %d, %v; want %d, %d, true", n, got, micros, ok, n, sent.UnixMicro())
		}
	}
}

func TestMessageIsAnEnvelopeWithAChunkOfText(t *testing.T) {
	text := Text(3, time.UnixMicro(0))
	var got struct {
		Type    string
		Cursor  uint64
		Message struct {
			Type    string
			Content string
		}
	}
	if err := json.Unmarshal(Envelope(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "message" || got.Message.Type != "response_chunk" || got.Message.Content != string(text) {
		t.Errorf("decoded message: got %+v, want a response_chunk with content %q", got, text)
	}
}

func TestWhatIsNoMarkIsRefused(t *testing.T) {
	mark := Text(3, time.UnixMicro(5))[:MarkWidth]
	for i := range mark {
		bad := bytes.Clone(mark)
		bad[i] = 'x'
		if _, _, ok := ParseMark(bad); ok {
			t.Errorf("ParseMark(%q): got ok, want refused", bad)
		}
	}
	if _, _, ok := ParseMark(mark[:MarkWidth-1]); ok {
		t.Errorf("ParseMark of a mark without its last byte: got ok, want refused")
	}
}
