package main

import (
	"cmp"
	"fmt"
	"time"
)

const (
	nameEmpty    = "an empty Go program"
	nameHeadless = "maestro headless"
)

// startLimit is 6 ms on a machine where an empty program takes 1.1 ms.
const startLimit = 5.5

// A start is how many milliseconds a program took until it said ready.
type start float64

func (s start) String() string { return fmt.Sprintf("%.2f ms", float64(s)) }

func startTime(s start) float64 { return float64(s) }

// startUp measures how long the built program takes from exec until it says
// ready on stdio. The page cache is warm: the first start is not counted.
func (t *trial) startUp() {
	res := rounds(t, []contender{
		{name: nameEmpty, program: "empty"},
		{name: nameHeadless, program: "maestro", args: []string{"headless", "--agent", "shell", "--workspace", t.tempDir(t.bin)}},
	}, func(t *trial, c contender) start {
		var took series
		for range t.plan.start.runs + 1 {
			took = append(took, within(t, func(t *trial) float64 { return t.untilReady(c) }))
		}
		return start(took[1:].summarize().median)
	})
	t.report.show(res.table("Start",
		fmt.Sprintf("From exec until the program says ready on standard output, with a warm page cache: in each repetition the median of %d starts.", t.plan.start.runs),
		"program", res.each("ms", spread, startTime), res.over("x empty", spread, startTime, nameEmpty)))
	t.report.judge(target{
		what: "start to ready on stdio", limit: startLimit, unit: "x", versus: nameEmpty,
		got:  res.of(nameHeadless, startTime).over(res.of(nameEmpty, startTime)),
		void: cmp.Or(res.void(nameHeadless), res.void(nameEmpty)),
	})
}

// untilReady starts a program and returns the milliseconds until it is ready.
func (t *trial) untilReady(c contender) float64 {
	began := time.Now()
	s := t.launch(c.program, c.args...)
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
