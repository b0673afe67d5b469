package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

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

// finishShutdown closes the session after a client's shutdown.
func (h *Hub) finishShutdown() {
	if err := h.leave(context.Background(), true); err != nil {
		h.logger.Error("close session", "err", err)
	}
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
	h.awaitRun(ctx)
	h.endUtilities(ctx)
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
	err := within(ctx, "the agent", h.opts.Agent.Close)
	if u := h.opts.Utilities; u != nil {
		err = errors.Join(err, within(ctx, "the utilities", u.Close))
	}
	err = errors.Join(err, within(ctx, "the run", func(context.Context) error { h.wg.Wait(); return nil }))
	h.update(func(tx *tx) { tx.life.frozen = true }) // discard entries of goroutines that did not end in time
	h.journal.Close()
	return errors.Join(err, h.opts.Store.Close())
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

func (h *Hub) awaitRun(ctx context.Context) {
	h.mu.Lock()
	r := h.state.work.run
	h.mu.Unlock()
	if r != nil {
		wait(runTimeout, r.done, ctx.Done())
	}
}

func (h *Hub) awaitClients(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	for h.roster.len() > 0 && ctx.Err() == nil {
		wait(clientTimeout, h.clientLeft, ctx.Done())
	}
}

// closeMailboxes queues the end of every attached connection, the holder's first.
func (tx *tx) closeMailboxes(why *contracts.Error) {
	closeAll := func(c *connection) {
		for _, sub := range c.subs {
			tx.closeMailbox(sub.box, why)
		}
	}
	holder := tx.clients.holder()
	if holder != nil {
		closeAll(holder)
	}
	for _, c := range tx.clients.conns {
		if c != holder {
			closeAll(c)
		}
	}
}

// endUtilities stops commands and watches while their last events can still be
// published.
func (h *Hub) endUtilities(ctx context.Context) {
	u := h.opts.Utilities
	if u == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := u.Stop(ctx, stopShutdown.utilities); err != nil {
		h.logger.Error("stop utilities", "err", err)
	}
}

// suspend suspends a session that was not used for IdleTTL. [Directory.Get] opens it
// again.
func (tx *tx) suspend() {
	h := tx.Hub
	tx.life.suspended, tx.life.phase = true, phaseDraining
	tx.then(func() {
		go func() { // ends with the session
			if err := h.Suspend(context.Background()); err != nil {
				h.logger.Error("suspend an idle session", "err", err)
			}
		}()
	})
}

// idleEnd returns when the session is suspended, unless it is used before: IdleTTL
// after the last run, event, client or utility. It returns zero if the session is in
// use or Options.IdleTTL is not set.
func (tx *tx) idleEnd() time.Time {
	if tx.opts.IdleTTL <= 0 || tx.life.phase != phaseOpen || tx.work.run != nil || len(tx.clients.subs) > 0 || len(tx.clients.conns) > 0 || tx.utilitiesActive() {
		return time.Time{}
	}
	since := tx.log.lastPublished
	if tx.clients.lastUsed.After(since) {
		since = tx.clients.lastUsed
	}
	return since.Add(tx.opts.IdleTTL)
}

// endStreams ends the streams of a drained session.
func (tx *tx) endStreams() {
	tx.life.endAt = time.Time{}
	tx.closeMailboxes(errGoingAway)
}

// Evict ends every connection of a principal whose credential is no longer valid.
func (h *Hub) Evict(principalID string) {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseEnded {
			return
		}
		for _, c := range tx.clients.conns {
			if c.principal.ID == principalID && !c.bare {
				tx.revoke(c)
			}
		}
	})
}

// errExpired ends the connections of an expired or revoked credential.
var errExpired = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "the credential has expired or was revoked"}

// revoke destroys a connection with errExpired.
func (tx *tx) revoke(c *connection) {
	for _, sub := range c.subs {
		tx.closeMailbox(sub.box, errExpired)
	}
	tx.destroy(c, contracts.LeaseExpired)
}

// expireCredentials ends the connections whose credential has expired, and
// schedules the next expiry.
func (tx *tx) expireCredentials() {
	tx.clients.nextCredentialEnd = time.Time{}
	for _, c := range tx.clients.conns {
		switch at := c.principal.Expires; {
		case at.IsZero():
		case !at.After(tx.now):
			tx.revoke(c)
		default:
			tx.clients.scheduleCredentialEnd(at)
		}
	}
}

// extendCredential takes over the expiry of the credential that the owner presented
// now, if it is later: the client may have renewed its credential.
func (c *connection) extendCredential(p contracts.Principal) {
	if at := c.principal.Expires; !at.IsZero() && (p.Expires.IsZero() || p.Expires.After(at)) {
		c.principal.Expires = p.Expires
	}
}

// scheduleCredentialEnd schedules expireCredentials for the expiry of a credential.
func (cl *clients) scheduleCredentialEnd(at time.Time) {
	if !at.IsZero() && (cl.nextCredentialEnd.IsZero() || at.Before(cl.nextCredentialEnd)) {
		cl.nextCredentialEnd = at
	}
}

// credentialValid reports whether a credential is still valid. Call it in the
// transaction that makes the connection: Evict finds the connection if the
// credential is revoked later.
func (tx *tx) credentialValid(p contracts.Principal) bool {
	return !p.Expired(tx.now) && (tx.opts.Alive == nil || tx.opts.Alive(p))
}
