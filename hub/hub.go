package hub

import (
	"cmp"
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
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/lease"
	"github.com/seed-028515a8/maestro/serverreq"
)

// Options configures a hub. A comment on a field names the default that a zero
// value stands for.
type Options struct {
	SessionID string  // required
	Cwd       string  // absolute workspace root, shown in session_info
	GitBranch *string // current branch, or nil

	Agent     contracts.Agent // required
	Utilities Utilities       // commands and files for clients; nil offers none. The hub closes it
	Store     journal.Store   // required; the hub closes it

	// LoadAttachments reads the files that a prompt names. It returns the loaded
	// files, and one message for each file that failed. Nil refuses all files.
	LoadAttachments func(paths []string) ([]contracts.Attachment, []string)

	Profile      contracts.Profile      // seed
	Strict       bool                   // refuse unknown keys and nulls (D13)
	ApprovalMode contracts.ApprovalMode // prompt
	Init         *contracts.Init        // first command of a new session; nil for none

	LeaseTTL          time.Duration // 45 s since the holder was last active
	HeartbeatInterval time.Duration // 15 s; a peer silent for three intervals is closed
	SubscriptionTTL   time.Duration // 30 s a dropped connection can be resumed
	HandshakeTimeout  time.Duration // 10 s from the upgrade to hello
	IdleTTL           time.Duration // suspend after this long without clients, run or events; default never
	WorkingInterval   time.Duration // 15 s; a run without events for this long publishes a status

	// RequestTimeout overrides how long a type of request waits. A negative value
	// means without limit (D8).
	RequestTimeout map[contracts.RequestType]time.Duration

	WindowBytes     int     // 8 MiB of recent entries in memory
	Memory          *Memory // memory limits shared by the sessions of a process; default: limits of this session alone
	CheckpointBytes int     // 8 MiB of entries between two checkpoints, or the size of the last checkpoint if larger
	GroupCommit     bool    // show entries only after they are synced to disk

	CheckpointAge time.Duration // the first entries after this time include a checkpoint; default never

	MaxFrameBytes   int // 1 MiB, sent to clients; the transport enforces it
	MaxControllers  int // 64 controller-role connections
	MaxConnections  int // 16,384, detached connections included
	MaxPrivateBytes int // 1 MiB of unread private frames of one connection; a connection above it is closed
	MaxPending      int // 256 open requests
	MaxBacklog      int // 4 MiB that a local client may lag before the agent waits, and an owner before its command waits

	// RequireTokens makes HTTP requests that name a connection present its secret.
	RequireTokens bool

	// Votes say which approvals need several principals. RequireDigest refuses answers
	// to approvals that do not echo the digest of the request.
	Votes         []VoteRule
	RequireDigest bool

	// Alive reports whether a principal's credential is still valid. It is called
	// with the session's lock held. Nil means always valid.
	Alive func(contracts.Principal) bool

	// Quiet keeps the agent's start out of the journal; clients see it in the
	// state. Suites of the public profile count envelopes.
	Quiet bool

	// Restored, if not nil, is the state of a session that was drained elsewhere.
	// It is used if the store is empty.
	Restored *contracts.Restored

	// DrainCancels makes a drain cancel all questions. By default, questions that
	// the agent can act on after a restore stay open.
	DrainCancels bool

	// NoReturn says that clients of an earlier process cannot reconnect, because
	// its address is gone. Their connections end and the lease is free when the
	// session starts. By default they have SubscriptionTTL or LeaseTTL to return.
	NoReturn bool

	Observer Observer // told of everything that happens; may be nil

	// Changed is called when the summary has changed as lists show it. It must return
	// at once and must not call the hub, because it is called with the session's lock
	// held. It may be nil.
	Changed func()

	// Shared says that other clients may attach beside the local client. The local
	// client may then use the ws.* control frames about the lease.
	Shared bool

	Log *slog.Logger // must not block, because the hub logs with its lock held; default discards
}

func (o Options) withDefaults() (Options, error) {
	if o.SessionID == "" || o.Agent == nil || o.Store == nil {
		return o, errors.New("hub: session id, agent and store are required")
	}
	o.LeaseTTL = positive(o.LeaseTTL, contracts.DefaultLeaseTTL)
	o.HeartbeatInterval = positive(o.HeartbeatInterval, contracts.DefaultHeartbeatInterval)
	o.SubscriptionTTL = positive(o.SubscriptionTTL, contracts.DefaultSubscriptionTTL)
	o.HandshakeTimeout = positive(o.HandshakeTimeout, contracts.DefaultHandshakeTimeout)
	o.WorkingInterval = positive(o.WorkingInterval, 15*time.Second)
	o.CheckpointBytes = positive(o.CheckpointBytes, 8<<20)
	o.MaxFrameBytes = positive(o.MaxFrameBytes, contracts.MaxSocketBytes)
	o.MaxControllers = positive(o.MaxControllers, 64)
	o.MaxConnections = positive(o.MaxConnections, 16384)
	o.MaxPrivateBytes = positive(o.MaxPrivateBytes, 1<<20)
	o.MaxPending = positive(o.MaxPending, 256)
	o.MaxBacklog = positive(o.MaxBacklog, 4<<20)
	o.Profile = cmp.Or(o.Profile, contracts.ProfileSeed)
	o.ApprovalMode = cmp.Or(o.ApprovalMode, contracts.ApprovalPrompt)
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.LoadAttachments == nil {
		o.LoadAttachments = func(paths []string) (none []contracts.Attachment, failures []string) {
			for _, p := range paths {
				failures = append(failures, "Attachment not readable: "+p)
			}
			return none, failures
		}
	}
	if o.Utilities == nil {
		o.Utilities = noUtilities{}
	}
	if o.Memory == nil {
		o.Memory = NewMemory(MemoryOptions{})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// positive returns n, or the default if n is not positive.
func positive[N int | time.Duration](n, def N) N { return cmp.Or(max(n, 0), def) }

// A Hub is one session: it joins one agent to any number of clients.
//
// One mutex guards the lease, the pending requests, the session's state and the
// journal's head (D6). Clients follow the journal and have no queue of events; see
// mailbox. All methods may be called from any goroutine.
type Hub struct {
	// Static after New.
	opts        Options
	logger      *slog.Logger
	journal     *journal.Journal
	info        contracts.AgentInfo // set by Start, before any connection is served
	startCursor uint64              // head before this process published anything
	readyCursor uint64              // head after the agent was announced as ready
	restored    bool                // the store had entries of an earlier process
	openedAt    time.Time           // when this process opened the session

	roster    roster
	followers followers
	metrics   Metrics
	local     atomic.Bool // a local client is attached

	snapshotSize atomic.Int64 // bytes of the last encoded snapshot

	leaving    atomic.Bool   // set by the first call of leave
	clientLeft chan struct{} // 1-buffered; a token means a connection detached

	rearm      chan struct{} // 1-buffered; a token means that the next deadline is earlier
	newEntries chan struct{} // 1-buffered; a token means visible entries
	unsynced   chan struct{} // 1-buffered; a token means unsynced entries (group commit)
	done       chan struct{} // closed when the hub has ended
	closed     chan struct{} // closed when leave has returned
	wg         sync.WaitGroup

	mu    sync.Mutex
	state state // guarded by mu
}

// state is guarded by Hub.mu. A [tx] may change it. Functions that only read it may
// lock the mutex themselves.
type state struct {
	clients clients
	work    work
	life    lifecycle
	log     eventLog

	batch          []journal.Entry // memory for the entries of a transaction, reused by the next
	effects        []func(*Hub)    // added by ended transactions and not run yet, in order
	runningEffects bool            // a goroutine runs effects
}

// clients holds the connections, their subscriptions and the lease.
type clients struct {
	lease    *lease.Lease
	conns    map[string]*connection
	subs     map[string]*subscription // of all connections
	detached list.List                // of expiry[*subscription]
	idle     list.List                // of expiry[*connection] without subscriptions
	former   []former                 // oldest first; at most maxFormer
	starting map[string]*httpCall     // utility_command_start requests in progress, by command id
	presence presence

	restoredHolder string // of the lease; used only while restoring

	nextHeartbeat     time.Time     // when heartbeatAll runs next; zero until a client attached
	lastUsed          time.Time     // when a connection was last made or destroyed
	nextCredentialEnd time.Time     // when the first credential expires; zero: never
	mismatchLimiter   *rate.Limiter // limits statuses about clients of other protocol versions
	warnedTokens      bool          // the warning about missing connection tokens was logged
	toldToReturn      int           // connections that got a goodbye with going_away
}

// work holds the agent's run and its questions.
type work struct {
	run        *run // nil if there is none
	unfinished *run // a run that the previous process did not end
	mode       contracts.ApprovalMode
	lastInit   *contracts.Init

	table     *serverreq.Table
	waiters   map[string]chan contracts.Outcome // by request id; each 1-buffered
	toResume  []answeredQuestion                // oldest first; at most Options.MaxPending
	queue     contracts.KeptQueue               // prompts that wait, bounded by checkRoom; prompts in it do not change
	deadlines map[string]time.Time              // of requests; used only while restoring
	lastShown *contracts.RequestShown           // the last one; used only while restoring
}

// eventLog holds the state folded from the published events, and decides when a
// checkpoint is due.
type eventLog struct {
	events           *session.State
	published        uint64          // number of events published by this process
	lastPublished    time.Time       // when an event was last published or a run began
	revealed         chan struct{}   // closed and replaced when a group commit has made entries visible
	latestSnapshot   *sharedSnapshot // shared by clients that attach; may be nil
	latestSnapshotAt time.Time       // when latestSnapshot was made

	digest Digest // what lists show of the events
	shown  shown  // what lists were last told to show; used only with Options.Changed

	endings []contracts.InboxEnding // since the last record; at most maxUnreadEndings

	sinceCheckpoint int       // bytes since the last checkpoint, or since the last attempt
	checkpointSize  int       // bytes of the last checkpoint
	checkpointedAt  time.Time // when the last checkpoint was made, or the session opened

	audit auditHead // the newest record of the audit
}

// New opens the session in opts.Store and restores its state. No goroutine runs
// until Start.
func New(opts Options) (*Hub, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		opts:       opts,
		openedAt:   time.Now(),
		logger:     opts.Log.With("session", opts.SessionID),
		rearm:      make(chan struct{}, 1),
		newEntries: make(chan struct{}, 1),
		unsynced:   make(chan struct{}, 1),
		done:       make(chan struct{}),
		closed:     make(chan struct{}),
		clientLeft: make(chan struct{}, 1),
	}
	h.state = state{
		clients: clients{
			lease:    lease.New(opts.LeaseTTL, 0),
			conns:    map[string]*connection{},
			subs:     map[string]*subscription{},
			starting: map[string]*httpCall{},
			presence: presence{
				relist: true, // clients of an earlier process may have an older list
				budget: rate.NewLimiter(presenceRate, presenceBurst),
			},
			mismatchLimiter: rate.NewLimiter(1, mismatchBurst),
		},
		work: work{
			mode:      opts.ApprovalMode,
			table:     serverreq.New(opts.MaxPending),
			waiters:   map[string]chan contracts.Outcome{},
			deadlines: map[string]time.Time{},
		},
		log: eventLog{events: session.New(), revealed: make(chan struct{}), checkpointedAt: h.openedAt},
	}
	var after uint64
	if opts.Restored != nil {
		after = opts.Restored.Cursor
	}
	h.journal, err = journal.New(opts.Store, journal.Options{
		WindowBytes: opts.WindowBytes,
		Shared:      opts.Memory.history,
		Deferred:    opts.GroupCommit,
		After:       after,
		Wake:        func() { signal(h.newEntries) },
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
	if from := opts.Restored; from != nil && !from.Ready && h.state.life.origin != nil { // also when a later process starts with the same manifest
		h.state.life.status = from
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
	if h.state.life.status != nil {
		h.update(func(tx *tx) { tx.life.phase = phaseUnready })
		return nil
	}
	h.opts.Utilities.Start(h.publishUtility, func(ctx context.Context, owner string) error {
		return h.awaitReader(ctx, owner, &h.metrics.CommandWaits)
	})
	var info contracts.AgentInfo
	err := h.callAgent(func(h *Hub) (err error) {
		info, err = h.opts.Agent.Start(ctx, (*host)(h))
		return err
	})
	if err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	h.update(func(tx *tx) {
		h.info, tx.clients.lastUsed = info, tx.now
		h.startCursor = tx.head()
		tx.closeLeftovers()
		tx.correctController()
		tx.correctQueue()
		if info.Forgets {
			tx.resolve(tx.work.table.CancelAll("The program that asked has ended", tx.now)...)
		}
		tx.life.phase = phaseOpen
		tx.announce()
		if init := h.opts.Init; init != nil && !h.restored && tx.life.origin == nil {
			tx.configure(init, note{})
		}
		h.readyCursor = tx.head()
		tx.startQueued()
	})
	if err := h.Err(); err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	return nil
}

// announce publishes ready and session_info. A session restored from elsewhere, and one
// with Options.Quiet, only gets them in its state: they take no cursor there.
func (tx *tx) announce() {
	id := &tx.opts.SessionID
	ready := &contracts.Ready{ProtocolVersion: contracts.ProtocolVersion, Model: tx.info.Model, Provider: tx.info.Provider, SessionID: id}
	if tx.opts.Profile == contracts.ProfileSeed {
		ready.ExecutorType = tx.info.Executor
	}
	events := []contracts.Event{ready, &contracts.SessionInfo{SessionID: id, Cwd: tx.opts.Cwd, GitBranch: tx.opts.GitBranch}}
	adopted := !tx.restored && tx.opts.Restored != nil
	quiet := !tx.life.wasDrained && (adopted || tx.opts.Quiet)
	if tx.life.wasDrained || quiet && !adopted && !tx.restored { // clients were shown "Drained", or will only see the state
		events = append(events, &contracts.Status{Message: "Ready"})
	}
	for _, ev := range events {
		if quiet {
			tx.log.events.Apply(ev)
		} else {
			tx.publish(ev)
		}
	}
}

// SessionID returns the session's id.
func (h *Hub) SessionID() string { return h.opts.SessionID }

// Epoch returns the journal's epoch. Cursors of different epochs are not
// comparable.
func (h *Hub) Epoch() string { return h.journal.Epoch() }

// Cursor returns the newest visible cursor.
func (h *Hub) Cursor() uint64 { return h.journal.Visible() }

// Closed is closed when the hub has ended and its store is closed.
func (h *Hub) Closed() <-chan struct{} { return h.closed }

// Done is closed when the hub has ended: after a shutdown, Close, Suspend or
// failure of the store.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Err returns why the session failed, or nil.
func (h *Hub) Err() error { return h.lifeNow().failed }

// A Summary describes a session in a listing.
type Summary struct {
	Cursor      uint64
	Updated     time.Time // when an event was last published, or the session opened
	Responding  bool
	Connections int
	Pending     int // open requests
}

// Summary returns the current summary.
func (h *Hub) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	updated := h.state.log.lastPublished
	if updated.IsZero() {
		updated = h.openedAt
	}
	return Summary{
		Cursor: h.journal.Visible(), Updated: updated, Responding: h.state.work.run != nil,
		Connections: len(h.state.clients.conns), Pending: h.state.work.table.Len(),
	}
}

// wait waits until it can receive from a channel, at most for d. It ignores a nil
// channel.
func wait(d time.Duration, done, stop <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-stop:
	case <-timer.C:
	}
}

// signal puts a token into a 1-buffered channel unless there is one.
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
