package hosted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func indent(dst *bytes.Buffer, text []byte) error { return json.Indent(dst, text, "", "  ") }

// Somebody reads every file as soon as it is there, as a control plane may.
func TestFileIsCompleteUnderItsName(t *testing.T) { // A103
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const files = 40
	content := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	var written atomic.Bool
	seen := make(chan int)
	go func() { // ends once it has looked after the last file was written
		total := 0
		defer func() { seen <- total }()
		known := map[string]bool{}
		for last := false; !last; {
			last = written.Load()
			total += lookAt(t, dir, known, len(content))
		}
	}()
	for i := range files {
		if err := writeFile(dir, fmt.Sprintf("%d.json", i), content); err != nil {
			t.Error(err)
		}
	}
	written.Store(true)
	if got := <-seen; got != files {
		t.Errorf("got %d files, want %d", got, files)
	}
}

// lookAt reads the manifests in dir that are not known and returns their number.
func lookAt(t *testing.T, dir *os.Root, known map[string]bool, size int) int {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		t.Error(err)
	}
	found := 0
	for _, e := range entries {
		if known[e.Name()] || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		known[e.Name()] = true
		found++
		f, err := dir.Open(e.Name())
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil || len(text) != size || !json.Valid(text) {
			t.Errorf("%s: got %d bytes, %v; want %d", e.Name(), len(text), err, size)
		}
	}
	return found
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	path := t.TempDir()
	dir, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Mkdir("taken.json", 0o700); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := writeFile(dir, "taken.json", []byte("{}")); err == nil {
		t.Error("got no error, want one")
	}
	names, err := fs.Glob(os.DirFS(path), "*")
	if err != nil || !slices.Equal(names, []string{"taken.json"}) {
		t.Errorf("got %q, %v; want only what was there", names, err)
	}
}
