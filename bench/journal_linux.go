package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// appends is what appending to the journal took.
type appends struct{ pacedP50, pacedP99, fullP50, fullP99, perSecond float64 } // nanoseconds, events

// String is the line for the log.
func (a appends) String() string {
	return fmt.Sprintf("append p50 %.1f us, p99 %.1f us; saturated %.0f events/s", a.pacedP50/1e3, a.pacedP99/1e3, a.perSecond)
}

// journal measures appends to the segment file.
func (b *bench) journal(ctx context.Context) error {
	var res results[appends]
	c := contender{name: "segment file", program: "journalbench"}
	err := rounds(ctx, b, &res, []contender{c}, func(c contender) (appends, error) { return b.runJournal(ctx) })
	if err != nil {
		return err
	}
	p := b.plan.journal
	t := table{
		title: "Journal: segment file",
		notes: []string{fmt.Sprintf("One event of 200 bytes per append, no fsync, on %s. Paced: %d events/s for %v. Saturated: %d "+
			"events, one after the other.", fileSystem(b.bin), p.rate, p.length, p.saturated)},
		head: []string{"load", "p50 us", "p99 us", "events/s"},
	}
	us := func(f func(appends) float64) string {
		return spread(res.of(c.name, func(a appends) float64 { return f(a) / 1e3 }))
	}
	t.add("paced", us(func(a appends) float64 { return a.pacedP50 }), us(func(a appends) float64 { return a.pacedP99 }), strconv.Itoa(p.rate))
	t.add("saturated", us(func(a appends) float64 { return a.fullP50 }), us(func(a appends) float64 { return a.fullP99 }),
		spread(res.of(c.name, func(a appends) float64 { return a.perSecond })))
	b.report.tables = append(b.report.tables, t)
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("journal append p99 at %d events/s", p.rate),
		limit: 50, unit: "us", versus: "(abs)",
		got:  res.of(c.name, func(a appends) float64 { return a.pacedP99 / 1e3 }),
		void: res.void(c.name),
	})
	return nil
}

func (b *bench) runJournal(ctx context.Context) (got appends, err error) {
	dir, err := os.MkdirTemp(b.bin, "journal-")
	if err != nil {
		return got, err
	}
	defer os.RemoveAll(dir)
	p := b.plan.journal
	out, err := exec.CommandContext(ctx, b.built["journalbench"], "-dir", filepath.Join(dir, "j"),
		"-rate", strconv.Itoa(p.rate), "-paced", strconv.Itoa(messagesIn(p.length, p.rate)), "-full", strconv.Itoa(p.saturated)).Output()
	if err != nil {
		return got, err
	}
	var raw struct {
		PacedP50   float64 `json:"paced_p50"`
		PacedP99   float64 `json:"paced_p99"`
		FullP50    float64 `json:"full_p50"`
		FullP99    float64 `json:"full_p99"`
		FullPerSec float64 `json:"full_per_s"`
	}
	err = json.Unmarshal(out, &raw)
	return appends{raw.PacedP50, raw.PacedP99, raw.FullP50, raw.FullP99, raw.FullPerSec}, err
}
