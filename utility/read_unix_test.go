//go:build unix

package utility

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

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

// Some files of the system are regular and wait for more at their end.
func TestReadThatWaitsEndsWithItsCall(t *testing.T) {
	r := newRoom(t, Options{}, nil)
	f, in, err := os.Pipe()
	must(t, err)
	defer f.Close()
	defer in.Close()
	_, err = in.WriteString("the beginning\n")
	must(t, err)
	cmd := &contracts.UtilityFileRead{ReadID: "r", Path: "f"}
	x := excerpt{res: &contracts.UtilityFileReadResult{Path: "/f"}, offset: 1, limit: 10, left: maxResultBytes}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var refusal *contracts.Error
	if err := r.readLines(ctx, cmd, f, &x); !errors.As(err, &refusal) || refusal.Code != contracts.CodeTimeout || refusal.RequestID != "r" ||
		refusal.Message != "File could not be read in time: /f" {
		t.Errorf("got %#v, want it refused", err)
	}
	gone := errors.New("gone")
	call, end := context.WithCancelCause(t.Context())
	end(gone)
	if err := r.readLines(call, cmd, f, &x); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the call's end", err)
	}
}
