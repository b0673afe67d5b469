package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPeakIsSeenThoughItIsOver(t *testing.T) {
	const size = 64_000_000
	grown := peakDuring(os.Getpid(), func() {
		check(unix.Munmap(must(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE))))
	})
	if grown < 32 {
		t.Errorf("peak while 64 MB were mapped: got %v MB, want about as many", grown)
	}
}

// The files of this process come and go with other tests; those of cat do not.
func TestDescriptorsAreFilesAndWatches(t *testing.T) {
	ofCat := func(files ...*os.File) int {
		cat := exec.CommandContext(t.Context(), "cat")
		cat.ExtraFiles = files
		in, err := cat.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cat.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cat.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has opened all that it opens
			t.Fatal(err)
		}
		n := descriptors(cat.Process.Pid)
		if err := errors.Join(in.Close(), cat.Wait()); err != nil {
			t.Fatal(err)
		}
		return n
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	watcher := os.NewFile(uintptr(fd), "inotify")
	defer watcher.Close()
	for range 3 {
		if _, err := unix.InotifyAddWatch(fd, t.TempDir(), unix.IN_CREATE); err != nil {
			t.Fatal(err)
		}
	}
	if more := ofCat(watcher) - ofCat(); more != 4 {
		t.Errorf("one open file with 3 watches: got %d more, want 4", more)
	}
}

func TestDiskBytesAreThoseOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "below/b"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := diskBytes(dir); err != nil || got != 2000 {
		t.Errorf("two files of 1000 bytes: got %d, %v", got, err)
	}
}

func TestReadEventCountsOneEvent(t *testing.T) {
	long := "data: " + strings.Repeat("x", 200<<10) + "\n"
	got, err := readEvent(strings.NewReader(": hello\nid: 1\n" + long + "\ndata: next\n\n"))
	if err != nil || got != len(long) {
		t.Errorf("an event longer than the buffer: got %d, %v; want %d", got, err, len(long))
	}
	if _, err := readEvent(strings.NewReader("data: cut")); err != io.EOF {
		t.Errorf("a stream that ends inside its event: got %v, want %v", err, io.EOF)
	}
}
