package utility

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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
	r := newRoom(t, Options{}, map[string]string{"a": "", "b/c": ""})
	other := r.other()
	kept := r.followed()
	if f, _, err := other.list(t.Context(), "."); err != nil || f != kept {
		t.Errorf("got another listing, %v; want that of the workspace", err)
	}
	for range 2 { // closing twice counts once
		must(t, other.Close(t.Context()))
	}
	if n := r.fed(); n != 2 {
		t.Errorf("got %d directories that are watched, want two as long as there is a host", n)
	}
	must(t, r.Close(t.Context()))
	after := r.other()
	defer func() { must(t, after.Close(t.Context())) }()
	if f, _, err := after.list(t.Context(), "."); err != nil || f == kept || f.count != 2 {
		t.Errorf("got %v, want a listing of its own", err)
	}
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
		want string
	}{
		{"root/state", "state"},
		{"root/.maestro/run/", ".maestro/run"},
		{"root/link/not/yet", "state/not/yet"},
		{"there", "state"},
		{"elsewhere", ""},
		{"root", ""},
		{".", ""},
		{"root2", ""},
	} {
		if got := excludedIn(root, filepath.Join(outer, filepath.FromSlash(tt.dir))); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.dir, got, tt.want)
		}
	}
}
