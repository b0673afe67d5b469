package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// holds checks what the file at a slash-separated path below the root holds.
func holds(t *testing.T, w *Workspace, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(w.Root(), name))
	if err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
	}
}

// allNames returns the paths of everything below dir.
func allNames(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, dir))
		return err
	}))
	return names
}

func TestFilesAreMadeWithTheirDirectories(t *testing.T) {
	w := open(t, map[string]string{"a/in": "old"})
	must(t, os.Symlink("a", filepath.Join(w.Root(), "link")))
	must(t, w.CreateFile("one", []byte("1")))
	must(t, w.CreateFile("b/c/two", []byte("2")))
	must(t, w.CreateFile("link/d/three", []byte("3")))
	must(t, w.WriteFile("e/four", nil))
	must(t, w.WriteFile("a/in", []byte("new")))
	for name, want := range map[string]string{"one": "1", "b/c/two": "2", "a/d/three": "3", "e/four": "", "a/in": "new"} {
		holds(t, w, name, want)
	}
	want := []string{"", "/a", "/a/d", "/a/d/three", "/a/in", "/b", "/b/c", "/b/c/two", "/e", "/e/four", "/link", "/one"}
	if got := allNames(t, w.Root()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: no temporary file is left", got, want)
	}
}

func TestCreatedFileTakesNobodysPlace(t *testing.T) {
	w := open(t, map[string]string{"taken": "old", "dir/x": ""})
	must(t, os.Symlink("taken", filepath.Join(w.Root(), "link")))
	for name, want := range map[string]error{"taken": fs.ErrExist, "link": fs.ErrExist, "dir": ErrNotRegular, ".": ErrNotRegular} {
		if err := w.CreateFile(name, []byte("new")); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	holds(t, w, "taken", "old")
}

// Of many that create the same file one does, and what it wrote is there.
func TestOneOfManyCreates(t *testing.T) {
	w := open(t, nil)
	for round := range 50 {
		name := fmt.Sprintf("dir/%d", round)
		var all sync.WaitGroup
		var created atomic.Int64
		var by atomic.Pointer[string]
		for i := range 8 {
			text := fmt.Sprint(i)
			all.Go(func() {
				switch err := w.CreateFile(name, []byte(text)); {
				case err == nil:
					created.Add(1)
					by.Store(&text)
				case !errors.Is(err, fs.ErrExist):
					t.Errorf("got %v, want %v", err, fs.ErrExist)
				}
			})
		}
		all.Wait()
		if created.Load() != 1 {
			t.Fatalf("got %d that created, want one", created.Load())
		}
		holds(t, w, name, *by.Load())
	}
	if got := allNames(t, w.Root()); len(got) != 52 {
		t.Errorf("got %q, want 50 files", got)
	}
}

func TestOnlyWhatWasReadIsReplaced(t *testing.T) {
	w := open(t, map[string]string{"same": "old", "other": "old", "gone": "old", "renamed": "old", "rewritten": "old"})
	infos := map[string]fs.FileInfo{}
	for _, name := range []string{"same", "other", "gone", "renamed", "rewritten"} {
		data, info, err := w.ReadFile(name, 3)
		if err != nil || string(data) != "old" {
			t.Fatalf("got %q, %v; want old", data, err)
		}
		infos[name] = info
	}
	write(t, filepath.Join(w.Root(), "other"), "another")
	must(t, os.Chtimes(filepath.Join(w.Root(), "other"), infos["other"].ModTime(), infos["other"].ModTime()))
	must(t, os.Remove(filepath.Join(w.Root(), "gone")))
	write(t, filepath.Join(w.Root(), "new"), "abc")
	must(t, os.Chtimes(filepath.Join(w.Root(), "new"), infos["renamed"].ModTime(), infos["renamed"].ModTime()))
	must(t, os.Rename(filepath.Join(w.Root(), "new"), filepath.Join(w.Root(), "renamed")))

	write(t, filepath.Join(w.Root(), "rewritten"), "odd")
	later := infos["rewritten"].ModTime().Add(time.Second)
	must(t, os.Chtimes(filepath.Join(w.Root(), "rewritten"), later, later))

	must(t, w.ReplaceFile("same", []byte("new"), infos["same"]))
	holds(t, w, "same", "new")
	for _, name := range []string{"same", "other", "gone", "renamed", "rewritten"} {
		if err := w.ReplaceFile(name, []byte("lost"), infos[name]); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: got %v, want %v", name, err, ErrChanged)
		}
	}
	holds(t, w, "same", "new")
	holds(t, w, "other", "another")
	holds(t, w, "renamed", "abc")
	holds(t, w, "rewritten", "odd")
}

func TestRefusedWriteMakesNoDirectory(t *testing.T) {
	w := open(t, map[string]string{"a/b/file": "old"})
	_, was, err := w.ReadFile("a/b/file", 10)
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(w.Root(), "a")))
	if err := w.ReplaceFile("a/b/file", []byte("new"), was); !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want %v", err, ErrChanged)
	}
	if got := allNames(t, w.Root()); len(got) != 1 {
		t.Errorf("got %q, want the root alone", got)
	}
}

// What somebody does while a file is being written counts.
func TestFileThatAppearsMeanwhileIsLeftAlone(t *testing.T) {
	w := open(t, nil)
	looks := 0
	err := w.write("file", []byte("mine"), func(found fs.FileInfo) error {
		if looks++; looks == 2 { // the last one before the file takes its place
			write(t, filepath.Join(w.Root(), "file"), "theirs")
		}
		if found != nil {
			return fs.ErrExist
		}
		return nil
	})
	if !errors.Is(err, fs.ErrExist) || looks != 3 {
		t.Errorf("got %v after %d looks, want %v after 3", err, looks, fs.ErrExist)
	}
	holds(t, w, "file", "theirs")
	if got := allNames(t, w.Root()); len(got) != 2 {
		t.Errorf("got %q, want the file alone", got)
	}
}

func TestFileThatChangesMeanwhileIsLeftAlone(t *testing.T) {
	w := open(t, map[string]string{"file": "old"})
	_, was, err := w.ReadFile("file", 10)
	must(t, err)
	looks := 0
	err = w.write("file", []byte("mine"), func(found fs.FileInfo) error {
		if looks++; looks == 1 {
			write(t, filepath.Join(w.Root(), "file"), "theirs")
			return nil
		}
		if found.Size() != was.Size() {
			return ErrChanged
		}
		return nil
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want %v", err, ErrChanged)
	}
	holds(t, w, "file", "theirs")
	if got := allNames(t, w.Root()); len(got) != 2 {
		t.Errorf("got %q, want the file alone", got)
	}
}

func TestModeIsKept(t *testing.T) {
	w := open(t, map[string]string{"script": "old", "closed": "old"})
	path := filepath.Join(w.Root(), "script")
	for _, mode := range []fs.FileMode{0o755, 0o600, 0o664, 0o222} {
		must(t, os.Chmod(path, mode))
		must(t, w.WriteFile("script", []byte("new")))
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("got %v, %v; want mode %v", info.Mode(), err, mode)
		}
	}
	must(t, os.Chmod(filepath.Join(w.Root(), "closed"), 0o444))
	if err := w.WriteFile("closed", []byte("new")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v for a file that nobody may write, want %v", err, fs.ErrPermission)
	}
	holds(t, w, "closed", "old")
	if got := allNames(t, w.Root()); len(got) != 3 {
		t.Errorf("got %q, want two files", got)
	}
}

func TestFileIsWrittenThroughALinkInside(t *testing.T) {
	w := open(t, map[string]string{"a/file": "old"})
	for name, target := range map[string]string{"link": "a/file", "a/up": "../a/file", "dangling": "a/new", "first": "second", "second": "a/far", "loop": "loop"} {
		must(t, os.Symlink(target, filepath.Join(w.Root(), name)))
	}
	for name, at := range map[string]string{"link": "a/file", "a/up": "a/file", "dangling": "a/new", "first": "a/far"} {
		must(t, w.WriteFile(name, []byte(name)))
		holds(t, w, at, name)
		if info, err := os.Lstat(filepath.Join(w.Root(), name)); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s: got %v, %v; want a link still", name, info.Mode(), err)
		}
	}
	if err := w.WriteFile("loop", nil); err == nil {
		t.Error("got no error for a link to itself, want one")
	}
}

func TestNothingIsWrittenOutside(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret")
	before := allNames(t, outside)
	w := open(t, map[string]string{"in": "in"})
	for name, target := range map[string]string{
		"dir": outside, "file": filepath.Join(outside, "secret"), "new": filepath.Join(outside, "new"),
		"up": "..", "upfile": "../made", "absolute": filepath.Join(w.Root(), "in"),
	} {
		must(t, os.Symlink(target, filepath.Join(w.Root(), name)))
	}
	for _, name := range []string{
		"dir/secret", "dir/new", "dir/deep/new", "file", "new", "up/made", "up/deep/made", "upfile", "absolute", "../made", filepath.Join(outside, "secret"),
	} {
		for how, do := range map[string]func() error{
			"write": func() error { return w.WriteFile(name, []byte("x")) }, "create": func() error { return w.CreateFile(name, []byte("x")) },
		} {
			if err := do(); !errors.Is(err, ErrOutside) {
				t.Errorf("%s %s: got %v, want %v", how, name, err, ErrOutside)
			}
		}
		if _, _, err := w.ReadFile(name, 100); !errors.Is(err, ErrOutside) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read %s: got %v, want %v", name, err, ErrOutside)
		}
	}
	if got := allNames(t, outside); !slices.Equal(got, before) {
		t.Errorf("got %q outside, want %q", got, before)
	}
	holds(t, w, "in", "in")
	if _, err := os.Lstat(filepath.Join(filepath.Dir(w.Root()), "made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a file beside the root, want %v", err, fs.ErrNotExist)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	w := open(t, map[string]string{"file": "12345", "dir/x": ""})
	must(t, os.Symlink("file", filepath.Join(w.Root(), "link")))
	if data, _, err := w.ReadFileNoFollow("link", 5); !errors.Is(err, ErrNotRegular) {
		t.Errorf("got %q, %v for a link; want %v", data, err, ErrNotRegular)
	}
	if data, _, err := w.ReadFileNoFollow("file", 5); err != nil || string(data) != "12345" {
		t.Errorf("got %q, %v; want all of it", data, err)
	}
	if data, info, err := w.ReadFile("file", 5); err != nil || string(data) != "12345" || info.Size() != 5 {
		t.Errorf("got %q, %v; want all of it", data, err)
	}
	for name, want := range map[string]error{"file": ErrTooLarge, "dir": ErrNotRegular, "none": fs.ErrNotExist} {
		if data, _, err := w.ReadFile(name, 4); !errors.Is(err, want) || data != nil {
			t.Errorf("%s: got %q, %v; want %v", name, data, err, want)
		}
	}
}

// A file that somebody reads all the time is always a whole one.
func TestWrittenFileIsAlwaysComplete(t *testing.T) {
	w := open(t, map[string]string{"file": strings.Repeat("0", 1<<16)})
	var stopped atomic.Bool
	done := make(chan int)
	go func() { // ends when stopped is set
		n := 0
		for ; !stopped.Load() || n == 0; n++ {
			data, _, err := w.ReadFile("file", 1<<20)
			if err != nil || len(data) != 1<<16 || strings.Trim(string(data), string(data[:1])) != "" {
				t.Errorf("got %d bytes, %v; want one of the texts", len(data), err)
				break
			}
		}
		done <- n
	}()
	for i := range 200 {
		must(t, w.WriteFile("file", []byte(strings.Repeat(fmt.Sprint(i%10), 1<<16))))
	}
	stopped.Store(true)
	if <-done == 0 {
		t.Error("got no look at the file, want some")
	}
}

// While directories and files become links to what is outside and back again,
// nothing is written, changed or removed outside, and nothing is left behind.
func TestNothingOutsideIsWrittenWhileLinksAreSwappedIn(t *testing.T) {
	outside := t.TempDir()
	for _, name := range []string{"own", "deep/own", "secret"} {
		write(t, filepath.Join(outside, name), "secret")
	}
	before := allNames(t, outside)
	w := open(t, map[string]string{"swap/own": "own", "holder/deep/own": "own", "file": "own"})
	stop := relinking(t, w.Root(), map[string]string{
		"swap": outside, "holder/deep": filepath.Join(outside, "deep"), "file": filepath.Join(outside, "secret"),
	})
	defer stop()
	done, refused := 0, 0
	for i := range swapAttempts {
		made := fmt.Sprintf("made-%d", i)
		for _, err := range []error{
			w.WriteFile("swap/own", []byte("new")), w.WriteFile("holder/deep/own", []byte("new")), w.WriteFile("file", []byte("new")),
			w.CreateFile("swap/"+made, []byte("new")), w.CreateFile("holder/deep/"+made, []byte("new")),
			replace(t, w, "swap/own"), replace(t, w, "holder/deep/own"), replace(t, w, "file"),
		} {
			switch {
			case err == nil:
				done++
			case errors.Is(err, ErrOutside):
				refused++
			}
		}
	}
	stop()
	if done == 0 || refused == 0 {
		t.Errorf("got %d writes and %d refusals, want both", done, refused)
	}
	t.Logf("%d writes, %d refusals", done, refused)
	if got := allNames(t, outside); !slices.Equal(got, before) {
		t.Errorf("got %q outside, want %q", got, before)
	}
	for _, name := range []string{"own", "deep/own", "secret"} {
		if got, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(got) != "secret" {
			t.Errorf("%s: got %q, %v; want what was there", name, got, err)
		}
	}
	for _, name := range allNames(t, filepath.Dir(outside)) { // with where things are while links are in their places
		if strings.HasSuffix(name, ".tmp") {
			t.Errorf("got %s, want no temporary file", name)
		}
	}
}

// relinking is swapping that goes on whatever is made in the places of what it
// swaps: a directory while there is none, or a file instead of the link.
func relinking(t *testing.T, root string, targets map[string]string) func() {
	var stopped atomic.Bool
	var all sync.WaitGroup
	for name, target := range targets {
		at, kept := filepath.Join(root, name), filepath.Join(t.TempDir(), "kept")
		all.Go(func() { // ends when stopped is set
			for !stopped.Load() {
				if err := os.Rename(at, kept); err != nil {
					t.Errorf("got %v, want what is swapped in its place", err)
					return
				}
				_ = os.Symlink(target, at) // unless something was made there
				for os.Remove(at) != nil || os.Rename(kept, at) != nil {
					_ = os.RemoveAll(at) // what was made there
					if os.Rename(kept, at) == nil {
						break
					}
				}
			}
		})
	}
	return func() {
		stopped.Store(true)
		all.Wait()
	}
}

// replace replaces a file by way of its old contents, in which there must be
// nothing from outside.
func replace(t *testing.T, w *Workspace, name string) error {
	data, info, err := w.ReadFile(name, 100)
	if err != nil {
		return err
	}
	if string(data) == "secret" {
		t.Errorf("%s: got %q, want nothing from outside", name, data)
	}
	return w.ReplaceFile(name, []byte("new"), info)
}
