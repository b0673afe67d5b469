package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEmbeddingShowsTheExamples holds the code of the page against the examples, which
// are compiled and run.
func TestEmbeddingShowsTheExamples(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sources := read("../examples/embed/main.go") + read("../server/example_test.go")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read("embedding.md"), -1)
	if len(blocks) != 3 {
		t.Errorf("got %d blocks of Go, want 3", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(sources, b[1]) {
			t.Errorf("the examples do not have this code of embedding.md:\n%s", b[1])
		}
	}
}
