package hub

import (
	"context"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// How long each step of leaving may take at most, beside the caller's context.
const (
	runPatience    = 5 * time.Second // for the agent to stop
	clientPatience = 2 * time.Second // for clients to read their last lines
)

// Close ends the session for good: questions are cancelled, the run is stopped,
// clients get everything up to the end, the agent and the store are closed. It
// returns when nothing of the session runs any more. A second call waits for
// the first, as long as ctx allows, and leaves it to tell what went wrong.
func (h *Hub) Close(ctx context.Context) error {
	h.update(func(s *state) {
		if s.phase == phaseOpen {
			h.windDown(s, &contracts.Shutdown{}, note{})
		}
	})
	return h.leave(ctx, true)
}

// Suspend ends the process's part in the session but not the session: questions
// stay open, and clients are told to come back (D8). The next process on the
// same store goes on from there.
func (h *Hub) Suspend(ctx context.Context) error {
	h.update(func(s *state) {
		if s.phase == phaseOpen {
			s.phase = phaseDraining
			h.stopRun(s, stopSuspended)
		}
	})
	return h.leave(ctx, false)
}

// finishShutdown ends the session after a client's shutdown.
func (h *Hub) finishShutdown() {
	if err := h.leave(context.Background(), true); err != nil {
		h.log.Error("close session", "err", err)
	}
}

// leave stops things in order: the run, the clients, the hub's own goroutines,
// the agent, the store.
func (h *Hub) leave(ctx context.Context, final bool) error {
	if h.leaving.Swap(true) {
		select {
		case <-h.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(h.over)
	h.awaitRun(ctx)
	h.update(func(s *state) {
		if final && s.phase != phaseEnded && s.phase != phaseStarting {
			h.publishSnapshot(s)
		}
		if final {
			h.partAll(s, nil)
		} else {
			h.partAll(s, goingAway)
		}
	})
	h.awaitClients(ctx)
	h.update(func(s *state) {
		h.roster.expel(goingAway)
		h.end(s)
	})
	err := h.opts.Agent.Close(ctx)
	h.wg.Wait()
	return errors.Join(err, h.opts.Store.Close())
}

// end marks the session as ended and stops the hub's goroutines.
func (h *Hub) end(s *state) {
	if s.phase == phaseEnded {
		return
	}
	s.phase = phaseEnded
	if s.run != nil {
		s.run.cancel(errEnded)
	}
	close(h.done)
}

func (h *Hub) awaitRun(ctx context.Context) {
	h.mu.Lock()
	r := h.run
	h.mu.Unlock()
	if r == nil {
		return
	}
	patience := time.NewTimer(runPatience)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
	case <-ctx.Done():
	}
}

func (h *Hub) awaitClients(ctx context.Context) {
	patience := time.NewTimer(clientPatience)
	defer patience.Stop()
	for h.roster.len() > 0 {
		select {
		case <-h.left:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// partAll ends every attached connection in order.
func (h *Hub) partAll(s *state, why *contracts.Error) {
	for _, c := range s.conns {
		for _, sub := range c.subs {
			h.part(s, sub.box, why)
		}
	}
}
