package utility

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// watched starts a watch of the room with patterns and returns where its events
// begin.
func (r *room) watchAll(id string, exclude ...string) int {
	r.t.Helper()
	return r.watchOf(&contracts.UtilityFileWatchStart{WatchID: id, DebounceMS: ptr(int64(0)), ExcludePatterns: exclude})
}

// audiences returns how many kinds of watches there are.
func (r *room) audiences() (n int) {
	r.ofTree(func(l *lookout) { n = len(l.audiences) })
	return n
}

// Watches that are about the same are looked after once, in whatever session.
func TestWatchesOfOneKindAreOne(t *testing.T) {
	t.Parallel()
	one := newRoom(t, Options{}, map[string]string{"d/f": "", "other/f": ""})
	two := one.beside()
	from := one.watchAll("w")
	if n := one.audiences(); n != 1 {
		t.Fatalf("got %d kinds of watches, want one", n)
	}
	fromTwo := two.watchAll("w")
	two.watchAll("same")
	if n := one.audiences(); n != 1 {
		t.Errorf("got %d kinds of watches, want one", n)
	}
	two.watchAll("less", "other/**")
	two.watchAll("also less", "other/**")
	if n := one.audiences(); n != 2 {
		t.Errorf("got %d kinds of watches, want two", n)
	}
	write(t, filepath.Join(one.root, "d/new"), "")
	one.change(from, contracts.FileCreated, "d/new")
	two.change(fromTwo, contracts.FileCreated, "d/new")
	must(t, one.Close(t.Context()))
	write(t, filepath.Join(one.root, "d/newer"), "")
	two.change(fromTwo, contracts.FileCreated, "d/newer")
	for _, id := range []string{"w", "same", "less"} {
		two.do(&contracts.UtilityFileWatchStop{WatchID: id})
	}
	if n := two.audiences(); n != 1 {
		t.Errorf("got %d kinds of watches, want one", n)
	}
	write(t, filepath.Join(one.root, "other/new"), "")
	write(t, filepath.Join(one.root, "last"), "")
	await(two, "a change", fromTwo, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.WatchID == "also less" && e.RelativePath == "last"
	})
	if got := two.changes("also less"); slices.Contains(got, "create other/new") {
		t.Errorf("got %q, want nothing of what is excluded", got)
	}
	two.sound()
}

// Who comes later hears what those before were told.
func TestLaterWatchesHearOfLimits(t *testing.T) {
	t.Parallel()
	one := newRoom(t, Options{MaxWatchedDirs: 2}, map[string]string{"a/b/c": ""})
	text := "Utility file watch has too many directories: " + one.root
	one.watchAll("w")
	one.limited("w", text)
	two := one.beside()
	two.watchAll("later")
	two.limited("later", text)
	one.refused(&contracts.UtilityFileWatchStart{WatchID: "b", RootDir: ptr("a/b")}, contracts.CodeOverloaded,
		"Utility file watch has too many directories: "+filepath.Join(one.root, "a/b"))
	one.sound()
}

// A directory that was removed and is back is another one.
func TestWatchRootThatIsBackIsWatched(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"d/f": "", "keep": ""})
	r.watchAll("all")
	dir := filepath.Join(r.root, "d")
	for i := range 20 {
		id := fmt.Sprint("w", i)
		from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: id, RootDir: ptr("d"), DebounceMS: ptr(int64(0))})
		must(t, os.RemoveAll(dir))
		await(r, "the end of "+id, from, func(e *contracts.UtilityFileWatchStopped) bool {
			return e.WatchID == id && e.Reason == "Watch root removed"
		})
		write(t, filepath.Join(dir, "f"), "")
		from = r.watchOf(&contracts.UtilityFileWatchStart{WatchID: id + "again", RootDir: ptr("d"), DebounceMS: ptr(int64(0))})
		write(t, filepath.Join(dir, "new"), "")
		r.change(from, contracts.FileCreated, "new")
		r.do(&contracts.UtilityFileWatchStop{WatchID: id + "again"})
	}
	r.sound()
}

// Directories that searches need are watched while there is plenty of room, those
// that clients watch as long as there is any.
func TestWatchesGoBeforeListings(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a": "", "b/c/d": ""})
	r.allow(3, 2)
	r.listed(".")
	if n := r.fed(); n != 0 || len(r.watched()) != 0 {
		t.Errorf("got %d directories followed, %q watched; want none where there is no room for all", n, r.watched())
	}
	r.watchAll("w")
	if got := r.watched(); len(got) != 3 {
		t.Errorf("got %q watched, want all", got)
	}
	r.rested()
	r.lister.again = time.Time{}
	r.lister.markStale(false)
	r.followed()
	if n := r.fed(); n != 3 {
		t.Errorf("got %d directories followed, want those that are watched anyhow", n)
	}
	r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
	write(t, filepath.Join(r.root, "b/c/new"), "")
	r.lists("then", ".", "a", "b/c/d", "b/c/new")
	if n := r.fed(); n != 3 {
		t.Errorf("got %d directories followed, want them as before", n)
	}
}

// What has happened in a directory that was polled is told when the system comes
// to watch it, for whatever reason.
func TestSearchDoesNotHideChangesFromWatches(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/f": ""})
	r.allow(0, 0)
	r.ofTree(func(l *lookout) { l.pollGap = time.Hour })
	from := r.watchAll("w")
	write(t, filepath.Join(r.root, "a/new"), "")
	r.allow(10, 10)
	r.followed()
	r.change(from, contracts.FileCreated, "a/new")
	if got := r.watched(); len(got) != 2 {
		t.Errorf("got %q watched, want both directories", got)
	}
	r.sound()
}
