package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// parity judges that a session is the same over HTTP and WebSocket: A117.
func parity() []Scenario {
	return []Scenario{
		overHTTP.scenario("parity/same-session", "A117", "One session shows the same over WebSocket and event streams", withSockets(func(s *Session) {
			alice := s.pilot()
			socket := s.viewer("sophie")
			socket.fence()
			joined := socket.watch.cursor
			parityRun(alice)
			endTogether(socket)
			sameSequence(s, "A117", joined, alice.p, socket)
		})),
		overHTTP.scenario("parity/same-script", "A117", "The same script driven over HTTP and over WebSocket gives the same messages", withSockets(func(s *Session) {
			over := parityRun(s.pilot())
			bob := s.attach("bob", entry{session: s.ID + "-socket", create: true, role: contracts.RoleController})
			there := parityRun(&pilot{s: s, mirror: mirror{p: bob}})
			for i := range min(len(over), len(there)) {
				s.failIf(over[i] != there[i], "A117", "message %d: over HTTP %s, over WebSocket %s", i+1, over[i], there[i])
			}
			s.failIf(len(over) != len(there), "A117",
				"expected as many messages over HTTP as over WebSocket, got %d and %d", len(over), len(there))
		})),
		overHTTP.scenario("parity/cursors-travel", "A117 A114", "A cursor from one transport resumes on the other", withSockets(func(s *Session) {
			alice, stream := s.attached()
			alice.prompt("before")
			stream.expect("A117", prompted("before"))
			alice.finishRun()
			cursor := s.state().Cursor
			alice.prompt(burstOf(30, 10))
			socket := s.back("sophie", cursor, stream.epoch).replays("A114")
			alice.finish(stream, socket)
			sameSequence(s, "A117", cursor, stream, socket)

			socket.fence()
			last := socket.watch.cursor
			again := s.follow("victor", follow{cursor: &last, epoch: socket.epoch})
			alice.prompt("after")
			f := again.expect("A117", prompted("after"))
			s.failIf(f.Cursor <= last, "A117", "expected what follows %d, got %d", last, f.Cursor)
			again.none("A117", 0, control("reset"))
		})),
		overHTTP.scenario("parity/one-lease", "A117 A23", "There is one lease for both transports", withSockets(func(s *Session) {
			alice := s.driver()
			s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
			bob := s.attach("bob", entry{role: contracts.RoleController, take: "1"})
			alice.post(initNothing()).refused("A27", contracts.CodeControllerLeaseHeld, textNotHolder)
			alice.heartbeat(nil).ok("A26").has("A117", fields{"controller_connection_id": bob.connection})
			s.caller("carol", contracts.RoleController).connect(nil).alreadyHeld("A23")
			carol := s.takeFrom("carol")
			f := bob.expect("A115", control("ws.lease").with("granted", false).with("reason", "taken_over"))
			s.shows("A117", f, fields{"controller_connection_id": carol.connection})
		})),
		seedOverHTTP.scenario("parity/one-answer", "A117 D8", "A question answered on one transport is answered on the other", withSockets(func(s *Session) {
			alice, stream := s.attached()
			alice.ask(contracts.RequestApproval, "shared")
			bob := s.attach("bob", entry{role: contracts.RoleController, take: "1"})
			s.waits("A117", bob.last(control("snapshot")), "shared", true)
			bob.accepted("D8", bob.command(approve("shared", false)))
			stream.expect("A117", resolved("shared").with("resolution", "denied"))
			s.takeFrom("carol").post(approve("shared", true)).refused("D8", contracts.CodeRequestNotFound, "")
		})),
	}
}

// withSockets returns run for servers that have a WebSocket, and skips the others.
func withSockets(run func(*Session)) func(*Session) {
	return func(s *Session) {
		if s.published() {
			vera := s.guest("vera")
			if s.onSocket("probe") == nil {
				s.skip("the server has no WebSocket, nor has the published protocol")
			}
			vera.disconnect(nil).ok("A17")
			s.opened = false
		}
		run(s)
	}
}

// parityRun is a script: prompts, a response, a question and its answer, and
// something that is interrupted. It returns what was said since.
func parityRun(d *pilot) []string {
	from := len(d.p.log)
	d.triggers("first")
	d.triggers(streamOf(10, 1))
	d.p.expect("A117", message("response_chunk").with("content", "chunk 0 "))
	d.p.expect("A117", message("response_end"))
	d.poses(contracts.RequestApproval, "asked")
	d.tell("A117", approve("asked", true))
	d.triggers(burstOf(20, 10))
	d.triggers(hang())
	d.tell("A117", &contracts.Interrupt{})
	d.p.expect("A117", message("error"))
	d.tell("A117", &contracts.Init{ThinkingLevel: contracts.ThinkingLow})
	d.end()
	return story(d.p.log[from:])
}

// untold are messages about who is there, and those whose place among others
// is left to the agent.
var untold = []string{"connection_info", "ready", "session_info", "hello_ok", "raw_agent_event", "tool_start", "tool_end"}

// story lists what was said in a session without what differs from one to the
// next: cursors, ids and times. Consecutive chunks are one (D5).
func story(frames []*Frame) []string {
	var lines []string
	for _, f := range frames {
		if f.Kind != "message" || slices.Contains(untold, f.Type) {
			continue
		}
		line := f.Type
		for _, key := range []string{"message", "request_id", "request_type", "resolution", "resolved_by", "reason", "tool", "error_type", "requires_approval"} {
			if v, present := f.Fields[key]; present {
				line += " " + key + " " + show(v)
			}
		}
		if f.Type != "response_chunk" || len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	return lines
}
