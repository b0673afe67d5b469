package conformance_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// faultTable lists faults and the scenarios that each of them must break: the transport
// and the fault, and below it, indented, the names.
const faultTable = "testdata/faults.txt"

// A breach is a fault that must break a scenario.
type breach struct {
	on       conformance.Transport
	fault    string
	scenario string
}

// neverBroken lists the scenarios that no fault of the table breaks.
var neverBroken = []string{"agent/auto-mode", "agent/join-in-run", "connection/ids-are-random", "owner/other-session", "sse/slow-follower", "sse/private-hello-ok", "stream/slow-viewer-catches-up", "tree/background"}

// leastShown is the share of all scenarios that the table must break, in percent.
const leastShown = 90

// breaches reads the table.
func breaches(t *testing.T) []breach {
	t.Helper()
	text, err := os.ReadFile(faultTable)
	if err != nil {
		t.Fatal(err)
	}
	var list []breach
	var on, fault string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		names, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
		case !indented:
			on, fault, _ = strings.Cut(line, " ")
			fault = strings.Replace(fault, " refusal", " "+refusal, 1)
		default:
			for name := range strings.FieldsSeq(names) {
				list = append(list, breach{conformance.Transport(on), fault, name})
			}
		}
	}
	return list
}

// TestScenariosCanFail breaks the built server with one fault at a time. Each of the
// scenarios that the table names for the fault must fail, and for one of its own rules.
func TestScenariosCanFail(t *testing.T) {
	t.Parallel()
	scenarios := map[string]conformance.Scenario{}
	for _, sc := range conformance.Scenarios() {
		scenarios[sc.Name] = sc
	}
	var mu sync.Mutex
	broken := map[string]bool{}
	list := breaches(t)
	sideBySide(24, list, func(b breach) {
		sc, known := scenarios[b.scenario]
		if !known {
			t.Errorf("%s is in the table, and is no scenario", b.scenario)
			return
		}
		var why string
		for _, patience := range []time.Duration{short, 8 * time.Second, 40 * time.Second} { // the machine may be slow
			if why = b.try(t, sc, patience); why == "" {
				break
			}
		}
		if why != "" {
			t.Errorf("%s on %s with %s: %s, want a failure of one of %v", b.scenario, b.on, b.fault, why, sc.Rules)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		broken[b.scenario] = true
	})
	if len(broken) < len(list) && !t.Failed() {
		t.Errorf("got %d scenarios in %d places of the table, want each once", len(broken), len(list))
	}
	share := 100 * len(broken) / len(scenarios)
	t.Logf("%d of %d scenarios (%d %%) are shown to be able to fail", len(broken), len(scenarios), share)
	if share < leastShown {
		t.Errorf("got %d %% of the scenarios broken by a fault, want %d %%", share, leastShown)
	}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		if slices.Contains(neverBroken, name) == broken[name] {
			t.Errorf("%s: got broken %t, want the opposite of what neverBroken says", name, broken[name])
		}
	}
}

// try runs the scenario with the fault, and says what is wrong with the outcome.
func (b breach) try(t *testing.T, sc conformance.Scenario, patience time.Duration) string {
	j := subject{on: b.on, faults: b.fault, strict: sc.Needs.Strict == conformance.OnlyStrict,
		auth: sc.Needs.Auth || sc.Needs.Tokens == conformance.TokensRequired}
	if sc.Needs.Runtime == conformance.RuntimeAny {
		j.agent = []string{"--agent", "shell"}
	}
	c := j.config(t)
	c.Patience, c.Timeout = patience, time.Minute+4*patience
	if len(j.agent) > 0 {
		c.Runtime, c.Prompts = conformance.RuntimeAny, shellPrompts
	}
	r := conformance.RunOne(t.Context(), c, sc)
	switch {
	case r.Failure == nil:
		return fmt.Sprintf("got %s %s", r.Outcome, r.Reason)
	case !slices.Contains(sc.Rules, r.Failure.Rule):
		return fmt.Sprintf("got a failure of %s: %s", r.Failure.Rule, r.Failure.Message)
	}
	return ""
}
