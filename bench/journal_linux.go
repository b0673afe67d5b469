package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// appends is what appending to the journal took.
type appends struct {
	paced, full spans
	plain       spans   // of writes of the same bytes to a plain file, at the same time
	perSecond   float64 // events
}

// spans are quantiles of durations, in microseconds.
type spans struct{ p50, p99 float64 }

// String is the line for the log.
func (a appends) String() string {
	return fmt.Sprintf("append p50 %.1f us, p99 %.1f us, plain write p99 %.1f us; saturated %.0f events/s",
		a.paced.p50, a.paced.p99, a.plain.p99, a.perSecond)
}

// journal measures appends to the segment file, in this process.
func (t *trial) journal() {
	const name = "segment file"
	res := rounds(t, []contender{{name: name}}, func(t *trial, _ contender) appends { return t.runJournal() })
	p := t.plan.journal
	tab := table{
		title: "Journal: segment file",
		notes: []string{fmt.Sprintf("One event of 200 bytes per append, no fsync, on %s. Paced: %d events/s for %v, and as "+
			"many writes of 200 bytes to a plain file. Saturated: %d events, one after the other.", fileSystem(t.bin), p.rate, p.length, p.saturated)},
		head: []string{"load", "p50 us", "p99 us", "events/s"},
	}
	of := func(f func(appends) float64) series { return res.of(name, f) }
	paced := of(func(a appends) float64 { return a.paced.p99 })
	tab.add("paced", spread(of(func(a appends) float64 { return a.paced.p50 })), spread(paced), strconv.Itoa(p.rate))
	plain := of(func(a appends) float64 { return a.plain.p99 })
	tab.add("plain file", spread(of(func(a appends) float64 { return a.plain.p50 })), spread(plain), strconv.Itoa(p.rate))
	tab.add("saturated", spread(of(func(a appends) float64 { return a.full.p50 })), spread(of(func(a appends) float64 { return a.full.p99 })),
		spread(of(func(a appends) float64 { return a.perSecond })))
	t.report.show(tab)
	what := fmt.Sprintf("journal append p99 at %d events/s", p.rate)
	t.report.judge(
		target{what: what, limit: 50, unit: "us", versus: "(abs)", got: paced, void: res.void(name)},
		target{what: what, limit: 2, unit: "x", versus: "a write to a plain file", got: paced.over(plain), void: res.void(name)},
	)
}

func (t *trial) runJournal() (got appends) {
	store := must(journal.Open(filepath.Join(t.tempDir(t.bin), "j"), journal.FileOptions{}))
	t.atEnd(store.Close)
	file := must(os.Create(filepath.Join(t.tempDir(t.bin), "plain")))
	t.atEnd(file.Close)
	body, cursor := slices.Repeat([]byte("x"), 200), uint64(0)
	add := func() {
		cursor++
		check(store.Append([]journal.Entry{{Cursor: cursor, Time: time.Now().UnixMilli(), Body: body}}))
	}
	write := func() { must(file.Write(body)) }
	p := t.plan.journal
	calls := repeat(messagesIn(p.length, p.rate), time.Second/time.Duration(p.rate), add, write)
	got.paced, got.plain = quantiles(calls[0]), quantiles(calls[1])
	began := time.Now()
	got.full = quantiles(repeat(p.saturated, 0, add)[0])
	got.perSecond = float64(p.saturated) / time.Since(began).Seconds()
	return got
}

// repeat calls each of fs n times, all once every interval, and returns the microseconds of each call.
func repeat(n int, every time.Duration, fs ...func()) [][]float64 {
	took := make([][]float64, len(fs))
	began := time.Now()
	for i := range n {
		if every > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
		}
		for j := range fs {
			j = (i + j) % len(fs) // the first call after a pause takes longer
			before := time.Now()
			fs[j]()
			took[j] = append(took[j], ms(time.Since(before))*1000)
		}
	}
	return took
}

func quantiles(us []float64) spans {
	slices.Sort(us)
	return spans{quantile(us, 0.5), quantile(us, 0.99)}
}
