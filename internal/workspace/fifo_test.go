//go:build unix

package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestPipeIsNoAttachmentAndDoesNotBlock(t *testing.T) {
	w := open(t, nil)
	if err := syscall.Mkfifo(filepath.Join(w.Root(), "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, failed := w.Attachments([]string{"fifo"})
	if want := "Unsupported attachment (not image/text): fifo"; len(loaded) > 0 || !slices.Equal(failed, []string{want}) {
		t.Errorf("got %+v, %q; want only %q", loaded, failed, want)
	}
}

// A pipe that takes the place of a file or directory does not stop anybody.
func TestPipesAreNotWaitedFor(t *testing.T) {
	quietGit(t)
	w := open(t, withRepository(map[string]string{"a": ""}, "."))
	for _, name := range []string{"pipe", ".gitignore", ".git/info/exclude", ".git/config"} {
		name = filepath.Join(w.Root(), name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, syscall.Mkfifo(name, 0o600))
	}
	wantFiles(t, w, ".", "a")
	v := (&walk{w: w, ctx: t.Context(), limit: 10}).visit()
	if v.read(folder{path: "pipe", rules: &level{}}, make([]byte, entriesBytes)); len(v.files) > 0 {
		t.Errorf("got %q in a pipe, want nothing", v.files)
	}
}
