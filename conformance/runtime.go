package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
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
}

// DefaultPrompts returns prompts that an agent understands which has a shell and
// the local model: say, call and pause are that model's commands.
func DefaultPrompts() Prompts {
	return Prompts{
		Say:  "say Hello, conformance.",
		Long: "say One moment.\ncall bash|Bash|shell {\"command\":\"sleep 30\"}\nsay That took a while.",
		Ask:  "call bash|Bash|shell {\"command\":\"echo conformance > conformance.txt; cat conformance.txt\"}\nsay That is done.",
	}
}

// any reports whether the runtime may be any agent.
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
	known := message("status").with("message", "Prompt: "+plainPrompt)
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
