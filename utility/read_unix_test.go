//go:build unix

package utility

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// What would wait for somebody, or is no text by itself, is not even opened.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"dir/f": "x"})
	at := func(name string) string { return filepath.Join(r.root, name) }
	must(t, syscall.Mkfifo(at("fifo"), 0o600))
	must(t, os.Symlink("fifo", at("link")))
	socket, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer socket.Close()
	for _, name := range []string{"fifo", "link", "socket", "dir", "."} {
		path := at(name)
		r.refused(&contracts.UtilityFileRead{ReadID: "r", Path: name}, contracts.CodeBadRequest, "utility_file_read only supports regular files: "+path)
	}
	devices := roomAt(t, Options{}, "/dev")
	devices.refused(&contracts.UtilityFileRead{ReadID: "r", Path: "zero"}, contracts.CodeBadRequest, "utility_file_read only supports regular files: /dev/zero")
}

// A file is swapped for something that would wait for a writer.
func TestSwappedFifoDoesNotBlock(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"f": "text"})
	file, spare, fifo := filepath.Join(r.root, "f"), filepath.Join(r.root, "spare"), filepath.Join(r.root, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	var reading sync.WaitGroup
	stop := make(chan struct{})
	reading.Go(func() { // ends with stop
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := errors.Join(os.Rename(file, spare), os.Rename(fifo, file), os.Rename(file, fifo), os.Rename(spare, file)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 1000 {
		var refusal *contracts.Error
		if err := r.Do(t.Context(), "alice", &contracts.UtilityFileRead{ReadID: "r", Path: "f"}); err != nil && !errors.As(err, &refusal) {
			t.Errorf("got %v, want the text or a refusal", err)
		}
	}
	close(stop)
	reading.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if e, ok := ev.(*contracts.UtilityFileReadResult); ok && e.Content != "text" {
			t.Fatalf("got %q, want the file's text", e.Content)
		}
	}
}
