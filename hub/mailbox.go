package hub

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A mailbox is the position of one attached stream in the journal, plus the frames
// for that stream alone.
//
// A mailbox does not copy entries: a client that stops reading costs one cursor, not
// a queue. While there is nothing to write, a mailbox has no goroutine. wake starts
// one, which ends when the client has caught up (D3). docs/states.md has a diagram
// of the states.
type mailbox struct {
	// Fixed when attached.
	conn Conn
	form Form
	view *journal.View
	bare bool

	sub       *subscription
	transport string         // stdio, ws or sse
	counted   contracts.Role // the role when attached; only the local client changes its role

	// Owned by the flush; there is at most one. Any goroutine may read cursor.
	cursor           atomic.Uint64 // last entry written or skipped
	readsAtOnce      bool          // the client took the last batch within turnWait
	missedTransients bool          // it read entries whose transient ones the store did not keep
	listedAt         uint64        // the cursor of the last list of connections that it was sent, or will be

	// When the slowest client that is served has read what was written, in Unix ns.
	// Written by the flush.
	readBy atomic.Int64

	writer  atomic.Int32  // a writerState
	stopped chan struct{} // closed when writer becomes writerStopped

	skip          atomic.Uint32 // journal.Class set that this client opted out of
	noHeartbeats  atomic.Bool   // opted out of heartbeats
	privateCount  atomic.Int32  // length of private, so that a flush can see zero without the lock
	needsSnapshot atomic.Bool   // a snapshot in private will move cursor; entries wait until it is written
	heartbeatDue  atomic.Bool

	// Guarded by Hub.mu.
	private       []parcel  // oldest first
	privateBytes  int       // bytes in private; at most Options.MaxPrivateBytes
	lastHeartbeat time.Time // when a heartbeat was last due
	closing       bool      // a closing parcel is queued; nothing may follow it
}

// A writerState says whether a flush writes to a mailbox's connection.
type writerState = int32

const (
	writerIdle     writerState = iota // no flush; wake starts one
	writerRunning                     // a flush, which returns to writerIdle when nothing is left
	writerStopping                    // the last flush: the reader has ended
	writerStopped                     // no flush any more: the last one ended, a write failed, or the goodbye was written
)

// A parcel is a frame or snapshot for one client. It is written after the entries
// up to cursor at and before the later entries.
type parcel struct {
	at    uint64
	frame []byte // encoded bytes, or

	turns int // a page of the history up to at, which is read when it is written, or

	snapshot *sharedSnapshot       // the state, which moves the client to at
	reset    contracts.ResetReason // not empty: the snapshot replaces the client's state

	closes bool             // close the connection after this parcel
	why    *contracts.Error // reason of the close; nil is a normal end
}

// drop releases a parcel that will not be written or has been.
func (p *parcel) drop() {
	if p.snapshot != nil {
		p.snapshot.removeUser()
	}
}

var errClosed = errors.New("the server ended the connection")

// A roster lists the attached mailboxes for the waker. It is locked after Hub.mu.
// With it locked, only a connection's own locks may be taken.
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

// closeSockets closes every socket at once, also superseded ones that hang in a
// write.
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

// push queues a parcel. If more than Options.MaxPrivateBytes are unread, it closes
// the connection: private frames cannot be replayed, so a reset would lose them.
// The flush that wake starts blocks on Hub.mu until the update ends.
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

// closeMailbox queues the end of a mailbox's connection: the client still gets the
// entries up to the head, then a goodbye, then the close. A nil why is a normal
// end.
func (tx *tx) closeMailbox(b *mailbox, why *contracts.Error) {
	if b == nil {
		return
	}
	p := parcel{at: tx.head(), closes: true, why: why}
	turn := 0
	if why == errGoingAway {
		turn = tx.clients.toldToReturn
		tx.clients.toldToReturn++
	}
	if text, err := contracts.EncodeFrame(goodbyeFrame(why, turn)); err == nil && !b.bare {
		p.frame = b.form.AppendControl(nil, text)
	}
	tx.push(b, p)
}

// closeMailboxes queues the end of every attached connection, the holder's first.
func (tx *tx) closeMailboxes(why *contracts.Error) {
	closeAll := func(c *connection) {
		for _, sub := range c.subs {
			tx.closeMailbox(sub.box, why)
		}
	}
	holder := tx.clients.holder()
	if holder != nil {
		closeAll(holder)
	}
	for _, c := range tx.clients.conns {
		if c != holder {
			closeAll(c)
		}
	}
}

// When the process ends, it tells the first returnAtOnce clients of a session to
// return after one second. It delays the others so that returnRate clients return
// per second: the default limits of the next process admit no more.
const (
	returnAtOnce = 1000
	returnRate   = 500
)

// goodbyeFrame returns the last frame of a connection. turn is how many clients
// were told to return before this one.
func goodbyeFrame(why *contracts.Error, turn int) *contracts.Goodbye {
	bye := contracts.NewGoodbye(why)
	if bye.Resume {
		bye.RetryAfterMS += int64(max(0, turn-returnAtOnce+1) * 1000 / returnRate)
	}
	return bye
}

// pushFrame queues a control frame at the head. It does nothing if b is nil or the
// form has no control frames.
func (tx *tx) pushFrame(b *mailbox, f contracts.Frame) {
	if b == nil {
		return
	}
	text, err := contracts.EncodeFrame(f)
	if err != nil {
		tx.logger.Error("encode frame", "type", f.FrameType(), "err", err)
		return
	}
	if frame := b.form.AppendControl(nil, text); len(frame) > 0 {
		tx.push(b, parcel{at: tx.head(), frame: frame})
	}
}

func (tx *tx) pushEvent(b *mailbox, cursor uint64, ev contracts.Event) {
	tx.push(b, parcel{at: cursor, frame: b.form.AppendMessage(nil, cursor, encode(nil, ev).Body)})
}

// sendToSockets queues a control frame for every socket of the connection. Streams
// have no control frames; their clients see the events instead.
func (tx *tx) sendToSockets(c *connection, f contracts.Frame) {
	for _, sub := range c.subs {
		tx.pushFrame(sub.box, f)
	}
}

// sendPrivateEvent queues a private event at cursor for every subscription of the
// connection. A detached subscription keeps it for its next stream.
func (tx *tx) sendPrivateEvent(c *connection, cursor uint64, ev contracts.Event) {
	body := encode(nil, ev).Body
	for _, sub := range c.subs {
		if b := sub.box; b != nil {
			tx.push(b, parcel{at: cursor, frame: b.form.AppendMessage(nil, cursor, body)})
			continue
		}
		if len(sub.heldEvents) == maxHeldEvents {
			sub.heldEvents = slices.Delete(sub.heldEvents, 0, 1)
		}
		sub.heldEvents = append(sub.heldEvents, heldEvent{cursor, body})
	}
}

// wake starts a flush of b if the writer is idle.
func (h *Hub) wake(b *mailbox) {
	if b.writer.CompareAndSwap(writerIdle, writerRunning) {
		go h.flush(b) // ends when the client has caught up or a write fails; stop waits for it
	}
}

// stop prevents further flushes of b and waits until the last one has ended.
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

// flush writes until b has caught up. A flush that fails is the last one.
func (h *Hub) flush(b *mailbox) {
	for {
		err := h.writeOut(b)
		if err != nil {
			b.conn.Close(h.writeFailure(b, err))
		}
		if err != nil || !b.writer.CompareAndSwap(writerRunning, writerIdle) {
			b.writer.Store(writerStopped) // after a failure, or from writerStopping
			close(b.stopped)
			return
		}
		// An entry or a parcel may have been added after writeOut saw none and before
		// the state changed to idle. Its wake then found the flush running.
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
	if errors.Is(err, os.ErrDeadlineExceeded) { // any other error means that the client left
		h.metrics.SlowConsumers.Add(1)
	}
	return &contracts.Error{Code: contracts.CodeSlowConsumer, Message: "the connection does not take what is written"}
}

// behind reports whether b has something to write.
func (h *Hub) behind(b *mailbox) bool {
	if !b.needsSnapshot.Load() && b.cursor.Load() < h.journal.Visible() || b.heartbeatDue.Load() {
		return true
	}
	if b.privateCount.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, due := h.dueParcel(b)
	return due
}

// dueParcel returns b's first parcel if the cursor has reached it and its entries
// are visible.
func (h *Hub) dueParcel(b *mailbox) (parcel, bool) {
	if len(b.private) == 0 {
		return parcel{}, false
	}
	p := b.private[0]
	reached := b.cursor.Load() >= p.at || p.snapshot != nil
	return p, reached && p.at <= h.journal.Visible()
}

// writeOut writes until nothing is left. A panic ends the client's connection like
// a failed write.
func (h *Hub) writeOut(b *mailbox) (err error) {
	defer h.contain(b.conn, &err)
	buf := takeBuffer()
	defer giveBuffer(buf)
	for h.behind(b) {
		// A parcel is queued before the entries after it become visible. Entries
		// visible now therefore cannot overtake a parcel that is queued later.
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
			out := b.form.AppendHeartbeat((*buf)[:0], b.cursor.Load(), b.noHeartbeats.Load())
			*buf = out[:0]
			if len(out) == 0 {
				continue
			}
			if err := b.write(out); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes frames and adds the time that a client may take to read them.
func (b *mailbox) write(frames []byte) error {
	takes := int64(len(frames)) * int64(contracts.DefaultWriteTimeout) / contracts.WritePart
	b.readBy.Store(max(b.readBy.Load(), time.Now().UnixNano()) + takes)
	return b.conn.Write(frames)
}

// writeParcels writes the due parcels in one write. It returns the cursor of the
// first parcel that remains, which entries must not pass, or 0.
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
			b.private = nil // release the array: most clients get no parcels after the handshake
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
		if p.turns > 0 {
			if len(out) > 0 { // the client need not wait for the page to get the state
				if err = b.write(out); err != nil {
					return 0, err
				}
				out = out[:0]
			}
			if p.frame, err = h.openingPage(b, p); err != nil {
				return 0, err
			}
		}
		out = append(out, p.frame...)
		if p.closes {
			if len(out) > 0 {
				err = b.write(out)
			}
			if p.why == nil {
				return 0, errors.Join(err, errClosed)
			}
			return 0, errors.Join(err, p.why)
		}
	}
	if len(out) > 0 {
		err = b.write(out)
		*buf = out[:0]
	}
	if err == nil && jumped {
		b.needsSnapshot.Store(false) // only after the write: a failed one may have to be repeated
	}
	return until, err
}

// writeSnapshot appends a small snapshot to out. It writes out and then a large
// snapshot at once, without a copy: all clients of a form share the frame.
func (h *Hub) writeSnapshot(b *mailbox, out []byte, p parcel) ([]byte, error) {
	defer p.drop()
	frame, err := p.snapshot.frame(b.form, p.reset, journal.Class(b.skip.Load())&classPeople == 0)
	switch {
	case err != nil:
		return out, err
	case len(frame) <= maxCopied:
		out = append(out, frame...)
	default:
		if len(out) > 0 {
			err = b.write(out)
			out = out[:0]
		}
		if err == nil {
			err = b.write(frame)
		}
		if err != nil {
			return out, err
		}
	}
	b.cursor.Store(p.at)
	b.missedTransients = false
	h.readerMoved(b)
	if p.reset != "" {
		h.opts.Observer.Reset(p.reset)
	}
	return out, nil
}

// maxCopied is the size in bytes up to which a snapshot is copied, to be written
// together with other parcels.
const maxCopied = 16 << 10

// writeEntries writes one batch of entries after b's cursor, up to until.
func (h *Hub) writeEntries(b *mailbox, buf *[]byte, until uint64) error {
	cursor := b.cursor.Load()
	if cursor >= until || b.needsSnapshot.Load() {
		return nil
	}
	stored, leave := !h.journal.InWindow(cursor), func() {}
	if stored {
		leave = h.journal.TakeTurn()
	}
	frames, next, err := b.view.Read(buf, cursor, until, journal.Class(b.skip.Load()), 0)
	if !h.journal.InWindow(cursor) { // asked again: entries may have left the window before they were read
		b.missedTransients = true
	}
	if err != nil {
		leave()
	}
	if errors.Is(err, journal.ErrGap) {
		return h.resetClient(b, contracts.ResetLagged)
	}
	if err != nil { // unreadable entries are lost for every client
		h.logger.Error("read journal", "after", cursor, "err", err)
		return h.resetClient(b, contracts.ResetGap)
	}
	switch {
	case stored:
		err = b.writeInTurn(frames, leave)
	case len(frames) > 0:
		err = b.write(frames)
	}
	if err != nil {
		return err
	}
	b.cursor.Store(next)
	h.readerMoved(b)
	if b.missedTransients && h.journal.InWindow(next) {
		b.missedTransients = false
		if b.listedAt < next { // else the list that waits tells what was missed
			h.sendConnectionList(b)
		}
	}
	return nil
}

// turnWait is how long a turn lasts at most while the client is written to.
const turnWait = time.Millisecond

// writeInTurn writes frames, if there are any, and ends the turn. If the client took its
// last batch at once, its turn lasts until this batch is written. Replays then use only as
// many processors as there are turns, and the runtime polls the network on the others. A
// client that reads slowly leaves its turn before the write, so that other replays do not
// wait for it.
func (b *mailbox) writeInTurn(frames []byte, leave func()) error {
	defer runtime.Gosched() // so that many replays do not delay live followers
	defer leave()
	if len(frames) == 0 {
		return nil
	}
	if b.readsAtOnce {
		timer := time.AfterFunc(turnWait, leave)
		defer timer.Stop()
	} else {
		leave()
	}
	began := time.Now()
	err := b.write(frames)
	b.readsAtOnce = time.Since(began) < turnWait
	return err
}

// resetClient resets a client that cannot read on from its cursor (D5). The local
// client cannot be reset; it is disconnected, so that it does not miss events
// unnoticed.
func (h *Hub) resetClient(b *mailbox, why contracts.ResetReason) error {
	if b.bare {
		return &contracts.Error{Code: contracts.CodeSlowConsumer, Message: "the connection fell behind what is kept"}
	}
	h.update(func(tx *tx) {
		snap := tx.latestSnapshot()
		at := snap.at
		b.cursor.Store(at) // skip the entries up to at; private frames up to at are written before the reset
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

// buffers hold an encoded event before the journal copies it, parcels, and entries that
// are no longer in the window. Entries in the window are written from the journal's
// memory. Without the pool, a command that writes much would trigger about ten garbage
// collections a second.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

const maxPooled = 256 << 10 // bytes; a larger buffer is not kept

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		buffers.Put(b)
	}
}
