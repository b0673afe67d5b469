//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// The audit of an open session names who answered which digest, and a record that was
// changed on the disk does not fit.
func TestAuditOfAnOpenSession(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := serving(t, "--agent", "conformance", "--state-dir", state, "--require-digest", "--approvals", "1", "--approvals", "1:ba*")
	c := r.attach(client.WithRole(contracts.RoleController), client.WithPeople("Ann"))
	if _, err := c.Prompt(t.Context(), `__maestro_conformance_approval__:{"request_id":"open","tool":"bash","args":{"command":"ls"},"reason":"r"}`); err != nil {
		t.Fatal(err)
	}
	for u, err := range c.Updates(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, asked := u.Event.(*contracts.ServerRequest); asked {
			break
		}
	}
	if _, err := c.Approve(t.Context(), "open", ""); err != nil {
		t.Fatalf("an answer that the client bound to its digest: %v", err)
	}

	out, err := program(t, "audit", "--state-dir", state, "--verify", "--json", "main").Output()
	if err != nil {
		t.Fatalf("got %v, %s", err, out)
	}
	var asked, ended hub.AuditRecord
	for line := range strings.Lines(string(out)) {
		var rec hub.AuditRecord
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch rec.What {
		case hub.AuditAsked:
			asked = rec
		case hub.AuditEnded:
			ended = rec
		}
	}
	if asked.Digest == "" || ended.Digest != asked.Digest || !ended.Echoed || ended.RequestID != "open" || ended.Name != "owner" ||
		!strings.HasPrefix(ended.Credential, "key_") || ended.Connection != c.Attached().ConnectionID || ended.Verdict != contracts.VerdictApproved {
		t.Errorf("got %s and %s, want who approved what", &asked, &ended)
	}
	text, err := program(t, "audit", "--state-dir", state, "--verify", "main").CombinedOutput()
	if err != nil || !strings.Contains(string(text), ended.String()+"\n") || !strings.Contains(string(text), "; all hashes fit") {
		t.Errorf("got %v and %s", err, text)
	}
	if out, err := program(t, "audit", "--state-dir", state, "nobody").CombinedOutput(); exitCode(t, err) != exitFailure {
		t.Errorf("got %v and %s, want that there is no such session", err, out)
	}

	// The journal's own checksums find changed bytes, so the forger writes a journal.
	forged := forgeJournal(t, state, ended.Digest)
	out, err = program(t, "audit", "--state-dir", forged, "--verify", "main").CombinedOutput()
	if exitCode(t, err) != exitFailure || !strings.Contains(string(out), "its hash is not that of its content") {
		t.Errorf("got %v and %s, want the record that does not fit", err, out)
	}
}

// forgeJournal copies the journal of the session main and changes the last digit of a
// digest in its audit. It returns the state directory of the copy.
func forgeJournal(t *testing.T, state, digest string) (root string) {
	t.Helper()
	dirs, err := sessionDirs(state, []string{"main"})
	if err != nil || len(dirs) != 1 {
		t.Fatalf("got %q, %v, want one journal", dirs, err)
	}
	root = t.TempDir()
	store, err := journal.Open(filepath.Join(root, filepath.Base(dirs[0])), journal.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := digest[:len(digest)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(digest, "0")]
	err = journal.ReadDir(dirs[0], func(e journal.Entry) error {
		if e.Kind == journal.Note || e.Kind == journal.Joint {
			e.Body = bytes.ReplaceAll(e.Body, []byte(digest), []byte(other))
		}
		return store.Append([]journal.Entry{e})
	})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	return root
}
