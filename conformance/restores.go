package conformance

import (
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// restores judges going on from a manifest: A104 to A107, A109, 5.7 and 5.8.
func restores() []Scenario {
	hosted := Needs{Transport: Hosted}
	return []Scenario{
		hosted.scenario("restore/state", "A104", "A restored runner has the manifest's session and cursor, and a name of its own", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			s.require(s.ID == boundSession, "A104", "expected session %s again, got %q", boundSession, s.ID)
			f := s.state()
			s.require(f.Cursor == p.cursor && f.str("state.last_status") == "Restored from snapshot" && f.at("state.is_ready") == true,
				"A104", "expected cursor %d, status \"Restored from snapshot\" and is_ready true, got %d, %s and %s", p.cursor, f.Cursor, show(f.at("state.last_status")), show(f.at("state.is_ready")))
			for _, key := range []string{"last_error", "last_error_type", "controller_connection_id"} {
				s.equal("5.7", f.at("state."+key), nil, "no %s after a restore", key)
			}
			s.equal("5.7", len(listOf(f, "state.connections")), 0, "nobody to be attached after a restore")
			if a := s.isReady("A104", true, false); a.Status == http.StatusOK && a.str("runner_session_id") != restoredRunnerID {
				s.fail("A104", "expected the new runner session %s, got %s", restoredRunnerID, a.said())
			}
		}),
		hosted.scenario("restore/reset", "A105 5.8", "An old cursor is first told that the state was restored", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			for _, cursor := range []int64{0, 1, p.cursor} {
				f := s.backOn("vera", cursor, "").resetTo("A105", "restored_from_snapshot")
				s.require(f.Cursor >= p.cursor && f.str("state.last_status") == "Restored from snapshot",
					"A105", "expected a reset to the restored state as of %d, got %s", p.cursor, abridge(f.Raw, maxTraceText))
				s.require(cursor != 0 || f.Cursor == p.cursor,
					"A105", "expected the first reset at the manifest's cursor %d, got %d", p.cursor, f.Cursor)
			}
			s.backOn("vera", p.cursor+1_000_000, "").resetTo("A46", "replay_gap")
		}),
		hosted.scenario("restore/goes-on", "A106", "A restored runner grants the lease and counts on", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			alice := s.caller("alice", contracts.RoleController)
			a := alice.subscribed(fields{"takeControl": false})
			s.require(a.at("controller_lease_granted") == true,
				"A106", "expected the lease of a restored session, got %s", a.said())
			stream := alice.follow(a.snapshot().Cursor)
			alice.prompt("after hosted restore")
			f := stream.expect("A106", message("status").with("message", "Prompt: after hosted restore"))
			s.require(f.Cursor > p.cursor,
				"A106", "expected cursors above the manifest's %d, got %d", p.cursor, f.Cursor)
			s.stateWith("A106", "the prompt's status", func(f *Frame) bool {
				return f.Cursor > p.cursor && f.str("state.last_status") == "Prompt: after hosted restore"
			})
		}),
		hosted.scenario("restore/other-epoch", "1.11 5.8", "Event ids from before the restore are known to be foreign", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			now := s.stateOf(s.ID).ok("1.8").epoch()
			s.require(now != p.epoch, "1.11:epoch", "expected a new epoch after a restore, got %q again", now)
			old := http.Header{"Last-Event-Id": {p.epoch + ".3"}}
			s.follow("vera", follow{header: old}).resetTo("1.11:epoch", "restored_from_snapshot")
			s.backOn("vera", p.cursor, p.epoch).resetTo("1.11:epoch", "restored_from_snapshot")
		}),
		hosted.scenario("restore/no-cursor", "5.8", "Without a cursor a restored runner's stream begins as any other", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			f := s.follow("vera", follow{}).begins("5.8")
			s.require(f.Cursor >= p.cursor && f.str("state.last_status") == "Restored from snapshot",
				"5.8", "expected a snapshot of the restored state, got %s", abridge(f.Raw, maxTraceText))
		}),
		hosted.scenario("restore/last-init", "5.7", "The last init survives", func(s *Session) {
			p := s.paused()
			s.resumed(p)
			if got := show(s.state().at("last_init")); got != `{"thinking_level":"high","type":"init"}` {
				s.fail("5.7", "expected the last init of before, got %s", got)
			}
		}),
		hosted.scenario("restore/flush-failed", "A107", "What was not flushed makes a runner that is only to be looked at", restoreUnready("failed")),
		hosted.scenario("restore/flush-interrupted", "A107 5.6", "The old word for a failed flush is understood", restoreUnready("interrupted")),
		hosted.scenario("restore/flush-skipped", "A107", "Where nothing was flushed there is nothing to go on with", restoreUnready("skipped")),
		hosted.scenario("restore/unknown-blocks", "A109 5.7", "Blocks that a reader does not know are ignored, and optional ones may be missing or null", func(s *Session) {
			p := s.changed(s.paused(), func(m map[string]any) {
				m["work_continuity"], m["platform_evidence"] = fields{"anything": 1}, fields{"at": []int{2}}
				m["future"], m["git"] = fields{"x": 1}, fields{"dirty": true}
				section(m, "runtime")["shoe_size"] = 43
				delete(m, "retention_policy")
				m["workspace_id"], m["agent_run_id"], m["reason"] = nil, nil, nil
			})
			s.resumed(p)
			if f := s.state(); f.Cursor != p.cursor || f.at("state.is_ready") != true {
				s.fail("A109", "expected a restore to cursor %d, got %d and is_ready %s", p.cursor, f.Cursor, show(f.at("state.is_ready")))
			}
		}),
		hosted.scenario("restore/moved-workspace", "5.7", "The workspace may have moved", func(s *Session) {
			p := s.paused()
			elsewhere := s.freshWorkspace()
			p = s.changed(p, func(m map[string]any) { m["workspace_root"] = "/somewhere/else/entirely" })
			p.runner = &runner{workspace: elsewhere}
			s.resumed(p)
			f := s.state()
			s.require(f.Cursor == p.cursor && f.str("session_id") == boundSession,
				"5.7", "expected a restore in another workspace, got session %q at cursor %d", f.str("session_id"), f.Cursor)
			if cwd := f.str("state.cwd"); cwd != "" && cwd != elsewhere {
				s.fail("5.7", "expected the workspace of now, %s, got cwd %q", elsewhere, cwd)
			}
			a := s.drain("5.7", fields{"export_paths": []string{"notes.md"}})
			s.equal("5.7", a.str("manifest.workspace_root"), elsewhere, "workspace_root %s", elsewhere)
		}),
		hosted.scenario("restore/larger-cursor", "5.7", "Of two cursors in a manifest the larger counts", func(s *Session) {
			first := s.paused()
			for _, key := range []string{"runtime", "snapshot"} {
				p := s.changed(first, func(m map[string]any) { section(m, key)["cursor"] = first.cursor + 100 })
				r := s.resumed(p)
				s.equal("5.7:cursor", s.state().Cursor, first.cursor+100,
					"the larger cursor %d, in %s, to count", first.cursor+100, key)
				r.stop("6.1", exitTime)
			}
		}),
		hosted.scenario("restore/again", "A104 A106", "A restored runner can be drained and restored again", func(s *Session) {
			p := s.paused()
			r := s.resumed(p)
			alice, stream := s.attached()
			alice.prompt("second life")
			stream.expect("A106", message("status").with("message", "Prompt: second life"))
			alice.finishRun()
			second := s.pauseNow(r, stream.epoch)
			s.require(second.cursor > p.cursor,
				"A106", "expected the second manifest beyond cursor %d, got %d", p.cursor, second.cursor)
			s.resumed(second)
			a := s.stateOf(s.ID).ok("1.8").shaped("A104", shape.Body[contracts.Snapshot])
			if e := a.epoch(); e != "" && (e == p.epoch || e == second.epoch) {
				s.advise("1.11:epoch", "expected a new epoch after every restore, got %q again", e)
			}
			s.equal("A104", a.snapshot().Cursor, second.cursor, "cursor %d", second.cursor)
		}),
	}
}

// A pause is a runner that did something and was drained.
type pause struct {
	runner   *runner
	epoch    string
	manifest map[string]any
	path     string
	cursor   int64
}

// paused runs a first runner to its drain and ends it.
func (s *Session) paused() pause {
	r := s.spawned(start{})
	alice, p := s.attached()
	alice.posted("5.7", &contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
	alice.prompt("before the restore")
	p.expect("6.2", message("status").with("message", "Prompt: before the restore"))
	alice.finishRun()
	return s.pauseNow(r, p.epoch)
}

// pauseNow drains a runner and ends it, once the streams were shown how the session
// stands: the end of the runner may cut them off.
func (s *Session) pauseNow(r *runner, epoch string, streams ...*Peer) pause {
	a := s.drain("A90", platformDrain)
	for _, stream := range streams {
		stream.expect("A96", drainedSnapshot())
	}
	r.stop("6.1", exitTime)
	m, _ := a.at("manifest").(map[string]any)
	return pause{runner: r, epoch: epoch, manifest: m, path: a.str("manifest_path"), cursor: cursorIn(a)}
}

// resumed starts a runner from the manifest of another. Every restart has a name
// of its own: what comes back under the same name goes on by itself.
func (s *Session) resumed(p pause) *runner {
	o := start{workspace: p.runner.workspace, manifest: p.path}
	if n := len(s.runners); n > 1 {
		o.env = map[string]string{"MAESTRO_RUNNER_SESSION_ID": restoredRunnerID + "_" + strconv.Itoa(n)}
	}
	return s.spawned(o)
}

// changed writes a manifest with changes, beside the original, and returns the
// pause that is to be resumed from it.
func (s *Session) changed(p pause, change func(m map[string]any)) pause {
	m := parsed(encode(p.manifest))
	change(m)
	p.path = filepath.Join(s.scratch(), uuid.NewString()[:8]+".json")
	s.write(p.path, encode(m))
	return p
}

// section returns an object inside a manifest.
func section(m map[string]any, key string) map[string]any {
	o, _ := m[key].(map[string]any)
	return o
}

// restoredStatus is what a runner says after a restore, by flush status.
var restoredStatus = map[string][2]string{
	"failed":      {"Restore interrupted before runtime flush completed", "runtime flush failed before restore"},
	"interrupted": {"Restore interrupted before runtime flush completed", "runtime flush failed before restore"},
	"skipped":     {"Restore incomplete: runtime flush skipped", "runtime flush was skipped; no runtime activity was persisted"},
}

func restoreUnready(flush string) func(*Session) {
	return func(s *Session) {
		first := s.paused()
		for i, reason := range []string{"", "the disk was full"} {
			p := s.changed(first, func(m map[string]any) {
				section(m, "runtime")["flush_status"] = flush
				if reason != "" {
					section(m, "runtime")["error"] = reason
				}
			})
			r := s.resumed(p)
			f := s.state()
			texts := restoredStatus[flush]
			if reason != "" {
				texts[1] = reason
			}
			for path, want := range map[string]any{"state.is_ready": false, "state.last_status": texts[0], "state.last_error": texts[1], "state.last_error_type": "protocol"} {
				got := f.at(path)
				s.require(got == want, "A107", "flush %s: expected %s %s, got %s", flush, path, show(want), show(got))
			}
			s.isReady("A107", false, false)
			s.put(connectionsPath, fields{"role": "viewer"}).refused("A107", contracts.CodeRuntimeNotReady, textNotAttaching)
			s.put(s.route("subscribe"), fields{}).refused("A107", contracts.CodeRuntimeNotReady, "")
			a := s.get(readyPath).notReady("A107")
			s.prefer(a.at("draining") == false, "1.13:ready", "expected draining false, got %s", a.said())
			s.backOn("vera", 0, "").resetTo("A107", "restored_from_snapshot")
			if i == 0 {
				r.stop("6.1", exitTime)
			}
		}
	}
}
