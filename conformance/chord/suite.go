// Package chord judges servers of the Chord headless dialect: commands and envelopes as
// lines of JSON on standard input and output. Each scenario starts the server in a new
// session directory, with a model of the suite behind it.
package chord

import (
	_ "embed"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

//go:embed rules.txt
var rulesText string

// Suite returns the suite about the dialect.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Protocol: "chord", Title: "Rules of the Chord dialect",
		About: "`maestro conformance --protocol chord` judges servers of the Chord headless dialect by these rules.\n" +
			"[conformance.md](conformance.md#heddle-and-chord) says how to run it.",
		Scenarios: slices.Concat(commands(), turns(), confirms(), pendingRequests(), cancels(), processes()),
		Rules:     conformance.ParseRules(rulesText),
		Check:     lines.CheckTarget,
	}
}

type object = lines.Object

// A play is one scenario being played against the server.
type play struct{ *lines.Play }

// scenario returns a scenario about one rule, with a server that is ready.
func scenario(name, rule, title string, story func(*play, *client)) conformance.Scenario {
	return unstarted(name, rule, title, func(p *play) { story(p, p.begin()) })
}

// unstarted returns a scenario that starts its servers by itself.
func unstarted(name, rule, title string, story func(*play)) conformance.Scenario {
	return lines.Scenario(name, rule, title, func(p *lines.Play) { story(&play{p}) })
}

// maxOutput is the length in bytes that no line of output reaches.
const maxOutput = 1 << 20

// start starts a server in the session directory, with more flags.
func (p *play) start(flags ...string) *client {
	return &client{p: p, Client: p.Start(lines.Setup{
		Env: p.Environ("OPENAI_BASE_URL", "/v1"), Flags: append([]string{"-d", p.Dir}, flags...), Framed: "C2", Check: p.check,
	})}
}

// check judges what every line must be.
func (p *play) check(l lines.Line) {
	_, hasType := l.Body["type"].(string)
	_, hasPayload := l.Body["payload"].(object)
	if !hasType || !hasPayload {
		p.S.Fail("C2", "expected a string type and an object payload on each line, got %s", l)
	}
	if len(l.Raw) >= maxOutput {
		p.S.Fail("C46", "expected lines of less than 1 MiB, got %d bytes: %s", len(l.Raw), l)
	}
}

// begin starts a server and waits until it is ready.
func (p *play) begin(flags ...string) *client {
	c := p.start(flags...)
	c.session = c.ready().Str("payload.session_id")
	return c
}

// A client is the client of a server that was started.
type client struct {
	*lines.Client
	p       *play
	session string
}

func (c *client) ready() lines.Line {
	_, first := c.UntilWithin(c.p.Long(), "ready", func(lines.Line) bool { return true })
	c.p.FailIf(first.Str("type") != "ready" || first.Str("payload.session_id") == "", "expected ready with a session_id as the first line, got %s", first)
	return first
}

func isType(kinds ...string) func(lines.Line) bool {
	return func(l lines.Line) bool { return slices.Contains(kinds, l.Str("type")) }
}

// command sends a command and waits for an envelope of a type. It returns the lines before
// that, too.
func (c *client) command(cmd object, reply string) ([]lines.Line, lines.Line) {
	c.Send(cmd)
	return c.Until(reply, isType(reply))
}

// status asks for the status.
func (c *client) status() ([]lines.Line, lines.Line) {
	return c.command(object{"type": "status"}, "status_response")
}

// subscribe sends a subscription and returns the answer.
func (c *client) subscribe(events any) lines.Line {
	_, answer := c.command(object{"type": "subscribe", "events": events}, "subscribe_response")
	return answer
}

// refused sends a text as it is and expects a command error as the only answer.
func (c *client) refused(text, message string) lines.Line {
	c.Text(text + "\n")
	got := c.Next("an error for " + text)
	c.p.FailIf(!isRefusal(got) || got.Str("payload.message") != message, "expected an error with the message %q, got %s", message, got)
	return got
}

// isRefusal reports whether a line is the error of a command. Errors of turns have an
// agent_id.
func isRefusal(l lines.Line) bool {
	payload, _ := l.Body["payload"].(object)
	_, ofAgent := payload["agent_id"]
	return l.Str("type") == "error" && !ofAgent
}

// isOptional reports whether subscriptions are about a line.
func isOptional(l lines.Line) bool {
	return !isRefusal(l) && !isType("ready", "subscribe_response", "status_response", "models_response", "local_shell_result")(l)
}

func (c *client) say(text string) { c.Send(object{"type": "send", "content": text}) }

// untilIdle waits for idle. It returns all lines with that one.
func (c *client) untilIdle() []lines.Line {
	before, idle := c.UntilWithin(c.p.Long(), "idle", isType("idle"))
	return append(before, idle)
}

// turn sends a message and waits for idle, which must be of an outcome.
func (c *client) turn(text, outcome string) []lines.Line {
	c.say(text)
	all := c.untilIdle()
	c.checkOutcome(all, outcome)
	return all
}

// checkOutcome expects the last line to be idle of an outcome.
func (c *client) checkOutcome(all []lines.Line, outcome string) {
	last := all[len(all)-1]
	c.p.FailIf(last.Str("payload.last_outcome") != outcome, "expected idle with the last_outcome %s, got %s", outcome, last)
}

// awaitTurnEnd waits for the end of the first turn in the status, for a client that does not get
// idle. It returns what came but for the answers.
func (c *client) awaitTurnEnd() (rest []lines.Line) {
	for until := time.Now().Add(c.p.Long()); ; time.Sleep(50 * time.Millisecond) {
		before, status := c.status()
		rest = append(rest, before...)
		if isBusy(status) == false && status.Str("payload.last_outcome") != "" {
			return append(rest, c.During(lines.Quiet)...)
		}
		c.p.FailIf(time.Now().After(until), "expected the turn to end within %s, got %s", c.p.Long(), status)
	}
}

// asked sends a message on which the model calls the shell tool, and waits for the
// confirmation that the server asks for. It returns the lines before the request, too.
// If the server does not ask, the scenario does not apply.
func (c *client) asked(prompt string) ([]lines.Line, lines.Line) {
	return c.awaits(prompt, "shell", "confirm_request")
}

// awaits sends a message on which the model calls a tool, and waits for a request.
func (c *client) awaits(prompt, kind, request string) ([]lines.Line, lines.Line) {
	c.say(prompt)
	before, l := c.UntilWithin(c.p.Long(), request, isType(request, "idle"))
	c.p.Offered(prompt, kind)
	if !isType(request)(l) {
		c.p.S.Skip("not applicable: the server sends no %s for its %s tool", request, kind)
	}
	return before, l
}

// runs makes the model call the shell tool on a prompt and then say "Done.". The command
// writes a file, whose path is returned.
func (p *play) runs(prompt string) string {
	file := filepath.Join(p.Dir, strings.ReplaceAll(prompt, " ", "-"))
	p.Model.On(prompt, lines.Reply{Calls: []lines.Call{lines.Shell(writes(file))}}, lines.Reply{Text: "Done."})
	return file
}

// asksToRun sends a message on which the model runs a command, and waits for the
// confirmation. The command writes a file, whose path is returned.
func (c *client) asksToRun(prompt string) (file string, request lines.Line) {
	file = c.p.runs(prompt)
	_, request = c.asked(prompt)
	return file, request
}

// writes is a command that writes a file.
func writes(file string) string { return "echo ran > '" + file + "'" }

// answer answers a confirm_request, with more members.
func (c *client) answer(request lines.Line, action string, more object) {
	cmd := object{"type": "confirm", "request_id": request.Str("payload.request_id"), "action": action}
	maps.Copy(cmd, more)
	c.Send(cmd)
}

// finish waits for idle and allows every call until then. It returns all lines.
func (c *client) finish() (all []lines.Line) {
	for {
		before, l := c.UntilWithin(c.p.Long(), "idle", isType("idle", "confirm_request"))
		if all = append(append(all, before...), l); isType("idle")(l) {
			return all
		}
		c.answer(l, "allow", nil)
	}
}

// allows allows a pending call and expects it to run.
func (c *client) allows(request lines.Line, file string) {
	c.answer(request, "allow", nil)
	c.finish()
	c.p.FailIf(!ran(file), "expected the tool to run after it was allowed, but it did not")
}

// streams runs a turn and waits until its answer begins. The answer stops after its first piece, and
// goes on when the returned function is called.
func (c *client) streams() (goOn func()) {
	hold := make(chan struct{})
	c.p.Model.On("talk long", lines.Reply{Pieces: []string{"early", "late"}, Hold: hold})
	c.say("talk long")
	c.p.awaitModelCall("talk long")
	c.Try(c.p.S.Config().Patience, func(l lines.Line) bool { return l.Str("payload.type") == "streaming" })
	return func() { close(hold) }
}

// awaitsConfirm expects a confirmation to be pending. when is for the text of a failure.
func (c *client) awaitsConfirm(request lines.Line, when string) {
	before, status := c.status()
	same := status.Str("payload.pending_confirm.request_id") == request.Str("payload.request_id")
	c.p.FailIf(!same, "expected %s to be pending %s, got %s after %s", request, when, status, lines.First(before))
}

// messages returns the texts of the assistant_message lines.
func messages(all []lines.Line) (texts []string) {
	for _, l := range lines.Only(all, isType("assistant_message")) {
		texts = append(texts, l.Str("payload.text"))
	}
	return texts
}

// says expects one assistant_message with a text.
func (p *play) says(all []lines.Line, text string) {
	n := len(slices.DeleteFunc(messages(all), func(other string) bool { return other != text }))
	p.FailIf(n != 1, "expected one assistant_message %q, got %q", text, messages(all))
}

// isBusy is the busy of a status.
func isBusy(status lines.Line) any { return lines.At(status.Body, "payload.busy") }
