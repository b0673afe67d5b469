package main

import (
	"cmp"
	"context"
	"errors"
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
func (b *bench) attachCost(ctx context.Context) error {
	var crowds []contender
	counts := map[string]int{}
	for _, n := range b.plan.attach.counts {
		for _, c := range b.attached() {
			c.name = crowdOf(c.name, n)
			counts[c.name] = n
			crowds = append(crowds, c)
		}
	}
	var res results[cost]
	err := rounds(ctx, b, &res, crowds, func(c contender) (cost, error) { return b.runAttach(ctx, c, counts[c.name]) })
	if err != nil {
		return err
	}
	b.reportAttach(&res, counts)
	return nil
}

// attached are the servers to attach to. For each transport one peer is enough
// to show what the kernel and net/http take.
func (b *bench) attached() []contender {
	chosen := slices.DeleteFunc(b.contenders(mailboxWhenIdle), func(c contender) bool {
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

func (b *bench) reportAttach(res *results[cost], counts map[string]int) {
	p := b.plan.attach
	first := p.counts[0]
	t := table{
		title: "Attaching",
		notes: []string{fmt.Sprintf("Viewers attach one after the other to an empty session, just after %d others have come and gone. "+
			"Per viewer; what the server tells the others about newcomers is included, with everything until it had been silent for "+
			"%v. Where that makes fewer than %d viewers, they leave and the same is done again, and the mean counts.",
			strangers, afterwards, p.least)},
		head: []string{"server", "server us", fmt.Sprintf("x %d viewers", first), "us until attached", "bytes sent"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		server, _, _ := strings.Cut(name, ": ")
		t.add(name, spread(res.of(name, costCPU)), spread(res.of(name, costCPU).over(res.of(crowdOf(server, first), costCPU))),
			middle(res.of(name, func(c cost) float64 { return c.wall })), middle(res.of(name, func(c cost) float64 { return c.bytes })))
	}
	b.report.tables = append(b.report.tables, t)
	base, judged := crowdOf(nameHub, p.base), crowdOf(nameHub, p.judged)
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("attaching: server CPU per viewer at %d", p.judged),
		limit: 1.5, unit: "x", versus: fmt.Sprintf("the same at %d", p.base),
		got: res.of(judged, costCPU).over(res.of(base, costCPU)), void: cmp.Or(res.void(judged), res.void(base)),
	}, b.steadyTarget(res))
}

// steadyTarget is that attaching over SSE costs the same however many there
// are.
func (b *bench) steadyTarget(res *results[cost]) target {
	counts := b.plan.attach.counts
	first := crowdOf(nameHubEvents, counts[0])
	void := res.void(first)
	var others []series
	for _, n := range counts[1:] {
		name := crowdOf(nameHubEvents, n)
		others = append(others, res.of(name, costCPU))
		void = cmp.Or(void, res.void(name))
	}
	return target{
		what:  "attaching over SSE: server CPU per viewer at " + list(counts[1:]) + ", the one farthest off",
		limit: 1.5, unit: "x", versus: fmt.Sprintf("the same at %d, more or less", counts[0]),
		got: res.of(first, costCPU).farthest(others...), void: void,
	}
}

// list writes numbers as a sentence has them.
func list(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ", ")
}

// runAttach measures one crowd, or as many small ones as make a reading.
func (b *bench) runAttach(ctx context.Context, c contender, viewers int) (got cost, err error) {
	s, err := b.start(ctx, c)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	groups := math.Ceil(float64(b.plan.attach.least) / float64(viewers))
	for range int(groups) {
		if _, err := comeAndGo(ctx, s, strangers, 0); err != nil {
			return got, err
		}
		one, err := comeAndGo(ctx, s, viewers, afterwards)
		if err != nil {
			return got, err
		}
		got.cpu += one.cpu / groups
		got.wall += one.wall / groups
		got.bytes += one.bytes / groups
	}
	return got, nil
}

// comeAndGo attaches viewers, lets them stay until nothing has come for a while
// and disconnects them. It returns what that took until they left.
func comeAndGo(ctx context.Context, s *server, viewers int, quiet time.Duration) (got cost, err error) {
	before, err := cpuTime(s.pid)
	if err != nil {
		return got, err
	}
	c, err := newCrowd()
	if err != nil {
		return got, err
	}
	took, err := stay(ctx, c, s, viewers, quiet)
	after, other := cpuTime(s.pid)
	n := float64(viewers)
	got = cost{cpu: float64((after - before).Nanoseconds()) / 1e3 / n, wall: float64(took.Microseconds()) / n, bytes: float64(c.bytes) / n}
	if err == nil {
		err = s.registered(ctx, viewers) // only now: a report costs more than a viewer
	}
	if err := errors.Join(err, other, c.close()); err != nil {
		return got, err
	}
	return got, s.registered(ctx, 0)
}

// stay attaches viewers and reads until nothing has come for a while. It returns
// how long attaching took.
func stay(ctx context.Context, c *crowd, s *server, viewers int, quiet time.Duration) (took time.Duration, err error) {
	began := time.Now()
	if err := c.attach(ctx, s.addr, s.dialect, viewers); err != nil {
		return 0, err
	}
	took = time.Since(began)
	return took, c.idle(ctx, quiet)
}
