package web

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/built"
)

// TestPage runs the tests of app in Node, and each file of e2e in Chromium against the built server.
func TestPage(t *testing.T) {
	t.Run("texts", func(t *testing.T) {
		t.Parallel()
		run(t, exec.Command("node", "app/test/run.mjs"))
	})
	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "maestro")
		if err := built.Maestro(binary); err != nil {
			t.Fatal(err)
		}
		files := make(chan string)
		var wg sync.WaitGroup
		for range browsers {
			wg.Go(func() { // ends with the files
				for file := range files {
					t.Run(filepath.Base(file), func(t *testing.T) {
						cmd := exec.Command("node", "--test", "--test-reporter=spec", file)
						cmd.Env = append(os.Environ(), "MAESTRO="+binary)
						run(t, cmd)
					})
				}
			})
		}
		for _, file := range largestFirst(t, "e2e/*.test.mjs") {
			files <- file
		}
		close(files)
		wg.Wait()
	})
}

// browsers is how many files of e2e run at a time. Each has a browser and servers of its own, and
// uses the time that the others wait.
var browsers = max(2, runtime.NumCPU()/2)

// largestFirst returns the files of a pattern by size: long tests that begin last would run
// alone at the end.
func largestFirst(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("got %q and %v for %s, want files", files, err, pattern)
	}
	size := func(name string) int64 {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(size(b), size(a)) })
	return files
}
