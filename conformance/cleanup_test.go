package conformance_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

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
			c.Filter, c.Patience = regexp.MustCompile(run), short
			report := judge(t, c)
			if report.Left != 0 || report.Count(conformance.Failed) == 0 {
				t.Errorf("got %d sessions that could not be ended and %d failures, want none and some", report.Left, report.Count(conformance.Failed))
			}
			url := strings.Replace(c.Target, "ws", "http", 1) + "/api/headless/sessions"
			left := openSessions(t, url)
			look := time.NewTicker(20 * time.Millisecond)
			defer look.Stop()
			for deadline := time.Now().Add(30 * time.Second); len(left) > 0 && time.Now().Before(deadline); left = openSessions(t, url) {
				<-look.C // the last ones may still be ending
			}
			if len(left) > 0 {
				t.Errorf("got sessions %q, want none but the server's own", left)
			}
		})
	}
}

// openSessions lists the sessions of a server, but for its own.
func openSessions(t *testing.T, url string) []string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	var list struct {
		Sessions []struct {
			ID string `json:"session_id"`
		} `json:"sessions"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || list.Sessions == nil {
		t.Fatalf("got sessions %v, %v, want a list", list, err)
	}
	var ids []string
	for _, s := range list.Sessions {
		if s.ID != "main" {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// TestReportCountsSessionsThatAreLeft is about a server that lets nobody end a session.
func TestReportCountsSessionsThatAreLeft(t *testing.T) {
	t.Parallel()
	c := subject{on: onHTTP, faults: "request POST messages type=shutdown set type=nonsense"}.config(t)
	c.Runtime, c.Filter = conformance.RuntimeAny, regexp.MustCompile("^connection/(created|announced)$")
	report := judge(t, c)
	var text strings.Builder
	if err := writeText(&text, report); err != nil {
		t.Fatal(err)
	}
	if want := "may be left at the server: 2\n"; report.Left != 2 || !strings.Contains(text.String(), want) {
		t.Errorf("got %d left and %s, want 2 and %q", report.Left, text.String(), want)
	}
}
