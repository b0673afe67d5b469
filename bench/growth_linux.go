package main

import (
	"context"
	"fmt"
	"os"
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
	prepare func(ctx context.Context, b *bench, dir string) error

	// take returns the values of figures, in their order. dir is what prepare
	// filled, scratch is an empty folder on disk.
	take func(ctx context.Context, b *bench, dir, scratch string) (values []float64, err error)
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
	historyGrowth, questionGrowth, replayGrowth, listGrowth, postGrowth, promptGrowth, retainGrowth,
}

// growth takes all parts, once each, and reports them as one table.
func (b *bench) growth(ctx context.Context) error {
	t := table{
		title: "Growth",
		notes: []string{"Costs that once grew with something that they must not grow with. Before is the value when the defect was found, " +
			"on another machine, at the sizes of a full run. Each is measured once, however many repetitions the others have. " +
			"The server is the built program in a process of its own, with authentication off. MB are those of its resident " +
			"set. Processor time is the server's, user and system. Workspaces and stored sessions are on " + fileSystem(roomyDir(b.bin)) +
			", journals that are written on " + fileSystem(b.bin) + "."},
		head: []string{"what", "before", "target", "measured", "unit"},
	}
	for _, g := range growths {
		if !b.designs.MatchString(g.name) {
			continue
		}
		if err := b.grow(ctx, g, &t); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	b.report.tables = append(b.report.tables, t)
	return nil
}

// grow takes one part and adds its rows and targets.
func (b *bench) grow(ctx context.Context, g growth, t *table) error {
	if err := b.build(ctx, "maestro"); err != nil {
		return err
	}
	figures := g.figures(b.plan)
	values, err := b.takeGrowth(ctx, g)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	void := ""
	if err == nil && len(values) != len(figures) {
		err = fmt.Errorf("got %d values, want %d", len(values), len(figures))
	}
	if err != nil {
		void = oneLine(err)
		b.logf("growth, %s: void: %v", g.name, err)
		b.voids = append(b.voids, fmt.Errorf("void: growth, %s: %w", g.name, err))
	}
	for i, f := range figures {
		to := target{what: f.what, limit: f.limit, unit: f.unit, versus: f.versus, void: void}
		measured, bound := "void: "+void, ""
		if void == "" {
			to.got = series{values[i]}
			measured = number(values[i])
			b.logf("growth, %s: %s: %s %s", g.name, f.what, measured, f.unit)
		}
		if f.limit != 0 {
			bound = "<= " + number(f.limit)
			b.report.targets = append(b.report.targets, to)
		}
		unit := f.unit
		if unit == "x" {
			unit += " " + f.versus
		}
		t.add(f.what, f.before, bound, measured, unit)
	}
	return nil
}

// takeGrowth prepares and takes one part.
func (b *bench) takeGrowth(ctx context.Context, g growth) (values []float64, err error) {
	dir, err := os.MkdirTemp(roomyDir(b.bin), "maestro-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	scratch, err := os.MkdirTemp(b.bin, "growth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if g.prepare != nil {
		if err := g.prepare(ctx, b, dir); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, growthPatience, fmt.Errorf("not done after %v", growthPatience))
	defer cancel() // ends the server and with it every read
	return g.take(ctx, b, dir, scratch)
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
