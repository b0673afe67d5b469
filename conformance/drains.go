package conformance

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
)

// drains judges how a hosted runner stops: A89 to A103, and 5.5.
func drains() []Scenario {
	hosted, seed := Needs{Transport: Hosted}, Needs{Transport: Hosted, Seed: true}
	return []Scenario{
		hosted.runner("drain/answer", "A90", "A drain answers the manifest, and the file says the same", func(s *Session, _ *runner) {
			s.driver().prompt("hello")
			a := s.drain("A90", platformDrain)
			a.has("A90", fields{"status": "drained", "runner_session_id": runnerID, "reason": "ttl_expired", "requested_by": "platform"})
			path := a.str("manifest_path")
			s.failIf(!filepath.IsAbs(path), "A90", "expected an absolute manifest_path, got %q", path)
			file := s.readManifest("A90", path)
			s.failIf(!reflect.DeepEqual(any(file), a.at("manifest")),
				"A90", "expected the file to say what the answer says, got %s and %s", show(file), show(a.at("manifest")))
		}),
		hosted.runner("drain/manifest", "A91 A102", "The manifest says what was drained, and where to go on", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			before := s.state().Cursor
			a := s.drain("A91", platformDrain)
			manifest := manifestIn(a)
			s.shows("A91", manifest, fields{"runner_session_id": runnerID, "workspace_id": workspaceID, "agent_run_id": agentRunID,
				"maestro_session_id": boundSession, "reason": "ttl_expired", "requested_by": "platform", "workspace_root": r.workspace,
				"runtime.flush_status": "completed", "runtime.session_id": boundSession, "runtime.protocol_version": contracts.ProtocolVersion,
				"runtime.error": nil, "snapshot.session_id": boundSession, "snapshot.state.is_ready": true, "snapshot.state.is_responding": false})
			c, inSnapshot := cursorIn(a), a.at("manifest.snapshot.cursor")
			s.failIf(c <= 0, "A91", "expected a cursor after activity, got %s", show(manifest.at("runtime")))
			s.adviseIf(c <= before || c != numberOf(inSnapshot),
				"5.5:cursor", "expected one cursor beyond %d for runtime and snapshot, got %d and %s", before, c, show(inSnapshot))
			instant(s, "5.6", a.at("manifest.created_at"))
			const policy = `{"managed_by":"platform","policy_version":"evalops.remote-runner.retention.v1",` +
				`"redaction":{"forbidden_plaintext":["provider_credentials","tool_secrets","attach_tokens","artifact_access_tokens","raw_environment"],` +
				`"required_before_external_persistence":["runtime_snapshot","runtime_logs"]},` +
				`"visibility":{"control_plane_metadata":"operator","runtime_logs":"operator","runtime_snapshot":"internal","workspace_export":"tenant"}}`
			got := string(encode(manifest.at("retention_policy")))
			s.failIf(got != policy, "A102", "expected the fixed retention policy, got %s", got)
			for _, key := range []string{"manifest_version", "status", "snapshot_root", "snapshot_path", "stop_reason"} {
				v, present := manifest.Fields[key]
				s.failIf(present, "A102", "expected no %s in the manifest, got %s", key, show(v))
			}
		}),
		hosted.runner("drain/no-activity", "A92", "Without activity the flush is skipped, and there is no cursor to go on from", func(s *Session, _ *runner) {
			a := s.drain("A92", nil).has("A92", fields{"status": "drained", "manifest.runtime.flush_status": "skipped"})
			for _, key := range []string{"cursor", "protocol_version", "error"} {
				v := a.at("manifest.runtime." + key)
				s.adviseIf(v != nil, "A92:cursor", "expected no runtime.%s after no activity, got %s", key, show(v))
			}
			ready := a.at("manifest.snapshot.state.is_ready")
			s.adviseIf(ready != false, "5.5:quiet", "expected is_ready true in the manifest only after a completed flush, got %s", show(ready))
			for _, key := range []string{"reason", "requested_by"} {
				v, present := a.Body[key]
				s.failIf(present && (v != nil || !s.published()), "5.5", "expected no %s that nobody gave, got %s", key, show(v))
			}
		}),
		hosted.runner("drain/export-paths", "A94", "Export paths are resolved; the workspace is the default", func(s *Session, r *runner) {
			for _, dir := range []string{"sub", "..cache"} {
				s.must("A94", os.Mkdir(filepath.Join(r.workspace, dir), 0o700))
			}
			s.must("A94", os.Symlink("notes.md", filepath.Join(r.workspace, "link.md")))
			notes := filepath.Join(r.workspace, "notes.md")
			a := s.drain("A94", fields{"export_paths": []string{"notes.md", "sub", notes, "link.md", "..cache", "sub/../notes.md"}})
			want := []string{"notes.md notes.md file " + notes, "sub sub directory " + filepath.Join(r.workspace, "sub"), notes + " notes.md file " + notes,
				"link.md notes.md file " + notes, "..cache ..cache directory " + filepath.Join(r.workspace, "..cache"), "sub/../notes.md notes.md file " + notes}
			got := exported(a)
			s.failIf(!slices.Equal(got, want), "A94", "expected the exports %q, got %q", want, got)
			for _, c := range []struct {
				rule string
				body any
			}{{"A94", nil}, {"A94", fields{}}, {"A94:empty", fields{"export_paths": nil}}, {"A94:empty", fields{"export_paths": []string{}}}} {
				want := ". . directory " + s.spawned(start{}).workspace
				got := exported(s.drain(c.rule, c.body))
				s.adviseIf(!slices.Equal(got, []string{want}),
					c.rule, "expected the workspace %q as the default export for %s, got %q", want, show(c.body), got)
			}
		}),
		hosted.runner("drain/escaping-export", "A95", "An export path that leaves the workspace is refused, and nothing has changed", func(s *Session, r *runner) {
			outside := s.Scratch()
			s.must("A95", os.Symlink(outside, filepath.Join(r.workspace, "out")))
			before := s.state()
			for _, path := range []string{"..", "../x", "/etc", outside, "out", r.workspace + "-sibling/../" + filepath.Base(outside)} {
				s.tryDrain(fields{"export_paths": []string{"notes.md", path}}).refused("A95", contracts.CodeWorkspaceViolation, "")
			}
			s.nothingDrained("A95:unchanged", r, before)
			a := s.tryDrain(fields{"export_paths": []string{"no-such-file"}}).refused("5.5:missing", contracts.CodeBadRequest, "")
			s.adviseIf(!strings.HasPrefix(a.str("error"), "Export path is unavailable: "),
				"5.5:words", "expected the text to say that the path is unavailable, got %q", a.str("error"))
			s.isReady("A95:unchanged", true, false)
		}),
		hosted.runner("drain/bad-body", "5.5 A75", "A malformed order is refused, saying what is wrong, and nothing has changed", func(s *Session, r *runner) {
			before := s.state()
			for body, text := range map[string]string{`{"reason":7}`: "reason must be a string", `{"requested_by":[]}`: "requested_by must be a string",
				`{"export_paths":["a","b",""]}`: "export_paths[2] must be a non-empty string", `{"export_paths":[7]}`: "export_paths[0] must be a non-empty string",
				`{"export_paths":["a\u0000b"]}`: "export_paths[0]", `[1]`: "Drain payload must be a JSON object", `"now"`: "Drain payload must be a JSON object",
				`{`: "", `{"export_paths":"notes.md"}`: "export_paths"} {
				a := s.tryDrain([]byte(body)).refused("5.5", contracts.CodeBadRequest, "")
				s.adviseIf(!strings.Contains(a.str("error"), text), "5.5:words", "expected the refusal of %s to say %q, got %q", body, text, a.str("error"))
			}
			s.tryDrain(fields{"reason": strings.Repeat("x", 70_000)}).refused("A75", contracts.CodePayloadTooLarge, "")
			s.nothingDrained("A95:unchanged", r, before)
		}),
		hosted.runner("drain/streams", "A96", "Open streams show the drained state and end", func(s *Session, _ *runner) {
			alice, own := s.attached()
			vera := s.onlooker("vera")
			alice.prompt("hello")
			a := s.drain("A96", nil)
			for _, p := range []*Peer{own, vera} {
				f := p.expect("A96", drainedSnapshot())
				s.adviseIf(f.Cursor != cursorIn(a),
					"5.5:cursor", "expected the final snapshot at the manifest's cursor %d, got %d", cursorIn(a), f.Cursor)
				p.fades("A96:ends")
			}
		}),
		hosted.runner("drain/refuses", "A89 A97 A74", "A drained runner takes no attachment and no message, and can be looked at", func(s *Session, _ *runner) {
			alice := s.driver()
			alice.prompt("hello")
			cursor := cursorIn(s.drain("A97", nil))
			for _, a := range []*Answer{s.put(connectionsPath, fields{"role": "viewer"}), s.put(connectionsPath, fields{"sessionId": boundSession}),
				s.put(s.route("subscribe"), fields{"role": "viewer"}), alice.connect(nil)} {
				a.refused("A89", contracts.CodeRuntimeNotReady, textNotAttaching)
				about := a.about()
				s.adviseIf(about["draining"] != "true" || about["runner_session_id"] != runnerID,
					"5.4:metadata", "%s: expected metadata with draining \"true\", got %s", a.what(), a.said())
				s.adviseIf(a.at("retryable") != true, "1.4:retryable", "%s: expected retryable to be true, got %s", a.what(), a.said())
			}
			alice.post(&contracts.Prompt{Content: "late"}).refused("A97", contracts.CodeRuntimeNotReady, textDraining)
			// That it drains is said before whose a session is.
			s.put(connectionsPath, fields{"sessionId": "sess_other"}).refused("5.4:draining", contracts.CodeRuntimeNotReady, textNotAttaching)
			s.stateOf(s.ID).ok("A97:inspection")
			f := s.state()
			s.failIf(f.at("state.is_ready") != false || f.str("state.last_status") != "Drained" || f.Cursor > cursor,
				"A97", "expected the drained state as of %d, got %s", cursor, abridge(f.Raw, maxTraceText))
			s.follow("vera", follow{}).expect("A97:inspection", drainedSnapshot())
			alice.heartbeat(nil).ok("A97:inspection")
			alice.disconnect(nil).ok("A97:inspection")
		}),
		hosted.runner("drain/readiness", "1.13 5.3", "A drained runner is not ready, says why, and lives", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			drained := s.drain("1.13", platformDrain)
			a := s.get(readyPath).notReady("1.13")
			s.adviseIf(!a.matches(fields{"ok": false, "ready": false, "draining": true, "code": contracts.CodeRuntimeNotReady}),
				"1.13:ready", "expected 503 with ready false, draining true and runtime_not_ready, got %s", a.said())
			s.adviseIf(strings.Contains(string(a.Raw), r.workspace), "1.13:ready", "expected no paths in readiness, got %s", a.said())
			health(s)
			if id := s.isReady("5.3", false, true); id.Status == http.StatusOK { // else there is advice about it already
				id.has("5.3:drained", fields{"drain_status": "drained", "drain_manifest_path": drained.str("manifest_path")})
				instant(s, "5.3:drained", id.at("drained_at"))
			}
		}),
		hosted.runner("drain/repeated", "A98", "A second drain is the first one", func(s *Session, r *runner) {
			s.driver().prompt("hello")
			first := s.drain("A98", platformDrain)
			second := s.drain("A98", fields{"reason": "another"})
			s.failIf(!reflect.DeepEqual(first.Body, second.Body), "A98", "expected the first result again, got %s", second.said())
			before, again := first.Header.Get("X-Maestro-Drain-Replayed"), second.Header.Get("X-Maestro-Drain-Replayed")
			s.failIf(before != "" || again != "true",
				"A98", "expected X-Maestro-Drain-Replayed on the second answer alone, got %q and %q", before, again)
			s.tryDrain(fields{"export_paths": []string{"../x"}}).refused("A98", contracts.CodeWorkspaceViolation, "")
			s.onlyManifest("A98", r)
		}),
		hosted.runner("drain/concurrent", "A99", "Ten drains at once are one", func(s *Session, r *runner) {
			s.driver().prompt(hang())
			answers := s.together(slices.Repeat([]request{s.draining(platformDrain)}, 10)...)
			for _, a := range answers {
				s.drained("A99", a.ok("A99"))
				s.failIf(!reflect.DeepEqual(a.Body, answers[0].Body),
					"A99", "expected ten equal answers, got %s and %s", answers[0].said(), a.said())
			}
			s.onlyManifest("A99", r)
		}),
		hosted.runner("drain/nothing-after", "A100", "Nothing is shown beyond the manifest's cursor, though the agent was speaking", func(s *Session, _ *runner) {
			alice, own := s.attached()
			vera := s.onlooker("vera")
			alice.prompt(speaking())
			expectAll("R36", message("response_chunk"), own, vera)
			a := s.drain("A100", nil)
			for _, p := range []*Peer{own, vera} {
				p.expect("A96", drainedSnapshot())
				p.fades("A96:ends")
				for _, f := range p.log {
					s.failIf(f.Cursor > cursorIn(a),
						"A100", "%s: expected nothing beyond the manifest's cursor %d, got %s", p.name, cursorIn(a), abridge(f.Raw, maxTraceText))
				}
				s.failIf(!slices.ContainsFunc(p.log, message("response_end").ok),
					"5.5", "%s: expected the response to be ended by the drain", p.name)
			}
			s.shows("5.5", manifestIn(a), fields{"snapshot.state.is_responding": false, "snapshot.state.current_response": nil})
		}),
		hosted.runner("drain/announced", "5.5", "A drain is announced with its reason", func(s *Session, _ *runner) {
			alice, p := s.attached()
			alice.prompt("hello")
			s.drain("5.5", platformDrain)
			p.expect("5.5:announced", message("status").with("message", "Hosted runner is draining: ttl_expired"))
			p.expect("A96", drainedSnapshot()) // after that
		}),
		seed.runner("drain/questions", "5.5 D8", "A drain cancels a question in the open or keeps it for the restored runner, and its manifest is quiet", func(s *Session, r *runner) {
			alice, stream := s.attached()
			alice.ask(contracts.RequestApproval, "open")
			alice.prompt(hang())
			p := s.pauseNow(r, stream.epoch, stream)
			cancelled := slices.ContainsFunc(stream.log, resolved("open").
				with("resolution", "cancelled").with("resolved_by", "runtime").ok)
			s.quietManifest(p.manifest, !cancelled)
			s.resumed(p)
			waits := pending(s.state(), "open")
			s.failIf(waits == cancelled,
				"D8", "expected a question either to be cancelled by the drain or to wait after the restore, got cancelled %t and waiting %t", cancelled, waits)
			bob := s.caller("bob", contracts.RoleController)
			bob.connected(nil)
			if a := bob.post(approve("open", true)); cancelled {
				a.refused("D8", contracts.CodeRequestNotFound, "")
			} else {
				s.failIf(pending(a.ok("D8").snapshot(), "open"), "D8", "expected the answer after the restore to end the question")
			}
		}),
		Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}.runner("drain/stops-commands", "5.5", "A drain stops commands and watches", func(s *Session, _ *runner) {
			alice, p := s.toolUser(contracts.OperationFileWatch)
			alice.start("5.5:stops", "busy", "sleep 600")
			alice.posted("5.5:stops", &contracts.UtilityFileWatchStart{WatchID: "busy"})
			a := s.drain("5.5:stops", nil)
			exited := p.await("5.5:stops", 0, message("utility_command_exited").with("command_id", "busy").with("success", false))
			p.await("5.5:stops", 0, message("utility_file_watch_stopped").with("watch_id", "busy"))
			end := p.await("A96", 0, drainedSnapshot())
			s.failIf(exited.Cursor > min(end.Cursor, cursorIn(a)),
				"5.5:stops", "expected the command's end before the final snapshot, got cursors %d and %d", exited.Cursor, end.Cursor)
		}),
		hosted.runner("drain/flush-fails", "A93 5.5", "A failing flush is an interrupted drain, with a manifest, and can be tried again", func(s *Session, r *runner) {
			alice, p := s.attached()
			alice.breakFlush()
			a := s.tryDrain(platformDrain)
			s.failIf(a.Status != http.StatusServiceUnavailable || a.str("status") != "interrupted",
				"A93", "expected 503 with status interrupted, got %s", a.said())
			s.drained("A93", a)
			s.failIf(a.str("manifest.runtime.flush_status") != "failed" || !strings.Contains(a.str("manifest.runtime.error"), "the disk is full"),
				"A93", "expected flush failed with its error, got %s", show(a.at("manifest.runtime")))
			s.shows("5.5", manifestIn(a), fields{"snapshot.state.is_ready": false})
			s.readManifest("A93", a.str("manifest_path"))
			p.expect("5.5", control("snapshot").with("state.is_ready", false).with("state.last_status", "Drain interrupted before runtime flush completed"))
			s.drain("5.5", platformDrain).has("5.5", fields{"status": "drained"}) // the second attempt
			files := s.manifests(r)
			s.failIf(len(files) != 2, "5.5", "expected a manifest of each attempt, got %q", files)
		}),
		hosted.scenario("drain/manifest-name", "A101", "The manifest lies in the snapshot root, whatever the runner is called", func(s *Session) {
			for _, id := range []string{"../x", "a/b c:d.e", "..", "ünïcode"} {
				root := filepath.Join(s.Scratch(), "snapshots")
				s.spawned(start{env: map[string]string{"MAESTRO_RUNNER_SESSION_ID": id, "MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT": root}})
				path := s.drain("A101", nil).str("manifest_path")
				s.failIf(filepath.Dir(path) != root, "A101", "expected the manifest of %q directly in the snapshot root, got %s", id, path)
				name := filepath.Base(path)
				s.adviseIf(name[0] == '.', "A101:hidden", "expected a file that is not hidden for %q, got %q", id, name)
				s.failIf(!plainName.MatchString(name), "A101", "expected a plain file name for %q, got %q", id, name)
				s.readManifest("A101", path)
			}
		}),
		hosted.runner("drain/atomic", "A103", "The manifest has its name only when it is complete", func(s *Session, r *runner) {
			s.driver().prompt(burstOf(1000, 500)) // for a state that takes a moment to write
			done := s.startDrain(nil)
			for {
				for _, name := range s.manifests(r) {
					if name[0] != '.' {
						s.readManifest("A103", filepath.Join(r.snapshots(), name))
					}
				}
				select {
				case a := <-done:
					s.finishDrain("A103", a)
					return
				case <-time.After(time.Millisecond):
				}
			}
		}),
		Needs{Transport: Hosted, Seed: true, Asks: []contracts.RequestType{contracts.RequestClientTool}}.runner("drain/evidence", "5.6", "The manifest says what was under way, for the control plane", func(s *Session, _ *runner) {
			alice := s.driver()
			alice.ask(contracts.RequestApproval, "open")
			alice.ask(contracts.RequestClientTool, "open-too")
			a := s.drain("5.6", platformDrain)
			s.shows("5.6", manifestIn(a), fields{"work_continuity.protocol_version": "evalops.remote-runner.work-continuity.v1",
				"work_continuity.pending_request_count": 2, "platform_evidence.protocol_version": "evalops.remote-runner.platform-evidence.v1",
				"platform_evidence.event_type": "hosted_runner_drain_manifest_recorded", "platform_evidence.runner_session_id": runnerID,
				"platform_evidence.maestro_session_id": boundSession, "platform_evidence.status": "drained",
				"platform_evidence.runtime_flush_status": "completed", "platform_evidence.manifest_path": a.at("manifest_path"),
				"platform_evidence.created_at": a.at("manifest.created_at"), "platform_evidence.work_continuity.codex_subagent_edge_count": 0,
				"platform_evidence.work_continuity.pending_request_count":       2,
				"platform_evidence.retention.runtime_snapshot_visibility":       "internal",
				"platform_evidence.retention.control_plane_metadata_visibility": "operator"})
			for path, want := range map[string]string{"work_continuity.codex_subagent_child_run_ids": "[]",
				"platform_evidence.evidence_refs": `["remote-runner://sessions/` + runnerID + `/drain#manifest",` +
					`"maestro://headless/sessions/` + boundSession + `#drain","platform-agent-run:` + agentRunID + `"]`} {
				got := string(encode(a.at("manifest." + path)))
				s.failIf(got != want, "5.6", "expected %s %s in the manifest, got %s", path, want, got)
			}
		}),
	}
}

// drainTime is how long a drain may take: its flush has 20 s by default.
func (s *Session) drainTime() time.Duration { return 20*time.Second + s.exitTime() }

// draining is the request for a drain. A body of bytes is sent as it is.
func (s *Session) draining(body any) request {
	r := request{who: "platform", method: http.MethodPost, path: drainPath, patience: s.drainTime()}
	switch body := body.(type) {
	case nil:
	case []byte:
		r.body = body
	default:
		r.body = encode(body)
	}
	return r
}

func (s *Session) tryDrain(body any) *Answer { return s.call(s.draining(body)) }

// drain drains the runner and checks the answer.
func (s *Session) drain(rule string, body any) *Answer {
	return s.drained(rule, s.tryDrain(body).ok(rule))
}

// startDrain orders a drain and returns where its answer will come: nil if there is none
// in time.
func (s *Session) startDrain(body any) <-chan *Answer {
	done := make(chan *Answer, 1)
	ctx, cancel := s.within(s.drainTime())
	go func() { // ends with the drain or ctx
		defer cancel()
		a, _ := s.send(ctx, s.draining(body))
		done <- a
	}()
	return done
}

func (s *Session) finishDrain(rule string, a *Answer) {
	s.failIf(a == nil, rule, "expected an answer to the drain within %s", s.drainTime())
	a.check()
	s.drained(rule, a.ok(rule))
}

func (s *Session) drained(rule string, a *Answer) *Answer {
	a.shaped(rule, "DrainAnswer")
	manifest, profile := a.Body["manifest"], s.config.Profile
	s.checkShape(rule, "the manifest", shape.OpenBody("Manifest", manifest, profile), show(manifest))
	snapshot := manifest.(map[string]any)["snapshot"] // the shape was checked
	s.checkShape("A91", "the manifest's snapshot", shape.Body("Snapshot", snapshot, profile), show(snapshot))
	a.uncached("5.5:cache")
	return a
}

func cursorIn(a *Answer) int64 { return numberOf(a.at("manifest.runtime.cursor")) }

func manifestIn(a *Answer) *Frame {
	m := section(a.Body, "manifest")
	return &Frame{Fields: m, Raw: encode(m)}
}

// snapshots is the directory where a runner writes manifests unless told otherwise.
func (r *runner) snapshots() string {
	return filepath.Join(r.workspace, ".maestro", "runner-snapshots")
}

// manifests lists what looks like a manifest in a runner's workspace.
func (s *Session) manifests(r *runner) []string {
	entries, err := os.ReadDir(r.snapshots())
	s.failIf(err != nil && !errors.Is(err, fs.ErrNotExist), "A101", "%v", err)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			names = append(names, e.Name())
		}
	}
	return names
}

func (s *Session) onlyManifest(rule string, r *runner) *Frame {
	files := s.manifests(r)
	s.failIf(len(files) != 1, rule, "expected one manifest, got %q", files)
	m := s.readManifest(rule, filepath.Join(r.snapshots(), files[0]))
	return &Frame{Fields: m, Raw: encode(m)}
}

// plainName is what names of manifests are made of.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (s *Session) readManifest(rule, path string) map[string]any {
	text, err := os.ReadFile(path)
	s.failIf(err != nil, rule, "expected a manifest at %s: %v", path, err)
	v, err := shape.Parse(text)
	m, isObject := v.(map[string]any)
	s.failIf(err != nil || !isObject,
		rule, "expected the manifest to be one JSON object, got %s (%v)", abridge(text, 200), err)
	return m
}

func (c *Caller) breakFlush() {
	c.prompt(trigger("flush_error", fields{"message": "the disk is full"}))
	c.finishRun()
}

// platformDrain is a drain as a control plane orders it.
var platformDrain = fields{"reason": "ttl_expired", "requested_by": "platform", "export_paths": []string{"notes.md"}}

// exported describes the exports in a manifest: input, relative path and type.
func exported(a *Answer) []string {
	entries, _ := a.at("manifest.workspace_export.paths").([]any)
	var list []string
	for _, e := range entries {
		m, _ := e.(map[string]any)
		list = append(list, textOf(m, "input")+" "+textOf(m, "relative_path")+" "+textOf(m, "type")+" "+textOf(m, "path"))
	}
	return list
}

func (s *Session) nothingDrained(rule string, r *runner, before *Frame) {
	s.isReady(rule, true, false)
	s.shows(rule, s.state(), fields{"cursor": int(before.Cursor), "state.is_ready": true})
	files := s.manifests(r)
	s.failIf(len(files) != 0, rule, "expected no manifest, got %q", files)
	s.guest("vera") // attaches
}

// drainedSnapshot wants the envelope that ends a drained session's streams.
func drainedSnapshot() want {
	return control("snapshot").with("state.is_ready", false).with("state.last_status", "Drained")
}

// fades waits until the server has ended a stream; after a drain it may take a
// few seconds (5.5).
func (p *Peer) fades(rule string) { p.finishesWithin(rule, 2*p.s.exitTime()) }

// quietManifest fails unless the snapshot in a manifest is of a session that
// nobody is attached to and that does nothing. Questions may be kept (D8), and
// with them the tools they are about.
func (s *Session) quietManifest(m map[string]any, kept bool) {
	f := &Frame{Fields: section(m, "snapshot"), Raw: encode(m["snapshot"])}
	for _, key := range append(slices.Clone(nothingGoingOn), "connections") {
		if kept && (strings.HasPrefix(key, "pending_") || key == "tracked_tools") {
			continue
		}
		list, _ := f.at("state." + key).([]any)
		s.failIf(len(list) != 0, "5.5", "expected an empty %s in the manifest, got %s", key, show(list))
	}
	for _, key := range []string{"connection_count", "subscriber_count"} {
		n := numberOf(f.at("state." + key))
		s.failIf(n != 0, "5.5", "expected %s 0 in the manifest, got %d", key, n)
	}
	s.shows("5.5", f, fields{"state.is_responding": false, "state.current_response": nil, "state.controller_connection_id": nil})
}
