package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// unbounded are flags without which the server limits how often clients attach
// and ask.
var unbounded = []string{"--attach-rate", "-1", "--request-rate", "-1"}

// returnGrowth is viewers over SSE that all reconnect after a restart of the
// server.
var returnGrowth = growth{
	name: "return",
	figures: func(p plan) []figure {
		r := p.growth.back
		what := fmt.Sprintf("%d SSE viewers reconnect at once after a restart", r.viewers)
		return []figure{
			{what: what + ": answers 429", before: "60000", unit: "answers", limit: float64(r.viewers), versus: "(abs) one each"},
			{what: what + ": until the last is back", before: "25", unit: "s"},
			{what: what + ": processor time per viewer", unit: "us"},
			{what: what + ": processor time per viewer", unit: "x", limit: 2, versus: fmt.Sprintf("the same with %d", r.base)},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		r := b.plan.growth.back
		few, err := b.reconnect(ctx, filepath.Join(scratch, "few"), r.base)
		if err != nil {
			return nil, err
		}
		many, err := b.reconnect(ctx, filepath.Join(scratch, "many"), r.viewers)
		return []float64{float64(many.refused), many.took.Seconds(), many.each, ratio(many.each, few.each)}, err
	},
}

// A reconnection is what viewers that reconnect cost.
type reconnection struct {
	refused int
	took    time.Duration
	each    float64 // processor time per viewer, us
}

// reconnect restarts a server and has viewers go on at the cursor that they had.
func (b *bench) reconnect(ctx context.Context, scratch string, viewers int) (r reconnection, err error) {
	path, err := b.eventsAfterRestart(ctx, scratch)
	if err != nil {
		return r, err
	}
	s, _, err := serveAgent(ctx, b.built["maestro"], scratch, "conformance")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	cpu, err := cpuDuring(s.pid, func() error {
		r.refused, r.took, err = sseViewers{count: viewers, path: path}.attach(ctx, s)
		return err
	})
	r.each = ms(cpu) * 1000 / float64(viewers)
	return r, err
}

// eventsAfterRestart runs a server for one prompt, and returns the path of the
// events after it.
func (b *bench) eventsAfterRestart(ctx context.Context, scratch string) (path string, err error) {
	s, session, d, err := b.serveDriven(ctx, scratch, "conformance")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.end(s)) }()
	if err := d.prompt("hello"); err != nil {
		return "", err
	}
	state, header, err := s.call(ctx, http.MethodGet, "sessions/"+session, "", nil)
	if err != nil {
		return "", err
	}
	var at struct{ Cursor uint64 }
	err = json.Unmarshal(state, &at)
	return fmt.Sprintf("sessions/%s/events?cursor=%d&epoch=%s", session, at.Cursor, header.Get("X-Maestro-Headless-Epoch")), err
}

// presenceGrowth is what is stored and sent when one viewer among many comes or
// goes.
var presenceGrowth = growth{
	name: "presence",
	figures: func(p plan) []figure {
		what := fmt.Sprintf("one viewer comes or goes beside %d: ", p.growth.presence.viewers)
		return []figure{
			{what: what + "the journal grows by", before: "15250", unit: "bytes", limit: 200, versus: "(abs)"},
			{what: what + "each of them is sent", unit: "bytes"},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		p := b.plan.growth.presence
		s, session, err := serveAgent(ctx, b.built["maestro"], scratch, "conformance", unbounded...)
		if err != nil {
			return nil, err
		}
		c, err := newCrowd()
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		st := stage{s, c}
		defer func() { err = errors.Join(err, st.tearDown()) }()
		if err := errors.Join(st.attach(ctx, s.addr, s.dialect, p.viewers), st.idle(ctx, afterwards)); err != nil {
			return nil, err
		}
		journals := filepath.Join(scratch, "state")
		before, err := diskBytes(journals)
		if err != nil {
			return nil, err
		}
		st.tally = tally{}
		for range p.changes / 2 {
			fd, _, err := dial(s.addr, streamDialect(session))
			if err != nil {
				return nil, err
			}
			err = st.awaitChange(ctx)
			shut(fd)
			if err := errors.Join(err, st.awaitChange(ctx)); err != nil {
				return nil, err
			}
		}
		after, err := diskBytes(journals)
		changes := float64(p.changes / 2 * 2)
		return []float64{float64(after-before) / changes, float64(st.bytes) / changes / float64(p.viewers)}, err
	},
}

// awaitChange reads until no more messages come, and fails unless each viewer has
// had one.
func (c *crowd) awaitChange(ctx context.Context) error {
	before := c.frames
	if err := c.idle(ctx, afterwards); err != nil {
		return err
	}
	if got := c.frames - before; got < int64(len(c.viewers)) {
		return fmt.Errorf("%d messages told %d viewers of a change", got, len(c.viewers))
	}
	return nil
}

// responseGrowth is the memory of viewers that attach during a long response.
var responseGrowth = growth{
	name: "response",
	figures: func(p plan) []figure {
		r := p.growth.response
		return []figure{{what: fmt.Sprintf("%d SSE viewers attach during a response of 1 MiB: more memory", r.viewers), before: "630", unit: "MB",
			limit: 128, versus: "(abs)"}}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		script := filepath.Join(scratch, "script.json")
		if err := writeLongAnswer(script); err != nil {
			return nil, err
		}
		s, session, d, err := b.serveDriven(ctx, scratch, "script:"+script, unbounded...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		if err := errors.Join(d.send(&contracts.Prompt{Content: "go on"}), d.await(`"content":"."`)); err != nil {
			return nil, err
		}
		v := sseViewers{count: b.plan.growth.response.viewers, path: "sessions/" + session + "/events", read: func(_ context.Context, events io.Reader) error {
			return needState(events, contracts.MaxStateText)
		}}
		grown, err := peakDuring(s.pid, func() error {
			_, _, err := v.attach(ctx, s)
			return err
		})
		return []float64{megabytes(grown)}, err
	},
}

// needState reads a snapshot, and fails if that has fewer than least bytes.
func needState(events io.Reader, least int) error {
	size, err := readEvent(events)
	if err == nil && size < least {
		err = fmt.Errorf("got a state of %d bytes, want at least %d", size, least)
	}
	return err
}

// writeLongAnswer writes the script of a response that is as long as a state
// keeps, and then goes on for minutes in short chunks.
func writeLongAnswer(path string) error {
	type steps []map[string]any
	long := map[string]any{"text": strings.Repeat("x", contracts.MaxStateText), "chunk": contracts.MaxTextBytes}
	text, err := json.Marshal(map[string]steps{"default": {
		{"say": long},
		{"repeat": map[string]any{"times": 1_000_000, "rate": 200, "steps": steps{{"say": "."}}}},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// stateGrowth is the memory of slow viewers that attach to a session whose state
// is large: it has each question three times.
var stateGrowth = growth{
	name: "state",
	figures: func(p plan) []figure {
		g := p.growth.state
		return []figure{{what: fmt.Sprintf("%d slow SSE viewers attach to a state of %d MB: more memory", g.viewers, 3*openQuestions*g.question/1_000_000),
			before: "5000", unit: "MB", limit: 500, versus: "(abs)"}}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		p := b.plan.growth.state
		s, session, d, err := b.serveDriven(ctx, scratch, "conformance", unbounded...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		if err := d.askAll(p.question); err != nil {
			return nil, err
		}
		until := time.Now().Add(time.Duration(p.viewers)*p.every + p.hold)
		v := sseViewers{count: p.viewers, path: "sessions/" + session + "/events", every: p.every, read: func(ctx context.Context, events io.Reader) error {
			return needState(&slowReader{ctx, events, until}, 3*openQuestions*p.question)
		}}
		life, stop := context.WithCancel(ctx)
		chatted := make(chan error, 1)
		go func() { chatted <- d.chat(life) }() // ends with life
		grown, err := peakDuring(s.pid, func() error {
			_, _, err := v.attach(ctx, s)
			return err
		})
		stop()
		return []float64{megabytes(grown)}, errors.Join(err, <-chatted)
	},
}

// chat prompts until ctx ends, so that the state changes all the time.
func (d *driver) chat(ctx context.Context) error {
	for pause(ctx, 20*time.Millisecond) == nil {
		if err := d.prompt("hello"); err != nil {
			return err
		}
	}
	return nil
}

// A slowReader reads at most 160 KB/s until a time.
type slowReader struct {
	ctx    context.Context // ends the pauses
	events io.Reader
	until  time.Time
}

func (r *slowReader) Read(p []byte) (int, error) {
	if time.Now().Before(r.until) {
		if err := pause(r.ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
		p = p[:min(len(p), 16<<10)]
	}
	return r.events.Read(p)
}
