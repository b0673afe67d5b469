package pty

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is written in whatever pieces: what is kept is the end of it, and is
// read from any cursor in it.
func TestJournalKeepsTheNewestBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 40).Draw(t, "most")
		j := journal{most: most}
		var all []byte
		for _, piece := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 100)).Draw(t, "pieces") {
			j.append(piece)
			all = append(all, piece...)
		}
		tail, head := j.bounds()
		if want := max(0, len(all)-most); head != uint64(len(all)) || tail != uint64(want) {
			t.Fatalf("got %d to %d, want %d to %d", tail, head, want, len(all))
		}
		from := rapid.Uint64Range(tail, head).Draw(t, "from")
		p := make([]byte, rapid.IntRange(0, 2*most).Draw(t, "room"))
		n, err := j.read(from, p)
		want := all[from:min(head, from+uint64(len(p)))]
		if err != nil || !bytes.Equal(p[:n], want) {
			t.Fatalf("got %q, %v; want %q", p[:n], err, want)
		}
		for _, gone := range []uint64{tail - 1, head + 1} {
			if gone == tail-1 && tail == 0 {
				continue
			}
			if n, err := j.read(gone, p); n != 0 || !errors.Is(err, ErrGap) {
				t.Fatalf("got %d bytes, %v from %d; want a gap", n, err, gone)
			}
		}
	})
}
