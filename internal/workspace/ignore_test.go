package workspace

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// compare reports whether the listing of sub is git's, and says how it is not.
func compare(t *testing.T, root, sub string) bool {
	t.Helper()
	out := git(t, filepath.Join(root, sub), "ls-files", "-z", "-co", "--exclude-standard")
	want := strings.FieldsFunc(out, func(r rune) bool { return r == 0 })
	w := openDir(t, root)
	listing, err := w.List(t.Context(), sub, 100_000)
	if err != nil || !listing.Complete {
		t.Errorf("got %v, complete %v; want all", err, listing.Complete)
	}
	got := slices.Clone(listing.Files)
	slices.Sort(want)
	slices.Sort(got)
	for _, p := range want {
		if _, found := slices.BinarySearch(got, p); !found {
			t.Errorf("hides %q", p)
		}
	}
	for _, p := range got {
		if _, found := slices.BinarySearch(want, p); !found {
			t.Errorf("lists %q", p)
		}
	}
	return slices.Equal(got, want)
}

// quietGit keeps the configuration of the machine out of the test, and its files
// in memory where there is such a file system: these tests make many. It comes
// before all that makes directories.
func quietGit(t *testing.T) {
	t.Helper()
	const memory = "/dev/shm"
	if dir, err := os.MkdirTemp(memory, "workspace"); err == nil {
		must(t, os.Remove(dir))
		t.Setenv("TMPDIR", memory)
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %q: %v", args, err)
	}
	return string(out)
}

// Single questions, so that a failure reads at a glance.
func TestPatternsMeanWhatTheyMeanToGit(t *testing.T) {
	quietGit(t)
	for _, c := range []struct{ lines, paths string }{
		{"foo/ !foo/bar", "foo/bar foo/x"},
		{"foo/* !foo/bar", "foo/bar foo/x"},
		{"build", "build/a src/build/a buildx"},
		{"a/b", "a/b/c x/a/b y/a/b/c"},
		{"**/node_modules/**", "node_modules/x p/node_modules/x/y src/a"},
		{"a/**/b", "a/b a/x/b a/x/y/b xa/b"},
		{"a/**", "a/b x/a/b"},
		{"*.[oa]", "x.o x.a x.c"},
		{"[!a]bc", "abc xbc"},
		{"a?c", "abc ac a/c"},
		{"doc/*.txt", "doc/a.txt doc/x/a.txt y/doc/a.txt"},
		{"**/doc/*.txt", "doc/a.txt doc/x/a.txt y/doc/a.txt"},
		{"/* !/src", "src/a other/a"},
		{"* !*/ !*.md", "a/b.md a/b.txt c.md"},
		{"a+b (x) x{1,2} $x a^b", "a+b aab (x) xx x{1,2} $x a^b"},
		{"vendor/** !vendor/keep.txt", "vendor/keep.txt vendor/x"},
		{"foo**bar", "fooxbar foo/bar fooxx/bar"},
		{"a**/b", "ab/c ax/b axx/y/b x/ab"},
		{"?**/b", "ab/c ax/b axx/y/b"},
		{"d/a**/b", "d/ab/c d/ax/b d/axx/y/b ab/b"},
		{"**//* ***//b", "a/b b"},
		{"/a**//b", "a/b ac/b"},
		{"a**/** !ab", "ab ac/x c"},
		{"a/**//b a///c", "a/b a/x/b a/c"},
		{`a/**\/b`, "a/b/x a/y/b"},
		{"x[*.]y", "x*y x.y xzy"},
		{"x[[:punct:]]y", "x*y x.y x/y xzy"},
		{"x[^[:punct:]]y", "x*y x.y x/y xzy"},
		{`x[\d]`, "xd x1"},
		{"x[+-9]y", "x.y x/y x5y"},
		{"x[z-a]y x[[:no:]]y x[", "xzy x["},
	} {
		root := t.TempDir()
		git(t, root, "init", "-q")
		for p := range strings.FieldsSeq(c.paths) {
			if info, err := os.Stat(filepath.Join(root, p)); err == nil && info.IsDir() {
				continue
			}
			write(t, filepath.Join(root, p), "")
		}
		write(t, filepath.Join(root, ".gitignore"), strings.ReplaceAll(c.lines, " ", "\n"))
		if !compare(t, root, ".") {
			t.Errorf("with %q", c.lines)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, c := range []string{"a", "!a/", "**/a*b", "/a**", `[!a-z\]]`, `\a\`, "[[:alpha:]-]", "a/**\\/b", "#a"} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, fold := range []bool{false, true} {
			if r, ok := parseRule(line, fold); ok {
				r.matches(&budget{ctx: t.Context()}, "b", "a/b", false)
			}
		}
	})
}
