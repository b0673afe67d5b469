// Package chord judges servers of the Chord headless dialect: commands and envelopes as
// lines of JSON on standard input and output. Each scenario starts the server in a new
// session directory, with a model of the suite behind it.
package chord

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/lines"
)

//go:embed rules.txt
var rulesText string

// Suite returns the suite about the dialect.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Protocol: "chord", Title: "Rules of the Chord dialect",
		About: "`maestro conformance --protocol chord` judges servers of the Chord headless dialect by these rules.\n" +
			"[conformance.md](conformance.md#heddle-and-chord) says how to run it.",
		Scenarios: slices.Concat(commands(), turns(), confirms(), pendings(), interruptions(), processes()),
		Rules:     conformance.ParseRules(rulesText),
		Check:     lines.CheckTarget,
	}
}

type object = lines.Object

// A play is one scenario being played against the server.
type play struct {
	*lines.Play
	began int // clients
}

// scenario returns a scenario about one rule.
func scenario(name, rule, title string, story func(*play)) conformance.Scenario {
	return lines.Scenario(name, rule, title, func(p *lines.Play) { story(&play{Play: p}) })
}

// maxOutput is the length in bytes that no line of output reaches.
const maxOutput = 1 << 20

// start starts a server in the session directory, with more flags.
func (p *play) start(flags ...string) *client {
	p.began++
	return &client{p: p, Client: lines.Start(p.S, fmt.Sprint("client", p.began), lines.Setup{
		Dir: p.Dir, Env: lines.Environment(p.S, p.Model, "OPENAI_BASE_URL", "/v1", p.Home),
		Flags: append([]string{"-d", p.Dir}, flags...), Framed: "C2", Check: p.check,
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

// startTime is how long a server may take to start.
const startTime = 20 * time.Second

func (c *client) ready() lines.Line {
	first := c.UntilWithin(c.p.Rule, startTime, "ready", func(lines.Line) bool { return true })[0]
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
	all := c.Until(c.p.Rule, reply, isType(reply))
	return all[:len(all)-1], all[len(all)-1]
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
	got := c.Until(c.p.Rule, "an error for "+text, func(lines.Line) bool { return true })[0]
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
	return c.UntilWithin(c.p.Rule, c.p.Long(), "idle", isType("idle"))
}

// turn sends a message and waits for idle, which must be of an outcome.
func (c *client) turn(text, outcome string) []lines.Line {
	c.say(text)
	all := c.untilIdle()
	c.ended(all, outcome)
	return all
}

// ended expects the last line to be idle of an outcome.
func (c *client) ended(all []lines.Line, outcome string) {
	last := all[len(all)-1]
	c.p.FailIf(last.Str("payload.last_outcome") != outcome, "expected idle with the last_outcome %s, got %s", outcome, last)
}

// unseen waits for the end of the first turn in the status, for a client that does not get
// idle. It returns what came but for the answers.
func (c *client) unseen() (rest []lines.Line) {
	for until := time.Now().Add(c.p.Long()); ; time.Sleep(50 * time.Millisecond) {
		before, status := c.status()
		rest = append(rest, before...)
		if lines.At(status.Body, "payload.busy") == false && status.Str("payload.last_outcome") != "" {
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
	all := c.UntilWithin(c.p.Rule, c.p.Long(), request, isType(request, "idle"))
	c.p.Offered(prompt, kind)
	last := all[len(all)-1]
	if last.Str("type") != request {
		c.p.S.Skip("not applicable: the server sends no %s for its %s tool", request, kind)
	}
	return all[:len(all)-1], last
}

// runs makes the model call the shell tool on a prompt and then say "Done.". The command
// writes a file, whose path is returned.
func (p *play) runs(prompt string) string {
	file := filepath.Join(p.Dir, strings.ReplaceAll(prompt, " ", "-"))
	p.Model.On(prompt, lines.Reply{Calls: []lines.Call{lines.Shell(writes(file))}}, lines.Reply{Text: "Done."})
	return file
}

// writes is a command that writes a file.
func writes(file string) string { return "echo ran > '" + file + "'" }

// answer answers a confirm_request, with more members.
func (c *client) answer(request lines.Line, action string, more object) {
	cmd := object{"type": "confirm", "request_id": request.Str("payload.request_id"), "action": action}
	for name, value := range more {
		cmd[name] = value
	}
	c.Send(cmd)
}

// finish waits for idle and allows every call until then. It returns all lines.
func (c *client) finish() (all []lines.Line) {
	for {
		all = append(all, c.UntilWithin(c.p.Rule, c.p.Long(), "idle", isType("idle", "confirm_request"))...)
		last := all[len(all)-1]
		if last.Str("type") == "idle" {
			return all
		}
		c.answer(last, "allow", nil)
	}
}
