package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// TestHecateHidesTheServersSecrets plants the token of the server and a variable of its
// environment in a prompt.
func TestHecateHidesTheServersSecrets(t *testing.T) { // E28
	const secret = "planted-value-4711"
	t.Setenv("PLANTED_PASSWORD", secret)
	state := t.TempDir()
	r := serving(t, "--agent", "shell", "--state-dir", state, "--hecate-vocabulary", "model_call")
	text, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	r.until("/hecate/v1/tasks", http.StatusOK)
	c := r.attach(client.WithSession("main", false), client.WithRole(contracts.RoleController))
	if _, err := c.Prompt(t.Context(), "echo "+secret+" "+token); err != nil {
		t.Fatal(err)
	}
	var feed string
	for late := time.Now().Add(time.Minute); !strings.Contains(feed, "maestro_session_id") || !strings.Contains(feed, "user.message"); {
		if time.Now().After(late) {
			t.Fatalf("got %s, want the prompt", feed)
		}
		feed = r.until("/hecate/v1/events?limit=500", http.StatusOK)
	}
	var page struct {
		Data []struct{ Type string }
	}
	if err := json.Unmarshal([]byte(feed), &page); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(feed, "echo *** ***") || !strings.Contains(feed, "redacted_paths") {
		t.Errorf("got %s, want the prompt with two marks", feed)
	}
	err = filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "hecate" {
			return err
		}
		stored, err := os.ReadFile(path)
		for _, planted := range []string{secret, token} {
			if bytes.Contains(stored, []byte(planted)) || strings.Contains(feed, planted) {
				t.Errorf("%s or the list has %s", path, planted)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if status, body := r.get("/hecate/v1/nothing"); status != http.StatusNotFound || !strings.Contains(body, `"not_found"`) {
		t.Errorf("got %d %s, want 404", status, body)
	}
	r.namesNoPath(feed)
}

func TestHecateNeedsACredential(t *testing.T) {
	t.Parallel()
	r := serving(t)
	for _, path := range []string{"/hecate/v1/tasks", "/hecate/v1/events", "/hecate/v1/events/stream"} {
		res, err := http.Get(r.ready.BaseURL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", path, res.StatusCode)
		}
	}
}

// TestHecateRefusesInItsOwnWords asks in ways that are refused before the route is known.
func TestHecateRefusesInItsOwnWords(t *testing.T) {
	r := serving(t, "--auth", "off")
	for _, tt := range []struct {
		method, path, header, value string
		status                      int
	}{
		{"GET", "/hecate/v1/tasks", "Host", "evil.example", http.StatusForbidden},
		{"POST", "/hecate/v1/tasks/t/runs/r/cancel", "Origin", "https://evil.example", http.StatusForbidden},
		{"GET", "/hecate/v1//tasks", "", "", http.StatusBadRequest},
		{"GET", "/hecate/v1/../v1/tasks", "", "", http.StatusBadRequest},
		{"DELETE", "/hecate/v1/tasks", "", "", http.StatusMethodNotAllowed},
		{"GET", "/hecate/v1", "", "", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, r.ready.BaseURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Path = tt.path
		if tt.header == "Host" {
			req.Host = tt.value
		} else if tt.header != "" {
			req.Header.Set(tt.header, tt.value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Error struct{ Type, Message string }
		}
		err = json.NewDecoder(res.Body).Decode(&body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tt.status || body.Error.Type == "" || body.Error.Message == "" {
			t.Errorf("%s %s with %s %q: got %d %+v, %v; want %d with the error of the protocol",
				tt.method, tt.path, tt.header, tt.value, res.StatusCode, body, err, tt.status)
		}
	}
}

// TestHecateListsSessionsThatAreNotOpen lists a session of an earlier process.
func TestHecateListsSessionsThatAreNotOpen(t *testing.T) {
	t.Parallel()
	args := []string{"--state-dir", t.TempDir(), "--workspace", t.TempDir()}
	r := serving(t, args...)
	r.attach(client.WithSession("other", true), client.WithRole(contracts.RoleController))
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait()
	r = serving(t, args...)
	if tasks := r.until("/hecate/v1/tasks", http.StatusOK); !strings.Contains(tasks, `"maestro_session_id":"other"`) || !strings.Contains(tasks, `"unread":true`) {
		t.Errorf("got %s, want the stored session", tasks)
	}
	if _, list := r.get("/api/headless/sessions"); !strings.Contains(list, `"session_id":"other","open":false`) {
		t.Errorf("got %s, want the session closed", list)
	}
}

// TestKilledRunGetsItsEnd kills the server in a run. The next one ends the run although no
// client attaches.
func TestKilledRunGetsItsEnd(t *testing.T) { // E20
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(script, []byte(`{"default":[{"say":"Begun."},{"delay_ms":600000}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--agent", "script:" + script, "--state-dir", t.TempDir(), "--workspace", t.TempDir()}
	r := serving(t, args...)
	r.until("/hecate/v1/tasks", http.StatusOK)
	c := r.attach(client.WithSession("other", true), client.WithRole(contracts.RoleController))
	if _, err := c.Prompt(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	feed := func(r *running, kind string) string {
		for late := time.Now().Add(time.Minute); ; {
			if feed := r.until("/hecate/v1/events?limit=500", http.StatusOK); strings.Contains(feed, `"type":"`+kind+`"`) {
				return feed
			}
			if time.Now().After(late) {
				t.Fatalf("got no %s", kind)
			}
		}
	}
	before := strings.TrimSuffix(feed(r, "turn.started"), "}")
	before, _, _ = strings.Cut(before, `],"next_after`)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait()
	if after := feed(serving(t, args...), "run.failed"); !strings.HasPrefix(after, before) {
		t.Errorf("got %s, want it to begin with %s", after, before)
	}
}
