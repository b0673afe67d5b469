package utility

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/workspace"
)

// Options configures a host. The zero value of each field is the default named
// beside it.
type Options struct {
	Workspace *workspace.Workspace // required; its owner closes it after the host

	// Shell runs command lines. Empty means $SHELL if it exists, else
	// /bin/bash, else sh. Windows always uses cmd.
	Shell string

	// EnvPass names environment variables that commands get although their
	// names look like credentials or Hosted would withhold them.
	EnvPass []string

	// Hosted withholds every environment variable that is not known to be
	// needed.
	Hosted bool

	// Journals are directories, absolute, that hold the journals of sessions. In
	// the workspace nothing in them is watched or searched: each event that told
	// of one would be the next change in it.
	Journals []string

	// Shared is what the hosts of the process have in common. Those of one
	// workspace are to have the same Journals, EnvPass, Hosted, MaxWatchedDirs
	// and Log. Nil means that this host has it for itself.
	Shared *Shared

	MaxCommands    int           // 32 at once; one more is refused
	MaxRunTime     time.Duration // none; a command that runs longer is ended
	MaxReadBytes   int64         // 2 MiB; a larger file is not read
	MaxWatches     int           // 64 at once; one more is refused
	MaxWatchedDirs int           // 50,000 in all watches of the workspace; more are left out, and clients are told

	Log *slog.Logger // discards
}

func (o Options) withDefaults() (Options, error) {
	if o.Workspace == nil {
		return o, errors.New("utility: workspace is required")
	}
	orInt(&o.MaxCommands, 32)
	orInt(&o.MaxWatches, 64)
	orInt(&o.MaxWatchedDirs, 50_000)
	if o.MaxReadBytes <= 0 {
		o.MaxReadBytes = 2 << 20
	}
	if o.Shared == nil {
		o.Shared = NewShared()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func orInt(n *int, def int) {
	if *n <= 0 {
		*n = def
	}
}

// A Host is the utilities of one session. Its methods may be called from any
// goroutine, Start first.
type Host struct {
	// Static after Start.
	opts    Options
	*lister // of the workspace, with other hosts; left by Close
	publish func(ctx context.Context, events ...contracts.Event) error
	await   func(ctx context.Context, owner string) error
	ctx     context.Context // bounds what is published; ends when Close gives up waiting
	cancel  context.CancelCauseFunc

	searching chan struct{} // a token for each search under way; never closed

	leaving sync.Once // Close leaves the lister

	mu       sync.Mutex // taken before those of commands and watches
	closed   bool
	calls    map[*call]struct{}
	commands table[*command]
	watches  table[*watch]

	work sync.WaitGroup // calls, commands and watches; none is added once closed
}

// maxSearches is how many searches list files at once; each may hold the names
// of all of them.
const maxSearches = 2

// New returns the utilities of one session, rooted in o.Workspace.
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

// Operations lists what is offered.
func (h *Host) Operations() []contracts.UtilityOperation {
	return []contracts.UtilityOperation{
		contracts.OperationCommandExec, contracts.OperationFileSearch,
		contracts.OperationFileWatch, contracts.OperationFileRead,
	}
}

// Start gives the host the function by which it shows events, and the one by which
// a command waits, before it reads more of what its processes write, for the
// connection that owns it; it is called once, before anything else. Both may
// block until ctx ends, and commands then wait with what they write. They may be
// called by several goroutines at once.
func (h *Host) Start(publish func(ctx context.Context, events ...contracts.Event) error, await func(ctx context.Context, owner string) error) {
	h.publish, h.await = publish, await
}

// Do serves one utility command of the connection owner. When it returns nil,
// what the operation announces at once has been published: that it started, the
// result of a read or search. A *[contracts.Error] is a refusal that changed
// nothing, any other error means that ctx ended or publishing failed. ctx bounds
// only the call, not what it started.
//
// A search may take two seconds, and everything may wait for publish. Commands
// about the same command or watch must come one after the other, and none of an
// owner after Disown; others may come at the same time.
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

// A call is one Do on its way.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	owner  string
	starts bool          // a command or a watch
	done   chan struct{} // closed once Do is about to return

	// Guarded by Host.mu.
	disowned bool     // the owner is gone
	stopped  string   // why what it starts is to end at once; "" if it is not
	took     *ownedID // what it has started
}

// Why a call was cut short.
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

// Disown ends what owner started, because its connection was destroyed. It does
// not wait.
func (h *Host) Disown(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.calls {
		if c.owner == owner {
			c.disowned = true
			c.cancel(errDisowned)
		}
	}
	h.endAll("Owning connection closed", killDelay, func(of string) bool { return of == owner })
}

// Stop ends everything of all owners. reason is how the texts that clients see
// begin, such as "Interrupted": "... while utility command was still running".
// It returns when all processes are gone and their last events are published,
// or with the cause of ctx, and then the rest still comes to its end. What a Do
// that was under way starts meanwhile ends with it, too.
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
		if c.took != nil { // nothing changes it any more
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

// endAll asks what belongs to the owners that match to end, and returns what to
// wait for. The caller holds h.mu.
func (h *Host) endAll(reason string, grace time.Duration, match func(owner string) bool) []<-chan struct{} {
	return append(endIn(&h.commands, reason, grace, match), endIn(&h.watches, reason, grace, match)...)
}

// Close is Stop and the end of every goroutine. Do refuses from its beginning on.
// When ctx ends, what is left is killed and no longer shown.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for c := range h.calls {
		c.cancel(errClosed)
	}
	h.mu.Unlock()
	err := h.Stop(ctx, "Headless runtime shutdown")
	if err != nil {
		h.killAll()
		h.cancel(errClosed)
	}
	h.work.Wait()
	h.leaving.Do(func() { h.opts.Shared.leave(h.lister) })
	h.cancel(errClosed)
	return err
}

// killAll ends every command at once.
func (h *Host) killAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.commands.entries {
		c.end(ending{force: true})
	}
}
