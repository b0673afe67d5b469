package conformance

import (
	"path/filepath"
	"strings"
)

// startups judges how a hosted runner starts or does not: A86, A87, A108, 5.1
// and 5.2.
func startups() []Scenario {
	hosted := Needs{Transport: Hosted}
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
			if want := filepath.Join(r.workspace, "kept", "snapshots"); filepath.Dir(path) != want {
				s.fail("A87", "expected the manifest in %s, got %s", want, path)
			}
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
			if a.str("runner_session_id") != "mrs_older" || a.str("owner_instance_id") != "gen_7" {
				s.fail("5.1", "expected the older names to count, trimmed, got %s", a.said())
			}
			s.spawned(start{env: map[string]string{"REMOTE_RUNNER_SESSION_ID": "mrs_older"}})
			if got := s.identity().str("runner_session_id"); got != runnerID {
				s.fail("5.1", "expected the newer name to win with %s, got %q", runnerID, got)
			}
		}),
		hosted.scenario("startup/listens-where-told", "5.1 6.1", "The runner listens where it is told, and says so", func(s *Session) {
			r := s.spawned(start{})
			if r.base != "http://"+r.listen {
				s.fail("6.1", "expected baseUrl http://%s, got %q", r.listen, r.base)
			}
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
			if !strings.Contains(said, "sess_other") && !strings.Contains(said, "session") {
				s.fail("A108:session", "expected the failed start to name the sessions, got %q", strings.TrimSpace(said))
			}
			s.spawned(start{workspace: p.runner.workspace, manifest: p.path, env: map[string]string{"MAESTRO_SESSION_ID": boundSession}})
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
