package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// appends is what appending to the journal took, in nanoseconds.
type appends struct {
	PacedP50  float64 `json:"paced_p50"`
	PacedP99  float64 `json:"paced_p99"`
	FullP50   float64 `json:"full_p50"`
	FullP99   float64 `json:"full_p99"`
	PerSecond float64 `json:"full_per_s"` // events
}

// String is the line for the log.
func (a appends) String() string {
	return fmt.Sprintf("append p50 %.1f us, p99 %.1f us; saturated %.0f events/s", a.PacedP50/1e3, a.PacedP99/1e3, a.PerSecond)
}

// journal measures appends to the segment file.
func (t *trial) journal() {
	c := contender{name: "segment file", program: "journalbench"}
	res := rounds(t, []contender{c}, func(t *trial, _ contender) appends { return t.runJournal() })
	p := t.plan.journal
	tab := table{
		title: "Journal: segment file",
		notes: []string{fmt.Sprintf("One event of 200 bytes per append, no fsync, on %s. Paced: %d events/s for %v. Saturated: %d "+
			"events, one after the other.", fileSystem(t.bin), p.rate, p.length, p.saturated)},
		head: []string{"load", "p50 us", "p99 us", "events/s"},
	}
	us := func(f func(appends) float64) string {
		return spread(res.of(c.name, func(a appends) float64 { return f(a) / 1e3 }))
	}
	tab.add("paced", us(func(a appends) float64 { return a.PacedP50 }), us(func(a appends) float64 { return a.PacedP99 }), strconv.Itoa(p.rate))
	tab.add("saturated", us(func(a appends) float64 { return a.FullP50 }), us(func(a appends) float64 { return a.FullP99 }),
		spread(res.of(c.name, func(a appends) float64 { return a.PerSecond })))
	t.report.show(tab)
	t.report.judge(target{
		what:  fmt.Sprintf("journal append p99 at %d events/s", p.rate),
		limit: 50, unit: "us", versus: "(abs)",
		got:  res.of(c.name, func(a appends) float64 { return a.PacedP99 / 1e3 }),
		void: res.void(c.name),
	})
}

func (t *trial) runJournal() (got appends) {
	p := t.plan.journal
	out := must(exec.CommandContext(t.ctx, t.built["journalbench"], "-dir", filepath.Join(t.tempDir(t.bin), "j"),
		"-rate", strconv.Itoa(p.rate), "-paced", strconv.Itoa(messagesIn(p.length, p.rate)), "-full", strconv.Itoa(p.saturated)).Output())
	check(json.Unmarshal(out, &got))
	return got
}
