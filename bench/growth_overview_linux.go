package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// overviewGrowth is what a dashboard costs that follows the list of many busy sessions,
// beside a viewer of one session that publishes as many events.
var overviewGrowth = growth{
	name: "overview",
	figures: func(p plan) []figure {
		o := p.growth.overview
		list := fmt.Sprintf("%d followers of the list of %d sessions, %d changes/s: processor time of one", o.followers, o.sessions, overviewRate)
		return []figure{
			{what: list, unit: "us/s"},
			{what: list, unit: "x", limit: 1.5, versus: fmt.Sprintf("%d SSE viewers of one session, %d events/s", o.followers, overviewRate)},
			{what: fmt.Sprintf("%d followers of the list: events of one", o.followers), unit: "events/s"},
		}
	},
	take: func(t *trial, _, scratch string) []float64 {
		agent := scriptIn(scratch, busySessions(t.plan.growth.overview.sessions))
		viewer, _ := within(t, func(t *trial) followed {
			s := t.serve(filepath.Join(scratch, "one"), agent, unbounded...)
			s.post(s.connectTo(s.session, contracts.RoleController), &contracts.Prompt{Content: "stream"})
			return t.follow(s, "sessions/"+s.session+"/events")
		}).each()
		follower, events := within(t, func(t *trial) followed {
			s := t.serve(filepath.Join(scratch, "many"), agent, append([]string{"--max-sessions", "2000"}, unbounded...)...)
			for range t.plan.growth.overview.sessions {
				s.post(s.connectTo("", contracts.RoleController), &contracts.Prompt{Content: "work"})
			}
			return t.follow(s, "overview/events")
		}).each()
		return []float64{follower, ratio(follower, viewer), events}
	},
}

// overviewRate is how many sessions change in a second, and how many events the one
// session has.
const overviewRate = 500

// busySessions is a script with which so many sessions change overviewRate times a
// second, or one session streams as many events.
func busySessions(sessions int) map[string]any {
	often := func(rate float64, do steps) steps {
		return steps{{"repeat": map[string]any{"times": 100_000, "rate": rate, "steps": do}}}
	}
	return map[string]any{
		"prompts": []map[string]any{{"match": "stream", "steps": often(overviewRate, steps{{"say": "word word word word "}})}},
		"default": often(float64(overviewRate)/float64(sessions), steps{{"say": "."}, {"usage": map[string]int{"output_tokens": 1}}, {"end": true}}),
	}
}

// A followed is what a server used with followers and without, in the same time.
type followed struct {
	cpu       time.Duration // with followers, more than without
	events    int64         // that the followers read
	followers int
	length    time.Duration
}

// each returns what one follower cost, in us a second, and how many events it read a
// second.
func (f followed) each() (us, events float64) {
	n := float64(f.followers) * f.length.Seconds()
	return float64(f.cpu.Microseconds()) / n, float64(f.events) / n
}

// follow measures a server without and with followers of a stream.
func (t *trial) follow(s *server, path string) followed {
	o := t.plan.growth.overview
	during := func() time.Duration {
		return cpuDuring(s.pid, func() { check(pause(t.ctx, o.length)) })
	}
	check(pause(t.ctx, afterwards))
	without := during()
	var events, read atomic.Int64
	var with time.Duration
	began, ended := make(chan struct{}, o.followers), make(chan struct{})
	stop := t.beside(func(ctx context.Context) error {
		defer close(ended)
		for range o.followers {
			select {
			case <-began:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		check(pause(ctx, afterwards))
		before := events.Load()
		with = during()
		read.Store(events.Load() - before)
		return nil
	})
	v := sseViewers{count: o.followers, path: path, read: func(_ context.Context, stream io.Reader) error {
		began <- struct{}{}
		lines := bufio.NewScanner(stream)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			if bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
				events.Add(1)
			}
			select {
			case <-ended:
				return nil
			default:
			}
		}
		return fmt.Errorf("the stream ended: %w", lines.Err())
	}}
	v.attach(s)
	check(stop())
	return followed{with - without, read.Load(), o.followers, o.length}
}
