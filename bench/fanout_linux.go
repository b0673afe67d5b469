package main

import (
	"context"
	"errors"
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
	writes   float64 // server's write calls per delivery
	allocs   float64 // server, per delivery

	p50, p99, p999 float64 // milliseconds from sending to reading; paced runs only
}

// String is the line for the log.
func (f fanout) String() string {
	s := fmt.Sprintf("%.0f ns and %.3f writes per delivery, %.2f cores, viewers %.0f ns", f.cpu, f.writes, f.cores, f.client)
	if f.p99 > 0 {
		s += fmt.Sprintf(", p50 %.2f ms, p99 %.2f ms", f.p50, f.p99)
	}
	return s
}

// A stage is a server with its viewers, warmed up and idle.
type stage struct {
	*server
	*crowd
}

// setUp starts a contender and attaches viewers to it.
func (b *bench) setUp(ctx context.Context, c contender, viewers int) (stage, error) {
	s, err := b.start(ctx, c)
	if err != nil {
		return stage{}, err
	}
	crowd, err := newCrowd()
	if err != nil {
		return stage{}, errors.Join(err, s.stop())
	}
	st := stage{s, crowd}
	if err := st.warm(ctx, viewers); err != nil {
		return stage{}, errors.Join(err, st.tearDown())
	}
	return st, nil
}

func (st stage) warm(ctx context.Context, viewers int) error {
	if err := st.attach(ctx, st.addr, st.dialect, viewers); err != nil {
		return err
	}
	if err := st.registered(ctx, viewers); err != nil {
		return err
	}
	if _, err := st.publish(ctx, control.Order{Op: control.OpPublish, Count: warmUp}); err != nil {
		return err
	}
	return st.idle(ctx, settle)
}

// publish has messages sent to all viewers and waits until they have them.
func (st stage) publish(ctx context.Context, o control.Order) (control.Report, error) {
	o.First = st.next
	if err := st.send(o); err != nil {
		return control.Report{}, err
	}
	if err := st.await(ctx, st.next+uint64(o.Count)); err != nil {
		return control.Report{}, fmt.Errorf("%w (%s)", err, st.stderr)
	}
	return st.report()
}

// A reading is what has been used so far.
type reading struct {
	server, client time.Duration // processor time
	writes         int64         // the server's write calls
}

func (st stage) meter() (reading, error) {
	server, err1 := cpuTime(st.pid)
	client, err2 := threadTime()
	writes, err3 := writeCalls(st.pid)
	return reading{server, client, writes}, errors.Join(err1, err2, err3)
}

// tearDown ends the server first, so that it closes no connection in order.
func (st stage) tearDown() error {
	err := st.stop()
	return errors.Join(err, st.close())
}

// runFanout measures one contender once; a rate of zero is a burst.
func (b *bench) runFanout(ctx context.Context, c contender, viewers, messages, rate int) (f fanout, err error) {
	st, err := b.setUp(ctx, c, viewers)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	before, err := st.ask(control.OpStatus)
	if err != nil {
		return f, err
	}
	var rep control.Report
	f, err = st.measure(ctx, messages, rate > 0, func() (began int64, err error) {
		rep, err = st.publish(ctx, control.Order{Op: control.OpPublish, Count: messages, Rate: rate})
		return rep.Began, err
	})
	if err != nil {
		return f, err
	}
	f.messages = float64(messages) / (float64(rep.Ended-rep.Began) / 1e9)
	f.allocs = float64(rep.Mallocs-before.Mallocs) / float64(st.deliveries)
	return f, nil
}

// measure takes what publish costs. publish has messages sent to all viewers,
// waits until they have them and returns when it began, in unix nanoseconds.
func (st stage) measure(ctx context.Context, messages int, timed bool, publish func() (began int64, err error)) (f fanout, err error) {
	want := int64(len(st.viewers)) * int64(messages)
	st.tally = tally{timed: timed}
	if timed {
		st.ages = make([]int32, 0, want)
	}
	start, err := st.meter()
	if err != nil {
		return f, err
	}
	began, err := publish()
	if err != nil {
		return f, err
	}
	ended := time.Now().UnixNano()
	// What a server still does for the last message belongs to the run.
	if err := pause(ctx, settle/2); err != nil {
		return f, err
	}
	used, err := st.meter()
	if err != nil {
		return f, err
	}
	if st.deliveries != want {
		return f, fmt.Errorf("got %d deliveries, want %d", st.deliveries, want)
	}
	slices.Sort(st.ages)
	n, seconds := float64(want), float64(ended-began)/1e9
	return fanout{
		cpu:    float64(used.server-start.server) / n,
		client: float64(used.client-start.client) / n,
		cores:  (used.server - start.server).Seconds() / seconds,
		rate:   n / seconds,
		frames: float64(st.frames) / n,
		bytes:  float64(st.bytes) / n,
		writes: float64(used.writes-start.writes) / n,
		p50:    float64(quantile(st.ages, 0.5)) / 1000,
		p99:    float64(quantile(st.ages, 0.99)) / 1000,
		p999:   float64(quantile(st.ages, 0.999)) / 1000,
	}, nil
}
