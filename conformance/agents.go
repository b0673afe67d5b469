package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// everywhere, networked and tooled are the needs of scenarios about any agent:
// on every transport, where clients watch, and where the agent runs tools.
var (
	everywhere = Needs{Transport: Anywhere, Responds: true}
	networked  = Needs{Transport: Networked, Responds: true}
	tooled     = Needs{Transport: Anywhere, Responds: true, Runtime: RuntimeAny}
)

// agents judges the runs of any agent, how they are stopped, and what becomes of its
// questions: R36 to R46, R50 to R55, R65 to R69, 3.5, R19.
func agents() []Scenario {
	interrupt, cancel := &contracts.Interrupt{}, &contracts.Cancel{}
	onStdio := Needs{Transport: Stdio, Responds: true}
	return []Scenario{
		everywhere.pilot("agent/answers", "R36 R37", "A prompt leads to a response, which ends", func(_ *Session, d *pilot) {
			d.says()
			start := d.awaits("R36", message("response_start"))
			d.after("R36", start, message("response_end").with("response_id", start.str("response_id")))
			d.ends("R37")
		}),
		everywhere.pilot("agent/answers-in-turn", "R36 R37", "Each prompt has responses of its own", func(s *Session, d *pilot) {
			from := len(d.p.log)
			const prompts = 3
			for range prompts - 1 {
				d.says()
				d.awaits("R37", message("response_end"))
			}
			d.ends("R37")
			ids := map[string]bool{} // the watch refuses one that comes back
			for _, f := range d.p.log[from:] {
				if f.Type == "response_end" {
					ids[f.str("response_id")] = true
				}
			}
			s.failIf(len(ids) < prompts, "R37", "expected a response for each of %d prompts, got %d", prompts, len(ids))
		}),
		everywhere.pilot("agent/missing-attachment", "R43 R37", "An unreadable attachment costs one tool error and the prompt is answered", func(s *Session, d *pilot) {
			const name = "conformance-no-such-file.txt"
			d.decide(contracts.ApprovalAuto)
			d.send(&contracts.Prompt{Content: s.say(), Attachments: []string{name}})
			failed := d.awaits("R43", message("error").with("message", "Attachment not readable: "+name).with("error_type", "tool").with("fatal", false))
			d.after("R37", failed, message("response_end"))
			d.ends("R37")
		}),
		tooled.pilot("agent/tools", "R46", "A call is announced, runs and ends once", func(_ *Session, d *pilot) {
			began := len(d.p.log)
			d.calls()
			call := d.awaits("R46", message("tool_call")) // the watch knows the order
			d.after("R46", call, message("tool_end").with("call_id", call.str("call_id")))
			d.ends("R37")
			d.p.none("R51", began, aboutApprovals)
		}),
		tooled.pilot("agent/summary", "R38 R39 R40", "Summaries name the tools of the run, sorted, and count what ended", func(s *Session, d *pilot) {
			began := len(d.p.log)
			d.calls()
			d.ends("R37")
			var called, used []string
			ended, counted := 0, int64(0)
			for _, f := range d.p.log[began:] {
				switch f.Type {
				case "tool_call":
					called = append(called, f.str("tool"))
				case "tool_end":
					ended++
				case "response_end": // the watch knows the rest of R38 to R40
					used = append(used, texts(f.at("tools_summary.tools_used"))...)
					counted += number(f.at("tools_summary.calls_succeeded")) + number(f.at("tools_summary.calls_failed"))
				}
			}
			for _, name := range used {
				s.failIf(!slices.Contains(called, name), "R39", "expected summaries of what was called, %q, got %q", called, name)
			}
			s.failIf(counted > int64(ended) || len(used) == 0,
				"R39", "expected summaries that name the tools of a run and count at most the %d calls that ended, got %q and %d", ended, used, counted)
		}),
		everywhere.pilot("agent/busy", "R42 A71", "A prompt during a run is refused, disturbs nothing and is not kept", func(s *Session, d *pilot) {
			first := d.works()
			early := &contracts.Prompt{Content: s.say()}
			for range 2 {
				d.refused(early, busyRefusal("R42"))
			}
			d.p.none("R42", d.p.indexAfter(first), interrupted("Run interrupted by user"))
			d.tell("R42", &contracts.Interrupt{})
			end := d.cancelled("Run interrupted by user")
			d.p.still("R42", d.p.indexAfter(end), signOfWork) // which a kept prompt would show
			d.idle("R42")
			d.ends("R37")
		}),
		everywhere.pilot("agent/interrupt", "R37 R46 3.5", "interrupt ends a run with everything in it, and says so last", stopsAgent(interrupt, "Run interrupted by user")),
		everywhere.pilot("agent/cancel", "R37 R46 3.5", "cancel does so in its own words", stopsAgent(cancel, "Run cancelled by user")),
		everywhere.pilot("agent/interrupt-at-once", "R37 3.5", "interrupt ends a run that has hardly begun", func(s *Session, d *pilot) {
			d.decide(contracts.ApprovalAuto)
			d.prompt(s.long())
			d.tell("3.5", &contracts.Interrupt{})
			d.stopped("Run interrupted by user")
			d.ends("3.5")
		}),
		everywhere.pilot("agent/interrupt-then-prompt", "3.5", "A prompt right after interrupt is accepted and answered", func(s *Session, d *pilot) {
			d.works()
			d.tell("3.5", &contracts.Interrupt{})
			d.tell("3.5:held", &contracts.Prompt{Content: s.say()})
			d.after("3.5:held", d.cancelled("Run interrupted by user"), message("response_end"))
			d.p.none("3.5:held", 0, message("error").with("message", textBusy))
		}),
		everywhere.pilot("agent/interrupt-again", "R37 3.5", "Run after run can be interrupted", func(_ *Session, d *pilot) {
			for range 3 {
				d.works()
				d.tell("3.5", &contracts.Interrupt{})
				d.stopped("Run interrupted by user")
			}
			d.ends("3.5")
		}),
		everywhere.pilot("agent/interrupt-idle", "R68", "interrupt with nothing active is no error, and the next prompt is answered", func(_ *Session, d *pilot) {
			from := len(d.p.log)
			for _, cmd := range []contracts.Command{&contracts.Interrupt{}, &contracts.Cancel{}} {
				d.tell("R68", cmd)
			}
			d.says()
			d.awaits("R68", message("response_end"))
			d.tell("R68", initNothing())
			d.p.none("R68", from, message("error").with("error_type", "cancelled"))
		}),
		tooled.pilot("agent/interrupt-question", "R66 R46 3.5", "interrupt cancels the question of a run and its call, which never starts", func(s *Session, d *pilot) {
			q := d.asks()
			d.tell("R66", &contracts.Interrupt{})
			s.shows("R66", d.resolved("R66", q, "cancelled", "runtime"), fields{"reason": "Interrupted before request completed"})
			d.stopped("Run interrupted by user")
			d.notStarted(q)
			s.shows("R46", d.toolEnd(q), fields{"success": false})
			d.refused(approve(q.str("request_id"), true), unknownRefusal("R53", q.str("request_id")))
			d.ends("3.5")
		}),
		onStdio.pilot("agent/eof-in-run", "R19", "EOF during a run ends the process all the same", func(_ *Session, d *pilot) {
			d.works()
			d.p.closeInput("R19")
			d.p.exits("R19:ended", 0)
		}),
		onStdio.pilot("agent/shutdown-question", "R18 R71", "shutdown while a question waits cancels it and ends the process", func(s *Session, d *pilot) {
			q := d.asks()
			d.p.command(&contracts.Shutdown{})
			d.p.exits("R18", 0)
			s.shows("R71", d.resolved("R18:flushed", q, "cancelled", "runtime"), fields{"reason": shutReason})
		}),
		tooled.pilot("agent/approved", "R46 R50 R52", "An approval is asked for once, and granted lets the call run", func(s *Session, d *pilot) {
			q := d.asks()
			d.notStarted(q)
			d.answers(q, true)
			s.shows("R55", d.resolved("R52", q, "approved", "user"), fields{"reason": "Go ahead"}) // the client's text
			d.goesOnUnless(q, false)
			d.ends("R37")
			d.gated(q)
		}),
		tooled.pilot("agent/denied", "R46 R52 A68", "A call that was denied fails without having started, and the run goes on", func(s *Session, d *pilot) {
			q := d.asks()
			d.answers(q, false)
			s.shows("R55", d.resolved("A68", q, "denied", "user"), fields{"reason": "Not on a Friday"}) // the client's text
			d.goesOnUnless(q, true)
			d.ends("R37")
			d.notStarted(q)
			d.gated(q)
		}),
		everywhere.pilot("agent/second-answer", "R52 R53", "The second answer to an agent's question is refused", func(s *Session, d *pilot) {
			q := d.asks()
			d.answers(q, true)
			d.resolved("R52", q, "approved", "user")
			id := q.str("request_id")
			for _, cmd := range []contracts.Command{approve(id, false), approve(id, true), &contracts.ToolResponse{CallID: id, Approved: false}} {
				d.refused(cmd, unknownRefusal("R53", id))
			}
			d.ends("R37")
			s.equal("R52", "the number of resolutions of "+id, countOf(d.p.log, resolved(id)), 1)
		}),
		everywhere.pilot("agent/auto-mode", "R51", "In mode auto the agent's tools run and nothing is asked", agentUnasked(contracts.ApprovalAuto)),
		everywhere.pilot("agent/fail-mode", "R51 R37", "In mode fail nothing is asked, and the prompt is answered all the same", agentUnasked(contracts.ApprovalFail)),
		everywhere.pilot("agent/mode-to-auto", "R65", "Switching to auto approves what the agent waits for", agentModeChange(contracts.ApprovalAuto, "approved")),
		everywhere.pilot("agent/mode-to-fail", "R65 R46", "Switching to fail denies what the agent waits for", agentModeChange(contracts.ApprovalFail, "denied")),
	}
}

func interrupted(text string) want {
	return message("error").with("message", text).with("error_type", "cancelled").with("fatal", false)
}

// stopped waits for the news that a run was stopped, and holds the run against
// what it leaves behind: nothing.
func (d *pilot) stopped(text string) *Frame {
	end := d.cancelled(text)
	at := d.p.indexAfter(end)
	responses := 0
	for _, f := range d.p.log[d.spoke:at] {
		if f.Type != "response_start" {
			continue
		}
		responses++
		d.s.failIf(countOf(d.p.log[d.spoke:at], message("response_end").with("response_id", f.str("response_id"))) != 1,
			"3.5:told", "%s: expected response %s to have ended when the run says that it was stopped", d.p.name, f.str("response_id"))
	}
	d.s.failIf(responses == 0, "R37", "%s: expected a response before the run says that it was stopped, got none", d.p.name)
	d.closed(d.spoke, at)
	d.idle("R69")
	return end
}

// cancelled waits for the news that a run was stopped. A published server may leave
// it out: then the run counts as over when nothing has come for a while.
func (d *pilot) cancelled(text string) *Frame {
	news := interrupted(text)
	if !d.s.published() {
		return d.awaits("3.5", news)
	}
	if f := d.p.seek(d.spoke, news, d.s.openTime()); f != nil {
		return f
	}
	d.s.advise("3.5:told", "%s: expected %s, got nothing of the kind", d.p.name, news.text)
	return d.p.log[len(d.p.log)-1]
}

func stopsAgent(cmd contracts.Command, text string) func(*Session, *pilot) {
	return func(_ *Session, d *pilot) {
		d.works()
		d.tell("3.5", cmd)
		end := d.stopped(text)
		d.p.still("3.5", d.p.indexAfter(end), anyOf(signOfWork, message("response_chunk"), message("tool_end"), message("error").with("error_type", "cancelled")))
		d.ends("3.5")
	}
}

// gated fails unless a question was announced by one call that requires approval.
func (d *pilot) gated(q *Frame) {
	id, call := q.str("request_id"), message("tool_call").with("call_id", q.str("call_id")).with("requires_approval", true)
	n := countOf(d.p.log[:d.p.indexAfter(q)], call)
	d.s.failIf(n != 1, "R50", "%s: expected one tool_call that requires approval before %s, got %d", d.p.name, id, n)
	n = countOf(d.p.log, requested(id))
	d.s.failIf(n != 1, "R50:once", "%s: expected %s to be asked once, got %d", d.p.name, id, n)
}

// goesOnUnless checks the call after a verdict, for agents whose runs wait for
// one: it ends, and if it was not approved, without having started.
func (d *pilot) goesOnUnless(q *Frame, denied bool) {
	if !d.s.any() {
		return
	}
	if end := d.toolEnd(q); denied {
		d.notStarted(q)
		d.s.shows("R46", end, fields{"success": false})
	}
}

func agentUnasked(mode contracts.ApprovalMode) func(*Session, *pilot) {
	return func(s *Session, d *pilot) {
		d.decide(mode)
		from := len(d.p.log)
		d.prompt(s.ask())
		d.awaits("R37", anyOf(message("response_end"), aboutApprovals))
		d.p.none("R51", from, aboutApprovals)
		d.ends("R37")
		d.p.none("R51", from, aboutApprovals)
	}
}

func agentModeChange(mode contracts.ApprovalMode, verdict string) func(*Session, *pilot) {
	return func(_ *Session, d *pilot) {
		q := d.asks()
		d.decide(mode)
		d.resolved("R65", q, verdict, "policy")
		d.goesOnUnless(q, verdict == "denied")
		d.ends("R37")
	}
}

// questions judges who can answer an agent: D8, A27, A37, R73.
func questions() []Scenario {
	return []Scenario{
		networked.pilot("agent/take-over", "D8 A25 A27", "Who takes over while the agent asks answers it, and the one before no longer can", func(s *Session, alice *pilot) {
			vera := s.onlooker("vera")
			q := alice.asks()
			id := q.str("request_id")
			bob := s.successor("bob")
			s.waits("D8", bob.now(), id, true)
			lost := notHolder("A27")
			alice.refused(approve(id, true), lost)
			alice.refused(&contracts.Interrupt{}, lost)
			bob.answers(q, false)
			for _, p := range []*Peer{alice.p, vera, bob.p} {
				p.awaitFor("D8", 0, resolved(id).with("resolution", "denied").with("resolved_by", "user"), 3*s.config.Patience)
			}
			alice.goesOnUnless(q, true)
			bob.ends("R37")
			bob.refused(approve(id, true), unknownRefusal("R53", id))
		}),
		networked.pilot("agent/controller-leaves", "D8 3.6", "A question waits for the next controller", func(s *Session, alice *pilot) {
			vera := s.onlooker("vera")
			q := alice.asks()
			alice.leaves()
			bob := s.successor("bob")
			s.waits("D8", bob.now(), q.str("request_id"), true)
			bob.answers(q, true)
			vera.awaitFor("D8", 0, resolved(q.str("request_id")).with("resolution", "approved"), 3*s.config.Patience)
			bob.ends("D8")
		}),
		networked.pilot("agent/question-for-latecomers", "R73 A43", "Who joins late sees what the agent asks, until it is answered", func(s *Session, d *pilot) {
			q := d.asks()
			f := s.onlooker("vera").last(control("snapshot"))
			if all := waitingIn(f); len(all) != 1 || all[0].id != q.at("request_id") || all[0].kind != contracts.RequestApproval {
				s.fail("R73", "expected the agent's question in the snapshot, got %s", f.said())
			}
			waiting := listOf(f, "state.pending_requests")
			if len(waiting) == 0 && s.published() { // there is advice about it already
				waiting = listOf(f, "state.pending_approvals")
			} else if got := waiting[0]["status"]; got != "pending" {
				s.fail("R73", "expected status pending in pending_requests, got %s", show(got))
			}
			s.lists("R73", waiting[0], fields{"call_id": q.at("call_id"), "tool": q.at("tool"), "args": q.at("args")})
			d.answers(q, false)
			d.resolved("R52", q, "denied", "user")
			s.waits("R73", s.onlooker("victor").last(control("snapshot")), q.str("request_id"), false)
			d.ends("R37")
		}),
		networked.pilot("agent/viewer-cannot-answer", "A37", "A viewer sees what the agent asks and cannot answer it", func(s *Session, d *pilot) {
			q := d.asks()
			s.viewerSends()("A37", approve(q.str("request_id"), true))
			s.waits("A37", d.now(), q.str("request_id"), true)
			d.answers(q, false)
			d.resolved("A37", q, "denied", "user")
			d.ends("R37")
		}),
		networked.pilot("agent/viewer-cannot-interrupt", "A38", "A viewer cannot end a run", func(s *Session, d *pilot) {
			first := d.works()
			s.viewerSends()("A38", &contracts.Interrupt{})
			d.p.still("A38", d.p.indexAfter(first), message("error").with("error_type", "cancelled"))
			d.tell("3.5", &contracts.Interrupt{})
			d.stopped("Run interrupted by user")
		}),
	}
}

// sightings judges that all clients see the same of an agent: 2.5, A43, A49,
// R79.
func sightings() []Scenario {
	return []Scenario{
		networked.pilot("agent/same-for-all", "2.5 A48", "Everything that a viewer sees of a run is what the controller sees", func(s *Session, d *pilot) {
			all := []*Peer{s.onlooker("vera"), s.onlooker("victor"), s.onlooker("violet")}
			joined := all[len(all)-1].watch.cursor
			d.busyDay()
			d.finish(all...)
			for _, p := range all {
				sameSequence(s, "2.5", joined, d.p, p)
			}
		}),
		networked.pilot("agent/join-in-run", "A49", "Who joins in the middle of a run misses nothing and sees nothing twice", func(s *Session, d *pilot) {
			d.works()
			var joined []*Peer
			for _, name := range []string{"v0", "v1", "v2"} {
				joined = append(joined, s.onlooker(name))
			}
			d.tell("3.5", &contracts.Interrupt{})
			d.stopped("Run interrupted by user")
			d.says()
			d.awaits("R37", message("response_end"))
			d.finish(joined...)
			for _, p := range joined {
				snap := p.log[p.indexAfter(p.await("A42", 0, control("snapshot")))-1]
				id := snap.str("state.current_response.response_id")
				whole := textIn(d.p.log, id)
				since := slices.DeleteFunc(slices.Clone(p.log), func(f *Frame) bool { return f.Cursor <= snap.Cursor }) // clients drop the others
				if got := snap.str("state.current_response.text") + textIn(since, id); got != whole {
					s.fail("A49", "%s: the snapshot as of %d and what followed hold %q of the response, want %q: lost or repeated", p.name, snap.Cursor, got, whole)
				}
				sameSequence(s, "A49", snap.Cursor, d.p, p)
			}
		}),
		networked.pilot("agent/replay", "A43 A114", "A cursor yields exactly what was missed, with the same text", func(s *Session, d *pilot) {
			d.settle()
			vera := s.onlooker("vera")
			d.finish(vera)
			cursor := vera.watch.cursor
			vera.close()
			d.busyDay()
			back := s.latecomer("vera", cursor, d.p.epoch)
			d.finish(back)
			sameSequence(s, "A43", cursor, d.p, back)
		}),
		networked.pilot("agent/replay-in-run", "A43 A49", "So does one of the middle of a run", func(s *Session, d *pilot) {
			first := d.works()
			back := s.latecomer("vera", first.Cursor, d.p.epoch)
			d.tell("3.5", &contracts.Interrupt{})
			d.stopped("Run interrupted by user")
			d.says()
			d.awaits("R37", message("response_end"))
			d.finish(back)
			sameSequence(s, "A43", first.Cursor, d.p, back)
		}),
		networked.pilot("agent/fold", "R79", "Folding what was received gives the server's snapshot", func(_ *Session, d *pilot) {
			d.compare("R79")
			d.says()
			d.awaits("R37", message("response_end"))
			d.compare("R79")
			d.works()
			d.compare("R79")
			d.do(&contracts.Interrupt{})
			d.stopped("Run interrupted by user")
			d.compare("R79")
			d.ends("R37")
			d.compare("R79")
		}),
		networked.pilot("agent/fold-of-questions", "R79 R76 R69", "So does folding questions, an interrupt and an answer", func(s *Session, d *pilot) {
			d.asks()
			d.compare("R79")
			d.do(&contracts.Interrupt{})
			d.awaits("R66", message("server_request_resolved").with("resolution", "cancelled"))
			if s.any() { // else the run was over
				d.stopped("Run interrupted by user")
			}
			d.compare("R69")
			q := d.asks()
			d.compare("R79")
			d.answers(q, true)
			d.resolved("R52", q, "approved", "user")
			d.goesOnUnless(q, false)
			d.compare("R76")
			d.ends("R37")
			d.compare("R79")
		}),
	}
}

// busyDay lets an agent run a tool that was approved, answer, and be interrupted.
func (d *pilot) busyDay() {
	q := d.asks()
	d.answers(q, true)
	d.resolved("R52", q, "approved", "user")
	d.goesOnUnless(q, false)
	d.says()
	d.awaits("R37", message("response_end"))
	d.works()
	d.do(&contracts.Interrupt{})
	d.stopped("Run interrupted by user")
}

func textIn(frames []*Frame, id string) string {
	return chunksOf(slices.DeleteFunc(slices.Clone(frames), func(f *Frame) bool { return f.str("response_id") != id }))
}
