package workspace

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxTreeFiles bounds what is taken of a real tree.
const maxTreeFiles = 30_000

// Three large real trees, with hostile ignore files at many depths, are listed
// as git lists them.
func TestRealTreesAreListedAsGitListsThem(t *testing.T) {
	root, cache := goEnv(t, "GOROOT"), goEnv(t, "GOMODCACHE")
	quietGit(t)
	for i, from := range []string{filepath.Join(root, "src"), filepath.Join(root, "test"), cache} {
		to := t.TempDir()
		newRepository(t, to, "")
		files := copyNames(t, from, to)
		if len(files) < 100 { // a new machine's cache
			files = append(files, copyNames(t, filepath.Join(root, "api"), to)...)
		}
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		for round := range 4 {
			for range 40 * round {
				file := files[r.IntN(len(files))]
				dir := filepath.Dir(file)
				for r.IntN(2) == 0 && strings.Contains(dir, "/") {
					dir = filepath.Dir(dir)
				}
				if round == 1 && r.IntN(20) == 0 {
					dir = "."
				}
				hostile := several(r, 6, func(r *rand.Rand) string {
					if r.IntN(4) == 0 {
						return strings.ReplaceAll(grammars()[r.IntN(3)].line(r), "\n", "") + "\n"
					}
					return hostileLine(r, dir, files) + "\n"
				}, "")
				if err := os.WriteFile(filepath.Join(to, dir, ".gitignore"), []byte(hostile), 0o600); err != nil {
					continue // that is a directory
				}
			}
			if !compare(t, to, ".") {
				t.Fatalf("-seed %d: round %d with %s is not git's listing", *seed, round, from)
			}
			listing, err := openDir(t, to).List(t.Context(), ".", len(files)*2)
			must(t, err)
			if len(listing.Files) == len(files) && round > 0 {
				t.Errorf("-seed %d: round %d with %s hides nothing, want hostile rules", *seed, round, from)
			}
			t.Logf("%s, round %d: %d of %d files", from, round, len(listing.Files), len(files))
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// copyNames makes the directories, links and files of a tree, and returns their
// paths. The files are empty but for those with rules.
func copyNames(t *testing.T, from, to string) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case err != nil || relErr != nil:
			return relErr // what cannot be read is left out
		case VersionControl(d.Name()) && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case len(files) == maxTreeFiles:
			return fs.SkipAll
		}
		files = append(files, rel)
		if d.Type() == fs.ModeSymlink {
			return os.Symlink("none", filepath.Join(to, rel))
		}
		var text []byte
		if d.Name() == ".gitignore" {
			text, _ = os.ReadFile(path)
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o600)
	}))
	return files
}

// hostileLine makes a line for the ignore file in dir of the path of a file.
func hostileLine(r *rand.Rand, dir string, files []string) string {
	file := files[r.IntN(len(files))]
	for range 30 {
		if dir == "." || strings.HasPrefix(file, dir+"/") {
			break
		}
		file = files[r.IntN(len(files))]
	}
	if dir != "." {
		file = strings.TrimPrefix(file, dir+"/")
	}
	parts := strings.Split(file, "/")
	parts = parts[r.IntN(len(parts)):]
	if r.IntN(3) == 0 {
		parts = parts[:1+r.IntN(len(parts))]
	}
	for i, part := range parts {
		at := r.IntN(len(part))
		switch r.IntN(7) {
		case 0:
			parts[i] = pick(r, "*", "**", "***", "?*", "**a")
		case 1:
			parts[i] = part[:at] + "*" + part[at+1:]
		case 2:
			parts[i] = part[:at] + "?" + part[at+1:]
		case 3:
			parts[i] = part[:at] + pick(r, "[a-m]", "[!a-m]", "[[:alnum:]]", "[^[:punct:]]", "[.-]", `\`, "**") + part[at+1:]
		case 4:
			parts[i] = part[:at] + `\` + part[at:]
		}
	}
	return pick(r, "", "", "", "!", "/", "!/", "**/") + strings.Join(parts, "/") + pick(r, "", "", "", "/", "/**", "/*", " ", "\r")
}
