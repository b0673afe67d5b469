package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// watchGrowth is file watches of one workspace, in one session and in many.
var watchGrowth = growth{
	name: "watches",
	figures: func(p plan) []figure {
		w := p.growth.watch
		one := fmt.Sprintf("1 session watches and searches %d files", w.files)
		many := fmt.Sprintf("%d sessions watch and search the same %d files", w.sessions, w.files)
		return []figure{
			{what: one + ": memory", before: "61", unit: "MB"},
			{what: many + ": memory", before: "796", unit: "MB"},
			{what: many + ": memory", before: "13", unit: "x", limit: 1.3, versus: "the same with 1"},
			{what: one + ": open files and inotify watches", before: "11231", unit: "files"},
			{what: many + ": open files and inotify watches", before: "half the system's limit", unit: "files"},
			{what: many + ": open files and inotify watches", unit: "x", limit: 1.3, versus: "the same with 1"},
			{what: many + ": processor time while no file changes", before: "385 to 805", unit: "ms/s", limit: 10, versus: "(abs)"},
		}
	},
	prepare: func(t *trial, dir string) { check(growTree(t.ctx, dir, t.plan.growth.watch.files)) },
	take: func(t *trial, dir, scratch string) []float64 {
		one := within(t, func(t *trial) watchCost { return t.watch(dir, filepath.Join(scratch, "one"), 1) })
		many := t.watch(dir, filepath.Join(scratch, "many"), t.plan.growth.watch.sessions)
		return []float64{
			megabytes(one.resident), megabytes(many.resident), ratio(many.resident, one.resident),
			float64(one.descriptors), float64(many.descriptors), ratio(many.descriptors, one.descriptors), many.idle,
		}
	},
}

// A watchCost is what sessions that watch files take.
type watchCost struct {
	resident    int64
	descriptors int
	idle        float64 // ms of processor time a second
}

// watch makes sessions that watch and search a tree, checks that each is told of
// a new file, and returns what they take while no file changes.
func (t *trial) watch(tree, scratch string, sessions int) watchCost {
	s := t.serve(scratch, "shell", "--workspace", tree)
	var all []driver
	for i := range sessions {
		d := t.drive(s, fmt.Sprintf("watch-%d", i))
		all = append(all, d)
		check(d.command(&contracts.UtilityFileWatchStart{WatchID: "bench"}))
		check(d.await(`"utility_file_watch_started"`))
		check(d.command(&contracts.UtilityFileSearch{SearchID: "bench", Query: "main"}))
		check(d.await(`"utility_file_search_results"`))
	}
	path := filepath.Join(tree, fmt.Sprintf("bench-%d.go", sessions))
	check(os.WriteFile(path, nil, 0o600))
	for _, d := range all {
		check(d.await(filepath.Base(path)))
	}
	idle := t.plan.growth.watch.idle
	check(errors.Join(os.Remove(path), pause(t.ctx, idle)))
	took := cpuDuring(s.pid, func() { check(pause(t.ctx, idle)) })
	return watchCost{must(control.Resident(s.pid)), descriptors(s.pid), ms(took) / idle.Seconds()}
}

// searchGrowth is file search in a very large workspace.
var searchGrowth = growth{
	name: "search",
	figures: func(p plan) []figure {
		what := fmt.Sprintf("search of %d files while files come and go, a letter every %v", p.growth.search.files, typing)
		return []figure{
			{what: what + ": processor time per search", before: "400 at 210000 files", unit: "ms"},
			{what: what + ": p50", unit: "ms"},
			{what: what + ": p99", unit: "ms", limit: 30, versus: "(abs)"},
		}
	},
	prepare: func(t *trial, dir string) { check(growTree(t.ctx, dir, t.plan.growth.search.files)) },
	take: func(t *trial, dir, _ string) []float64 {
		q := t.searcher(dir)
		q.find("main")
		stop := t.beside(func(ctx context.Context) error { return keepChanging(ctx, dir) })
		var took []float64
		cpu := cpuDuring(q.pid, func() { took = t.typeQueries(q) })
		check(stop())
		slices.Sort(took)
		return []float64{ms(cpu) / float64(len(took)), quantile(took, 0.5), quantile(took, 0.99)}
	},
}

// typeQueries searches for every prefix of the queries, as if somebody typed them.
func (t *trial) typeQueries(q *searcher) (took []float64) {
	for {
		for _, text := range searchQueries {
			for end := range len(text) {
				if len(took) == t.plan.growth.search.queries {
					return took
				}
				once, _ := q.find(text[:end+1])
				took = append(took, once)
				check(pause(t.ctx, typing))
			}
		}
	}
}

// keepChanging creates and removes files, at the top of a tree and one directory
// below, until ctx ends.
func keepChanging(ctx context.Context, tree string) error {
	dirs, err := filepath.Glob(filepath.Join(tree, "*", ""))
	if err != nil {
		return err
	}
	dirs = append(slices.DeleteFunc(dirs, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	}), tree)
	for i := 0; ; i++ {
		path := filepath.Join(dirs[i%len(dirs)], "changing"+strconv.Itoa(i)+".go")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		ended := pause(ctx, 50*time.Millisecond)
		if err := os.Remove(path); err != nil {
			return err
		}
		if ended != nil {
			return nil
		}
	}
}
