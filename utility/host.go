package utility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// Options configures a host. A zero field means the default named beside it.
type Options struct {
	Workspace *workspace.Workspace // required; the owner closes it after the host

	// Shell runs command lines. Empty means $SHELL if it exists, else /bin/bash,
	// else sh. Windows always uses cmd.
	Shell string

	// EnvPass names environment variables that commands get even if their names
	// look like credentials or Hosted would withhold them.
	EnvPass []string

	// Hosted withholds all environment variables except those known to be
	// needed.
	Hosted bool

	// Journals is the absolute path of the directory with the journals of
	// sessions, if there is one. In the workspace it is neither watched nor
	// searched: an event about a change there would itself be the next change.
	Journals string

	// Shared is what the hosts of a workspace share. They must have the same
	// Workspace, Journals, MaxWatchedDirs and Log. Nil means a Shared for this
	// host alone.
	Shared *Shared

	MaxCommands    int           // 32 at once; more are refused
	MaxRunTime     time.Duration // no limit; a command that runs longer is ended
	MaxReadBytes   int64         // 2 MiB; larger files are refused
	MaxWatches     int           // 64 at once; more are refused
	MaxWatchedDirs int           // 50,000 in all watches of the workspace; more are left out, and clients are told

	Log *slog.Logger // discards
}

func (o Options) withDefaults() (Options, error) {
	if o.Workspace == nil {
		return o, errors.New("utility: workspace is required")
	}
	o.MaxCommands, o.MaxWatches = cmp.Or(o.MaxCommands, 32), cmp.Or(o.MaxWatches, 64)
	o.MaxWatchedDirs, o.MaxReadBytes = cmp.Or(o.MaxWatchedDirs, 50_000), cmp.Or(o.MaxReadBytes, 2<<20)
	if o.Shared == nil {
		o.Shared = new(Shared)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// A Host is the utilities of one session. Call Start first; then its methods
// may be called from any goroutine.
type Host struct {
	// Static after Start.
	opts    Options
	*lister // shared with other hosts of the workspace; Close leaves it
	publish func(ctx context.Context, events ...contracts.Event) error
	await   func(ctx context.Context, owner string) error
	ctx     context.Context // bounds publishing; ends when Close gives up waiting
	cancel  context.CancelCauseFunc

	searching chan struct{} // holds a token for each running search; never closed

	leaving sync.Once // guards leaving the lister

	mu       sync.Mutex // locked before those of commands and watches
	closed   bool
	calls    map[*call]struct{}
	commands table[*command]
	watches  table[*watch]

	work sync.WaitGroup // counts calls, commands and watches; not added to once closed
}

// maxSearches bounds concurrent searches, because each may hold the names of
// all files.
const maxSearches = 2

// New returns the utilities of one session in o.Workspace.
func New(o Options) (*Host, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{
		opts: o, lister: o.Shared.join(o),
		searching: make(chan struct{}, maxSearches),
		calls:     make(map[*call]struct{}),
		commands:  newTable[*command](o.MaxCommands, "Utility command already exists: ", "Too many utility commands"),
		watches:   newTable[*watch](o.MaxWatches, "Utility file watch already exists: ", "Too many utility file watches"),
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h, nil
}

// Operations returns the offered operations.
func (h *Host) Operations() []contracts.UtilityOperation {
	return []contracts.UtilityOperation{
		contracts.OperationCommandExec, contracts.OperationFileSearch,
		contracts.OperationFileWatch, contracts.OperationFileRead,
	}
}

// Start sets two functions; call it once, before all else. publish publishes
// events. await is called before a command's output is read, and waits until
// the owner connection has read enough. Both may block until ctx ends, and the
// command's output then waits. Both may be called concurrently.
func (h *Host) Start(publish func(ctx context.Context, events ...contracts.Event) error, await func(ctx context.Context, owner string) error) {
	h.publish, h.await = publish, await
}

// Do serves one utility command of the connection owner. When it returns nil,
// the operation's immediate events have been published: that it started, or the
// result of a read or search. A *[contracts.Error] is a refusal that changed
// nothing. Any other error means that ctx ended or publishing failed. ctx
// bounds the call only, not what it started.
//
// A search may take two seconds, and every operation may wait for publish.
// Calls about the same command or watch must not be concurrent, and no call for
// an owner may follow Disown; other calls may be concurrent.
func (h *Host) Do(ctx context.Context, owner string, cmd contracts.Command) error {
	c, err := h.enter(ctx, owner, cmd)
	if err != nil {
		return err
	}
	defer h.leave(c)
	switch cmd := cmd.(type) {
	case *contracts.UtilityCommandStart:
		return h.startCommand(c, cmd)
	case *contracts.UtilityCommandTerminate:
		return h.terminateCommand(owner, cmd)
	case *contracts.UtilityCommandStdin:
		return h.writeCommand(owner, cmd)
	case *contracts.UtilityCommandResize:
		return h.resizeCommand(c.ctx, owner, cmd)
	case *contracts.UtilityFileSearch:
		return h.search(c.ctx, cmd)
	case *contracts.UtilityFileRead:
		return h.read(c.ctx, cmd)
	case *contracts.UtilityFileWatchStart:
		return h.startWatch(c, cmd)
	case *contracts.UtilityFileWatchStop:
		return h.stopWatch(c.ctx, owner, cmd)
	}
	return &contracts.Error{
		Code: contracts.CodeUnsupportedCapability, Type: contracts.ErrorTool,
		Message: cmd.CommandType() + " is not a utility operation",
	}
}

// A call is a running Do.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	owner  string
	starts bool          // it starts a command or a watch
	done   chan struct{} // closed when Do is about to return

	// Guarded by Host.mu.
	stopped string   // the reason to end at once what the call starts; "" if there is none
	took    *ownedID // the command or watch that the call started
}

// The causes with which a call is canceled.
var (
	errClosed   = errors.New("utility: host is closed")
	errDisowned = errors.New("utility: connection is gone")
)

func (h *Host) enter(ctx context.Context, owner string, cmd contracts.Command) (*call, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, unavailable()
	}
	c := &call{owner: owner, done: make(chan struct{})}
	switch cmd.(type) {
	case *contracts.UtilityCommandStart, *contracts.UtilityFileWatchStart:
		c.starts = true
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	h.calls[c] = struct{}{}
	h.work.Add(1)
	return c, nil
}

func (h *Host) leave(c *call) {
	c.cancel(nil)
	h.mu.Lock()
	delete(h.calls, c)
	h.mu.Unlock()
	close(c.done)
	h.work.Done()
}

func unavailable() error {
	return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Type: contracts.ErrorTool, Message: "Headless runtime is no longer available"}
}

// Disown ends the commands and watches of owner, because its connection has
// ended. It does not wait.
func (h *Host) Disown(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.calls {
		if c.owner == owner {
			c.cancel(errDisowned)
		}
	}
	h.endAll("Owning connection closed", killDelay, func(of string) bool { return of == owner })
}

// Stop ends the commands and watches of all owners. reason is the beginning of
// the texts that clients see, such as "Interrupted": "... while utility command
// was still running". Stop returns when all processes have ended and their last
// events are published. If ctx ends first, it returns the cause of ctx, and the
// rest ends later. A command or watch that a concurrent Do starts meanwhile
// ends too.
func (h *Host) Stop(ctx context.Context, reason string) error {
	h.mu.Lock()
	ends := h.endAll(reason, drainDelay, func(string) bool { return true })
	var late []*call
	for c := range h.calls {
		if c.starts && c.took == nil {
			c.stopped = reason
			late = append(late, c)
		}
	}
	h.mu.Unlock()
	for _, c := range late {
		if err := waitFor(ctx, c.done); err != nil {
			return err
		}
		if c.took != nil { // set before done was closed
			ends = append(ends, c.took.gone)
		}
	}
	for _, end := range ends {
		if err := waitFor(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

func waitFor(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop utilities: %w", context.Cause(ctx))
	}
}

// endAll asks the commands and watches of matching owners to end, and returns
// their gone channels. The caller holds h.mu.
func (h *Host) endAll(reason string, grace time.Duration, match func(owner string) bool) []<-chan struct{} {
	return append(endIn(&h.commands, reason, grace, match), endIn(&h.watches, reason, grace, match)...)
}

// Close stops all, as Stop does, and waits for all goroutines. From its
// beginning Do refuses all commands. When ctx ends, the remaining commands are
// killed and their output is not published.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for c := range h.calls {
		c.cancel(errClosed)
	}
	h.mu.Unlock()
	err := h.Stop(ctx, "Headless runtime shutdown")
	if err != nil {
		h.mu.Lock()
		for _, c := range h.commands.entries {
			c.end(ending{force: true})
		}
		h.mu.Unlock()
		h.cancel(errClosed)
	}
	h.work.Wait()
	h.leaving.Do(func() { h.opts.Shared.leave() })
	h.cancel(errClosed)
	return err
}

// maxRefusalBytes bounds the text of a refusal, which may repeat the client's
// input.
const maxRefusalBytes = 8 << 10

// refuse returns the refusal of the operation with the given id.
func refuse(code contracts.Code, id, text string) *contracts.Error {
	text = abridge.Head(validText([]byte(text)), maxRefusalBytes)
	return &contracts.Error{Code: code, Type: contracts.ErrorTool, Message: text, RequestID: id}
}

// show publishes an event that no call waits for. If the session cannot take
// events any more, it logs the error and returns false.
func (h *Host) show(ev contracts.Event) bool {
	err := h.publish(h.ctx, ev)
	if err != nil && context.Cause(h.ctx) == nil {
		h.opts.Log.Error("cannot publish an event", slog.String("event", ev.EventType()), slog.Any("err", err))
	}
	return err == nil
}
