package hub

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A tx is a transaction on the state of a session. Hub.update makes one, locks Hub.mu
// and calls a function with it. The function changes the state, adds entries for the
// journal (publish and note) and adds functions that run after the lock is released
// (then). It must not block: no I/O, no channel waits, no calls into the agent.
//
// After the function returns, update appends the entries to the journal in one batch,
// releases the lock and runs the added functions. If the append fails or the function
// panics, the session ends: no client sees the entries, and the added functions do not
// run. The next process restores the state before the transaction from the journal.
type tx struct {
	*Hub
	*state

	now             time.Time       // when the transaction began
	out             []journal.Entry // added by publish and note
	after           []func(*Hub)    // added by then
	unansweredSend  *note           // the note of a ws.send that has no answer yet
	unansweredIndex int             // index of unansweredSend in out
	startRunAfter   <-chan struct{} // closed when a run that begins may start; nil: at once
	startedRun      *run            // the run that began; nil if none
	answering       *sender         // the client whose answer is executed; nil if none
}

// update runs f as a transaction. The functions that transactions add run in commit
// order, in one goroutine at a time. If another goroutine is running some, update
// leaves its own to that goroutine and returns without waiting for them.
func (h *Hub) update(f func(*tx)) {
	for acts := h.transact(f); len(acts) > 0; {
		acts = h.runEffects(acts)
	}
}

func (h *Hub) transact(f func(*tx)) (acts []func(*Hub)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tx := h.begin()
	if clientErr, err := tx.perform(f); err != nil {
		tx.abort(clientErr, err)
	}
	tx.arm()
	tx.noteChange()
	tx.batch = tx.out[:0]
	tx.effects = append(tx.effects, tx.after...)
	return tx.takeEffects()
}

// begin returns an empty transaction. The caller holds Hub.mu or is making the hub.
func (h *Hub) begin() *tx {
	return &tx{Hub: h, state: &h.state, now: time.Now(), out: h.state.batch[:0]}
}

// perform calls f and appends the entries. If that fails, it returns the error, and
// the error that clients see.
func (tx *tx) perform(f func(*tx)) (clientErr *contracts.Error, err error) {
	defer func() {
		if p := recover(); p != nil {
			tx.logger.Error("transaction panicked", "panic", p, "stack", string(debug.Stack()))
			clientErr, err = errBroken, fmt.Errorf("panic: %v", p)
		}
	}()
	f(tx)
	return errUnwritten, tx.commit()
}

// abort fails the session instead of completing the transaction.
func (tx *tx) abort(clientErr *contracts.Error, err error) {
	clear(tx.out)
	tx.out, tx.after = tx.out[:0], nil
	if r := tx.startedRun; r != nil && tx.work.run == r {
		tx.work.run = nil
		r.cancel(errEnded)
		close(r.done)
	}
	tx.fail(clientErr, err)
}

// takeEffects returns the effects to run, or none if another goroutine runs
// effects.
func (s *state) takeEffects() (acts []func(*Hub)) {
	if s.runningEffects {
		return nil
	}
	acts, s.effects = s.effects, nil
	s.runningEffects = len(acts) > 0
	return acts
}

// runEffects runs effects and returns those that were added meanwhile. If one
// panics, the next transaction runs the others.
func (h *Hub) runEffects(acts []func(*Hub)) (more []func(*Hub)) {
	done := false
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.state.runningEffects = false; done {
			more = h.state.takeEffects()
		}
	}()
	for _, act := range acts {
		act(h)
	}
	done = true
	return nil
}

// then runs act after the transaction, without the lock. It must not block.
func (tx *tx) then(act func(*Hub)) { tx.after = append(tx.after, act) }

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
	tx.append(journal.Entry{
		Kind: journal.Message, Class: tx.fold(e.event), Transient: e.transient, Body: e.Body,
		TextStart: uint32(e.TextStart), TextEnd: uint32(e.TextEnd),
	})
	switch ev := e.event.(type) {
	case *contracts.UtilityCommandStarted:
		if p := tx.clients.starting[ev.CommandID]; p != nil {
			p.capture(tx) // now, because a short command may have exited by the time Do returns (A66)
		}
	case *contracts.UtilityCommandOutput:
		tx.addUnread(ev.CommandID, len(e.Body))
	}
}

// publishWith publishes an event and adds a note, under one cursor. Clients with the
// capability people get forPeople, which may be the same event.
func (tx *tx) publishWith(ev, forPeople contracts.Event, n note) {
	if tx.life.frozen {
		return
	}
	open, inner := encode(nil, ev), encode(nil, forPeople)
	parts, folded := journal.Parts{Open: open.Body, Hidden: encodeNote(n)}, open.event
	if forPeople != ev && inner.event == forPeople { // else forPeople is too long, and all clients get ev
		parts.Inner, parts.InnerClass, folded = inner.Body, classPeople, forPeople
	}
	parts.OpenClass = tx.fold(folded)
	tx.append(parts.Joint())
}

// fold folds an event that is about to be added into the state. It returns the class of
// its entry.
func (tx *tx) fold(ev contracts.Event) journal.Class {
	tx.log.events.Apply(ev)
	tx.log.digest.apply(ev, tx.now)
	if tx.work.run != nil {
		tx.work.run.track(ev, tx.now)
	}
	tx.log.lastPublished = tx.now
	class := classOf(ev)
	if class != classPeople { // the observer is told of these otherwise, and most clients do not get them
		tx.log.published++
		tx.opts.Observer.Published(ev, tx.now)
	}
	return class
}

// addUnread counts output that was just published, if its owner has ever been
// attached. The local client counts all entries instead; see commit.
func (tx *tx) addUnread(commandID string, bytes int) {
	wasAttached := func(sub *subscription) bool { return sub.state == subAttached || sub.state == subDetached }
	c := tx.clients.conns[tx.log.events.CommandOwner(commandID)]
	if c != nil && !c.bare && slices.ContainsFunc(c.subs, wasAttached) {
		c.unread.add(tx.head(), bytes, tx.opts.MaxBacklog/16)
	}
}

// note adds a hidden entry, from which restore rebuilds state that events do not
// carry. It returns the entry's cursor.
func (tx *tx) note(n note) uint64 { return tx.noteWith(n, nil) }

// noteWith adds a note. Clients with the capability people get shown, an event about
// people, with the note's cursor, unless shown is nil. For other clients the cursor is a
// gap, as that of every note.
func (tx *tx) noteWith(n note, shown contracts.Event) uint64 {
	if shown == nil {
		return tx.noteEncoded(n, encoded{})
	}
	return tx.noteEncoded(n, encode(nil, shown))
}

func (tx *tx) noteEncoded(n note, shown encoded) uint64 {
	if tx.life.frozen {
		return tx.head()
	}
	if n.Send != nil {
		tx.unansweredSend, tx.unansweredIndex = &n, len(tx.out)
	}
	if shown.event == nil {
		return tx.append(journal.Entry{Kind: journal.Note, Body: encodeNote(n)})
	}
	parts := journal.Parts{Inner: shown.Body, InnerClass: tx.fold(shown.event), Hidden: encodeNote(n)}
	return tx.append(parts.Joint())
}

// noteAnswer adds the answer's cursor to the transaction's note of a ws.send. The
// cursor is known only after the command has published its events.
func (tx *tx) noteAnswer(cursor uint64) {
	if tx.unansweredSend == nil {
		return
	}
	tx.unansweredSend.Answer = cursor
	e, text := &tx.out[tx.unansweredIndex], encodeNote(*tx.unansweredSend)
	if e.Kind == journal.Joint {
		parts := e.Parts()
		parts.Hidden = text
		text = parts.Joint().Body
	}
	e.Body = text
	tx.unansweredSend = nil
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

// commit appends the transaction's entries to the store and then makes them visible
// (D4). If the store fails, the session ends, so that clients never see an entry
// that is not stored.
func (tx *tx) commit() error {
	if len(tx.out) == 0 || tx.life.failed != nil {
		tx.out = tx.out[:0]
		return nil
	}
	if tx.checkpointDue() && !tx.life.frozen {
		tx.checkpoint()
	}
	size := 0
	for i := range tx.out {
		size += len(tx.out[i].Body)
	}
	began := time.Now()
	_, err := tx.journal.Append(tx.out...)
	tx.opts.Observer.Appended(len(tx.out), size, time.Since(began))
	clear(tx.out) // the journal has copied the bodies
	tx.out = tx.out[:0]
	if err != nil {
		return err
	}
	if tx.local.Load() {
		tx.clients.conns[localID].unread.add(tx.head(), size, tx.opts.MaxBacklog/16)
	}
	old := tx.now.Sub(tx.log.latestSnapshotAt) >= snapshotShareTime
	if p := tx.log.latestSnapshot; p != nil && old && p.at != tx.head() && p.users.Load() == 1 {
		tx.log.forgetSnapshot() // too old for clients that attach, and no mailbox needs it
	}
	if tx.opts.GroupCommit {
		signal(tx.unsynced)
	}
	return nil
}

// Errors that clients see when a session fails. The session can be opened again from
// the store.
var (
	errUnwritten = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session's journal cannot be written: the server's disk is full or cannot be written to"}
	errBroken    = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session has failed by a defect of the server"}
)

// fail ends the session because of err. Clients get the message of clientErr. If the
// journal cannot be written, the code lets them reconnect; a defect might repeat itself.
func (tx *tx) fail(clientErr *contracts.Error, err error) {
	tx.life.failed = fmt.Errorf("%w: %w", clientErr, err)
	tx.logger.Error("session failed", "err", tx.life.failed)
	goodbye := clientErr
	if clientErr != errUnwritten {
		goodbye = &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: clientErr.Message}
	}
	tx.roster.closeSockets(goodbye)
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
