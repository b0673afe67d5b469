package hub

import (
	"context"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Utilities provides commands and files for clients, beside the agent. Package
// utility implements it. All methods may be called from any goroutine after Start
// has returned.
type Utilities interface {
	// Operations returns the supported operations.
	Operations() []contracts.UtilityOperation

	// Start is called once, before any other method. publish publishes events; it
	// may wait until ctx ends. await is called before a command publishes more
	// output; it waits until the command's owner has read enough, is gone, or ctx
	// ends.
	Start(publish func(ctx context.Context, events ...contracts.Event) error, await func(ctx context.Context, owner string) error)

	// Do executes one utility command for the connection owner. Events that
	// announce the operation are published before it returns. If it returns a
	// *contracts.Error, nothing has changed.
	Do(ctx context.Context, owner string, cmd contracts.Command) error

	// Disown ends the commands and watches of a destroyed connection. It does not
	// wait.
	Disown(owner string)

	// Stop ends all commands and watches. It returns when their last events are
	// published, or when ctx ends.
	Stop(ctx context.Context, reason string) error

	// Close does what Stop does and ends every goroutine.
	Close(ctx context.Context) error
}

// noUtilities offers nothing. Do is only called with a terminate or stop of an unknown
// id, which is ignored (R82).
type noUtilities struct{}

func (noUtilities) Operations() []contracts.UtilityOperation            { return nil }
func (noUtilities) Do(context.Context, string, contracts.Command) error { return nil }
func (noUtilities) Disown(string)                                       {}
func (noUtilities) Stop(context.Context, string) error                  { return nil }
func (noUtilities) Close(context.Context) error                         { return nil }
func (noUtilities) Start(func(context.Context, ...contracts.Event) error, func(context.Context, string) error) {
}

// utilityTimeout bounds one utility operation. Searches, the longest, have shorter
// limits of their own.
const utilityTimeout = 10 * time.Second

// isUtility reports whether the utilities execute cmd.
func isUtility(cmd contracts.Command) bool { return strings.HasPrefix(cmd.CommandType(), "utility_") }

// serveUtility executes an admitted utility command outside the lock.
func (h *Hub) serveUtility(owner string, cmd contracts.Command) error {
	ctx, cancel := context.WithTimeout(context.Background(), utilityTimeout)
	defer cancel()
	err := h.opts.Utilities.Do(ctx, owner, cmd)
	h.mu.Lock()
	gone := h.state.clients.conns[owner] == nil
	h.mu.Unlock()
	if gone { // destroyed meanwhile; end what Do has just started
		h.opts.Utilities.Disown(owner)
	}
	return err
}

// stopUtilities ends the commands and watches of all clients while their last events can
// still be published.
func (h *Hub) stopUtilities(ctx context.Context, reason string) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := h.opts.Utilities.Stop(ctx, reason); err != nil {
		h.logger.Error("stop utilities", "err", err)
	}
}
