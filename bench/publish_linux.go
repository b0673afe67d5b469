package main

import (
	"cmp"
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
func (t *trial) publishCost() {
	p := t.plan.publish
	var crowds []contender // the same server, once for each number of followers
	for _, n := range p.followers {
		needFiles(n)
		c := hubContender
		c.name, c.viewers = fmt.Sprintf("%d followers", n), n
		crowds = append(crowds, c)
	}
	res := rounds(t, crowds, func(t *trial, c contender) call {
		rep := t.setUp(c, c.viewers).publish(control.Order{Count: p.messages, Rate: p.rate})
		return call{float64(rep.CallP50), float64(rep.CallP99)}
	})
	t.report.show(res.table("Publishing to idle followers",
		fmt.Sprintf("How long one publish call of %s took, %d messages at %d/s, so that every follower was idle again "+
			"before the next. Followers are WebSocket viewers on real sockets.", nameHub, p.messages, p.rate),
		"idle", res.each("p50 ns", spread, callP50), res.each("p99 ns", spread, func(c call) float64 { return c.p99 })))
	first, last := crowds[0], crowds[len(crowds)-1]
	t.report.judge(target{
		what: fmt.Sprintf("publish call with %d idle followers, p50", last.viewers), limit: 3, unit: "x",
		versus: fmt.Sprintf("the same with %d", first.viewers),
		got:    res.of(last.name, callP50).over(res.of(first.name, callP50)),
		void:   cmp.Or(res.void(first.name), res.void(last.name)),
	})
}

func callP50(c call) float64 { return c.p50 }

// needFiles makes sure that this process and the servers, which inherit its
// hard limit, may have as many viewers.
func needFiles(viewers int) {
	var limit unix.Rlimit
	check(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if want := uint64(viewers + spareFiles); limit.Max < want {
		check(fmt.Errorf("%d viewers need a hard limit of %d open files, it is %d", viewers, want, limit.Max))
	}
}
