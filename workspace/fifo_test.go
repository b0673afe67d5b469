//go:build unix

package workspace

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestPipeIsNoAttachmentAndDoesNotBlock(t *testing.T) {
	w := open(t, Options{}, nil)
	if err := syscall.Mkfifo(filepath.Join(w.Root(), "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, failed := w.Attachments([]string{"fifo"})
	if want := "Unsupported attachment (not image/text): fifo"; len(loaded) > 0 || !slices.Equal(failed, []string{want}) {
		t.Errorf("got %+v, %q; want only %q", loaded, failed, want)
	}
}
