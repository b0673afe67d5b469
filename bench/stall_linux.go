package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// A stall is one run with or without viewers that stop reading.
type stall struct {
	p50, p99 float64 // milliseconds, of the viewers that read
	growth   float64 // peak of the server's resident set over that before, MB
	cpu      float64 // server, nanoseconds per delivery to those that read
	complete float64 // share of the stopped viewers that later had the complete text
	resumes  float64 // reconnections per stopped viewer
	merged   float64 // messages per frame that a stopped viewer read
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
func (b *bench) stalls(ctx context.Context) error {
	p := b.plan.stall
	healthy := p.viewers - p.stopped
	without, with := hubContender, hubContender
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
			"were disconnected; complete means that every byte of the text arrived, once and in order.",
			nameHub, smallBuffer>>10, p.flood, p.rate, p.length, contracts.DefaultWriteTimeout)},
		head: []string{"run", "p99 ms", "p99 x", "p50 ms", "server ns", "resident MB", "complete", "reconnections", "messages per frame"},
	}
	p99 := func(s stall) float64 { return s.p99 }
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		row := []string{name, spread(res.of(name, p99)), spread(res.of(name, p99).over(res.of(without.name, p99))),
			middle(res.of(name, func(s stall) float64 { return s.p50 })), middle(res.of(name, func(s stall) float64 { return s.cpu })),
			"+" + spread(res.of(name, func(s stall) float64 { return s.growth }))}
		if name == with.name {
			row = append(row, fmt.Sprintf("%.0f %%", 100*res.of(name, func(s stall) float64 { return s.complete }).summarize().low),
				middle(res.of(name, func(s stall) float64 { return s.resumes })), middle(res.of(name, func(s stall) float64 { return s.merged })))
		}
		t.add(row...)
	}
	b.report.tables = append(b.report.tables, t)
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
	first, err := control.Resident(st.pid)
	if err != nil {
		return got, err
	}
	peak := first
	st.glance = func() {
		if now, err := control.Resident(st.pid); err == nil { // a miss is made up for by the next
			peak = max(peak, now)
		}
	}
	if _, err := st.publish(ctx, control.Order{Op: control.OpPublish, Count: p.flood}); err != nil {
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
	slices.Sort(st.ages)
	return stall{
		p50:    float64(quantile(st.ages, 0.5)) / 1000,
		p99:    float64(quantile(st.ages, 0.99)) / 1000,
		growth: float64(peak-first) / (1 << 20),
		cpu:    float64(used.server-start.server) / float64(st.deliveries),
	}, nil
}
