package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// openQuestions is how many questions wait where large ones do.
const openQuestions = 64

// askAll makes the conformance agent ask questions whose arguments are size bytes
// long, and leaves them open.
func (d *driver) askAll(size int) error {
	for i := range openQuestions {
		ask := fmt.Sprintf(`__maestro_conformance_approval__:{"request_id":"q%d","tool":"write","args":{"text":%q}}`, i, strings.Repeat("q", size))
		if err := errors.Join(d.send(&contracts.Prompt{Content: ask}), d.await(`"type":"server_request"`)); err != nil {
			return err
		}
	}
	return nil
}

// questionGrowth is what publishing an event costs while large questions wait.
var questionGrowth = growth{
	name: "questions",
	figures: func(p plan) []figure {
		beside := fmt.Sprintf("an event while %d questions of %d KiB wait: processor time", openQuestions, p.growth.questions.size>>10)
		return []figure{
			{what: "an event: processor time", before: "2.3", unit: "us"},
			{what: beside, before: "37", unit: "us"},
			{what: beside, before: "16", unit: "x", limit: 1.5, versus: "the same without"},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		p := b.plan.growth.questions
		s, _, d, err := b.serveDriven(ctx, scratch, "conformance", unbounded...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		cost := func() (us float64, err error) {
			took, err := cpuDuring(s.pid, func() error {
				for left := p.events; left > 0; left -= burstEvents {
					if err := d.prompt(burst(min(left, burstEvents), eventSize)); err != nil {
						return err
					}
				}
				return nil
			})
			return ms(took) * 1000 / float64(p.events), err
		}
		if _, err := cost(); err != nil { // to warm up
			return nil, err
		}
		without, err := cost()
		if err != nil {
			return nil, err
		}
		if err := d.askAll(p.size); err != nil {
			return nil, err
		}
		with, err := cost()
		return []float64{without, with, ratio(with, without)}, err
	},
}

// listGrowth is what listing and creating sessions costs when many are stored.
var listGrowth = growth{
	name: "list",
	figures: func(p plan) []figure {
		list := fmt.Sprintf("list %d stored sessions: processor time", p.growth.list.sessions)
		return []figure{
			{what: list, before: "159", unit: "ms", limit: 10, versus: "(abs)"},
			{what: list + " of the first after a start", before: "159", unit: "ms"},
			{what: fmt.Sprintf("create a session beside %d stored: processor time", p.growth.list.sessions), before: "159", unit: "ms", limit: 10, versus: "(abs)"},
		}
	},
	prepare: func(ctx context.Context, b *bench, dir string) (err error) {
		// Sessions are closed soon, so that few are open at once.
		s, _, err := serveAgent(ctx, b.built["maestro"], dir, "conformance", append(b.manySessions(), "--lease-ttl", "1s", "--idle-ttl", "1s")...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		return s.createSessions(ctx, b.plan.growth.list.sessions-1) // the server has made one
	},
	take: func(ctx context.Context, b *bench, dir, _ string) (values []float64, err error) {
		s, _, err := serveAgent(ctx, b.built["maestro"], dir, "conformance", b.manySessions()...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		list := func(times int) (float64, error) {
			took, err := cpuDuring(s.pid, func() error {
				for range times {
					if _, _, err := s.call(ctx, http.MethodGet, "sessions", "", nil); err != nil {
						return err
					}
				}
				return nil
			})
			return ms(took) / float64(times), err
		}
		times := b.plan.growth.list.times
		first, err := list(1)
		if err != nil {
			return nil, err
		}
		later, err := list(times)
		if err != nil {
			return nil, err
		}
		created, err := cpuDuring(s.pid, func() error { return s.createSessions(ctx, times) })
		return []float64{later, first, ms(created) / float64(times)}, err
	},
}

// manySessions are flags with which a server stores the sessions of listGrowth.
func (b *bench) manySessions() []string {
	p := b.plan.growth.list
	most := strconv.Itoa(p.sessions + p.times)
	return append([]string{"--max-sessions", most, "--max-kept-sessions", most}, unbounded...)
}

// createSessions makes sessions, each with a connection.
func (s *server) createSessions(ctx context.Context, count int) error {
	for range count {
		if _, err := s.connectTo(ctx, "", contracts.RoleController); err != nil {
			return err
		}
	}
	return nil
}

// postGrowth is what a message over HTTP costs when many clients are connected.
var postGrowth = growth{
	name: "post",
	figures: func(p plan) []figure {
		few := "a message over POST with 1 connection: processor time"
		many := fmt.Sprintf("a message over POST with %d connections: processor time", p.growth.post.connections)
		return []figure{
			{what: few, before: "12 in the hub alone", unit: "us"},
			{what: many, before: "222 in the hub alone", unit: "us"},
			{what: many, before: "18 in the hub alone", unit: "x", limit: 6, versus: "the same with 1"},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		few, err := b.postBeside(ctx, filepath.Join(scratch, "few"), 1)
		if err != nil {
			return nil, err
		}
		many, err := b.postBeside(ctx, filepath.Join(scratch, "many"), b.plan.growth.post.connections)
		return []float64{few, many, ratio(many, few)}, err
	},
}

// postBeside is the processor time of a message in microseconds.
func (b *bench) postBeside(ctx context.Context, scratch string, connections int) (us float64, err error) {
	s, session, err := serveAgent(ctx, b.built["maestro"], scratch, "conformance", unbounded...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	by, err := s.connectTo(ctx, session, contracts.RoleController)
	if err != nil {
		return 0, err
	}
	for range connections - 1 {
		if _, err := s.connectTo(ctx, session, contracts.RoleViewer); err != nil {
			return 0, err
		}
	}
	post := func(times int) error {
		for range times {
			if err := s.post(ctx, by, &contracts.Interrupt{}); err != nil {
				return err
			}
		}
		return nil
	}
	times := b.plan.growth.post.times
	if err := errors.Join(post(times/10), pause(ctx, settle)); err != nil { // to warm up
		return 0, err
	}
	took, err := cpuDuring(s.pid, func() error { return post(times) })
	return float64(took.Nanoseconds()) / float64(time.Microsecond) / float64(times), err
}
