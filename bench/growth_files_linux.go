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
	prepare: func(ctx context.Context, b *bench, dir string) error {
		return growTree(ctx, dir, b.plan.growth.watch.files)
	},
	take: func(ctx context.Context, b *bench, dir, scratch string) (values []float64, err error) {
		one, err := b.watch(ctx, dir, filepath.Join(scratch, "one"), 1)
		if err != nil {
			return nil, err
		}
		many, err := b.watch(ctx, dir, filepath.Join(scratch, "many"), b.plan.growth.watch.sessions)
		return []float64{
			megabytes(one.resident), megabytes(many.resident), ratio(many.resident, one.resident),
			float64(one.descriptors), float64(many.descriptors), ratio(many.descriptors, one.descriptors), many.idle,
		}, err
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
func (b *bench) watch(ctx context.Context, tree, scratch string, sessions int) (v watchCost, err error) {
	s, _, err := serveAgent(ctx, b.built["maestro"], scratch, "shell", "--workspace", tree)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var all []*driver
	for i := range sessions {
		d, err := drive(s.addr, fmt.Sprintf("watch-%d", i))
		if err != nil {
			return v, err
		}
		defer shut(d.fd)
		all = append(all, d)
		err = errors.Join(d.send(&contracts.UtilityFileWatchStart{WatchID: "bench"}), d.await(`"utility_file_watch_started"`),
			d.send(&contracts.UtilityFileSearch{SearchID: "bench", Query: "main"}), d.await(`"utility_file_search_results"`))
		if err != nil {
			return v, err
		}
	}
	path := filepath.Join(tree, fmt.Sprintf("bench-%d.go", sessions))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return v, err
	}
	for _, d := range all {
		err = errors.Join(err, d.await(filepath.Base(path)))
	}
	if err := errors.Join(err, os.Remove(path), pause(ctx, b.plan.growth.watch.idle)); err != nil {
		return v, err
	}
	took, err := cpuDuring(s.pid, func() error { return pause(ctx, b.plan.growth.watch.idle) })
	if err != nil {
		return v, err
	}
	v.idle = ms(took) / b.plan.growth.watch.idle.Seconds()
	if v.descriptors, err = descriptors(s.pid); err != nil {
		return v, err
	}
	v.resident, err = resident(s.pid)
	return v, err
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
	prepare: func(ctx context.Context, b *bench, dir string) error {
		return growTree(ctx, dir, b.plan.growth.search.files)
	},
	take: func(ctx context.Context, b *bench, dir, _ string) (values []float64, err error) {
		s, err := launch(ctx, b.built["maestro"], "headless", "--agent", "shell", "--workspace", dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		q := searcher{server: s}
		if err := q.greet(); err != nil {
			return nil, err
		}
		if _, _, err := q.find("main"); err != nil {
			return nil, err
		}
		life, stop := context.WithCancel(ctx)
		changed := make(chan error, 1)
		go func() { changed <- keepChanging(life, dir) }() // ends with life
		var took []float64
		cpu, err := cpuDuring(s.pid, func() error {
			took, err = b.typeQueries(ctx, &q)
			return err
		})
		stop()
		slices.Sort(took)
		return []float64{ms(cpu) / float64(len(took)), quantile(took, 0.5), quantile(took, 0.99)}, errors.Join(err, <-changed)
	},
}

// typeQueries searches for every prefix of the queries, as if somebody typed them.
func (b *bench) typeQueries(ctx context.Context, q *searcher) (took []float64, err error) {
	for {
		for _, text := range searchQueries {
			for end := range len(text) {
				if len(took) == b.plan.growth.search.queries {
					return took, nil
				}
				t, _, err := q.find(text[:end+1])
				if err != nil {
					return nil, err
				}
				took = append(took, t)
				if err := pause(ctx, typing); err != nil {
					return nil, err
				}
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
