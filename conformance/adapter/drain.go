package main

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// The requester and the reason of the drain.
const (
	drainedBy  = "conformance_suite"
	drainedFor = "conformance_drain"
)

func drain(s *stage) {
	alice, _ := s.subscribe("controller", false)
	s.send(alice, prompt("before hosted drain"))
	t := s.open(nil)
	path, manifest := s.drained()
	s.checkManifest(manifest)
	t.find("the snapshot of a drained runner", func(o object) bool {
		return o.str("type") == "snapshot" && o.at("snapshot", "state", "is_ready") == false && o.str("snapshot", "state", "last_status") == "Drained"
	})
	s.refused(s.try(alice, prompt("after hosted drain")), http.StatusServiceUnavailable, "hosted runner is draining")
	s.refused(s.trySubscribe("controller", true), http.StatusServiceUnavailable, "hosted runner is not accepting new attachments")
	s.end()

	s.begin(s.environment(path, restoredRunnerID))
	s.restored(manifest.number("runtime", "cursor"))
}

// drained drains the runner and returns its manifest and where that is.
func (s *stage) drained() (path string, manifest object) {
	a := s.ok(s.call(http.MethodPost, "/.well-known/evalops/remote-runner/drain",
		object{"reason": drainedFor, "requested_by": drainedBy, "export_paths": []string{"notes.md"}}))
	s.has("the answer to drain", a.body, object{"protocol_version": "evalops.remote-runner.drain.v1", "status": "drained",
		"runner_session_id": runnerID, "requested_by": drainedBy, "reason": drainedFor})
	path = a.body.str("manifest_path")
	s.want(filepath.IsAbs(path), "got manifest path %q, want an absolute one", path)
	text, err := os.ReadFile(path)
	if err != nil {
		s.fail("read the manifest: %w", err)
	}
	written, err := parse(text)
	if err != nil {
		s.fail("read the manifest: %w", err)
	}
	if told, ok := a.body.at("manifest").(map[string]any); ok {
		s.same("the manifest in the answer", told, written)
	}
	return path, written
}

// checkManifest looks at what the contract names. There may be more.
func (s *stage) checkManifest(m object) {
	s.has("the manifest", m, object{"protocol_version": "evalops.remote-runner.snapshot-manifest.v1", "runner_session_id": runnerID,
		"workspace_id": workspaceID, "agent_run_id": agentRunID, "maestro_session_id": sessionID, "reason": drainedFor, "requested_by": drainedBy})
	runtime, _ := m.at("runtime").(map[string]any)
	s.has("the manifest's runtime", runtime, object{"flush_status": "completed", "session_id": sessionID, "protocol_version": protocolVersion})
	s.want(m.number("runtime", "cursor") > 0, "got manifest cursor %v, want it above 0", m.at("runtime", "cursor"))
	shown, _ := m.at("snapshot").(map[string]any)
	s.valid("the manifest's snapshot", snapshot, shown)
	s.want(m.number("snapshot", "cursor") == m.number("runtime", "cursor"),
		"the manifest has cursors %v and %v, want one", m.at("runtime", "cursor"), m.at("snapshot", "cursor"))

	real, err := filepath.EvalSymlinks(filepath.Join(s.workspace, "notes.md"))
	if err != nil {
		s.fail("find the export: %w", err)
	}
	s.want(m.str("workspace_export", "mode") == "local_path_contract", "got export mode %q", m.str("workspace_export", "mode"))
	want := object{"input": "notes.md", "path": real, "relative_path": "notes.md", "type": "file"}
	s.want(slices.ContainsFunc(m.items("workspace_export", "paths"), func(o object) bool { return reflect.DeepEqual(o, want) }),
		"got exports %v, want %v", m.at("workspace_export", "paths"), want)
}

// restored judges the runner that was started from the manifest.
func (s *stage) restored(cursor int64) {
	st := s.state()
	s.want(st.str("session_id") == sessionID && st.number("cursor") == cursor && st.at("state", "is_ready") == true &&
		st.str("state", "last_status") == "Restored from snapshot",
		"got session %q at cursor %v, ready %v, %q; want %s at %d, ready, Restored from snapshot",
		st.str("session_id"), st.at("cursor"), st.at("state", "is_ready"), st.str("state", "last_status"), sessionID, cursor)
	identity := s.ok(s.call(http.MethodGet, "/.well-known/evalops/remote-runner/identity", nil)).body
	s.has("the identity", identity, object{"runner_session_id": restoredRunnerID, "ready": true, "draining": false})

	first := s.open(new(int64(0))).next("a reset")
	s.want(first.str("type") == "reset" && first.str("reason") == "restored_from_snapshot" && first.number("snapshot", "cursor") == cursor &&
		first.str("snapshot", "state", "last_status") == "Restored from snapshot",
		"the first item after the restore is %s %s at %v (%s), want reset restored_from_snapshot at %d", first.str("type"), first.str("reason"),
		first.at("snapshot", "cursor"), first.str("snapshot", "state", "last_status"), cursor)

	bob, _ := s.subscribe("controller", false)
	shown := s.send(bob, prompt("after hosted restore"))
	s.want(shown.number("cursor") > cursor, "got cursor %v after the restore, want it above %d", shown.at("cursor"), cursor)
	s.want(s.state().str("state", "last_status") == "Prompt: after hosted restore", "the state does not show the prompt after the restore")
}

// has fails unless an object has these values, whatever else it has.
func (s *stage) has(what string, o, want object) {
	for key, value := range want {
		s.want(o.at(key) == value, "%s has %s %v, want %v", what, key, o.at(key), value)
	}
}

// same fails unless two objects are equal.
func (s *stage) same(what string, got, want object) {
	s.want(reflect.DeepEqual(got, want), "%s is %v, want exactly %v", what, map[string]any(got), map[string]any(want))
}
