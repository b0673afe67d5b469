package conformance

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/seed-028515a8/maestro/contracts"
)

// startups judges how a hosted runner starts or does not, and how it ends by a signal:
// A86, A87, A108, A110, 5.1, 5.2 and 5.9.
func startups() []Scenario {
	hosted := Needs{Transport: Hosted}
	exec := Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}
	return []Scenario{
		hosted.scenario("startup/needs-runner-session", "A86 5.2", "Without a runner session id there is no start", func(s *Session) {
			s.failsWith("A86", start{env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": ""}}, "runner-session-id", "MAESTRO_RUNNER_SESSION_ID")
			s.failsWith("A86", start{env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": "   "}}, "runner-session-id", "MAESTRO_RUNNER_SESSION_ID")
		}),
		hosted.scenario("startup/needs-workspace", "A86 5.2", "Without a workspace that is a directory there is no start", func(s *Session) {
			const name = "MAESTRO_WORKSPACE_ROOT"
			s.failsWith("A86", start{env: map[string]string{name: ""}}, "workspace-root", name)
			missing := filepath.Join(s.scratch(), "no-such-directory")
			s.failsWith("5.2", start{env: map[string]string{name: missing}}, "no-such-directory")
			file := filepath.Join(s.scratch(), "file")
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
			s.require(filepath.Dir(path) == want, "A87", "expected the manifest in %s, got %s", want, path)
			s.spawned(start{flags: []string{"--runner-session-id", "mrs_flag", "--maestro-session-id=sess_flag"}})
			got := s.identity().str("runner_session_id")
			s.require(got == "mrs_flag" && s.ID == "sess_flag", "A87:flags", "expected the flags' mrs_flag and sess_flag, got %q and %q", got, s.ID)
		}),
		hosted.scenario("startup/older-names", "5.1", "The older names of variables count after the newer", func(s *Session) {
			workspace := s.freshWorkspace()
			s.spawned(start{workspace: workspace, env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": "", "REMOTE_RUNNER_SESSION_ID": "mrs_older",
				"MAESTRO_WORKSPACE_ROOT": "", "WORKSPACE_ROOT": workspace, "REMOTE_RUNNER_OWNER_INSTANCE_ID": " gen_7 "}})
			s.identity().holds("5.1", fields{"runner_session_id": "mrs_older", "owner_instance_id": "gen_7"}) // trimmed
			s.spawned(start{env: map[string]string{"REMOTE_RUNNER_SESSION_ID": "mrs_older"}})
			s.equal("5.1", s.identity().str("runner_session_id"), runnerID, "the newer name to win with %s", runnerID)
		}),
		hosted.runner("startup/listens-where-told", "5.1 6.1", "The runner listens where it is told, and says so", func(s *Session, r *runner) {
			s.require(r.base == "http://"+r.listen, "6.1", "expected baseUrl http://%s, got %q", r.listen, r.base)
			health(s)
		}),
		hosted.scenario("startup/manifest-unreadable", "5.2", "A manifest that cannot be read stops the start", func(s *Session) {
			s.failsWith("5.2", start{manifest: filepath.Join(s.scratch(), "missing.json")}, "failed to read hosted runner restore manifest")
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
			p.path = filepath.Join(s.scratch(), "torn.json")
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
			s.require(strings.Contains(said, "sess_other") || strings.Contains(said, "session"),
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
			s.equal("5.9:status", r.exits("A110", drainTime), 0, "exit status 0")
			s.holds("A110", s.onlyManifest("A110", r), fields{"reason": "ttl_expired"}) // that of the drain that was running
		}),
		hosted.runner("signal/after-drain", "5.9", "A signal after a drain only ends the process", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			s.drain("5.9:status", platformDrain)
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", r.exits("5.9:status", drainTime), 0, "exit status 0")
			s.onlyManifest("5.9:status", r)
		}),
		exec.runner("signal/second", "5.9", "A second signal ends the process at once", func(s *Session, r *runner) {
			s.stubborn()
			r.signal("5.9:status", syscall.SIGTERM)
			s.untilDraining("5.9:status")
			r.signal("5.9:status", syscall.SIGTERM)
			status := r.exits("5.9:status", exitTime)
			s.require(status == 130 || status == 143, "5.9:status", "expected exit status 130 or 143 after a second signal, got %d", status)
		}),
		hosted.runner("signal/flush-fails", "5.9", "A drain by signal that was interrupted ends with status 3", func(s *Session, r *runner) {
			s.driver().breakFlush()
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", r.exits("5.9:status", drainTime), 3, "exit status 3 after an interrupted drain")
			s.holds("5.9:status", s.onlyManifest("5.9:status", r), fields{"runtime.flush_status": "failed"})
		}),
	}
}

// failsWith starts a runner that must not start and looks for what it says:
// any one of texts.
func (s *Session) failsWith(rule string, o start, texts ...string) {
	said := s.launch(o).fails(rule)
	if rule != "A86" { // whose words a test of a published server looks for
		rule = "5.2:words"
	}
	s.prefer(slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) }),
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
			socket.closesWithin("5.9:status", 2*exitTime, contracts.CodeGoingAway.CloseCode())
		}
		s.equal("5.9:status", r.exits("A110", drainTime), 0, "exit status 0 after a drain")
		s.holds("A110", s.onlyManifest("A110", r), fields{"reason": "process_shutdown", "requested_by": "maestro_web_server"})
	}
}

// stubborn starts a command that a drain needs a second or two to end.
func (s *Session) stubborn() *Peer {
	alice, p := s.toolUser()
	alice.start("R84", "stubborn", `trap "" TERM; echo armed; sleep 60; sleep 60`)
	p.expect("R85", message("utility_command_output").with("command_id", "stubborn"))
	return p
}

// untilDraining waits until the identity says that a drain is running.
func (s *Session) untilDraining(rule string) {
	s.until(rule, "the identity to show the drain", func() (bool, string) {
		a, err := s.send(s.ctx, request{who: "alice", method: http.MethodGet, path: identityPath})
		s.require(err == nil, rule, "expected the identity to show the drain, got: %v", err) // the runner may have ended
		a.check()
		return a.at("draining") == true, a.said()
	})
}
