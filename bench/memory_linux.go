package main

import (
	"fmt"

	"github.com/seed-028515a8/maestro/bench/control"
)

// mailboxWhenIdle is the buffer of the one peer that has one to set: here it
// costs memory instead of preventing drops.
const mailboxWhenIdle = 64

// A weight is what one idle viewer keeps busy in a server.
type weight struct {
	kilobytes  float64
	goroutines float64
}

// String is the line for the log.
func (w weight) String() string {
	return fmt.Sprintf("%.1f KB and %.2f goroutines per viewer", w.kilobytes, w.goroutines)
}

// memory measures the resident memory of idle viewers.
func (t *trial) memory() {
	viewers := t.plan.memory.viewers
	needFiles(viewers)
	res := rounds(t, t.contenders(mailboxWhenIdle), func(t *trial, c contender) weight { return t.runMemory(c, viewers) })
	kilobytes := func(w weight) float64 { return w.kilobytes }
	t.report.show(res.table(fmt.Sprintf("Memory: %d idle viewers", viewers),
		"Resident set after garbage collection and return of free pages, less the same before the viewers came, per "+
			"viewer. Buffers of the kernel are not in it.",
		"server", res.each("KB", spread, kilobytes), res.each("goroutines", middle, func(w weight) float64 { return w.goroutines })))
	t.report.judge(target{
		what:  "resident memory per idle WebSocket viewer",
		limit: 14, unit: "KB", versus: fmt.Sprintf("(abs) %d viewers", viewers),
		got: res.of(nameHub, kilobytes), void: res.void(nameHub),
	})
}

func (t *trial) runMemory(c contender, viewers int) weight {
	st := t.stage(c)
	empty := must(st.ask(control.OpSettle))
	st.fill(viewers)
	check(st.idle(st.ctx, settle))
	full := must(st.ask(control.OpSettle))
	return weight{
		kilobytes:  float64(full.Resident-empty.Resident) / 1024 / float64(viewers),
		goroutines: float64(full.Goroutines-empty.Goroutines) / float64(viewers),
	}
}
