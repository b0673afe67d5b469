package main

import (
	"context"
	"math"
	"time"

	"github.com/seed-028515a8/maestro/conformance/judge"
)

func main() { program.Main() }

var program = judge.Program{
	Name: "adapter", Chooses: "play only the scenarios whose names match this expression",
	Timeout: 30 * time.Second, Bounds: "how long one scenario may take",
	Operands: "-- COMMAND [ARGUMENT...]", Most: math.MaxInt, Judge: play,
}

// play plays the scenarios and prints a line for each. When ctx ends, the one
// under way fails and no other begins.
func play(ctx context.Context, o judge.Order) bool {
	played, failed := 0, 0
	for i, sc := range scenarios() {
		if !o.Filter.MatchString(sc.name) || ctx.Err() != nil {
			continue
		}
		played++
		started := time.Now()
		s := newStage(ctx, o.Operands, o.Timeout)
		err := s.play(sc)
		took := time.Since(started).Round(time.Millisecond)
		if err == nil {
			judge.Say(o.Out, "ok    %d %-13s %s (%s)\n", i+1, sc.name, sc.title, took)
			continue
		}
		failed++
		judge.Say(o.Out, "FAIL  %d %-13s %s (%s)\n      %v\n", i+1, sc.name, sc.title, took, err)
		for _, line := range s.trace.lines() {
			judge.Say(o.Out, "      | %s\n", line)
		}
	}
	judge.Say(o.Out, "%d of %d scenarios passed\n", played-failed, played)
	return failed == 0 && played > 0 && ctx.Err() == nil
}
