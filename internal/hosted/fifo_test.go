//go:build unix

package hosted

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSlowGitIsDoneWithoutAndLeavesNothing(t *testing.T) {
	bin := folder(t)
	alive := filepath.Join(bin, "alive") // ends when nobody that git started is left
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	pulse, err := os.OpenFile(alive, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pulse.Close()
	write(t, filepath.Join(bin, "git"), "#!/bin/sh\nexec 3>'"+alive+"'\necho '# branch.head main'\nsleep 600 &\nwait\n")
	if err := os.Chmod(filepath.Join(bin, "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if g := gitState(context.Background(), folder(t)); g != nil {
		t.Errorf("got %+v, want nothing", g)
	}
	if _, err := io.Copy(io.Discard, pulse); err != nil {
		t.Error(err)
	}
}

func TestManifestIsNotWaitedFor(t *testing.T) {
	fifo := filepath.Join(folder(t), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := LoadManifest(fifo, folder(t))
	if err == nil || !strings.HasPrefix(err.Error(), "failed to read hosted runner restore manifest: ") {
		t.Errorf("got %v, want it said that a pipe is no manifest", err)
	}
}
