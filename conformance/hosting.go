package conformance

import (
	"net/http"
	"os"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// hosting judges what a hosted runner is bound to: A85, A88, A111, 5.3, 5.4, 6.1.
func hosting() []Scenario {
	hosted := Needs{Transport: Hosted}
	exec := Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}
	return []Scenario{
		hosted.runner("hosted/ready-line", "6.1", "The first line on standard output says where the runner is", func(s *Session, _ *runner) {
			s.failIf(s.ID != boundSession, "6.1", "expected session %s in the ready line, got %q", boundSession, s.ID)
			s.shows("6.1", s.state(), fields{"session_id": boundSession}) // the port accepts connections
		}),
		hosted.runner("hosted/stops-on-eof", "6.1", "The end of standard input ends the runner within a second, without a drain", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			s.onlooker("vera")
			r.stop("6.1") // one second by the contract; machines differ
			files := s.manifests(r)
			s.failIf(len(files) != 0, "6.1", "expected no drain when standard input ends, got %q", files)
		}),
		hosted.runner("hosted/identity", "A85 5.3", "The identity says who and how, and nothing else", func(s *Session, _ *runner) {
			const want = `{"draining":false,"protocol_version":"evalops.remote-runner.identity.v1","ready":true,"runner_session_id":"` + runnerID + `"}`
			a := s.isReady("5.3", true, false)
			s.failIf(a.Status == http.StatusOK && show(a.Body) != want,
				"A85", "expected version, runner session and readiness alone, got %s", show(a.Body))
		}),
		hosted.scenario("hosted/identity-owner", "5.3", "A configured owner generation is in the identity", func(s *Session) {
			s.spawned(withOwner())
			s.isReady("5.3", true, false).has("5.3", fields{"owner_instance_id": "gen_9"})
		}),
		hosted.runner("hosted/ready", "1.13", "A fresh runner is ready and lives", func(s *Session, _ *runner) {
			readiness(s)
			health(s)
		}),
		hosted.scenario("hosted/one-session", "A88 5.4", "Another session is somebody else's, on every route", func(s *Session) {
			s.spawned(withOwner())
			alice := s.controllerOnly()
			requests := []request{{method: http.MethodPost, path: connectionsPath, body: encode(fields{"sessionId": "sess_other"})},
				{method: http.MethodPost, path: sessionsPath, body: encode(fields{"sessionId": "sess_other"})}}
			for _, route := range []string{"", "state", "events"} {
				requests = append(requests, request{method: http.MethodGet, path: routeOf("sess_other", route)})
			}
			for route, body := range plausible {
				requests = append(requests, request{method: http.MethodPost, path: routeOf("sess_other", route), header: alice.identity(), body: encode(body)})
			}
			s.quietly("A88", func() {
				for _, r := range requests {
					r.who = "mallory"
					a := s.call(r).refused("A88", contracts.CodeRuntimeOwnedElsewhere, "")
					about := a.about()
					for key, want := range map[string]string{"runner_session_id": runnerID, "owner_instance_id": "gen_9", "workspace_id": workspaceID,
						"agent_run_id": agentRunID, "maestro_session_id": boundSession, "requested_maestro_session_id": "sess_other"} {
						s.adviseIf(about[key] != want, "5.4:metadata", "%s: expected %s %q in the metadata, got %s", a.what(), key, want, show(about[key]))
					}
				}
			})
		}),
		hosted.runner("hosted/session-omitted", "1.6 1.1", "Without a session id the bound session is meant", func(s *Session, _ *runner) {
			s.put(connectionsPath, fields{}).ok("1.6:bound").has("1.6:bound", fields{"session_id": boundSession})
			for _, f := range []fields{{}, {"sessionId": boundSession}} {
				s.put(sessionsPath, f).ok("1.1:sessions").shaped("1.7", "Snapshot").
					has("1.1:sessions", fields{"session_id": boundSession})
			}
		}),
		hosted.runner("hosted/workspace-root", "5.4", "A client may name the runner's workspace, and no other", func(s *Session, r *runner) {
			attach := func(root string) *Answer {
				return s.put(connectionsPath, fields{"role": "viewer", "workspaceRoot": root})
			}
			attach(r.workspace).ok("5.4:workspace")
			attach(r.workspace + "/../" + r.workspace[strings.LastIndex(r.workspace, "/")+1:]).ok("5.4:workspace")
			a := attach(s.Scratch())
			s.failIf(a.Status != http.StatusConflict, "5.4:workspace", "expected another workspace to be a conflict, got %s", a.said())
			a = attach(r.workspace + "/no-such-directory")
			s.failIf(a.Status != http.StatusBadRequest, "5.4:workspace", "expected a missing workspace to be a bad request, got %s", a.said())
		}),
		hosted.scenario("hosted/owner-header", "A111 5.4", "A stale owner generation is refused", func(s *Session) {
			s.spawned(withOwner())
			alice := s.driver()
			for owner, right := range map[string]bool{"gen_9": true, "gen_8": false} {
				h := http.Header{ownerHeader: {owner}}
				message := alice.sending(encodeCommand(initNothing()))
				message.header.Set(ownerHeader, owner)
				requests := []request{message,
					{method: http.MethodPost, path: connectionsPath, header: h, body: encode(fields{"role": "viewer"})},
					{method: http.MethodPost, path: s.route("subscribe"), header: h, body: encode(fields{"role": "viewer"})}}
				for _, r := range requests {
					r.who = "gateway"
					if a := s.call(r); right {
						a.ok("A111")
					} else {
						a.refused("A111", contracts.CodeRuntimeOwnedElsewhere, "")
					}
				}
			}
			alice.posted("A111", initNothing()) // without the header
		}),
		Needs{Transport: Hosted, Seed: true}.scenario("hosted/owner-header-required", "5.4", "A runner may insist on being told which generation is meant", func(s *Session) {
			o := withOwner()
			o.flags = []string{"--require-owner-header"}
			s.spawned(o)
			attach := func(h http.Header) *Answer {
				return s.call(request{who: "gateway", method: http.MethodPost, path: connectionsPath, header: h, body: []byte(`{"role":"viewer"}`)})
			}
			attach(nil).refused("5.4", contracts.CodeAccessDenied, "")
			attach(http.Header{ownerHeader: {"gen_8"}}).refused("5.4", contracts.CodeRuntimeOwnedElsewhere, "")
			attach(http.Header{ownerHeader: {"gen_9"}}).ok("5.4")
			s.isReady("5.3", true, false) // who asks for the generation need not know it
		}),
		hosted.scenario("hosted/vanished-workspace", "5.3", "A runner whose workspace is gone is not ready, and not draining either", func(s *Session) {
			r := s.spawned(withOwner())
			s.isReady("5.3:workspace", true, false)
			away := r.workspace + "-away"
			s.must("5.3:workspace", os.Rename(r.workspace, away))
			s.dirs = append(s.dirs, away)
			s.isReady("5.3:workspace", false, false)
			s.must("5.3:workspace", os.Rename(away, r.workspace))
			s.isReady("5.3:workspace", true, false)
		}),
		Needs{Transport: Hosted, Operation: contracts.OperationFileRead}.runner("hosted/workspace", "A77 R96", "The runner's files are read, found and kept inside the workspace", func(s *Session, _ *runner) {
			alice, p := s.toolUser(contracts.OperationFileSearch)
			secret := s.Scratch() + "/secret.txt"
			s.write(secret, []byte("secret\n"))
			alice.posted("R96", &contracts.UtilityFileRead{ReadID: "notes", Path: "notes.md", Limit: new(int64(2))})
			p.expect("R96", message("utility_file_read_result").with("read_id", "notes").with("relative_path", "notes.md").
				with("content", "alpha\nbeta").with("truncated", true))
			alice.post(&contracts.UtilityFileRead{ReadID: "secret", Path: secret}).outside()
			alice.posted("R95", &contracts.UtilityFileSearch{SearchID: "notes", Query: "notes"})
			f := p.expect("R95", message("utility_file_search_results").with("search_id", "notes"))
			results := listOf(f, "results")
			s.failIf(len(results) == 0 || !strings.HasSuffix(textOf(results[0], "path"), "notes.md"),
				"R95", "expected notes.md to be found, got %s", show(results))
		}),
		hosted.scenario("hosted/heartbeats", "1.13", "Heartbeats of a runner say who drives and until when", onRunner(heartbeatAnswer)),
		hosted.runner("hosted/counts", "4.2", "A runner counts connections and subscriptions", func(s *Session, _ *runner) {
			s.driver()
			s.guest("vera").subscribed(nil)
			s.shows("4.2", s.state(), fields{"state.connection_count": 2, "state.subscriber_count": 2})
		}),
		hosted.scenario("hosted/init", "1.12 R35", "A runner keeps an init whole, and says it", onRunner(postInit)),
		hosted.scenario("hosted/stream", "A42", "A runner's stream without a cursor begins with a snapshot, then lives", onRunner(streamSnapshotFirst)),
		hosted.scenario("hosted/replay", "A43", "Cursor 0 yields a runner's whole journal", onRunner(fromTheStart)),
		hosted.scenario("hosted/missed-items", "A43", "A cursor yields exactly what was missed at a runner", onRunner(missedItems)),
		hosted.scenario("hosted/negative-cursor", "A45", "A negative cursor yields a reset of a runner's stream", onRunner(negativeCursor)),
		hosted.scenario("hosted/denial", "A67 A68", "A denial ends a runner's question with its reason, after it", onRunner(postDenial)),
		exec.scenario("hosted/command", "R84 R85", "A runner runs commands and says so", onRunner(toolCommand)),
		exec.scenario("hosted/command-listed", "A66 R86", "A command is in a runner's state with its owner", onRunner(toolCommandListed)),
		Needs{Transport: Hosted, Operation: contracts.OperationFileWatch}.runner("hosted/watch", "A66 5.4", "A runner watches files, and stops", func(s *Session, _ *runner) {
			alice, p := s.toolUser(contracts.OperationFileWatch)
			alice.watches(&contracts.UtilityFileWatchStart{WatchID: "notes", IncludePatterns: []string{"**/*.md"}, DebounceMS: new(int64(50))})
			p.expect("5.4", message("utility_file_watch_started").with("watch_id", "notes"))
			alice.endsWatch("A66", "notes")
			p.expect("5.4", message("utility_file_watch_stopped").with("watch_id", "notes").with("reason", "Stopped by controller"))
		}),
		hosted.runner("hosted/disconnect", "A13 A14", "A disconnect from a runner is answered exactly", func(s *Session, _ *runner) {
			alice := s.driver()
			vera := s.guest("vera")
			vera.subscribed(nil)
			vera.leavesWith(alice.connection)
			alice.leavesWith(nil)
			s.equal("A14", "the holder of the lease", holderOf(s.state()), nil)
		}),
		hosted.scenario("hosted/disconnect-controller", "A15", "The end of a runner's controller frees the lease and keeps the replay", onRunner(disconnectController)),
		hosted.runner("hosted/suite", "A1 A2 A23 A25 A26 A27 A37", "Two controllers and a viewer take turns as on any server", func(s *Session, _ *runner) {
			alice := s.caller("alice", contracts.RoleController)
			alice.subscribed(fields{"takeControl": false}).has("A1", fields{"controller_lease_granted": true})
			vera := s.caller("vera", contracts.RoleViewer)
			vera.subscribed(nil).has("A2", fields{"controller_lease_granted": false, "controller_connection_id": alice.connection})
			vera.post(&contracts.Prompt{Content: "x"}).refused("A37", contracts.CodeAccessDenied, textViewer)
			bob := s.caller("bob", contracts.RoleController)
			bob.subscribe(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
			bob.subscribed(fields{"takeControl": true})
			alice.heartbeat(nil).ok("A26").has("A26", fields{"controller_lease_granted": false})
			alice.post(&contracts.Prompt{Content: "x"}).refused("A27", contracts.CodeControllerLeaseHeld, textNotHolder)
			bob.prompt("hello")
			s.follow("judge", follow{cursor: new(int64)}).expect("A43", prompted("hello"))
		}),
	}
}

// identity asks a runner who it is, which must say so.
func (s *Session) identity() *Answer {
	a := s.askIdentity()
	s.failIf(a.Status != http.StatusOK,
		"5.3:ownerless", "expected an identity of a runner without an owner generation, got %s", a.said())
	return a
}

// askIdentity asks for the identity. A published server has none without an owner
// generation.
func (s *Session) askIdentity() *Answer {
	a := s.get(identityPath)
	if a.Status == http.StatusNotFound && !s.runners[len(s.runners)-1].owned {
		s.advise("5.3:ownerless", "expected an identity of a runner without an owner generation, got %s", a.said())
		return a
	}
	a.ok("5.3").shaped("A85", "RunnerIdentity")
	return a.uncached("A85:cache")
}

func (a *Answer) uncached(rule string) *Answer {
	got := a.Header.Get("Cache-Control")
	a.s.adviseIf(!strings.Contains(got, "no-store"), rule, "%s: expected Cache-Control no-store, got %q", a.what(), got)
	return a
}

func (s *Session) isReady(rule string, ready, draining bool) *Answer {
	a := s.askIdentity()
	if a.Status == http.StatusOK { // else there is advice about it already
		a.has(rule, fields{"ready": ready, "draining": draining})
	}
	return a
}

func withOwner() start {
	return start{env: map[string]string{"MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID": "gen_9"}}
}

func (a *Answer) about() map[string]any {
	details := listOf(&a.Frame, "details")
	if len(details) == 0 || details[0]["domain"] != "maestro.hosted_runner" {
		a.s.advise("5.4:metadata", "%s: expected details of maestro.hosted_runner, got %s", a.what(), a.said())
		return nil
	}
	m, _ := details[0]["metadata"].(map[string]any)
	return m
}

const ownerHeader = "X-Maestro-Owner-Instance-Id"

// onRunner tells a story of any server over HTTP to a hosted runner.
func onRunner(story func(*Session)) func(*Session) {
	return func(s *Session) {
		s.spawned(start{})
		story(s)
	}
}
