package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-028515a8/maestro/bench/control"
)

// A stall is one run with or without viewers that stop reading.
type stall struct {
	p50, p99 float64 // milliseconds, of the viewers that read
	growth   float64 // of what the server keeps resident after garbage collection, MB
	cpu      float64 // server, nanoseconds per delivery to those that read
	complete float64 // share of the stopped viewers that later had the complete text
	resumes  float64 // reconnections per stopped viewer
}

// String is the line for the log.
func (s stall) String() string {
	line := fmt.Sprintf("p99 %.1f ms, resident +%.1f MB", s.p99, s.growth)
	if s.complete > 0 {
		line += fmt.Sprintf(", %.0f %% complete after %.1f reconnections", s.complete*100, s.resumes)
	}
	return line
}

// stalls measures what viewers that stop reading do to the others.
func (t *trial) stalls() {
	p := t.plan.stall
	healthy := p.viewers - p.stopped
	without := hubContender
	without.args = []string{"-write-timeout", p.timeout.String()}
	with := without
	without.name = fmt.Sprintf("%d viewers", healthy)
	with.name, with.viewers = fmt.Sprintf("%d viewers beside %d that stopped", healthy, p.stopped), p.stopped
	res := rounds(t, []contender{without, with}, (*trial).runStall)
	p99 := func(s stall) float64 { return s.p99 }
	growth := func(s stall) float64 { return s.growth }
	complete := func(s stall) float64 { return s.complete }
	lacking := func(s stall) float64 { return float64(p.stopped) - math.Round(s.complete*float64(p.stopped)) }
	stopped := func(c column) column { // says nothing of the run without
		return column{c.head, func(name string) string {
			if name == without.name {
				return ""
			}
			return c.cell(name)
		}}
	}
	t.report.show(res.table("Viewers that stop reading",
		fmt.Sprintf("%s. Those that stop read nothing after their handshake, through a receive buffer of %d KiB. "+
			"First %d messages at once fill the kernel's buffers, then the clock starts: %d messages/s for %v. The server disconnects "+
			"whoever does not take a write for %v. Afterwards those that stopped read on, and come back with epoch and cursor if they "+
			"were disconnected; complete means that every byte of the text arrived, once and in order. Resident is what the server "+
			"holds more than before the messages, after garbage collection: the larger of the values while writes to those that "+
			"stopped are stuck and at the end. What both runs have in common is the journal.",
			nameHub, smallBuffer>>10, p.flood, p.rate, p.length, p.timeout),
		"run", res.each("p99 ms", spread, p99), res.over("p99 x", spread, p99, without.name),
		res.each("p50 ms", middle, func(s stall) float64 { return s.p50 }), res.each("server ns", middle, func(s stall) float64 { return s.cpu }),
		res.each("resident MB", func(s series) string { return "+" + spread(s) }, growth),
		stopped(res.each("complete", func(s series) string { return fmt.Sprintf("%.0f %%", 100*s.summarize().low) }, complete)),
		stopped(res.each("reconnections", middle, func(s stall) float64 { return s.resumes }))))
	void := cmp.Or(res.void(without.name), res.void(with.name))
	what := fmt.Sprintf("%d viewers, %d of which stop reading: ", p.viewers, p.stopped)
	t.report.judge(
		target{what: what + "p99 of the others", limit: 1.3, unit: "x", versus: "the same without those that stop", void: void,
			got: res.of(with.name, p99).over(res.of(without.name, p99))},
		target{what: what + "more memory", limit: 5, unit: "MB", versus: "the same without those that stop", void: void,
			got: res.of(with.name, growth).less(res.of(without.name, growth))},
		target{what: what + "how many never had the complete text", limit: 0, unit: "viewers", versus: "(abs)", void: void,
			got: res.of(with.name, lacking)})
}

// runStall measures a contender whose viewers stop reading, beside those that do not.
func (t *trial) runStall(c contender) stall {
	p := t.plan.stall
	st := t.setUp(c, p.viewers-p.stopped)
	var stoppers []*stopped
	for range c.viewers {
		v := must(attachStopped(st.addr, st.dialect, st.next))
		t.atEnd(v.close)
		stoppers = append(stoppers, v)
	}
	check(st.idle(t.ctx, settle))
	got := t.publishStalled(st)
	count := float64(c.viewers)
	for i, v := range stoppers {
		if err := errors.Join(v.catchUp(st.next), t.ctx.Err()); err != nil {
			check(fmt.Errorf("stopped viewer %d: %w", i, err))
		}
		got.complete += 1 / count
		got.resumes += float64(v.resumes) / count
	}
	return got
}

// publishStalled publishes the planned messages and takes what can be seen of
// the viewers that read and of the server.
func (t *trial) publishStalled(st stage) stall {
	p := t.plan.stall
	before := must(st.ask(control.OpSettle))
	st.publish(control.Order{Count: p.flood})
	stuck := must(st.ask(control.OpSettle))
	check(st.idle(t.ctx, settle))
	messages := messagesIn(p.length, p.rate)
	st.tally = tally{timed: true, ages: make([]int32, 0, len(st.viewers)*messages)}
	start := st.meter()
	st.publish(control.Order{Count: messages, Rate: p.rate})
	used := st.meter()
	after := must(st.ask(control.OpSettle))
	slices.Sort(st.ages)
	return stall{
		p50:    float64(quantile(st.ages, 0.5)) / 1000,
		p99:    float64(quantile(st.ages, 0.99)) / 1000,
		growth: float64(max(stuck.Resident, after.Resident)-before.Resident) / (1 << 20),
		cpu:    float64(used.server-start.server) / float64(st.deliveries),
	}
}
