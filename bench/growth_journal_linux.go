package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
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
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.history
		s := t.serve(scratch, "conformance", unbounded...)
		var all []contracts.ConnectionAnswer
		for range p.sessions {
			all = append(all, s.connectTo("", contracts.RoleController))
		}
		empty := must(control.Resident(s.pid))
		for some := range slices.Chunk(all, 10) {
			for _, c := range some {
				s.post(c, &contracts.Prompt{Content: burst(p.events, eventSize)})
			}
			s.awaitRuns(some, p.events)
		}
		full := must(control.Resident(s.pid))
		return []float64{megabytes(empty), megabytes(full), megabytes(full - empty)}
	},
}

// awaitRuns waits until sessions have ended runs that publish at least so many
// events.
func (s *server) awaitRuns(all []contracts.ConnectionAnswer, events int) {
	for ; ; check(pause(s.ctx, 20*time.Millisecond)) {
		text, _ := s.call(http.MethodGet, "sessions", "", nil)
		var list contracts.SessionList
		check(json.Unmarshal(text, &list))
		done := 0
		for _, e := range list.Sessions {
			if e.Cursor != nil && *e.Cursor >= uint64(events) && !e.IsResponding &&
				slices.ContainsFunc(all, func(c contracts.ConnectionAnswer) bool { return c.SessionID == e.SessionID }) {
				done++
			}
		}
		if done == len(all) {
			return
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
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.replay
		t.build("replayer")
		s, d := t.serveDriven(scratch, "conformance", unbounded...)
		d.bursts(p.events)
		var alone, beside, rates []float64
		for range replayTurns {
			alone = append(alone, t.roundTrips(d, p.prompts/replayTurns)...)
			rates = append(rates, t.besideReplays(s.url("sessions/"+s.session+"/events?cursor=0"), func() {
				beside = append(beside, t.roundTrips(d, p.prompts/replayTurns)...)
			}))
		}
		slices.Sort(alone)
		slices.Sort(beside)
		quiet, busy := quantile(alone, 0.99), quantile(beside, 0.99)
		return []float64{quiet, busy, ratio(busy, quiet), series(rates).summarize().median}
	},
}

// replayTurns is how often prompts alone and prompts beside replays take turns,
// so that other load on the machine meets both.
const replayTurns = 5

// besideReplays calls do while replays read, and returns how much they read, in
// MB/s.
func (t *trial) besideReplays(url string, do func()) (rate float64) {
	return within(t, func(t *trial) float64 {
		others := t.launch("replayer", "-url", url, "-replays", strconv.Itoa(t.plan.growth.replay.replays))
		var read struct{ Bytes int64 }
		check(others.reports.Decode(&read)) // all have begun
		began := time.Now()
		do()
		took := time.Since(began)
		check(errors.Join(others.stdin.Close(), others.reports.Decode(&read)))
		return megabytes(read.Bytes) / took.Seconds()
	})
}

// bursts publishes events.
func (d driver) bursts(events int) {
	for left := events; left > 0; left -= burstEvents {
		check(d.prompt(burst(min(left, burstEvents), eventSize)))
	}
}

// roundTrips is how long prompts take, in milliseconds.
func (t *trial) roundTrips(d driver, prompts int) (took []float64) {
	for range prompts {
		began := time.Now()
		check(d.prompt("hello"))
		took = append(took, ms(time.Since(began)))
		check(pause(t.ctx, 10*time.Millisecond))
	}
	return took
}

// promptGrowth is how much the journal grows by a long prompt.
var promptGrowth = growth{
	name: "prompt",
	figures: func(p plan) []figure {
		return []figure{{what: fmt.Sprintf("a prompt of %d KiB: the journal grows by", p.growth.prompt>>10), before: "2 to 4", unit: "x",
			limit: 1.1, versus: "the prompt"}}
	},
	take: func(t *trial, _, scratch string) []float64 {
		_, d := t.serveDriven(scratch, scriptIn(scratch, map[string]steps{"default": {{"say": "done"}}}))
		journals := filepath.Join(scratch, "state")
		before := must(diskBytes(journals))
		check(d.prompt(strings.Repeat("p", t.plan.growth.prompt)))
		return []float64{ratio(must(diskBytes(journals))-before, int64(t.plan.growth.prompt))}
	},
}

// retainGrowth is the size of a journal whose bound is small.
var retainGrowth = growth{
	name: "retain",
	figures: func(p plan) []figure {
		return []figure{{what: fmt.Sprintf("--retain-bytes 1048576 and %d MB of events: the journal at its largest", p.growth.retain/1_000_000), before: "12 to 22", unit: "MB",
			limit: 2.1, versus: "(abs) twice the flag"}}
	},
	take: func(t *trial, _, scratch string) []float64 {
		_, d := t.serveDriven(scratch, "conformance", "--retain-bytes", "1048576")
		most := int64(0)
		for left := t.plan.growth.retain; left > 0; left -= burstEvents * eventSize {
			d.bursts(burstEvents)
			most = max(most, must(diskBytes(filepath.Join(scratch, "state"))))
		}
		return []float64{megabytes(most)}
	},
}
