package main

import (
	"fmt"
	"time"
)

// startUp measures how long the built program takes from exec until it says
// ready on stdio. The page cache is warm: the first start is not counted.
func (t *trial) startUp() {
	t.build("maestro")
	var took series
	_, err := attempt(t.ctx, t.bench, func(t *trial) any {
		for range t.plan.start.runs + 1 {
			took = append(took, within(t, (*trial).runStart))
		}
		took = took[1:]
		return nil
	})
	to := target{
		what:  fmt.Sprintf("start to ready on stdio, median of %d", t.plan.start.runs),
		limit: 30, unit: "ms", versus: "(abs) from exec, warm cache", got: took,
	}
	if err != nil {
		to.void = oneLine(err)
		t.voids = append(t.voids, fmt.Errorf("void: start: %w", err))
	}
	t.logf("start: %s ms, void: %q", spread(took), to.void)
	t.report.judge(to)
}

// runStart starts the program once and returns the milliseconds that it took.
func (t *trial) runStart() (took float64) {
	workspace := t.tempDir(t.bin)
	began := time.Now()
	s := t.launch("maestro", "headless", "--agent", "shell", "--workspace", workspace)
	hung := time.AfterFunc(greetTimeout, s.kill)
	defer hung.Stop()
	for {
		var message struct {
			Type string `json:"type"`
		}
		if err := s.reports.Decode(&message); err != nil {
			check(fmt.Errorf("wait for ready: %w: %s", err, s.stderr))
		}
		if message.Type == "ready" {
			return ms(time.Since(began))
		}
	}
}
