package chord

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/lines"
)

// interruptions are about cancel.
func interruptions() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("cancel/streaming", "C33", "A cancel ends an answer", cancelStreaming),
		scenario("cancel/pending", "C34", "A cancel clears what is pending", cancelPending),
		scenario("cancel/idle", "C35", "A cancel while idle does nothing", cancelIdle),
		scenario("cancel/next", "C36", "After a cancel the next turn runs", cancelNext),
	}
}

// interrupted runs a turn, cancels it in the middle of its answer, and returns the lines
// after the cancel.
func (c *client) interrupted() []lines.Line {
	c.p.Model.On("talk long", lines.Reply{Pieces: []string{"early", "late"}, Pause: 3 * time.Second})
	c.say("talk long")
	c.p.called("talk long")
	c.Try(time.Second, func(l lines.Line) bool { return l.Str("payload.type") == "streaming" })
	c.Send(object{"type": "cancel"})
	return c.untilIdle()
}

func cancelStreaming(p *play) {
	c := p.begin()
	all := c.interrupted()
	c.ended(all, "cancelled")
	for _, l := range append(all[:len(all)-1], c.During(lines.Quiet)...) {
		p.FailIf(isType("assistant_message", "idle")(l), "expected one idle and no assistant_message after the cancel, got %s", l)
	}
	_, status := c.status()
	p.FailIf(status.Str("payload.last_outcome") != "cancelled" || lines.At(status.Body, "payload.busy") != false,
		"expected busy false and the last_outcome cancelled, got %s", status)
}

func cancelPending(p *play) {
	file := p.runs("ask and cancel")
	c := p.begin()
	_, request := c.asked("ask and cancel")
	c.Send(object{"type": "cancel"})
	c.ended(c.untilIdle(), "cancelled")
	_, status := c.status()
	p.FailIf(status.Has("payload.pending_confirm"), "expected pending_confirm null after the cancel, got %s", status)
	c.answer(request, "allow", nil)
	more := lines.Only(c.During(lines.Quiet), isOptional)
	p.FailIf(ran(file) || len(more) > 0, "expected a late confirm to have no effect, got %s", lines.First(more))
}

func cancelIdle(p *play) {
	p.Model.On("then talk", lines.Reply{Text: "Fine."})
	c := p.begin()
	c.Send(object{"type": "cancel"})
	more := c.During(lines.Quiet)
	p.FailIf(len(more) > 0, "expected nothing for a cancel while idle, got %s", lines.First(more))
	c.turn("then talk", "completed")
}

func cancelNext(p *play) {
	c := p.begin()
	c.ended(c.interrupted(), "cancelled")
	p.Model.On("go on", lines.Reply{Text: "Gone on."})
	messages := lines.Only(c.turn("go on", "completed"), isType("assistant_message"))
	p.FailIf(len(messages) != 1 || messages[0].Str("payload.text") != "Gone on.", "expected the assistant_message \"Gone on.\", got %s", lines.First(messages))
}

// processes are about how a process starts and ends.
func processes() []conformance.Scenario {
	return []conformance.Scenario{
		scenario("end/idle", "C42", "The end of the input ends the process", endIdle),
		scenario("end/streaming", "C42", "The end of the input ends an answer", endStreaming),
		scenario("end/tool", "C42", "The end of the input ends the processes of a tool", endTool),
		scenario("start/failure", "C43", "A start that fails says so to people only", startFailure),
		scenario("resume/known", "C45", "A session is resumed under its id", resumeKnown),
		scenario("resume/unknown", "C45", "A session that is not known cannot be resumed", resumeUnknown),
	}
}

// exitTime is how long a server may take to end: 2 s, and 1 s more for a busy machine.
const exitTime = 3 * time.Second

// exits ends the input and expects the process to end well and in time.
func (c *client) exits() {
	c.EndInput()
	_, status := c.Exit(c.p.Rule, exitTime)
	c.p.FailIf(status != 0, "expected the exit status 0 after the end of the input, got %d", status)
}

func endIdle(p *play) { p.begin().exits() }

func endStreaming(p *play) {
	p.Model.On("talk long", lines.Reply{Pieces: []string{"early", "late"}, Pause: 10 * time.Second})
	c := p.begin()
	c.say("talk long")
	p.called("talk long")
	c.Try(time.Second, func(l lines.Line) bool { return l.Str("payload.type") == "streaming" })
	c.exits()
}

func endTool(p *play) {
	pid := filepath.Join(p.Dir, "pid")
	p.Model.On("sleep long", lines.Reply{Calls: []lines.Call{lines.Shell("sleep 30 & echo $! > '" + pid + "'; wait")}}, lines.Reply{Text: "Done."})
	c := p.begin()
	c.say("sleep long")
	request, asks := c.Try(p.Long()/4, isType("confirm_request", "idle"))
	p.Offered("sleep long", "shell")
	if asks && request[len(request)-1].Str("type") == "confirm_request" {
		c.answer(request[len(request)-1], "allow", nil)
	}
	if _, known := lines.Alive(pid, p.S.Config().Patience); !known {
		p.S.Skip("not applicable: the command of the shell tool wrote no file")
	}
	began := time.Now()
	c.exits()
	for alive := true; alive; time.Sleep(50 * time.Millisecond) {
		p.FailIf(time.Since(began) > exitTime, "expected the processes of the tool to end with the server")
		alive, _ = lines.Alive(pid, 0)
	}
}

// failsToStart starts a server that cannot start.
func (p *play) failsToStart(flags ...string) {
	c := p.start(flags...)
	all, status := c.Exit(p.Rule, startTime)
	p.FailIf(len(all) > 0, "expected nothing on standard output with %s, got %s", strings.Join(flags, " "), lines.First(all))
	p.FailIf(status == 0, "expected another exit status than 0 with %s, got 0", strings.Join(flags, " "))
	p.FailIf(strings.TrimSpace(c.Diagnostics()) == "", "expected a reason on standard error with %s, got nothing", strings.Join(flags, " "))
}

func startFailure(p *play) {
	p.failsToStart("--continue", "--resume", "x") // they exclude each other
}

func resumeKnown(p *play) {
	p.Model.On("remember me", lines.Reply{Text: "Fine."})
	c := p.begin()
	c.turn("remember me", "completed")
	c.EndInput()
	c.Exit(p.Rule, p.Long())
	again := p.begin("--resume", c.session)
	p.FailIf(again.session != c.session, "expected ready with the session_id %s, got %s", c.session, again.session)
}

func resumeUnknown(p *play) { p.failsToStart("--resume", "20010101000000000") }
