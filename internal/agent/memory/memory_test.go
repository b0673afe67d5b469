package memory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/memory"
)

func TestAMemoryIsReadAsItWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	want := memory.Memory{Session: "s-1", Dir: "/work", Program: memory.Digest("a", "b"), Commands: memory.Digest("c")}
	if err := want.Write(dir, "m.json"); err != nil {
		t.Fatal(err)
	}
	if got, err := memory.Read(dir, "m.json"); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "m.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want a file for its owner only", info, err)
	}
}

func TestNoFileAndNoDirectoryAreAnEmptyMemory(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		if got, err := memory.Read(dir, "none.json"); err != nil || got != (memory.Memory{}) {
			t.Errorf("%q: got %+v, %v, want an empty memory", dir, got, err)
		}
	}
	if err := (memory.Memory{Session: "s"}).Write("", "m.json"); err != nil {
		t.Errorf("got %v, want nothing to be written", err)
	}
}

func TestLongMemoriesAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := (memory.Memory{Session: strings.Repeat("x", 10_000)}).Write(dir, "m.json"); err == nil {
		t.Error("got no error for a long id")
	}
	if err := os.WriteFile(filepath.Join(dir, "m.json"), []byte(strings.Repeat(" ", 65<<10)+"{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Read(dir, "m.json"); err == nil {
		t.Error("got no error for a long file")
	}
}
