package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestHearingWantsEveryMessageOnce(t *testing.T) {
	for text, want := range map[string]string{
		"0:1;1:1;":    "",
		"":            "",
		"0:1;2:1;":    "want message 1",
		"0:1;0:1;":    "want message 1",
		"1:1;":        "want message 0",
		"0:soon;":     "want message 0",
		"hello":       "want message 0",
		"0:1;1:1;x;;": "want message 2",
	} {
		var h hearing
		if err := h.hear(text); fmt.Sprint(err) != "<nil>" && (want == "" || !strings.Contains(err.Error(), want)) || err == nil && want != "" {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestDelayLeavesTheWarmUpOut(t *testing.T) {
	var h hearing
	for range agentWarmUp {
		h.took = append(h.took, time.Hour)
	}
	for i := range 100 {
		h.took = append(h.took, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := h.delay(), (delay{50, 99}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
