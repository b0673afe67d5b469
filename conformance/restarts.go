package conformance

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// restarts judges how a hosted runner starts or does not, how it goes on from a manifest,
// and how it ends by a signal: A86, A87, A104 to A110, 5.1, 5.2 and 5.7 to 5.9.
func restarts() []Scenario {
	hosted := Needs{Transport: Hosted}
	exec := Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}
	return []Scenario{
		hosted.restored("restore/state", "A104", "A restored runner has the manifest's session and cursor, and a name of its own", func(s *Session, p pause) {
			s.failIf(s.ID != boundSession, "A104", "expected session %s again, got %q", boundSession, s.ID)
			f := s.state()
			s.shows("A104", f, fields{"cursor": int(p.cursor), "state.last_status": restoredStatus, "state.is_ready": true})
			s.shows("5.7", f, fields{"state.last_error": nil, "state.last_error_type": nil, "state.controller_connection_id": nil})
			s.equal("5.7", "the number of connections after a restore", len(listOf(f, "state.connections")), 0)
			if a := s.isReady("A104", true, false); a.Status == http.StatusOK {
				a.has("A104", fields{"runner_session_id": restoredRunnerID})
			}
		}),
		hosted.restored("restore/reset", "A105 5.8", "An old cursor is first told that the state was restored", func(s *Session, p pause) {
			for _, cursor := range []int64{0, 1, p.cursor} {
				f := s.backOn("vera", cursor, "").resetTo("A105", "restored_from_snapshot")
				s.failIf(f.Cursor < p.cursor || f.str("state.last_status") != restoredStatus,
					"A105", "expected a reset to the restored state as of %d, got %s", p.cursor, abridge(f.Raw, maxTraceText))
				s.failIf(cursor == 0 && f.Cursor != p.cursor,
					"A105", "expected the first reset at the manifest's cursor %d, got %d", p.cursor, f.Cursor)
			}
			s.backOn("vera", p.cursor+1_000_000, "").resetTo("A46", "replay_gap")
		}),
		hosted.restored("restore/goes-on", "A106", "A restored runner grants the lease and counts on", func(s *Session, p pause) {
			alice := s.caller("alice", contracts.RoleController)
			a := alice.subscribed(fields{"takeControl": false}).has("A106", fields{"controller_lease_granted": true})
			stream := alice.follow(a.snapshot().Cursor)
			alice.prompt("after hosted restore")
			f := stream.expect("A106", prompted("after hosted restore"))
			s.failIf(f.Cursor <= p.cursor, "A106", "expected cursors above the manifest's %d, got %d", p.cursor, f.Cursor)
			s.stateWith("A106", "the prompt's status", func(f *Frame) bool {
				return f.Cursor > p.cursor && f.str("state.last_status") == "Prompt: after hosted restore"
			})
		}),
		hosted.restored("restore/other-epoch", "1.11 5.8", "Event ids from before the restore are known to be foreign", func(s *Session, p pause) {
			now := s.stateOf(s.ID).ok("1.8").epoch()
			s.failIf(now == p.epoch, "1.11:epoch", "expected a new epoch after a restore, got %q again", now)
			old := http.Header{"Last-Event-Id": {p.epoch + ".3"}}
			s.follow("vera", follow{header: old}).resetTo("1.11:epoch", "restored_from_snapshot")
			s.backOn("vera", p.cursor, p.epoch).resetTo("1.11:epoch", "restored_from_snapshot")
		}),
		hosted.restored("restore/no-cursor", "5.8", "Without a cursor a restored runner's stream begins as any other", func(s *Session, p pause) {
			f := s.follow("vera", follow{}).begins("5.8")
			s.failIf(f.Cursor < p.cursor || f.str("state.last_status") != restoredStatus,
				"5.8", "expected a snapshot of the restored state, got %s", abridge(f.Raw, maxTraceText))
		}),
		hosted.restored("restore/last-init", "5.7", "The last init survives", func(s *Session, _ pause) {
			got := show(s.state().at("last_init"))
			s.failIf(got != `{"thinking_level":"high","type":"init"}`, "5.7", "expected the last init of before, got %s", got)
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
			s.shows("A109", s.state(), fields{"cursor": int(p.cursor), "state.is_ready": true})
		}),
		hosted.scenario("restore/moved-workspace", "5.7", "The workspace may have moved", func(s *Session) {
			p := s.paused()
			elsewhere := s.freshWorkspace()
			p = s.changed(p, func(m map[string]any) { m["workspace_root"] = "/somewhere/else/entirely" })
			p.runner = &runner{workspace: elsewhere}
			s.resumed(p)
			f := s.state()
			s.shows("5.7", f, fields{"cursor": int(p.cursor), "session_id": boundSession})
			cwd := f.str("state.cwd")
			s.failIf(cwd != "" && cwd != elsewhere, "5.7", "expected the workspace of now, %s, got cwd %q", elsewhere, cwd)
			a := s.drain("5.7", fields{"export_paths": []string{"notes.md"}})
			s.shows("5.7", manifestIn(a), fields{"workspace_root": elsewhere})
		}),
		hosted.scenario("restore/larger-cursor", "5.7", "Of two cursors in a manifest the larger counts", func(s *Session) {
			first := s.paused()
			for _, key := range []string{"runtime", "snapshot"} {
				p := s.changed(first, func(m map[string]any) { section(m, key)["cursor"] = first.cursor + 100 })
				r := s.resumed(p)
				s.equal("5.7:cursor", "the cursor, of which the larger is in "+key+",", s.state().Cursor, first.cursor+100)
				r.stop("6.1")
			}
		}),
		hosted.scenario("restore/again", "A104 A106", "A restored runner can be drained and restored again", func(s *Session) {
			p := s.paused()
			r := s.resumed(p)
			alice, stream := s.attached()
			alice.prompt("second life")
			stream.expect("A106", prompted("second life"))
			alice.finishRun()
			second := s.pauseNow(r, stream.epoch)
			s.failIf(second.cursor <= p.cursor, "A106", "expected the second manifest beyond cursor %d, got %d", p.cursor, second.cursor)
			s.resumed(second)
			a := s.stateOf(s.ID).ok("1.8").shaped("A104", "Snapshot")
			e := a.epoch()
			s.adviseIf(e != "" && (e == p.epoch || e == second.epoch), "1.11:epoch", "expected a new epoch after every restore, got %q again", e)
			s.equal("A104", "the cursor", a.snapshot().Cursor, second.cursor)
		}),
		hosted.scenario("startup/needs-runner-session", "A86 5.2", "Without a runner session id there is no start", func(s *Session) {
			s.failsWith("A86", start{env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": ""}}, "runner-session-id", "MAESTRO_RUNNER_SESSION_ID")
			s.failsWith("A86", start{env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": "   "}}, "runner-session-id", "MAESTRO_RUNNER_SESSION_ID")
		}),
		hosted.scenario("startup/needs-workspace", "A86 5.2", "Without a workspace that is a directory there is no start", func(s *Session) {
			const name = "MAESTRO_WORKSPACE_ROOT"
			s.failsWith("A86", start{env: map[string]string{name: ""}}, "workspace-root", name)
			missing := filepath.Join(s.Scratch(), "no-such-directory")
			s.failsWith("5.2", start{env: map[string]string{name: missing}}, "no-such-directory")
			file := filepath.Join(s.Scratch(), "file")
			s.write(file, nil)
			s.failsWith("5.2", start{env: map[string]string{name: file}}, "not a directory")
		}),
		hosted.scenario("startup/bad-listen", "5.2", "An address that is none stops the start", func(s *Session) {
			for _, listen := range []string{"nonsense", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "1:2:3"} {
				s.failsWith("5.2", start{env: map[string]string{"MAESTRO_HOSTED_RUNNER_LISTEN": listen}},
					"must be <host:port> or <port>", "must be a TCP port between 1 and 65535")
			}
		}),
		hosted.scenario("startup/unknown-flag", "5.1", "An unknown flag stops the start", func(s *Session) {
			s.failsWith("5.1:unknown", start{flags: []string{"--no-such-flag"}}, "no-such-flag")
			s.failsWith("5.1:unknown", start{flags: []string{"stray-argument"}}, "stray-argument")
		}),
		hosted.scenario("startup/flags-beat-environment", "A87", "Flags beat variables; a relative snapshot root lies in the workspace", func(s *Session) {
			r := s.spawned(start{env: map[string]string{"MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT": "kept/snapshots"}})
			path := s.drain("A87", nil).str("manifest_path")
			want := filepath.Join(r.workspace, "kept", "snapshots")
			s.failIf(filepath.Dir(path) != want, "A87", "expected the manifest in %s, got %s", want, path)
			s.spawned(start{flags: []string{"--runner-session-id", "mrs_flag", "--maestro-session-id=sess_flag"}})
			got := s.identity().str("runner_session_id")
			s.failIf(got != "mrs_flag" || s.ID != "sess_flag", "A87:flags", "expected the flags' mrs_flag and sess_flag, got %q and %q", got, s.ID)
		}),
		hosted.scenario("startup/older-names", "5.1", "The older names of variables count after the newer", func(s *Session) {
			workspace := s.freshWorkspace()
			s.spawned(start{workspace: workspace, env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": "", "REMOTE_RUNNER_SESSION_ID": "mrs_older",
				"MAESTRO_WORKSPACE_ROOT": "", "WORKSPACE_ROOT": workspace, "REMOTE_RUNNER_OWNER_INSTANCE_ID": " gen_7 "}})
			s.identity().has("5.1", fields{"runner_session_id": "mrs_older", "owner_instance_id": "gen_7"}) // trimmed
			s.spawned(start{env: map[string]string{"REMOTE_RUNNER_SESSION_ID": "mrs_older"}})
			s.identity().has("5.1", fields{"runner_session_id": runnerID}) // the newer name wins
		}),
		hosted.runner("startup/listens-where-told", "5.1 6.1", "The runner listens where it is told, and says so", func(s *Session, r *runner) {
			s.failIf(r.base != "http://"+r.listen, "6.1", "expected baseUrl http://%s, got %q", r.listen, r.base)
			health(s)
		}),
		hosted.scenario("startup/manifest-unreadable", "5.2", "A manifest that cannot be read stops the start", func(s *Session) {
			s.failsWith("5.2", start{manifest: filepath.Join(s.Scratch(), "missing.json")}, "failed to read hosted runner restore manifest")
		}),
		hosted.scenario("startup/manifest-invalid", "A108 5.7", "A manifest that is none, or of another version, stops the start", func(s *Session) {
			p := s.paused()
			const text = "invalid_snapshot_manifest"
			for _, change := range []func(m map[string]any){
				func(m map[string]any) { m["protocol_version"] = "evalops.remote-runner.snapshot-manifest.v2" },
				func(m map[string]any) { section(m, "workspace_export")["mode"] = "upload" },
				func(m map[string]any) { delete(m, "maestro_session_id") },
				func(m map[string]any) { m["maestro_session_id"] = "" },
				func(m map[string]any) { delete(m, "runtime") },
				func(m map[string]any) { section(m, "runtime")["flush_status"] = "perhaps" },
				func(m map[string]any) { delete(section(section(m, "snapshot"), "state"), "pending_approvals") },
			} {
				s.failsFrom("A108:invalid", s.changed(p, change), text)
			}
			p.path = filepath.Join(s.Scratch(), "torn.json")
			s.write(p.path, encode(p.manifest)[:100])
			s.failsFrom("A108:invalid", p, text)
		}),
		hosted.scenario("startup/manifest-escapes", "A108", "A manifest whose exports leave the workspace stops the start", func(s *Session) {
			p := s.paused()
			for _, path := range []string{"../outside", "/etc", "a/../../b"} {
				s.failsFrom("A108", s.changed(p, func(m map[string]any) {
					paths, _ := section(m, "workspace_export")["paths"].([]any)
					paths[0].(map[string]any)["relative_path"] = path // a manifest of ours: its shape was checked
				}), "workspace_violation")
			}
		}),
		hosted.scenario("startup/session-conflict", "A108 5.7", "A manifest of another session than the configured one stops the start", func(s *Session) {
			p := s.paused()
			said := s.launch(start{workspace: p.runner.workspace, manifest: p.path, env: map[string]string{"MAESTRO_SESSION_ID": "sess_other"}}).fails("A108:session")
			s.failIf(!strings.Contains(said, "sess_other") && !strings.Contains(said, "session"),
				"A108:session", "expected the failed start to name the sessions, got %q", strings.TrimSpace(said))
			s.spawned(start{workspace: p.runner.workspace, manifest: p.path, env: map[string]string{"MAESTRO_SESSION_ID": boundSession}})
		}),
		hosted.runner("signal/terminate", "A110 5.9", "SIGTERM drains, shows the drained state, and ends with status 0", signalDrains(syscall.SIGTERM)),
		hosted.runner("signal/interrupt", "5.9", "SIGINT does the same", signalDrains(os.Interrupt)),
		exec.runner("signal/during-drain", "A110", "A signal during a drain waits for it, and does not order another", func(s *Session, r *runner) {
			s.stubborn()
			done := s.startDrain(platformDrain)
			s.untilDraining("A110")
			r.signal("A110", syscall.SIGTERM)
			s.finishDrain("A110", <-done) // in spite of the signal
			s.equal("5.9:status", "the exit status", r.exits("A110", s.drainTime()), 0)
			s.shows("A110", s.onlyManifest("A110", r), fields{"reason": "ttl_expired"}) // that of the drain that was running
		}),
		hosted.runner("signal/after-drain", "5.9", "A signal after a drain only ends the process", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			s.drain("5.9:status", platformDrain)
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", "the exit status", r.exits("5.9:status", s.drainTime()), 0)
			s.onlyManifest("5.9:status", r)
		}),
		exec.runner("signal/second", "5.9", "A second signal ends the process at once", func(s *Session, r *runner) {
			s.stubborn()
			r.signal("5.9:status", syscall.SIGTERM)
			s.untilDraining("5.9:status")
			r.signal("5.9:status", syscall.SIGTERM)
			status := r.exits("5.9:status", s.exitTime())
			s.failIf(status != 130 && status != 143, "5.9:status", "expected exit status 130 or 143 after a second signal, got %d", status)
		}),
		hosted.runner("signal/flush-fails", "5.9", "A drain by signal that was interrupted ends with status 3", func(s *Session, r *runner) {
			s.driver().breakFlush()
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", "the exit status after an interrupted drain", r.exits("5.9:status", s.drainTime()), 3)
			s.shows("5.9:status", s.onlyManifest("5.9:status", r), fields{"runtime.flush_status": "failed"})
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
	p.expect("6.2", prompted("before the restore"))
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
	r.stop("6.1")
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
	p.path = filepath.Join(s.Scratch(), uuid.NewString()[:8]+".json")
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
			s.shows("A107", s.state(), fields{"state.is_ready": false, "state.last_status": status,
				"state.last_error": cmp.Or(reason, lastError), "state.last_error_type": "protocol"})
			s.isReady("A107", false, false)
			s.put(connectionsPath, fields{"role": "viewer"}).refused("A107", contracts.CodeRuntimeNotReady, textNotAttaching)
			s.put(s.route("subscribe"), fields{}).refused("A107", contracts.CodeRuntimeNotReady, "")
			a := s.get(readyPath).notReady("A107")
			s.adviseIf(a.at("draining") != false, "1.13:ready", "expected draining false, got %s", a.said())
			s.backOn("vera", 0, "").resetTo("A107", "restored_from_snapshot")
			r.stop("6.1")
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

// failsWith starts a runner that must not start and looks for what it says:
// any one of texts.
func (s *Session) failsWith(rule string, o start, texts ...string) {
	said := s.launch(o).fails(rule)
	if rule != "A86" { // whose words a test of a published server looks for
		rule = "5.2:words"
	}
	s.adviseIf(!slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) }),
		rule, "expected the failed start to say %q, got %q", texts, strings.TrimSpace(said))
}

// failsFrom starts a runner from a manifest that must stop it.
func (s *Session) failsFrom(rule string, p pause, text string) {
	s.failsWith(rule, start{workspace: p.runner.workspace, manifest: p.path}, text)
}

func signalDrains(sig os.Signal) func(*Session, *runner) {
	return func(s *Session, r *runner) {
		alice, own := s.attached()
		socket := s.onSocket("sophie")
		alice.prompt("hello")
		r.signal("A110", sig)
		own.expect("A110", drainedSnapshot())
		own.fades("A96:ends")
		if socket != nil {
			socket.closesWithin("5.9:status", 2*s.exitTime(), contracts.CodeGoingAway.CloseCode())
		}
		s.equal("5.9:status", "the exit status after a drain", r.exits("A110", s.drainTime()), 0)
		s.shows("A110", s.onlyManifest("A110", r), fields{"reason": "process_shutdown", "requested_by": "maestro_web_server"})
	}
}

// stubborn starts a command that a drain needs a second or two to end.
func (s *Session) stubborn() *Peer {
	alice, p := s.toolUser()
	alice.start("R84", "stubborn", `trap "" TERM; echo armed; sleep 600; sleep 600`)
	p.expect("R85", message("utility_command_output").with("command_id", "stubborn"))
	return p
}

// untilDraining waits until the identity says that a drain is running.
func (s *Session) untilDraining(rule string) {
	s.until(rule, "the identity to show the drain", func() (bool, string) {
		a, err := s.send(s.ctx, request{who: "alice", method: http.MethodGet, path: identityPath})
		s.failIf(err != nil, rule, "expected the identity to show the drain, got: %v", err) // the runner may have ended
		a.check()
		return a.at("draining") == true, a.said()
	})
}
