package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// burst is a prompt upon which the conformance agent publishes events.
func burst(events, size int) string {
	return fmt.Sprintf(`__maestro_conformance_burst__:{"count":%d,"bytes":%d}`, events, size)
}

const (
	burstEvents = 5000 // at most, of one prompt
	eventSize   = 200  // bytes
)

// historyGrowth is the memory of sessions that nobody follows.
var historyGrowth = growth{
	name: "history",
	figures: func(p plan) []figure {
		what := fmt.Sprintf("%d sessions that nobody follows", p.growth.history.sessions)
		full := fmt.Sprintf("%s, %d events each: memory", what, p.growth.history.events)
		return []figure{
			{what: what + ", no events: memory", unit: "MB"},
			{what: full, before: "2100", unit: "MB"},
			{what: full + " beyond that without events", unit: "MB", limit: 256, versus: "(abs)"},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		p := b.plan.growth.history
		s, _, err := serveAgent(ctx, b.built["maestro"], scratch, "conformance", unbounded...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		var all []contracts.ConnectionAnswer
		for range p.sessions {
			c, err := s.connectTo(ctx, "", contracts.RoleController)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		empty, err := resident(s.pid)
		if err != nil {
			return nil, err
		}
		for some := range slices.Chunk(all, 10) {
			for _, c := range some {
				if err := s.post(ctx, c, &contracts.Prompt{Content: burst(p.events, eventSize)}); err != nil {
					return nil, err
				}
			}
			if err := s.awaitRuns(ctx, some, p.events); err != nil {
				return nil, err
			}
		}
		full, err := resident(s.pid)
		return []float64{megabytes(empty), megabytes(full), megabytes(full - empty)}, err
	},
}

// awaitRuns waits until sessions have ended runs that publish at least so many
// events.
func (s *server) awaitRuns(ctx context.Context, all []contracts.ConnectionAnswer, events int) error {
	for {
		text, _, err := s.call(ctx, http.MethodGet, "sessions", "", nil)
		if err != nil {
			return err
		}
		var list contracts.SessionList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		done := 0
		for _, e := range list.Sessions {
			if e.Cursor != nil && *e.Cursor >= uint64(events) && !e.IsResponding &&
				slices.ContainsFunc(all, func(c contracts.ConnectionAnswer) bool { return c.SessionID == e.SessionID }) {
				done++
			}
		}
		if done == len(all) {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// replayGrowth is how long a prompt takes beside replays of the whole journal.
var replayGrowth = growth{
	name: "replays",
	figures: func(p plan) []figure {
		r := p.growth.replay
		beside := fmt.Sprintf("a prompt's round trip beside %d replays of %d events: p99", r.replays, r.events)
		return []figure{
			{what: "a prompt's round trip: p99", before: "4.4", unit: "ms"},
			{what: beside, before: "305", unit: "ms"},
			{what: beside, before: "69", unit: "x", limit: 3, versus: "the same alone"},
			{what: fmt.Sprintf("what the %d replays read meanwhile", r.replays), unit: "MB/s"},
		}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		p := b.plan.growth.replay
		if err := b.build(ctx, "replayer"); err != nil {
			return nil, err
		}
		s, session, d, err := b.serveDriven(ctx, scratch, "conformance", unbounded...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		for left := p.events; left > 0; left -= burstEvents {
			if err := d.prompt(burst(min(left, burstEvents), eventSize)); err != nil {
				return nil, err
			}
		}
		var alone, beside, rates []float64
		for range replayTurns {
			took, err := d.roundTrips(ctx, p.prompts/replayTurns)
			if err != nil {
				return nil, err
			}
			alone = append(alone, took...)
			rate, err := b.besideReplays(ctx, s.url("sessions/"+session+"/events?cursor=0"), func() error {
				took, err := d.roundTrips(ctx, p.prompts/replayTurns)
				beside = append(beside, took...)
				return err
			})
			if err != nil {
				return nil, err
			}
			rates = append(rates, rate)
		}
		slices.Sort(alone)
		slices.Sort(beside)
		quiet, busy := quantile(alone, 0.99), quantile(beside, 0.99)
		return []float64{quiet, busy, ratio(busy, quiet), series(rates).summarize().median}, nil
	},
}

// replayTurns is how often prompts alone and prompts beside replays take turns,
// so that other load on the machine meets both.
const replayTurns = 5

// besideReplays calls do while replays read, and returns how much they read, in
// MB/s.
func (b *bench) besideReplays(ctx context.Context, url string, do func() error) (rate float64, err error) {
	others, err := launch(ctx, b.built["replayer"], "-url", url, "-replays", strconv.Itoa(b.plan.growth.replay.replays))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, others.stop()) }()
	var read struct{ Bytes int64 }
	if err := others.reports.Decode(&read); err != nil { // all have begun
		return 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	err = errors.Join(others.stdin.Close(), others.reports.Decode(&read))
	return megabytes(read.Bytes) / took.Seconds(), err
}

// roundTrips is how long prompts take, in milliseconds.
func (d *driver) roundTrips(ctx context.Context, prompts int) (took []float64, err error) {
	for range prompts {
		began := time.Now()
		if err := d.prompt("hello"); err != nil {
			return nil, err
		}
		took = append(took, ms(time.Since(began)))
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// promptGrowth is how much the journal grows by a long prompt.
var promptGrowth = growth{
	name: "prompt",
	figures: func(p plan) []figure {
		return []figure{{what: fmt.Sprintf("a prompt of %d KiB: the journal grows by", p.growth.prompt>>10), before: "2 to 4", unit: "x",
			limit: 1.1, versus: "the prompt"}}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		script := filepath.Join(scratch, "script.json")
		if err := os.WriteFile(script, []byte(`{"default":[{"say":"done"}]}`), 0o600); err != nil {
			return nil, err
		}
		s, _, d, err := b.serveDriven(ctx, scratch, "script:"+script)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		journals := filepath.Join(scratch, "state")
		before, err := diskBytes(journals)
		if err != nil {
			return nil, err
		}
		if err := d.prompt(strings.Repeat("p", b.plan.growth.prompt)); err != nil {
			return nil, err
		}
		after, err := diskBytes(journals)
		return []float64{ratio(after-before, int64(b.plan.growth.prompt))}, err
	},
}

// retainGrowth is the size of a journal whose bound is small.
var retainGrowth = growth{
	name: "retain",
	figures: func(p plan) []figure {
		return []figure{{what: fmt.Sprintf("--retain-bytes 1048576 and %d MB of events: the journal at its largest", p.growth.retain/1_000_000), before: "12 to 22", unit: "MB",
			limit: 2.1, versus: "(abs) twice the flag"}}
	},
	take: func(ctx context.Context, b *bench, _, scratch string) (values []float64, err error) {
		s, _, d, err := b.serveDriven(ctx, scratch, "conformance", "--retain-bytes", "1048576")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.end(s)) }()
		most := int64(0)
		for left := b.plan.growth.retain; left > 0; left -= burstEvents * eventSize {
			if err := d.prompt(burst(burstEvents, eventSize)); err != nil {
				return nil, err
			}
			now, err := diskBytes(filepath.Join(scratch, "state"))
			if err != nil {
				return nil, err
			}
			most = max(most, now)
		}
		return []float64{megabytes(most)}, nil
	},
}
