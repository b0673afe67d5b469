package main

import (
	"fmt"
	"slices"
	"time"
)

// paced measures latency at a fixed rate. The rate is raised until the naive
// hub fills one core: below that nobody queues and every design is alike.
func (t *trial) paced() {
	p := t.plan.paced
	contenders := t.contenders(warmUp + messagesIn(p.length, slices.Max(p.rates)))
	rate := t.saturatingRate(contenders)
	t.reportPaced(rate, rounds(t, contenders, func(t *trial, c contender) fanout {
		return t.runFanout(c, p.viewers, messagesIn(p.length, rate), rate)
	}))
}

func messagesIn(d time.Duration, rate int) int { return int(d.Seconds() * float64(rate)) }

// saturatingRate is the first planned rate at which the naive hub keeps at
// least one core busy, or else the one at which it keeps most of one busy.
func (t *trial) saturatingRate(contenders []contender) int {
	p := t.plan.paced
	i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == nameNaive })
	if i < 0 {
		return p.rates[0]
	}
	t.build(contenders[i].program)
	best, most := p.rates[0], 0.0
	for _, rate := range p.rates {
		f := within(t, func(t *trial) fanout { return t.runFanout(contenders[i], p.viewers, messagesIn(p.probe, rate), rate) })
		t.logf("paced: %s at %d/s: %.2f cores", nameNaive, rate, f.cores)
		if f.cores > most {
			best, most = rate, f.cores
		}
		if f.cores >= 1 {
			break
		}
	}
	return best
}

func (t *trial) reportPaced(rate int, res *results[fanout]) {
	p := t.plan.paced
	cores := func(f fanout) float64 { return f.cores }
	t.report.show(res.table(fmt.Sprintf("Fan-out, paced: %d viewers, %d messages/s for %v", p.viewers, rate, p.length),
		"Latency is from just before the publish call until the viewer had read the message, the viewers' own queueing included. "+
			"Rates tried, rising until "+nameNaive+" kept one core busy: "+fmt.Sprint(p.rates)+". Frames of SSE are the chunks of its answer.",
		"server",
		res.over("p99 x "+nameNaive, spread, fanoutP99, nameNaive), res.over("CPU x "+nameNaive, spread, fanoutCPU, nameNaive),
		res.each("p50 ms", middle, func(f fanout) float64 { return f.p50 }), res.each("p99 ms", middle, fanoutP99),
		res.each("p99.9 ms", middle, func(f fanout) float64 { return f.p999 }), res.each("cores", middle, cores),
		res.each("viewers ns", middle, fanoutClient), res.each("messages/s", middle, func(f fanout) float64 { return f.messages }),
		res.each("frames", middle, fanoutFrames)))
	t.report.judge(target{
		what:   fmt.Sprintf("fan-out p99, paced, N=%d x %d msg/s", p.viewers, rate),
		limit:  0.25,
		unit:   "x",
		versus: fmt.Sprintf("%s, which kept %s cores busy", nameNaive, spread(res.of(nameNaive, cores))),
		got:    res.of(nameHub, fanoutP99).over(res.of(nameNaive, fanoutP99)),
		void:   res.void(nameHub),
	})
}
