package utility

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// other makes another host of the room's workspace.
func (r *room) other() *Host {
	r.t.Helper()
	h, err := New(Options{Workspace: r.ws, Shared: r.opts.Shared})
	must(r.t, err)
	h.Start(func(context.Context, ...contracts.Event) error { return nil }, func(context.Context, string) error { return nil })
	return h
}

func TestHostsOfAWorkspaceShareItsListing(t *testing.T) {
	shared := NewShared()
	r := newRoom(t, Options{Shared: shared}, map[string]string{"a": "", "b/c": ""})
	stranger := newRoom(t, Options{Shared: shared}, map[string]string{"other": ""})
	other := r.other()
	kept := r.followed()
	if f, _, err := other.list(t.Context(), "."); err != nil || f != kept {
		t.Errorf("got another listing, %v; want that of the workspace", err)
	}
	wantList(t, "another workspace", stranger.listed("."), "other")
	stranger.rested()
	must(t, stranger.Close(t.Context()))
	for range 2 { // closing twice counts once
		must(t, other.Close(t.Context()))
	}
	if n := r.fed(); n != 2 {
		t.Errorf("got %d directories that are watched, want two as long as there is a host", n)
	}
	must(t, r.Close(t.Context()))
	if shared.watched.taken != 0 || len(shared.listers) != 0 {
		t.Errorf("got %d directories watched for %d workspaces, want none", shared.watched.taken, len(shared.listers))
	}
	after := r.other()
	defer func() { must(t, after.Close(t.Context())) }()
	if f, _, err := after.list(t.Context(), "."); err != nil || f == kept || f.count != 2 {
		t.Errorf("got %v, want a listing of its own", err)
	}
}

// The system counts what a user has watched, in whatever session.
func TestHostsShareWhatTheSystemAllows(t *testing.T) {
	t.Parallel()
	shared := NewShared()
	shared.watched.most = 3
	one := newRoom(t, Options{Shared: shared}, map[string]string{"a/b/f": ""})
	two := newRoom(t, Options{Shared: shared}, map[string]string{"c/f": ""})
	two.ofTree(func(l *lookout) { l.pollGap = time.Millisecond })
	one.watchOf(&contracts.UtilityFileWatchStart{WatchID: "one", DebounceMS: ptr(int64(0))})
	from := two.watchOf(&contracts.UtilityFileWatchStart{WatchID: "two", DebounceMS: ptr(int64(0))})
	two.limited("two", "Utility file watch is at the system's limit and polls some directories: "+two.root)
	if got := append(one.watched(), two.watched()...); !slices.Equal(got, []string{".", "a", "a/b"}) {
		t.Errorf("got %q watched, want no more than the process may", got)
	}
	write(t, filepath.Join(two.root, "c/new"), "")
	two.change(from, contracts.FileCreated, "c/new")
	one.do(&contracts.UtilityFileWatchStop{WatchID: "one"})
	for began := time.Now(); len(two.watched()) < 2; runtime.Gosched() {
		if time.Since(began) > patience {
			t.Fatalf("got %q watched, want both directories", two.watched())
		}
	}
	two.sound()
	two.do(&contracts.UtilityFileWatchStop{WatchID: "two"})
	two.sound()
}

func TestJournalsAreFoundInTheWorkspace(t *testing.T) {
	t.Parallel()
	outer, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	root := filepath.Join(outer, "root")
	must(t, os.MkdirAll(filepath.Join(root, "state"), 0o700))
	must(t, os.Symlink("state", filepath.Join(root, "link")))
	must(t, os.Symlink("root/state", filepath.Join(outer, "there")))
	for _, tt := range []struct {
		dir  string // slash-separated, relative to outer
		want []string
	}{
		{"root/state", []string{"state"}},
		{"root/.maestro/run/", []string{".maestro/run"}},
		{"root/link/not/yet", []string{"state/not/yet"}},
		{"there", []string{"state"}},
		{"elsewhere", nil},
		{"root", nil},
		{".", nil},
		{"root2", nil},
	} {
		got := excludedIn(root, []string{filepath.Join(outer, filepath.FromSlash(tt.dir))})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.dir, got, tt.want)
		}
	}
}
