package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/bench/control"
)

// spareFiles is how many open files a process needs beside its viewers.
const spareFiles = 256

// A call is how long the publisher was held up by one publish.
type call struct{ p50, p99 float64 } // nanoseconds

// String is the line for the log.
func (c call) String() string { return fmt.Sprintf("publish p50 %.0f ns, p99 %.0f ns", c.p50, c.p99) }

// publishCost measures what publishing costs the publisher with few and with
// many idle followers, on real sockets.
func (b *bench) publishCost(ctx context.Context) error {
	p := b.plan.publish
	base, many := p.followers[0], p.followers[len(p.followers)-1]
	if err := needFiles(many); err != nil {
		return err
	}
	var res results[call]
	var crowds []contender // the same server, once for each number of followers
	followers := map[string]int{}
	for _, n := range p.followers {
		c := hubContender
		c.name = fmt.Sprintf("%d followers", n)
		followers[c.name] = n
		crowds = append(crowds, c)
	}
	err := rounds(ctx, b, &res, crowds, func(c contender) (call, error) { return b.runPublish(ctx, c, followers[c.name]) })
	if err != nil {
		return err
	}
	t := table{
		title: "Publishing to idle followers",
		notes: []string{fmt.Sprintf("How long one publish call of %s took, %d messages at %d/s, so that every follower was idle again "+
			"before the next. Followers are WebSocket viewers on real sockets.", nameHub, p.messages, p.rate)},
		head: []string{"idle", "p50 ns", "p99 ns"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, callP50)), spread(res.of(name, func(c call) float64 { return c.p99 })))
	}
	b.report.tables = append(b.report.tables, t)
	first, last := crowds[0].name, crowds[len(crowds)-1].name
	b.report.targets = append(b.report.targets, target{
		what: fmt.Sprintf("publish call with %d idle followers, p50", many), limit: 3, unit: "x",
		versus: fmt.Sprintf("the same with %d", base),
		got:    res.of(last, callP50).over(res.of(first, callP50)),
		void:   cmp.Or(res.void(first), res.void(last)),
	})
	return nil
}

func callP50(c call) float64 { return c.p50 }

func (b *bench) runPublish(ctx context.Context, c contender, followers int) (got call, err error) {
	st, err := b.setUp(ctx, c, followers)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	rep, err := st.publish(ctx, control.Order{Op: control.OpPublish, Count: b.plan.publish.messages, Rate: b.plan.publish.rate})
	return call{float64(rep.CallP50), float64(rep.CallP99)}, err
}

// needFiles makes sure that this process and the servers, which inherit its
// hard limit, may have as many viewers.
func needFiles(viewers int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if want := uint64(viewers + spareFiles); limit.Max < want {
		return fmt.Errorf("%d viewers need a hard limit of %d open files, it is %d", viewers, want, limit.Max)
	}
	return nil
}
