package hub

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
)

// Classes of entries that a client can opt out of.
const (
	classStatus journal.Class = 1 << iota
	classConnectionInfo
	classCompaction
	classRaw
)

func classOf(ev contracts.Event) journal.Class {
	switch ev.(type) {
	case *contracts.Status:
		return classStatus
	case *contracts.ConnectionInfo:
		return classConnectionInfo
	case *contracts.Compaction:
		return classCompaction
	case *contracts.RawAgentEvent:
		return classRaw
	}
	return 0
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

// head returns the cursor of the newest entry, including those of the running
// transaction.
func (tx *tx) head() uint64 { return tx.journal.Head() + uint64(len(tx.out)) }

// publish folds events into the state and adds them to the transaction's entries.
func (tx *tx) publish(events ...contracts.Event) {
	for _, ev := range events {
		for _, part := range split(ev) {
			tx.publishEncoded(encode(nil, part))
		}
	}
}

func (tx *tx) publishEncoded(e encoded) {
	if tx.life.frozen {
		return
	}
	tx.log.events.Apply(e.event)
	if tx.work.run != nil {
		tx.work.run.track(e.event, tx.now)
	}
	tx.log.lastPublished = tx.now
	tx.log.published++
	tx.opts.Observer.Published(e.event, tx.now)
	tx.append(journal.Entry{
		Kind: journal.Message, Class: classOf(e.event), Transient: e.transient, Body: e.Body,
		TextStart: uint32(e.TextStart), TextEnd: uint32(e.TextEnd),
	})
	switch ev := e.event.(type) {
	case *contracts.UtilityCommandStarted:
		tx.captureStart(ev.CommandID)
	case *contracts.UtilityCommandOutput:
		tx.addUnread(ev.CommandID, len(e.Body))
	}
}

// publishSnapshot publishes the whole state, after changes that clients need not be
// able to fold. The store keeps an empty note in place of the snapshot, because the
// stored events give the same state.
func (tx *tx) publishSnapshot() { tx.appendSnapshot(true) }

func (tx *tx) appendSnapshot(transient bool) {
	snap := tx.snapshot()
	snap.Cursor = tx.head() + 1 // a snapshot has a cursor of its own
	body, err := contracts.EncodeSnapshot(snap)
	if err != nil || len(body) > journal.MaxBody {
		tx.logger.Error("snapshot skipped", "bytes", len(body), "err", err) // clients have the entries
		return
	}
	tx.append(journal.Entry{Kind: journal.Snapshot, Transient: transient, Body: body})
}

// note adds a hidden entry, from which restore rebuilds state that events do not
// carry. It returns the entry's cursor.
func (tx *tx) note(n note) uint64 {
	if n.Send != nil && !tx.life.frozen {
		tx.unansweredSend, tx.unansweredIndex = &n, len(tx.out)
	}
	return tx.append(journal.Entry{Kind: journal.Note, Body: encodeNote(n)})
}

func encodeNote(n note) []byte {
	body, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("hub: encode note: %v", err)) // every field of a note can be encoded
	}
	return body
}

func (tx *tx) append(e journal.Entry) uint64 {
	if tx.life.frozen {
		return tx.head()
	}
	e.Time = tx.now.UnixMilli()
	tx.out = append(tx.out, e)
	if !e.Transient {
		tx.log.sinceCheckpoint += len(e.Body)
	}
	return tx.head()
}

// Errors that clients see when a session fails. The session can be opened again from
// the store.
var (
	errUnwritten = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session's journal cannot be written"}
	errBroken    = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session has failed by a defect of the server"}
)

// fail ends the session because of err. Clients get the message of clientErr.
func (tx *tx) fail(clientErr *contracts.Error, err error) {
	tx.life.failed = fmt.Errorf("%w: %w", clientErr, err)
	tx.logger.Error("session failed", "err", tx.life.failed)
	tx.roster.closeSockets(&contracts.Error{Code: contracts.CodeRuntimeFailed, Message: clientErr.Message})
	tx.end()
}

// syncStore is the group commit. It syncs the entries written so far and then makes
// them visible.
func (h *Hub) syncStore() {
	for {
		select {
		case <-h.unsynced:
		case <-h.done:
			return
		}
		upTo := h.journal.Head()
		if err := h.opts.Store.Sync(); err != nil {
			h.update(func(tx *tx) { tx.fail(errUnwritten, fmt.Errorf("sync: %w", err)) })
			return
		}
		h.journal.Reveal(upTo)
		h.update(func(tx *tx) {
			close(tx.log.revealed)
			tx.log.revealed = make(chan struct{})
		})
	}
}

// awaitVisible waits until the entries up to cursor are visible. It returns an
// error if the session failed before.
func (h *Hub) awaitVisible(cursor uint64) error {
	for {
		h.mu.Lock()
		revealed, failed := h.state.log.revealed, h.state.life.failed
		h.mu.Unlock()
		switch {
		case failed != nil:
			return errFailed
		case h.journal.Visible() >= cursor:
			return nil
		}
		select {
		case <-revealed:
		case <-h.done:
			if h.Err() == nil {
				return nil // a regular end: closing the store syncs it
			}
		}
	}
}

// host is the hub's implementation of contracts.Host.
type host Hub

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

// Restored implements [contracts.Host].
func (a *host) Restored() bool { return a.restored || a.opts.Restored != nil }

// ApprovalMode implements [contracts.Host].
func (a *host) ApprovalMode() contracts.ApprovalMode {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.work.mode
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

// rawEvent returns an event of the hub about a run.
func rawEvent(kind string, more map[string]any) *contracts.RawAgentEvent {
	body := map[string]any{"type": kind}
	maps.Copy(body, more)
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("hub: encode raw event: %v", err)) // more holds only strings and maps of strings
	}
	return &contracts.RawAgentEvent{EventKind: kind, Event: text}
}
