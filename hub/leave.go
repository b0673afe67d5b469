package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// How long each step of leaving may take at most, beside the caller's context.
const (
	runTimeout    = 5 * time.Second // for the agent to stop
	clientTimeout = 2 * time.Second // for clients to read their last lines
	closeTimeout  = 5 * time.Second // for the agent to close, and as much for the utilities
)

// Close ends the session for good: questions are cancelled, the run is stopped,
// clients get everything up to the end, the agent and the store are closed. It
// returns when nothing of the session runs any more. A second call waits for
// the first, as long as ctx allows, and leaves it to tell what went wrong.
func (h *Hub) Close(ctx context.Context) error {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseOpen {
			tx.beginShutdown(&contracts.Shutdown{}, note{})
		}
	})
	return h.leave(ctx, true)
}

// Suspend ends the process's part in the session but not the session: questions
// stay open, and clients are told to come back (D8). The next process on the
// same store goes on from there.
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

// finishShutdown ends the session after a client's shutdown.
func (h *Hub) finishShutdown() {
	if err := h.leave(context.Background(), true); err != nil {
		h.logger.Error("close session", "err", err)
	}
}

// leave stops things in order: the run, the clients, the hub's own goroutines,
// the agent, the store.
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
	h.update(func(tx *tx) { tx.life.frozen = true }) // what did not end in time has nowhere to write to
	h.journal.Close()
	return errors.Join(err, h.opts.Store.Close())
}

// within gives what closes something closePatience. Whatever does not keep to its
// context is left behind: the store has to be closed, for the next process or
// the next opening.
func within(ctx context.Context, what string, closing func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	ended := make(chan error, 1)          // the one result
	go func() { ended <- closing(ctx) }() // ends with what it closes
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended: // it keeps to its context
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
	if r == nil {
		return
	}
	patience := time.NewTimer(runTimeout)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
	case <-ctx.Done():
	}
}

func (h *Hub) awaitClients(ctx context.Context) {
	patience := time.NewTimer(clientTimeout)
	defer patience.Stop()
	for h.roster.len() > 0 {
		select {
		case <-h.clientLeft:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// partAll ends every attached connection in order, that of who is in control
// first.
func (tx *tx) closeMailboxes(why *contracts.Error) {
	part := func(c *connection) {
		for _, sub := range c.subs {
			tx.closeMailbox(sub.box, why)
		}
	}
	holder := tx.clients.holder()
	if holder != nil {
		part(holder)
	}
	for _, c := range tx.clients.conns {
		if c != holder {
			part(c)
		}
	}
}

// endUtilities ends what clients started, while the last events about it can
// still be shown.
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

// rest suspends a session that nobody has used for a long time. It comes back
// when somebody asks for it.
func (h *Hub) suspendIdle() {
	if err := h.Suspend(context.Background()); err != nil {
		h.logger.Error("suspend an idle session", "err", err)
	}
}

// idleSince returns since when nothing has happened in the session and nobody
// is here; zero if that is not so.
func (tx *tx) idleSince() time.Time {
	if tx.opts.IdleTTL <= 0 || tx.life.phase != phaseOpen || tx.work.run != nil || len(tx.clients.subs) > 0 || len(tx.clients.conns) > 0 || tx.utilitiesActive() {
		return time.Time{}
	}
	if tx.clients.lastUsed.After(tx.log.lastPublished) {
		return tx.clients.lastUsed
	}
	return tx.log.lastPublished
}

// Evict ends every connection of a principal, whose credential counts no more.
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

// errExpired ends the connections of a credential that counts no more.
var errExpired = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "the credential has expired or was revoked"}

// expel destroys a connection and tells its client why.
func (tx *tx) revoke(c *connection) {
	for _, sub := range c.subs {
		tx.closeMailbox(sub.box, errExpired)
	}
	tx.destroy(c, contracts.LeaseExpired)
}

// expireCredentials ends the connections whose credential has ended, and finds
// out which ends next.
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

// vouch lets the connection live as long as the credential that its owner has
// shown, which may have been renewed since the last.
func (c *connection) extendCredential(p contracts.Principal) {
	if at := c.principal.Expires; !at.IsZero() && (p.Expires.IsZero() || p.Expires.After(at)) {
		c.principal.Expires = p.Expires
	}
}

// credentialEnds sees to it that the end of a credential is noticed.
func (cl *clients) scheduleCredentialEnd(at time.Time) {
	if !at.IsZero() && (cl.nextCredentialEnd.IsZero() || at.Before(cl.nextCredentialEnd)) {
		cl.nextCredentialEnd = at
	}
}

// counts reports whether a credential still counts. It is asked in the update
// that makes the connection: one that is revoked later finds the connection.
func (tx *tx) credentialValid(p contracts.Principal) bool {
	return !p.Expired(tx.now) && (tx.opts.Alive == nil || tx.opts.Alive(p))
}
