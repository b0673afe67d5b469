package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// lifecycle holds the phase of the session, and facts about its drain, its end and
// its origin.
type lifecycle struct {
	phase     phase
	suspended bool                // ended here, to continue in another hub
	failed    error               // why the session failed; nothing more is published
	deadline  time.Time           // the clock's next deadline
	counted   contracts.Quiesced  // open work when the drain began
	quiesced  *contracts.Quiesced // result of the drain; nil before
	frozen    bool                // nothing more is published
	endAt     time.Time           // when the streams of a drained session end; zero: not scheduled

	// From an earlier process.
	origin     *uint64             // cursor at which a session restored from elsewhere began; nil for others
	status     *contracts.Restored // a snapshot has its status and error and is not ready; nil: the events have them
	wasDrained bool                // the last snapshot of the previous process said the session was drained
}

// A phase is a stage of a session's life. The phases are in order of time; a
// session skips most of them. docs/states.md has a diagram.
type phase int

const (
	phaseStarting phase = iota
	phaseOpen
	phaseUnready  // restored from an incomplete manifest: read-only until it ends
	phaseDraining // no new attachments or commands; events still flow; another process continues the session
	phaseClosing  // no new attachments or commands; the session ends for good
	phaseEnded

	// Only refuse uses these. It derives them from other fields of the lifecycle.
	phaseFrozen    // draining, and frozen
	phaseFailed    // ended by a failure
	phaseSuspended // ended by Suspend
)

// An operation is a kind of client request.
type operation int

const (
	opAttach  operation = iota // a connection, a subscription or a socket
	opHello                    // another hello on a socket
	opCommand                  // any other command on a socket
	opMessage                  // a message over HTTP
	opRequest                  // any other request over HTTP
)

// ErrUnknownSession means that a session is neither open nor stored.
var ErrUnknownSession = &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}

var (
	errNoAttachments = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not accepting new attachments"}
	errUnready       = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not ready"}
	errDraining      = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is draining"}
	errGone          = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "Headless runtime is no longer available"}
	errFailed        = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session has failed and is being closed"}
)

// refusals holds the error for each operation that a phase refuses.
var refusals = map[phase]map[operation]error{
	phaseStarting: {opAttach: errNoAttachments},
	phaseUnready:  {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errUnready},
	phaseDraining: {opAttach: errNoAttachments, opCommand: errDraining, opMessage: errDraining},
	phaseFrozen:   {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errDraining},
	phaseClosing:  {opAttach: ErrUnknownSession, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	phaseEnded:    {opAttach: ErrUnknownSession, opHello: errGone, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	// The session can be opened again, so most refusals are retryable.
	phaseFailed:    {opAttach: errFailed, opHello: errGone, opCommand: errGone, opMessage: errFailed, opRequest: errFailed},
	phaseSuspended: {opAttach: errGoingAway, opHello: errGone, opCommand: errGone, opMessage: errGoingAway, opRequest: errGoingAway},
}

// refuse returns the error if the session refuses an operation now, otherwise nil.
func (l *lifecycle) refuse(op operation) error {
	phase := l.phase
	switch {
	case l.failed != nil:
		phase = phaseFailed
	case l.frozen && phase == phaseDraining:
		phase = phaseFrozen
	case l.suspended && phase == phaseEnded:
		phase = phaseSuspended
	}
	return refusals[phase][op]
}

// lifeNow returns a copy of the lifecycle. It locks Hub.mu.
func (h *Hub) lifeNow() *lifecycle {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.state.life
	return &l
}

// Ready reports whether the session takes attachments.
func (h *Hub) Ready() bool { return h.lifeNow().refuse(opAttach) == nil }

// Longest time of each step of Hub.leave, in addition to the caller's context.
const (
	runTimeout    = 5 * time.Second // the run to stop; the utilities to stop
	clientTimeout = 2 * time.Second // clients to read their last frames
	closeTimeout  = 5 * time.Second // the agent, the utilities and the goroutines to end, each
)

// Close ends the session for good. It cancels the questions, stops the run, lets
// clients read the last entries, and closes the agent and the store. It returns
// when nothing of the session runs. Later calls wait for the first one (or ctx) and
// return nil; only the first returns the error.
func (h *Hub) Close(ctx context.Context) error {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseOpen {
			tx.beginShutdown(&contracts.Shutdown{}, note{})
		}
	})
	return h.leave(ctx, true)
}

// Suspend ends this process's part of the session. Questions stay open, and clients
// are told to reconnect (D8). The next process on the same store continues the
// session.
func (h *Hub) Suspend(ctx context.Context) error {
	h.update(func(tx *tx) {
		tx.life.suspended = true
		if tx.life.phase == phaseOpen {
			tx.life.phase = phaseDraining
			tx.stopRun(stopSuspended)
		}
	})
	return h.leave(ctx, false)
}

// leave ends, in this order: the run, the commands and watches, the clients, the
// agent, the utilities, the hub's goroutines, the journal and the store.
func (h *Hub) leave(ctx context.Context, final bool) error {
	if h.leaving.Swap(true) {
		select {
		case <-h.closed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(h.closed)
	if r := h.activeRun(); r != nil {
		wait(runTimeout, r.done, ctx.Done())
	}
	h.stopUtilities(ctx, stopShutdown.utilities)
	h.update(func(tx *tx) {
		if final && tx.life.phase != phaseEnded && tx.life.phase != phaseStarting {
			tx.publishSnapshot()
		}
		if final {
			tx.closeMailboxes(nil)
		} else {
			tx.closeMailboxes(errGoingAway)
		}
	})
	h.awaitClients(ctx)
	h.update(func(tx *tx) {
		h.roster.closeSockets(errGoingAway)
		tx.end()
	})
	err := within(ctx, "the agent", func(ctx context.Context) error {
		return h.callAgent(func(h *Hub) error { return h.opts.Agent.Close(ctx) })
	})
	err = errors.Join(err, within(ctx, "the utilities", h.opts.Utilities.Close))
	err = errors.Join(err, within(ctx, "the run", func(context.Context) error { h.wg.Wait(); return nil }))
	h.update(func(tx *tx) { tx.life.frozen = true }) // discard entries of goroutines that did not end in time
	h.journal.Close()
	return errors.Join(err, h.opts.Store.Close())
}

func (tx *tx) leaveSoon(final bool) {
	tx.then(func(h *Hub) {
		go func() { // ends with the session; Close waits for it
			if err := h.leave(context.Background(), final); err != nil {
				h.logger.Error("end the session", "err", err)
			}
		}()
	})
}

// within calls end and waits up to closeTimeout for it. If end ignores its context,
// within returns an error 1 s later and leaves it running, because the store must
// be closed for the next process.
func within(ctx context.Context, what string, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	ended := make(chan error, 1)      // one result
	go func() { ended <- end(ctx) }() // ends when end returns
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended: // ended because of ctx
		return err
	case <-time.After(time.Second):
		return fmt.Errorf("%s does not end", what)
	}
}

// end marks the session as ended and stops the hub's goroutines.
func (tx *tx) end() {
	if tx.life.phase == phaseEnded {
		return
	}
	tx.life.phase = phaseEnded
	tx.log.forgetSnapshot()
	if tx.work.run != nil {
		tx.work.run.cancel(errEnded)
	}
	close(tx.done)
}

func (h *Hub) activeRun() *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.work.run
}

func (h *Hub) awaitClients(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	for h.roster.len() > 0 && ctx.Err() == nil {
		wait(clientTimeout, h.clientLeft, ctx.Done())
	}
}

// suspend suspends a session that was not used for IdleTTL. [Directory.Get] opens it
// again.
func (tx *tx) suspend() {
	tx.life.suspended, tx.life.phase = true, phaseDraining
	tx.leaveSoon(false)
}

// idleEnd returns when the session is suspended, unless it is used before: IdleTTL
// after the last run, event, client or utility. It returns zero if the session is in
// use or Options.IdleTTL is not set.
func (tx *tx) idleEnd() time.Time {
	if tx.opts.IdleTTL <= 0 || tx.life.phase != phaseOpen || tx.work.run != nil || len(tx.clients.subs) > 0 || len(tx.clients.conns) > 0 || tx.log.events.UtilitiesActive() {
		return time.Time{}
	}
	since := tx.log.lastPublished
	if tx.clients.lastUsed.After(since) {
		since = tx.clients.lastUsed
	}
	return since.Add(tx.opts.IdleTTL)
}

func (tx *tx) endStreams() {
	tx.life.endAt = time.Time{}
	tx.closeMailboxes(errGoingAway)
}
