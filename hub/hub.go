package hub

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
	"github.com/seed-028515a8/maestro/lease"
	"github.com/seed-028515a8/maestro/serverreq"
	"github.com/seed-028515a8/maestro/session"
)

// Options configures a hub. The zero value of each field is the default named
// beside it.
type Options struct {
	SessionID string  // required
	Cwd       string  // absolute workspace root, shown in session_info
	GitBranch *string // current branch, or nil

	Agent     Agent         // required
	Utilities Utilities     // what clients may use beside the agent; nil offers nothing. The hub closes it
	Store     journal.Store // required; the hub closes it

	// LoadAttachments reads the files a prompt names and returns what could be
	// loaded and one message for each that could not. Nil refuses all.
	LoadAttachments func(paths []string) ([]contracts.Attachment, []string)

	Profile      contracts.Profile      // seed
	Strict       bool                   // refuse unknown keys and nulls (D13)
	ApprovalMode contracts.ApprovalMode // prompt
	Init         *contracts.Init        // what a session that is new begins with; nil for nothing

	LeaseTTL          time.Duration // 45 s since the holder's last sign of life
	HeartbeatInterval time.Duration // 15 s; a peer silent for three of them is closed
	SubscriptionTTL   time.Duration // 30 s a dropped connection can be resumed
	HandshakeTimeout  time.Duration // 10 s from the first byte to hello
	IdleTTL           time.Duration // without clients, run or events before the session rests; never
	WorkingInterval   time.Duration // 15 s of silence in a run before a status says it goes on

	// RequestTimeout overrides how long a type of request waits. Negative
	// means for ever (D8).
	RequestTimeout map[contracts.RequestType]time.Duration

	WindowBytes     int     // 8 MiB of recent entries in memory
	Memory          *Memory // what the sessions of a process hold together; bounds for this one alone
	CheckpointBytes int     // 8 MiB of entries between two checkpoints of the state, or as many as the last one had
	GroupCommit     bool    // entries are shown only once synced to disk

	CheckpointAge time.Duration // after which the next entries bring a checkpoint, however few there were; never

	MaxFrameBytes   int // 1 MiB, told to clients; the transport enforces it
	MaxControllers  int // 64 controller-role connections
	MaxConnections  int // 16,384 connections, detached ones included
	MaxPrivateBytes int // 1 MiB of private frames waiting for one connection; beyond, it is closed
	MaxPending      int // 256 requests waiting at once
	MaxBacklog      int // 4 MiB a local client may lag before the agent waits for it

	// RequireTokens makes requests about a connection present its secret.
	RequireTokens bool

	// Alive reports whether a principal's credential still counts, though it was
	// accepted a moment ago. It is called with the session's lock held. Nil means
	// yes.
	Alive func(contracts.Principal) bool

	// Quiet keeps the start of the agent out of the journal: clients find it in
	// the state. Suites of the public profile count envelopes.
	Quiet bool

	// Restored, if not nil, is what the session begins with if the store is
	// empty: its state when it was drained elsewhere.
	Restored *contracts.Restored

	// DrainCancels makes a drain cancel every question. Otherwise those stay
	// open that the agent can act on after a restore.
	DrainCancels bool

	// NoReturn says that clients of an earlier process cannot come back, because
	// its address went with it: their connections end, and control is free, as soon
	// as the session goes on. Otherwise they have the usual time.
	NoReturn bool

	Observer Observer // of everything that happens; may be nil

	// Shared says that others may attach beside the local client, which then
	// may use the ws.* control frames about the lease.
	Shared bool

	Log *slog.Logger // discards
}

func (o Options) withDefaults() (Options, error) {
	if o.SessionID == "" || o.Agent == nil || o.Store == nil {
		return o, errors.New("hub: session id, agent and store are required")
	}
	orDuration(&o.LeaseTTL, contracts.DefaultLeaseTTL)
	orDuration(&o.HeartbeatInterval, contracts.DefaultHeartbeatInterval)
	orDuration(&o.SubscriptionTTL, contracts.DefaultSubscriptionTTL)
	orDuration(&o.HandshakeTimeout, contracts.DefaultHandshakeTimeout)
	orDuration(&o.WorkingInterval, 15*time.Second)
	orInt(&o.CheckpointBytes, 8<<20)
	orInt(&o.MaxFrameBytes, contracts.MaxSocketBytes)
	orInt(&o.MaxControllers, 64)
	orInt(&o.MaxConnections, 16384)
	orInt(&o.MaxPrivateBytes, 1<<20)
	orInt(&o.MaxPending, 256)
	orInt(&o.MaxBacklog, 4<<20)
	if o.Profile == "" {
		o.Profile = contracts.ProfileSeed
	}
	if o.ApprovalMode == "" {
		o.ApprovalMode = contracts.ApprovalPrompt
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Memory == nil {
		o.Memory = NewMemory(MemoryOptions{})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

func orInt(n *int, def int) {
	if *n <= 0 {
		*n = def
	}
}

// A Hub is one session: it joins one agent to any number of clients.
//
// Everything that is decided together changes together, under one mutex (D6):
// the lease, the pending requests, the session's state and the journal's head.
// Clients are followers of the journal and hold no queue of events; see
// mailbox. All methods may be called from any goroutine.
type Hub struct {
	// Static after New.
	opts     Options
	logger   *slog.Logger
	journal  *journal.Journal
	info     contracts.AgentInfo // set by Start, before any connection is served
	first    uint64              // head before this process published anything, and
	opened   uint64              // once it had said that the agent is ready
	restored bool                // an earlier process had the session
	begun    time.Time           // when this process opened the session

	roster  roster
	metrics Metrics
	backlog backlog

	// spaces are buffers that events are encoded in before the journal copies
	// them. Without them a command that writes much would have the collector run
	// ten times a second.
	spaces sync.Pool

	snapshotSize atomic.Int64 // bytes of the last one that was encoded

	leaving atomic.Bool
	left    chan struct{} // 1-buffered; a token means a connection detached

	rearm chan struct{} // 1-buffered; a token means an earlier deadline
	kick  chan struct{} // 1-buffered; a token means visible entries
	sync  chan struct{} // 1-buffered; a token means unsynced entries (group commit)
	done  chan struct{} // closed when the hub has ended
	still chan struct{} // closed when nothing of it runs any more
	wg    sync.WaitGroup

	mu    sync.Mutex
	state state // guarded by mu
}

// state is what Hub.mu guards. A [tx] may change it. Functions that only read it
// may lock the mutex themselves.
type state struct {
	clients clients
	work    work
	life    lifecycle
	log     eventLog

	batch   []journal.Entry // what a transaction publishes: its memory is used again
	effects []func()        // of transactions that ended, in their order
	acting  bool            // a goroutine runs earlier effects
}

// clients is who is connected, and who is in control.
type clients struct {
	lease    *lease.Lease
	conns    map[string]*connection
	subs     map[string]*subscription // of all connections
	detached list.List                // of *subscription, the next to expire first
	idle     list.List                // of *connection without subscriptions, the next to expire first
	former   []former                 // oldest first; at most formerMost
	starting map[string]*post         // requests that start a utility command, by its id
	presence presence

	nextBeat    time.Time     // zero until somebody attached
	lastUsed    time.Time     // a client was last here
	credentials time.Time     // when the first credential ends; zero: never
	mismatches  *rate.Limiter // of statuses about the protocol version of clients
	toldTokens  bool          // the log says that clients lack their connection's secret
	sentAway    int           // connections that were told to come back to the next process
}

// work is what the agent does, and what it has asked.
type work struct {
	run      *run // nil when idle
	cut      *run // a run that the previous process did not end
	mode     contracts.ApprovalMode
	lastInit *contracts.Init

	table     *serverreq.Table
	waiters   map[string]chan contracts.Outcome // by request id; each 1-buffered
	answered  []answered                        // oldest first; at most Options.MaxPending, which were open at the start
	deadlines map[string]time.Time              // of requests, while restoring
}

// eventLog is what was published: the state that clients fold from it, and when the
// next checkpoint of that is due.
type eventLog struct {
	events    *session.State
	shown     uint64          // events published by this process
	lastShown time.Time       // an entry was last published
	revealed  chan struct{}   // closed and replaced when the group commit has shown more
	shared    *sharedSnapshot // the latest
	sharedOn  time.Time       // when shared was made

	sinceMark int       // bytes since the last checkpoint, or since one could not be made
	markSize  int       // bytes of the last checkpoint
	markedAt  time.Time // when it was made, or the session opened
}

// New opens the session in opts.Store, bringing back what an earlier process
// left in it. Nothing runs until Start.
func New(opts Options) (*Hub, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		opts:   opts,
		begun:  time.Now(),
		logger: opts.Log.With("session", opts.SessionID),
		rearm:  make(chan struct{}, 1),
		kick:   make(chan struct{}, 1),
		sync:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		still:  make(chan struct{}),
		left:   make(chan struct{}, 1),
	}
	h.backlog.init()
	h.state = state{
		clients: clients{
			lease:    lease.New(opts.LeaseTTL),
			conns:    map[string]*connection{},
			subs:     map[string]*subscription{},
			starting: map[string]*post{},
			presence: presence{
				relist: true, // clients of an earlier process may have another list
				budget: rate.NewLimiter(presenceRate, presenceBurst),
			},
			mismatches: rate.NewLimiter(1, mismatchBurst),
		},
		work: work{
			mode:      opts.ApprovalMode,
			table:     serverreq.New(serverreq.Options{Max: opts.MaxPending}),
			waiters:   map[string]chan contracts.Outcome{},
			deadlines: map[string]time.Time{},
		},
		log: eventLog{events: session.New(), revealed: make(chan struct{}), markedAt: h.begun},
	}
	h.journal, err = journal.New(opts.Store, journal.Options{
		WindowBytes: opts.WindowBytes,
		Shared:      opts.Memory.history,
		Deferred:    opts.GroupCommit,
		After:       opts.after(),
		Wake:        func() { signal(h.kick) },
	})
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	_, last := opts.Store.Bounds()
	h.restored = last > 0
	tx := h.begin()
	err = tx.restore()
	if !h.restored && opts.Restored != nil {
		err = tx.adopt(opts.Restored)
	}
	if err != nil {
		h.journal.Close()
		return nil, fmt.Errorf("restore session %s: %w", opts.SessionID, err)
	}
	if from := opts.Restored; from != nil && !from.Ready && h.state.life.origin != nil { // as often as its process starts
		h.state.life.status = &restoredStatus{status: from.LastStatus, lastError: from.LastError, errorType: from.LastErrorType}
	}
	return h, nil
}

// Start starts the agent and, once it can take prompts, publishes ready and
// session_info. If it fails, the hub is closed.
func (h *Hub) Start(ctx context.Context) error {
	h.wg.Go(h.wakeFollowers) // ends with done
	h.wg.Go(h.watchClock)    // ends with done
	if h.opts.GroupCommit {
		h.wg.Go(h.syncStore) // ends with done
	}
	if h.state.life.status != nil { // restored for inspection only
		h.update(func(tx *tx) { tx.life.phase = phaseUnready })
		return nil
	}
	if u := h.opts.Utilities; u != nil {
		u.Start(h.publishUtility, h.awaitOwner)
	}
	info, err := h.opts.Agent.Start(ctx, (*host)(h))
	if err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	h.update(func(tx *tx) {
		h.info, tx.clients.lastUsed = info, tx.now
		h.first = tx.head()
		tx.closeLeftovers()
		if info.Forgets {
			for _, res := range tx.work.table.CancelAll("The program that asked has ended", tx.now) {
				tx.resolve(res)
			}
		}
		tx.life.phase = phaseOpen
		tx.announce()
		if init := h.opts.Init; init != nil && !h.restored && tx.life.origin == nil {
			tx.configure(init, note{})
		}
		h.opened = tx.head()
	})
	if err := h.Err(); err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	return nil
}

// announce shows that the agent takes prompts. A session that was restored from
// elsewhere begins where it ended, so there it takes no cursor.
func (tx *tx) announce() {
	adopted := !tx.restored && tx.opts.Restored != nil
	if tx.life.wasDrained { // which clients have to be told is over
		tx.publish(tx.ready(), tx.sessionInfo(), &contracts.Status{Message: "Ready"})
		return
	}
	if !adopted && !tx.opts.Quiet {
		tx.publish(tx.ready(), tx.sessionInfo())
		return
	}
	tx.log.events.Apply(tx.ready())
	tx.log.events.Apply(tx.sessionInfo())
	if !adopted && !tx.restored {
		tx.log.events.Apply(&contracts.Status{Message: "Ready"})
	}
}

func (h *Hub) ready() *contracts.Ready {
	r := &contracts.Ready{
		ProtocolVersion: contracts.ProtocolVersion,
		Model:           h.info.Model, Provider: h.info.Provider,
		SessionID: &h.opts.SessionID,
	}
	if h.opts.Profile == contracts.ProfileSeed {
		r.ExecutorType = h.info.Executor
	}
	return r
}

func (h *Hub) sessionInfo() *contracts.SessionInfo {
	return &contracts.SessionInfo{SessionID: &h.opts.SessionID, Cwd: h.opts.Cwd, GitBranch: h.opts.GitBranch}
}

// SessionID returns the session's id.
func (h *Hub) SessionID() string { return h.opts.SessionID }

// Epoch returns the token of the journal that cursors count in.
func (h *Hub) Epoch() string { return h.journal.Epoch() }

// Cursor returns the newest cursor that clients may have seen.
func (h *Hub) Cursor() uint64 { return h.journal.Visible() }

// Done is closed when the hub has ended: by shutdown, Close, Suspend or a
// broken store.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Snapshot returns the state as of the newest entry.
func (h *Hub) Snapshot() *contracts.Snapshot {
	var snap *contracts.Snapshot
	h.update(func(tx *tx) { snap = tx.snapshot() })
	return snap
}

// Err returns why the session failed, nil if it has not.
func (h *Hub) Err() error { return h.lifeNow().failed }

// signal leaves a token in a 1-buffered channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newID returns prefix and 128 random bits (A22).
func newID(prefix string) string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return prefix + hex.EncodeToString(id[:])
}

// stamp formats a time as the wire has it: RFC 3339, UTC, milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
