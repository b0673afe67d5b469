package chord

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// cancels are about cancel.
func cancels() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("cancel/streaming", "C33", "A cancel ends an answer", func(p *play, c *client) {
			all := c.cancelMidway()
			c.checkOutcome(all, "cancelled")
			for _, l := range append(all[:len(all)-1], c.During(lines.Quiet)...) {
				p.FailIf(isType("assistant_message", "idle")(l), "expected one idle and no assistant_message after the cancel, got %s", l)
			}
			_, status := c.status()
			p.FailIf(status.Str("payload.last_outcome") != "cancelled" || isBusy(status) != false,
				"expected busy false and the last_outcome cancelled, got %s", status)
		}),
		scenario("cancel/pending", "C34", "A cancel clears what is pending", func(p *play, c *client) {
			file, request := c.asksToRun("ask and cancel")
			c.Send(object{"type": "cancel"})
			c.checkOutcome(c.untilIdle(), "cancelled")
			_, status := c.status()
			p.FailIf(status.Has("payload.pending_confirm"), "expected pending_confirm null after the cancel, got %s", status)
			c.answer(request, "allow", nil)
			more := lines.Only(c.During(lines.Quiet), isOptional)
			p.FailIf(ran(file) || len(more) > 0, "expected a late confirm to have no effect, got %s", lines.First(more))
		}),
		scenario("cancel/idle", "C35", "A cancel while idle does nothing", func(p *play, c *client) {
			c.Send(object{"type": "cancel"})
			p.None(c.During(lines.Quiet), "nothing for a cancel while idle")
			c.turn("then talk", "completed")
		}),
		scenario("cancel/next", "C36", "After a cancel the next turn runs", func(p *play, c *client) {
			c.checkOutcome(c.cancelMidway(), "cancelled")
			p.Model.On("go on", lines.Reply{Text: "Gone on."})
			texts := messages(c.turn("go on", "completed"))
			p.FailIf(!slices.Equal(texts, []string{"Gone on."}), "expected the assistant_message \"Gone on.\", got %q", texts)
		}),
	}
}

// cancelMidway runs a turn, cancels it in the middle of its answer, and returns the lines
// after the cancel.
func (c *client) cancelMidway() []lines.Line {
	c.streams()
	c.Send(object{"type": "cancel"})
	return c.untilIdle()
}

// processes are about how a process starts and ends.
func processes() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("end/idle", "C42", "The end of the input ends the process", func(p *play, c *client) {
			c.exits()
		}),
		scenario("end/streaming", "C42", "The end of the input ends an answer", func(p *play, c *client) {
			c.streams()
			c.exits()
		}),
		scenario("end/tool", "C42", "The end of the input ends the processes of a tool", func(p *play, c *client) {
			pid := p.Sleep("sleep long")
			c.say("sleep long")
			request, asks := c.Try(p.Long()/4, isType("confirm_request", "idle"))
			p.Offered("sleep long", "shell")
			if asks && isType("confirm_request")(request[len(request)-1]) {
				c.answer(request[len(request)-1], "allow", nil)
			}
			p.Sleeping(pid)
			until := time.Now().Add(p.exitTime())
			c.exits()
			p.Gone(pid, until, "the processes of the tool to end with the server")
		}),
		unstarted("start/failure", "C43", "A start that fails says so to people only", func(p *play) {
			p.failsToStart("--continue", "--resume", "x") // they exclude each other
		}),
		scenario("resume/known", "C45", "A session is resumed under its id", func(p *play, c *client) {
			c.turn("remember me", "completed")
			c.EndInput()
			c.Exit(p.Long())
			again := p.begin("--resume", c.session)
			p.FailIf(again.session != c.session, "expected ready with the session_id %s, got %s", c.session, again.session)
		}),
		unstarted("resume/unknown", "C45", "A session that is not known cannot be resumed", func(p *play) {
			p.failsToStart("--resume", "20010101000000000")
		}),
	}
}

// exitTime is how long a server may take to end: 2 s, and more for a busy machine.
func (p *play) exitTime() time.Duration {
	return 2*time.Second + max(6*time.Second, p.S.Config().Patience)
}

// exits ends the input and expects the process to end well and in time.
func (c *client) exits() {
	c.EndInput()
	_, status := c.Exit(c.p.exitTime())
	c.p.FailIf(status != 0, "expected the exit status 0 after the end of the input, got %d", status)
}

// failsToStart starts a server that cannot start.
func (p *play) failsToStart(flags ...string) {
	c := p.start(flags...)
	all, status := c.Exit(p.Long())
	p.None(all, "nothing on standard output with %s", strings.Join(flags, " "))
	p.FailIf(status == 0, "expected another exit status than 0 with %s, got 0", strings.Join(flags, " "))
	p.FailIf(strings.TrimSpace(c.Diagnostics()) == "", "expected a reason on standard error with %s, got nothing", strings.Join(flags, " "))
}
