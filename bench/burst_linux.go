package main

import (
	"context"
	"fmt"
	"math"
)

// bursts measures fan-out as fast as possible, once for every planned size.
func (t *trial) bursts() {
	for i, p := range t.plan.bursts {
		contenders := t.contenders(p.messages + warmUp)
		run := func(t *trial, c contender) fanout { return t.runFanout(c, p.viewers, p.messages, 0) }
		if i == 0 && len(contenders) > 0 {
			t.heat(contenders[0], run)
		}
		t.reportBurst(p, rounds(t, contenders, run), i == 0)
	}
}

// heat makes one run that is not counted. The first burst fills socket buffers
// with memory that a virtual machine may have to be given first, at more than
// the cost of the burst, and whoever comes first would be charged for it.
func (t *trial) heat(c contender, run func(*trial, contender) fanout) {
	t.build(c.program)
	f, err := attempt(t.ctx, t.bench, func(t *trial) fanout { return run(t, c) })
	t.logf("not counted, %s: %v, %v", c.name, f, err)
	check(context.Cause(t.ctx)) // any other error will come again, and count
}

func (t *trial) reportBurst(p burstPlan, res *results[fanout], judged bool) {
	rate := func(f fanout) float64 { return f.rate }
	t.report.show(res.table(fmt.Sprintf("Fan-out, burst: %d viewers, %d deliveries", p.viewers, p.viewers*p.messages),
		"Published as fast as the server takes it. Server processor time, user and system, per delivery. Frames of SSE "+
			"are the chunks of its answer.",
		"server",
		res.over("x "+nameNaive, spread, fanoutCPU, nameNaive), res.over("x raw TCP 64", spread, fanoutCPU, nameRaw64),
		res.each("server ns", middle, fanoutCPU), res.each("viewers ns", middle, fanoutClient),
		res.over("deliveries/s x "+nameNaive, middle, rate, nameNaive),
		res.each("allocs", middle, func(f fanout) float64 { return f.allocs }),
		res.each("frames", middle, fanoutFrames), res.each("bytes", middle, func(f fanout) float64 { return f.bytes })))
	if !judged {
		return
	}
	what := fmt.Sprintf("fan-out server CPU per delivery, burst, N=%d", p.viewers)
	overEvents := fmt.Sprintf("fan-out server CPU per delivery over SSE, burst, N=%d", p.viewers)
	of := func(name string) series { return res.of(name, fanoutCPU) }
	ours, events := of(nameHub), of(nameHubEvents)
	t.report.judge(
		target{what: what, limit: 0.06, unit: "x", versus: nameNaive + ", Conn.Write per message", got: ours.over(of(nameNaive)), void: res.void(nameHub)},
		target{what: what, limit: 1.5, unit: "x", versus: "raw TCP, 64 messages a write", got: ours.over(of(nameRaw64)), void: res.void(nameHub)},
		target{what: overEvents, limit: 0.08, unit: "x", versus: nameNaiveEvents, got: events.over(of(nameNaiveEvents)), void: res.void(nameHubEvents)},
		target{what: overEvents, limit: math.Inf(1), unit: "x", versus: nameHub + " over WebSocket", got: events.over(ours), void: res.void(nameHubEvents)})
}
