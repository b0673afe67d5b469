package main

import (
	"cmp"
	"context"
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
	peak     float64 // of the server's resident set over that before, MB
	cpu      float64 // server, nanoseconds per delivery to those that read
	complete float64 // share of the stopped viewers that later had the complete text
	resumes  float64 // reconnections per stopped viewer
	merged   float64 // messages per frame that a stopped viewer read
}

// String is the line for the log.
func (s stall) String() string {
	line := fmt.Sprintf("p99 %.1f ms, resident +%.1f MB, peak +%.1f MB", s.p99, s.growth, s.peak)
	if s.complete > 0 {
		line += fmt.Sprintf(", %.0f %% complete after %.1f reconnections", s.complete*100, s.resumes)
	}
	return line
}

// stalls measures what viewers that stop reading do to the others.
func (b *bench) stalls(ctx context.Context) error {
	p := b.plan.stall
	healthy := p.viewers - p.stopped
	without := hubContender
	without.args = []string{"-write-timeout", p.timeout.String()}
	with := without
	without.name = fmt.Sprintf("%d viewers", healthy)
	with.name = fmt.Sprintf("%d viewers beside %d that stopped", healthy, p.stopped)
	var res results[stall]
	err := rounds(ctx, b, &res, []contender{without, with}, func(c contender) (stall, error) {
		if c.name == without.name {
			return b.runStall(ctx, c, 0)
		}
		return b.runStall(ctx, c, p.stopped)
	})
	if err != nil {
		return err
	}
	t := table{
		title: "Viewers that stop reading",
		notes: []string{fmt.Sprintf("%s. Those that stop read nothing after their handshake, through a receive buffer of %d KiB. "+
			"First %d messages at once fill the kernel's buffers, then the clock starts: %d messages/s for %v. The server disconnects "+
			"whoever does not take a write for %v. Afterwards those that stopped read on, and come back with epoch and cursor if they "+
			"were disconnected; complete means that every byte of the text arrived, once and in order. Resident is what the server "+
			"holds more than before the messages, after garbage collection: the larger of the values while writes to those that "+
			"stopped are stuck and at the end. What both runs have in common is the journal.",
			nameHub, smallBuffer>>10, p.flood, p.rate, p.length, p.timeout)},
		head: []string{"run", "p99 ms", "p99 x", "p50 ms", "server ns", "resident MB", "peak MB", "complete", "reconnections", "messages per frame"},
	}
	p99 := func(s stall) float64 { return s.p99 }
	growth := func(s stall) float64 { return s.growth }
	lacking := func(s stall) float64 { return float64(p.stopped) - math.Round(s.complete*float64(p.stopped)) }
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		row := []string{name, spread(res.of(name, p99)), spread(res.of(name, p99).over(res.of(without.name, p99))),
			middle(res.of(name, func(s stall) float64 { return s.p50 })), middle(res.of(name, func(s stall) float64 { return s.cpu })),
			"+" + spread(res.of(name, growth)), "+" + middle(res.of(name, func(s stall) float64 { return s.peak }))}
		if name == with.name {
			row = append(row, fmt.Sprintf("%.0f %%", 100*res.of(name, func(s stall) float64 { return s.complete }).summarize().low),
				middle(res.of(name, func(s stall) float64 { return s.resumes })), middle(res.of(name, func(s stall) float64 { return s.merged })))
		}
		t.add(row...)
	}
	b.report.tables = append(b.report.tables, t)
	void := cmp.Or(res.void(without.name), res.void(with.name))
	what := fmt.Sprintf("%d viewers, %d of which stop reading: ", p.viewers, p.stopped)
	b.report.targets = append(b.report.targets,
		target{what: what + "p99 of the others", limit: 1.3, unit: "x", versus: "the same without those that stop", void: void,
			got: res.of(with.name, p99).over(res.of(without.name, p99))},
		target{what: what + "more memory", limit: 5, unit: "MB", versus: "the same without those that stop", void: void,
			got: res.of(with.name, growth).less(res.of(without.name, growth))},
		target{what: what + "how many never had the complete text", limit: 0, unit: "viewers", versus: "(abs)", void: void,
			got: res.of(with.name, lacking)})
	return nil
}

func (b *bench) runStall(ctx context.Context, c contender, count int) (got stall, err error) {
	p := b.plan.stall
	st, err := b.setUp(ctx, c, p.viewers-p.stopped)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	var stoppers []*stopped
	defer func() {
		for _, v := range stoppers {
			err = errors.Join(err, v.close())
		}
	}()
	for range count {
		v, err := attachStopped(st.addr, st.dialect, st.next)
		if err != nil {
			return got, fmt.Errorf("attach a viewer that stops: %w", err)
		}
		stoppers = append(stoppers, v)
	}
	if err := st.idle(ctx, settle); err != nil {
		return got, err
	}
	if got, err = b.publishStalled(ctx, st); err != nil {
		return got, err
	}
	for i, v := range stoppers {
		if err := errors.Join(v.catchUp(st.next), ctx.Err()); err != nil {
			return got, fmt.Errorf("stopped viewer %d: %w", i, err)
		}
		got.complete += 1 / float64(count)
		got.resumes += float64(v.resumes) / float64(count)
		got.merged += float64(p.flood+messagesIn(p.length, p.rate)) / float64(max(v.frames, 1)) / float64(count)
	}
	return got, nil
}

// publishStalled publishes the planned messages and takes what can be seen of
// the viewers that read and of the server.
func (b *bench) publishStalled(ctx context.Context, st stage) (got stall, err error) {
	p := b.plan.stall
	before, err := st.ask(control.OpSettle)
	if err != nil {
		return got, err
	}
	peak := before.Resident
	st.glance = func() {
		if now, err := control.Resident(st.pid); err == nil { // a miss is made up for by the next
			peak = max(peak, now)
		}
	}
	if _, err := st.publish(ctx, control.Order{Op: control.OpPublish, Count: p.flood}); err != nil {
		return got, err
	}
	stuck, err := st.ask(control.OpSettle)
	if err != nil {
		return got, err
	}
	if err := st.idle(ctx, settle); err != nil {
		return got, err
	}
	messages := messagesIn(p.length, p.rate)
	st.tally = tally{timed: true, ages: make([]int32, 0, len(st.viewers)*messages)}
	start, err := st.meter()
	if err != nil {
		return got, err
	}
	if _, err := st.publish(ctx, control.Order{Op: control.OpPublish, Count: messages, Rate: p.rate}); err != nil {
		return got, err
	}
	used, err := st.meter()
	if err != nil {
		return got, err
	}
	after, err := st.ask(control.OpSettle)
	slices.Sort(st.ages)
	return stall{
		p50:    float64(quantile(st.ages, 0.5)) / 1000,
		p99:    float64(quantile(st.ages, 0.99)) / 1000,
		growth: float64(max(stuck.Resident, after.Resident)-before.Resident) / (1 << 20),
		peak:   float64(peak-before.Resident) / (1 << 20),
		cpu:    float64(used.server-start.server) / float64(st.deliveries),
	}, err
}
