package overview

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A wire says how the events of a list are written.
type wire int

const (
	stream wire = iota // server-sent events, each an OverviewEvent or an InboxEvent
	socket             // frames, each a ListEnvelope
	wires
)

// A scope is the part of an overview that the principals of one scope see. Overview.mu
// guards it.
type scope struct {
	order   []*row
	changed []*row   // since the last batch
	removed []string // ids, since the last batch
	asked   []event  // since the last batch; at most maxBatchEvents+1

	questions int  // of all rows; at most maxScopeQuestions
	leftOut   bool // questions were left out because of a bound

	sessions, inbox list
}

// A list is one list of a scope, in the form of each wire.
type list [wires]broadcast

func newList() (l list) {
	for w := range l {
		l[w] = broadcast{moved: make(chan struct{}), first: 1}
	}
	return l
}

func (l *list) followers() (n int) {
	for w := range l {
		n += l[w].followers
	}
	return n
}

// A broadcast has the batches of a list for all its followers on one wire. Overview.mu
// guards it.
type broadcast struct {
	followers int
	moved     chan struct{} // closed and replaced when there is a batch
	recent    []batch
	first     uint64      // number of the first of recent; at least 1
	bytes     int         // of recent
	list      *sharedList // the last list since the newest batch; nil for none
}

// A sharedList is a list for all followers that are to get the same. The first of them
// encodes it.
type sharedList struct {
	key    listKey
	encode func() ([]byte, error)
}

// A listKey says which followers get the same list. Those with a credential for one
// session share none.
type listKey struct {
	limit           int
	credential, own contracts.Role // of the credential, and of the request
}

const (
	// every is the time between two batches, and so between two events about one
	// session.
	every = 100 * time.Millisecond

	// cursorEvery is the time between two looks at the cursors of open sessions.
	cursorEvery = 2 * time.Second

	// Bounds of the batches that are kept. A follower that has not read the oldest batch
	// gets a new list instead.
	maxBatches    = 64
	maxBatchBytes = 1 << 20

	maxBatchEvents = 1024 // if more sessions change at once, all followers get a new list
)

// An event is an event of a list before it is encoded.
type event struct {
	part     // without its end
	body any // *contracts.OverviewEvent or *contracts.InboxEvent
}

// A batch is the events of one round of publish, encoded once for all followers on one
// wire. It does not change.
type batch struct {
	text  []byte
	parts []part
}

// A part is the end of the event of one session in the text of a batch.
type part struct {
	id   string
	kind contracts.RequestType // of the question; empty in an overview
	end  int
}

// A follower is a stream with one list, or a socket with any. It has positions and no
// queue.
type follower struct {
	by   contracts.Caller
	conn hub.Conn
	wire wire

	positions []position // guarded by Overview.mu; changed by the goroutine that writes to conn
}

// A position is how far a follower has read a list.
type position struct {
	list  contracts.ListName
	limit int    // sessions of a list
	next  uint64 // number of the batch that it gets next; 0: it gets a list
}

// scope returns the part of a scope. The caller holds mu.
func (o *Overview) scope(name string) *scope {
	sc := o.scopes[name]
	if sc == nil {
		sc = &scope{sessions: newList(), inbox: newList()}
		o.scopes[name] = sc
	}
	return sc
}

// release forgets the part of a scope that has neither sessions nor followers. The
// caller holds mu.
func (o *Overview) release(name string) {
	if sc := o.scopes[name]; sc != nil && len(sc.order)+len(sc.removed)+sc.sessions.followers()+sc.inbox.followers() == 0 {
		delete(o.scopes, name)
	}
}

// after returns the index of the first row after a place.
func (sc *scope) after(p place) int {
	i, found := slices.BinarySearchFunc(sc.order, p, func(r *row, p place) int { return r.place.compare(p) })
	if found {
		i++
	}
	return i
}

func (sc *scope) insert(r *row) { sc.order = slices.Insert(sc.order, sc.after(r.place), r) }

func (sc *scope) remove(r *row) {
	i := sc.after(r.place)
	sc.order = slices.Delete(sc.order, i-1, i)
}

// publish collects the changes of all sessions and makes a batch of them for each scope,
// at most one in every.
func (o *Overview) publish() {
	cursors := time.NewTicker(cursorEvery)
	defer cursors.Stop()
	for {
		select {
		case <-o.wake:
		case <-cursors.C:
			o.advance()
		case <-o.ctx.Done():
			return
		}
		o.refresh()
		o.publishBatches()
		_ = sleep.For(o.ctx, every) // an error: the next round ends
	}
}

// advance updates the cursors in the summaries of open sessions that have followers. The
// events of a response change nothing else of a summary.
func (o *Overview) advance() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sc := range o.scopes {
		if sc.sessions.followers() == 0 {
			continue
		}
		for _, r := range sc.order {
			if r.hub == nil {
				continue
			}
			if cursor := r.hub.Cursor(); cursor > r.Cursor {
				r.Cursor = cursor
				o.touch(r)
			}
		}
	}
}

func (o *Overview) publishBatches() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, sc := range o.scopes {
		if len(sc.asked) > 0 {
			o.publishEvents(&sc.inbox, sc.asked, len(sc.asked) > maxBatchEvents)
			sc.asked = nil
		}
		if len(sc.changed)+len(sc.removed) > 0 {
			o.publishScope(sc)
			o.release(name)
		}
	}
}

// publishScope makes a batch of the changed sessions of a scope, if it has followers.
func (o *Overview) publishScope(sc *scope) {
	var events []event
	flood := len(sc.changed)+len(sc.removed) > maxBatchEvents
	wanted := sc.sessions.followers() > 0 && !flood
	for _, r := range sc.changed {
		r.queued = false
		if wanted && o.rows[r.key] == r {
			sum := o.summary(r)
			events = append(events, event{part{id: r.key.ID}, &contracts.OverviewEvent{Type: "session", Session: &sum}})
		}
	}
	for _, id := range sc.removed {
		if wanted {
			events = append(events, event{part{id: id}, &contracts.OverviewEvent{Type: "removed", SessionID: id}})
		}
	}
	sc.changed, sc.removed = nil, nil
	o.publishEvents(&sc.sessions, events, flood)
}

// publishEvents makes a batch of events for each wire with followers. With flood, all
// followers get a new list instead.
func (o *Overview) publishEvents(l *list, events []event, flood bool) {
	if flood {
		events = nil
	}
	for w := range l {
		if l[w].followers == 0 {
			continue
		}
		var b batch
		for _, ev := range events {
			text, err := o.appendEvent(b.text, wire(w), ev.body)
			if err != nil {
				o.opts.Log.Error("encode an event of a list", "session", ev.id, "err", err)
				continue
			}
			b.text, ev.end = text, len(text)
			b.parts = append(b.parts, ev.part)
		}
		l[w].publish(b, flood)
	}
}

// publish adds a batch. With flood, all followers get a new list instead.
func (b *broadcast) publish(next batch, flood bool) {
	b.list = nil
	b.recent = append(b.recent, next)
	b.bytes += len(next.text)
	for len(b.recent) > 0 && (flood || len(b.recent) > maxBatches || b.bytes > maxBatchBytes) {
		b.bytes -= len(b.recent[0].text)
		b.recent = slices.Delete(b.recent, 0, 1)
		b.first++
	}
	close(b.moved)
	b.moved = make(chan struct{})
}

// appendEvent appends an event in the form of a wire.
func (o *Overview) appendEvent(dst []byte, w wire, body any) ([]byte, error) {
	if w == stream {
		text, err := contracts.EncodeBody(body)
		if err != nil {
			return dst, err
		}
		return o.opts.Frame(dst, text), nil
	}
	var envelope contracts.ListEnvelope
	switch ev := body.(type) {
	case *contracts.OverviewEvent:
		envelope.Sessions = ev
	case *contracts.InboxEvent:
		envelope.Inbox = ev
	}
	text, err := contracts.EncodeFrame(&envelope)
	if err != nil {
		return dst, err
	}
	return o.opts.SocketForm.AppendControl(dst, text), nil
}

// sees reports whether a follower sees the event of a part.
func (f *follower) sees(p part) bool {
	id := f.by.Principal.SessionID
	return (id == "" || id == p.id) && (p.kind == "" || handshake.MayAnswer(f.by, p.kind) == nil)
}

// of returns the events that a follower sees.
func (b *batch) of(f *follower) (text []byte) {
	if !slices.ContainsFunc(b.parts, func(p part) bool { return !f.sees(p) }) {
		return b.text
	}
	begin := 0
	for _, p := range b.parts {
		if f.sees(p) {
			text = append(text, b.text[begin:p.end]...)
		}
		begin = p.end
	}
	return text
}

// Follow sends a list of the sessions that a principal may reach, with at most limit of
// them, and then their changes, until conn or ctx ends. It sends a new list to a client
// that does not read fast enough.
func (o *Overview) Follow(ctx context.Context, conn hub.Conn, p contracts.Principal, limit int) error {
	return o.follow(ctx, conn, contracts.Caller{Principal: p}, position{list: contracts.ListSessions, limit: limit})
}

// FollowInbox sends a list of the open questions that a client may answer, and then new
// questions and how questions ended, as Follow does.
func (o *Overview) FollowInbox(ctx context.Context, conn hub.Conn, by contracts.Caller) error {
	if err := handshake.MayAnswer(by, ""); err != nil {
		return err
	}
	return o.follow(ctx, conn, by, position{list: contracts.ListInbox})
}

// follow serves a stream with one list.
func (o *Overview) follow(ctx context.Context, conn hub.Conn, by contracts.Caller, p position) error {
	f := &follower{by: by, conn: conn}
	o.enter(f)
	defer o.leave(f)
	o.setPositions(f, []position{p})
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // ends with the connection, which is closed after follow returns
		_, err := conn.ReadFrame() // its error says that the client has gone
		stop(err)
	}()
	err := o.feed(ctx, f, nil)
	if err == hub.ErrExpired {
		conn.Close(hub.ErrExpired)
	}
	return err
}

// feed sends a follower its lists and the answers to its orders, until conn or ctx ends
// or an order ends it.
func (o *Overview) feed(ctx context.Context, f *follower, orders <-chan order) error {
	text := f.conn.Form().AppendOpening(nil)
	var end error
	heartbeat := time.NewTimer(o.untilHeartbeat(f))
	defer heartbeat.Stop()
	for {
		if !o.valid(f.by.Principal) {
			return hub.ErrExpired
		}
		more, moved, err := o.read(f)
		if err != nil {
			return err
		}
		var written <-chan struct{}                 // ready if there may be more to write
		for _, part := range [][]byte{text, more} { // not joined, because more may be large and shared
			if len(part) == 0 {
				continue
			}
			if err := f.conn.Write(part); err != nil {
				return err
			}
			text, written = nil, closed
			if f.wire == stream { // pings of a socket also show whether the client is alive
				heartbeat.Reset(o.untilHeartbeat(f))
			}
		}
		if end != nil {
			return end
		}
		select {
		case <-written:
		case <-moved[0]:
		case <-moved[1]:
		case <-heartbeat.C:
			if seen := f.conn.LastSeen(); f.wire == socket && time.Since(seen) > 3*o.opts.Heartbeat {
				return errSilent
			}
			text = f.conn.Form().AppendHeartbeat(nil, 0, f.wire == stream)
			heartbeat.Reset(o.untilHeartbeat(f))
		case next := <-orders:
			text, end = next.answer, next.end
			if next.follow {
				o.setPositions(f, next.positions)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// untilHeartbeat returns the time until the next heartbeat of a follower, or until its
// credential expires if that is sooner.
func (o *Overview) untilHeartbeat(f *follower) time.Duration {
	expires := f.by.Principal.Expires
	if expires.IsZero() {
		return o.opts.Heartbeat
	}
	return min(o.opts.Heartbeat, time.Until(expires))
}

var errSilent = &contracts.Error{Code: contracts.CodeTimeout, Message: "nothing was heard from the client"}

// closed is a channel that is always ready.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// join returns a text followed by another one. Either may be shared.
func join(text, more []byte) []byte {
	if len(text) == 0 {
		return more
	}
	return append(slices.Clip(text), more...)
}

// valid reports whether the credential of a principal is still valid.
func (o *Overview) valid(p contracts.Principal) bool {
	return !p.Expired(time.Now()) && o.opts.Alive(p)
}

// read returns what a follower is sent next. When one of moved is closed there is more.
func (o *Overview) read(f *follower) (text []byte, moved [2]<-chan struct{}, err error) {
	var lists []*sharedList
	o.mu.Lock()
	for i := range f.positions {
		p := &f.positions[i]
		b := o.broadcast(f, p.list)
		moved[i] = b.moved
		end := b.first + uint64(len(b.recent))
		if p.next < b.first {
			p.next = end
			lists = append(lists, o.shareList(b, f, p))
		}
		for size := len(text); p.next < end && len(text) == size; p.next++ {
			text = join(text, b.recent[p.next-b.first].of(f))
		}
	}
	o.mu.Unlock()
	for _, list := range lists {
		more, err := list.encode()
		if err != nil {
			return nil, moved, err
		}
		text = join(text, more)
	}
	return text, moved, nil
}

// shareList returns the list of a follower. The list may be older than the call, but no
// batch has been published since it was made. The caller holds mu.
func (o *Overview) shareList(b *broadcast, f *follower, p *position) *sharedList {
	key := listKey{p.limit, f.by.Principal.Role, f.by.Role}
	confined := f.by.Principal.SessionID != ""
	if b.list != nil && b.list.key == key && !confined {
		return b.list
	}
	list, err := o.list(f, p)
	shared := &sharedList{key, sync.OnceValues(func() ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return o.appendEvent(nil, f.wire, list)
	})}
	if !confined && !o.loading {
		b.list = shared
	}
	return shared
}

// list returns the event with which a list begins. The caller holds mu.
func (o *Overview) list(f *follower, p *position) (any, error) {
	if p.list == contracts.ListInbox {
		return &contracts.InboxEvent{Type: "questions", Inbox: o.inbox(f.by)}, nil
	}
	page, err := o.page(f.by.Principal, contracts.OverviewQuery{Limit: p.limit})
	return &contracts.OverviewEvent{Type: "sessions", Overview: page}, err
}

// broadcast returns what a follower reads of a list. The caller holds mu.
func (o *Overview) broadcast(f *follower, name contracts.ListName) *broadcast {
	sc := o.scope(f.by.Principal.Scope)
	if name == contracts.ListInbox {
		return &sc.inbox[f.wire]
	}
	return &sc.sessions[f.wire]
}

func (o *Overview) enter(f *follower) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.followers[f] = true
}

func (o *Overview) leave(f *follower) {
	o.setPositions(f, nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.followers, f)
}

// setPositions sets which lists a follower reads. It goes on where it is in those that it
// has read with the same limit.
func (o *Overview) setPositions(f *follower, next []position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range next {
		o.broadcast(f, next[i].list).followers++
		for _, p := range f.positions {
			if p.list == next[i].list && p.limit == next[i].limit {
				next[i].next = p.next
			}
		}
	}
	for _, p := range f.positions {
		b := o.broadcast(f, p.list)
		if b.followers--; b.followers == 0 {
			b.first += uint64(len(b.recent))
			b.recent, b.bytes, b.list = nil, 0, nil
		}
	}
	f.positions = next
	o.release(f.by.Principal.Scope)
}

// Evict ends the connections of a principal whose credential was revoked.
func (o *Overview) Evict(principalID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.followers {
		if f.by.Principal.ID == principalID {
			f.conn.Close(hub.ErrExpired)
		}
	}
}
