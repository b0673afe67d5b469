package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// holdsNothing checks that what fails again and again leaves no files open.
func holdsNothing(t *testing.T, fail func() error) {
	t.Helper()
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for range 10 {
		if err := fail(); err == nil {
			t.Fatal("got no error")
		}
	}
	if after := count(); after > before {
		t.Errorf("got %d open files, want %d as before", after, before)
	}
}

// TestSessionsThatCannotBeOpenedHoldNothing opens a session whose journal is none
// that a session could have written.
func TestSessionsThatCannotBeOpenedHoldNothing(t *testing.T) {
	m := sessionsFor(t)
	key := hub.Key{ID: "broken"}
	store, err := journal.Open(m.SessionDir(key), journal.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Append([]journal.Entry{{Cursor: 1, Kind: journal.Message, Time: time.Now().UnixMilli(), Body: []byte("nothing")}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	holdsNothing(t, func() error {
		_, err := m.Open(t.Context(), key, hub.OpenOptions{})
		return err
	})
}

// TestServersThatCannotBeStartedHoldNothing has an editor ask for a server whose
// token others could read, as often as it likes.
func TestServersThatCannotBeStartedHoldNothing(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "token"), []byte("0123456789abcdef0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	h := &localServers{settings: settings{agent: "shell", stateDir: state, listen: "127.0.0.1:0", auth: "token"}, here: true, log: log, open: map[string]*server{}}
	dir := t.TempDir()
	holdsNothing(t, func() error {
		_, err := h.find(t.Context(), dir)
		return err
	})
}
