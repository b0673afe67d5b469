//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// sessionsOf runs maestro sessions with arguments and returns what it prints.
func sessionsOf(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, err := program(t, append([]string{"sessions"}, args...)...).CombinedOutput()
	if got := exitCode(t, err); got != code {
		t.Fatalf("sessions %q: got exit code %d, want %d:\n%s", args, got, code, out)
	}
	return string(out)
}

// TestSessionsOnDisk lists, exports, checks and removes what a server left.
func TestSessionsOnDisk(t *testing.T) {
	t.Parallel()
	dir, workspace := t.TempDir(), t.TempDir()
	folder, state := filepath.Join(dir, "[state] *"), filepath.Join(dir, "link")
	hostile := filepath.Join(folder, wiring.SessionPrefix+"a%1b[2J%0a") // no server makes it
	if err := errors.Join(os.MkdirAll(hostile, 0o700), os.Symlink(folder, state)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--agent", "conformance", "--state-dir", state, "--workspace", workspace}
	r := serving(t, args...)
	r.attach(client.WithSession("a:b", true), client.WithRole(contracts.RoleController))
	c := r.attach(client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce))
	if _, err := c.Prompt(t.Context(), "be <brief> & \x1b[31mred"); err != nil {
		t.Fatal(err)
	}
	for {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ended := u.Event.(*contracts.ResponseEnd); ended {
			break
		}
	}
	l := &lookout{t: t, r: r}
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	_, _, answer := l.request("POST", "/api/headless/sessions/main/shares", strings.TrimSpace(string(token)), `{"role":"viewer"}`, true)
	share := l.field(answer, "token")
	if status, _, _ := l.request("GET", "/api/headless/sessions/main/state", share, "", true); status != http.StatusOK {
		t.Fatalf("got %d with a share, want 200", status)
	}
	config := filepath.Join(dir, "maestro.toml")
	for text, want := range map[string]int{"agent = \"shell\"\nstate-dir = '" + state + "'": 0, "state-dir = 1": exitUsage, "=": exitUsage} {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := sessionsOf(t, want, "list", "main", "--config", config); (want == 0) != strings.Contains(got, "main  ") || want != 0 && !strings.Contains(got, config) {
			t.Errorf("%s: got %s", text, got)
		}
	}
	if got := sessionsOf(t, exitFailure, "delete", "main", "--state-dir", state); !strings.Contains(got, "in use") {
		t.Errorf("got %s, want that the session is in use", got)
	}
	if got := sessionsOf(t, 0, "list", "main", "--state-dir", state); !strings.Contains(got, "  yes  ") {
		t.Errorf("got %s, want that the session is in use", got)
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)

	var listed storedSession
	if err := json.Unmarshal([]byte(sessionsOf(t, 0, "list", "--json", "main", "--state-dir", state)), &listed); err != nil {
		t.Fatal(err)
	}
	if listed.ID != "main" || !strings.HasPrefix(listed.Title, "be <brief>") || listed.Author != "owner" || listed.InUse || listed.Bytes == 0 || time.Since(listed.UpdatedAt) > time.Hour {
		t.Errorf("got %+v", listed)
	}
	if got := sessionsOf(t, 0, "list", "--state-dir", state); strings.Count(got, "\n") != 3 || !strings.Contains(got, "a:b") || strings.Contains(got, "\x1b") {
		t.Errorf("got %q, want a head and two sessions without control characters", got)
	}
	if got := sessionsOf(t, 0, "show", "main", "--state-dir", state); !strings.Contains(got, listed.Dir) || !strings.Contains(got, "of them events") {
		t.Errorf("got %s", got)
	}

	exported := sessionsOf(t, 0, "export", "main", "--state-dir", state)
	var cursor uint64
	types := map[string]bool{}
	for line := range bytes.Lines([]byte(exported)) {
		var event struct {
			Cursor  uint64
			At      time.Time
			Message json.RawMessage
		}
		if err := json.Unmarshal(line, &event); err != nil || event.Cursor <= cursor || event.At.IsZero() {
			t.Fatalf("got %s after cursor %d, %v", line, cursor, err)
		}
		cursor = event.Cursor
		ev, err := (&contracts.Decoder{}).Event(event.Message)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		types[ev.EventType()] = true
	}
	if !types["ready"] || !types["prompt_accepted"] || !types["response_end"] || !strings.Contains(exported, "be <brief> &") {
		t.Errorf("got events %v", types)
	}

	segments, err := fs.Glob(os.DirFS(listed.Dir), "*.seg")
	if err != nil || len(segments) != 1 {
		t.Fatalf("got segments %q and %v, want one", segments, err)
	}
	if got := sessionsOf(t, 0, "verify", "--state-dir", state); strings.Count(got, ": sound\n") != 2 {
		t.Errorf("got %s, want two sound sessions", got)
	}
	segments[0] = filepath.Join(listed.Dir, segments[0])
	whole, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(segments[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sessionsOf(t, exitFailure, "verify", "--state-dir", state); !strings.Contains(got, "main: ") || !strings.Contains(got, "at offset") || !strings.Contains(got, "a:b: sound") {
		t.Errorf("got %s, want where the damage is", got)
	}
	if now, err := os.ReadFile(segments[0]); err != nil || !bytes.Equal(now, damaged) {
		t.Errorf("got another journal after verify, %v", err)
	}
	if err := os.WriteFile(segments[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}

	if got := sessionsOf(t, 0, "prune", "--unused", "9d", "--dry-run", "--state-dir", state); got != "no session to remove\n" {
		t.Errorf("got %q from prune without an old session", got)
	}
	sessionsOf(t, 0, "delete", "main", "--state-dir", state)
	r = serving(t, args...)
	l.r = r
	if status, _, body := l.request("GET", "/api/headless/sessions/main/state", share, "", true); status != http.StatusUnauthorized {
		t.Errorf("got %d %s with a share of a removed session, want 401", status, body)
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)

	old := time.Now().Add(-31 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(filepath.Dir(listed.Dir), wiring.SessionPrefix+"a:b", "lock"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []string{"--dry-run", "--dry-run=false"} {
		if got := sessionsOf(t, 0, "prune", "--unused", "30d", dry, "--state-dir", state); !strings.HasPrefix(got, "a:b: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %s, want only the session that was not used", dry, got)
		}
	}
	if got := sessionsOf(t, 0, "list", "--state-dir", state); !strings.Contains(got, "main") || strings.Contains(got, "a:b") {
		t.Errorf("got %s, want main alone", got)
	}
	half := filepath.Join(filepath.Dir(listed.Dir), wiring.SessionPrefix+"half") // the server ended as it made it
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := sessionsOf(t, 0, "delete", "half", "--state-dir", state); !strings.HasPrefix(got, "half: removed") {
		t.Errorf("got %s, want a session without a lock removed", got)
	}
	sessionsOf(t, exitUsage, "prune", "--state-dir", state)
	sessionsOf(t, exitFailure, "show", "nope", "--state-dir", state)
}

// TestQuestionsOnDisk shows a question that nobody has answered before the server ended.
func TestQuestionsOnDisk(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := serving(t, "--state-dir", state, "--workspace", t.TempDir())
	c := r.attach(client.WithRole(contracts.RoleController))
	if _, err := c.Prompt(t.Context(), "echo hello"); err != nil {
		t.Fatal(err)
	}
	for asked := false; !asked; {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, asked = u.Event.(*contracts.ServerRequest)
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
	if got := sessionsOf(t, 0, "show", "main", "--state-dir", state); !strings.Contains(got, "open questions  1, the oldest since 2") {
		t.Errorf("got %s, want an open question", got)
	}
	if got := sessionsOf(t, 0, "list", "--state-dir", state); !strings.Contains(got, "  no      1          echo hello") {
		t.Errorf("got %s, want a question in the list", got)
	}

	// With another workspace the list says which session is where.
	folders, err := filepath.Glob(filepath.Join(state, "workspaces", "*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("got %q and %v, want the folder of the workspace", folders, err)
	}
	if err := os.CopyFS(filepath.Join(state, "workspaces", "other-1"), os.DirFS(folders[0])); err != nil {
		t.Fatal(err)
	}
	got := sessionsOf(t, 0, "list", "--state-dir", state)
	for _, folder := range []string{"WORKSPACE", filepath.Base(folders[0]), "other-1"} {
		if !strings.Contains(got, "  "+folder+"  ") {
			t.Errorf("got %s, want %s", got, folder)
		}
	}
}
