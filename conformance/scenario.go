package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Scenario is one story told to the server, and the rules it judges.
type Scenario struct {
	Name  string   // group/promise, unique: what --run matches
	Title string   // the promise as a sentence
	Rules []string // rule numbers (R36, A44), decisions (D13), or sections of the specifications (9.5)
	Needs Needs
	Slow  bool // waits for the server's own clock; started first
	Last  bool // judges what others left at the server; started when they are over

	Limit time.Duration // how long it may take, if that is longer than Config.Timeout

	// Run plays the story. It returns when everything was as it should be;
	// failing and skipping end its goroutine from inside.
	Run func(*Session)
}

// Needs says what a scenario cannot do without. Its zero value runs on stdio
// and over WebSocket.
type Needs struct {
	Transport Transport                  // empty: stdio or WebSocket
	Strict    Strictness                 // whether the server refuses additions (D13)
	Seed      bool                       // the seed profile
	Responds  bool                       // an agent that answers prompts: not the scripted one of the published contract
	Operation contracts.UtilityOperation // a utility the server must offer
	Asks      []contracts.RequestType    // what the server must be able to ask a client that offers to answer
	Tokens    TokenPolicy                // of connection tokens; empty: either
	Auth      bool                       // the server wants a credential, and we have it
	Triggers  bool                       // an agent that knows the triggers: the conformance agent
	Runtime   Runtime                    // of the server; empty is what the prompts of the scenario need
}

// Needs that many scenarios have.
var (
	onStdio      = Needs{Transport: Stdio}
	onSocket     = Needs{Transport: Socket}
	overHTTP     = Needs{Transport: HTTP}
	seedOverHTTP = Needs{Transport: HTTP, Seed: true}
)

// scenario returns a scenario with these needs. Its rules are separated by spaces.
func (n Needs) scenario(name, rules, title string, run func(*Session)) Scenario {
	return Scenario{Name: name, Title: title, Rules: strings.Fields(rules), Needs: n, Run: run}
}

// triggers adds the conformance agent to the needs.
func (n Needs) triggers() Needs {
	n.Triggers = true
	return n
}

// A cast is the clients that are there when a story begins. The methods of Needs that
// follow return scenarios that begin with one: alice drives unless it says otherwise, vera
// watches. Those with a *Peer alone are about stdio and WebSocket, those with a *Caller
// about HTTP, those with a *pilot about any transport.

func (n Needs) controller(name, rules, title string, story func(*Session, *Peer)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.controller()) })
}

// watched begins with a controller and a viewer.
func (n Needs) watched(name, rules, title string, story func(s *Session, alice, vera *Peer)) Scenario {
	return n.controller(name, rules, title, func(s *Session, alice *Peer) { story(s, alice, s.viewer("vera")) })
}

// rivals begins with a controller, and one without the lease.
func (n Needs) rivals(name, rules, title string, story func(s *Session, alice, bob *Peer)) Scenario {
	return n.controller(name, rules, title, func(s *Session, alice *Peer) { story(s, alice, s.attachLater("bob")) })
}

// process begins with a process that was started and told nothing.
func (n Needs) process(name, rules, title string, story func(*Session, *Peer)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.spawn("alice")) })
}

func (n Needs) pilot(name, rules, title string, story func(*Session, *pilot)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.pilot()) })
}

// newcomer begins with a controller that has said nothing yet, in no session.
func (n Needs) newcomer(name, rules, title string, story func(*Session, *Caller)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.caller("alice", contracts.RoleController)) })
}

// connected begins with a controller without a subscription.
func (n Needs) connected(name, rules, title string, story func(*Session, *Caller)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.controllerOnly()) })
}

// driver begins with a controller that has a subscription.
func (n Needs) driver(name, rules, title string, story func(*Session, *Caller)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) { story(s, s.driver()) })
}

// visited is driver with a viewer that has a connection.
func (n Needs) visited(name, rules, title string, story func(s *Session, alice, vera *Caller)) Scenario {
	return n.driver(name, rules, title, func(s *Session, alice *Caller) { story(s, alice, s.guest("vera")) })
}

// attached begins with a controller and the stream of its subscription.
func (n Needs) attached(name, rules, title string, story func(*Session, *Caller, *Peer)) Scenario {
	return n.scenario(name, rules, title, func(s *Session) {
		alice, p := s.attached()
		story(s, alice, p)
	})
}

// slow marks a scenario that waits for the server's own clock.
func (sc Scenario) slow() Scenario {
	sc.Slow = true
	return sc
}

// A Transport is a way to reach a server.
type Transport string

const (
	Either Transport = ""
	Stdio  Transport = "stdio"  // a process per scenario
	Socket Transport = "ws"     // one server for all, a session per scenario
	HTTP   Transport = "http"   // the same over HTTP and server-sent events
	Hosted Transport = "hosted" // a hosted runner per scenario, over HTTP

	Anywhere  Transport = "any"       // stdio, ws or http, whichever the target is
	Networked Transport = "networked" // ws or http, whichever the target is
)

// A TokenPolicy says whether a connection over HTTP must prove who it is.
type TokenPolicy string

const (
	TokensRequired TokenPolicy = "required" // every call that acts for a connection presents its token
	TokensOptional TokenPolicy = "optional" // a token must be right if it is presented
)

// Strictness says which kind of server a scenario is about.
type Strictness int

const (
	AnyStrictness Strictness = iota
	OnlyTolerant             // the server ignores additions, the default (D13)
	OnlyStrict               // the server was started to refuse them
)

// Scenarios returns all scenarios in the order of their rules.
func Scenarios() []Scenario {
	return slices.Concat(framing(), handshake(), runs(), requests(), states(),
		leases(), handovers(), viewers(), streams(), resumes(), answers(), sockets(), utilities(),
		routes(), overviews(), histories(), inboxes(), lists(), spellings(), refusals(), connections(),
		creations(), subscriptions(), liveness(),
		posts(), tokens(), parity(), offers(),
		commands(), terminals(), files(), fileWatches(), possessions(), audiences(),
		hosting(), drains(), restarts(), agents(), questions(), sightings(), people(), approvers(), queues())
}

// reasonToSkip says why a scenario cannot run, or nothing.
func (n Needs) reasonToSkip(c *Config) string {
	if why := n.missingTransport(c); why != "" {
		return why
	}
	switch {
	case n.Strict == OnlyStrict && !c.Strict:
		return "needs a strict server"
	case n.Strict == OnlyTolerant && c.Strict:
		return "needs a tolerant server"
	case n.Seed && c.Profile == contracts.ProfilePublic:
		return "needs the seed profile"
	case n.Responds && c.Profile == contracts.ProfilePublic && c.Runtime != RuntimeAny:
		return "needs an agent that answers prompts"
	case n.Tokens != "" && n.Tokens != c.ConnectionTokens:
		return "needs connection tokens to be " + string(n.Tokens)
	case n.Runtime == RuntimeAny && c.Runtime != RuntimeAny:
		return "needs an agent that runs tools"
	case n.Triggers && c.Runtime == RuntimeAny:
		return "needs the conformance agent"
	case n.Auth && c.Token == "":
		return "needs a server with authentication"
	}
	return ""
}

// missingTransport says which target is missing, or nothing.
func (n Needs) missingTransport(c *Config) string {
	switch on, have := n.Transport, transportOf(c.Target); {
	case on == Hosted && c.Spawn == "":
		return "needs a hosted runner to spawn"
	case on == Hosted:
	case c.Target == "":
		return "needs a target"
	case on == Networked && have == Stdio:
		return "needs a ws or http target"
	case on == Either && have == HTTP:
		return "needs a stdio or ws target"
	case slices.Contains([]Transport{Stdio, Socket, HTTP}, on) && on != have:
		return "needs a " + string(on) + " target"
	}
	return ""
}

// transportOf returns how a target is reached, or nothing if it is no target.
func transportOf(target string) Transport {
	scheme, _, _ := strings.Cut(target, ":")
	return map[string]Transport{"stdio": Stdio, "ws": Socket, "wss": Socket, "http": HTTP, "https": HTTP}[scheme]
}

// Defaults of Config.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultPatience = 5 * time.Second
	DefaultParallel = 8
)

// A Runtime is what a server has behind it, as far as scenarios must know.
type Runtime string

const (
	RuntimeConformance Runtime = "conformance" // the conformance agent, whose prompts are triggers
	RuntimeAny         Runtime = "any"         // some agent that answers prompts in a way of its own
)

// Prompts are what scenarios about any agent say to it. An empty one skips the
// scenarios that would say it.
type Prompts struct {
	Say  string // leads to an answer
	Long string // leads to one that takes at least a second, better three
	Ask  string // leads to one call of a tool that asks for approval

	Burst  string // leads to one call of a shell tool that writes 10 MB, byte by byte; only for Hecate
	Secret string // leads to output with the secret, which replaces {secret}; only for Hecate
}

// DefaultPrompts returns prompts that an agent understands which has a shell and
// the local model: say, call and pause are that model's commands.
func DefaultPrompts() Prompts {
	return Prompts{
		Say:  "say Hello, conformance.",
		Long: "say One moment.\ncall bash|Bash|shell {\"command\":\"sleep 30\"}\nsay That took a while.",
		Ask:  "call bash|Bash|shell {\"command\":\"echo conformance > conformance.txt; cat conformance.txt\"}\nsay That is done.",

		Burst:  "call bash|Bash|shell {\"command\":\"yes | dd bs=1 count=10000000 2>/dev/null\"}",
		Secret: "call bash|Bash|shell {\"command\":\"echo {secret}\"}\nsay {secret}",
	}
}

func (s *Session) any() bool { return s.config.Runtime == RuntimeAny }

// scripted reports whether the runtime is the scripted agent of the published
// contract: it announces no calls, and takes every answer.
func (s *Session) scripted() bool { return s.published() && !s.any() }

// skipUnknownTrigger ends a scenario whose trigger the scripted agent took for the text of a
// prompt: approvals are the only trigger that the published contract has.
func (s *Session) skipUnknownTrigger(status string) {
	if name, taken := strings.CutPrefix(status, "Prompt: "+triggerPrefix); taken && s.scripted() {
		name, _, _ = strings.Cut(name, "__")
		s.skip("the agent does not know the prompt %s%s__", triggerPrefix, name)
	}
}

// conformanceAgent ends a scenario that goes on only with the conformance agent.
func (s *Session) conformanceAgent() {
	if s.any() {
		s.skip("needs the conformance agent")
	}
}

// ErrOtherAgent is what Run returns if the server should have the conformance agent
// behind it and has another one.
var ErrOtherAgent = errors.New("the server's agent is not the conformance agent")

// checkAgent says one plain prompt, in a session of its own, to each server that the
// scenarios are about. It returns an error only if another agent does something with
// the prompt: if the server fails before that, scenarios show it better.
func (c *Config) checkAgent(ctx context.Context, scenarios []Scenario) error {
	for _, on := range []Transport{Anywhere, Hosted} {
		judged := func(sc Scenario) bool {
			return (sc.Needs.Transport == Hosted) == (on == Hosted) && sc.Needs.reasonToSkip(c) == ""
		}
		if c.Runtime == RuntimeAny || !slices.ContainsFunc(scenarios, judged) {
			continue
		}
		runOne(ctx, c, Scenario{Needs: Needs{Transport: on}, Run: probeAgent})
		if did := c.found.otherAgent; did != "" {
			return fmt.Errorf("%w: the prompt %q led to %s instead of the status %q; start the server with the conformance agent "+
				"(maestro serve --agent conformance), or judge it with --runtime any", ErrOtherAgent, plainPrompt, did, "Prompt: "+plainPrompt)
		}
	}
	return nil
}

// plainPrompt is a prompt that no agent does anything bad for.
const plainPrompt = "hello"

// probeAgent finds out whether another agent than the conformance agent answers.
func probeAgent(s *Session) {
	if s.scenario.Needs.Transport == Hosted {
		s.spawned(start{})
	}
	d := s.pilot()
	d.tell("R37", &contracts.Prompt{Content: plainPrompt})
	known := prompted(plainPrompt)
	if f := d.awaits("R37", anyOf(known, signOfAnswer)); !known.ok(f) {
		s.config.found.otherAgent = f.Type
	}
}

// signOfAnswer wants what an agent shows once it does something of its own.
var signOfAnswer = anyOf(message("response_chunk"), message("response_end"), message("tool_call"), message("tool_start"),
	message("client_tool_request"), message("server_request"))

// prompts returns what to say to the agent there is.
func (s *Session) prompts() Prompts {
	if s.any() {
		return s.config.Prompts
	}
	s.ids++
	return Prompts{Say: "hello", Long: speaking(), Ask: approval(fmt.Sprintf("asked-%d", s.ids))}
}

// given returns a prompt unless there is none; then it ends the scenario.
func (s *Session) given(prompt, what string) string {
	if prompt == "" {
		s.skip("needs a prompt that %s", what)
	}
	return prompt
}

func (s *Session) say() string  { return s.given(s.prompts().Say, "is answered") }
func (s *Session) long() string { return s.given(s.prompts().Long, "takes a while to answer") }
func (s *Session) ask() string  { return s.given(s.prompts().Ask, "leads to an approval") }
