package main

import (
	"errors"
	"slices"
	"testing"
)

func TestVoidResultIsNotTriedAgainAndFailsTheRun(t *testing.T) {
	b := &bench{plan: plan{reps: 3}, built: map[string]string{"server": "/server"}}
	good, bad := contender{name: "good", program: "server"}, contender{name: "bad", program: "server"}
	lost, tries := errors.New("lost a message"), 0
	res, err := attempt(t.Context(), b, func(t *trial) *results[call] {
		return rounds(t, []contender{good, bad}, func(t *trial, c contender) call {
			if c.name == "bad" {
				tries++
				check(lost)
			}
			return call{p50: 1}
		})
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

func TestTrialStopsWhatItStartedLastFirst(t *testing.T) {
	failed, stuck := errors.New("failed"), errors.New("does not stop")
	var stopped []int
	_, err := attempt(t.Context(), &bench{}, func(t *trial) int {
		t.atEnd(func() error { stopped = append(stopped, 1); return stuck })
		t.atEnd(func() error { stopped = append(stopped, 2); return nil })
		return within(t, func(t *trial) int {
			t.atEnd(func() error { stopped = append(stopped, 3); return nil })
			return must(1, failed)
		})
	})
	if !slices.Equal(stopped, []int{3, 2, 1}) {
		t.Errorf("order of stopping: got %v, want 3, 2, 1", stopped)
	}
	if !errors.Is(err, failed) || !errors.Is(err, stuck) {
		t.Errorf("got %v, want both %v and %v", err, failed, stuck)
	}
}
