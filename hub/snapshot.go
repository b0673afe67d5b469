package hub

import (
	"bytes"
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// snapshot returns the state as of the head. The fold over events does not know who
// is connected; that part comes from the connections.
func (tx *tx) snapshot() *contracts.Snapshot {
	snap := tx.log.events.Snapshot(tx.head())
	snap.ProtocolVersion, snap.SessionID = contracts.ProtocolVersion, tx.opts.SessionID
	st := &snap.State
	st.People = cmp.Or(st.People, &contracts.People{})
	st.Connections = tx.connectionStates()
	st.ConnectionCount = int64(len(tx.clients.conns))
	st.SubscriberCount = int64(len(tx.clients.subs))
	st.ControllerConnectionID = tx.clients.controllerID()
	st.ControllerSubscriptionID = contracts.Null()
	st.ClientProtocolVersion, st.ClientInfo, st.Capabilities, st.OptOutNotifications, st.ConnectionRole = "", nil, nil, nil, ""
	if override := tx.life.status; override != nil {
		st.IsReady, st.LastStatus = false, &override.LastStatus
		if override.LastError != "" {
			st.LastError, st.LastErrorType = &override.LastError, override.LastErrorType
		}
	}
	if c := tx.clients.preferred(); c != nil {
		mine := tx.connectionState(c)
		st.ClientProtocolVersion, st.ClientInfo = mine.ClientProtocolVersion, mine.ClientInfo
		st.Capabilities, st.OptOutNotifications, st.ConnectionRole = mine.Capabilities, mine.OptOutNotifications, mine.Role
		if mine.ControllerLeaseGranted {
			st.ControllerSubscriptionID = c.mainSubscription()
		}
	}
	return snap
}

// preferred returns the connection that the single-client fields describe: the
// holder, otherwise the one that was active last.
func (cl *clients) preferred() *connection {
	if c := cl.holder(); c != nil {
		return c
	}
	var last *connection
	var seen time.Time
	for _, c := range cl.conns {
		at := c.lastSeen()
		if last == nil || at.After(seen) || at.Equal(seen) && c.id < last.id { // by id, so that every snapshot names the same one
			last, seen = c, at
		}
	}
	return last
}

// mainSubscription returns the id of the first attached subscription, otherwise of
// the first.
func (c *connection) mainSubscription() contracts.NullString {
	for _, sub := range c.subs {
		if sub.box != nil {
			return contracts.String(sub.id)
		}
	}
	if len(c.subs) > 0 {
		return contracts.String(c.subs[0].id)
	}
	return contracts.Null()
}

// publishSnapshot publishes the whole state except for the people, after changes that
// clients need not be able to fold. The store keeps an empty note in place of the
// snapshot, because the stored events give the same state.
func (tx *tx) publishSnapshot() { tx.appendSnapshot(true) }

func (tx *tx) appendSnapshot(transient bool) {
	snap := tx.snapshot()
	snap.Cursor = tx.head() + 1 // a snapshot has a cursor of its own
	snap.State.People = nil     // not for all clients; those who know the people keep them
	body, err := contracts.EncodeSnapshot(snap, 0)
	if err != nil || len(body) > journal.MaxBody {
		tx.logger.Error("snapshot skipped", "bytes", len(body), "err", err) // clients have the entries
		return
	}
	tx.append(journal.Entry{Kind: journal.Snapshot, Transient: transient, Body: body})
}

// Snapshot returns the state as of the newest entry.
func (h *Hub) Snapshot() *contracts.Snapshot {
	var snap *contracts.Snapshot
	h.update(func(tx *tx) { snap = tx.snapshot() })
	return snap
}

// Memory limits the memory that the sessions of one process use together. It is
// safe for concurrent use.
type Memory struct {
	history       *journal.Shared
	snapshotBytes int64
	snapshots     atomic.Int64 // bytes of encoded snapshots that clients have not been written yet
	historyReads  *readerLimit
}

// MemoryOptions configure a [Memory]. The zero value is ready to use.
type MemoryOptions struct {
	HistoryBytes  int64 // recent entries of all sessions; 256 MiB. See [journal.SharedOptions]
	SnapshotBytes int64 // unwritten snapshots; 128 MiB. Above it, new clients share older snapshots
}

// NewMemory returns limits for the sessions of a process.
func NewMemory(opts MemoryOptions) *Memory {
	return &Memory{
		history:       journal.NewShared(journal.SharedOptions{WindowBytes: opts.HistoryBytes}),
		snapshotBytes: cmp.Or(opts.SnapshotBytes, 128<<20),
		historyReads:  newReaderLimit(max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// A sharedSnapshot is the state at one cursor, for all clients that attach there.
// The first writer that needs it encodes it, outside the lock, and makes one frame
// for each form. Until then Memory counts it with the size of the session's
// previous snapshot.
type sharedSnapshot struct {
	at    uint64
	users atomic.Int32 // mailboxes that have not written it yet, and the hub while it is the latest

	mu      sync.Mutex
	memory  *Memory             // counts it; nil for a snapshot of one request, and after the last user
	last    *atomic.Int64       // updated with the encoded size
	state   *contracts.Snapshot // without people; nil once it is encoded
	people  *contracts.People
	text    []byte // part of the first frame, if there is one and it is without people
	err     error
	frames  map[frameKey][]byte
	counted int64 // bytes that memory counts: of text and frames, or the estimate before
}

type frameKey struct {
	form   Form
	reset  contracts.ResetReason
	people bool // for clients that negotiated people
}

func (p *sharedSnapshot) body(people bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encoded(people)
}

// encoded returns the encoded state. The caller holds p.mu.
func (p *sharedSnapshot) encoded(people bool) ([]byte, error) {
	text, err := p.encodeOnce()
	if err != nil || !people {
		return text, err
	}
	return contracts.AddPeople(text, p.people)
}

// encodeOnce encodes the state without people at the first call. The caller holds p.mu.
func (p *sharedSnapshot) encodeOnce() ([]byte, error) {
	if p.state != nil {
		size := 0
		if p.last != nil {
			size = int(p.last.Load())
		}
		p.text, p.err = contracts.EncodeSnapshot(p.state, size)
		p.state = nil
		p.count(int64(len(p.text)) - p.counted)
		if p.last != nil {
			p.last.Store(int64(len(p.text)))
		}
	}
	return p.text, p.err
}

// frame returns the frame for clients of a form: a reset frame if reset is not
// empty.
func (p *sharedSnapshot) frame(form Form, reset contracts.ResetReason, people bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := frameKey{form, reset, people}
	if frame, ok := p.frames[key]; ok {
		return frame, nil
	}
	text, err := p.encoded(people)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 0, len(text)+256)
	if reset != "" {
		frame = form.AppendReset(frame, p.at, reset, text)
	} else {
		frame = form.AppendSnapshot(frame, p.at, text)
	}
	if p.frames == nil {
		p.frames = map[frameKey][]byte{}
		if at := bytes.Index(frame, text); at >= 0 && !people {
			p.text = frame[at:][:len(text)]
			p.count(int64(-len(text)))
		}
	}
	p.frames[key] = frame
	p.count(int64(len(frame)))
	return frame, nil
}

func (p *sharedSnapshot) count(n int64) {
	if p.memory != nil {
		p.counted += n
		p.memory.snapshots.Add(n)
	}
}

func (p *sharedSnapshot) addUser() { p.users.Add(1) }

// removeUser removes one user. The last one releases the frames.
func (p *sharedSnapshot) removeUser() {
	if p.users.Add(-1) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(-p.counted)
	p.memory, p.frames = nil, nil
}

// Above presenceAtOnce connections, clients that attach within snapshotShareTime share
// a snapshot and replay the entries since. Otherwise a thousand joins would encode a
// thousand states.
const (
	snapshotShareTime    = presenceEvery
	snapshotShareEntries = 1024 // entries
)

// latestSnapshot returns a snapshot to attach at, and adds one user to it. Above
// Memory's limit for snapshots, it returns the latest one as long as the journal
// has the entries since.
func (tx *tx) latestSnapshot() *sharedSnapshot {
	p := tx.log.latestSnapshot
	replayable := p != nil && tx.journal.First() <= p.at+1 // the journal has the entries since
	fresh := p != nil && p.at == tx.head()
	recent := replayable && len(tx.clients.conns) > presenceAtOnce && tx.now.Sub(tx.log.latestSnapshotAt) < snapshotShareTime && tx.head()-p.at < snapshotShareEntries
	scarce := replayable && tx.opts.Memory.snapshots.Load() >= tx.opts.Memory.snapshotBytes
	if !fresh && !recent && !scarce {
		tx.log.forgetSnapshot()
		p = tx.newSnapshot()
		p.memory = tx.opts.Memory
		p.count(tx.snapshotSize.Load())
		p.addUser() // the hub
		tx.log.latestSnapshot, tx.log.latestSnapshotAt = p, tx.now
	}
	p.addUser()
	return p
}

func (tx *tx) newSnapshot() *sharedSnapshot {
	p := &sharedSnapshot{last: &tx.snapshotSize, at: tx.head(), state: tx.snapshot()}
	p.people, p.state.State.People = p.state.State.People, nil
	return p
}

func (lg *eventLog) forgetSnapshot() {
	if lg.latestSnapshot != nil {
		lg.latestSnapshot.removeUser()
		lg.latestSnapshot = nil
	}
}

// pendingSnapshot returns the state as of the head, to be encoded outside the lock.
func (tx *tx) pendingSnapshot() *sharedSnapshot {
	if p := tx.log.latestSnapshot; p != nil && p.at == tx.head() && len(tx.clients.conns) > presenceAtOnce {
		return p
	}
	return tx.newSnapshot()
}

// encodeSnapshot encodes a snapshot once its entries are visible: with group
// commit, an answer must not show a change that is not synced yet (D4).
func (h *Hub) encodeSnapshot(p *sharedSnapshot, people bool) ([]byte, error) {
	if err := h.awaitVisible(p.at); err != nil {
		return nil, err
	}
	return p.body(people)
}

// SnapshotBytes returns the size of the last encoded snapshot in bytes, or zero.
func (h *Hub) SnapshotBytes() int { return int(h.snapshotSize.Load()) }

// State returns the current snapshot, encoded.
func (h *Hub) State() ([]byte, error) {
	return h.requestState(opRequest, func(*tx) (people bool, err error) { return false, nil })
}
