package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestPathsAreReadFromTheRoot(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	write(t, filepath.Join(home, "work/a/f"), "")
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(filepath.Join(home, "work"), link))
	w := openDir(t, link)
	for path, want := range map[string]string{
		".": ".", "": ".", "a/f": "a/f", "./a/../b": "b", "..c": "..c", "~/work/a": "a", "~": "", "~user": "~user",
		"..": "", "a/../../x": "", "/": "", link: ".", filepath.Join(link, "a"): "a", link + "2": "", filepath.Join(w.Root(), "a"): "a",
	} {
		got, err := w.Rel(path)
		if got != want || errors.Is(err, ErrOutside) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"a": filepath.Join(w.Root(), "a"), link: w.Root(), "~/x/../y": filepath.Join(home, "y"), "../x": filepath.Join(filepath.Dir(w.Root()), "x"), "/a/..": "/",
	} {
		if got := w.Abs(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
	if got, want := w.At("~"), filepath.Join(w.Root(), "~"); got != want {
		t.Errorf("got %q, want %q: a name below the root stands for itself", got, want)
	}
}

func TestNothingBehindALinkOutIsSeen(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "d/secret"), "s")
	w := open(t, map[string]string{"a/f": "in"})
	for name, target := range map[string]string{
		"out": outside, "up": "../..", "file": filepath.Join(outside, "d/secret"), "back": w.Root(), "in": "a", "chain": "in/f", "loop": "loop", "a/top": "..",
	} {
		must(t, os.Symlink(target, filepath.Join(w.Root(), name)))
	}
	for rel, want := range map[string]error{
		"out": ErrOutside, "out/d/secret": ErrOutside, "out/none": ErrOutside, "up": ErrOutside, "file": ErrOutside, "back/a/f": ErrOutside,
		"none": fs.ErrNotExist, "none/x": fs.ErrNotExist, "a/f": nil, "in/f": nil, "chain": nil, "a/top/a/f": nil,
	} {
		if _, err := w.Stat(rel); !errors.Is(err, want) {
			t.Errorf("stat %s: got %v, want %v", rel, err, want)
		}
		f, err := w.OpenFile(rel)
		if !errors.Is(err, want) {
			t.Errorf("open %s: got %v, want %v", rel, err, want)
		}
		if err == nil {
			f.Close()
		}
		if _, err := w.Real(rel); !errors.Is(err, want) {
			t.Errorf("real %s: got %v, want %v", rel, err, want)
		}
	}
	for _, rel := range []string{"file", "out/d/secret"} {
		if got := w.textAt(w.At(rel), 10, true); got != "" {
			t.Errorf("text at %s: got %q, want none", rel, got)
		}
		if _, err := w.statAt(w.At(rel)); !errors.Is(err, ErrOutside) {
			t.Errorf("stat at %s: got %v, want %v", rel, err, ErrOutside)
		}
	}
	if got := w.textAt(filepath.Join(outside, "d/secret"), 10, true); got != "s" {
		t.Errorf("got %q, want what an absolute path outside names", got)
	}
	if _, err := w.OpenFile("out"); !errors.Is(err, ErrOutside) {
		t.Errorf("open out: got %v, want %v", err, ErrOutside)
	}
	if info, err := w.Lstat("out"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("lstat out: got %v, %v; want the link itself", info, err)
	}
	for rel, want := range map[string]string{"in/f": "a/f", "chain": "a/f", "a/top/in": "a", ".": ".", "a/./f": "a/f"} {
		if got, err := w.Real(rel); got != want || err != nil {
			t.Errorf("real %s: got %q, %v; want %q", rel, got, err, want)
		}
	}
	if _, err := w.Real("loop"); err == nil {
		t.Error("real loop: got no error, want one")
	}
}
