package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// burst measures fan-out as fast as possible, once for every planned size.
func (b *bench) burst(ctx context.Context) error {
	for i, p := range b.plan.bursts {
		var res results[fanout]
		contenders := b.contenders(p.messages + warmUp)
		if b.designs.MatchString(nameProduct) {
			contenders = slices.Insert(contenders, min(2, len(contenders)), productContender)
		}
		run := func(c contender) (fanout, error) {
			if c.name == nameProduct {
				return b.runProduct(ctx, c, p.viewers, p.messages)
			}
			return b.runFanout(ctx, c, p.viewers, p.messages, 0)
		}
		if i == 0 {
			if err := b.heat(ctx, contenders, run); err != nil {
				return err
			}
		}
		if err := rounds(ctx, b, &res, contenders, run); err != nil {
			return err
		}
		b.reportBurst(p, &res, i == 0)
	}
	return nil
}

// heat makes one run that is not counted. The first burst fills socket buffers
// with memory that a virtual machine may have to be given first, at more than
// the cost of the burst, and whoever comes first would be charged for it.
func (b *bench) heat(ctx context.Context, contenders []contender, run func(contender) (fanout, error)) error {
	if len(contenders) == 0 {
		return nil
	}
	if err := b.build(ctx, contenders[0].program); err != nil {
		return err
	}
	f, err := run(contenders[0])
	if err != nil {
		b.logf("not counted, %s: %v", contenders[0].name, err)
	} else {
		b.logf("not counted, %s: %v", contenders[0].name, f)
	}
	return context.Cause(ctx) // any other error will come again, and count
}

func (b *bench) reportBurst(p burstPlan, res *results[fanout], judged bool) {
	cpu := func(f fanout) float64 { return f.cpu }
	naive, raw := res.of(nameNaive, cpu), res.of(nameRaw64, cpu)
	t := table{
		title: fmt.Sprintf("Fan-out, burst: %d viewers, %d deliveries", p.viewers, p.viewers*p.messages),
		notes: []string{"Published as fast as the server takes it. Server processor time, user and system, per delivery. Frames of SSE " +
			"are the chunks of its answer."},
		head: []string{"server", "x " + nameNaive, "x raw TCP 64", "server ns", "viewers ns", "deliveries/s x " + nameNaive,
			"writes", "allocs", "frames", "bytes"},
	}
	rate := func(f fanout) float64 { return f.rate }
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, cpu).over(naive)), spread(res.of(name, cpu).over(raw)), middle(res.of(name, cpu)),
			middle(res.of(name, func(f fanout) float64 { return f.client })),
			middle(res.of(name, rate).over(res.of(nameNaive, rate))),
			middle(res.of(name, func(f fanout) float64 { return f.writes })),
			middle(res.of(name, func(f fanout) float64 { return f.allocs })),
			middle(res.of(name, func(f fanout) float64 { return f.frames })),
			middle(res.of(name, func(f fanout) float64 { return f.bytes })))
	}
	b.report.tables = append(b.report.tables, t)
	if !judged {
		return
	}
	what := fmt.Sprintf("fan-out server CPU per delivery, burst, N=%d", p.viewers)
	ours, events := res.of(nameHub, cpu), res.of(nameHubEvents, cpu)
	overEvents := fmt.Sprintf("fan-out server CPU per delivery over SSE, burst, N=%d", p.viewers)
	b.report.targets = append(b.report.targets,
		target{what: what, limit: 0.06, unit: "x", versus: nameNaive + ", Conn.Write per message", got: ours.over(naive), void: res.void(nameHub)},
		target{what: what, limit: 1.5, unit: "x", versus: "raw TCP, 64 messages a write", got: ours.over(raw), void: res.void(nameHub)},
		target{what: overEvents, limit: 0.08, unit: "x", versus: nameNaiveEvents, void: res.void(nameHubEvents),
			got: events.over(res.of(nameNaiveEvents, cpu))},
		target{what: overEvents, limit: math.Inf(1), unit: "x", versus: nameHub + " over WebSocket", void: res.void(nameHubEvents),
			got: events.over(ours)})
}
