package utility

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A worker changes files of its own in a tree that is watched, and knows what is
// to be reported of them. What the beginning of a name says of a file:
//
//	new    was created
//	in     was moved into the tree
//	moved  was renamed within it
//	gone   was there, and is not any more
//	old    is as old as the tree, and was written to
type worker struct {
	r       *room
	dir     string // in the tree
	outside string
}

func (w worker) path(name string) string { return filepath.Join(w.dir, name) }

// do is the i-th change.
func (w worker) do(i int) error {
	name := func(prefix string) string { return w.path(fmt.Sprintf("%s%d", prefix, i)) }
	put := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	into := func(dir string) error { return os.MkdirAll(dir, 0o700) }
	var steps []func() error
	do := func(f func(string) error, path string) { steps = append(steps, func() error { return f(path) }) }
	rename := func(from, to string) { steps = append(steps, func() error { return os.Rename(from, to) }) }
	switch i % 10 {
	case 0:
		do(put, name("new"))
	case 1: // written to again and again
		for range 3 {
			do(put, name("new"))
		}
	case 2: // saved as editors do
		do(put, name("gone"))
		rename(name("gone"), name("moved"))
	case 3: // in directories that are made with it
		do(into, name("newdir")+"/new/new")
		do(put, name("newdir")+"/new/new/new")
		do(put, name("newdir")+"/new1")
	case 4:
		do(put, name("gone"))
		do(os.Remove, name("gone"))
	case 5:
		do(put, filepath.Join(w.outside, "f"))
		rename(filepath.Join(w.outside, "f"), name("in"))
	case 6:
		do(put, name("gone"))
		rename(name("gone"), filepath.Join(w.outside, fmt.Sprint(i)))
	case 7: // a whole tree comes, is moved, and goes
		do(into, filepath.Join(w.outside, "tree/in"))
		do(put, filepath.Join(w.outside, "tree/in/in"))
		rename(filepath.Join(w.outside, "tree"), name("gonedir"))
		do(put, name("gonedir")+"/in/new")
		rename(name("gonedir"), name("dir"))
		do(put, name("dir")+"/in/new2")
		if i%20 == 7 {
			do(os.RemoveAll, name("dir"))
		}
	case 8:
		do(put, w.path(fmt.Sprintf("old%d", i%100)))
	case 9: // a directory is not the one it was
		do(into, name("same"))
		do(put, name("same")+"/gone")
		do(os.RemoveAll, name("same"))
		do(into, name("same"))
		do(put, name("same")+"/new")
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func TestEveryChangeOfManyIsReported(t *testing.T) {
	t.Parallel()
	const workers, each = 4, 2500
	r := newRoom(t, Options{}, nil)
	var all []worker
	for i := range workers {
		w := worker{r: r, dir: filepath.Join(r.root, fmt.Sprintf("new/worker%d/deep", i)), outside: t.TempDir()}
		must(t, os.MkdirAll(w.dir, 0o700))
		for i := range 100 {
			write(t, w.path(fmt.Sprintf("old%d", i)), "")
		}
		all = append(all, w)
	}
	f := newFold(r, "w")
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(10))})
	var working sync.WaitGroup
	for k, w := range all {
		working.Go(func() { // ends with its changes
			for i := range each {
				if err := w.do(i); err != nil {
					t.Errorf("change %d: %v", i, err)
					return
				}
				if i%250 != 249 {
					continue
				}
				name := fmt.Sprintf("new-turn-%d-%d", k, i) // no more than the system holds
				if err := os.WriteFile(filepath.Join(r.root, name), nil, 0o600); err != nil {
					t.Error(err)
					return
				}
				await(r, name, 0, func(e *contracts.UtilityFileWatchEvent) bool { return e.RelativePath == name })
			}
		})
	}
	working.Wait()
	f.agrees()
	for path, kinds := range f.kinds {
		if text := unlikely(filepath.Base(path), kinds); text != "" {
			t.Errorf("%s: got %q, want %s", path, kinds, text)
		}
	}
	r.sound()
	r.ofTree(func(l *lookout) {
		if l.syncAt.IsZero() {
			return
		}
		t.Error("got reports lost, want all of them told one by one")
	})
}

// unlikely returns what the changes of a path should be instead; "" if nothing.
func unlikely(name string, kinds []contracts.FileChange) string {
	last := kinds[len(kinds)-1]
	has := func(kind contracts.FileChange) bool { return slices.Contains(kinds, kind) }
	switch {
	case strings.HasPrefix(name, "gone"):
		if last != contracts.FileDeleted {
			return "a deletion at the end"
		}
	case last == contracts.FileDeleted:
	case strings.HasPrefix(name, "moved"):
		if !has(contracts.FileRenamed) || has(contracts.FileDeleted) {
			return "a renaming"
		}
	case strings.HasPrefix(name, "old"):
		if slices.ContainsFunc(kinds, func(k contracts.FileChange) bool { return k != contracts.FileModified }) {
			return "modifications alone"
		}
	case strings.HasPrefix(name, "in"), strings.HasPrefix(name, "new"):
		// It may be found in a directory before that is reported to have taken the
		// place of another, with which it then seems to go.
		first := kinds[slices.IndexFunc(kinds, func(k contracts.FileChange) bool { return k != contracts.FileDeleted })]
		if first != contracts.FileCreated && first != contracts.FileRenamed {
			return "a creation"
		}
	}
	return ""
}

// The system's queue overflows while nobody reads it.
func TestOverflowIsMadeUpFor(t *testing.T) {
	t.Parallel()
	files := make(map[string]string)
	for i := range 300 {
		files[fmt.Sprintf("drop/d%d/f", i%30)], files[fmt.Sprintf("keep/f%d", i)] = "", ""
	}
	r := newRoom(t, Options{}, files)
	b := newBrake(r)
	f := newFold(r, "w")
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	path := func(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }

	b.stop()
	for i := range 12_000 { // two reports each: the system keeps 16,384, and 4,096 are on their way
		if i < 2000 {
			must(t, os.WriteFile(path(fmt.Sprintf("keep/new%d", i)), []byte("x"), 0o600))
		} else {
			must(t, os.Rename(path(fmt.Sprintf("keep/new%d", i-2000)), path(fmt.Sprintf("keep/new%d", i))))
		}
	}
	for i := range 300 { // nothing of all this was ever reported
		write(t, path(fmt.Sprintf("keep/f%d", i)), "changed")
	}
	must(t, os.RemoveAll(path("drop/d1")))
	must(t, os.RemoveAll(path("drop/d2")))
	must(t, os.Mkdir(path("drop/d2"), 0o700)) // another one of this name
	must(t, os.Rename(path("drop/d3"), path("keep/came")))
	must(t, os.Rename(path("drop/d4"), path("drop/d1")))
	must(t, os.Remove(path("drop/d5/f")))
	must(t, os.Mkdir(path("drop/d5/f"), 0o700))
	write(t, path("made/in/it"), "")
	b.release()

	f.agrees()
	if b.opens.Load() < 2 {
		t.Fatal("got no overflow, want one")
	}
	for i := range 300 {
		name := fmt.Sprintf("keep/f%d", i)
		await(r, "a modification of "+name, from, func(e *contracts.UtilityFileWatchEvent) bool {
			return e.RelativePath == name && e.ChangeType == contracts.FileModified
		})
	}
	for _, dir := range []string{"drop/d2", "keep/came", "drop/d1", "drop/d5/f", "made/in", "drop/d9"} { // all of it is watched again
		write(t, path(dir+"/later"), "")
		r.change(from, contracts.FileCreated, dir+"/later")
	}
	r.sound()
	if got := r.watched(); slices.Contains(got, "drop/d3") || len(got) != r.dirsOnDisk() {
		t.Errorf("got %d directories watched, want %d", len(got), r.dirsOnDisk())
	}
}

// dirsOnDisk counts the workspace's directories, itself included.
func (r *room) dirsOnDisk() int {
	n := 1
	for _, isDir := range r.onDisk() {
		if isDir {
			n++
		}
	}
	return n
}

// What is lost because a session takes nothing for a while is made up for, too.
func TestSlowSessionIsTheSameAsAnOverflow(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"gone": "", "dir/gone": ""})
	b := newBrake(r)
	release := make(chan struct{})
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityFileWatchEvent); ok {
			select {
			case <-release:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	f := newFold(r, "w")
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	for i := range 9000 { // three reports each
		name := filepath.Join(r.root, fmt.Sprintf("dir/f%d", i%1000))
		must(t, os.WriteFile(name, []byte("x"), 0o600))
		if i < 8500 {
			must(t, os.Remove(name))
		}
	}
	must(t, os.RemoveAll(filepath.Join(r.root, "gone")))
	must(t, os.RemoveAll(filepath.Join(r.root, "dir/gone")))
	close(release)
	f.agrees()
	if b.opens.Load() < 2 {
		t.Error("got nothing lost, want more than is kept")
	}
	r.sound()
}

// While one watch waits for the session, it can still be stopped, and others.
func TestWatchThatWaitsCanBeStopped(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	waiting := make(chan struct{}, 1)
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if e, ok := ev.(*contracts.UtilityFileWatchEvent); ok && e.WatchID == "slow" {
			select {
			case waiting <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	for _, id := range []string{"slow", "other"} {
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: id, DebounceMS: ptr(int64(0))})
	}
	write(t, filepath.Join(r.root, "f"), "")
	select {
	case <-waiting:
	case <-time.After(patience):
		t.Fatal("got no change, want one")
	}
	for i := range 2 * maxNoted { // so that the keeper waits for it
		write(t, filepath.Join(r.root, fmt.Sprint(i)), "")
	}
	r.do(&contracts.UtilityFileWatchStop{WatchID: "slow"})
	await(r, "the last change", 0, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.WatchID == "other" && e.RelativePath == fmt.Sprint(2*maxNoted-1)
	})
}
