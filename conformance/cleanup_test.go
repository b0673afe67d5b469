package conformance_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
)

// TestSessionsAreEnded judges groups that leave questions, viewers and second sessions,
// and some scenarios that fail.
func TestSessionsAreEnded(t *testing.T) {
	t.Parallel()
	for on, run := range map[conformance.Transport]string{onSocket: "^(request|lease|viewer|owner|agent)/", onHTTP: "^(claim|watcher|session|parity|post|agent)/"} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			// Other tests do not share a server with these flags.
			c := subject{on: on, flags: []string{"--max-kept-sessions", map[conformance.Transport]string{onSocket: "8001", onHTTP: "8002"}[on]},
				faults: "server server_request_resolved drop"}.config(t)
			c.Filter, c.Patience = regexp.MustCompile(run), 0
			report := judge(t, c)
			if report.Left != 0 || report.Count(conformance.Failed) == 0 {
				t.Errorf("got %d sessions that could not be ended and %d failures, want none and some", report.Left, report.Count(conformance.Failed))
			}
			resp, err := http.Get(strings.Replace(c.Target, "ws", "http", 1) + "/api/headless/sessions")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }() // it was read
			var list struct {
				Sessions []json.RawMessage `json:"sessions"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || list.Sessions == nil || len(list.Sessions) > 0 {
				t.Errorf("got %d sessions, %v, want an empty list", len(list.Sessions), err)
			}
		})
	}
}

// TestReportCountsSessionsThatAreLeft is about a server that lets nobody end a session.
func TestReportCountsSessionsThatAreLeft(t *testing.T) {
	t.Parallel()
	c := subject{on: onHTTP, faults: "request POST messages type=shutdown set type=nonsense"}.config(t)
	c.Runtime, c.Filter = conformance.RuntimeAny, regexp.MustCompile("^connection/(created|announced)$")
	report := judge(t, c)
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "may be left at the server: 2\n"; report.Left != 2 || !strings.Contains(text.String(), want) {
		t.Errorf("got %d left and %s, want 2 and %q", report.Left, text.String(), want)
	}
}
