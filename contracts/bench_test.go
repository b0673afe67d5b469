package contracts

import (
	"strings"
	"testing"
)

func BenchmarkDecodePrompt(b *testing.B) {
	text := []byte(`{"type":"prompt","content":"` + strings.Repeat("why does this fail? ", 10) + `","attachments":["a.txt"]}`)
	d := &Decoder{}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Command(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeResponseChunk(b *testing.B) {
	chunk := &ResponseChunk{ResponseID: "answer-1", Content: "The lease is held by \"another\" connection.\n"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeEvent(chunk); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow is what a client does for each event: it opens the envelope
// and decodes the body.
func BenchmarkFollow(b *testing.B) {
	text := []byte(`{"type":"message","cursor":41,"message":{"type":"response_chunk","response_id":"answer-1","content":"The lease is held by another connection.","is_thinking":false}}`)
	d := &Decoder{}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		frame, err := d.ServerFrame(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := d.Event(frame.(*MessageEnvelope).Message); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeSnapshot(b *testing.B) {
	snapshot, err := (&Decoder{}).Snapshot(exampleSnapshot(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeSnapshot(snapshot, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodeOutput is what a command costs that writes short lines to a
// terminal.
func BenchmarkEncodeOutput(b *testing.B) {
	ev := &UtilityCommandOutput{CommandID: "build", Stream: "stdout", Content: strings.Repeat("1234567\r\n", MaxTextBytes/9)}
	b.SetBytes(int64(len(ev.Content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeEvent(ev); err != nil {
			b.Fatal(err)
		}
	}
}
