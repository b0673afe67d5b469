//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A journal keeps to its bound, whatever is written: 12 MiB here, in answers of
// 200 KiB each. While they are written faster than the disk syncs them, it takes
// up to twice as much.
func TestJournalKeepsToItsBound(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	script := filepath.Join(t.TempDir(), "script.json")
	text := `{"default":[{"say":{"text":"` + strings.Repeat("words ", 200<<10/6) + `","chunk":2000}}]}`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	r := serving(t, "--agent", "script:"+script, "--state-dir", state, "--retain-bytes", "1048576")
	c := r.attach(client.WithRole(contracts.RoleController))
	largest := int64(0)
	for range 60 {
		_, err := c.Prompt(t.Context(), "go on")
		for errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeBusy}) { // the run ends after its response
			_, err = c.Prompt(t.Context(), "go on")
		}
		if err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; {
			u, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, ended = u.Event.(*contracts.ResponseEnd)
		}
		largest = max(largest, sizeOf(t, filepath.Join(state, "workspaces/*/s-main/*.seg")))
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
	rest := sizeOf(t, filepath.Join(state, "workspaces/*/s-main/*.seg"))
	t.Logf("at most %.2f times the bound, and %.2f at rest", float64(largest)/bound, float64(rest)/bound)
	if largest > bound*5/2 || rest > bound*5/4 || rest < bound/4 {
		t.Errorf("got up to %d bytes on the disk and %d at rest, want at most 2 and 1 times %d, and somewhat more", largest, rest, bound)
	}
}

func sizeOf(t *testing.T, pattern string) (size int64) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil { // else it has just been removed
			size += info.Size()
		}
	}
	return size
}
