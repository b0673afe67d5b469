package conformance_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
)

// TestSessionsAreEnded judges groups that leave questions, viewers and second sessions,
// and some scenarios that fail.
func TestSessionsAreEnded(t *testing.T) {
	t.Parallel()
	for scheme, run := range map[string]string{"ws": "^(request|lease|viewer|owner|agent)/", "http": "^(claim|watcher|session|parity|post|agent)/"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			options := patient()
			options.Defect = double.AcceptsSecondAnswer
			url := serveDouble(t, options)
			report := judge(t, conformance.Config{Target: strings.Replace(url, "http", scheme, 1), Filter: regexp.MustCompile(run)})
			if report.Left != 0 {
				t.Errorf("got %d sessions that could not be ended, want none", report.Left)
			}
			resp, err := http.Get(url + "/api/headless/sessions")
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
	inner := double.New(patient())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), `"shutdown"`) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		inner.Close()
	})
	report := judge(t, conformance.Config{Target: server.URL, Runtime: conformance.RuntimeAny, Filter: regexp.MustCompile("^connection/(created|announced)$")})
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "may be left at the server: 2\n"; report.Left != 2 || !strings.Contains(text.String(), want) {
		t.Errorf("got %d left and %s, want 2 and %q", report.Left, text.String(), want)
	}
}
