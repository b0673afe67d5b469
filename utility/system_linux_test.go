package utility

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/contracts"
)

// While the working directory is exchanged for a link that leads out, no command
// runs outside.
func TestNoCommandStartsOutside(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	write(t, filepath.Join(out, "data"), "outside\n")
	r := newRoom(t, Options{}, map[string]string{"dir/data": "inside\n"})
	dir, link := filepath.Join(r.root, "dir"), filepath.Join(r.root, "link")
	must(t, os.Symlink(out, link))
	enough, over := make(chan struct{}), make(chan error, 1)
	go func() { // ends with the test
		for {
			select {
			case <-enough:
				over <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				over <- err
				return
			}
		}
	}()
	ran := 0
	for i := range 1000 {
		cmd := &contracts.UtilityCommandStart{CommandID: fmt.Sprint("c", i), Command: "cat data", Cwd: ptr("dir"), ShellMode: contracts.ShellModeDirect}
		if err := r.Do(t.Context(), "alice", cmd); err != nil {
			continue // it was seen to lead out
		}
		r.exited(cmd.CommandID)
		switch got := r.output(cmd.CommandID, contracts.StreamStdout); {
		case got == "inside\n":
			ran++
		case strings.Contains(got, "outside"):
			t.Fatalf("attempt %d: got %q, want nothing from outside", i, got)
		}
	}
	close(enough)
	must(t, <-over)
	if ran == 0 {
		t.Error("got no command that ran, want some")
	}
	t.Logf("%d of 1000 ran", ran)
}
