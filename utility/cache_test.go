package utility

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// age makes everything in the workspace look as if it had last changed long ago.
func (r *room) age() {
	r.t.Helper()
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	must(r.t, filepath.WalkDir(r.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, long, long)
	}))
}

func TestListingsAreKeptWhileNothingChanges(t *testing.T) {
	for _, withGit := range []bool{false, true} {
		r := newRoom(t, Options{}, map[string]string{"a": "", "sub/b": "", "tracked.log": "", ".gitignore": "*.log\n"})
		want := []string{".gitignore", "a", "sub/b"}
		if withGit {
			gitInit(t, r.root)
			git(t, r.root, "add", "-f", "tracked.log")
			want = append(want, "tracked.log")
		}
		r.age()
		wantList(t, "first", r.listed("."), want...)
		kept := r.listings.kept
		if len(kept) != 1 || !r.ws.Current(kept[0].depends) {
			t.Fatalf("git %v: got %d listings kept, want a current one", withGit, len(kept))
		}
		kept[0].files = append(kept[0].files, "mark")
		wantList(t, "second", r.listed("."), slices.Concat(want, []string{"mark"})...)

		write(t, filepath.Join(r.root, "sub/new"), "")
		wantList(t, "after a change", r.listed("."), slices.Concat(want, []string{"sub/new"})...)
		write(t, filepath.Join(r.root, "sub/newer"), "") // too soon for the time of the directory to tell
		wantList(t, "after another", r.listed("."), slices.Concat(want, []string{"sub/new", "sub/newer"})...)
	}
}

func TestOldListingsAreForgotten(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	r.age()
	r.listed(".")
	if _, ok := r.listings.get(r.ws, ".", r.listings.kept[0].made.Add(maxListingAge)); !ok {
		t.Error("got nothing, want a listing that is not old")
	}
	if _, ok := r.listings.get(r.ws, ".", r.listings.kept[0].made.Add(maxListingAge+1)); ok {
		t.Error("got a listing that is too old, want none")
	}
}

func TestKeptListingsAreBounded(t *testing.T) {
	var c listings
	for i := range maxListings + 3 {
		c.put(keptListing{dir: fmt.Sprint(i), depends: workspace.Listing{Files: []string{"x"}}})
		c.put(keptListing{dir: fmt.Sprint(i)})
	}
	if len(c.kept) != maxListings || c.kept[0].dir != "3" || c.kept[0].depends.Files != nil {
		t.Errorf("got %d from %s, want the last %d", len(c.kept), c.kept[0].dir, maxListings)
	}
	c.put(keptListing{dir: "half", files: make([]string, maxSearchFiles/2)})
	c.put(keptListing{dir: "most", files: make([]string, maxSearchFiles-10)})
	if len(c.kept) != 1 || c.kept[0].dir != "most" {
		t.Errorf("got %d, want the newest alone", len(c.kept))
	}
}
