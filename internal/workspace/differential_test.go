package workspace

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

var (
	cases = flag.Int("cases", 5000, "random cases that are compared with git")
	seed  = flag.Uint64("seed", 42, "seed of the random cases")
)

// casesPerRepository is how many cases one git process is asked about.
const casesPerRepository = 250

// A randomCase is a directory with ignore files, and paths that are asked about
// though most are not there.
type randomCase struct {
	dir    string
	ignore map[string]string // by directory
	paths  []string
}

// newCase makes a case and its ignore files.
func (g grammar) newCase(t *testing.T, r *rand.Rand, root, dir string) randomCase {
	t.Helper()
	c := randomCase{dir: dir, ignore: make(map[string]string)}
	var lines []string
	for _, at := range []string{dir, path.Join(dir, g.part(r)), path.Join(dir, g.part(r), g.part(r))}[:1+r.IntN(3)] {
		var own []string
		for range 1 + r.IntN(5) {
			own = append(own, strings.ReplaceAll(g.line(r), "\n", ""))
		}
		lines = append(lines, own...)
		c.ignore[at] = pick(r, "", "", "", "", "", byteOrderMark) + strings.Join(own, pick(r, "\n", "\n", "\n", "\r\n")) + pick(r, "\n", "\n", "")
	}
	for range 24 {
		p := several(r, 3, g.part, "/")
		if r.IntN(3) > 0 {
			p = g.likely(r, lines[r.IntN(len(lines))])
		}
		c.paths = append(c.paths, path.Join(dir, p))
	}
	for at, text := range c.ignore {
		write(t, filepath.Join(root, at, ".gitignore"), text)
	}
	return c
}

// fill makes some of the paths.
func (c randomCase) fill(r *rand.Rand, root string) {
	for _, p := range c.paths[:4] {
		p = filepath.Join(root, p)
		if os.MkdirAll(filepath.Dir(p), 0o700) != nil {
			continue // there is a file in the way
		}
		switch r.IntN(8) {
		case 0:
			_ = os.Symlink(pick(r, ".", "none"), p)
		case 1:
			_ = os.MkdirAll(filepath.Join(p, "in"), 0o700)
			_ = os.WriteFile(filepath.Join(p, "in", "f"), nil, 0o600)
		default:
			_ = os.WriteFile(p, nil, 0o600)
		}
	}
}

// In 5,000 random directories the rules mean to paths what they mean to git, and
// the listing is git's.
func TestRandomRulesMeanWhatTheyMeanToGit(t *testing.T) {
	quietGit(t)
	for n := range (*cases + casesPerRepository - 1) / casesPerRepository {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			compareCases(t, n, min(casesPerRepository, *cases-n*casesPerRepository))
		})
	}
}

// Every byte is in the sets in which git has it, whether or not letters stand for
// both cases.
func TestSetsHaveTheBytesThatTheyHaveForGit(t *testing.T) {
	quietGit(t)
	for _, fold := range []bool{false, true} {
		root := t.TempDir()
		newRepository(t, root, fmt.Sprintf("[core]\nignoreCase = %v\n", fold))
		sets := []string{"[a-z]", "[A-Z]", "[^A-Z]", "[Aa]", "[!A]", "[+-9]", "[\x80-\xff]", "[Z-a]", "[^b-\xf0]", "?", `\A`, "A", "a", "*", "[\t-\r]"}
		for name := range namedClasses {
			sets = append(sets, "[[:"+name+":]]", "[^[:"+name+":]]", "[[:"+name+":]-b]")
		}
		all := make([]randomCase, len(sets))
		var paths []string
		for i, set := range sets {
			dir := fmt.Sprint(i)
			write(t, filepath.Join(root, dir, ".gitignore"), "x"+set+"y")
			all[i] = randomCase{dir: dir, ignore: map[string]string{dir: "x" + set + "y"}}
			for b := 1; b < 256; b++ {
				all[i].paths = append(all[i].paths, dir+"/x"+string([]byte{byte(b)})+"y")
			}
			paths = append(paths, all[i].paths...)
		}
		want := checkIgnore(t, root, paths)
		for i, c := range all {
			levels := map[string]*level{"": {fold: fold, budget: &budget{ctx: t.Context()}}}
			for _, p := range c.paths {
				if got := c.ignored(t, root, p, levels); got != (want[p] != "") {
					t.Errorf("%s, fold %v: got %q ignored %v, want %v", sets[i], fold, p, got, !got)
				}
			}
		}
	}
}

// compareCases compares count cases in the nth repository.
func compareCases(t *testing.T, n, count int) {
	g, fold := grammars()[n%len(grammars())], n%2 == 1
	r := rand.New(rand.NewPCG(*seed, uint64(n)))
	root := t.TempDir()
	newRepository(t, root, fmt.Sprintf("[core]\n\tignoreCase = %v\n", fold))
	var all []randomCase
	var paths []string
	for i := range count {
		c := g.newCase(t, r, root, fmt.Sprintf("case%d", i))
		all, paths = append(all, c), append(paths, c.paths...)
	}
	want := checkIgnore(t, root, paths)
	for _, c := range all {
		levels := map[string]*level{"": {fold: fold, budget: &budget{ctx: t.Context()}}}
		for _, p := range c.paths {
			if got := c.ignored(t, root, p, levels); got != (want[p] != "" && want[p][0] != '!') {
				t.Errorf("-seed %d, repository %d (%s, fold %v), %q: got ignored %v, git says %q; with %q", *seed, n, g.name, fold, p, got, want[p], c.ignore)
			}
		}
	}
	for _, c := range all {
		c.fill(r, root)
	}
	if !compare(t, root, ".") {
		t.Errorf("-seed %d: the listing of repository %d (%s, fold %v) is not git's", *seed, n, g.name, fold)
	}
}

// ignored reports what the rules of the case say about a path. It keeps the rules
// of a directory in levels.
func (c randomCase) ignored(t *testing.T, root, p string, levels map[string]*level) bool {
	l, done := levels[""], 0
	for {
		end := strings.IndexByte(p[done:], '/')
		if end < 0 {
			info, err := os.Lstat(filepath.Join(root, p))
			return l.ignored(p, done, err == nil && info.IsDir())
		}
		dir := p[:done+end]
		if l.ignored(dir, done, true) {
			return true
		}
		done += end + 1
		if levels[dir] == nil {
			levels[dir] = l.under(t.Context(), done, c.ignore[dir])
		}
		l = levels[dir]
	}
}

// checkIgnore asks git which line decides about each path.
func checkIgnore(t *testing.T, root string, paths []string) map[string]string {
	t.Helper()
	cmd := exec.Command("git", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")
	cmd.Dir, cmd.Stdin = root, strings.NewReader(strings.Join(paths, "\x00")+"\x00")
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	fields := strings.Split(string(out), "\x00") // file, line, pattern, path
	if len(fields) != 4*len(paths)+1 {
		t.Fatalf("-seed %d: got %d fields from git (%v: %s), want 4 for each of %d paths", *seed, len(fields), err, &message, len(paths))
	}
	lines := make(map[string]string)
	for i := range paths {
		lines[fields[4*i+3]] = fields[4*i+2]
	}
	return lines
}

// newRepository makes an empty repository without starting git.
func newRepository(t *testing.T, root, config string) {
	t.Helper()
	for name, text := range withRepository(map[string]string{}, ".") {
		write(t, filepath.Join(root, name), text)
	}
	write(t, filepath.Join(root, ".git/config"), config)
}

// withRepository adds to files what makes directories the tops of repositories.
func withRepository(files map[string]string, dirs ...string) map[string]string {
	for _, dir := range dirs {
		for name, text := range map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x/y": "", ".git/refs/heads/z": ""} {
			name = path.Join(dir, name)
			if _, set := files[name]; !set {
				files[name] = text
			}
		}
	}
	return files
}
