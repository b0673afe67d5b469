package conformance

import (
	"net/http"
	"os"
	"strings"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// hosting judges what a hosted runner is bound to: A85, A88, A111, 5.3, 5.4, 6.1.
func hosting() []Scenario {
	hosted := Needs{Transport: Hosted}
	exec := Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}
	return []Scenario{
		hosted.scenario("hosted/ready-line", "6.1", "The first line on standard output says where the runner is", func(s *Session) {
			s.spawned(start{}) // checks the line
			s.require(s.ID == boundSession, "6.1", "expected session %s in the ready line, got %q", boundSession, s.ID)
			if got := s.state().str("session_id"); got != boundSession { // the port accepts connections
				s.fail("6.1", "expected the state of %s, got that of %q", boundSession, got)
			}
		}),
		hosted.scenario("hosted/stops-on-eof", "6.1", "The end of standard input ends the runner within a second, without a drain", func(s *Session) {
			r := s.spawned(start{})
			s.driver().prompt("hello")
			p := s.follow("vera", follow{})
			p.begins("A42")
			r.stop("6.1", exitTime) // one second by the contract; machines differ
			files := s.manifests(r)
			s.require(len(files) == 0, "6.1", "expected no drain when standard input ends, got %q", files)
		}),
		hosted.scenario("hosted/identity", "A85 5.3", "The identity says who and how, and nothing else", func(s *Session) {
			s.spawned(start{})
			a := s.isReady("5.3", true, false)
			if got := show(a.Body); a.Status == http.StatusOK && got != `{"draining":false,"protocol_version":"evalops.remote-runner.identity.v1","ready":true,"runner_session_id":"`+runnerID+`"}` {
				s.fail("A85", "expected version, runner session and readiness alone, got %s", got)
			}
		}),
		hosted.scenario("hosted/identity-owner", "5.3", "A configured owner generation is in the identity", func(s *Session) {
			s.spawned(withOwner())
			s.equal("5.3", s.isReady("5.3", true, false).str("owner_instance_id"), "gen_9", "owner_instance_id gen_9")
		}),
		hosted.scenario("hosted/ready", "1.13", "A fresh runner is ready and lives", func(s *Session) {
			s.spawned(start{})
			readiness(s)
			health(s)
		}),
		hosted.scenario("hosted/one-session", "A88 5.4", "Another session is somebody else's, on every route", func(s *Session) {
			s.spawned(withOwner())
			alice := s.controllerOnly()
			before := s.state().Cursor
			requests := []request{{method: http.MethodPost, path: connectionsPath, body: encode(fields{"sessionId": "sess_other"})},
				{method: http.MethodPost, path: sessionsPath, body: encode(fields{"sessionId": "sess_other"})}}
			for _, route := range []string{"", "state", "events"} {
				requests = append(requests, request{method: http.MethodGet, path: routeOf("sess_other", route)})
			}
			for route, body := range plausible {
				requests = append(requests, request{method: http.MethodPost, path: routeOf("sess_other", route), header: alice.identity(), body: encode(body)})
			}
			for _, r := range requests {
				r.who = "mallory"
				a := s.call(r).refused("A88", contracts.CodeRuntimeOwnedElsewhere, "")
				about := a.about()
				for key, want := range map[string]string{"runner_session_id": runnerID, "owner_instance_id": "gen_9", "workspace_id": workspaceID,
					"agent_run_id": agentRunID, "maestro_session_id": boundSession, "requested_maestro_session_id": "sess_other"} {
					if got := about[key]; got != want {
						s.advise("5.4:metadata", "%s: expected %s %q in the metadata, got %s", a.what(), key, want, show(got))
					}
				}
			}
			if after := s.state().Cursor; after != before {
				s.fail("A88", "expected another session's calls to do nothing, but the cursor went from %d to %d", before, after)
			}
		}),
		hosted.scenario("hosted/session-omitted", "1.6 1.1", "Without a session id the bound session is meant", func(s *Session) {
			s.spawned(start{})
			a := s.put(connectionsPath, fields{}).ok("1.6:bound")
			s.equal("1.6:bound", a.str("session_id"), boundSession, "the bound session %s", boundSession)
			for _, f := range []fields{{}, {"sessionId": boundSession}} {
				s.equal("1.1:sessions", s.put(sessionsPath, f).ok("1.1:sessions").shaped("1.7", shape.Body[contracts.Snapshot]).str("session_id"), boundSession,
					"the bound session %s", boundSession)
			}
		}),
		hosted.scenario("hosted/workspace-root", "5.4", "A client may name the runner's workspace, and no other", func(s *Session) {
			r := s.spawned(start{})
			attach := func(root string) *Answer {
				return s.put(connectionsPath, fields{"role": "viewer", "workspaceRoot": root})
			}
			attach(r.workspace).ok("5.4:workspace")
			attach(r.workspace + "/../" + r.workspace[strings.LastIndex(r.workspace, "/")+1:]).ok("5.4:workspace")
			if a := attach(s.scratch()); a.Status != http.StatusConflict {
				s.fail("5.4:workspace", "expected another workspace to be a conflict, got %s", a.said())
			}
			if a := attach(r.workspace + "/no-such-directory"); a.Status != http.StatusBadRequest {
				s.fail("5.4:workspace", "expected a missing workspace to be a bad request, got %s", a.said())
			}
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
			if err := os.Rename(r.workspace, away); err != nil {
				s.fail("5.3:workspace", "%v", err)
			}
			s.dirs = append(s.dirs, away)
			s.isReady("5.3:workspace", false, false)
			if err := os.Rename(away, r.workspace); err != nil {
				s.fail("5.3:workspace", "%v", err)
			}
			s.isReady("5.3:workspace", true, false)
		}),
		Needs{Transport: Hosted, Operation: contracts.OperationFileRead}.scenario("hosted/workspace", "A77 R96", "The runner's files are read, found and kept inside the workspace", func(s *Session) {
			s.spawned(start{})
			alice, p := s.toolUser(contracts.OperationFileSearch)
			secret := s.scratch() + "/secret.txt"
			s.write(secret, []byte("secret\n"))
			two := int64(2)
			alice.posted("R96", &contracts.UtilityFileRead{ReadID: "notes", Path: "notes.md", Limit: &two})
			p.expect("R96", message("utility_file_read_result").with("read_id", "notes").with("relative_path", "notes.md").
				with("content", "alpha\nbeta").with("truncated", true))
			a := alice.post(&contracts.UtilityFileRead{ReadID: "secret", Path: secret}).refused("A77", contracts.CodeWorkspaceViolation, "")
			s.require(strings.Contains(a.str("error"), "outside"),
				"A77", "expected the refusal to say outside, got %q", a.str("error"))
			alice.posted("R95", &contracts.UtilityFileSearch{SearchID: "notes", Query: "notes"})
			f := p.expect("R95", message("utility_file_search_results").with("search_id", "notes"))
			if results := listOf(f, "results"); len(results) == 0 || !strings.HasSuffix(textOf(results[0], "path"), "notes.md") {
				s.fail("R95", "expected notes.md to be found, got %s", show(f.at("results")))
			}
		}),
		hosted.scenario("hosted/heartbeats", "1.13", "Heartbeats of a runner say who drives and until when", onRunner(heartbeatAnswer)),
		hosted.scenario("hosted/counts", "4.2", "A runner counts connections and subscriptions", onRunner(func(s *Session) {
			s.driver()
			s.guest("vera").subscribed(nil)
			f := s.state()
			for _, key := range []string{"state.connection_count", "state.subscriber_count"} {
				s.require(same(f.at(key), 2), "4.2", "expected %s 2, got %s", key, show(f.at(key)))
			}
		})),
		hosted.scenario("hosted/init", "1.12 R35", "A runner keeps an init whole, and says it", onRunner(postInit)),
		hosted.scenario("hosted/stream", "A42", "A runner's stream without a cursor begins with a snapshot, then lives", onRunner(streamSnapshotFirst)),
		hosted.scenario("hosted/replay", "A43", "Cursor 0 yields a runner's whole journal", onRunner(returnToStart)),
		hosted.scenario("hosted/missed-items", "A43", "A cursor yields exactly what was missed at a runner", onRunner(returnToMissed)),
		hosted.scenario("hosted/negative-cursor", "A45", "A negative cursor yields a reset of a runner's stream", onRunner(returnReset("A45", func(*Frame, string) (int64, string) { return -999, "" }))),
		hosted.scenario("hosted/denial", "A67 A68", "A denial ends a runner's question with its reason, after it", onRunner(postDenial)),
		exec.scenario("hosted/command", "R84 R85", "A runner runs commands and says so", onRunner(toolCommand)),
		exec.scenario("hosted/command-listed", "A66 R86", "A command is in a runner's state with its owner", onRunner(toolCommandListed)),
		Needs{Transport: Hosted, Operation: contracts.OperationFileWatch}.scenario("hosted/watch", "A66 5.4", "A runner watches files, and stops", onRunner(func(s *Session) {
			alice, p := s.toolUser(contracts.OperationFileWatch)
			debounce := int64(50)
			watches := func(a *Answer) []map[string]any { return listOf(a.effect(), "state.active_file_watches") }
			list := watches(alice.posted("A66", &contracts.UtilityFileWatchStart{WatchID: "notes", IncludePatterns: []string{"**/*.md"}, DebounceMS: &debounce}))
			s.require(len(list) == 1 && list[0]["watch_id"] == "notes" && list[0]["owner_connection_id"] == alice.connection,
				"A66", "expected the watch with its owner %s in the answer, got %s", alice.connection, show(list))
			p.expect("5.4", message("utility_file_watch_started").with("watch_id", "notes"))
			if list := watches(alice.posted("A66", &contracts.UtilityFileWatchStop{WatchID: "notes"})); len(list) != 0 {
				s.fail("A66", "expected no watch after the stop, got %s", show(list))
			}
			p.expect("5.4", message("utility_file_watch_stopped").with("watch_id", "notes").with("reason", "Stopped by controller"))
		})),
		hosted.scenario("hosted/disconnect", "A13 A14", "A disconnect from a runner is answered exactly", onRunner(func(s *Session) {
			alice := s.driver()
			vera := s.guest("vera")
			vera.subscribed(nil)
			for _, c := range []*Caller{vera, alice} {
				controller := any(nil)
				if c == vera {
					controller = alice.connection
				}
				want := show(map[string]any{"success": true, "connection_id": c.connection, "controller_connection_id": controller,
					"disconnected_subscription_ids": []any{c.subscription}})
				if got := show(c.disconnect(nil).ok("A13").Body); got != want {
					s.fail("A13", "expected %s, got %s", want, got)
				}
			}
			s.equal("A14", holderOf(s.state()), nil, "nobody to hold the lease")
		})),
		hosted.scenario("hosted/disconnect-controller", "A15", "The end of a runner's controller frees the lease and keeps the replay", onRunner(disconnectController)),
		hosted.scenario("hosted/suite", "A1 A2 A23 A25 A26 A27 A37", "Two controllers and a viewer take turns as on any server", func(s *Session) {
			s.spawned(start{})
			alice := s.caller("alice", contracts.RoleController)
			if a := alice.subscribed(fields{"takeControl": false}); a.at("controller_lease_granted") != true {
				s.fail("A1", "expected the lease of a free session, got %s", a.said())
			}
			vera := s.caller("vera", contracts.RoleViewer)
			if a := vera.subscribed(nil); a.at("controller_lease_granted") != false || a.at("controller_connection_id") != alice.connection {
				s.fail("A2", "expected a viewer beside %s, got %s", alice.connection, a.said())
			}
			vera.post(&contracts.Prompt{Content: "x"}).refused("A37", contracts.CodeAccessDenied, textViewer)
			bob := s.caller("bob", contracts.RoleController)
			bob.subscribe(nil).refused("A23", contracts.CodeControllerLeaseHeld, textHeld)
			bob.subscribed(fields{"takeControl": true})
			if a := alice.heartbeat(nil).ok("A26"); a.at("controller_lease_granted") != false {
				s.fail("A26", "expected the lease to be gone, got %s", a.said())
			}
			alice.post(&contracts.Prompt{Content: "x"}).refused("A27", contracts.CodeControllerLeaseHeld, textNotHolder)
			bob.prompt("hello")
			zero := int64(0)
			p := s.follow("judge", follow{cursor: &zero})
			p.expect("A43", message("status").with("message", "Prompt: hello"))
		}),
	}
}

// identity asks a runner who it is, which must say so.
func (s *Session) identity() *Answer {
	a := s.askIdentity()
	s.require(a.Status == http.StatusOK,
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
	a.ok("5.3").shaped("A85", shape.Body[shape.Identity])
	return a.uncached("A85:cache")
}

// uncached fails unless an answer is not to be kept.
func (a *Answer) uncached(rule string) *Answer {
	got := a.Header.Get("Cache-Control")
	a.s.prefer(strings.Contains(got, "no-store"), rule, "%s: expected Cache-Control no-store, got %q", a.what(), got)
	return a
}

// isReady fails unless the identity shows readiness and draining as given.
func (s *Session) isReady(rule string, ready, draining bool) *Answer {
	a := s.askIdentity()
	if a.Status != http.StatusOK { // there is advice about it already
		return a
	}
	s.require(a.at("ready") == ready && a.at("draining") == draining,
		rule, "expected ready %t and draining %t, got %s", ready, draining, a.said())
	return a
}

// withOwner starts a runner of an owner generation.
func withOwner() start {
	return start{env: map[string]string{"MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID": "gen_9"}}
}

// about returns the metadata in a refusal.
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
