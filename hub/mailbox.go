package hub

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
)

// A mailbox is one attached connection's place in the journal, plus the frames
// meant for that connection alone.
//
// Entries are not copied here: a client that stops reading costs a cursor, not
// a queue. There is no goroutine while there is nothing to write: wake starts
// one, which ends when the client has caught up (D3). docs/states.md has a
// diagram of the states.
type mailbox struct {
	// Static after attach.
	conn Conn
	form Form
	view *journal.View
	bare bool

	sub       *subscription
	transport string // stdio, ws or sse
	viewer    bool   // the role of its connection, which does not change any more

	// Owned by the flush, of which there is at most one; cursor is read by anyone.
	cursor           atomic.Uint64 // last entry written or skipped
	missedTransients bool          // it has read entries of which the store did not keep all

	writer  atomic.Int32  // a writerState
	stopped chan struct{} // closed when writer becomes writerStopped

	skip          atomic.Uint32 // journal.Class set this client leaves out
	noHeartbeats  atomic.Bool   // opted out of heartbeats
	privateCount  atomic.Int32  // parcels in private, so that a flush need not lock to see none
	needsSnapshot atomic.Bool   // a snapshot in private will move cursor; no entries are written before it
	heartbeatDue  atomic.Bool   // a heartbeat is due

	// Guarded by Hub.mu.
	private       []parcel
	privateBytes  int       // bytes in private; at most Options.MaxPrivateBytes
	lastHeartbeat time.Time // when a heartbeat was last due
	closing       bool      // a parting parcel is queued; nothing may follow it
}

// A writerState says whether a flush writes to a mailbox's connection.
type writerState = int32

const (
	writerIdle     writerState = iota // none; wake starts one
	writerRunning                     // one does, and returns to writerIdle when nothing is left
	writerStopping                    // one does, and is the last: the reader has ended
	writerStopped                     // none will: the last flush or a write failed, or the parting was written
)

// A parcel is something for one client alone, with the place in the journal
// that it must neither overtake nor be overtaken by: it is written after the
// entries up to at and before those beyond.
type parcel struct {
	at    uint64
	frame []byte // ready bytes, or

	snapshot *sharedSnapshot       // the state, which makes the client jump to at
	reset    contracts.ResetReason // not empty: the snapshot replaces what the client has

	closes bool             // close the connection after this parcel, because of
	why    *contracts.Error // this; nil is a normal end
}

// drop says that the parcel need not be written any more.
func (p *parcel) drop() {
	if p.snapshot != nil {
		p.snapshot.removeUser()
	}
}

var errClosed = errors.New("the server ended the connection")

// A roster lists the mailboxes that follow, for the waker. Its lock comes after
// Hub.mu and inside it come only a connection's own locks.
type roster struct {
	mu    sync.RWMutex
	boxes []*mailbox
}

func (r *roster) add(b *mailbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boxes = append(r.boxes, b)
}

func (r *roster) remove(b *mailbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.boxes, b); i >= 0 {
		last := len(r.boxes) - 1
		r.boxes[i], r.boxes[last] = r.boxes[last], nil
		r.boxes = r.boxes[:last]
	}
}

// expel closes every socket without ceremony, those that were superseded and
// hang in a write included.
func (r *roster) closeSockets(why *contracts.Error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, b := range r.boxes {
		b.conn.Close(why)
	}
}

func (r *roster) len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.boxes)
}

// push queues a parcel. A client that lets too much private matter pile up is
// expelled: private frames cannot be replayed, so there is nothing to reset it
// with. The flush that wake starts blocks on Hub.mu until the update ends.
func (tx *tx) push(b *mailbox, p parcel) {
	if b.closing {
		p.drop()
		return
	}
	b.private = append(b.private, p)
	b.privateBytes += len(p.frame)
	b.closing = p.closes
	if p.snapshot != nil {
		b.needsSnapshot.Store(true)
	}
	b.privateCount.Add(1)
	if b.privateBytes > tx.opts.MaxPrivateBytes && !p.closes {
		tx.metrics.SlowConsumers.Add(1)
		b.closing = true
		b.conn.Close(&contracts.Error{Code: contracts.CodeSlowConsumer, Message: "too many unread answers"})
		return
	}
	tx.wake(b)
}

// wake starts a flush of b unless one runs or none may.
func (h *Hub) wake(b *mailbox) {
	if b.writer.CompareAndSwap(writerIdle, writerRunning) {
		go h.flush(b) // ends when the client has caught up or a write fails; stop waits for it
	}
}

// stop waits until b's last flush has ended and lets no other start.
func (b *mailbox) stop() {
	for b.writer.Load() != writerStopped {
		if b.writer.CompareAndSwap(writerIdle, writerStopped) {
			close(b.stopped)
		} else if b.writer.CompareAndSwap(writerRunning, writerStopping) {
			break
		}
	}
	<-b.stopped
}

// flush writes everything there is for b. A flush that fails is the last one.
func (h *Hub) flush(b *mailbox) {
	for {
		if err := h.writeOut(b); err != nil {
			b.conn.Close(h.writeFailure(b, err))
			b.writer.Store(writerStopped)
			close(b.stopped)
			return
		}
		if !b.writer.CompareAndSwap(writerRunning, writerIdle) {
			b.writer.Store(writerStopped) // from writerStopping
			close(b.stopped)
			return
		}
		// An entry or a parcel may have come after writeOut saw nothing and
		// before the state changed. Its wake then found the flush running.
		if !h.behind(b) || !b.writer.CompareAndSwap(writerIdle, writerRunning) {
			return
		}
	}
}

func (h *Hub) writeFailure(b *mailbox, err error) *contracts.Error {
	var refusal *contracts.Error
	if errors.As(err, &refusal) || errors.Is(err, errClosed) {
		return refusal
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // any other failure is that of a client that left
		h.metrics.SlowConsumers.Add(1)
	}
	return &contracts.Error{Code: contracts.CodeSlowConsumer, Message: "the connection does not take what is written"}
}

// behind reports whether there is something for b to write.
func (h *Hub) behind(b *mailbox) bool {
	return !b.needsSnapshot.Load() && b.cursor.Load() < h.journal.Visible() || b.heartbeatDue.Load() || h.hasDueParcel(b)
}

// due reports whether b's first parcel may be written now.
func (h *Hub) hasDueParcel(b *mailbox) bool {
	if b.privateCount.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.dueParcel(b)
	return ok
}

// ripe returns b's first parcel if its place has been reached. A parcel whose
// entries are not visible yet has to wait for them.
func (h *Hub) dueParcel(b *mailbox) (parcel, bool) {
	if len(b.private) == 0 {
		return parcel{}, false
	}
	p := b.private[0]
	reached := b.cursor.Load() >= p.at || p.snapshot != nil
	return p, reached && p.at <= h.journal.Visible()
}

// writeOut writes until there is nothing left. A panic in it ends the client's
// connection like any other failed write.
func (h *Hub) writeOut(b *mailbox) (err error) {
	defer h.contain(b.conn, &err)
	buf := takeBuffer()
	defer giveBuffer(buf)
	for h.behind(b) {
		// A parcel is queued before the entries that it precedes can be seen, so
		// what is visible now cannot overtake a parcel that comes only later.
		visible := h.journal.Visible()
		until, err := h.writeParcels(b, buf)
		if err != nil {
			return err
		}
		if until == 0 || until > visible {
			until = visible
		}
		if err := h.writeEntries(b, buf, until); err != nil {
			return err
		}
		if b.heartbeatDue.Swap(false) {
			if err := h.writeHeartbeat(b, buf); err != nil {
				return err
			}
		}
	}
	if b.bare {
		h.localBacklog.caughtUp()
	}
	return nil
}

// writeParcels writes the parcels whose place has been reached, in one write,
// and returns the place of the first that remains, zero if none does: how far
// entries may go.
func (h *Hub) writeParcels(b *mailbox, buf *[]byte) (until uint64, err error) {
	out := (*buf)[:0]
	jumped := false
	for b.privateCount.Load() > 0 {
		h.mu.Lock()
		p, ok := h.dueParcel(b)
		if !ok {
			if len(b.private) > 0 {
				until = b.private[0].at
			}
			h.mu.Unlock()
			break
		}
		b.private[0] = parcel{}
		if b.private = b.private[1:]; len(b.private) == 0 {
			b.private = nil // most have none after the handshake
		}
		b.privateBytes -= len(p.frame)
		b.privateCount.Add(-1)
		h.mu.Unlock()

		if p.snapshot != nil {
			if out, err = h.writeSnapshot(b, out, p); err != nil {
				return 0, err
			}
			jumped = true
			continue
		}
		out = append(out, p.frame...)
		if p.closes {
			if len(out) > 0 {
				err = b.conn.Write(out)
			}
			return 0, errors.Join(err, closeError(p.why))
		}
	}
	if len(out) > 0 {
		err = b.conn.Write(out)
		putBack(buf, out)
	}
	if err == nil && jumped {
		b.needsSnapshot.Store(false) // only now: one that could not be written may have to be written anew
	}
	return until, err
}

func closeError(why *contracts.Error) error {
	if why == nil {
		return errClosed
	}
	return why
}

// writeSnapshot adds a snapshot to what is to be written. A large one is written
// at once, with what comes before it: all clients of its form share the bytes.
func (h *Hub) writeSnapshot(b *mailbox, out []byte, p parcel) ([]byte, error) {
	defer p.drop()
	frame, err := p.snapshot.frame(b.form, p.reset)
	switch {
	case err != nil:
		return out, err
	case len(frame) <= maxCopied:
		out = append(out, frame...)
	default:
		if len(out) > 0 {
			err = b.conn.Write(out)
			out = out[:0]
		}
		if err == nil {
			err = b.conn.Write(frame)
		}
		if err != nil {
			return out, err
		}
	}
	b.cursor.Store(p.at)
	b.missedTransients = false
	h.ownerRead(b)
	if p.reset != "" {
		h.metrics.reset(p.reset)
		h.opts.Observer.Reset(p.reset)
	}
	return out, nil
}

// maxCopied is the longest snapshot that is copied to be written with others.
const maxCopied = 16 << 10

// writeEntries writes one batch of entries beyond b's cursor, not past until.
func (h *Hub) writeEntries(b *mailbox, buf *[]byte, until uint64) error {
	cursor := b.cursor.Load()
	if cursor >= until || b.needsSnapshot.Load() {
		return nil
	}
	b.missedTransients = b.missedTransients || !h.journal.InWindow(cursor)
	frames, next, err := b.view.Read(*buf, cursor, until, journal.Class(b.skip.Load()), 0)
	if errors.Is(err, journal.ErrGap) {
		return h.resetClient(b, contracts.ResetLagged)
	}
	if err != nil { // what cannot be read is lost, to this client like to others
		h.logger.Error("read journal", "after", cursor, "err", err)
		return h.resetClient(b, contracts.ResetGap)
	}
	if len(frames) > 0 {
		if err := b.conn.Write(frames); err != nil {
			return err
		}
		if b.bare {
			h.localBacklog.shrink(len(frames))
		}
	}
	b.cursor.Store(next)
	h.ownerRead(b)
	if b.missedTransients && h.journal.InWindow(next) {
		b.missedTransients = false
		h.sendConnectionList(b)
	}
	return nil
}

// startOver resets a client that cannot read on from its cursor (D5). One that
// cannot be reset is closed: it must not believe that it has seen everything.
func (h *Hub) resetClient(b *mailbox, why contracts.ResetReason) error {
	if b.bare {
		return &contracts.Error{Code: contracts.CodeSlowConsumer, Message: "the connection fell behind what is kept"}
	}
	h.update(func(tx *tx) {
		snap := tx.latestSnapshot()
		at := snap.at
		b.cursor.Store(at) // the entries up to there will not be written; private frames among them are, before the reset
		i := slices.IndexFunc(b.private, func(p parcel) bool { return p.at > at || p.closes })
		if i < 0 {
			i = len(b.private)
		}
		b.private = slices.Insert(b.private, i, parcel{at: at, snapshot: snap, reset: why})
		b.needsSnapshot.Store(true)
		b.privateCount.Add(1)
	})
	return nil
}

func (h *Hub) writeHeartbeat(b *mailbox, buf *[]byte) error {
	out := b.form.AppendHeartbeat((*buf)[:0], b.cursor.Load(), b.noHeartbeats.Load())
	if len(out) == 0 {
		return nil
	}
	err := b.conn.Write(out)
	putBack(buf, out)
	return err
}

// Buffers are for parcels and for entries that have left the window; the usual
// write takes its bytes from the journal.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

const maxPooled = 256 << 10

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		buffers.Put(b)
	}
}

// keepBuffer keeps what grew, so that the next use need not grow again.
func putBack(buf *[]byte, grown []byte) { *buf = grown[:0] }
