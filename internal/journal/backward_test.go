package journal

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// backward returns the entries before a cursor, the newest first.
func backward(t *testing.T, j *Journal, before uint64) (list []Entry) {
	t.Helper()
	for e, err := range j.Backward(before) {
		if err != nil {
			t.Fatalf("backward from %d: %v", before, err)
		}
		list = append(list, e)
	}
	return list
}

func journalOf(t *testing.T, s Store, opts Options) *Journal {
	t.Helper()
	j, err := New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

func TestBackwardReadsEveryEntryOnce(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 20_000})
	mustAppend(t, s, notes(1, 3*maxBlock)...)
	j := journalOf(t, s, Options{})
	for _, before := range []uint64{0, 1, 2, 1000, 3 * maxBlock, 3*maxBlock + 1, 1 << 60} {
		got := backward(t, j, before)
		want := notes(1, 3*maxBlock)[:max(min(before, 3*maxBlock+1), 1)-1]
		slices.Reverse(want)
		same := func(a, b Entry) bool { return a.Cursor == b.Cursor && bytes.Equal(a.Body, b.Body) }
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("backward from %d: got %d entries, want the %d before it, the newest first", before, len(got), len(want))
		}
	}
}

func TestBackwardBoundsItsMemory(t *testing.T) {
	s := NewMemory(MemoryOptions{})
	for c := uint64(1); c <= 40; c++ {
		mustAppend(t, s, Entry{Cursor: c, Body: bytes.Repeat([]byte{byte(c)}, blockBytes/4)})
	}
	j := journalOf(t, s, Options{})
	block, err := j.readBlock(0, 41)
	if err != nil || len(block) != 4 || block[3].Cursor != 40 {
		t.Errorf("got %d entries and %v, want the newest 4, which have as many bytes as are kept", len(block), err)
	}
	if got := backward(t, j, 41); len(got) != 40 || got[39].Cursor != 1 {
		t.Errorf("got %d entries, want all 40", len(got))
	}
}

func TestBackwardLeavesOutHiddenBodies(t *testing.T) {
	j := journalOf(t, NewMemory(MemoryOptions{}), Options{})
	for _, kind := range []Kind{Message, Note, Checkpoint, Snapshot} {
		if _, err := j.Append(Entry{Kind: kind, Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"x", "", "", "x"} {
		if got := backward(t, j, 5)[i]; string(got.Body) != want {
			t.Errorf("entry %d: got body %q, want %q", got.Cursor, got.Body, want)
		}
	}
}

func TestBackwardPassesLostEntries(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a"), SegmentBytes: 500})
	mustAppend(t, s, notes(1, 30)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("b"), SegmentBytes: 500}) // entries may be missing: a new epoch
	_, last := s.Bounds()
	if last == 30 {
		t.Fatal("got no new epoch")
	}
	mustAppend(t, s, notes(last+1, last+3)...)
	got := backward(t, journalOf(t, s, Options{}), last+4)
	if len(got) != 33 || got[2].Cursor != last+1 || got[3].Cursor != 30 || got[32].Cursor != 1 {
		t.Errorf("got %d entries, want 3 of the new epoch and then 30 of the old one", len(got))
	}
}

func TestBackwardShowsOnlyVisibleEntries(t *testing.T) {
	j := journalOf(t, NewMemory(MemoryOptions{}), Options{Deferred: true})
	for range 3 {
		if _, err := j.Append(Entry{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	j.Reveal(2)
	if got := backward(t, j, 100); len(got) != 2 || got[0].Cursor != 2 {
		t.Errorf("got %v, want the two visible entries", got)
	}
}

func TestBackwardEndsWhereRetentionIs(t *testing.T) {
	s := NewMemory(MemoryOptions{RetainBytes: 64 << 10})
	for c := uint64(1); c <= 5000; c++ {
		mustAppend(t, s, note(c))
	}
	j := journalOf(t, s, Options{})
	first, _ := s.Bounds()
	if got := backward(t, j, 5001); uint64(len(got)) != 5001-first || got[len(got)-1].Cursor != first {
		t.Errorf("got %d entries, want those from %d", len(got), first)
	}
	overtaken := 0
	for _, err := range j.Backward(5001) {
		if err != nil {
			t.Fatal(err)
		}
		if overtaken++; overtaken > 1 {
			continue
		}
		for c := uint64(5001); c <= 20_000; c++ {
			mustAppend(t, s, note(c))
		}
	}
	if overtaken != firstBlock {
		t.Errorf("got %d entries after retention removed the others, want the block of %d", overtaken, firstBlock)
	}
}

func TestBackwardReportsDamage(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{})
	mustAppend(t, s, notes(1, 10)...)
	if _, err := s.segs[0].file.WriteAt([]byte("damage"), headSize+3*recordHead); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range journalOf(t, NewMemory(MemoryOptions{}), Options{After: 10}).Backward(0) {
		last = err
	}
	if last != nil {
		t.Errorf("got %v of an empty store, want nothing", last)
	}
	j := &Journal{store: s, opts: Options{Shared: NewShared(SharedOptions{})}}
	j.visible.Store(10)
	for _, err := range j.Backward(11) {
		last = err
	}
	if !errors.Is(last, ErrCorrupt) {
		t.Errorf("got %v, want %v", last, ErrCorrupt)
	}
}

func TestTextsContinueOneAnother(t *testing.T) {
	text := func(before, text, after string) *Entry {
		start := uint32(len(before))
		return &Entry{TextStart: start, TextEnd: start + uint32(len(text)), Body: []byte(before + text + after)}
	}
	e := text("a:", "x", ".")
	for _, tt := range []struct {
		what  string
		older *Entry
		want  bool
	}{
		{"another text", text("a:", "long", "."), true},
		{"another beginning", text("b:", "x", "."), false},
		{"another end", text("a:", "x", "!"), false},
		{"no text", text("a:", "", "."), false},
		{"another class", &Entry{Class: 1, TextStart: e.TextStart, TextEnd: e.TextEnd, Body: e.Body}, false},
		{"another kind", &Entry{Kind: Snapshot, TextStart: e.TextStart, TextEnd: e.TextEnd, Body: e.Body}, false},
	} {
		if got := e.Continues(tt.older); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.what, got, tt.want)
		}
	}
}
