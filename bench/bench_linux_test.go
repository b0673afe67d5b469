package main

import (
	"errors"
	"testing"
)

func TestVoidResultIsNotTriedAgainAndFailsTheRun(t *testing.T) {
	b := &bench{plan: plan{reps: 3}, built: map[string]string{"server": "/server"}}
	good, bad := contender{name: "good", program: "server"}, contender{name: "bad", program: "server"}
	lost, tries := errors.New("lost a message"), 0
	var res results[call]
	err := rounds(t.Context(), b, &res, []contender{good, bad}, func(c contender) (call, error) {
		if c.name == "bad" {
			tries++
			return call{}, lost
		}
		return call{p50: 1}, nil
	})
	if err != nil {
		t.Fatalf("rounds: got %v, want nil: the others are measured all the same", err)
	}
	if got := len(res.of("good", callP50)); got != 3 {
		t.Errorf("repetitions of the good one: got %d, want 3", got)
	}
	if tries != 1 {
		t.Errorf("runs of the void one: got %d, want 1", tries)
	}
	if len(b.voids) != 1 || !errors.Is(b.voids[0], lost) {
		t.Errorf("what fails the run: got %v, want %v", b.voids, lost)
	}
}
