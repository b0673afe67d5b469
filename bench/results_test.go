package main

import (
	"errors"
	"slices"
	"testing"
)

func TestOneFailedRepetitionVoidsAContender(t *testing.T) {
	var r results[int]
	same := func(v int) float64 { return float64(v) }
	r.add("fine", 1, nil)
	r.add("lossy", 10, nil)
	r.add("fine", 2, nil)
	r.add("lossy", 0, errors.New("lost a message"))
	r.add("lossy", 30, nil)
	if got := r.of("fine", same); !slices.Equal(got, series{1, 2}) {
		t.Errorf("fine: got %v, want [1 2]", got)
	}
	if got := r.of("lossy", same); len(got) != 0 || r.void("lossy") != "lost a message" {
		t.Errorf("lossy: got %v, %q; want nothing, void for losing a message", got, r.void("lossy"))
	}
	if want := []string{"fine", "lossy"}; !slices.Equal(r.names, want) {
		t.Errorf("names: got %v, want %v", r.names, want)
	}
}
