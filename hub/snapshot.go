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

// Memory bounds what the sessions of one process hold together. It is safe for
// concurrent use.
type Memory struct {
	history       *journal.Shared
	snapshotBytes int64
	snapshots     atomic.Int64 // bytes of encoded snapshots that clients are still to get
}

// MemoryOptions configure a [Memory]. The zero value is ready to use.
type MemoryOptions struct {
	HistoryBytes  int64 // of what all sessions showed last; 256 MiB. See [journal.SharedOptions]
	SnapshotBytes int64 // of snapshots on their way to clients; 128 MiB. Beyond, newcomers share older ones
}

// NewMemory returns bounds for the sessions of a process.
func NewMemory(opts MemoryOptions) *Memory {
	return &Memory{
		history:       journal.NewShared(journal.SharedOptions{WindowBytes: opts.HistoryBytes}),
		snapshotBytes: cmp.Or(opts.SnapshotBytes, 128<<20),
	}
}

// Snapshots returns how many bytes of snapshots are on their way to clients.
func (m *Memory) Snapshots() int64 { return m.snapshots.Load() }

// A sharedSnapshot is the state at one cursor for everybody who attaches there.
// It is encoded once, by the first writer that needs it, outside the lock, and
// framed once for each form. Until then memory counts it as large as the session's
// last one was.
type sharedSnapshot struct {
	at    uint64
	users atomic.Int32 // mailboxes that are still to write it, and the hub while it is the latest

	mu      sync.Mutex
	memory  *Memory             // that counts it; nil for one request's own, and once nobody needs it
	last    *atomic.Int64       // bytes of the session's last snapshot
	state   *contracts.Snapshot // nil once it is encoded
	text    []byte              // a part of the first frame, if there is one
	err     error
	frames  map[frameKey][]byte
	bytes   int64 // of text and frames
	counted int64 // bytes that memory counts
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

func (p *sharedSnapshot) encodeOnce() ([]byte, error) {
	if p.state != nil {
		p.text, p.err = contracts.EncodeSnapshot(p.state)
		p.state = nil
		p.addBytes(len(p.text))
		if p.last != nil {
			p.last.Store(int64(len(p.text)))
		}
	}
	return p.text, p.err
}

// frame returns what a client of a form is sent: a reset if there is a reason.
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
			p.addBytes(-len(text))
		}
	}
	p.frames[key] = frame
	p.addBytes(len(frame))
	return frame, nil
}

// hold notes that the snapshot holds n bytes more. Memory counts at least what it
// was expected to hold.
func (p *sharedSnapshot) addBytes(n int) {
	p.bytes += int64(n)
	p.addCounted(p.bytes - p.counted)
}

func (p *sharedSnapshot) addCounted(more int64) {
	if p.memory != nil && more > 0 {
		p.counted += more
		p.memory.snapshots.Add(more)
	}
}

func (p *sharedSnapshot) addUser() { p.users.Add(1) }

// done says that one user needs the snapshot no more.
func (p *sharedSnapshot) removeUser() {
	if p.users.Add(-1) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.snapshots.Add(-p.counted)
	p.memory, p.frames = nil, nil
}

// In a crowd a snapshot serves all who attach within a short while: whoever
// starts from an older one reads the entries since, and arrives at the same
// state. Otherwise a thousand joins would encode a thousand states.
const (
	snapshotShareTime    = presenceEvery
	snapshotShareEntries = 1024 // entries
)

// share returns a snapshot to attach at, for one user. While clients are still to
// get too many bytes of snapshots, the latest serves for as long as the entries
// since are kept.
func (tx *tx) latestSnapshot() *sharedSnapshot {
	p := tx.log.latestSnapshot
	kept := p != nil && tx.journal.First() <= p.at+1 // else retention has overtaken it
	fresh := p != nil && p.at == tx.head()
	recent := kept && len(tx.clients.conns) > presenceAtOnce && tx.now.Sub(tx.log.latestSnapshotAt) < snapshotShareTime && tx.head()-p.at < snapshotShareEntries
	scarce := kept && tx.opts.Memory.snapshots.Load() >= tx.opts.Memory.snapshotBytes
	if !fresh && !recent && !scarce {
		tx.log.forgetSnapshot()
		p = &sharedSnapshot{memory: tx.opts.Memory, last: &tx.snapshotSize, at: tx.head(), state: tx.snapshot()}
		p.addCounted(tx.snapshotSize.Load())
		p.addUser() // by the hub
		tx.log.latestSnapshot, tx.log.latestSnapshotAt = p, tx.now
	}
	p.addUser()
	return p
}

// forgetShared gives up the latest snapshot.
func (lg *eventLog) forgetSnapshot() {
	if lg.latestSnapshot != nil {
		lg.latestSnapshot.removeUser()
		lg.latestSnapshot = nil
	}
}

// ageShared gives up the latest snapshot when it serves newcomers no more.
func (tx *tx) expireSharedSnapshot() {
	if tx.log.latestSnapshot != nil && tx.log.latestSnapshot.at != tx.journal.Head() && tx.now.Sub(tx.log.latestSnapshotAt) >= snapshotShareTime && tx.log.latestSnapshot.users.Load() == 1 {
		tx.log.forgetSnapshot()
	}
}

// A Summary is what a listing says of a session.
type Summary struct {
	Cursor      uint64
	Updated     time.Time // something was last published
	Responding  bool
	Connections int
	Pending     int // requests that wait for an answer
}

// Summary describes the session as of now.
func (h *Hub) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Summary{
		Cursor: h.journal.Visible(), Updated: h.state.log.lastPublished, Responding: h.state.work.run != nil,
		Connections: len(h.state.clients.conns), Pending: h.state.work.table.Len(),
	}
}
