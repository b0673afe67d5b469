package conformance

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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
			if got := s.identity().str("runner_session_id"); got != "mrs_flag" || s.ID != "sess_flag" {
				s.fail("A87:flags", "expected the flags' mrs_flag and sess_flag, got %q and %q", got, s.ID)
			}
		}),
		hosted.scenario("startup/older-names", "5.1", "The older names of variables count after the newer", func(s *Session) {
			workspace := s.freshWorkspace()
			s.spawned(start{workspace: workspace, env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": "", "REMOTE_RUNNER_SESSION_ID": "mrs_older",
				"MAESTRO_WORKSPACE_ROOT": "", "WORKSPACE_ROOT": workspace, "REMOTE_RUNNER_OWNER_INSTANCE_ID": " gen_7 "}})
			a := s.identity()
			s.require(a.str("runner_session_id") == "mrs_older" && a.str("owner_instance_id") == "gen_7",
				"5.1", "expected the older names to count, trimmed, got %s", a.said())
			s.spawned(start{env: map[string]string{"REMOTE_RUNNER_SESSION_ID": "mrs_older"}})
			s.equal("5.1", s.identity().str("runner_session_id"), runnerID, "the newer name to win with %s", runnerID)
		}),
		hosted.scenario("startup/listens-where-told", "5.1 6.1", "The runner listens where it is told, and says so", func(s *Session) {
			r := s.spawned(start{})
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
		hosted.scenario("signal/terminate", "A110 5.9", "SIGTERM drains, shows the drained state, and ends with status 0", signalDrains(syscall.SIGTERM)),
		hosted.scenario("signal/interrupt", "5.9", "SIGINT does the same", signalDrains(os.Interrupt)),
		exec.scenario("signal/during-drain", "A110", "A signal during a drain waits for it, and does not order another", func(s *Session) {
			r := s.spawned(start{})
			s.stubborn()
			done := make(chan *Answer, 1)
			ctx, cancel := s.within(drainTime)
			defer cancel()
			go func() { // ends with the drain or ctx; waited for below
				a, _ := s.send(ctx, draining(platformDrain))
				done <- a
			}()
			s.untilDraining("A110")
			r.signal("A110", syscall.SIGTERM)
			a := <-done
			s.require(a != nil, "A110", "expected the drain to be answered in spite of the signal")
			a.check()
			s.drained("A110", a.ok("A110"))
			s.equal("5.9:status", r.exits("A110", drainTime), 0, "exit status 0")
			if m := s.onlyManifest("A110", r); m["reason"] != "ttl_expired" {
				s.fail("A110", "expected the manifest of the drain that was running, got reason %s", show(m["reason"]))
			}
		}),
		hosted.scenario("signal/after-drain", "5.9", "A signal after a drain only ends the process", func(s *Session) {
			r := s.spawned(start{})
			s.driver().prompt("hello")
			s.drain("5.9:status", platformDrain)
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", r.exits("5.9:status", drainTime), 0, "exit status 0")
			s.onlyManifest("5.9:status", r)
		}),
		exec.scenario("signal/second", "5.9", "A second signal ends the process at once", func(s *Session) {
			r := s.spawned(start{})
			s.stubborn()
			r.signal("5.9:status", syscall.SIGTERM)
			s.untilDraining("5.9:status")
			r.signal("5.9:status", syscall.SIGTERM)
			if status := r.exits("5.9:status", exitTime); !slices.Contains([]int{130, 143}, status) {
				s.fail("5.9:status", "expected exit status 130 or 143 after a second signal, got %d", status)
			}
		}),
		hosted.scenario("signal/flush-fails", "5.9", "A drain by signal that was interrupted ends with status 3", func(s *Session) {
			r := s.spawned(start{})
			alice := s.driver()
			alice.prompt(trigger("flush_error", fields{"message": "the disk is full"}))
			alice.finishRun()
			r.signal("5.9:status", syscall.SIGTERM)
			s.equal("5.9:status", r.exits("5.9:status", drainTime), 3, "exit status 3 after an interrupted drain")
			if m := s.onlyManifest("5.9:status", r); section(m, "runtime")["flush_status"] != "failed" {
				s.fail("5.9:status", "expected a manifest that says so, got %s", show(m["runtime"]))
			}
		}),
	}
}

// failsWith starts a runner that must not start and looks for what it says:
// any one of texts.
func (s *Session) failsWith(rule string, o start, texts ...string) {
	said := s.launch(o).fails(rule)
	for _, text := range texts {
		if strings.Contains(said, text) {
			return
		}
	}
	if rule != "A86" { // whose words a test of a published server looks for
		rule = "5.2:words"
	}
	s.advise(rule, "expected the failed start to say %q, got %q", texts, strings.TrimSpace(said))
}

// failsFrom starts a runner from a manifest that must stop it.
func (s *Session) failsFrom(rule string, p pause, text string) {
	s.failsWith(rule, start{workspace: p.runner.workspace, manifest: p.path}, text)
}

func signalDrains(sig os.Signal) func(*Session) {
	return func(s *Session) {
		r := s.spawned(start{})
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
		m := s.onlyManifest("A110", r)
		if m["reason"] != "process_shutdown" || m["requested_by"] != "maestro_web_server" {
			s.fail("A110", "expected a drain for process_shutdown by maestro_web_server, got %s by %s", show(m["reason"]), show(m["requested_by"]))
		}
	}
}

// onlyManifest reads the one manifest that a runner wrote.
func (s *Session) onlyManifest(rule string, r *runner) map[string]any {
	files := s.manifests(r)
	s.require(len(files) == 1, rule, "expected one manifest, got %q", files)
	return s.readManifest(rule, r.workspace+"/.maestro/runner-snapshots/"+files[0])
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
	deadline := time.Now().Add(s.config.Patience)
	for {
		a, err := s.send(s.ctx, request{who: "alice", method: http.MethodGet, path: identityPath})
		if err != nil { // the runner may have ended
			s.fail(rule, "expected the identity to show the drain, got: %v", err)
		}
		a.check()
		switch {
		case a.at("draining") == true:
			return
		case time.Now().After(deadline):
			s.fail(rule, "expected the identity to show the drain within %s, got %s", s.config.Patience, a.said())
		}
		s.pause(rule, 10*time.Millisecond)
	}
}
