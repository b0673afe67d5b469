//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// ask sends a request of the owner and returns the status and the body.
func (r *running) ask(method, path, body string, headers ...string) (status int, text string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.ready.BaseURL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

// listed waits until the overview shows a session in a certain way.
func (r *running) listed(id string, as func(contracts.SessionSummary) bool) contracts.SessionSummary {
	r.t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		_, text := r.ask("GET", "/api/headless/overview?status=waiting,running,failed,idle,at_rest,deleted", "")
		var page contracts.Overview
		if err := (&contracts.Decoder{Strict: true}).Body([]byte(text), &page); err != nil {
			r.t.Fatalf("%s: %v", text, err)
		}
		i := slices.IndexFunc(page.Sessions, func(s contracts.SessionSummary) bool { return s.SessionID == id && as(s) })
		if i >= 0 {
			return page.Sessions[i]
		}
		if time.Now().After(late) {
			r.t.Fatalf("%s is not listed as wanted: %s", id, text)
		}
	}
}

func TestOverviewOutlivesTheServer(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	text := `{"prompts":[{"match":"fix","steps":[{"say":"ok"},{"usage":{"output_tokens":5}}]},{"match":"wait","steps":[{"delay_ms":60000}]}]}`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--agent", "script:" + script, "--state-dir", t.TempDir(), "--workspace", t.TempDir(), "--connection-tokens", "optional", "--undo-period", "1s", "--request-rate", "-1"}
	r := serving(t, flags...)
	connect := func(id string) (headers string) {
		_, body := r.ask("POST", "/api/headless/sessions", `{"sessionId":"`+id+`"}`)
		if !strings.Contains(body, id) {
			t.Fatalf("got %s", body)
		}
		_, body = r.ask("POST", "/api/headless/connections", `{"sessionId":"`+id+`","takeControl":true}`)
		var c contracts.ConnectionAnswer
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatal(err)
		}
		return "X-Maestro-Headless-Connection-Id: " + c.ConnectionID
	}
	prompt := func(id, by, content string) {
		if status, body := r.ask("POST", "/api/headless/sessions/"+id+"/messages", `{"type":"prompt","content":"`+content+`"}`, by); status != 200 {
			t.Fatalf("got %d %s", status, body)
		}
	}
	one, two := connect("one"), connect("two")
	prompt("one", one, "fix it")
	r.listed("one", func(s contracts.SessionSummary) bool {
		return s.Title == "fix it" && s.Tokens == 5 && s.Status == contracts.SessionIdle && s.Author != nil
	})
	if status, body := r.ask("PATCH", "/api/headless/sessions/one", `{"title":"The parser"}`); status != 200 {
		t.Fatalf("got %d %s", status, body)
	}
	prompt("two", two, "wait here")
	r.listed("two", func(s contracts.SessionSummary) bool { return s.Status == contracts.SessionRunning })
	for saved := func() bool { // both summaries, as they are now
		files, _ := filepath.Glob(filepath.Join(flags[3], "workspaces", "*", "s-*", "summary.json"))
		var all []byte
		for _, file := range files {
			text, _ := os.ReadFile(file)
			all = append(all, text...)
		}
		return strings.Contains(string(all), `"tokens":5`) && strings.Contains(string(all), `"running":true`)
	}; !saved(); {
		r.ask("GET", "/healthz", "") // takes a moment
	}
	r.signal(syscall.SIGKILL)
	_ = r.cmd.Wait()

	r = serving(t, flags...)
	rests := r.listed("one", func(contracts.SessionSummary) bool { return true })
	if rests.Status != contracts.SessionAtRest || rests.Title != "The parser" || rests.Tokens != 5 {
		t.Errorf("got %+v", rests)
	}
	r.listed("two", func(s contracts.SessionSummary) bool {
		return s.Status == contracts.SessionFailed && s.Title == "wait here"
	})
	if _, text := r.ask("GET", "/api/headless/sessions", ""); strings.Count(text, `"open":true`) != 1 {
		t.Errorf("got %s, want no session opened but the first", text)
	}
	connect("two")
	r.listed("two", func(s contracts.SessionSummary) bool { return s.Status == contracts.SessionFailed && s.Cursor > 0 })

	// A file in each directory, because a slow server may make a new main meanwhile.
	stored := filepath.Join(flags[3], "workspaces", "*", "s-*")
	dirs, _ := filepath.Glob(stored)
	if len(dirs) != 3 {
		t.Fatalf("got %q, want three sessions", dirs)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "seen"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"one", "main"} {
		if status, body := r.ask("DELETE", "/api/headless/sessions/"+id, ""); status != 200 {
			t.Fatalf("got %d %s", status, body)
		}
	}
	if _, text := r.ask("GET", "/api/headless/sessions", ""); strings.Contains(text, `"one"`) || strings.Contains(text, `"main"`) {
		t.Errorf("got %s, want the deleted sessions not to be listed", text)
	}
	r.signal(syscall.SIGTERM)
	r.ends(128 + int(syscall.SIGTERM))

	r = serving(t, flags...) // although its first session was deleted
	for late := time.Now().Add(time.Minute); ; {
		left, err := filepath.Glob(filepath.Join(stored, "seen"))
		if err == nil && len(left) == 1 && filepath.Base(filepath.Dir(left[0])) == "s-two" {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("got %q, want the deleted sessions removed", left)
		}
	}
	if status, body := r.ask("POST", "/api/headless/sessions/one/restore", ""); status != 404 {
		t.Errorf("got %d %s for a session that was removed, want 404", status, body)
	}
}

func TestOverviewStreamsOverTheNetwork(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "shell", "--state-dir", t.TempDir(), "--workspace", t.TempDir())
	next, ended := follows[contracts.OverviewEvent](r, "/api/headless/overview/events")
	if ev := next(); ev.Type != "sessions" || ev.Overview.Sessions[0].SessionID != "main" {
		t.Errorf("got %+v, want the list", ev)
	}
	r.ask("PATCH", "/api/headless/sessions/main", `{"title":"first"}`)
	for ev := next(); ev.Session == nil || ev.Session.Title != "first"; ev = next() {
	}
	r.ask("POST", "/api/headless/sessions", `{"sessionId":"new"}`)
	for ev := next(); ev.Session == nil || ev.Session.SessionID != "new"; ev = next() {
	}
	r.signal(syscall.SIGTERM)
	ended()
	r.ends(128 + int(syscall.SIGTERM))
}

// follows opens a stream of the owner. next returns its next event, and ended waits for its
// end.
func follows[T any](r *running, path string) (next func() T, ended func()) {
	r.t.Helper()
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.ready.BaseURL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	next = func() (ev T) {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := (&contracts.Decoder{Strict: true}).Body([]byte(text), &ev); err != nil {
					r.t.Fatal(err)
				}
				return ev
			}
		}
		r.t.Fatalf("the stream ended: %v", lines.Err())
		return ev
	}
	return next, func() {
		for lines.Scan() {
			// The server is going away.
		}
	}
}
