package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// approvals judges what becomes of an agent's questions: R46, R50 to R55, R65.
func approvals() []Scenario {
	return []Scenario{
		tooled.scenario("agent/approved", "R46 R50 R52", "An approval is asked for once, and granted lets the call run", func(s *Session) {
			d := s.pilot()
			q := d.asks()
			d.notStarted(q)
			d.answers(q, true)
			f := d.resolved("R52", q, "approved", "user")
			if f.at("reason") != "Go ahead" {
				s.fail("R55", "expected the client's text as the reason, got %s", show(f.at("reason")))
			}
			d.goesOnUnless(q, false)
			d.ends("R37")
			d.gated(q)
		}),
		tooled.scenario("agent/denied", "R46 R52 A68", "A call that was denied fails without having started, and the run goes on", func(s *Session) {
			d := s.pilot()
			q := d.asks()
			d.answers(q, false)
			f := d.resolved("A68", q, "denied", "user")
			if f.at("reason") != "Not on a Friday" {
				s.fail("R55", "expected the client's text as the reason, got %s", show(f.at("reason")))
			}
			d.goesOnUnless(q, true)
			d.ends("R37")
			d.notStarted(q)
			d.gated(q)
		}),
		everywhere.scenario("agent/second-answer", "R52 R53", "The second answer to an agent's question is refused", func(s *Session) {
			d := s.pilot()
			q := d.asks()
			d.answers(q, true)
			d.resolved("R52", q, "approved", "user")
			id := q.str("request_id")
			for _, cmd := range []contracts.Command{approve(id, false), approve(id, true), &contracts.ToolResponse{CallID: id, Approved: false}} {
				d.refused(cmd, unknownRefusal("R53", id))
			}
			d.ends("R37")
			if n := countOf(d.p.log, message("server_request_resolved").with("request_id", id)); n != 1 {
				s.fail("R52", "expected one resolution of %s, got %d", id, n)
			}
		}),
		everywhere.scenario("agent/auto-mode", "R51", "In mode auto the agent's tools run and nothing is asked", agentUnasked(contracts.ApprovalAuto)),
		everywhere.scenario("agent/fail-mode", "R51 R37", "In mode fail nothing is asked, and the prompt is answered all the same", agentUnasked(contracts.ApprovalFail)),
		everywhere.scenario("agent/mode-to-auto", "R65", "Switching to auto approves what the agent waits for", agentModeChange(contracts.ApprovalAuto, "approved")),
		everywhere.scenario("agent/mode-to-fail", "R65 R46", "Switching to fail denies what the agent waits for", agentModeChange(contracts.ApprovalFail, "denied")),
	}
}

// gated fails unless a question was announced by one call that requires approval.
func (d *pilot) gated(q *Frame) {
	calls := d.p.log[:d.p.indexAfter(q)]
	call := message("tool_call").with("call_id", q.str("call_id"))
	if n := countOf(calls, call.with("requires_approval", true)); n != 1 {
		d.s.fail("R50", "%s: expected one tool_call that requires approval before %s, got %d", d.p.name, q.str("request_id"), n)
	}
	if n := countOf(d.p.log, message("server_request").with("request_id", q.str("request_id"))); n != 1 {
		d.s.fail("R50:once", "%s: expected %s to be asked once, got %d", d.p.name, q.str("request_id"), n)
	}
}

// goesOnUnless checks the call after a verdict, for agents whose runs wait for
// one: it ends, and if it was not approved, without having started.
func (d *pilot) goesOnUnless(q *Frame, denied bool) {
	if !d.s.any() {
		return
	}
	end := d.toolEnd(q)
	if denied {
		d.notStarted(q)
	}
	if denied && end.at("success") != false {
		d.s.fail("R46", "%s: expected a call that was denied to have failed, got %s", d.p.name, abridge(end.Raw, maxTraceText))
	}
}

func agentUnasked(mode contracts.ApprovalMode) func(*Session) {
	return func(s *Session) {
		d := s.pilot()
		d.decide(mode)
		from := len(d.p.log)
		d.prompt(s.ask())
		d.awaits("R37", anyOf(message("response_end"), aboutApprovals))
		d.p.none("R51", from, aboutApprovals)
		d.ends("R37")
		d.p.none("R51", from, aboutApprovals)
	}
}

func agentModeChange(mode contracts.ApprovalMode, verdict string) func(*Session) {
	return func(s *Session) {
		d := s.pilot()
		q := d.asks()
		d.decide(mode)
		d.resolved("R65", q, verdict, "policy")
		d.goesOnUnless(q, verdict == "denied")
		d.ends("R37")
	}
}
