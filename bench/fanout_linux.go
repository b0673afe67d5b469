package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

const (
	warmUp = 10                     // messages before the clock starts
	settle = 200 * time.Millisecond // for a server's goroutines to park before a measurement
)

// A fanout is what one server took to send messages to all viewers.
type fanout struct {
	cpu      float64 // server, nanoseconds per delivery
	client   float64 // viewers, nanoseconds per delivery
	cores    float64 // server, processors busy
	rate     float64 // deliveries per second, from the first publish to the last delivery
	messages float64 // messages published per second
	frames   float64 // per delivery; below one if the server merges
	bytes    float64 // per delivery, as received
	allocs   float64 // server, per delivery

	p50, p99, p999 float64 // milliseconds from sending to reading; paced runs only
}

// String is the line for the log.
func (f fanout) String() string {
	s := fmt.Sprintf("%.0f ns per delivery, %.2f cores, viewers %.0f ns", f.cpu, f.cores, f.client)
	if f.p99 > 0 {
		s += fmt.Sprintf(", p50 %.2f ms, p99 %.2f ms", f.p50, f.p99)
	}
	return s
}

func fanoutCPU(f fanout) float64    { return f.cpu }
func fanoutClient(f fanout) float64 { return f.client }
func fanoutFrames(f fanout) float64 { return f.frames }
func fanoutP99(f fanout) float64    { return f.p99 }

// A stage is a server with its viewers, warmed up and idle.
type stage struct {
	*server
	*crowd
}

// stage starts a contender, without viewers.
func (t *trial) stage(c contender) stage {
	crowd := must(newCrowd())
	t.atEnd(crowd.close) // after the server's end, so that it closes no connection in order
	return stage{t.start(c), crowd}
}

// fill attaches viewers and waits until the server counts them.
func (st stage) fill(viewers int) {
	check(st.attach(st.ctx, st.addr, st.dialect, viewers))
	check(st.registered(st.ctx, viewers))
}

// setUp starts a contender and attaches viewers to it.
func (t *trial) setUp(c contender, viewers int) stage {
	st := t.stage(c)
	st.fill(viewers)
	st.publish(control.Order{Count: warmUp})
	check(st.idle(st.ctx, settle))
	return st
}

// publish has messages sent to all viewers and waits until they have them.
func (st stage) publish(o control.Order) control.Report {
	o.Op, o.First = control.OpPublish, st.next
	check(st.send(o))
	if err := st.await(st.ctx, st.next+uint64(o.Count)); err != nil {
		check(fmt.Errorf("%w (%s)", err, st.stderr))
	}
	return must(st.report())
}

// A reading is the processor time that has been used so far.
type reading struct{ server, client time.Duration }

func (st stage) meter() reading { return reading{must(cpuTime(st.pid)), must(threadTime())} }

// runFanout measures one contender once; a rate of zero is a burst.
func (t *trial) runFanout(c contender, viewers, messages, rate int) fanout {
	st := t.setUp(c, viewers)
	before := must(st.ask(control.OpStatus))
	want := int64(viewers) * int64(messages)
	st.tally = tally{timed: rate > 0}
	if rate > 0 {
		st.ages = make([]int32, 0, want)
	}
	start := st.meter()
	rep := st.publish(control.Order{Count: messages, Rate: rate})
	ended := time.Now().UnixNano()
	check(pause(st.ctx, settle/2)) // what a server still does for the last message belongs to the run
	used := st.meter()
	if st.deliveries != want {
		check(fmt.Errorf("got %d deliveries, want %d", st.deliveries, want))
	}
	slices.Sort(st.ages)
	n, seconds := float64(want), float64(ended-rep.Began)/1e9
	return fanout{
		cpu:      float64(used.server-start.server) / n,
		client:   float64(used.client-start.client) / n,
		cores:    (used.server - start.server).Seconds() / seconds,
		rate:     n / seconds,
		messages: float64(messages) / (float64(rep.Ended-rep.Began) / 1e9),
		frames:   float64(st.frames) / n,
		bytes:    float64(st.bytes) / n,
		allocs:   float64(rep.Mallocs-before.Mallocs) / n,
		p50:      float64(quantile(st.ages, 0.5)) / 1000,
		p99:      float64(quantile(st.ages, 0.99)) / 1000,
		p999:     float64(quantile(st.ages, 0.999)) / 1000,
	}
}
