package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// hecateGrowth is what consumers of Hecate cost beside as many native viewers.
var hecateGrowth = growth{
	name: "hecate",
	figures: func(p plan) []figure {
		h := p.growth.hecate
		what := fmt.Sprintf("%d consumers of Hecate follow a response of %d chunks, %d/s: processor time", h.viewers, h.chunks, hecateRate)
		return []figure{{what: what, unit: "ms"}, {what: what, unit: "x", limit: 1.2, versus: "the same for native SSE viewers"}}
	},
	take: func(t *trial, _, scratch string) []float64 {
		agent := scriptIn(scratch, steadyAnswer(t.plan.growth.hecate.chunks))
		native := within(t, func(t *trial) float64 {
			return t.consumed(filepath.Join(scratch, "native"), agent, func(s *server) string { return s.url("sessions/" + s.session + "/events") }, `"type":"response_end"`)
		})
		hecate := within(t, func(t *trial) float64 {
			return t.consumed(filepath.Join(scratch, "hecate"), agent, func(s *server) string { return "http://" + s.addr + "/hecate/v1/events/stream" }, `"type":"run.finished"`)
		})
		return []float64{hecate, ratio(hecate, native)}
	},
}

// hecateRate is how many chunks a second the response has.
const hecateRate = 500

// steadyAnswer is the script of a response in so many chunks.
func steadyAnswer(chunks int) map[string]steps {
	return map[string]steps{"default": {
		{"repeat": map[string]any{"times": chunks, "rate": hecateRate, "steps": steps{{"say": strings.Repeat("word ", 8)}}}},
	}}
}

// consumed is the server's processor time, in milliseconds, from a prompt until all
// viewers of a stream have read the end of the answer.
func (t *trial) consumed(dir, agent string, stream func(*server) string, end string) float64 {
	s, d := t.serveDriven(dir, agent, unbounded...)
	viewers := t.plan.growth.hecate.viewers
	attached := make(chan struct{}, viewers)
	var before time.Duration
	stop := t.beside(func(ctx context.Context) error {
		for range viewers {
			select {
			case <-attached:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := pause(ctx, afterwards); err != nil { // until all know of the last
			return err
		}
		before = must(cpuTime(s.pid))
		return d.command(&contracts.Prompt{Content: "go"})
	})
	v := sseViewers{count: viewers, url: stream(s), read: func(_ context.Context, events io.Reader) error {
		attached <- struct{}{}
		for lines := bufio.NewScanner(events); lines.Scan(); {
			if strings.Contains(lines.Text(), end) {
				return nil
			}
		}
		return fmt.Errorf("the stream ended before %s", end)
	}}
	v.attach(s)
	cpu := must(cpuTime(s.pid)) - before
	check(stop())
	return ms(cpu)
}
