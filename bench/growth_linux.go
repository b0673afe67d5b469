package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// growthPatience bounds one part of growth, without its preparation.
const growthPatience = 5 * time.Minute

// A growth is a cost that once grew with something that it must not grow with.
// It is a part of the measurement of that name.
type growth struct {
	name    string
	figures func(plan) []figure

	// prepare fills dir, in which there may be very many files; nil if take needs
	// none of them.
	prepare func(t *trial, dir string)

	// take returns the values of figures, in their order. dir is what prepare
	// filled, scratch is an empty folder on disk.
	take func(t *trial, dir, scratch string) (values []float64)
}

// A figure is one row of the table of growth.
type figure struct {
	what   string
	before string  // the value when the defect was found, on another machine with two processors; empty: not known
	unit   string  // of before, limit and the value
	limit  float64 // the target; zero: none
	versus string  // of the target
}

// growths are the parts of growth.
var growths = []growth{
	watchGrowth, searchGrowth, returnGrowth, presenceGrowth, responseGrowth, stateGrowth,
	historyGrowth, pagesGrowth, questionGrowth, replayGrowth, listGrowth, postGrowth, promptGrowth, retainGrowth, hecateGrowth,
	overviewGrowth,
}

// growth takes all parts, once each, and reports them as one table.
func (t *trial) growth() {
	t.build("maestro")
	tab := table{
		title: "Growth",
		notes: []string{"Costs that once grew with something that they must not grow with. Before is the value when the defect was found, " +
			"on another machine, at the sizes of a full run. Each is measured once, however many repetitions the others have. " +
			"The server is the built program in a process of its own, with authentication off. MB are those of its resident " +
			"set. Processor time is the server's, user and system. Workspaces and stored sessions are on " + fileSystem(roomyDir(t.bin)) +
			", journals that are written on " + fileSystem(t.bin) + "."},
		head: []string{"what", "before", "target", "measured", "unit"},
	}
	for _, g := range growths {
		if t.designs.MatchString(g.name) {
			t.grow(g, &tab)
		}
	}
	t.report.show(tab)
}

// grow takes one part and adds its rows and targets.
func (t *trial) grow(g growth, tab *table) {
	figures := g.figures(t.plan)
	values, err := attempt(t.ctx, t.bench, func(t *trial) []float64 {
		dir, scratch := t.tempDir(roomyDir(t.bin)), t.tempDir(t.bin)
		if g.prepare != nil {
			within(t, func(t *trial) any { g.prepare(t, dir); return nil })
		}
		ctx, cancel := context.WithTimeoutCause(t.ctx, growthPatience, fmt.Errorf("not done after %v", growthPatience))
		defer cancel() // ends the server and with it every read
		return must(attempt(ctx, t.bench, func(t *trial) []float64 { return g.take(t, dir, scratch) }))
	})
	check(context.Cause(t.ctx))
	void := ""
	if err != nil {
		void = oneLine(err)
		t.logf("growth, %s: void: %v", g.name, err)
		t.voids = append(t.voids, fmt.Errorf("void: growth, %s: %w", g.name, err))
	}
	for i, f := range figures {
		to := target{what: f.what, limit: f.limit, unit: f.unit, versus: f.versus, void: void}
		measured, bound := "void: "+void, ""
		if void == "" {
			to.got = series{values[i]}
			measured = number(values[i])
			t.logf("growth, %s: %s: %s %s", g.name, f.what, measured, f.unit)
		}
		if f.limit != 0 {
			bound = "<= " + number(f.limit)
			t.report.judge(to)
		}
		unit := f.unit
		if unit == "x" {
			unit += " " + f.versus
		}
		tab.add(f.what, f.before, bound, measured, unit)
	}
}

// roomyDir returns a folder for very many files: a file system in memory that has
// room for them, otherwise dir. A disk can take minutes to make them.
func roomyDir(dir string) string {
	const memory = "/dev/shm"
	var stat unix.Statfs_t
	if unix.Statfs(memory, &stat) != nil || stat.Type != unix.TMPFS_MAGIC || stat.Bavail*uint64(stat.Bsize) < 2<<30 || stat.Ffree < 1_000_000 {
		return dir
	}
	return memory
}

// megabytes is a number of bytes as the table has it.
func megabytes(n int64) float64 { return float64(n) / 1e6 }

// ratio is a divided by b.
func ratio[T int | int64 | float64](a, b T) float64 { return float64(a) / float64(b) }
