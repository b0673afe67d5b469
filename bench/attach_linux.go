package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// strangers attach and leave before the clock starts, so that what a
	// server does only once is not charged to the first viewers.
	strangers = 50

	// afterwards is how long a server must be silent before it has told
	// everyone about the last newcomer; ours gathers such news for a while.
	afterwards = 1500 * time.Millisecond
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

// attachCost measures attaching viewers one after the other.
func (b *bench) attachCost(ctx context.Context) error {
	p := b.plan.attach
	var crowds []contender
	counts := map[string]int{}
	key := func(name string, n int) string { return fmt.Sprintf("%s: %d viewers", name, n) }
	for _, n := range p.counts {
		for _, c := range b.contenders(mailboxWhenIdle) {
			if c.name != nameHub && c.name != nameNaive {
				continue // one peer is enough to show what the kernel and net/http take
			}
			c.name = key(c.name, n)
			counts[c.name] = n
			crowds = append(crowds, c)
		}
	}
	var res results[cost]
	err := rounds(ctx, b, &res, crowds, func(c contender) (cost, error) { return b.runAttach(ctx, c, counts[c.name]) })
	if err != nil {
		return err
	}
	cpu := func(c cost) float64 { return c.cpu }
	t := table{
		title: "Attaching",
		notes: []string{fmt.Sprintf("Viewers attach one after the other, after %d others have come and gone. Per viewer; what the "+
			"server tells the others about newcomers is included, with everything until it had been silent for %v.", strangers, afterwards)},
		head: []string{"server", "server us", "us until attached", "bytes sent"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, cpu)), middle(res.of(name, func(c cost) float64 { return c.wall })),
			middle(res.of(name, func(c cost) float64 { return c.bytes })))
	}
	b.report.tables = append(b.report.tables, t)
	base, judged := key(nameHub, p.base), key(nameHub, p.judged)
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("attaching: server CPU per viewer at %d", p.judged),
		limit: 1.5, unit: "x", versus: fmt.Sprintf("the same at %d", p.base),
		got: res.of(judged, cpu).over(res.of(base, cpu)), void: cmp.Or(res.void(judged), res.void(base)),
	})
	return nil
}

func (b *bench) runAttach(ctx context.Context, c contender, viewers int) (got cost, err error) {
	s, err := b.start(ctx, c)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := comeAndStay(ctx, s, strangers, func(*crowd) error { return nil }); err != nil {
		return got, err
	}
	if err := s.registered(ctx, 0); err != nil {
		return got, err
	}
	if err := pause(ctx, afterwards); err != nil {
		return got, err
	}
	before, err := cpuTime(s.pid)
	if err != nil {
		return got, err
	}
	var bytes int64
	wall, err := comeAndStay(ctx, s, viewers, func(c *crowd) error {
		err := c.idle(ctx, afterwards)
		bytes = c.bytes
		return err
	})
	if err != nil {
		return got, err
	}
	after, err := cpuTime(s.pid)
	n := float64(viewers)
	return cost{
		cpu:   float64((after - before).Microseconds()) / n,
		wall:  float64(wall.Microseconds()) / n,
		bytes: float64(bytes) / n,
	}, err
}

// comeAndStay attaches viewers, lets them stay while stay runs and disconnects
// them. It returns how long attaching took.
func comeAndStay(ctx context.Context, s *server, viewers int, stay func(*crowd) error) (took time.Duration, err error) {
	c, err := newCrowd()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	began := time.Now()
	if err := c.attach(ctx, s.addr, s.dialect, viewers); err != nil {
		return 0, err
	}
	took = time.Since(began)
	if err := s.registered(ctx, viewers); err != nil {
		return 0, err
	}
	return took, stay(c)
}
