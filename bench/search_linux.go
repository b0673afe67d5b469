package main

import (
	"bytes"
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

// Those who list or search files.
const (
	nameSearch = "maestro headless, first search"
	nameGit    = "git ls-files"
	nameFd     = "fd"
	nameFzf    = "rg and fzf"
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
func (b *bench) search(ctx context.Context) error {
	tree, err := os.MkdirTemp(b.bin, "tree-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := growTree(ctx, tree, b.plan.search.files); err != nil {
		return err
	}
	contenders := []contender{{name: nameSearch, program: "maestro"}}
	commands, absent := listers()
	for _, name := range []string{nameGit, nameFd, nameFzf} {
		if commands[name] != "" {
			contenders = append(contenders, contender{name: name, about: commands[name], program: "maestro"})
		}
	}
	var res results[hunt]
	err = rounds(ctx, b, &res, contenders, func(c contender) (hunt, error) {
		if c.about != "" {
			return runLister(ctx, tree, c.about, b.plan.search.files)
		}
		return b.runSearch(ctx, tree)
	})
	if err != nil {
		return err
	}
	b.reportListing(&res, contenders, absent)
	b.reportSearch(&res)
	return nil
}

// listers returns the shell lines of the peers, and the programs that are not
// there.
func listers() (commands map[string]string, absent []string) {
	look := func(names ...string) string {
		for _, name := range names {
			if _, err := exec.LookPath(name); err == nil {
				return name
			}
		}
		absent = append(absent, names[0])
		return ""
	}
	commands = make(map[string]string)
	if git := look("git"); git != "" {
		commands[nameGit] = git + " ls-files -co --exclude-standard -z"
	}
	if fd := look("fd", "fdfind"); fd != "" { // Debian has another fd
		commands[nameFd] = fd + " --hidden --exclude .git --type file --print0"
	}
	rg, fzf := look("rg"), look("fzf")
	if rg != "" && fzf != "" {
		commands[nameFzf] = rg + " --files --hidden --glob '!.git' --null | " + fzf + " --read0 --print0 --scheme path --filter main"
	}
	return commands, absent
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

// runLister times a peer. One that lists must list as many files as there are.
func runLister(ctx context.Context, tree, line string, files int) (f hunt, err error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = tree
	began := time.Now()
	out, err := cmd.Output()
	f.first = ms(time.Since(began))
	if n := bytes.Count(out, []byte{0}); err == nil && n != files && !strings.Contains(line, "--filter") {
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
func (b *bench) runSearch(ctx context.Context, tree string) (f hunt, err error) {
	s, err := launch(ctx, b.built["maestro"], "headless", "--agent", "shell", "--workspace", tree)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	q := searcher{server: s}
	if err := q.greet(); err != nil {
		return f, err
	}
	if f.first, _, err = q.find("main"); err != nil {
		return f, err
	}
	for range b.plan.search.typed {
		took, _, err := q.find("main")
		if err != nil {
			return f, err
		}
		f.typed = max(f.typed, took)
		if err := pause(ctx, typing); err != nil {
			return f, err
		}
	}
	for _, text := range searchQueries {
		var took []float64
		for range b.plan.search.queries {
			t, _, err := q.find(text)
			if err != nil {
				return f, err
			}
			took = append(took, t)
		}
		slices.Sort(took)
		f.warm = append(f.warm, warmth{quantile(took, 0.5), quantile(took, 0.99)})
	}
	for range b.plan.search.created {
		created, removed, err := q.change(ctx, tree)
		if err != nil {
			return f, err
		}
		f.created, f.removed = max(f.created, created), max(f.removed, removed)
	}
	return f, nil
}

// greet waits until the program takes searches.
func (q *searcher) greet() error {
	hello := `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","role":"controller","capabilities":{"utility_operations":["file_search"]}}`
	if _, err := q.stdin.Write([]byte(hello + "\n")); err != nil {
		return err
	}
	_, err := q.await("hello_ok", "")
	return err
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
func (q *searcher) await(kind, id string) (answer, error) {
	hung := time.AfterFunc(greetTimeout, q.kill)
	defer hung.Stop()
	for {
		var a answer
		if err := q.reports.Decode(&a); err != nil {
			return a, fmt.Errorf("wait for %s: %w: %s", kind, err, q.stderr)
		}
		if a.Type == "error" {
			return a, fmt.Errorf("wait for %s: %s", kind, a.Message)
		}
		if a.Type == kind && a.SearchID == id {
			return a, nil
		}
	}
}

// find searches once, and returns how long it took.
func (q *searcher) find(text string) (took float64, found answer, err error) {
	q.asked++
	id := strconv.Itoa(q.asked)
	began := time.Now()
	if err := q.orders.Encode(map[string]string{"type": (*contracts.UtilityFileSearch).CommandType(nil), "search_id": id, "query": text}); err != nil {
		return 0, found, err
	}
	found, err = q.await((*contracts.UtilityFileSearchResults).EventType(nil), id)
	return ms(time.Since(began)), found, err
}

// change creates a file and removes it, and searches for it all the time.
func (q *searcher) change(ctx context.Context, tree string) (created, removed float64, err error) {
	name := fmt.Sprintf("zq-%d-%d", os.Getpid(), q.asked)
	path := filepath.Join(tree, name)
	if created, err = q.until(ctx, name, 1, func() error { return os.WriteFile(path, nil, 0o600) }); err != nil {
		return 0, 0, errors.Join(err, os.Remove(path))
	}
	removed, err = q.until(ctx, name, 0, func() error { return os.Remove(path) })
	return created, removed, err
}

// until does something and searches until there are so many results.
func (q *searcher) until(ctx context.Context, name string, results int, do func() error) (took float64, err error) {
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	for ctx.Err() == nil && time.Since(began) < greetTimeout {
		_, found, err := q.find(name)
		if err != nil || len(found.Results) == results {
			return ms(time.Since(began)), err
		}
	}
	return 0, fmt.Errorf("%s: want %d results, had none within %v", name, results, greetTimeout)
}

func (b *bench) reportListing(res *results[hunt], contenders []contender, absent []string) {
	first := func(name string) series { return res.of(name, func(f hunt) float64 { return f.first }) }
	t := table{
		title: "File search: from nothing to a result",
		notes: []string{fmt.Sprintf("A repository on %s with %d files to find, one in ten of them not tracked, in about a tenth as many "+
			"directories. The page cache is warm. Ours is the first search of a new process, from the request on standard input to the "+
			"result; the others are timed from their start to their end. %s searches its whole list for \"main\".",
			fileSystem(b.bin), b.plan.search.files, nameFzf)},
		head: []string{"what", "ms", "x git", "command"},
	}
	for _, c := range contenders {
		t.add(c.name, spread(first(c.name)), spread(first(c.name).over(first(nameGit))), c.about)
		if void := res.void(c.name); void != "" {
			t.notes = append(t.notes, c.name+" is void: "+void)
		}
	}
	if len(absent) > 0 {
		t.notes = append(t.notes, "Not on this machine, so not beside it: "+strings.Join(absent, ", ")+".")
	}
	b.report.tables = append(b.report.tables, t)
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("first search of %d files", b.plan.search.files),
		limit: 2, unit: "x", versus: nameGit, got: first(nameSearch).over(first(nameGit)), void: res.void(nameSearch),
	})
}

func (b *bench) reportSearch(res *results[hunt]) {
	p := b.plan.search
	of := func(figure func(hunt) float64) series { return res.of(nameSearch, figure) }
	worst := of(func(f hunt) float64 {
		slowest := 0.0
		for _, w := range f.warm {
			slowest = max(slowest, w.p99)
		}
		return slowest
	})
	t := table{
		title: "File search: once the files are known",
		notes: []string{fmt.Sprintf("The same processes. Times are from the request on standard input to the result, which has the pipes and "+
			"the JSON in it: %d searches for each query, one at a time, and %d files at the top that are created, searched for "+
			"again and again until one finds it, and removed.", p.queries, p.created)},
		head: []string{"what", "p50 ms", "p99 or slowest ms"},
	}
	for i, text := range searchQueries {
		t.add(strconv.Quote(text), spread(of(func(f hunt) float64 { return f.warm[i].p50 })), spread(of(func(f hunt) float64 { return f.warm[i].p99 })))
	}
	created, removed := of(func(f hunt) float64 { return f.created }), of(func(f hunt) float64 { return f.removed })
	t.add(fmt.Sprintf("%d searches right after the first, %v apart", p.typed, typing), "", spread(of(func(f hunt) float64 { return f.typed })))
	t.add("from creating a file to finding it", "", spread(created))
	t.add("from removing a file to not finding it", "", spread(removed))
	b.report.tables = append(b.report.tables, t)
	void := res.void(nameSearch)
	b.report.targets = append(b.report.targets,
		target{what: fmt.Sprintf("search over %d known files, p99 of the slowest query", p.files), limit: 10, unit: "ms", versus: "(abs)", got: worst, void: void},
		target{what: "from creating a file to a search that finds it, slowest", limit: 300, unit: "ms", versus: "(abs)", got: created, void: void},
		target{what: "slowest search right after the first, at the pace of typing", limit: math.Inf(1), unit: "ms", versus: "(abs)", got: of(func(f hunt) float64 { return f.typed }), void: void})
}
