package journal_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/journal"
)

// TestJournalOfVersion1GoesOn opens what version 1 of the format left: nine
// entries, the fifth a checkpoint. The epoch stays, so that clients resume.
func TestJournalOfVersion1GoesOn(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/version1")); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, more := range []string{`{"n":10}`, `{"n":11}`} {
		s, err := journal.Open(dir, journal.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Epoch(); got != "e5c6ca7977405f9fde3722b12d49a29df" {
			t.Errorf("epoch: got %s, want that of version 1", got)
		}
		if got := s.LastCheckpoint(); got != 5 {
			t.Errorf("checkpoint: got %d, want 5", got)
		}
		var got []string
		if err := s.Read(0, func(e journal.Entry) bool { got = append(got, string(e.Body)); return true }); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		}
		if len(got) != 9+i || !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
		}
		if err := s.Append([]journal.Entry{{Cursor: uint64(10 + i), Body: []byte(more)}}); err != nil {
			t.Fatal(err)
		}
		want = append(want, more)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
