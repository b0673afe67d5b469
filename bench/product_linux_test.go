package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/bench/control"
)

func TestScenarioSaysEveryMessageOnceAndInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	if err := writeScenario(path, 5); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var script struct {
		Prompts []struct {
			Match string
			Steps []struct{ Say string }
		}
	}
	if err := json.Unmarshal(text, &script); err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for _, p := range script.Prompts {
		for _, s := range p.Steps {
			if n, _, ok := control.ParseMark([]byte(s.Say)); !ok || n != next {
				t.Errorf("step %d: got number %d, %v; want %d, true", next, n, ok, next)
			}
			next++
		}
	}
	if next != warmUp+5 {
		t.Errorf("steps: got %d, want %d", next, warmUp+5)
	}
}

// A prompt plays the first steps whose match it contains.
func TestPromptsOfTheScenarioAreToldApart(t *testing.T) {
	if strings.Contains(promptRun, promptWarm) || strings.Contains(promptWarm, promptRun) {
		t.Errorf("prompts %q and %q: one contains the other", promptWarm, promptRun)
	}
}
