package main

import (
	"math"
	"slices"
	"testing"
)

func TestMedianOfOddAndEvenSeries(t *testing.T) {
	for _, tt := range []struct {
		in   series
		want summary
	}{
		{series{3}, summary{3, 3, 3}},
		{series{3, 1, 2}, summary{2, 1, 3}},
		{series{4, 1, 3, 2}, summary{2.5, 1, 4}},
	} {
		if got := tt.in.summarize(); got != tt.want {
			t.Errorf("summarize(%v): got %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestSummarizeKeepsTheOrderOfRepetitions(t *testing.T) {
	s := series{3, 1, 2}
	s.summarize()
	if s[0] != 3 || s[1] != 1 || s[2] != 2 {
		t.Errorf("series after summarize: got %v, want [3 1 2]", s)
	}
}

func TestMissingRepetitionLeavesNoSummary(t *testing.T) {
	for _, s := range []series{nil, {1, math.NaN(), 3}} {
		if got := s.summarize(); !math.IsNaN(got.median) {
			t.Errorf("summarize(%v): got median %v, want NaN", s, got.median)
		}
	}
}

func TestDifferencesAreFormedInsideARepetition(t *testing.T) {
	// The second repetition starts higher; the difference does not.
	got := series{12, 112, 1}.less(series{10, 110})
	if len(got) != 2 || got[0] != 2 || got[1] != 2 {
		t.Errorf("less: got %v, want [2 2]", got)
	}
}

func TestRatiosAreFormedInsideARepetition(t *testing.T) {
	// The machine is ten times slower in the second repetition; the ratio is not.
	got := series{1, 10, 2}.over(series{2, 20, 4})
	for i, r := range got {
		if r != 0.5 {
			t.Errorf("ratio of repetition %d: got %v, want 0.5", i, r)
		}
	}
}

func TestMostIsTheLargestOfTheOthers(t *testing.T) {
	got := series{10, 100, 10}.most(series{15, 100, 9}, series{9, 25, 5, 7})
	if want := (series{1.5, 1, 0.9}); !slices.Equal(got, want) {
		t.Errorf("most: got %v, want %v", got, want)
	}
	if got := (series{10, 100}).most(series{10}); len(got) != 1 {
		t.Errorf("most of a series with a repetition missing: got %v, want the one there is", got)
	}
	if got := (series{10, 100}).most(series{10, 100}, nil); len(got) != 0 {
		t.Errorf("most beside one that is void: got %v, want nothing", got)
	}
	if got := (series{10}).most(series{math.NaN()}); !math.IsNaN(got.summarize().median) {
		t.Errorf("most of a repetition without a result: got %v, want NaN", got)
	}
}

func TestQuantileIsAValueThatWasMeasured(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, tt := range []struct {
		sorted []int
		q      float64
		want   int
	}{
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 0, 1},
		{hundred, 1, 100},
		{[]int{7}, 0.5, 7},
		{nil, 0.5, 0},
	} {
		if got := quantile(tt.sorted, tt.q); got != tt.want {
			t.Errorf("quantile of %d values at %v: got %d, want %d", len(tt.sorted), tt.q, got, tt.want)
		}
	}
}
