//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// One flipped bit in the journal of the first session sets that session aside.
// The others are served, and the first is again once it was repaired, with what
// precedes the damage.
func TestDamagedSessionIsSetAsideAndRepaired(t *testing.T) {
	t.Parallel()
	const mainState, otherState = "/api/headless/sessions/main/state", "/api/headless/sessions/other/state"
	state, workspace := t.TempDir(), t.TempDir()
	args := []string{"--agent", "conformance", "--state-dir", state, "--workspace", workspace}
	r := serving(t, args...)
	r.attach(client.WithSession("other", true), client.WithRole(contracts.RoleController))
	c := r.attach(client.WithRole(contracts.RoleController))
	cursor, epoch := uint64(0), connected(t, c).Epoch
	for i := range 5 {
		said := strings.Repeat("be brief ", 10+i)
		res, err := c.Send(t.Context(), &contracts.Init{SystemPrompt: &said})
		if err != nil {
			t.Fatal(err)
		}
		cursor = res.Cursor
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)

	segments, err := filepath.Glob(filepath.Join(state, "workspaces", "*", "s-main", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("got segments %q and %v, want one", segments, err)
	}
	text, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)*9/10] ^= 1
	if err := os.WriteFile(segments[0], text, 0o600); err != nil {
		t.Fatal(err)
	}

	r = serving(t, args...)
	if got := r.until(mainState, http.StatusInternalServerError); !strings.Contains(got, "maestro sessions repair") || !strings.Contains(got, string(contracts.CodeRuntimeFailed)) {
		t.Errorf("got %s, want that the journal is damaged and what to do", got)
	} else {
		r.namesNoPath(got)
	}
	r.until(otherState, http.StatusOK)
	r.until("/readyz", http.StatusOK)

	out, err := program(t, "sessions", "repair", "--state-dir", state, "main").CombinedOutput()
	if err != nil || !strings.Contains(string(out), segments[0]+" at offset") || !strings.Contains(string(out), "damaged-1") ||
		!strings.Contains(string(out), ", without ") {
		t.Errorf("got %v and %s, want the file, the offset, what is lost and where the damaged files are", err, out)
	}
	snap, err := (&contracts.Decoder{}).Snapshot([]byte(r.until(mainState, http.StatusOK)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(snap.LastInit), "be brief") {
		t.Errorf("got %s, want what was said before the damage", snap.LastInit)
	}
	for _, from := range []string{"", epoch} {
		c := r.attach(client.WithCursor(from, cursor))
		if at := connected(t, c); at.Epoch == epoch || at.Resume != "reset" {
			t.Errorf("with epoch %q: got %s in epoch %s, want a reset in a new one", from, at.Resume, at.Epoch)
		}
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
	if !strings.Contains(r.log.String(), segments[0]) {
		t.Errorf("got the log %s, want the damaged file", r.log)
	}

	if out, err := program(t, "sessions", "repair", "--state-dir", state).CombinedOutput(); err != nil || !strings.Contains(string(out), ": 2, all of them sound now") {
		t.Errorf("got %v and %s, want two sessions without damage", err, out)
	}
	if out, err := program(t, "sessions", "repair", "--state-dir", state, "nobody").CombinedOutput(); exitCode(t, err) != exitFailure {
		t.Errorf("got %v and %s, want that there is no such session", err, out)
	}
}

// A session that is in use is left alone.
func TestRepairLeavesOpenSessionsAlone(t *testing.T) {
	t.Parallel()
	r := serving(t)
	out, err := program(t, "sessions", "repair", "--state-dir", filepath.Dir(r.ready.TokenFile)).CombinedOutput()
	if got := exitCode(t, err); got != exitFailure || !strings.Contains(string(out), "in use by another process") {
		t.Errorf("got exit code %d and %s, want %d and that the session is in use", got, out, exitFailure)
	}
}
