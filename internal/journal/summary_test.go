package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummaryIsReadWithoutTheJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if _, _, err := ReadSummary(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v without a journal, want %v", err, os.ErrNotExist)
	}
	if err := WriteSummary(dir, []byte("x"), false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("write: got %v without a journal, want %v", err, os.ErrNotExist)
	}
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	if text, written, err := ReadSummary(dir); text != nil || written.IsZero() || err != nil {
		t.Errorf("got %q, %v, %v before the first summary", text, written, err)
	}
	for _, durable := range []bool{false, true} {
		want := strings.Repeat("text ", 100)
		if durable {
			want = "short"
		}
		if err := WriteSummary(dir, []byte(want), durable); err != nil {
			t.Fatal(err)
		}
		written, _ := LastWritten(dir)
		if text, at, err := ReadSummary(dir); string(text) != want || !at.Equal(written) || err != nil {
			t.Errorf("got %q, %v, %v, want %q, %v", text, at, err, want, written)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, FileOptions{}) // which the summary does not disturb
	if first, last := s.Bounds(); first != 1 || last != 1 || s.Changed() != "" {
		t.Errorf("got entries %d to %d, %q, want the one", first, last, s.Changed())
	}
}

func TestStrangeSummariesAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, summaryName)
	if err := os.WriteFile(path, make([]byte, summaryMax+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadSummary(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v for a long one, want %v", err, ErrCorrupt)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadSummary(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v for a folder, want %v", err, ErrCorrupt)
	}
}
