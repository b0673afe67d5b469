package hosted

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// tree is a workspace with a file, a directory and links of every kind, and a
// secret beside it.
func tree(t *testing.T) (root, outside string) {
	t.Helper()
	base := folder(t)
	root, outside = filepath.Join(base, "work"), filepath.Join(base, "workshop")
	write(t, filepath.Join(root, "notes.md"), "alpha\n")
	write(t, filepath.Join(root, "src/main.go"), "package main\n")
	write(t, filepath.Join(outside, "secret.txt"), "secret")
	for link, target := range map[string]string{
		"inner": "src", "absolute": filepath.Join(root, "src"),
		"escape": outside, "up": "..", "dangling": filepath.Join(outside, "nothing"), "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

func TestExportPathsAreResolved(t *testing.T) { // A94
	root, _ := tree(t)
	for _, want := range []contracts.ExportPath{
		{Input: ".", Path: root, RelativePath: ".", Type: "directory"},
		{Input: root, Path: root, RelativePath: ".", Type: "directory"},
		{Input: "notes.md", Path: root + "/notes.md", RelativePath: "notes.md", Type: "file"},
		{Input: "./src//main.go", Path: root + "/src/main.go", RelativePath: "src/main.go", Type: "file"},
		{Input: "src/../notes.md", Path: root + "/notes.md", RelativePath: "notes.md", Type: "file"},
		{Input: "inner/main.go", Path: root + "/src/main.go", RelativePath: "src/main.go", Type: "file"},
		{Input: "inner/../notes.md", Path: root + "/notes.md", RelativePath: "notes.md", Type: "file"},
		{Input: root + "/absolute", Path: root + "/src", RelativePath: "src", Type: "directory"},
		{Input: "up/work/notes.md", Path: root + "/notes.md", RelativePath: "notes.md", Type: "file"},
	} {
		got, err := resolveExports(root, []string{want.Input}, false)
		if err != nil || !reflect.DeepEqual(got, []contracts.ExportPath{want}) {
			t.Errorf("%s: got %+v, %v; want %+v", want.Input, got, err, want)
		}
	}
}

func TestNoExportPathLeavesTheWorkspace(t *testing.T) { // A95
	root, outside := tree(t)
	for _, path := range []string{
		"..", "../workshop/secret.txt", "src/../../workshop", "/", "/etc/passwd", outside, root + "shop", root + "/..",
		"escape", "escape/secret.txt", "escape/missing", "up", "up/workshop", "dangling", "inner/../../workshop",
		"../missing", "missing/../../workshop",
	} {
		for _, stopped := range []bool{false, true} {
			got, err := resolveExports(root, []string{".", path}, stopped)
			if !errors.Is(err, &contracts.Error{Code: contracts.CodeWorkspaceViolation}) {
				t.Errorf("%s: got %+v, %v; want workspace_violation", path, got, err)
			} else if !strings.HasPrefix(err.Error(), "Export path escapes hosted runner workspace root") {
				t.Errorf("%s: got text %q", path, err)
			}
		}
	}
}

func TestMissingExportPathIsRefusedUntilTheSessionHasStopped(t *testing.T) {
	root, _ := tree(t)
	for _, path := range []string{"missing", "src/missing/leaf", "notes.md/below", root + "/missing"} {
		_, err := resolveExports(root, []string{path}, false)
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) || err.Error() != "Export path is unavailable: "+path {
			t.Errorf("%s: got %v, want bad_request", path, err)
		}
		got, err := resolveExports(root, []string{path}, true)
		if err != nil || got[0].Type != "missing" || got[0].Input != path {
			t.Errorf("%s once stopped: got %+v, %v; want it listed as missing", path, got, err)
		}
	}
	for _, path := range []string{"loop", "bad\x00name"} {
		if _, err := resolveExports(root, []string{path}, true); !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("%q: got %v, want bad_request", path, err)
		}
	}
}

// A workspace that became a link is not the workspace.
func TestReplacedRootExportsNothing(t *testing.T) {
	root, outside := tree(t)
	if err := errors.Join(os.RemoveAll(root), os.Symlink(outside, root)); err != nil {
		t.Fatal(err)
	}
	if got, err := resolveExports(root, wholeWorkspace, true); !errors.Is(err, &contracts.Error{Code: contracts.CodeWorkspaceViolation}) {
		t.Errorf("got %+v, %v; want workspace_violation", got, err)
	}
}
