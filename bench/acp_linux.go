package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
func (b *bench) acp(ctx context.Context) error {
	if err := b.build(ctx, "maestro"); err != nil {
		return err
	}
	runs := []contender{{name: nameAgentPipe, program: "acpagent"}, {name: nameAgentHub, program: "acpagent"}}
	var res results[delay]
	err := rounds(ctx, b, &res, runs, func(c contender) (delay, error) {
		if c.name == nameAgentPipe {
			return b.readAgent(ctx)
		}
		return b.viewAgent(ctx)
	})
	if err != nil {
		return err
	}
	b.reportAgents(&res)
	return nil
}

func (b *bench) reportAgents(res *results[delay]) {
	p := b.plan.acp
	pipe := res.of(nameAgentPipe, delayP50)
	t := table{
		title: "ACP agents",
		notes: []string{fmt.Sprintf("An agent says %d messages at %d a second, each with the time at which it was written. "+
			"Through the pipe they are read by this process itself; the viewer is a WebSocket client.", p.messages, p.rate)},
		head: []string{"read through", "p50 ms", "p99 ms", "more p50 ms"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		p50 := res.of(name, delayP50)
		t.add(name, spread(p50), spread(res.of(name, delayP99)), spread(p50.less(pipe)))
	}
	b.report.tables = append(b.report.tables, t)
	void := res.void(nameAgentHub)
	if void == "" {
		void = res.void(nameAgentPipe)
	}
	b.report.targets = append(b.report.targets, target{
		what: "p50 that the hub adds between an ACP agent's write and a viewer's read", limit: 1, unit: "ms", versus: "(abs)",
		got: res.of(nameAgentHub, delayP50).less(pipe), void: void,
	})
}

// agentPrompt has the agent speak.
func (b *bench) agentPrompt() string {
	return fmt.Sprintf("%d %d", agentWarmUp+b.plan.acp.messages, b.plan.acp.rate)
}

// readAgent reads the agent through its pipe.
func (b *bench) readAgent(ctx context.Context) (d delay, err error) {
	s, err := launch(ctx, b.built["acpagent"])
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hung := time.AfterFunc(b.agentPatience(), s.kill) // which ends the read below
	defer hung.Stop()
	for id, r := range []struct {
		method string
		params any
	}{
		{"initialize", map[string]any{"protocolVersion": 1}},
		{"session/new", map[string]any{"cwd": b.bin, "mcpServers": []any{}}},
		{"session/prompt", map[string]any{"sessionId": "bench", "prompt": []any{map[string]string{"type": "text", "text": b.agentPrompt()}}}},
	} {
		if err := s.orders.Encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": r.method, "params": r.params}); err != nil {
			return d, err
		}
	}
	var h hearing
	for len(h.took) < agentWarmUp+b.plan.acp.messages {
		var m struct {
			Params struct {
				Update struct {
					Content struct{ Text string }
				}
			}
		}
		if err := s.reports.Decode(&m); err != nil {
			return d, fmt.Errorf("after %d messages: %w: %s", len(h.took), err, s.stderr)
		}
		if err := h.hear(m.Params.Update.Content.Text); err != nil {
			return d, err
		}
	}
	return h.delay(), nil
}

// agentPatience is how long a run may take.
func (b *bench) agentPatience() time.Duration {
	p := b.plan.acp
	return greetTimeout + 2*time.Duration(agentWarmUp+p.messages)*time.Second/time.Duration(p.rate)
}

// viewAgent reads the agent as a viewer of the program that started it.
func (b *bench) viewAgent(ctx context.Context) (d delay, err error) {
	dir, err := os.MkdirTemp(b.bin, "serve-")
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	s, session, err := serveAgent(ctx, b.built["maestro"], dir, "acp:"+b.built["acpagent"])
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hung := time.AfterFunc(b.agentPatience(), s.kill) // which ends the read below
	defer hung.Stop()
	controller, err := drive(s.addr, session)
	if err != nil {
		return d, err
	}
	defer shut(controller.fd)
	left := make(chan error, 1)
	go func() { left <- controller.await(answerEnd) }() // ends with the answer, or with the server
	defer func() {
		if err != nil {
			s.kill()
		}
		err = errors.Join(err, <-left)
	}()
	view, seen, err := dial(s.addr, attachDialect(session, contracts.RoleViewer))
	if err != nil {
		return d, err
	}
	defer shut(view)
	if err := controller.send(&contracts.Prompt{Content: b.agentPrompt()}); err != nil {
		return d, err
	}
	r := frameReader{fd: view, in: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(seen), socketReader(view)), readSize)}
	var h hearing
	for len(h.took) < agentWarmUp+b.plan.acp.messages {
		payload, err := r.next()
		if err != nil {
			return d, fmt.Errorf("after %d messages: %w: %s", len(h.took), err, s.stderr)
		}
		var env struct {
			Type    string
			Message struct{ Type, Content, Message string }
		}
		if err := json.Unmarshal(payload, &env); err != nil {
			return d, err
		}
		switch {
		case env.Type == "reset" || env.Message.Type == "error":
			return d, fmt.Errorf("got a %s after %d messages: %s", env.Type, len(h.took), env.Message.Message)
		case env.Message.Type == "response_chunk":
			if err := h.hear(env.Message.Content); err != nil {
				return d, err
			}
		}
	}
	return h.delay(), nil
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
	ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
	return delay{ms(quantile(sorted, 0.5)), ms(quantile(sorted, 0.99))}
}
