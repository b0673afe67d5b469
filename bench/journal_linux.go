package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// appends is what appending to the journal took.
type appends struct {
	paced, full spans
	perSecond   float64 // events
}

// spans are quantiles of durations, in microseconds.
type spans struct{ p50, p99 float64 }

// String is the line for the log.
func (a appends) String() string {
	return fmt.Sprintf("append p50 %.1f us, p99 %.1f us; saturated %.0f events/s", a.paced.p50, a.paced.p99, a.perSecond)
}

// journal measures appends to the segment file, in this process.
func (t *trial) journal() {
	const name = "segment file"
	res := rounds(t, []contender{{name: name}}, func(t *trial, _ contender) appends { return t.runJournal() })
	p := t.plan.journal
	tab := table{
		title: "Journal: segment file",
		notes: []string{fmt.Sprintf("One event of 200 bytes per append, no fsync, on %s. Paced: %d events/s for %v. Saturated: %d "+
			"events, one after the other.", fileSystem(t.bin), p.rate, p.length, p.saturated)},
		head: []string{"load", "p50 us", "p99 us", "events/s"},
	}
	of := func(f func(appends) float64) series { return res.of(name, f) }
	paced := of(func(a appends) float64 { return a.paced.p99 })
	tab.add("paced", spread(of(func(a appends) float64 { return a.paced.p50 })), spread(paced), strconv.Itoa(p.rate))
	tab.add("saturated", spread(of(func(a appends) float64 { return a.full.p50 })), spread(of(func(a appends) float64 { return a.full.p99 })),
		spread(of(func(a appends) float64 { return a.perSecond })))
	t.report.show(tab)
	t.report.judge(target{
		what:  fmt.Sprintf("journal append p99 at %d events/s", p.rate),
		limit: 50, unit: "us", versus: "(abs)", got: paced, void: res.void(name),
	})
}

func (t *trial) runJournal() (got appends) {
	store := must(journal.Open(filepath.Join(t.tempDir(t.bin), "j"), journal.FileOptions{}))
	t.atEnd(store.Close)
	body, cursor := slices.Repeat([]byte("x"), 200), uint64(0)
	// appendAll appends events, one every interval, and returns how long each took and
	// all together.
	appendAll := func(events int, every time.Duration) (each spans, took time.Duration) {
		calls := make([]float64, 0, events)
		began := time.Now()
		for i := range events {
			if every > 0 {
				time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
			}
			cursor++
			before := time.Now()
			check(store.Append([]journal.Entry{{Cursor: cursor, Time: before.UnixMilli(), Body: body}}))
			calls = append(calls, ms(time.Since(before))*1000)
		}
		took = time.Since(began)
		slices.Sort(calls)
		return spans{quantile(calls, 0.5), quantile(calls, 0.99)}, took
	}
	p := t.plan.journal
	got.paced, _ = appendAll(messagesIn(p.length, p.rate), time.Second/time.Duration(p.rate))
	var took time.Duration
	got.full, took = appendAll(p.saturated, 0)
	got.perSecond = float64(p.saturated) / took.Seconds()
	return got
}
