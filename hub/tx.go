package hub

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
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
	after           []func()        // added by then
	unansweredSend  *note           // the note of a ws.send that has no answer yet
	unansweredIndex int             // index of unansweredSend in out
	startRunAfter   <-chan struct{} // closed when a run that begins may start; nil: at once
	startedRun      *run            // the run that began; nil if none
}

// update runs f as a transaction. The functions that transactions add run in commit
// order, in one goroutine at a time. If another goroutine is running some, update
// leaves its own to that goroutine and returns without waiting for them.
func (h *Hub) update(f func(*tx)) {
	for acts := h.transact(f); len(acts) > 0; {
		acts = h.runEffects(acts)
	}
}

func (h *Hub) transact(f func(*tx)) (acts []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tx := h.begin()
	if clientErr, err := tx.perform(f); err != nil {
		tx.abort(clientErr, err)
	}
	tx.arm()
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
func (s *state) takeEffects() (acts []func()) {
	if s.runningEffects {
		return nil
	}
	acts, s.effects = s.effects, nil
	s.runningEffects = len(acts) > 0
	return acts
}

// runEffects runs effects and returns those that were added meanwhile. If one
// panics, the next transaction runs the others.
func (h *Hub) runEffects(acts []func()) (more []func()) {
	done := false
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.state.runningEffects = false; done {
			more = h.state.takeEffects()
		}
	}()
	for _, act := range acts {
		act()
	}
	done = true
	return nil
}

// then runs act after the transaction, without the lock. It must not block.
func (tx *tx) then(act func()) { tx.after = append(tx.after, act) }

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
	tx.expireSharedSnapshot()
	if tx.opts.GroupCommit {
		signal(tx.unsynced)
	}
	return nil
}
