package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// host is the hub's implementation of contracts.Host.
type host Hub

// Publish implements [contracts.Host].
func (a *host) Publish(ctx context.Context, events ...contracts.Event) error {
	h := (*Hub)(a)
	if h.local.Load() {
		if err := h.awaitReader(ctx, localID, &h.metrics.AgentWaits); err != nil {
			return err
		}
	}
	return h.publishEvents(events)
}

// publishUtility publishes events of commands and watches. Output of commands does not
// wait for the local client. Watch events do, because the number of file changes is
// not bounded.
func (h *Hub) publishUtility(ctx context.Context, events ...contracts.Event) error {
	if slices.ContainsFunc(events, func(ev contracts.Event) bool { _, ok := ev.(*contracts.UtilityFileWatchEvent); return ok }) {
		return (*host)(h).Publish(ctx, events...)
	}
	return h.publishEvents(events)
}

// publishEvents encodes events outside the lock and publishes them.
func (h *Hub) publishEvents(events []contracts.Event) error {
	batch := make([]encoded, 0, len(events))
	pooled := takeBuffer() // for the first event, which is often the only one
	defer giveBuffer(pooled)
	buf := *pooled
	for _, ev := range events {
		for _, part := range split(ev) {
			batch = append(batch, encode(buf, part))
			buf = nil
		}
	}
	if len(batch) > 0 {
		*pooled = batch[0].Body[:0]
	}
	err := error(nil)
	h.update(func(tx *tx) {
		if tx.life.phase == phaseEnded || tx.life.frozen {
			err = errEnded
			return
		}
		for _, e := range batch {
			tx.publishEncoded(e)
		}
	})
	return err
}

// A class of entries is what some clients are not sent: the raw agent events, the events
// about people, or a notification that they opted out of.
var (
	notifications       = contracts.Notifications()
	classRaw            = journal.Class(1 << len(notifications))
	classPeople         = classRaw << 1
	classConnectionInfo = classNamed(string(contracts.NotifyConnectionInfo))
)

// classNamed returns the class of a notification, or 0 if the name is none.
func classNamed(name string) journal.Class {
	if i := slices.Index(notifications, contracts.Notification(name)); i >= 0 {
		return 1 << i
	}
	return 0
}

func classOf(ev contracts.Event) journal.Class {
	if _, raw := ev.(*contracts.RawAgentEvent); raw {
		return classRaw
	}
	if contracts.AboutPeople(ev) {
		return classPeople
	}
	return classNamed(ev.EventType())
}

// encoded is an encoded event.
type encoded struct {
	event     contracts.Event
	transient bool // the store does not keep it
	contracts.Encoded
}

// encode validates and encodes an event. It replaces an event that is invalid or
// too long by an error event (R16). The body is in buf if buf is large enough.
func encode(buf []byte, ev contracts.Event) encoded {
	enc, err := contracts.EncodeEventInto(buf, ev)
	switch {
	case err == nil && len(enc.Body) <= contracts.MaxEventBytes:
		return encoded{event: ev, Encoded: enc}
	case err == nil:
		err = fmt.Errorf("%s of %d bytes is too long", ev.EventType(), len(enc.Body))
	}
	bad := &contracts.ErrorEvent{Message: "Failed to emit headless message: " + err.Error(), ErrorType: contracts.ErrorProtocol}
	if enc, err = contracts.EncodeEvent(bad); err != nil {
		panic(fmt.Sprintf("hub: encode error event: %v", err)) // an error event is always valid
	}
	return encoded{event: bad, Encoded: enc}
}

// split splits a text that is too long for one message into several events.
func split(ev contracts.Event) []contracts.Event {
	var text string
	var make func(string) contracts.Event
	switch e := ev.(type) {
	case *contracts.ResponseChunk:
		text = e.Content
		make = func(s string) contracts.Event { c := *e; c.Content = s; return &c }
	case *contracts.ToolOutput:
		text = e.Content
		make = func(s string) contracts.Event { c := *e; c.Content = s; return &c }
	case *contracts.UtilityCommandOutput:
		text = e.Content
		make = func(s string) contracts.Event { c := *e; c.Content = s; return &c }
	}
	if len(text) <= contracts.MaxTextBytes {
		return []contracts.Event{ev}
	}
	var parts []contracts.Event
	for _, s := range contracts.SplitText(text, contracts.MaxTextBytes) {
		parts = append(parts, make(s))
	}
	return parts
}

// Restored implements [contracts.Host].
func (a *host) Restored() bool { return a.restored || a.opts.Restored != nil }

// ApprovalMode implements [contracts.Host].
func (a *host) ApprovalMode() contracts.ApprovalMode {
	a.mu.Lock()
	defer a.mu.Unlock()
	mode := a.state.work.mode
	if mode == contracts.ApprovalAuto && slices.ContainsFunc(a.opts.Votes, func(r VoteRule) bool { return r.Votes > 1 }) {
		return contracts.ApprovalPrompt
	}
	return mode
}

// ClientTools implements [contracts.Host].
func (a *host) ClientTools() []contracts.ClientTool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.state.clients.holder(); c != nil && c.terms.CanAnswer(contracts.RequestClientTool) {
		return c.terms.ClientTools
	}
	return nil
}

func rawEvent(kind string, more map[string]any) *contracts.RawAgentEvent {
	body := map[string]any{"type": kind}
	maps.Copy(body, more)
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("hub: encode raw event: %v", err)) // more holds only strings and maps of strings
	}
	return &contracts.RawAgentEvent{EventKind: kind, Event: text}
}
