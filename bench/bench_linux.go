package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A bench is one run of the program. It is used by the main goroutine alone.
type bench struct {
	plan    plan
	designs *regexp.Regexp // contenders that take part, and parts of growth
	report  report

	voids []error // why results are missing from the report

	root  string            // of the module
	bin   string            // where programs are built
	built map[string]string // by name of the program
}

// A measurement adds its tables and targets to the report.
type measurement struct {
	name string
	run  func(*trial)
}

// measurements in the order of the report.
var measurements = []measurement{
	{"burst", (*trial).bursts},
	{"paced", (*trial).paced},
	{"stall", (*trial).stalls},
	{"publish", (*trial).publishCost},
	{"attach", (*trial).attachCost},
	{"memory", (*trial).memory},
	{"journal", (*trial).journal},
	{"start", (*trial).startUp},
	{"search", (*trial).search},
	{"terminal", (*trial).terminals},
	{"output", (*trial).output},
	{"acp", (*trial).acp},
	{"page", (*trial).page},
	{"growth", (*trial).growth},
}

// programs that are measured, by name: the folder of their module and their
// package in it.
var programs = map[string]struct{ module, pkg string }{
	"maestro":   {".", "./cmd/maestro"},
	"hubserver": {"bench", "./hubserver"},
	"acpagent":  {"bench", "./acpagent"},
	"empty":     {"bench", "./empty"},
	"replayer":  {"bench", "./replayer"},
	"peers":     {"bench", "./peers"},
}

func (b *bench) logf(format string, args ...any) { log.Printf(format, args...) }

// run takes the measurements whose names match only.
func (b *bench) run(ctx context.Context, only *regexp.Regexp) error {
	var err error
	if b.root, err = moduleRoot(ctx); err != nil {
		return err
	}
	if b.bin, err = os.MkdirTemp("", "maestro-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.bin)
	b.built = map[string]string{}
	b.report.quick = b.plan.quick
	b.describe()
	for _, m := range measurements {
		if !only.MatchString(m.name) {
			continue
		}
		b.logf("%s", m.name)
		if _, err := attempt(ctx, b, func(t *trial) any { m.run(t); return nil }); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	b.addContenders()
	return nil
}

// A trial is one run of what is measured. It is written like a test: the first
// failure ends it, and what it started is stopped afterwards, the last first. It
// is used by the main goroutine alone; others return their errors to that.
type trial struct {
	*bench
	ctx  context.Context
	ends []func() error
}

// A failure is what check panics with.
type failure struct{ err error }

// check ends the trial if err is not nil.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v, or ends the trial if err is not nil.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// attempt runs a trial. It returns what that measured, and its failure joined with
// those of what it had to stop.
func attempt[T any](ctx context.Context, b *bench, measure func(*trial) T) (v T, err error) {
	t := &trial{bench: b, ctx: ctx}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.err
		default:
			panic(p)
		}
		for _, end := range slices.Backward(t.ends) {
			err = errors.Join(err, end())
		}
	}()
	return measure(t), nil
}

// within runs a trial inside t, which it ends if it fails.
func within[T any](t *trial, measure func(*trial) T) T { return must(attempt(t.ctx, t.bench, measure)) }

// atEnd has f run after the trial.
func (t *trial) atEnd(f func() error) { t.ends = append(t.ends, f) }

// beside runs f in a goroutine that ends with the trial at the latest. stop ends it
// and returns its error; later calls return the same.
func (t *trial) beside(f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.atEnd(func() error { _ = stop(); return nil })
	return stop
}

// tempDir makes a folder in dir that is removed after the trial.
func (t *trial) tempDir(dir string) string {
	path := must(os.MkdirTemp(dir, "maestro-bench-"))
	t.atEnd(func() error { return os.RemoveAll(path) })
	return path
}

// rounds runs every contender once in each repetition. One whose result is void
// sits out the rest; only failing to build, or the end of the run, ends the trial.
func rounds[T fmt.Stringer](t *trial, contenders []contender, run func(*trial, contender) T) *results[T] {
	for _, c := range contenders {
		t.build(c.program)
	}
	var res results[T]
	for rep := range t.plan.reps {
		for _, c := range contenders {
			if res.void(c.name) == "" {
				round(t, &res, rep, c, run)
			}
		}
	}
	return &res
}

// round runs a contender once. A program that this machine does not have is no
// failure of the run.
func round[T fmt.Stringer](t *trial, res *results[T], rep int, c contender, run func(*trial, contender) T) {
	v, err := attempt(t.ctx, t.bench, func(t *trial) T { return run(t, c) })
	check(context.Cause(t.ctx))
	res.add(c.name, v, err)
	if err == nil {
		t.logf("repetition %d, %s: %v", rep+1, c.name, v)
		return
	}
	t.logf("repetition %d, %s: void: %v", rep+1, c.name, err)
	if !errors.Is(err, exec.ErrNotFound) {
		t.voids = append(t.voids, fmt.Errorf("void: %s: %w", c.name, err))
	}
}

// build compiles a program, as the Makefile does, unless that was done before. No
// name is no program.
func (t *trial) build(name string) {
	if name == "" || t.built[name] != "" {
		return
	}
	p := programs[name]
	path := filepath.Join(t.bin, name)
	cmd := exec.CommandContext(t.ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o", path, p.pkg)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Dir = filepath.Join(t.root, p.module)
	if out, err := cmd.CombinedOutput(); err != nil {
		check(fmt.Errorf("build %s: %w\n%s", name, err, out))
	}
	t.built[name] = path
}

// moduleRoot is the folder of maestro's module, which must be the current one.
func moduleRoot(ctx context.Context) (string, error) {
	const module = "github.com/seed-028515a8/maestro"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(out)), module+" ")
	if !ok {
		return "", fmt.Errorf("not in the module %s", module)
	}
	return dir, nil
}
