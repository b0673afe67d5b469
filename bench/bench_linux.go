package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A bench is one run of the program. It is used by the main goroutine alone.
type bench struct {
	plan     plan
	designs  *regexp.Regexp // contenders that take part, and parts of growth
	profiles string         // where our server writes profiles of itself; empty: it does not
	report   report

	voids []error // why results are missing from the report

	root  string            // of the module
	bin   string            // where programs are built
	built map[string]string // by name of the program
}

// A measurement adds its tables and targets to the report.
type measurement struct {
	name string
	run  func(*bench, context.Context) error
}

// measurements in the order of the report.
var measurements = []measurement{
	{"burst", (*bench).burst},
	{"paced", (*bench).paced},
	{"stall", (*bench).stalls},
	{"publish", (*bench).publishCost},
	{"attach", (*bench).attachCost},
	{"memory", (*bench).memory},
	{"journal", (*bench).journal},
	{"start", (*bench).startUp},
	{"search", (*bench).search},
	{"terminal", (*bench).terminals},
	{"output", (*bench).output},
	{"acp", (*bench).acp},
	{"growth", (*bench).growth},
}

// programs that are measured, by name: the folder of their module and their
// package in it.
var programs = map[string]struct{ module, pkg string }{
	"maestro":      {".", "./cmd/maestro"},
	"hubserver":    {"bench", "./hubserver"},
	"journalbench": {"bench", "./journalbench"},
	"acpagent":     {"bench", "./acpagent"},
	"replayer":     {"bench", "./replayer"},
	"peers":        {"bench", "./peers"},
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
		if err := m.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	b.addContenders()
	return nil
}

// rounds runs every contender once in each repetition. One whose result is void
// sits out the rest; only failing to build, or the end of ctx, is an error.
func rounds[T fmt.Stringer](ctx context.Context, b *bench, res *results[T], contenders []contender, run func(contender) (T, error)) error {
	for _, c := range contenders {
		if err := b.build(ctx, c.program); err != nil {
			return err
		}
	}
	for rep := range b.plan.reps {
		for _, c := range contenders {
			if res.void(c.name) != "" {
				continue
			}
			v, err := run(c)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			res.add(c.name, v, err)
			if err != nil {
				b.logf("repetition %d, %s: void: %v", rep+1, c.name, err)
				b.voids = append(b.voids, fmt.Errorf("void: %s: %w", c.name, err))
			} else {
				b.logf("repetition %d, %s: %v", rep+1, c.name, v)
			}
		}
	}
	return nil
}

// build compiles a program unless that was done before.
func (b *bench) build(ctx context.Context, name string) error {
	if b.built[name] != "" {
		return nil
	}
	p := programs[name]
	path := filepath.Join(b.bin, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, p.pkg)
	cmd.Dir = filepath.Join(b.root, p.module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	b.built[name] = path
	return nil
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
