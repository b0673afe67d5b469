package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Ways in which what an ACP agent says comes to who reads it.
const (
	nameAgentPipe = "a pipe"
	nameAgentHub  = "maestro serve, a viewer"
)

// agentWarmUp is how many messages come before those that count.
const agentWarmUp = 100

// A delay is how long messages of an agent were on their way.
type delay struct{ p50, p99 float64 } // ms

func (d delay) String() string { return fmt.Sprintf("p50 %.3f ms, p99 %.3f ms", d.p50, d.p99) }

func delayP50(d delay) float64 { return d.p50 }
func delayP99(d delay) float64 { return d.p99 }

// acp measures what the hub adds to the way from an ACP agent to a viewer, beside
// the same agent read through its pipe.
func (t *trial) acp() {
	t.build("maestro")
	runs := []contender{{name: nameAgentPipe, program: "acpagent"}, {name: nameAgentHub, program: "acpagent"}}
	t.reportAgents(rounds(t, runs, func(t *trial, c contender) delay {
		if c.name == nameAgentPipe {
			return t.readAgent()
		}
		return t.viewAgent()
	}))
}

func (t *trial) reportAgents(res *results[delay]) {
	p := t.plan.acp
	more := func(name string) series { return res.of(name, delayP50).less(res.of(nameAgentPipe, delayP50)) }
	t.report.show(res.table("ACP agents",
		fmt.Sprintf("An agent says %d messages at %d a second, each with the time at which it was written. "+
			"Through the pipe they are read by this process itself; the viewer is a WebSocket client.", p.messages, p.rate),
		"read through", res.each("p50 ms", spread, delayP50), res.each("p99 ms", spread, delayP99),
		column{"more p50 ms", func(name string) string { return spread(more(name)) }}))
	t.report.judge(target{
		what: "p50 that the hub adds between an ACP agent's write and a viewer's read", limit: 1, unit: "ms", versus: "(abs)",
		got: more(nameAgentHub), void: cmp.Or(res.void(nameAgentHub), res.void(nameAgentPipe)),
	})
}

// agentPrompt has the agent speak.
func (t *trial) agentPrompt() string {
	return fmt.Sprintf("%d %d", agentWarmUp+t.plan.acp.messages, t.plan.acp.rate)
}

// hurry kills a server that takes too long, which ends what is read from it.
func (t *trial) hurry(s *server) {
	p := t.plan.acp
	hung := time.AfterFunc(greetTimeout+2*time.Duration(agentWarmUp+p.messages)*time.Second/time.Duration(p.rate), s.kill)
	t.atEnd(func() error { hung.Stop(); return nil })
}

// readAgent reads the agent through its pipe.
func (t *trial) readAgent() delay {
	s := t.launch("acpagent")
	t.hurry(s)
	for id, r := range []struct {
		method string
		params any
	}{
		{"initialize", map[string]any{"protocolVersion": 1}},
		{"session/new", map[string]any{"cwd": t.bin, "mcpServers": []any{}}},
		{"session/prompt", map[string]any{"sessionId": "bench", "prompt": []any{map[string]string{"type": "text", "text": t.agentPrompt()}}}},
	} {
		check(s.orders.Encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": r.method, "params": r.params}))
	}
	return t.listen(s, func() (text string, err error) {
		var m struct {
			Params struct {
				Update struct {
					Content struct{ Text string }
				}
			}
		}
		err = s.reports.Decode(&m)
		return m.Params.Update.Content.Text, err
	})
}

// viewAgent reads the agent as a viewer of the program that started it.
func (t *trial) viewAgent() delay {
	s, controller := t.serveDriven(t.tempDir(t.bin), "acp:"+t.built["acpagent"])
	t.hurry(s)
	left := make(chan error, 1)
	go func() { left <- controller.await(runEnd) }() // ends with the run, or with the server
	view := must(dialWire(s.addr, s.dialect))
	t.atEnd(view.close)
	check(controller.command(&contracts.Prompt{Content: t.agentPrompt()}))
	d := t.listen(s, func() (text string, err error) {
		payload, err := view.next()
		if err != nil {
			return "", err
		}
		var env struct {
			Type    string
			Message struct{ Type, Content, Message string }
		}
		check(json.Unmarshal(payload, &env))
		if env.Type == "reset" || env.Message.Type == "error" {
			return "", fmt.Errorf("got a %s: %s", env.Type, env.Message.Message)
		}
		if env.Message.Type != "response_chunk" {
			return "", nil
		}
		return env.Message.Content, nil
	})
	check(<-left)
	return d
}

// listen reads texts of the agent until all messages have come.
func (t *trial) listen(s *server, next func() (text string, err error)) delay {
	var h hearing
	for len(h.took) < agentWarmUp+t.plan.acp.messages {
		text, err := next()
		if err != nil {
			check(fmt.Errorf("after %d messages: %w: %s", len(h.took), err, s.stderr))
		}
		check(h.hear(text))
	}
	return h.delay()
}

// A hearing is what has been read of an agent.
type hearing struct{ took []time.Duration }

// hear takes in a text, which is marks of messages that follow those before:
// number:nanoseconds; each.
func (h *hearing) hear(text string) error {
	now := time.Now()
	for mark := range strings.SplitSeq(text, ";") {
		if mark == "" {
			continue
		}
		number, sent, _ := strings.Cut(mark, ":")
		at, err := strconv.ParseInt(sent, 10, 64)
		if err != nil || number != strconv.Itoa(len(h.took)) {
			return fmt.Errorf("got %q, want message %d", mark, len(h.took))
		}
		h.took = append(h.took, now.Sub(time.Unix(0, at)))
	}
	return nil
}

// delay is what the messages took that count.
func (h *hearing) delay() delay {
	sorted := slices.Sorted(slices.Values(h.took[agentWarmUp:]))
	return delay{ms(quantile(sorted, 0.5)), ms(quantile(sorted, 0.99))}
}
