//go:build unix

package hosttest

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Witness returns the path of a FIFO. written receives a token after the first
// write. ended is closed when all processes that opened the FIFO for writing
// have ended.
func Witness(t testing.TB) (path string, written, ended <-chan struct{}) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "witness")
	Must(t, unix.Mkfifo(path, 0o600))
	w, e := make(chan struct{}), make(chan struct{})
	go func() { // ends with the last writer
		defer close(e)
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if _, err := io.ReadFull(f, make([]byte, 1)); err != nil {
			t.Errorf("got %v, want a byte from the command", err)
			return
		}
		close(w)
		if _, err := io.Copy(io.Discard, f); err != nil {
			t.Error(err)
		}
	}()
	return path, w, e
}

// Happens fails the test if c is not closed within [Patience].
func Happens(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		t.Fatalf("got nothing, want: %s", what)
	}
}
