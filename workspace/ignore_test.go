package workspace

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	trials = flag.Int("trials", 20, "random trees for each kind of patterns")
	seed   = flag.Uint64("seed", 42, "seed of the random trees")
)

// A grammar generates trees and ignore files of one kind.
type grammar struct {
	name    string
	dirs    []string
	names   []string // of files; each is in a directory with probability 2/3
	lines   []string
	perFile int
}

func grammars() []grammar {
	return []grammar{
		{
			name: "random characters",
			dirs: strings.Fields(". a a/b ab b b/a b/a/b ab/a"),
			names: []string{"a", "b", "ab", "ba", "a.b", "b.a", "a+", "c", "abc", "a-b", "!a", "#a", "a b", "a^", "a$b", "(a)", "{a}", "a|b",
				"]", "-", "a]", "1", "A", "_", "ä", "a,b"},
			lines:   randomLines(3000),
			perFile: 3,
		}, {
			name:  "adversarial",
			dirs:  strings.Fields(". a a/b foo foo/bar foo/a build src src/build src/a/b"),
			names: strings.Fields("foo bar a b.txt foo.txt x.log keep c++ build f1 f2 #h !n a(b) f] f-"),
			lines: []string{"foo", "/foo", "foo/", "*.txt", "*.log", "!keep", "/a/b", "a/b", "foo/bar", "foo/*", "!foo/bar", "!foo/bar/",
				"**/bar", "foo/**", "a/**/b.txt", "/build/", "build/", "build", "src/*.txt", "f?", "f[12]", "f[!1]", "c++", `\#h`, `\!n`,
				"# comment", "", "*", "!*/", "!*.txt", "!b.txt", "/src/**/a", "a(b)", "b*", "**/a/b/", "/*", "!/src", "!/src/", "src/a/",
				"foo/bar/keep", "x.log ", "[ab]", "*.t?t", "!x.log", "f[[:digit:]]", "f[^[:digit:]]", "f[]-]", "f[0-12]", "[[:alpha:]]*", "f[",
				"f[2-1]", "f[[:none:]]", `f[\]]`, "**/foo/*.txt", "[+-9]*", "f[!]]", "foo.[[:lower:]][^y]t"},
			perFile: 3,
		}, {
			name: "templates",
			dirs: strings.Fields(". node_modules/x dist src src/gen src/build build pkg/dist pkg/src/gen docs/_build pkg/docs/_build " +
				"tmp tmp/a bin cmd/bin coverage vendor/m out pkg/vendor/m"),
			names: strings.Fields("a.go b.log keep.log .env .env.local .env.example m.pyc m.py x~ .gitkeep a.tmp dist out"),
			lines: strings.Fields("node_modules/ dist /build *.log !keep.log .env* !.env.example target/ *.py[cod] coverage/ /bin/ " +
				"docs/_build/ src/gen/ .idea/ *~ tmp/* !tmp/.gitkeep **/*.tmp /vendor/ out/"),
			perFile: 6,
		},
	}
}

func randomLines(n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "a", "b", "/", "*", "**", "?", ".", "[ab]", "[!a]", "[a-c]", "!", `\`, "/", "+", "^", "$", "(a)", " ", "|", "{a}", "]", "[", "-", "[:alpha:]", "ä"}
	lines := make([]string, n)
	for i := range lines {
		for range 1 + rng.IntN(5) {
			lines[i] += parts[rng.IntN(len(parts))]
		}
	}
	return lines
}

// fill makes a random tree with ignore files and returns those by directory.
func (g grammar) fill(t *testing.T, root string, rng *rand.Rand) map[string]string {
	t.Helper()
	for _, d := range g.dirs {
		must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, d := range g.dirs {
		for _, name := range g.names {
			path := filepath.Join(root, d, name)
			if _, err := os.Lstat(path); err != nil && rng.IntN(3) > 0 { // a directory may have the name
				write(t, path, "")
			}
		}
	}
	file := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(g.lines[rng.IntN(len(g.lines))] + "\n")
		}
		return b.String()
	}
	ignore := map[string]string{".": file(g.perFile)}
	if rng.IntN(2) == 0 { // and one below
		ignore[g.dirs[1+rng.IntN(len(g.dirs)-1)]] = file(2)
	}
	for d, content := range ignore {
		write(t, filepath.Join(root, d, ".gitignore"), content)
	}
	return ignore
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The listing of a random tree is git's.
func TestListingAgreesWithGit(t *testing.T) {
	quietGit(t)
	for n, g := range grammars() {
		t.Run(g.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed, uint64(n)))
			for trial := range *trials {
				root := t.TempDir()
				git(t, root, "init", "-q")
				ignore := g.fill(t, root, rng)
				sub := "."
				if rng.IntN(3) == 0 {
					sub = g.dirs[rng.IntN(len(g.dirs))]
				}
				if !compare(t, root, sub) {
					t.Fatalf("trial %d in %s with %q", trial, sub, ignore)
				}
			}
		})
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

// quietGit keeps the configuration of the machine out of the test.
func quietGit(t *testing.T) {
	t.Helper()
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
	for _, line := range randomLines(50) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := parseRule(line)
		if ok && r.base == "" && r.ext == "" && r.glob == nil {
			t.Fatalf("%q: got a rule that cannot match, want none", line)
		}
		if ok {
			r.matches("b", "a/b", false)
		}
	})
}
