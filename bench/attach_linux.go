package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// strangers attach and leave just before the clock starts, so that what a
	// server does only once, or after it has slept, is not charged to the first
	// viewers.
	strangers = 50

	// afterwards is how long a server must be silent before it has told
	// everyone about the last newcomer; ours gathers such news for a while.
	afterwards = 500 * time.Millisecond

	// forgetAfter is when our server forgets viewers that left, who could come
	// back: the next ones are to find the session empty.
	forgetAfter = 20 * time.Millisecond
)

// A cost is what attaching one viewer took.
type cost struct {
	cpu   float64 // server, microseconds
	wall  float64 // from the first connect to the last answer, microseconds
	bytes float64 // sent to all viewers until all was quiet
}

// String is the line for the log.
func (c cost) String() string {
	return fmt.Sprintf("%.0f us of server time and %.0f bytes per viewer, attached in %.0f us", c.cpu, c.bytes, c.wall)
}

func costCPU(c cost) float64 { return c.cpu }

// attachCost measures attaching viewers one after the other.
func (t *trial) attachCost() {
	var crowds []contender
	for _, n := range t.plan.attach.counts {
		for _, c := range t.attached() {
			c.name, c.viewers = crowdOf(c.name, n), n
			crowds = append(crowds, c)
		}
	}
	t.reportAttach(rounds(t, crowds, (*trial).runAttach))
}

// attached are the servers to attach to. For each transport one peer is enough
// to show what the kernel and net/http take.
func (t *trial) attached() []contender {
	chosen := slices.DeleteFunc(t.contenders(mailboxWhenIdle), func(c contender) bool {
		return !slices.Contains([]string{nameHub, nameHubEvents, nameNaive, nameNaiveEvents}, c.name)
	})
	for i, c := range chosen {
		if c.program == hubContender.program {
			chosen[i].args = []string{"-subscription-ttl", forgetAfter.String()}
		}
	}
	return chosen
}

// crowdOf names a contender that so many viewers attach to.
func crowdOf(name string, viewers int) string { return fmt.Sprintf("%s: %d viewers", name, viewers) }

func (t *trial) reportAttach(res *results[cost]) {
	p := t.plan.attach
	first := p.counts[0]
	t.report.show(res.table("Attaching",
		fmt.Sprintf("Viewers attach one after the other to an empty session, just after %d others have come and gone. "+
			"Per viewer; what the server tells the others about newcomers is included, with everything until it had been silent for "+
			"%v. Where that makes fewer than %d viewers, they leave and the same is done again, and the mean counts.",
			strangers, afterwards, p.least),
		"server", res.each("server us", spread, costCPU),
		column{fmt.Sprintf("x %d viewers", first), func(name string) string {
			server, _, _ := strings.Cut(name, ": ")
			return spread(res.of(name, costCPU).over(res.of(crowdOf(server, first), costCPU)))
		}},
		res.each("us until attached", middle, func(c cost) float64 { return c.wall }),
		res.each("bytes sent", middle, func(c cost) float64 { return c.bytes })))
	base, judged := crowdOf(nameHub, p.base), crowdOf(nameHub, p.judged)
	t.report.judge(target{
		what:  fmt.Sprintf("attaching: server CPU per viewer at %d", p.judged),
		limit: 1.5, unit: "x", versus: fmt.Sprintf("the same at %d", p.base),
		got: res.of(judged, costCPU).over(res.of(base, costCPU)), void: cmp.Or(res.void(judged), res.void(base)),
	}, t.steadyTarget(res))
}

// steadyTarget is that attaching over SSE costs no more when there are more.
func (t *trial) steadyTarget(res *results[cost]) target {
	counts := t.plan.attach.counts
	first := crowdOf(nameHubEvents, counts[0])
	void := res.void(first)
	var others []series
	for _, n := range counts[1:] {
		name := crowdOf(nameHubEvents, n)
		others = append(others, res.of(name, costCPU))
		void = cmp.Or(void, res.void(name))
	}
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(counts[1:]), "[]"), " ", ", ")
	return target{
		what:  "attaching over SSE: server CPU per viewer at " + list + ", the most",
		limit: 1.5, unit: "x", versus: fmt.Sprintf("the same at %d", counts[0]),
		got: res.of(first, costCPU).most(others...), void: void,
	}
}

// runAttach measures one crowd, or as many small ones as make a reading.
func (t *trial) runAttach(c contender) (got cost) {
	s := t.start(c)
	groups := math.Ceil(float64(t.plan.attach.least) / float64(c.viewers))
	for range int(groups) {
		comeAndGo(s, strangers, 0)
		one := comeAndGo(s, c.viewers, afterwards)
		got.cpu += one.cpu / groups
		got.wall += one.wall / groups
		got.bytes += one.bytes / groups
	}
	return got
}

// comeAndGo attaches viewers, lets them stay until nothing has come for a while
// and disconnects them. It returns what that took until they left.
func comeAndGo(s *server, viewers int, quiet time.Duration) cost {
	c := must(newCrowd())
	before, began := must(cpuTime(s.pid)), time.Now()
	check(c.attach(s.ctx, s.addr, s.dialect, viewers))
	took := time.Since(began)
	check(c.idle(s.ctx, quiet))
	cpu, n := must(cpuTime(s.pid))-before, float64(viewers)
	check(s.registered(s.ctx, viewers)) // only now: a report costs more than a viewer
	check(c.close())
	check(s.registered(s.ctx, 0))
	return cost{cpu: ms(cpu) * 1000 / n, wall: ms(took) * 1000 / n, bytes: float64(c.bytes) / n}
}
