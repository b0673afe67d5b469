package conformance

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// interruptions judges how runs of any agent are stopped: R37, R66 to R69, 3.5,
// R19.
func interruptions() []Scenario {
	interrupt, cancel := &contracts.Interrupt{}, &contracts.Cancel{}
	onStdio := Needs{Transport: Stdio, Responds: true}
	return []Scenario{
		everywhere.scenario("agent/interrupt", "R37 R46 3.5", "interrupt ends a run with everything in it, and says so last", stopsAgent(interrupt, "Run interrupted by user")),
		everywhere.scenario("agent/cancel", "R37 R46 3.5", "cancel does so in its own words", stopsAgent(cancel, "Run cancelled by user")),
		everywhere.scenario("agent/interrupt-at-once", "R37 3.5", "interrupt ends a run that has hardly begun", func(s *Session) {
			d := s.pilot()
			d.decide(contracts.ApprovalAuto)
			d.prompt(s.long())
			d.tell("3.5", &contracts.Interrupt{})
			d.stopped("Run interrupted by user")
			d.ends("3.5")
		}),
		everywhere.scenario("agent/interrupt-then-prompt", "3.5", "A prompt right after interrupt is accepted and answered", func(s *Session) {
			d := s.pilot()
			d.works()
			d.tell("3.5", &contracts.Interrupt{})
			d.tell("3.5:held", &contracts.Prompt{Content: s.say()})
			end := d.cancelled("Run interrupted by user")
			d.after("3.5:held", end, message("response_end"))
			d.p.none("3.5:held", 0, message("error").with("message", textBusy))
		}),
		everywhere.scenario("agent/interrupt-again", "R37 3.5", "Run after run can be interrupted", func(s *Session) {
			d := s.pilot()
			for range 3 {
				d.works()
				d.tell("3.5", &contracts.Interrupt{})
				d.stopped("Run interrupted by user")
			}
			d.ends("3.5")
		}),
		everywhere.scenario("agent/interrupt-idle", "R68", "interrupt with nothing active is no error, and the next prompt is answered", func(s *Session) {
			d := s.pilot()
			from := len(d.p.log)
			for _, cmd := range []contracts.Command{&contracts.Interrupt{}, &contracts.Cancel{}} {
				d.tell("R68", cmd)
			}
			d.says()
			d.awaits("R68", message("response_end"))
			d.tell("R68", initNothing())
			d.p.none("R68", from, message("error").with("error_type", "cancelled"))
		}),
		tooled.scenario("agent/interrupt-question", "R66 R46 3.5", "interrupt cancels the question of a run and its call, which never starts", func(s *Session) {
			d := s.pilot()
			q := d.asks()
			d.tell("R66", &contracts.Interrupt{})
			f := d.resolved("R66", q, "cancelled", "runtime")
			if got := f.str("reason"); got != "Interrupted before request completed" {
				s.fail("R66", "expected the reason of an interrupt, got %q", got)
			}
			d.stopped("Run interrupted by user")
			d.notStarted(q)
			if end := d.toolEnd(q); end.at("success") != false {
				s.fail("R46", "expected a cancelled call to have failed, got %s", abridge(end.Raw, maxTraceText))
			}
			d.refused(approve(q.str("request_id"), true), unknownRefusal("R53", q.str("request_id")))
			d.ends("3.5")
		}),
		onStdio.scenario("agent/eof-in-run", "R19", "EOF during a run ends the process all the same", func(s *Session) {
			d := s.pilot()
			d.works()
			d.p.closeInput("R19")
			d.p.exits("R19:ended", 0)
		}),
		onStdio.scenario("agent/shutdown-question", "R18 R71", "shutdown while a question waits cancels it and ends the process", func(s *Session) {
			d := s.pilot()
			q := d.asks()
			d.p.command(&contracts.Shutdown{})
			d.p.exits("R18", 0)
			if f := d.resolved("R18:flushed", q, "cancelled", "runtime"); f.str("reason") != shutReason {
				s.fail("R71", "expected the reason of a shutdown, got %s", show(f.at("reason")))
			}
		}),
	}
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
		if countOf(d.p.log[d.spoke:at], message("response_end").with("response_id", f.str("response_id"))) != 1 {
			d.s.fail("R37", "%s: expected %s to have ended when the run says that it was stopped", d.p.name, f.str("response_id"))
		}
	}
	if responses == 0 {
		d.s.fail("R37", "%s: expected a response before the run says that it was stopped, got none", d.p.name)
	}
	d.closed(d.spoke, at)
	d.idle("R69")
	return end
}

// cancelled waits for the news that a run was stopped. A published server may leave
// it out: then the run counts as over when nothing has come for openTime.
func (d *pilot) cancelled(text string) *Frame {
	news := interrupted(text)
	if !d.s.published() {
		return d.awaits("3.5", news)
	}
	deadline := time.Now().Add(openTime)
	for i := d.spoke; ; i++ {
		if i >= len(d.p.log) && !d.p.pullBefore(deadline) {
			d.s.advise("3.5:told", "%s: expected %s, got nothing of the kind", d.p.name, news.text)
			return d.p.log[len(d.p.log)-1]
		}
		f := d.p.log[i]
		if news.ok(f) {
			return f
		}
		if f.Kind != "heartbeat" && f.Kind != kindComment {
			deadline = time.Now().Add(openTime)
		}
	}
}

func stopsAgent(cmd contracts.Command, text string) func(*Session) {
	return func(s *Session) {
		d := s.pilot()
		d.works()
		d.tell("3.5", cmd)
		end := d.stopped(text)
		d.p.still("3.5", d.p.indexAfter(end), anyOf(signOfWork, message("response_chunk"), message("tool_end"), message("error").with("error_type", "cancelled")))
		d.ends("3.5")
	}
}
