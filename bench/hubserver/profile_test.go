package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProfileWritesProcessorTimeAndHeap(t *testing.T) {
	dir := t.TempDir()
	stop, err := profile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatalf("end the profiles: got %v, want nil", err)
	}
	for _, pattern := range []string{"cpu-*.pprof", "heap-*.pprof"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: got files %v, %v; want one", pattern, files, err)
		}
		if info, err := os.Stat(files[0]); err != nil || info.Size() == 0 {
			t.Errorf("%s: got an empty file or %v, want a profile", files[0], err)
		}
	}
}

func TestProfileNeedsItsFolder(t *testing.T) {
	if _, err := profile(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("profile in a folder that does not exist: got no error, want one")
	}
}
