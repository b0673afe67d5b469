package hub

import (
	"bytes"
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
)

// Memory limits the memory that the sessions of one process use together. It is
// safe for concurrent use.
type Memory struct {
	history       *journal.Shared
	snapshotBytes int64
	snapshots     atomic.Int64 // bytes of encoded snapshots that clients have not been written yet
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
	}
}

// Snapshots returns the bytes of snapshots that clients have not been written yet.
func (m *Memory) Snapshots() int64 { return m.snapshots.Load() }

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
	state   *contracts.Snapshot // nil once it is encoded
	text    []byte              // part of the first frame, if there is one
	err     error
	frames  map[frameKey][]byte
	counted int64 // bytes that memory counts: of text and frames, or the estimate before
}

type frameKey struct {
	form  Form
	reset contracts.ResetReason
}

// body returns the encoded state.
func (p *sharedSnapshot) body() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encodeOnce()
}

// encodeOnce encodes the state at the first call. The caller holds p.mu.
func (p *sharedSnapshot) encodeOnce() ([]byte, error) {
	if p.state != nil {
		p.text, p.err = contracts.EncodeSnapshot(p.state)
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
func (p *sharedSnapshot) frame(form Form, reset contracts.ResetReason) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := frameKey{form, reset}
	if frame, ok := p.frames[key]; ok {
		return frame, nil
	}
	text, err := p.encodeOnce()
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
		if at := bytes.Index(frame, text); at >= 0 {
			p.text = frame[at:][:len(text)]
			p.count(int64(-len(text)))
		}
	}
	p.frames[key] = frame
	p.count(int64(len(frame)))
	return frame, nil
}

// count changes the bytes that memory counts.
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
		p = &sharedSnapshot{memory: tx.opts.Memory, last: &tx.snapshotSize, at: tx.head(), state: tx.snapshot()}
		p.count(tx.snapshotSize.Load())
		p.addUser() // the hub
		tx.log.latestSnapshot, tx.log.latestSnapshotAt = p, tx.now
	}
	p.addUser()
	return p
}

// forgetSnapshot releases the latest snapshot.
func (lg *eventLog) forgetSnapshot() {
	if lg.latestSnapshot != nil {
		lg.latestSnapshot.removeUser()
		lg.latestSnapshot = nil
	}
}

// expireSharedSnapshot releases the latest snapshot when it is too old for clients
// that attach and no mailbox needs it.
func (tx *tx) expireSharedSnapshot() {
	if tx.log.latestSnapshot != nil && tx.log.latestSnapshot.at != tx.journal.Head() && tx.now.Sub(tx.log.latestSnapshotAt) >= snapshotShareTime && tx.log.latestSnapshot.users.Load() == 1 {
		tx.log.forgetSnapshot()
	}
}

// A Summary describes a session in a listing.
type Summary struct {
	Cursor      uint64
	Updated     time.Time // when an event was last published
	Responding  bool
	Connections int
	Pending     int // open requests
}

// Summary returns the current summary.
func (h *Hub) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Summary{
		Cursor: h.journal.Visible(), Updated: h.state.log.lastPublished, Responding: h.state.work.run != nil,
		Connections: len(h.state.clients.conns), Pending: h.state.work.table.Len(),
	}
}
