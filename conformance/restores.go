package conformance

import (
	"cmp"
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
		hosted.restored("restore/state", "A104", "A restored runner has the manifest's session and cursor, and a name of its own", func(s *Session, p pause) {
			s.require(s.ID == boundSession, "A104", "expected session %s again, got %q", boundSession, s.ID)
			f := s.state()
			s.holds("A104", f, fields{"cursor": int(p.cursor), "state.last_status": restoredStatus, "state.is_ready": true})
			s.holds("5.7", f, fields{"state.last_error": nil, "state.last_error_type": nil, "state.controller_connection_id": nil})
			s.equal("5.7", len(listOf(f, "state.connections")), 0, "nobody to be attached after a restore")
			if a := s.isReady("A104", true, false); a.Status == http.StatusOK {
				a.holds("A104", fields{"runner_session_id": restoredRunnerID})
			}
		}),
		hosted.restored("restore/reset", "A105 5.8", "An old cursor is first told that the state was restored", func(s *Session, p pause) {
			for _, cursor := range []int64{0, 1, p.cursor} {
				f := s.backOn("vera", cursor, "").resetTo("A105", "restored_from_snapshot")
				s.require(f.Cursor >= p.cursor && f.str("state.last_status") == restoredStatus,
					"A105", "expected a reset to the restored state as of %d, got %s", p.cursor, abridge(f.Raw, maxTraceText))
				s.require(cursor != 0 || f.Cursor == p.cursor,
					"A105", "expected the first reset at the manifest's cursor %d, got %d", p.cursor, f.Cursor)
			}
			s.backOn("vera", p.cursor+1_000_000, "").resetTo("A46", "replay_gap")
		}),
		hosted.restored("restore/goes-on", "A106", "A restored runner grants the lease and counts on", func(s *Session, p pause) {
			alice := s.caller("alice", contracts.RoleController)
			a := alice.subscribed(fields{"takeControl": false}).holds("A106", fields{"controller_lease_granted": true})
			stream := alice.follow(a.snapshot().Cursor)
			alice.prompt("after hosted restore")
			f := stream.expect("A106", message("status").with("message", "Prompt: after hosted restore"))
			s.require(f.Cursor > p.cursor, "A106", "expected cursors above the manifest's %d, got %d", p.cursor, f.Cursor)
			s.stateWith("A106", "the prompt's status", func(f *Frame) bool {
				return f.Cursor > p.cursor && f.str("state.last_status") == "Prompt: after hosted restore"
			})
		}),
		hosted.restored("restore/other-epoch", "1.11 5.8", "Event ids from before the restore are known to be foreign", func(s *Session, p pause) {
			now := s.stateOf(s.ID).ok("1.8").epoch()
			s.require(now != p.epoch, "1.11:epoch", "expected a new epoch after a restore, got %q again", now)
			old := http.Header{"Last-Event-Id": {p.epoch + ".3"}}
			s.follow("vera", follow{header: old}).resetTo("1.11:epoch", "restored_from_snapshot")
			s.backOn("vera", p.cursor, p.epoch).resetTo("1.11:epoch", "restored_from_snapshot")
		}),
		hosted.restored("restore/no-cursor", "5.8", "Without a cursor a restored runner's stream begins as any other", func(s *Session, p pause) {
			f := s.follow("vera", follow{}).begins("5.8")
			s.require(f.Cursor >= p.cursor && f.str("state.last_status") == restoredStatus,
				"5.8", "expected a snapshot of the restored state, got %s", abridge(f.Raw, maxTraceText))
		}),
		hosted.restored("restore/last-init", "5.7", "The last init survives", func(s *Session, _ pause) {
			got := show(s.state().at("last_init"))
			s.require(got == `{"thinking_level":"high","type":"init"}`, "5.7", "expected the last init of before, got %s", got)
		}),
		hosted.scenario("restore/flush-failed", "A107", "What was not flushed makes a runner that is only to be looked at",
			restoreUnready("failed", "Restore interrupted before runtime flush completed", "runtime flush failed before restore")),
		hosted.scenario("restore/flush-interrupted", "A107 5.6", "The old word for a failed flush is understood",
			restoreUnready("interrupted", "Restore interrupted before runtime flush completed", "runtime flush failed before restore")),
		hosted.scenario("restore/flush-skipped", "A107", "Where nothing was flushed there is nothing to go on with",
			restoreUnready("skipped", "Restore incomplete: runtime flush skipped", "runtime flush was skipped; no runtime activity was persisted")),
		hosted.scenario("restore/unknown-blocks", "A109 5.7", "Blocks that a reader does not know are ignored, and optional ones may be missing or null", func(s *Session) {
			p := s.changed(s.paused(), func(m map[string]any) {
				m["work_continuity"], m["platform_evidence"] = fields{"anything": 1}, fields{"at": []int{2}}
				m["future"], m["git"] = fields{"x": 1}, fields{"dirty": true}
				section(m, "runtime")["shoe_size"] = 43
				delete(m, "retention_policy")
				m["workspace_id"], m["agent_run_id"], m["reason"] = nil, nil, nil
			})
			s.resumed(p)
			s.holds("A109", s.state(), fields{"cursor": int(p.cursor), "state.is_ready": true})
		}),
		hosted.scenario("restore/moved-workspace", "5.7", "The workspace may have moved", func(s *Session) {
			p := s.paused()
			elsewhere := s.freshWorkspace()
			p = s.changed(p, func(m map[string]any) { m["workspace_root"] = "/somewhere/else/entirely" })
			p.runner = &runner{workspace: elsewhere}
			s.resumed(p)
			f := s.state()
			s.holds("5.7", f, fields{"cursor": int(p.cursor), "session_id": boundSession})
			cwd := f.str("state.cwd")
			s.require(cwd == "" || cwd == elsewhere, "5.7", "expected the workspace of now, %s, got cwd %q", elsewhere, cwd)
			a := s.drain("5.7", fields{"export_paths": []string{"notes.md"}})
			s.holds("5.7", manifestIn(a), fields{"workspace_root": elsewhere})
		}),
		hosted.scenario("restore/larger-cursor", "5.7", "Of two cursors in a manifest the larger counts", func(s *Session) {
			first := s.paused()
			for _, key := range []string{"runtime", "snapshot"} {
				p := s.changed(first, func(m map[string]any) { section(m, key)["cursor"] = first.cursor + 100 })
				r := s.resumed(p)
				s.equal("5.7:cursor", s.state().Cursor, first.cursor+100, "the larger cursor %d, in %s, to count", first.cursor+100, key)
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
			s.require(second.cursor > p.cursor, "A106", "expected the second manifest beyond cursor %d, got %d", p.cursor, second.cursor)
			s.resumed(second)
			a := s.stateOf(s.ID).ok("1.8").shaped("A104", shape.Body[contracts.Snapshot])
			e := a.epoch()
			s.prefer(e == "" || e != p.epoch && e != second.epoch, "1.11:epoch", "expected a new epoch after every restore, got %q again", e)
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
	return pause{runner: r, epoch: epoch, manifest: manifestIn(a).Fields, path: a.str("manifest_path"), cursor: cursorIn(a)}
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

// restoredStatus is the last status after a restore.
const restoredStatus = "Restored from snapshot"

// restoreUnready is about a manifest whose flush did not succeed, with its own error and
// with the one that a runner says instead.
func restoreUnready(flush, status, lastError string) func(*Session) {
	return func(s *Session) {
		first := s.paused()
		for _, reason := range []string{"", "the disk was full"} {
			r := s.resumed(s.changed(first, func(m map[string]any) {
				section(m, "runtime")["flush_status"] = flush
				if reason != "" {
					section(m, "runtime")["error"] = reason
				}
			}))
			s.holds("A107", s.state(), fields{"state.is_ready": false, "state.last_status": status,
				"state.last_error": cmp.Or(reason, lastError), "state.last_error_type": "protocol"})
			s.isReady("A107", false, false)
			s.put(connectionsPath, fields{"role": "viewer"}).refused("A107", contracts.CodeRuntimeNotReady, textNotAttaching)
			s.put(s.route("subscribe"), fields{}).refused("A107", contracts.CodeRuntimeNotReady, "")
			a := s.get(readyPath).notReady("A107")
			s.prefer(a.at("draining") == false, "1.13:ready", "expected draining false, got %s", a.said())
			s.backOn("vera", 0, "").resetTo("A107", "restored_from_snapshot")
			r.stop("6.1", exitTime)
		}
	}
}

// restored returns a scenario with these needs, about a runner that was started from the
// manifest of another one.
func (n Needs) restored(name, rules, title string, story func(*Session, pause)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) {
		p := s.paused()
		s.resumed(p)
		story(s, p)
	})
}
