package acp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/memory"
)

const (
	// maxStatus bounds a status that lists data of the program, in bytes.
	maxStatus = 8 << 10

	usd = "USD" // the only currency of a response's cost

	// maxCost and maxCount bound accepted costs and token counts, so that their
	// sums cannot overflow.
	maxCost  = 1e9
	maxCount = 1 << 50
)

// update handles an update of the program's session. Only its reader calls it.
//
// It checks the kind first, so that an unknown kind is not taken for another
// with the same fields.
func (p *peer) update(params json.RawMessage) {
	var n struct {
		SessionID string          `json:"sessionId"`
		Update    json.RawMessage `json:"update"`
	}
	var kind struct {
		Name string `json:"sessionUpdate"`
	}
	decode(params, &n)
	decode(n.Update, &kind)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != "" && n.SessionID != p.session {
		p.log.Debug("agent process sent an update of another session", "kind", kind.Name)
		return
	}
	r, raw := p.active(), n.Update
	switch name := kind.Name; {
	case name == "available_commands_update":
		p.tellCommands(raw)
	case name == "current_mode_update":
		p.tellMode(raw)
	case name == "config_option_update":
		p.takeOptions(raw)
	case name == "usage_update":
		p.takeUsage(raw)
	case r == nil: // a repetition while a session is loaded, or too late
		p.log.Debug("agent process sent an update that is not shown", "kind", name)
	case name == "agent_message_chunk":
		p.takeChunk(r, raw, false)
	case name == "agent_thought_chunk":
		p.takeChunk(r, raw, true)
	case name == "tool_call":
		p.takeCall(r, raw, true)
	case name == "tool_call_update":
		p.takeCall(r, raw, false)
	case name == "plan":
		p.tellPlan(r, raw)
	default: // also messages of users, which come only when a session is loaded
		p.log.Debug("agent process sent an update that is not shown", "kind", name)
	}
}

func (p *peer) takeChunk(r *run, raw json.RawMessage, thinking bool) {
	var c struct {
		Content block `json:"content"`
	}
	decode(raw, &c)
	p.say(r, c.Content.text(), thinking)
}

// tellCommands publishes the program's commands if they have changed.
func (p *peer) tellCommands(raw json.RawMessage) {
	var u struct {
		Commands list[struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			Input       struct {
				Hint string `json:"hint"`
			} `json:"input"`
		}] `json:"availableCommands"`
	}
	decode(raw, &u)
	var names []string
	offered := []contracts.AgentCommand{}
	for _, c := range u.Commands.kept {
		names = append(names, "/"+c.Name)
		if strings.ContainsFunc(c.Name, unicode.IsSpace) || c.Name == "" || len(c.Name) > maxLabel || len(offered) == contracts.MaxAgentCommands {
			continue
		}
		offered = append(offered, contracts.AgentCommand{
			Name: visible(c.Name), Description: shown(c.Description, maxTitle), Hint: shown(c.Input.Hint, maxLabel),
		})
	}
	p.a.mu.Lock()
	p.a.offer.Commands = offered
	p.a.mu.Unlock()
	if len(names) == 0 {
		return
	}
	text := abridge.Bytes("Agent commands: "+strings.Join(names, " "), maxStatus)
	sum := memory.Digest(text)
	p.a.mu.Lock()
	again := p.a.commands == sum
	p.a.commands = sum
	p.a.mu.Unlock()
	if !again {
		p.status(text)
	}
}

// tellMode publishes the program's new mode.
func (p *peer) tellMode(raw json.RawMessage) {
	var u struct {
		ID string `json:"currentModeId"`
	}
	if decode(raw, &u); u.ID == "" {
		return
	}
	name := p.setMode(u.ID)
	if p.active() != nil {
		p.status("Agent mode: " + name)
	}
}

// setMode keeps the program's mode for those who ask what it offers, and returns its name.
func (p *peer) setMode(id string) string {
	name := id
	for _, m := range p.modes {
		if m.ID == id && m.Name != "" {
			name = m.Name
		}
	}
	name = abridge.Bytes(name, maxLabel)
	p.a.mu.Lock()
	p.a.offer.Mode = visible(name)
	p.a.mu.Unlock()
	return name
}

// Offer implements [contracts.Offering].
func (a *Agent) Offer() contracts.AgentOffer {
	a.mu.Lock()
	defer a.mu.Unlock()
	offer := a.offer
	if offer.Commands == nil {
		offer.Commands = []contracts.AgentCommand{}
	}
	return offer
}

func (p *peer) takeOptions(raw json.RawMessage) {
	var u struct {
		Options list[option] `json:"configOptions"`
	}
	if decode(raw, &u); u.Options.kept != nil {
		p.used = settingsOf(u.Options)
	}
}

// takeUsage records the use of the context and the cost of the session. For a
// loaded session, the first reported cost is the base.
func (p *peer) takeUsage(raw json.RawMessage) {
	var u struct {
		Used float64 `json:"used"`
		Size float64 `json:"size"`
		Cost *struct {
			Amount   float64 `json:"amount"`
			Currency string  `json:"currency"`
		} `json:"cost"`
	}
	decode(raw, &u)
	r := p.active()
	if u.Cost != nil && u.Cost.Currency == usd && u.Cost.Amount >= 0 && u.Cost.Amount <= maxCost {
		if r != nil && p.costKnown {
			r.cost = min(r.cost+max(u.Cost.Amount-p.spent, 0), maxCost)
		}
		p.spent, p.costKnown = u.Cost.Amount, true
	}
	if r != nil && u.Size > 0 && max(u.Used, u.Size) <= maxCount {
		r.filled = fmt.Sprintf("Context: %.0f of %.0f tokens used", u.Used, u.Size)
	}
}

// tellPlan publishes the program's plan if it has changed.
func (p *peer) tellPlan(r *run, raw json.RawMessage) {
	var u struct {
		Entries list[struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		}] `json:"entries"`
	}
	decode(raw, &u)
	var list strings.Builder
	done := 0
	for _, e := range u.Entries.kept {
		mark := " "
		switch e.Status {
		case "completed":
			mark = "x"
			done++
		case "in_progress":
			mark = ">"
		}
		fmt.Fprintf(&list, "\n[%s] %s", mark, mask.Text(e.Content))
	}
	text := abridge.Bytes(fmt.Sprintf("Plan, %d of %d done:%s", done, len(u.Entries.kept)+u.Entries.more, &list), maxStatus)
	if len(u.Entries.kept) == 0 || text == r.plan {
		return
	}
	r.plan = text
	p.status(text)
}
