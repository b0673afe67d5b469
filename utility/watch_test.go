package utility

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// watchOf starts a watch of alice and returns where its events begin.
func (r *room) watchOf(cmd *contracts.UtilityFileWatchStart) int {
	r.t.Helper()
	r.do(cmd)
	_, at := await(r, "the start of a watch", 0, func(e *contracts.UtilityFileWatchStarted) bool { return e.WatchID == cmd.WatchID })
	return at
}

// change waits for a change of a path.
func (r *room) change(from int, kind contracts.FileChange, rel string) *contracts.UtilityFileWatchEvent {
	r.t.Helper()
	ev, _ := await(r, fmt.Sprintf("%s of %s", kind, rel), from, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.RelativePath == rel && e.ChangeType == kind
	})
	return ev
}

// changes returns the changes so far, as "kind path".
func (r *room) changes(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, ev := range r.events {
		if e, ok := ev.(*contracts.UtilityFileWatchEvent); ok && e.WatchID == id {
			list = append(list, string(e.ChangeType)+" "+e.RelativePath)
		}
	}
	return list
}

// settle waits until all that has happened so far in a watch that sees the root
// was reported: a new file is reported after everything before it.
func (r *room) settle(id string) {
	r.t.Helper()
	name := fmt.Sprintf("settled%d", r.count())
	write(r.t, filepath.Join(r.root, name), "")
	await(r, name, 0, func(e *contracts.UtilityFileWatchEvent) bool { return e.WatchID == id && e.RelativePath == name })
}

// renamed is what the destination of a rename is reported as: not every system
// tells that it is one.
func renamed() contracts.FileChange {
	if runtime.GOOS == "linux" || runtime.GOOS == "windows" {
		return contracts.FileRenamed
	}
	return contracts.FileCreated
}

func TestWatchReportsEveryKindOfChange(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"src/old.go": "x", "src/move.go": "x", "src/drop.go": "x", "other/x": ""})
	before := time.Now().UnixMilli()
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: ptr("src"), DebounceMS: ptr(int64(20))})
	src := filepath.Join(r.root, "src")

	write(t, filepath.Join(src, "new.go"), "package p")
	got := *r.change(from, contracts.FileCreated, "new.go")
	if got.Timestamp < before || got.Timestamp > time.Now().UnixMilli() {
		t.Errorf("got timestamp %d, want milliseconds of now", got.Timestamp)
	}
	want := contracts.UtilityFileWatchEvent{WatchID: "w", ChangeType: contracts.FileCreated, RelativePath: "new.go",
		Path: filepath.Join(src, "new.go"), Timestamp: got.Timestamp}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	write(t, filepath.Join(src, "old.go"), "changed")
	r.change(from, contracts.FileModified, "old.go")
	must(t, os.Rename(filepath.Join(src, "move.go"), filepath.Join(src, "moved.go")))
	r.change(from, renamed(), "moved.go")
	r.change(from, contracts.FileDeleted, "move.go")
	must(t, os.Remove(filepath.Join(src, "drop.go")))
	if ev := r.change(from, contracts.FileDeleted, "drop.go"); ev.IsDirectory {
		t.Error("got a directory, want none for a deletion")
	}
	must(t, os.Rename(filepath.Join(r.root, "other/x"), filepath.Join(src, "arrived")))
	r.change(from, contracts.FileCreated, "arrived")
	must(t, os.Rename(filepath.Join(src, "arrived"), filepath.Join(r.root, "other/x")))
	r.change(from, contracts.FileDeleted, "arrived")
	write(t, filepath.Join(src, "new.go.tmp"), "saved by an editor")
	must(t, os.Rename(filepath.Join(src, "new.go.tmp"), filepath.Join(src, "new.go")))
	r.change(from, renamed(), "new.go")
	if got := r.changes("w"); slices.ContainsFunc(got, func(c string) bool { return strings.Contains(c, "other") }) {
		t.Errorf("got %q, want nothing outside the watch's root", got)
	}
}

func TestNewDirectoriesAreWatchedAndOldOnesLeft(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(20))})
	path := func(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }

	write(t, path("a/b/c/deep"), "all at once")
	if !r.change(from, contracts.FileCreated, "a/b").IsDirectory {
		t.Error("got a file, want a directory")
	}
	r.change(from, contracts.FileCreated, "a/b/c/deep")
	write(t, path("a/b/later"), "")
	r.change(from, contracts.FileCreated, "a/b/later")

	must(t, os.Rename(path("a/b"), path("z"))) // with what is in it
	r.change(from, contracts.FileDeleted, "a/b")
	if !r.change(from, renamed(), "z").IsDirectory {
		t.Error("got a file, want a directory")
	}
	r.change(from, renamed(), "z/c/deep")
	write(t, path("z/c/deep"), "under its new name")
	r.change(from, contracts.FileModified, "z/c/deep")
	write(t, path("a/b/again"), "in a directory of the old name")
	r.change(from, contracts.FileCreated, "a/b/again")

	must(t, os.RemoveAll(path("z")))
	r.change(from, contracts.FileDeleted, "z/c/deep")
	r.change(from, contracts.FileDeleted, "z")
	write(t, path("z/once more"), "")
	r.change(from, contracts.FileCreated, "z/once more")

	must(t, os.Mkdir(path("empty"), 0o700))
	must(t, os.Rename(path("empty"), filepath.Join(t.TempDir(), "gone")))
	r.change(from, contracts.FileDeleted, "empty")
	r.settle("w")
	if got, want := r.watched(), []string{".", "a", "a/b", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %q watched, want %q", got, want)
	}
}

func TestNamesMayBeAnything(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	for _, name := range []string{"new\nline", `quoted" ← "arrow`, "%s*?[", strings.Repeat("long", 60), " ", "...", "bad\xff utf-8"} {
		write(t, filepath.Join(r.root, name), "")
		must(t, os.Rename(filepath.Join(r.root, name), filepath.Join(r.root, "x"+name)))
		await(r, "a renaming of "+name, from, func(e *contracts.UtilityFileWatchEvent) bool {
			return e.RelativePath == "x"+name && e.ChangeType == renamed()
		})
	}
}

func TestWatchIsFiltered(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"node_modules/m/x": "", "src/testdata/x": ""})
	cmd := &contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0)),
		IncludePatterns: []string{"**/*.go", "settled*"}, ExcludePatterns: []string{"**/testdata/**"}}
	r.do(cmd)
	started, _ := await(r, "the start", 0, func(*contracts.UtilityFileWatchStarted) bool { return true })
	if !slices.Equal(started.IncludePatterns, cmd.IncludePatterns) || !slices.Equal(started.ExcludePatterns, cmd.ExcludePatterns) ||
		started.DebounceMS != 0 || started.RootDir != r.root || started.OwnerConnectionID != "alice" {
		t.Errorf("got %+v, want what was asked for", started)
	}
	for _, name := range []string{"a.txt", "node_modules/m/a.go", "node_modules/new/a.go", "src/testdata/a.go", "src/a.log", ".git/a.go", "src/.DS_Store", "build/x/a.go"} {
		write(t, filepath.Join(r.root, name), "")
	}
	write(t, filepath.Join(r.root, "src/b.go"), "")
	r.change(0, contracts.FileCreated, "src/b.go")
	r.settle("w")
	for _, c := range r.changes("w") {
		if c != "create src/b.go" && !strings.Contains(c, "settled") {
			t.Errorf("got %q, want only what is included", c)
		}
	}
}

func TestWatchesStopOnceWithTheirReason(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(60_000))})
	r.refused(&contracts.UtilityFileWatchStart{WatchID: "w"}, contracts.CodeBadRequest, "Utility file watch already exists: w")
	r.as("bob", &contracts.UtilityFileWatchStart{WatchID: "his"})
	r.refused(&contracts.UtilityFileWatchStop{WatchID: "his"}, contracts.CodeAccessDenied, "Headless file watch his is owned by another connection")
	write(t, filepath.Join(r.root, "pending"), "")
	await(r, "pending in his", 0, func(e *contracts.UtilityFileWatchEvent) bool { return e.WatchID == "his" })
	r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
	n := r.count()
	r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "ghost"})
	if got := r.count(); got != n {
		t.Errorf("got %s, want nothing about watches that are not there", r.history())
	}
	r.Disown("bob")
	for id, want := range map[string]string{"w": "Stopped by controller", "his": "Owning connection closed while file watch was still running"} {
		ev, _ := await(r, "the end of "+id, 0, func(e *contracts.UtilityFileWatchStopped) bool { return e.WatchID == id })
		if ev.Reason != want {
			t.Errorf("%s: got reason %q, want %q", id, ev.Reason, want)
		}
	}
	if got := r.changes("w"); len(got) > 0 {
		t.Errorf("got %q, want no change that was not quiet yet", got)
	}
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w"})
}

func TestUnfitWatchesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{MaxWatches: 2}, map[string]string{"file": "", "few/a/b": ""})
	must(t, os.Symlink("/etc", filepath.Join(r.root, "out")))
	watch := func(id, root string) *contracts.UtilityFileWatchStart {
		return &contracts.UtilityFileWatchStart{WatchID: id, RootDir: &root}
	}
	r.refused(watch("w", "none"), contracts.CodeNotFound, "Utility file watch root directory does not exist: "+filepath.Join(r.root, "none"))
	r.refused(watch("w", "file"), contracts.CodeNotFound, "Utility file watch root directory does not exist: "+filepath.Join(r.root, "file"))
	r.refused(watch("w", "/etc"), contracts.CodeWorkspaceViolation, "Path is outside workspace root: /etc")
	r.refused(watch("w", "out"), contracts.CodeWorkspaceViolation, "Path is outside workspace root: "+filepath.Join(r.root, "out"))
	many := watch("w", "few")
	many.ExcludePatterns = slices.Repeat([]string{"x"}, 257)
	r.refused(many, contracts.CodeBadRequest, "Utility file watch has too many patterns")
	many.ExcludePatterns, many.IncludePatterns = nil, []string{strings.Repeat("x", 200_000)}
	r.refused(many, contracts.CodeBadRequest, "Utility file watch has too many patterns")
	if n := r.count(); n > 0 {
		t.Errorf("got %s, want no event", r.history())
	}
	r.watchOf(watch("w", "few")) // the id is free
	r.watchOf(watch("v", "few"))
	r.refused(watch("u", "few"), contracts.CodeOverloaded, "Too many utility file watches")
}

func TestStoppedBeforeItStartedIsSilent(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	starting := make(chan struct{})
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityFileWatchStarted); ok {
			close(starting)
			<-ctx.Done() // it is stopped meanwhile
			return ctx.Err()
		}
		return nil
	}
	result := make(chan error)
	go func() { // ends with the call
		result <- r.Do(t.Context(), "alice", &contracts.UtilityFileWatchStart{WatchID: "w"})
	}()
	<-starting
	r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
	if err := <-result; err != nil {
		t.Errorf("got %v, want a start without result", err)
	}
	if n := r.count(); n > 0 {
		t.Errorf("got %s, want no event", r.history())
	}
}

// startsIn starts a watch of alice with a call that ends when ctx does.
func (r *room) startsIn(ctx context.Context, cmd *contracts.UtilityFileWatchStart) <-chan error {
	result := make(chan error, 1)
	go func() { result <- r.Do(ctx, "alice", cmd) }() // ends with the call
	return result
}

// tooLate expects the start of a watch to be refused because it took too long.
func (r *room) tooLate(err error) {
	r.t.Helper()
	var refusal *contracts.Error
	text := "Utility file watch could not be started in time: " + r.root
	if !errors.As(err, &refusal) || refusal.Code != contracts.CodeTimeout || refusal.Type != contracts.ErrorTool || refusal.RequestID != "w" || refusal.Message != text {
		r.t.Errorf("got %#v, want %q about w", err, text)
	}
}

// The call of a watch is over before all directories are found.
func TestWatchThatTakesTooLongToStartIsRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/f": "", "b/f": ""})
	release := make(chan struct{})
	r.ofTree(func(l *lookout) {
		open := l.open
		l.open = func() (*source, error) {
			<-release
			return open()
		}
	})
	cmd := &contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r.tooLate(<-r.startsIn(ctx, cmd))
	again, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r.tooLate(<-r.startsIn(again, cmd)) // that waits for the first one to go
	r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
	third := r.startsIn(t.Context(), cmd)
	close(release)
	must(t, <-third)
	write(t, filepath.Join(r.root, "a/new"), "")
	r.change(0, contracts.FileCreated, "a/new")
	if first, at := await(r, "the start", 0, func(contracts.Event) bool { return true }); at != 0 || first.EventType() != "utility_file_watch_started" {
		t.Errorf("got %s, want nothing of what was refused", r.history())
	}
	r.sound()
}

// The call of a watch is over while clients are told that it started. They
// either are, and then it has, or nothing of it is ever shown.
func TestWatchIsShownOrRefused(t *testing.T) {
	t.Parallel()
	for name, isShown := range map[string]bool{"shown": true, "not shown": false} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, Options{}, nil)
			call, end := context.WithCancelCause(t.Context())
			tries := 0
			r.before = func(ctx context.Context, ev contracts.Event) error {
				if _, ok := ev.(*contracts.UtilityFileWatchStarted); !ok || tries > 0 {
					return nil
				}
				tries++
				end(context.DeadlineExceeded)
				<-ctx.Done() // with the call
				if isShown {
					return nil
				}
				return ctx.Err()
			}
			cmd := &contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))}
			err := <-r.startsIn(call, cmd)
			if isShown {
				must(t, err)
			} else {
				r.tooLate(err)
				if n := r.count(); n > 0 {
					t.Errorf("got %s, want no event", r.history())
				}
				r.do(cmd)
			}
			write(t, filepath.Join(r.root, "f"), "")
			r.change(0, contracts.FileCreated, "f")
			r.do(&contracts.UtilityFileWatchStop{WatchID: "w"})
			await(r, "the end", 0, func(e *contracts.UtilityFileWatchStopped) bool { return e.Reason == "Stopped by controller" })
		})
	}
}

func TestWatchEndsWithItsRoot(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+"2") },
	} {
		r := newRoom(t, Options{}, map[string]string{"parent/dir/sub/f": ""})
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: ptr("parent/dir")})
		must(t, remove(filepath.Join(r.root, "parent/dir")))
		r.ends(name)
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all"})
		must(t, remove(r.root))
		r.ends(name)
	}
	r := newRoom(t, Options{}, nil)
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w"})
	must(t, os.Remove(r.root)) // there is nothing in it whose end would be told
	r.ends("empty")
}

// ends waits for the end of a watch whose root is gone, and forgets it.
func (r *room) ends(name string) {
	r.t.Helper()
	await(r, name+": the end", 0, func(e *contracts.UtilityFileWatchStopped) bool { return e.Reason == "Watch root removed" })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

func TestWatchDoesNotLookBehindLinks(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	r := newRoom(t, Options{}, map[string]string{"real/f": ""})
	must(t, os.Symlink(outside, filepath.Join(r.root, "out")))
	must(t, os.Symlink("real", filepath.Join(r.root, "link")))
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	must(t, os.Symlink(outside, filepath.Join(r.root, "new")))
	if r.change(from, contracts.FileCreated, "new").IsDirectory {
		t.Error("got a directory, want the link itself")
	}
	write(t, filepath.Join(outside, "secret"), "")
	write(t, filepath.Join(r.root, "link/f"), "changed")
	r.change(from, contracts.FileModified, "real/f")
	r.settle("w")
	for _, c := range r.changes("w") {
		if strings.Contains(c, "secret") || strings.Contains(c, "link/") {
			t.Errorf("got %q, want nothing seen through links", c)
		}
	}
}

// What a directory is swapped for is not looked at to tell what has become of
// what was in it.
func TestNothingIsToldFromBehindALink(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"outside": t.TempDir(), "inside": "other"} {
		r := newRoom(t, Options{}, map[string]string{"dir/f": "", "other/new/secret": "", "other/f/secret": ""})
		if name == "outside" {
			write(t, filepath.Join(target, "new/secret"), "")
			write(t, filepath.Join(target, "f/secret"), "")
		}
		b := newBrake(r)
		f := newFold(r, "w")
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
		dir := filepath.Join(r.root, "dir")
		b.stop()
		write(t, filepath.Join(dir, "new"), "")
		write(t, filepath.Join(dir, "f"), "changed")
		must(t, os.RemoveAll(dir))
		must(t, os.Symlink(target, dir))
		b.release()
		f.agrees()
		r.settle("w")
		for _, c := range r.changes("w") {
			if strings.Contains(c, "secret") {
				t.Errorf("%s: got %q, want nothing from behind the link", name, c)
			}
		}
		r.sound()
	}
}

func TestWatchesShareWhatTheyWatch(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/f": "", "b/f": ""})
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "a", RootDir: ptr("a"), DebounceMS: ptr(int64(0))})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "all"})
	write(t, filepath.Join(r.root, "a/f"), "changed")
	await(r, "a change", 0, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.WatchID == "a" && e.RelativePath == "f" && e.Path == filepath.Join(r.root, "a/f")
	})
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
	must(t, os.RemoveAll(filepath.Join(r.root, "a")))
	await(r, "the end of the inner watch", 0, func(e *contracts.UtilityFileWatchStopped) bool { return e.Reason == "Watch root removed" })
	await(r, "the deletion in the outer", 0, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.WatchID == "all" && e.RelativePath == "a" && e.ChangeType == contracts.FileDeleted
	})
}

func TestSlowReaderOfAWatchLosesNoPath(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
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
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	for i := range 300 {
		write(t, filepath.Join(r.root, fmt.Sprintf("d%d/f", i)), "")
	}
	close(release)
	for i := range 300 {
		r.change(0, contracts.FileCreated, fmt.Sprintf("d%d/f", i))
	}
}

func TestFailedPublishEndsTheWatch(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	r := newRoom(t, Options{}, nil)
	r.before = func(_ context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityFileWatchEvent); ok {
			return full
		}
		return nil
	}
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	write(t, filepath.Join(r.root, "f"), "")
	await(r, "the end", 0, func(*contracts.UtilityFileWatchStopped) bool { return true })
}

// Each event is written to a journal, and is not to be the next change.
func TestJournalsAreNotWatched(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"state", ".maestro"} {
		dir := t.TempDir()
		journals := filepath.Join(dir, place, "journals")
		write(t, filepath.Join(journals, "one/000.jsonl"), "")
		write(t, filepath.Join(journals, "two/000.jsonl"), "")
		r := roomAt(t, Options{Journals: journals}, dir)
		r.after = func(contracts.Event) {
			if err := os.WriteFile(filepath.Join(journals, fmt.Sprintf("one/%d.jsonl", r.count())), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		for _, root := range []string{place + "/journals", place + "/journals/one"} {
			r.refused(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: &root}, contracts.CodeAccessDenied,
				"Utility file watch root directory holds journals: "+filepath.Join(r.root, filepath.FromSlash(root)))
		}
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "all", DebounceMS: ptr(int64(0))})
		from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: ptr(place), DebounceMS: ptr(int64(0))})
		for range 5 {
			r.settle("all")
		}
		must(t, os.RemoveAll(filepath.Join(journals, "two")))
		must(t, os.MkdirAll(filepath.Join(journals, "two"), 0o700))
		write(t, filepath.Join(dir, place, "f"), "")
		r.change(from, contracts.FileCreated, "f")
		r.settle("all")
		for _, c := range append(r.changes("w"), r.changes("all")...) {
			if strings.Contains(c, "journals") {
				t.Errorf("%s: got %q, want nothing of journals", place, c)
			}
		}
		if got := r.watched(); !slices.Equal(got, []string{".", place}) {
			t.Errorf("got %q watched, want no journals", got)
		}
		r.sound()
	}
}
