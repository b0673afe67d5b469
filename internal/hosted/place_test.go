package hosted

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Where everything exists, locate and the standard library agree; where it does
// not, the kernel cannot open the path either.
func TestLocateAgreesWithTheSystem(t *testing.T) {
	base := folder(t)
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp(base, "tree")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		name := rapid.SampledFrom([]string{"a", "b", "c", "..", "."})
		path := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(name, 1, 5).Draw(t, "names"), "/")
		})
		for range rapid.IntRange(0, 12).Draw(t, "size") {
			at := filepath.Join(root, "x", path.Draw(t, "at"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") { // some fail, which is as good
			case 0:
				_ = os.MkdirAll(at, 0o755)
			case 1:
				_ = os.WriteFile(at, nil, 0o644)
			case 2:
				_ = os.Symlink(path.Draw(t, "target"), at)
			case 3:
				_ = os.Symlink(filepath.Join(root, "x", path.Draw(t, "target")), at)
			}
		}
		full := root + "/x/" + path.Draw(t, "path")
		got, err := locate(full)
		_, openErr := os.Stat(full)
		want, evalErr := filepath.EvalSymlinks(full)
		switch {
		case evalErr == nil && openErr == nil:
			if err != nil || !got.exists || got.path != want {
				t.Fatalf("%s: got %+v, %v; want %s", full, got, err, want)
			}
		case err == nil && got.exists && openErr != nil:
			t.Fatalf("%s: got %+v, want it not to exist: %v", full, got, openErr)
		}
	})
}

func TestDanglingLinkLeadsWhereItPoints(t *testing.T) { // A78
	root := folder(t)
	for link, target := range map[string]string{
		"dangling": "/nowhere/at/all", "up": "../..", "loop": "loop", "inner": "missing/leaf",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"dangling":      "/nowhere/at/all",
		"dangling/leaf": "/nowhere/at/all/leaf",
		"up/missing":    filepath.Join(root, "../../missing"),
		"inner":         filepath.Join(root, "missing/leaf"),
		"inner/../x":    filepath.Join(root, "missing/x"),
	} {
		got, err := locate(root + "/" + path)
		if err != nil || got.exists || got.path != want {
			t.Errorf("%s: got %+v, %v; want %s, which does not exist", path, got, err, want)
		}
	}
	if got, err := locate(root + "/loop"); err == nil {
		t.Errorf("loop: got %+v, want an error", got)
	}
}

func TestChainOfLinksIsFollowedSoFar(t *testing.T) {
	root := folder(t)
	for i := range 60 {
		if err := os.Symlink(fmt.Sprintf("l%d", i+1), filepath.Join(root, fmt.Sprintf("l%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := locate(root + "/l20"); err != nil || got.path != root+"/l60" {
		t.Errorf("40 links: got %+v, %v; want their end", got, err)
	}
	if got, err := locate(root + "/l19"); err == nil {
		t.Errorf("41 links: got %+v, want an error", got)
	}
}
