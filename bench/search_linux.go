package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Those who list files, and how git does.
const (
	nameSearch = "maestro headless, first search"
	nameGit    = "git ls-files"
	gitLine    = "git ls-files -co --exclude-standard -z"
)

// searchQueries are what is looked for once the files are known.
var searchQueries = []string{"a", "main", "readme.md", "handlertest", "main test", "qqqq"}

// typing is how long somebody who types pauses between two letters.
const typing = 150 * time.Millisecond

// A hunt is what one repetition of searching gave, in milliseconds. Peers have
// the first figure alone.
type hunt struct {
	first   float64  // from nothing to a result
	typed   float64  // the slowest search of those that follow at once, at the pace of typing
	warm    []warmth // of each of searchQueries later on
	created float64  // from creating a file to a result that has it, the slowest
	removed float64  // from removing it to one that has not
}

// A warmth is how long searches for one query took.
type warmth struct{ p50, p99 float64 }

// String is the line for the log. Of peers there is no more than the first.
func (f hunt) String() string {
	if len(f.warm) == 0 {
		return fmt.Sprintf("%.0f ms", f.first)
	}
	return fmt.Sprintf("first %.0f ms, while typing %.1f ms, warm p50 and p99 %.1f ms, created %.0f ms, removed %.0f ms", f.first, f.typed, f.warm, f.created, f.removed)
}

// search measures the file search over stdio beside what people use instead.
func (t *trial) search() {
	tree := t.tempDir(t.bin)
	check(growTree(t.ctx, tree, t.plan.search.files))
	contenders := []contender{{name: nameSearch, program: "maestro"}, {name: nameGit, about: gitLine}}
	res := rounds(t, contenders, func(t *trial, c contender) hunt {
		if c.name == nameGit {
			return must(runLister(t.ctx, tree, t.plan.search.files))
		}
		return t.runSearch(tree)
	})
	t.reportListing(res)
	t.reportSearch(res)
}

// growTree makes a repository of files in about a tenth as many directories. Most
// are tracked, one in ten is not, and there are some more that are ignored.
func growTree(ctx context.Context, root string, files int) error {
	words := strings.Fields("main server client handler index util config test parser model view route cache store event readme agent query file path")
	rng := rand.New(rand.NewPCG(1, 2))
	word := func() string { return words[rng.IntN(len(words))] }
	dirs := []string{root}
	for len(dirs) < files/10 {
		dir := filepath.Join(dirs[rng.IntN(len(dirs))], fmt.Sprintf("%s%d", word(), len(dirs)))
		if strings.Count(dir[len(root):], "/") > 8 {
			continue
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		dirs = append(dirs, dir)
	}
	grow := func(from, to int, ends ...string) error {
		for i := from; i < to; i++ {
			name := fmt.Sprintf("%s_%s%d%s", word(), word(), i, ends[rng.IntN(len(ends))])
			if err := os.WriteFile(filepath.Join(dirs[rng.IntN(len(dirs))], name), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	ends := []string{".go", ".ts", ".md", ".json"}
	tracked := files * 9 / 10
	err := errors.Join(os.WriteFile(filepath.Join(root, ".gitignore"), []byte("*.o\n"), 0o600), grow(1, tracked, ends...))
	if _, missing := exec.LookPath("git"); err == nil && missing == nil {
		err = errors.Join(runIn(ctx, root, "git init -q"), runIn(ctx, root, "git add ."))
	}
	return errors.Join(err, grow(tracked, files, ends...), grow(files, files+files/20, ".o"))
}

func runIn(ctx context.Context, dir, line string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// runLister times git, which must list as many files as there are.
func runLister(ctx context.Context, tree string, files int) (f hunt, err error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", gitLine)
	cmd.Dir = tree
	began := time.Now()
	out, err := cmd.Output()
	f.first = ms(time.Since(began))
	if n := bytes.Count(out, []byte{0}); err == nil && n != files {
		err = fmt.Errorf("it lists %d files, want %d", n, files)
	}
	return f, err
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// A searcher is the built program in a tree, which one client searches.
type searcher struct {
	*server
	asked int
}

// runSearch starts the program and searches.
func (t *trial) runSearch(tree string) (f hunt) {
	q := t.searcher(tree)
	f.first, _ = q.find("main")
	for range t.plan.search.typed {
		took, _ := q.find("main")
		f.typed = max(f.typed, took)
		check(pause(t.ctx, typing))
	}
	for _, text := range searchQueries {
		var took []float64
		for range t.plan.search.queries {
			once, _ := q.find(text)
			took = append(took, once)
		}
		slices.Sort(took)
		f.warm = append(f.warm, warmth{quantile(took, 0.5), quantile(took, 0.99)})
	}
	for range t.plan.search.created {
		created, removed := q.change(tree)
		f.created, f.removed = max(f.created, created), max(f.removed, removed)
	}
	return f
}

// searcher starts the program in a tree, and waits until it takes searches.
func (t *trial) searcher(tree string) *searcher {
	q := &searcher{server: t.launch("maestro", "headless", "--agent", "shell", "--workspace", tree)}
	hello := `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","role":"controller","capabilities":{"utility_operations":["file_search"]}}`
	must(q.stdin.Write([]byte(hello + "\n")))
	q.await("hello_ok", "")
	return q
}

// An answer is what the program says, as far as it matters here.
type answer struct {
	Type     string `json:"type"`
	SearchID string `json:"search_id"`
	Message  string `json:"message"`
	Results  []struct {
		Path string `json:"path"`
	} `json:"results"`
}

// await reads until a message of a type.
func (q *searcher) await(kind, id string) answer {
	hung := time.AfterFunc(greetTimeout, q.kill)
	defer hung.Stop()
	for {
		var a answer
		if err := q.reports.Decode(&a); err != nil {
			check(fmt.Errorf("wait for %s: %w: %s", kind, err, q.stderr))
		}
		if a.Type == "error" {
			check(fmt.Errorf("wait for %s: %s", kind, a.Message))
		}
		if a.Type == kind && a.SearchID == id {
			return a
		}
	}
}

// find searches once, and returns how long it took.
func (q *searcher) find(text string) (took float64, found answer) {
	q.asked++
	id := strconv.Itoa(q.asked)
	began := time.Now()
	check(q.orders.Encode(map[string]string{"type": (*contracts.UtilityFileSearch).CommandType(nil), "search_id": id, "query": text}))
	found = q.await((*contracts.UtilityFileSearchResults).EventType(nil), id)
	return ms(time.Since(began)), found
}

// change creates a file and removes it, and searches for it all the time.
func (q *searcher) change(tree string) (created, removed float64) {
	name := fmt.Sprintf("zq-%d-%d", os.Getpid(), q.asked)
	path := filepath.Join(tree, name)
	created = q.until(name, 1, func() error { return os.WriteFile(path, nil, 0o600) })
	return created, q.until(name, 0, func() error { return os.Remove(path) })
}

// until does something and searches until there are so many results.
func (q *searcher) until(name string, results int, do func() error) (took float64) {
	began := time.Now()
	check(do())
	for q.ctx.Err() == nil && time.Since(began) < greetTimeout {
		if _, found := q.find(name); len(found.Results) == results {
			return ms(time.Since(began))
		}
	}
	check(fmt.Errorf("%s: want %d results, had none within %v", name, results, greetTimeout))
	return 0
}

func (t *trial) reportListing(res *results[hunt]) {
	figure := func(f hunt) float64 { return f.first }
	first := func(name string) series { return res.of(name, figure) }
	t.report.show(res.table("File search: from nothing to a result",
		fmt.Sprintf("A repository on %s with %d files to find, one in ten of them not tracked, in about a tenth as many "+
			"directories. The page cache is warm. Ours is the first search of a new process, from the request on standard input to the "+
			"result; `%s` is timed from its start to its end.", fileSystem(t.bin), t.plan.search.files, gitLine),
		"what", res.each("ms", spread, figure), res.over("x git", spread, figure, nameGit)))
	t.report.judge(target{
		what:  fmt.Sprintf("first search of %d files", t.plan.search.files),
		limit: 2, unit: "x", versus: nameGit, got: first(nameSearch).over(first(nameGit)), void: res.void(nameSearch),
	})
}

func (t *trial) reportSearch(res *results[hunt]) {
	p := t.plan.search
	of := func(figure func(hunt) float64) series { return res.of(nameSearch, figure) }
	worst := of(func(f hunt) float64 {
		return slices.MaxFunc(f.warm, func(a, b warmth) int { return cmp.Compare(a.p99, b.p99) }).p99
	})
	tab := table{
		title: "File search: once the files are known",
		notes: []string{fmt.Sprintf("The same processes. Times are from the request on standard input to the result, which has the pipes and "+
			"the JSON in it: %d searches for each query, one at a time, and %d files at the top that are created, searched for "+
			"again and again until one finds it, and removed.", p.queries, p.created)},
		head: []string{"what", "p50 ms", "p99 or slowest ms"},
	}
	for i, text := range searchQueries {
		tab.add(strconv.Quote(text), spread(of(func(f hunt) float64 { return f.warm[i].p50 })), spread(of(func(f hunt) float64 { return f.warm[i].p99 })))
	}
	created, removed := of(func(f hunt) float64 { return f.created }), of(func(f hunt) float64 { return f.removed })
	typed := of(func(f hunt) float64 { return f.typed })
	tab.add(fmt.Sprintf("%d searches right after the first, %v apart", p.typed, typing), "", spread(typed))
	tab.add("from creating a file to finding it", "", spread(created))
	tab.add("from removing a file to not finding it", "", spread(removed))
	t.report.show(tab)
	void := res.void(nameSearch)
	t.report.judge(
		target{what: fmt.Sprintf("search over %d known files, p99 of the slowest query", p.files), limit: 10, unit: "ms", versus: "(abs)", got: worst, void: void},
		target{what: "from creating a file to a search that finds it, slowest", limit: 300, unit: "ms", versus: "(abs)", got: created, void: void},
		target{what: "slowest search right after the first, at the pace of typing", limit: math.Inf(1), unit: "ms", versus: "(abs)", got: typed, void: void})
}
