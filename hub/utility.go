package hub

import (
	"context"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Utilities is the hub's view of what clients may ask of the server beside the
// agent. The room utility provides it. All methods may be called from any
// goroutine once Start has returned.
type Utilities interface {
	// Operations lists what is offered.
	Operations() []contracts.UtilityOperation

	// Start gives the functions by which events are shown, and by which a command
	// waits before it shows more output, so that its owner can read what there
	// is. It is called once, before anything else. Both may wait until ctx ends.
	Start(publish func(ctx context.Context, events ...contracts.Event) error, await func(ctx context.Context, owner string) error)

	// Do serves one utility command for the connection owner. When it returns,
	// what the operation announces at once has been published. An error that is
	// a *contracts.Error changed nothing.
	Do(ctx context.Context, owner string, cmd contracts.Command) error

	// Disown ends what a connection started that is gone. It does not wait.
	Disown(owner string)

	// Stop ends everything that runs and returns when the last events about it
	// are published, or when ctx ends.
	Stop(ctx context.Context, reason string) error

	// Close is Stop and the end of every goroutine.
	Close(ctx context.Context) error
}

// utilityPatience bounds one utility operation. Searches, the longest, bound
// themselves to less.
const utilityTimeout = 10 * time.Second

// operations lists what hello_ok offers; never nil.
func (h *Hub) operations() []contracts.UtilityOperation {
	if h.opts.Utilities == nil {
		return []contracts.UtilityOperation{}
	}
	return h.opts.Utilities.Operations()
}

// isUtility reports whether cmd is for the utilities.
func isUtility(cmd contracts.Command) bool {
	switch cmd.(type) {
	case *contracts.UtilityCommandStart, *contracts.UtilityCommandTerminate, *contracts.UtilityCommandStdin,
		*contracts.UtilityCommandResize, *contracts.UtilityFileSearch, *contracts.UtilityFileRead,
		*contracts.UtilityFileWatchStart, *contracts.UtilityFileWatchStop:
		return true
	}
	return false
}

// serveUtility does an admitted utility command, outside the lock.
func (h *Hub) serveUtility(owner string, cmd contracts.Command) error {
	if h.opts.Utilities == nil {
		return nil // to end what cannot be running: unknown ids are ignored (R82)
	}
	ctx, cancel := context.WithTimeout(context.Background(), utilityTimeout)
	defer cancel()
	err := h.opts.Utilities.Do(ctx, owner, cmd)
	h.mu.Lock()
	gone := h.state.clients.conns[owner] == nil
	h.mu.Unlock()
	if gone { // meanwhile; what it has just started must not outlive it
		h.opts.Utilities.Disown(owner)
	}
	return err
}

// stopUtilities ends everything that clients started (maestro-attach 1.12).
func (tx *tx) stopUtilities(reason string) {
	h := tx.Hub
	u := tx.opts.Utilities
	if u == nil {
		return
	}
	tx.then(func() {
		h.wg.Go(func() { // ends within utilityPatience
			ctx, cancel := context.WithTimeout(context.Background(), utilityTimeout)
			defer cancel()
			if err := u.Stop(ctx, reason); err != nil {
				h.logger.Error("stop utilities", "err", err)
			}
		})
	})
}

// utilitiesActive reports whether a client's command or watch runs.
func (tx *tx) utilitiesActive() bool {
	return tx.opts.Utilities != nil && tx.log.events.UtilitiesActive()
}
