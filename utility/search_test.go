package utility

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestScores(t *testing.T) {
	for _, tt := range []struct {
		query, path string
		want        int
	}{
		{"main.go", "cmd/main.go", 10_000 - 11},              // 1: the name
		{"MAIN.go", "cmd/Main.GO", 10_000 - 11},              //    in any case
		{"main.go", "main.go", 10_000 - 7},                   //    before 2
		{"cmd/main.go", "cmd/main.go", 9_500 - 11},           // 2: the path
		{"ma", "cmd/main.go", 8_000 - 11},                    // 3: the name begins with it
		{"in", "cmd/main.go", 7_000 - 20 - 11},               // 4: in the name
		{"cmd/m", "cmd/main.go", 6_000 - 11},                 // 5: in the path
		{"d/m", "cmd/main.go", 6_000 - 20 - 11},              //
		{"handler test", "server/handler_test.go", 4978},     // 6: all words
		{"main  cmd", "cmd/main.go", 5_000 - 11},             //    in any order
		{"mgo", "cmd/main.go", 3_000 + 12 + 8 + 12 - 11},     // 7: here and there in the name
		{"mn.g", "x/main.go", 3_000 + 12 + 10 + 12 + 12 - 9}, //
		{"az", "a" + strings.Repeat("-", 30) + "z", 3_000 + 12 + 2 - 32},
		{"cgo", "cmd/main.go", 2_000 + 12 + 4 + 12 - 11}, // 8: here and there in the path
		{"é", "x/éa", 8_000 - 4},
		{"☃", "é/é☃", 7_000 - 10 - 4},
		{"zz", "cmd/main.go", 0},
		{"main xyz", "cmd/main.go", 0},
		{"cmd main", "cmd/main.go", 5_000 - 11},
		{"og", "g/o", 0}, // out of order
	} {
		if got := scored(tt.query, tt.path); got != tt.want {
			t.Errorf("%q in %q: got %d, want %d", tt.query, tt.path, got, tt.want)
		}
	}
	long := strings.Repeat("d/", 1500) + "abc"
	if got := scored("dbc", long); got > 0 {
		t.Errorf("got %d, want a score too low to count", got)
	}
}

func scored(text, path string) int {
	q, b := newQuery(text), newBlock([]string{path})
	return q.score(&b.sieves[0], &b.files[0], cut{}, 0)
}

// ranked is the table of the protocol, word by word, over characters.
func ranked(text, path string) int {
	q, p := []rune(strings.ToLower(text)), []rune(strings.ToLower(path))
	b, n := p, len([]rune(path))
	if i := strings.LastIndex(string(p), "/"); i >= 0 {
		b = []rune(string(p)[i+1:])
	}
	index := func(in, what []rune) int {
		for i := range len(in) - len(what) + 1 {
			if slices.Equal(in[i:i+len(what)], what) {
				return i
			}
		}
		return -1
	}
	sub := func(in []rune) int {
		score, last, at := 0, -1, 0
		for _, c := range q {
			i := slices.Index(in[at:], c)
			if i < 0 {
				return 0
			}
			score += 12 - min(10, at+i-last-1)
			last, at = at+i, at+i+1
		}
		return max(1, score)
	}
	tokens := strings.Fields(string(q))
	all := len(tokens) >= 2
	for _, token := range tokens {
		all = all && (index(b, []rune(token)) >= 0 || index(p, []rune(token)) >= 0)
	}
	switch {
	case slices.Equal(b, q):
		return 10_000 - n
	case slices.Equal(p, q):
		return 9_500 - n
	case index(b, q) == 0:
		return 8_000 - n
	case index(b, q) > 0:
		return 7_000 - 10*index(b, q) - n
	case index(p, q) >= 0:
		return 6_000 - 10*index(p, q) - n
	case all:
		return 5_000 - n
	case sub(b) > 0:
		return 3_000 + sub(b) - n
	case sub(p) > 0:
		return 2_000 + sub(p) - n
	}
	return 0
}

// randomPaths has short names of few letters, so that every rule applies often,
// and enough of them for two processors.
func randomPaths(rng *rand.Rand, count int) []string {
	parts := []string{"a", "b", "A", "/", "x", "é", "É", " ", ".", "-", "☃", "\xff", "ab", "1", "~", "^"}
	seen := make(map[string]bool)
	for len(seen) < count {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		seen[strings.Trim(b.String(), "/ ")+"z"[:rng.IntN(2)]] = true
	}
	delete(seen, "")
	return slices.Sorted(maps.Keys(seen))
}

// Searching finds what scoring everything by the table and sorting would.
func TestSearchIsTheTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	paths := randomPaths(rng, 20_000)
	queries := []string{"a", "ab", "x1", "é", "b a", "☃ É", "nothing", "a.b", "a/b", "~", "x1b", "b1a", "zz", "1-~", "é☃a", "a ^ x", "\uFFFD", paths[77], paths[7777], strings.Repeat("a", 300)}
	for range 10 {
		queries = append(queries, randomPaths(rng, 1)[0])
	}
	for range 200 {
		paths = append(paths, strings.Repeat("a", rng.IntN(200))+"/"+strings.Repeat("xa", 290+rng.IntN(20))+strings.Repeat("a", rng.IntN(20)))
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	files := newIndex(slices.Clone(paths))
	lengths := make(map[string]int)
	for _, p := range paths {
		lengths[p] = len([]rune(p))
	}
	for _, text := range queries {
		var want []contracts.FileMatch
		for _, p := range paths {
			if s := ranked(text, p); s > 0 {
				want = append(want, contracts.FileMatch{Path: p, Score: int64(s)})
			}
		}
		slices.SortFunc(want, func(a, b contracts.FileMatch) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(lengths[a.Path], lengths[b.Path]), cmp.Compare(a.Path, b.Path))
		})
		q := newQuery(text)
		for _, limit := range []int{1, 10, 50, 200, 500, 50_000} {
			got, more := q.rank(&files, ".", limit)
			if more != (len(want) > limit) || !slices.Equal(got, want[:min(limit, len(want))]) {
				t.Errorf("%q, best %d: got %d, more %v; want the first of %d", text, limit, len(got), more, len(want))
			}
		}
	}
}

func TestEqualScoresAreOrderedByLengthAndPath(t *testing.T) {
	q := newQuery("é")
	x := newIndex([]string{"b/é", "é/a/xé", "a/é", "B/é"})
	got, _ := q.rank(&x, ".", 10)
	var paths []string
	for _, m := range got {
		paths = append(paths, m.Path)
	}
	if want := []string{"B/é", "a/é", "b/é", "é/a/xé"}; !slices.Equal(paths, want) {
		t.Errorf("got %q, want %q", paths, want)
	}
	// However many are as good as the worst that is kept.
	for _, text := range []string{"ab", "cb"} {
		q := newQuery(text)
		x := newIndex([]string{"xc/a-b", "yc/a-b", "wc/a-b"})
		got, more := q.rank(&x, ".", 1)
		if len(got) != 1 || got[0].Path != "wc/a-b" || !more {
			t.Errorf("%q: got %v, more %v; want the first by its path and more", text, got, more)
		}
	}
}

// found searches for alice.
func (r *room) found(cmd *contracts.UtilityFileSearch) *contracts.UtilityFileSearchResults {
	r.t.Helper()
	from := r.count()
	r.do(cmd)
	res, _ := await(r, "the results of a search", from, func(*contracts.UtilityFileSearchResults) bool { return true })
	return res
}

func paths(res *contracts.UtilityFileSearchResults) []string {
	list := []string{}
	for _, m := range res.Results {
		list = append(list, m.Path)
	}
	slices.Sort(list)
	return list
}

func TestSearchAnswersWithTheBestFiles(t *testing.T) {
	files := map[string]string{"sub/Handler_test.go": "", "sub/handler.go": "", ".hidden": "", "sub/..odd/x": ""}
	for i := range 60 {
		files[fmt.Sprintf("many/file%02d", i)] = ""
	}
	r := newRoom(t, Options{}, files)
	got := r.found(&contracts.UtilityFileSearch{SearchID: "s", Query: " handler test\t"})
	want := contracts.UtilityFileSearchResults{SearchID: "s", Query: "handler test", Cwd: r.root,
		Results: []contracts.FileMatch{{Path: "sub/Handler_test.go", Score: 4981}}}
	if got.SearchID != want.SearchID || got.Query != want.Query || got.Cwd != want.Cwd || got.Truncated || !slices.Equal(got.Results, want.Results) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	for _, tt := range []struct {
		query, cwd string
		limit      int64 // 0 is absent
		n          int
		truncated  bool
	}{
		{"file", "", 0, 50, true},
		{"file", "", 60, 60, false},
		{"file", "", 59, 59, true},
		{"file", "", -5, 1, true},
		{"file", "", 1 << 40, 60, false},
		{"file", "sub", 0, 0, false},
		{"x", "sub/..odd", 0, 1, false},
		{"hidden", "~nothing/..", 0, 1, false},
		{"  ", "", 0, 0, false},
	} {
		cmd := &contracts.UtilityFileSearch{SearchID: "s", Query: tt.query}
		if tt.cwd != "" {
			cmd.Cwd = &tt.cwd
		}
		if tt.limit != 0 {
			cmd.Limit = &tt.limit
		}
		res := r.found(cmd)
		if len(res.Results) != tt.n || res.Truncated != tt.truncated || res.Results == nil {
			t.Errorf("%q in %q, limit %d: got %d, truncated %v; want %d, %v", tt.query, tt.cwd, tt.limit, len(res.Results), res.Truncated, tt.n, tt.truncated)
		}
	}
}

// Git tracks files whether or not they are there.
func TestFilesThatAreGoneAreNotFound(t *testing.T) {
	files := map[string]string{"sub/needle-and-more": "", "sub/needle-and-much-more": ""}
	for i := range 30 {
		files[fmt.Sprintf("sub/needle%d", i)] = ""
	}
	r := newRoom(t, Options{}, files)
	gitInit(t, r.root)
	git(t, r.root, "add", ".")
	for i := range 30 {
		must(t, os.Remove(filepath.Join(r.root, fmt.Sprintf("sub/needle%d", i))))
	}
	for _, at := range []string{"first", "then"} {
		for _, tt := range []struct {
			cwd   string
			limit int64
			want  []string
		}{
			{".", 1, []string{"sub/needle-and-more"}},
			{"sub", 2, []string{"needle-and-more", "needle-and-much-more"}},
			{"sub", 3, []string{"needle-and-more", "needle-and-much-more"}},
		} {
			res := r.found(&contracts.UtilityFileSearch{SearchID: "s", Query: "needle", Cwd: &tt.cwd, Limit: &tt.limit})
			if got := paths(res); !slices.Equal(got, tt.want) || res.Truncated != (tt.limit == 1) {
				t.Errorf("%s: at most %d in %s: got %q, truncated %v; want %q", at, tt.limit, tt.cwd, got, res.Truncated, tt.want)
			}
		}
		if f := r.followed(); len(f.in(".")) != 2 {
			t.Errorf("got %q, want those that are there", f.in("."))
		}
	}
}

func TestUnfitSearchesAreRefused(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"file": ""})
	must(t, os.Symlink("/etc", filepath.Join(r.root, "out")))
	search := func(query, cwd string) *contracts.UtilityFileSearch {
		return &contracts.UtilityFileSearch{SearchID: "s", Query: query, Cwd: &cwd}
	}
	r.refused(search("x", ".."), contracts.CodeWorkspaceViolation, "Path is outside workspace root: "+filepath.Dir(r.root))
	r.refused(search("", "out"), contracts.CodeWorkspaceViolation, "Path is outside workspace root: "+filepath.Join(r.root, "out"))
	r.refused(search("x", "none"), contracts.CodeNotFound, "Working directory not found: none")
	r.refused(search("x", "file"), contracts.CodeNotFound, "Working directory not found: file")
	r.refused(search(strings.Repeat("x", 4097), "."), contracts.CodeBadRequest, "Search query is too long")
	if n := r.count(); n > 0 {
		t.Errorf("got %s, want no event", r.history())
	}
}

func TestSearchDoesNotFollowLinks(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "needle"), "")
	for _, withGit := range []bool{false, true} {
		r := newRoom(t, Options{}, map[string]string{"real/needle": ""})
		if withGit {
			gitInit(t, r.root)
		}
		must(t, os.Symlink(outside, filepath.Join(r.root, "out")))
		must(t, os.Symlink("real", filepath.Join(r.root, "link")))
		must(t, os.Symlink("..", filepath.Join(r.root, "real/loop")))
		if got, want := paths(r.found(&contracts.UtilityFileSearch{SearchID: "s", Query: "needle"})), []string{"real/needle"}; !slices.Equal(got, want) {
			t.Errorf("git %v: got %q, want %q", withGit, got, want)
		}
		// A link inside the workspace may be where a search begins.
		if got, want := paths(r.found(&contracts.UtilityFileSearch{SearchID: "s", Query: "needle", Cwd: ptr("link")})), []string{"needle"}; !slices.Equal(got, want) {
			t.Errorf("git %v: got %q, want %q", withGit, got, want)
		}
	}
}

// The wire takes no more than a megabyte, whatever the names are like.
func TestLongNamesDoNotBreakTheResult(t *testing.T) {
	files := map[string]string{}
	deep := strings.Repeat(strings.Repeat("\x01", 250)+"/", 12)
	for i := range 500 {
		files[fmt.Sprintf("%sneedle%d", deep, i)] = ""
	}
	files["needle\xff"] = ""
	r := newRoom(t, Options{}, files)
	res := r.found(&contracts.UtilityFileSearch{SearchID: "s", Query: "needle", Limit: ptr(int64(500))})
	if len(res.Results) < 20 || len(res.Results) >= 500 || !res.Truncated {
		t.Errorf("got %d, truncated %v; want as many as fit", len(res.Results), res.Truncated)
	}
	if got := res.Results[0].Path; got != "needle\uFFFD" {
		t.Errorf("got %q first, want a name in text", got)
	}
}
