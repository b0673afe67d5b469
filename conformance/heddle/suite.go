// Package heddle judges servers of the Heddle headless dialect: requests and responses
// as lines of JSON on standard input and output. Each scenario starts the server in a new
// directory, with a model of the suite behind it.
package heddle

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
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
		Protocol: "heddle", Title: "Rules of the Heddle dialect",
		About: "`maestro conformance --protocol heddle` judges servers of the Heddle headless dialect by these rules.\n" +
			"[conformance.md](conformance.md#heddle-and-chord) says how to run it.",
		Scenarios: slices.Concat(requests(), events(), tools(), cancels(), outcomes(), configs(), transcripts()),
		Rules:     conformance.ParseRules(rulesText),
		Check:     lines.CheckTarget,
	}
}

type object = lines.Object

// A play is one scenario being played against the server.
type play struct{ *lines.Play }

// scenario returns a scenario about one rule, with a server that was sent an init.
func scenario(name, rule, title string, config object, story func(*play, *client)) conformance.Scenario {
	return unstarted(name, rule, title, func(p *play) { story(p, p.begin(config)) })
}

// unstarted returns a scenario that starts its servers by itself.
func unstarted(name, rule, title string, story func(*play)) conformance.Scenario {
	return lines.Scenario(name, rule, title, func(p *lines.Play) { story(&play{p}) })
}

// slow marks a scenario that mostly waits.
func slow(sc conformance.Scenario) conformance.Scenario {
	sc.Slow = true
	return sc
}

// heartbeats is the variable with the interval of heartbeats in milliseconds.
const heartbeats = "HEDDLE_HEARTBEAT_INTERVAL"

// start starts a server with variables as pairs of name and value. Without another
// value it sends no heartbeats in the time of a scenario.
func (p *play) start(env ...string) *client {
	all := p.Environ("HEDDLE_BASE_URL", "")
	all[heartbeats], all["HEDDLE_PROTOCOL_VERSION"] = "3600000", ""
	for pair := range slices.Chunk(env, 2) {
		all[pair[0]] = pair[1]
	}
	return &client{p: p, Client: p.Start(lines.Setup{Env: all, Framed: "H2"})}
}

// begin starts a server and sends init.
func (p *play) begin(config object, env ...string) *client {
	c := p.start(env...)
	c.init(config)
	return c
}

// A client is the client of a server that was started.
type client struct {
	*lines.Client
	p     *play
	inits int
	minor int // of the version in the newest init_ok
}

// newest is the version that clients ask for, so that the server shows all it has.
const newest = "0.5.0"

// request returns an init with a configuration that has no tools unless it says so.
func (c *client) request(config object) object {
	c.inits++
	full := object{"model": "conformance", "system_prompt": "You are helpful.", "tools": []string{}}
	maps.Copy(full, config)
	return object{"type": "init", "id": fmt.Sprint("init-", c.inits), "protocol_version": newest, "config": full}
}

// init initialises the session and returns init_ok.
func (c *client) init(config object) lines.Line { return c.initAs(c.request(config)) }

// initAs sends an init and returns init_ok.
func (c *client) initAs(request object) lines.Line {
	c.Send(request)
	_, ok := c.Until("init_ok", func(l lines.Line) bool {
		return isAnswer(l, "init_ok", request["id"].(string)) || l.Str("type") == "result"
	})
	c.p.FailIf(ok.Str("type") != "init_ok", "expected init_ok, got %s", ok)
	var major int
	_, _ = fmt.Sscanf(ok.Str("protocol_version"), "%d.%d", &major, &c.minor) // 0 if there is none
	return ok
}

func isAnswer(l lines.Line, kind, id string) bool { return l.Str("type") == kind && l.Str("id") == id }

// say sends a message as a send.
func (c *client) say(id, message string) {
	c.Send(object{"type": "send", "id": id, "message": message})
}

// cancel cancels a send.
func (c *client) cancel(id, target string) {
	c.Send(object{"type": "cancel", "id": id, "target_id": target})
}

// result waits for the result of a send. It returns the lines before it, too.
func (c *client) result(id string) ([]lines.Line, lines.Line) {
	return c.UntilWithin(c.p.Long(), "the result of "+id, func(l lines.Line) bool { return isAnswer(l, "result", id) })
}

// run sends a message and waits for its result.
func (c *client) run(id, message string) ([]lines.Line, lines.Line) {
	c.say(id, message)
	return c.result(id)
}

// runsWell is run for a send that must succeed.
func (c *client) runsWell(id, message string) ([]lines.Line, lines.Line) {
	before, result := c.run(id, message)
	c.p.FailIf(result.Str("status") != "ok", "expected a result with the status ok, got %s", result)
	return before, result
}

// status asks for the status. It returns the lines before the answer, too.
func (c *client) status(id string) ([]lines.Line, lines.Line) {
	c.Send(object{"type": "status", "id": id})
	return c.Until("status_ok with the id "+id, func(l lines.Line) bool { return isAnswer(l, "status_ok", id) })
}

// shutdown ends the server. It returns its last lines and its exit status.
func (c *client) shutdown(within time.Duration) ([]lines.Line, int) {
	c.Send(object{"type": "shutdown", "id": "bye"})
	return c.Exit(within)
}

// checkRefusal expects the result of an error outside of a send.
func (p *play) checkRefusal(l lines.Line, code, message string, ids ...string) {
	p.FailIf(l.Str("type") != "result" || l.Str("status") != "error" || l.Str("error.code") != code || !slices.Contains(ids, l.Str("id")) ||
		message != "" && l.Str("error.message") != message,
		"expected a result with the id %s, the status error, the code %s and the message %q, got %s",
		strings.Join(ids, " or "), code, cmp.Or(message, "(any)"), l)
}

// resultsOf returns the results of a send.
func resultsOf(all []lines.Line, send string) []lines.Line {
	return lines.Only(all, func(l lines.Line) bool { return isAnswer(l, "result", send) })
}

// ofKind returns the events of some kinds.
func ofKind(all []lines.Line, kinds ...string) []lines.Line {
	return lines.Only(all, func(l lines.Line) bool {
		return l.Str("type") == "event" && slices.Contains(kinds, l.Str("event.event"))
	})
}

// allow returns a configuration that allows tools with a purpose, for servers that know
// permissions without a question.
func allow(kinds ...string) object {
	names := []string{}
	for _, kind := range kinds {
		names = append(names, lines.Names(kind)...)
	}
	return object{"tools": names, "permissions": object{"allow": names, "deny": []string{}, "ask": []string{}}}
}

// glob returns a call that lists files.
func glob(pattern string) lines.Call {
	return lines.Call{Kind: "glob", Args: lines.Fixed(object{"pattern": pattern})}
}
