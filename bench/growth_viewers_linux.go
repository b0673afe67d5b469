package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	take: func(t *trial, _, scratch string) []float64 {
		r := t.plan.growth.back
		few := within(t, func(t *trial) reconnection { return t.reconnect(filepath.Join(scratch, "few"), r.base) })
		many := t.reconnect(filepath.Join(scratch, "many"), r.viewers)
		return []float64{float64(many.refused), many.took.Seconds(), many.each, ratio(many.each, few.each)}
	},
}

// A reconnection is what viewers that reconnect cost.
type reconnection struct {
	refused int
	took    time.Duration
	each    float64 // processor time per viewer, us
}

// reconnect restarts a server and has viewers go on at the cursor that they had.
func (t *trial) reconnect(scratch string, viewers int) (r reconnection) {
	path := within(t, func(t *trial) string { return t.eventsAfterPrompt(scratch) })
	s := t.serve(scratch, "conformance")
	cpu := cpuDuring(s.pid, func() { r.refused, r.took = sseViewers{count: viewers, path: path}.attach(s) })
	r.each = ms(cpu) * 1000 / float64(viewers)
	return r
}

// eventsAfterPrompt runs a server for one prompt, and returns the path of the
// events after it.
func (t *trial) eventsAfterPrompt(scratch string) (path string) {
	s, d := t.serveDriven(scratch, "conformance")
	check(d.prompt("hello"))
	state, header := s.call(http.MethodGet, "sessions/"+s.session, "", nil)
	var at struct{ Cursor uint64 }
	check(json.Unmarshal(state, &at))
	return fmt.Sprintf("sessions/%s/events?cursor=%d&epoch=%s", s.session, at.Cursor, header.Get("X-Maestro-Headless-Epoch"))
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
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.presence
		crowd := must(newCrowd())
		t.atEnd(crowd.close)
		st := stage{t.serve(scratch, "conformance", unbounded...), crowd}
		check(st.attach(t.ctx, st.addr, st.dialect, p.viewers))
		check(st.idle(t.ctx, afterwards))
		journals := filepath.Join(scratch, "state")
		before := must(diskBytes(journals))
		st.tally = tally{}
		for range p.changes / 2 {
			conn, _, err := dial(st.addr, streamDialect(st.session))
			check(err)
			st.awaitChange()
			check(conn.Close())
			st.awaitChange()
		}
		changes := float64(p.changes / 2 * 2)
		return []float64{float64(must(diskBytes(journals))-before) / changes, float64(st.bytes) / changes / float64(p.viewers)}
	},
}

// awaitChange reads until no more messages come, and fails unless each viewer has
// had one.
func (st stage) awaitChange() {
	before := st.frames
	check(st.idle(st.ctx, afterwards))
	if got := st.frames - before; got < int64(len(st.viewers)) {
		check(fmt.Errorf("%d messages told %d viewers of a change", got, len(st.viewers)))
	}
}

// responseGrowth is the memory of viewers that attach during a long response.
var responseGrowth = growth{
	name: "response",
	figures: func(p plan) []figure {
		r := p.growth.response
		return []figure{{what: fmt.Sprintf("%d SSE viewers attach during a response of 1 MiB: more memory", r.viewers), before: "630", unit: "MB",
			limit: 128, versus: "(abs)"}}
	},
	take: func(t *trial, _, scratch string) []float64 {
		s, d := t.serveDriven(scratch, scriptIn(scratch, longAnswer()), unbounded...)
		check(d.command(&contracts.Prompt{Content: "go on"}))
		check(d.await(`"content":"."`))
		v := sseViewers{count: t.plan.growth.response.viewers, path: "sessions/" + s.session + "/events", read: func(_ context.Context, events io.Reader) error {
			return needState(events, contracts.MaxStateText)
		}}
		return []float64{peakDuring(s.pid, func() { v.attach(s) })}
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

// longAnswer is the script of a response that is as long as a state keeps, and
// then goes on for minutes in short chunks.
func longAnswer() map[string]steps {
	long := map[string]any{"text": strings.Repeat("x", contracts.MaxStateText), "chunk": contracts.MaxTextBytes}
	return map[string]steps{"default": {
		{"say": long},
		{"repeat": map[string]any{"times": 1_000_000, "rate": 200, "steps": steps{{"say": "."}}}},
	}}
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
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.state
		s, d := t.serveDriven(scratch, "conformance", unbounded...)
		d.askAll(p.question)
		until := time.Now().Add(time.Duration(p.viewers)*p.every + p.hold)
		v := sseViewers{count: p.viewers, path: "sessions/" + s.session + "/events", every: p.every, read: func(ctx context.Context, events io.Reader) error {
			return needState(&slowReader{ctx, events, until}, 3*openQuestions*p.question)
		}}
		stop := t.beside(d.chat)
		grown := peakDuring(s.pid, func() { v.attach(s) })
		check(stop())
		return []float64{grown}
	},
}

// chat prompts until ctx ends, so that the state changes all the time.
func (d driver) chat(ctx context.Context) error {
	for pause(ctx, 20*time.Millisecond) == nil {
		check(d.prompt("hello"))
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
		check(pause(r.ctx, 100*time.Millisecond))
		p = p[:min(len(p), 16<<10)]
	}
	return r.events.Read(p)
}
