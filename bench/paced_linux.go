package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// paced measures latency at a fixed rate. The rate is raised until the naive
// hub fills one core: below that nobody queues and every design is alike.
func (b *bench) paced(ctx context.Context) error {
	p := b.plan.paced
	contenders := b.contenders(warmUp + messagesIn(p.length, slices.Max(p.rates)))
	rate, err := b.saturatingRate(ctx, contenders)
	if err != nil {
		return err
	}
	var res results[fanout]
	err = rounds(ctx, b, &res, contenders, func(c contender) (fanout, error) {
		return b.runFanout(ctx, c, p.viewers, messagesIn(p.length, rate), rate)
	})
	if err != nil {
		return err
	}
	b.reportPaced(rate, &res)
	return nil
}

func messagesIn(d time.Duration, rate int) int { return int(d.Seconds() * float64(rate)) }

// saturatingRate is the first planned rate at which the naive hub keeps at
// least one core busy, or else the one at which it keeps most of one busy.
func (b *bench) saturatingRate(ctx context.Context, contenders []contender) (int, error) {
	p := b.plan.paced
	i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == nameNaive })
	if i < 0 {
		return p.rates[0], nil
	}
	if err := b.build(ctx, contenders[i].program); err != nil {
		return 0, err
	}
	best, most := p.rates[0], 0.0
	for _, rate := range p.rates {
		f, err := b.runFanout(ctx, contenders[i], p.viewers, messagesIn(p.probe, rate), rate)
		if err != nil {
			return 0, fmt.Errorf("find the rate: %w", err)
		}
		b.logf("paced: %s at %d/s: %.2f cores", nameNaive, rate, f.cores)
		if f.cores > most {
			best, most = rate, f.cores
		}
		if f.cores >= 1 {
			break
		}
	}
	return best, nil
}

func (b *bench) reportPaced(rate int, res *results[fanout]) {
	p := b.plan.paced
	cores := func(f fanout) float64 { return f.cores }
	p99 := func(f fanout) float64 { return f.p99 }
	cpu := func(f fanout) float64 { return f.cpu }
	load := res.of(nameNaive, cores)
	t := table{
		title: fmt.Sprintf("Fan-out, paced: %d viewers, %d messages/s for %v", p.viewers, rate, p.length),
		notes: []string{
			"Latency is from just before the publish call until the viewer had read the message, the viewers' own queueing included. " +
				"Rates tried, rising until " + nameNaive + " kept one core busy: " + fmt.Sprint(p.rates) + ". Frames of SSE are the chunks of its answer.",
		},
		head: []string{"server", "p99 x " + nameNaive, "CPU x " + nameNaive, "p50 ms", "p99 ms", "p99.9 ms", "cores", "viewers ns",
			"messages/s", "frames"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, p99).over(res.of(nameNaive, p99))), spread(res.of(name, cpu).over(res.of(nameNaive, cpu))),
			middle(res.of(name, func(f fanout) float64 { return f.p50 })), middle(res.of(name, p99)),
			middle(res.of(name, func(f fanout) float64 { return f.p999 })), middle(res.of(name, cores)),
			middle(res.of(name, func(f fanout) float64 { return f.client })),
			middle(res.of(name, func(f fanout) float64 { return f.messages })),
			middle(res.of(name, func(f fanout) float64 { return f.frames })))
	}
	b.report.tables = append(b.report.tables, t)
	b.report.targets = append(b.report.targets, target{
		what:   fmt.Sprintf("fan-out p99, paced, N=%d x %d msg/s", p.viewers, rate),
		limit:  0.25,
		unit:   "x",
		versus: fmt.Sprintf("%s, which kept %s cores busy", nameNaive, spread(load)),
		got:    res.of(nameHub, p99).over(res.of(nameNaive, p99)),
		void:   res.void(nameHub),
	})
}
