package utility

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/contracts"
)

// systemWatches returns the inodes that the process has watched by the system,
// and how often.
func systemWatches(t testing.TB) map[uint64]int {
	t.Helper()
	inodes := make(map[uint64]int)
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	must(t, err)
	for _, file := range files {
		info, err := os.ReadFile(file)
		if err != nil {
			continue // it was closed meanwhile
		}
		for line := range strings.Lines(string(info)) {
			var wd, ino uint64
			if n, _ := fmt.Sscanf(line, "inotify wd:%x ino:%x", &wd, &ino); n == 2 {
				inodes[ino]++
			}
		}
	}
	return inodes
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return idOf(info).number()
}

func TestWatchesOfOneTreeShareIt(t *testing.T) {
	t.Parallel()
	files := make(map[string]string)
	for i := range 30 {
		files[fmt.Sprintf("d%d/e/f", i)] = ""
	}
	r := newRoom(t, Options{}, files)
	dirs := []uint64{inode(t, r.root)}
	for i := range 30 {
		dirs = append(dirs, inode(t, filepath.Join(r.root, fmt.Sprintf("d%d", i))), inode(t, filepath.Join(r.root, fmt.Sprintf("d%d/e", i))))
	}
	each := func(want int) {
		t.Helper()
		got := systemWatches(t)
		for _, ino := range dirs {
			if got[ino] != want {
				t.Fatalf("got inode %d watched %d times, want %d", ino, got[ino], want)
			}
		}
		r.sound()
	}
	for i := range 64 {
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: fmt.Sprint(i), DebounceMS: ptr(int64(0))})
	}
	each(1)
	write(t, filepath.Join(r.root, "d7/e/new"), "")
	for i := range 64 {
		await(r, "a change", 0, func(e *contracts.UtilityFileWatchEvent) bool {
			return e.WatchID == fmt.Sprint(i) && e.RelativePath == "d7/e/new"
		})
	}
	for i := range 63 {
		r.do(&contracts.UtilityFileWatchStop{WatchID: fmt.Sprint(i)})
	}
	each(1)
	write(t, filepath.Join(r.root, "d8/e/new"), "")
	await(r, "a change", 0, func(e *contracts.UtilityFileWatchEvent) bool {
		return e.WatchID == "63" && e.RelativePath == "d8/e/new"
	})
	r.do(&contracts.UtilityFileWatchStop{WatchID: "63"})
	each(0)
	r.ofTree(func(l *lookout) {
		if l.source != nil {
			t.Error("got an open source, want none without a watch")
		}
	})
}

// A file system that is mounted below itself has directories that lie in
// themselves.
func TestDirectoryBelowItselfIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/b/f": ""})
	brake := newBrake(r)
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	r.ofTree(func(l *lookout) {
		b := l.tree.top.children["a"].children["b"]
		for at := b; at != nil; at = at.parent {
			if l.vacate(at.id, b) || l.stale {
				t.Errorf("%s: got it taken in, or stale %v; want it left out", at.path, l.stale)
			}
		}
	})
	r.sound()
	brake.stop()
	must(t, os.Rename(filepath.Join(r.root, "a"), filepath.Join(t.TempDir(), "a")))
	r.ofTree(func(l *lookout) {
		a := l.tree.top.children["a"]
		if l.vacate(a.id, a.children["b"]) || !l.stale {
			t.Errorf("got it taken in, or stale %v; want the tree compared", l.stale)
		}
	})
	brake.release()
}

// ownMounts says that a test runs in a process that may mount as it likes.
const ownMounts = "UTILITY_TEST_OWN_MOUNTS"

// The same with the system's help, where it grants that.
func TestMountedAncestorIsLeftOut(t *testing.T) {
	if os.Getenv(ownMounts) == "" {
		self, err := os.Executable()
		must(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), ownMounts+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if err != nil && !errors.Is(err, syscall.EPERM) {
			t.Fatalf("got %v, want it to pass in a process of its own\n%s", err, out)
		}
		t.Logf("in a process of its own: %v\n%s", err, out)
		return
	}
	r := newRoom(t, Options{}, map[string]string{"a/b/f": "", "a/f": ""})
	on := filepath.Join(r.root, "a/b")
	if err := syscall.Mount(r.root, on, "", syscall.MS_BIND, ""); errors.Is(err, syscall.EPERM) {
		t.Log("the system does not let this user mount")
		return
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(on, syscall.MNT_DETACH)) })
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	write(t, filepath.Join(r.root, "a/new"), "")
	r.change(from, contracts.FileCreated, "a/new")
	if got, want := r.watched(), []string{".", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %q watched, want %q", got, want)
	}
	r.ofTree(func(l *lookout) {
		if l.stale || !l.syncAt.IsZero() {
			t.Error("got the tree compared, want it known")
		}
	})
	r.sound()
}

// A directory is swapped for a link, inside and out of the workspace, all the
// time. What the link leads to is no part of the watch.
func TestSwappedDirectoryIsNotFollowed(t *testing.T) {
	t.Parallel()
	const swaps = 1000
	for name, inside := range map[string]bool{"outside": false, "inside": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, Options{}, map[string]string{"root/dir/f": "public", "root/dir/sub/f": "", "other/sub/secret": "secret", "other/f": "secret"})
			other, target := filepath.Join(r.root, "other"), "../other"
			if !inside {
				other = t.TempDir()
				target = other
				write(t, filepath.Join(other, "f"), "secret")
				write(t, filepath.Join(other, "sub/secret"), "secret")
			}
			dir, spare, link := filepath.Join(r.root, "root/dir"), filepath.Join(r.root, "root/spare"), filepath.Join(r.root, "root/link")
			must(t, os.Symlink(target, link))
			from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", RootDir: ptr("root"), DebounceMS: ptr(int64(0))})
			secret := []uint64{inode(t, other), inode(t, filepath.Join(other, "sub"))}
			for i := range swaps {
				must(t, os.Rename(dir, spare))
				must(t, os.Rename(link, dir))
				write(t, filepath.Join(other, fmt.Sprintf("secret%d", i)), "")
				write(t, filepath.Join(other, fmt.Sprintf("sub/secret%d", i)), "")
				must(t, os.Rename(dir, link))
				must(t, os.Rename(spare, dir))
				must(t, os.Remove(filepath.Join(other, fmt.Sprintf("secret%d", i))))
				if i%10 == 0 {
					if got := systemWatches(t); got[secret[0]]+got[secret[1]] > 0 {
						t.Fatal("got what the link leads to watched, want it never to be")
					}
				}
			}
			write(t, filepath.Join(dir, "sub/last"), "")
			await(r, "what is in the directory now", from, func(e *contracts.UtilityFileWatchEvent) bool {
				return e.RelativePath == "dir/sub/last" && e.ChangeType != contracts.FileDeleted
			})
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, ev := range r.events {
				if text := fmt.Sprintf("%+v", ev); strings.Contains(text, "secret") {
					t.Fatalf("got %s, want nothing of what the link leads to", text)
				}
			}
		})
	}
}

// The system would follow a link that takes the place of a directory at the
// wrong moment: between being found and being watched, and back before anybody
// looks.
func TestDirectoryIsWatchedAndNotItsName(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"dir/f": "", "other/f": ""})
	dir, spare, other := filepath.Join(r.root, "dir"), filepath.Join(r.root, "spare"), t.TempDir()
	r.ofTree(func(l *lookout) {
		open := l.open
		l.open = func() (*source, error) {
			s, err := open()
			if err != nil {
				return nil, err
			}
			add, done := s.add, false
			s.add = func(f *os.File, path string) (string, error) {
				if path != dir || done {
					return add(f, path)
				}
				done = true
				failed := errors.Join(os.Rename(dir, spare), os.Symlink(other, dir))
				key, err := add(f, path)
				failed = errors.Join(failed, os.Remove(dir), os.Rename(spare, dir))
				if got := systemWatches(t); failed != nil || got[inode(t, other)] > 0 {
					t.Errorf("got %v, the other directory watched %d times; want it never to be", failed, got[inode(t, other)])
				}
				return key, err
			}
			return s, nil
		}
	})
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	r.settle("w")
	if got := systemWatches(t); got[inode(t, dir)] != 1 || got[inode(t, other)] != 0 {
		t.Errorf("got the directory watched %d times and the other %d, want 1 and 0", got[inode(t, dir)], got[inode(t, other)])
	}
	write(t, filepath.Join(other, "secret"), "")
	write(t, filepath.Join(dir, "new"), "")
	r.change(from, contracts.FileCreated, "dir/new")
	if got := r.changes("w"); slices.ContainsFunc(got, func(c string) bool { return strings.Contains(c, "secret") }) {
		t.Errorf("got %q, want nothing from elsewhere", got)
	}
}

func TestPathsToOpenFilesAreNewAndLeadThere(t *testing.T) {
	p, err := newOpenPaths()
	must(t, err)
	defer p.close()
	made := make(map[string]bool)
	for range 2000 {
		f, err := os.Open(t.TempDir())
		must(t, err)
		path := p.to(f)
		want, err := f.Stat()
		must(t, err)
		got, err := os.Stat(path)
		if err != nil || !os.SameFile(got, want) || made[path] {
			t.Fatalf("%s: got %v, made before %v; want a new path to the file", path, err, made[path])
		}
		made[path] = true
		must(t, f.Close())
	}
	p.made = 1 << 40 // more than there ever will be
	f, err := os.Open(t.TempDir())
	must(t, err)
	defer f.Close()
	if _, err := os.Stat(p.to(f)); err != nil {
		t.Errorf("got %v, want a path that the system still resolves", err)
	}
}

func TestFaultOfWhatIsGoneIsNoWarning(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	l := newLookout(nil, 1, nil, slog.New(slog.NewTextHandler(&log, nil)))
	defer l.close()
	events, faults := make(chan fsnotify.Event), make(chan error, 2)
	faults <- syscall.EINVAL
	faults <- syscall.EIO
	close(events)
	close(faults)
	l.take(&source{events: events, faults: faults}, nil)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, syscall.EIO.Error()) {
		t.Errorf("got %q, want the other fault alone", got)
	}
}

// The system reports what is written to an open file that has no name any more.
func TestWhatIsWrittenToWhatIsGoneIsNotTold(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"f": ""})
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0))})
	path := filepath.Join(r.root, "f")
	gone, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer gone.Close()
	must(t, os.Remove(path))
	r.change(from, contracts.FileDeleted, "f")
	_, err = gone.WriteString("x")
	must(t, err)
	r.settle("w")
	write(t, path, "")
	r.change(from, contracts.FileCreated, "f")
	if got := r.changes("w"); slices.Contains(got, "modify f") {
		t.Errorf("got %q, want the deletion and the creation", got)
	}
}

// Twenty sessions and their searches have a directory watched once.
func TestSessionsOfAWorkspaceShareItsWatches(t *testing.T) {
	t.Parallel()
	const sessions = 20
	first := newRoom(t, Options{}, map[string]string{"a/b/f": "", "c/f": "", ".gitignore": "", "node_modules/m/f": ""})
	gitInit(t, first.root)
	rooms := []*room{first}
	for range sessions - 1 {
		rooms = append(rooms, first.beside())
	}
	each := func(what string, want int, dirs ...string) {
		t.Helper()
		got := systemWatches(t)
		for _, dir := range dirs {
			if n := got[inode(t, filepath.Join(first.root, dir))]; n != want {
				t.Errorf("%s: got %q watched %d times, want %d", what, dir, n, want)
			}
		}
		first.sound()
	}
	shown, own := []string{".", "a", "a/b", "c"}, []string{"node_modules", "node_modules/m"}
	for i, r := range rooms {
		r.watchAll(fmt.Sprint("w", i))
	}
	each("watched", 1, shown...)
	each("watched", 0, own...)
	for _, r := range rooms {
		r.followed()
	}
	each("watched and searched", 1, append(shown, own...)...)
	write(t, filepath.Join(first.root, "a/b/new"), "")
	for _, r := range rooms {
		r.change(0, contracts.FileCreated, "a/b/new")
		r.lists("after a change", ".", ".gitignore", "a/b/f", "a/b/new", "c/f", "node_modules/m/f")
	}
	for i, r := range rooms {
		r.do(&contracts.UtilityFileWatchStop{WatchID: fmt.Sprint("w", i)})
	}
	each("searched", 1, append(shown, own...)...)
	write(t, filepath.Join(first.root, "a/b/newer"), "")
	first.lists("after another", ".", ".gitignore", "a/b/f", "a/b/new", "a/b/newer", "c/f", "node_modules/m/f")
	first.watchAll("again")
	first.rested() // a busy listing is not expired
	first.lister.expire()
	first.rested()
	each("watched again", 1, shown...)
	each("watched again", 0, own...)
	for _, r := range rooms[1:] {
		must(t, r.Close(t.Context()))
	}
	each("with the last session", 1, shown...)
	first.do(&contracts.UtilityFileWatchStop{WatchID: "again"})
	each("at the end", 0, shown...)
}

// What the system loses is made up for, for watches and for searches.
func TestLostReportsAreMadeUpForInSearches(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a/f": "", "b/c/f": ""})
	gitInit(t, r.root)
	b := newBrake(r)
	r.followed()
	r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(0)), RootDir: ptr("b")})
	for range 5 {
		b.stop()
		write(t, filepath.Join(r.root, "a/new/f"), "")
		must(t, os.RemoveAll(filepath.Join(r.root, "a/f")))
		r.ofTree(func(l *lookout) { l.stale, l.syncAt = true, l.syncAt.Add(-time.Hour) }) // as if they were lost
		b.release()
		r.lists("after a loss", ".", "a/new/f", "b/c/f")
		r.followed()
		write(t, filepath.Join(r.root, "a/new/g"), "")
		r.lists("and a change", ".", "a/new/f", "a/new/g", "b/c/f")
		r.sound()
		must(t, os.RemoveAll(filepath.Join(r.root, "a/new")))
		write(t, filepath.Join(r.root, "a/f"), "")
		r.lists("and another", ".", "a/f", "b/c/f")
	}
	if b.opens.Load() < 2 {
		t.Error("got the source opened once, want it opened anew after a loss")
	}
}
