package utility

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/contracts"
)

// ofTree does a job while nothing else happens to the tree of the watches.
func (r *room) ofTree(job func(l *lookout)) {
	r.lookout.do(context.Background(), func() { job(r.lookout) })
}

// nodes returns the tree's directories.
func (l *lookout) nodes() []*node {
	var all []*node
	var add func(at *node)
	add = func(at *node) {
		all = append(all, at)
		for _, child := range at.children {
			add(child)
		}
	}
	if l.tree.top != nil {
		add(l.tree.top)
	}
	slices.SortFunc(all, func(a, b *node) int { return slices.Compare(steps(a.path), steps(b.path)) })
	return all
}

// watched returns the directories that the system watches.
func (r *room) watched() []string {
	var dirs []string
	r.ofTree(func(l *lookout) {
		for _, at := range l.nodes() {
			if l.tree.keys[at.key] == at {
				dirs = append(dirs, filepath.ToSlash(at.path))
			}
		}
	})
	return dirs
}

// sound fails the test unless the tree's counts agree with the tree.
func (r *room) sound() {
	r.t.Helper()
	r.ofTree(func(l *lookout) {
		names, keys, claimed, polled := 0, 0, 0, 0
		nodes := l.nodes()
		for _, at := range nodes {
			names += len(at.names)
			if at.key != "" {
				keys++
			}
			if at.claimed {
				claimed++
			}
			_, isPolled := l.tree.polled[at]
			if isPolled {
				polled++
			}
			if at.gone || isPolled != (at.claimed && at.key == "") || at.key != "" && l.tree.keys[at.key] != at || at.id.fileID != (fileID{}) && l.tree.ids[at.id.fileID] != at {
				r.t.Errorf("%s: got gone %v, polled %v, key %q; want it known by its key and id", at.path, at.gone, isPolled, at.key)
			}
			if at.claimed != (len(at.holders)+len(at.passers) > 0) || !at.claimed && !at.followed {
				r.t.Errorf("%s: got claimed %v, followed %v for %d holders and %d passers; want it to be there for somebody", at.path, at.claimed, at.followed, len(at.holders), len(at.passers))
			}
		}
		if l.tree.names != names || l.tree.claimed != claimed || len(l.tree.keys) != keys || len(l.tree.ids) > len(nodes) || len(l.tree.polled) != polled {
			r.t.Errorf("got %d names, %d claimed, %d keys, %d ids, %d polled; want %d, %d, %d, at most %d, %d", l.tree.names, l.tree.claimed,
				len(l.tree.keys), len(l.tree.ids), len(l.tree.polled), names, claimed, keys, len(nodes), polled)
		}
	})
}

// A brake keeps back what the system reports.
type brake struct {
	gate  chan struct{} // a token while reports pass
	opens atomic.Int64  // how often the system's source was opened
}

// newBrake puts itself between the system and the room's watches, of which there
// are none yet.
func newBrake(r *room) *brake {
	b := &brake{gate: make(chan struct{}, 1)}
	b.gate <- struct{}{}
	r.ofTree(func(l *lookout) {
		open := l.open
		l.open = func() (*source, error) {
			b.opens.Add(1)
			s, err := open()
			if err != nil {
				return nil, err
			}
			events, stop, done := make(chan fsnotify.Event), make(chan struct{}), make(chan struct{})
			go func(from <-chan fsnotify.Event) { // ends with the source
				defer close(done)
				defer close(events)
				for ev := range from {
					select {
					case <-b.gate:
						b.gate <- struct{}{}
					case <-stop:
						continue
					}
					select {
					case events <- ev:
					case <-stop:
					}
				}
			}(s.events)
			end := s.close
			s.events, s.close = events, func() { close(stop); end(); <-done }
			return s, nil
		}
	})
	return b
}

func (b *brake) stop()    { <-b.gate }
func (b *brake) release() { b.gate <- struct{}{} }

// A fold is what a client knows that follows a watch from the beginning.
type fold struct {
	r     *room
	id    string
	at    int                               // events seen
	there map[string]bool                   // whether it is a directory, by path
	kinds map[string][]contracts.FileChange // in their order
}

// newFold begins with what is there before the watch reports anything.
func newFold(r *room, id string) *fold {
	return &fold{r: r, id: id, there: r.onDisk(), kinds: make(map[string][]contracts.FileChange)}
}

func (f *fold) update() (changed <-chan struct{}) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for ; f.at < len(f.r.events); f.at++ {
		ev, ok := f.r.events[f.at].(*contracts.UtilityFileWatchEvent)
		if !ok || ev.WatchID != f.id {
			continue
		}
		f.kinds[ev.RelativePath] = append(f.kinds[ev.RelativePath], ev.ChangeType)
		if ev.ChangeType == contracts.FileDeleted {
			delete(f.there, ev.RelativePath)
		} else {
			f.there[ev.RelativePath] = ev.IsDirectory
		}
	}
	return f.r.changed
}

// agrees waits until the client knows what is there.
func (f *fold) agrees() {
	f.r.t.Helper()
	want := f.r.onDisk()
	for late := time.After(patience); ; {
		changed := f.update()
		if maps.Equal(f.there, want) {
			return
		}
		select {
		case <-changed:
		case <-late:
			f.r.t.Fatalf("got %s", difference(f.there, want))
		}
	}
}

func difference(got, want map[string]bool) string {
	var list []string
	for path, dir := range want {
		if is, ok := got[path]; !ok {
			list = append(list, "no "+path)
		} else if is != dir {
			list = append(list, "another kind of "+path)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			list = append(list, "a "+path)
		}
	}
	slices.Sort(list)
	return fmt.Sprintf("%d differences, such as %q", len(list), list[:min(10, len(list))])
}

// onDisk returns what is in the workspace.
func (r *room) onDisk() map[string]bool {
	all := make(map[string]bool)
	must(r.t, filepath.WalkDir(r.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != r.root {
			rel, _ := filepath.Rel(r.root, path)
			all[filepath.ToSlash(rel)] = e.IsDir()
		}
		return err
	}))
	return all
}

// limited waits for the one event that says that a watch does not see
// everything as it should.
func (r *room) limited(id, text string) {
	r.t.Helper()
	is := func(e *contracts.ErrorEvent) bool { return e.RequestID == id }
	ev, at := await(r, "to hear of the limit", 0, is)
	if ev.Fatal || ev.ErrorType != contracts.ErrorTool || ev.Message != text {
		r.t.Errorf("got %+v, want %q", ev, text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events[at+1:] {
		if e, ok := ev.(*contracts.ErrorEvent); ok && is(e) {
			r.t.Errorf("got %+v, want it said once", e)
		}
	}
}

// Watches that are about different parts of a tree hold no more than they need.
func TestWatchesHoldOnlyWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/b/c/f": "", "a/x/f": "", "a/b/testdata/f": "", "node_modules/m/f": "", "z/f": ""})
	want := func(dirs ...string) {
		t.Helper()
		if got := r.watched(); !slices.Equal(got, dirs) {
			t.Errorf("got %q watched, want %q", got, dirs)
		}
		r.sound()
	}
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "b", RootDir: ptr("a/b"), ExcludePatterns: []string{"testdata/**"}})
	want(".", "a", "a/b", "a/b/c")
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
	want(".", "a", "a/b", "a/b/c", "a/b/testdata", "a/x", "z")
	r.do(&contracts.UtilityFileWatchStop{WatchID: "b"})
	want(".", "a", "a/b", "a/b/c", "a/b/testdata", "a/x", "z")
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "c", RootDir: ptr("a/b/c"), DebounceMS: ptr(int64(0))})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "all"})
	want(".", "a", "a/b", "a/b/c")
	write(t, filepath.Join(r.root, "a/b/not here"), "")
	write(t, filepath.Join(r.root, "a/b/c/here"), "")
	await(r, "a change", 0, func(e *contracts.UtilityFileWatchEvent) bool { return e.WatchID == "c" && e.RelativePath == "here" })
	if got := r.changes("c"); !slices.Equal(got, []string{"create here"}) {
		t.Errorf("got %q, want what is below the root", got)
	}
	must(t, os.Rename(filepath.Join(r.root, "a"), filepath.Join(r.root, "elsewhere"))) // the root's parent's parent
	await(r, "the end of c", 0, func(e *contracts.UtilityFileWatchStopped) bool { return e.Reason == "Watch root removed" })
	r.ofTree(func(l *lookout) {
		if l.tree.top != nil {
			t.Errorf("got %d directories, want none", len(l.nodes()))
		}
	})
}

// What comes from where a watch does not look has not been renamed for it.
func TestRenameIsOneOnlyInSight(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"in/old": "x", "in/save.log": "y", "out/f": "x", "in/sub/g": ""})
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: ptr("in"), DebounceMS: ptr(int64(0))})
	path := func(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }
	change := func(id string, kind contracts.FileChange, rel string) {
		t.Helper()
		await(r, fmt.Sprintf("%s of %s in %s", kind, rel, id), from, func(e *contracts.UtilityFileWatchEvent) bool {
			return e.WatchID == id && e.RelativePath == rel && e.ChangeType == kind
		})
	}
	must(t, os.Rename(path("out/f"), path("in/f")))
	change("w", contracts.FileCreated, "f")
	change("all", renamed(), "in/f")
	change("all", contracts.FileDeleted, "out/f")
	must(t, os.Rename(path("in/save.log"), path("in/old"))) // a log is nothing clients hear of
	change("w", contracts.FileModified, "old")
	must(t, os.Rename(path("in/sub"), path("out/sub")))
	change("w", contracts.FileDeleted, "sub")
	change("w", contracts.FileDeleted, "sub/g")
	change("all", renamed(), "out/sub/g")
	must(t, os.Rename(path("out/sub"), path("in/sub2")))
	change("w", contracts.FileCreated, "sub2/g")
	r.sound()
}

// What was made in a directory after that was renamed was not renamed with it,
// though nobody has looked before.
func TestOnlyWhatMovedWasRenamed(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/sub/old": "", "a/old": ""})
	b := newBrake(r)
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	b.stop()
	must(t, os.Rename(filepath.Join(r.root, "a"), filepath.Join(r.root, "b")))
	write(t, filepath.Join(r.root, "b/sub/new"), "")
	write(t, filepath.Join(r.root, "b/made/new"), "")
	b.release()
	for path, kind := range map[string]contracts.FileChange{
		"b": renamed(), "b/old": renamed(), "b/sub": renamed(), "b/sub/old": renamed(),
		"b/sub/new": contracts.FileCreated, "b/made": contracts.FileCreated, "b/made/new": contracts.FileCreated,
		"a": contracts.FileDeleted, "a/old": contracts.FileDeleted, "a/sub/old": contracts.FileDeleted,
	} {
		r.change(from, kind, path)
	}
	r.sound()
}

// A directory may be found at its new place before anybody says that it has left
// the old one.
func TestDirectoryThatMovedUnseenIsFound(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/b/sub/f": "", "c/f": ""})
	b := newBrake(r)
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	b.stop()
	must(t, os.Rename(filepath.Join(r.root, "a/b"), filepath.Join(r.root, "c/b")))
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "b", RootDir: ptr("c/b"), DebounceMS: ptr(int64(0))})
	r.change(from, contracts.FileDeleted, "a/b/sub/f")
	r.sound()
	b.release()
	await(r, "what has moved", from, func(e *contracts.UtilityFileWatchEvent) bool { return e.RelativePath == "c/b/sub/f" })
	write(t, filepath.Join(r.root, "c/b/sub/new"), "")
	r.change(from, contracts.FileCreated, "c/b/sub/new")
	r.change(from, contracts.FileCreated, "sub/new")
	r.sound()
	if got, want := r.watched(), []string{".", "a", "c", "c/b", "c/b/sub"}; !slices.Equal(got, want) {
		t.Errorf("got %q watched, want %q", got, want)
	}
}

func TestTooManyDirectoriesAreLeftOut(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{MaxWatchedDirs: 4}, map[string]string{"a/b/f": "", "z/y/x/f": ""})
	text := "Utility file watch has too many directories: " + r.root
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	r.limited("w", text)
	write(t, filepath.Join(r.root, "f"), "")
	r.change(from, contracts.FileCreated, "f")
	if got := r.watched(); len(got) != 4 {
		t.Errorf("got %q watched, want four directories", got)
	}
	must(t, os.RemoveAll(filepath.Join(r.root, "a")))
	must(t, os.RemoveAll(filepath.Join(r.root, "z")))
	r.change(from, contracts.FileDeleted, "z")
	r.change(from, contracts.FileDeleted, "a")
	write(t, filepath.Join(r.root, "n/m/f"), "") // there is room now
	r.change(from, contracts.FileCreated, "n/m/f")
	r.limited("w", text)
	r.sound()
}

// A directory with more names than may be known is watched, but what is in it
// when the watch begins is not compared with what is there later.
func TestTooManyNamesAreSaid(t *testing.T) {
	t.Parallel()
	files := make(map[string]string)
	for i := range 20 {
		files[fmt.Sprintf("many/f%d", i)] = ""
	}
	r := newRoom(t, Options{}, files)
	r.ofTree(func(l *lookout) { l.names = 10 })
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	r.limited("w", "Utility file watch has too many files: "+r.root)
	for i := range 20 {
		write(t, filepath.Join(r.root, fmt.Sprintf("many/new%d", i)), "")
		r.change(from, contracts.FileCreated, fmt.Sprintf("many/new%d", i))
	}
	for i := range 20 {
		must(t, os.Remove(filepath.Join(r.root, fmt.Sprintf("many/f%d", i))))
		must(t, os.Remove(filepath.Join(r.root, fmt.Sprintf("many/new%d", i))))
		r.change(from, contracts.FileDeleted, fmt.Sprintf("many/f%d", i))
		r.change(from, contracts.FileDeleted, fmt.Sprintf("many/new%d", i))
	}
	r.sound()
}

// A directory that is polled is read in pieces, and not at all while it has more
// names than may be known.
func TestLargeDirectoriesArePolled(t *testing.T) {
	t.Parallel()
	files := make(map[string]string)
	for i := range 2*readBatch + 10 {
		files[fmt.Sprintf("many/f%d", i)] = ""
	}
	r := newRoom(t, Options{}, files)
	r.age()
	r.ofTree(func(l *lookout) { l.most, l.pollGap = 0, time.Millisecond })
	f := newFold(r, "w")
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	path := func(i int) string { return filepath.Join(r.root, "many", fmt.Sprintf("f%d", i)) }
	for i := range 10 {
		must(t, os.Remove(path(i*200)))
		must(t, os.Rename(path(i*200+1), filepath.Join(r.root, "many", fmt.Sprintf("new%d", i))))
	}
	f.agrees()
	if len(f.kinds) != 30 {
		t.Errorf("got changes of %d files, want 30: %q", len(f.kinds), slices.Sorted(maps.Keys(f.kinds)))
	}
	r.sound()

	r.ofTree(func(l *lookout) {
		l.names = 100
		many := l.tree.top.children["many"]
		dir, err := l.reopen(many)
		if err != nil {
			t.Error(err)
			return
		}
		defer dir.Close()
		if err := l.compareGone(many, dir); !errors.Is(err, errTooManyNames) {
			t.Errorf("got %v, want it to stop at the bound", err)
		}
	})
	write(t, filepath.Join(r.root, "many/unseen"), "")
	await(r, "to hear of the limit", from, func(e *contracts.ErrorEvent) bool {
		return e.Message == "Utility file watch has too many files: "+r.root
	})
	for i := range 2*readBatch + 10 {
		_ = os.Remove(path(i)) // some are gone
	}
	r.change(from, contracts.FileDeleted, fmt.Sprintf("many/f%d", 2*readBatch))
	r.sound()
}

func TestDirectoriesAreReadInPieces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2*readBatch + 1 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	calls := 0
	if err := inBatches(f, func(entries []fs.DirEntry) error {
		if calls++; len(entries) > readBatch {
			t.Errorf("got %d entries, want at most %d", len(entries), readBatch)
		}
		return errTooManyNames
	}); !errors.Is(err, errTooManyNames) || calls != 1 {
		t.Errorf("got %v after %d calls, want the first to end it", err, calls)
	}
	rest, err := f.ReadDir(-1)
	if err != nil || len(rest) != readBatch+1 {
		t.Errorf("got %d entries left, %v; want %d", len(rest), err, readBatch+1)
	}
}

func TestDirectoriesThatLieTooDeepAreLeftOut(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	root, err := os.OpenRoot(r.root)
	must(t, err)
	defer root.Close()
	name := strings.Repeat("d", 200)
	must(t, root.MkdirAll(strings.TrimSuffix(strings.Repeat(name+"/", 25), "/"), 0o700))
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	r.limited("w", "Utility file watch has paths that are too long: "+r.root)
	if got, want := len(r.watched()), 1+maxPathBytes/201; got != want {
		t.Errorf("got %d directories watched, want %d", got, want)
	}
	must(t, root.RemoveAll(name))
}

func TestSystemLimitIsSaidAndPolledFor(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(l *lookout){
		"budget": func(l *lookout) { l.most = 3 },
		"watches": func(l *lookout) {
			open := l.open
			l.open = func() (*source, error) {
				s, err := open()
				if err != nil {
					return nil, err
				}
				add, left := s.add, 3
				s.add = func(dir *os.File, path string) (string, error) {
					if left--; left < 0 {
						return "", syscall.ENOSPC
					}
					return add(dir, path)
				}
				return s, nil
			}
		},
		"instances": func(l *lookout) {
			l.open = func() (*source, error) { return nil, syscall.EMFILE }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, Options{}, map[string]string{"a/b/old": "x", "a/b/drop": "x", "c/d/e/old": "x", "c/d/gone/f": "x", "c/to": "x"})
			r.ofTree(func(l *lookout) {
				limit(l)
				l.pollGap = time.Millisecond
			})
			path := func(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }
			long := time.Now().Add(-time.Hour)
			for file, isDir := range r.onDisk() {
				if !isDir {
					must(t, os.Chtimes(path(file), long, long))
				}
			}
			f := newFold(r, "w")
			from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
			text := "Utility file watch is at the system's limit and polls some directories: " + r.root
			r.limited("w", text)
			r.sound()

			write(t, path("a/b/old"), "changed")
			r.change(from, contracts.FileModified, "a/b/old")
			write(t, path("c/d/e/old"), "y") // of the same size
			r.change(from, contracts.FileModified, "c/d/e/old")
			must(t, os.Remove(path("a/b/drop")))
			r.change(from, contracts.FileDeleted, "a/b/drop")
			write(t, path("c/d/e/f/g/new"), "")
			r.change(from, contracts.FileCreated, "c/d/e/f/g/new")
			must(t, os.Rename(path("c/d/gone"), path("a/came")))
			r.change(from, contracts.FileDeleted, "c/d/gone/f")
			await(r, "what came", from, func(e *contracts.UtilityFileWatchEvent) bool { return e.RelativePath == "a/came/f" })
			must(t, os.RemoveAll(path("c/d")))
			must(t, os.Mkdir(path("c/d"), 0o700))
			f.agrees()
			r.limited("w", text)
			for path, kinds := range f.kinds {
				if (path == "a/b/old" || path == "c/d/e/old") && kinds[0] != contracts.FileModified {
					t.Errorf("%s: got %q, want a modification", path, kinds)
				}
			}
			r.sound()
			must(t, os.RemoveAll(r.root))
			await(r, "the end", from, func(e *contracts.UtilityFileWatchStopped) bool { return e.Reason == "Watch root removed" })
		})
	}
}

// When others need fewer directories the system watches what was polled.
func TestPolledDirectoriesAreWatchedOnceTheyCan(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/b/c/f": "", "z/f": ""})
	r.ofTree(func(l *lookout) { l.most, l.pollGap = 5, time.Millisecond })
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "a", RootDir: ptr("a"), DebounceMS: ptr(int64(0))})
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "z", RootDir: ptr("z"), DebounceMS: ptr(int64(0))})
	r.ofTree(func(l *lookout) { l.most = 4 })
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "all"})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "a"})
	r.sound()
	if got, want := r.watched(), []string{".", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %q watched, want %q", got, want)
	}
}

func TestSourceOfPathsDoesNotKeepWhatIsElsewhere(t *testing.T) {
	t.Parallel()
	w, err := fsnotify.NewWatcher()
	must(t, err)
	s := pathSource(w)
	defer s.close()
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, os.Mkdir(dir, 0o700))
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	key, err := s.add(f, dir)
	if key != dir || err != nil {
		t.Errorf("got %q, %v; want the path", key, err)
	}
	s.remove(key)
	must(t, os.Remove(dir))
	must(t, os.Symlink(t.TempDir(), dir))
	if _, err := s.add(f, dir); !errors.Is(err, fs.ErrNotExist) || len(w.WatchList()) > 0 {
		t.Errorf("got %v, %q watched; want neither the directory nor what is in its place", err, w.WatchList())
	}
}
