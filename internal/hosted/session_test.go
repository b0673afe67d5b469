package hosted

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A puppet is a session that does what the test says.
type puppet struct {
	id    string
	facts contracts.Quiesced
	// quiesce, if set, runs inside each Quiesce, with its number from 1, and
	// returns why the flush failed.
	quiesce func(ctx context.Context, n int) (flushError string)
	silent  bool // it returns no snapshot

	ended bool // by a client

	mu        sync.Mutex
	reasons   []string // of each Quiesce
	concluded []bool
}

func (p *puppet) SessionID() string { return p.id }
func (p *puppet) Ready() bool       { return !p.ended }

func (p *puppet) Quiesce(ctx context.Context, reason string) contracts.Quiesced {
	p.mu.Lock()
	p.reasons = append(p.reasons, reason)
	n := len(p.reasons)
	p.mu.Unlock()
	facts := p.facts
	if p.quiesce != nil {
		facts.FlushError = p.quiesce(ctx, n)
	}
	if facts.Snapshot == nil && !p.silent { // as the hub makes it
		status := "Drained"
		if facts.FlushError != "" {
			status = "Drain interrupted before runtime flush completed"
		}
		facts.Snapshot = &contracts.Snapshot{
			ProtocolVersion: contracts.ProtocolVersion, SessionID: p.id, Cursor: facts.Cursor,
			State: contracts.State{Model: "m-1", Provider: "acme", SessionID: contracts.String(p.id), LastStatus: &status},
		}
	}
	return facts
}

func (p *puppet) Conclude(drained bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.concluded = append(p.concluded, drained)
}

// story is the facts of a session in which something happened, one question of
// which nobody has answered.
func story(t *testing.T) contracts.Quiesced {
	t.Helper()
	status := "Hosted runner is draining: ttl_expired"
	snapshot := &contracts.Snapshot{
		ProtocolVersion: contracts.ProtocolVersion, SessionID: "sess_alpha", Cursor: 42,
		LastInit: json.RawMessage(`{"type":"init","approval_mode":"prompt"}`),
		State: contracts.State{
			Model: "m-1", Provider: "acme", Cwd: "/workspace", SessionID: contracts.String("sess_alpha"), LastStatus: &status,
		},
	}
	opened := time.Date(2026, 4, 20, 9, 15, 0, 120e6, time.UTC)
	ask := func(id string) *contracts.ServerRequest {
		return &contracts.ServerRequest{
			RequestID: id, RequestType: contracts.RequestApproval, CallID: "call_" + id, Tool: "shell",
			Args: json.RawMessage(`{"command":"make"}`), Reason: "run it",
		}
	}
	return contracts.Quiesced{
		Cursor: 42, Snapshot: snapshot, Active: true,
		ActiveTools: 1, TrackedTools: 3, PendingRequests: 2,
		Requests: []contracts.KeptRequest{
			{Request: ask("req_1"), Opened: opened, Deadline: opened.Add(time.Hour)},
			{Request: ask("req_2"), Opened: opened.Add(time.Second), Digest: "sha256:d", Needed: 2, Votes: []string{"user_a"}},
		},
	}
}

// configured is a resolved configuration of a new workspace.
func configured(t *testing.T, args ...string) Config {
	t.Helper()
	env := minimal(t)
	env["MAESTRO_RUNNER_SESSION_ID"] = "mrs_41"
	env["MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID"] = "gen_9"
	env["MAESTRO_WORKSPACE_ID"] = "ws_1"
	env["MAESTRO_AGENT_RUN_ID"] = "run_1"
	c, err := resolve(env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// runner returns a runner of p in a new workspace that has a file, notes.md.
func runner(t *testing.T, p *puppet, args ...string) *Runner {
	t.Helper()
	c := configured(t, args...)
	write(t, filepath.Join(c.WorkspaceRoot, "notes.md"), "alpha\n")
	r, err := New(Options{Config: c, Session: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// manifests lists what lies in the snapshot root.
func manifests(t *testing.T, r *Runner) []string {
	t.Helper()
	entries, err := os.ReadDir(r.config.SnapshotRoot)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
