package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

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
	var of []*Frame
	for _, f := range frames {
		if f.str("response_id") == id {
			of = append(of, f)
		}
	}
	return chunksOf(of)
}
