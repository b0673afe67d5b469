package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A scope is the part of an overview that the principals of one scope see. Overview.mu
// guards it.
type scope struct {
	order   []*row
	changed []*row       // since the last batch
	removed []string     // ids, since the last batch
	asked   []inboxEvent // since the last batch; at most maxBatchEvents+1

	questions int  // of all rows; at most maxScopeQuestions
	leftOut   bool // questions were left out because of a bound

	sessions broadcast
	inbox    broadcast
}

// A broadcast has the batches of one stream for all its followers. Overview.mu guards it.
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

func newBroadcast() broadcast { return broadcast{moved: make(chan struct{}), first: 1} }

const (
	// overviewEvery is the time between two batches, and so between two events about one
	// session.
	overviewEvery = 100 * time.Millisecond

	// Bounds of the batches that are kept. A follower that has not read the oldest batch
	// gets a new list instead.
	maxBatches    = 64
	maxBatchBytes = 1 << 20

	maxBatchEvents = 1024 // if more sessions change at once, all followers get a new list
)

// A batch is the events of all sessions that changed in one round of publish, encoded
// once for all followers. It does not change.
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

// A follower is one stream of an overview or of an inbox. It has a position and no queue.
type follower struct {
	by    contracts.Caller
	conn  Conn
	inbox bool
	limit int    // sessions of a list
	next  uint64 // number of the batch that it gets next; 0: it gets a list
}

// scope returns the part of a scope. The caller holds mu.
func (o *Overview) scope(name string) *scope {
	sc := o.scopes[name]
	if sc == nil {
		sc = &scope{sessions: newBroadcast(), inbox: newBroadcast()}
		o.scopes[name] = sc
	}
	return sc
}

// release forgets the part of a scope that has neither sessions nor followers. The
// caller holds mu.
func (o *Overview) release(name string) {
	if sc := o.scopes[name]; len(sc.order)+len(sc.removed)+sc.sessions.followers+sc.inbox.followers == 0 {
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
// at most one in overviewEvery.
func (o *Overview) publish() {
	for {
		select {
		case <-o.wake:
		case <-o.ctx.Done():
			return
		}
		o.refresh()
		o.publishBatches()
		wait(overviewEvery, nil, o.ctx.Done())
	}
}

func (o *Overview) publishBatches() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, sc := range o.scopes {
		o.publishInbox(sc)
		if len(sc.changed)+len(sc.removed) > 0 {
			o.publishScope(sc)
			o.release(name)
		}
	}
}

// publishScope makes a batch for the followers of a scope, if there are any.
func (o *Overview) publishScope(sc *scope) {
	var b batch
	flood := len(sc.changed)+len(sc.removed) > maxBatchEvents
	wanted := sc.sessions.followers > 0 && !flood
	for _, r := range sc.changed {
		r.queued = false
		if wanted && o.rows[r.key] == r {
			sum := o.summary(r)
			o.appendEvent(&b, part{id: r.key.ID}, &contracts.OverviewEvent{Type: "session", Session: &sum})
		}
	}
	for _, id := range sc.removed {
		if wanted {
			o.appendEvent(&b, part{id: id}, &contracts.OverviewEvent{Type: "removed", SessionID: id})
		}
	}
	sc.changed, sc.removed = nil, nil
	sc.sessions.publish(b, flood)
}

// publish adds a batch. With flood, all followers get a new list instead.
func (b *broadcast) publish(next batch, flood bool) {
	if b.followers == 0 {
		return
	}
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

func (o *Overview) appendEvent(b *batch, p part, ev any) {
	text, err := contracts.EncodeBody(ev)
	if err != nil {
		o.opts.Log.Error("encode an event of the overview", "session", p.id, "err", err)
		return
	}
	b.text = o.opts.Frame(b.text, text)
	p.end = len(b.text)
	b.parts = append(b.parts, p)
}

// sees reports whether a follower sees the events of a part.
func (f *follower) sees(p part) bool {
	id := f.by.Principal.SessionID
	return (id == "" || id == p.id) && (!f.inbox || answersQuestions(f.by, p.kind) == nil)
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
func (o *Overview) Follow(ctx context.Context, conn Conn, p contracts.Principal, limit int) error {
	return o.follow(ctx, &follower{by: contracts.Caller{Principal: p}, conn: conn, limit: limit})
}

func (o *Overview) follow(ctx context.Context, f *follower) error {
	conn, p := f.conn, f.by.Principal
	o.enter(f)
	defer o.leave(f)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // ends with the connection, which is closed after Follow returns
		_, err := conn.ReadFrame() // its error says that the client has gone
		stop(err)
	}()
	opening := conn.Form().AppendOpening(nil)
	var text []byte
	heartbeat := time.NewTimer(o.untilHeartbeat(p))
	defer heartbeat.Stop()
	for {
		if p.Expired(time.Now()) || !o.opts.Alive(p) {
			conn.Close(errExpired)
			return errExpired
		}
		more, moved, err := o.read(f)
		if err != nil {
			return err
		}
		if opening != nil {
			if err := conn.Write(opening); err != nil {
				return err
			}
			opening = nil
		}
		if len(more) > 0 {
			text = more // shared with other followers
		}
		if len(text) > 0 {
			if err := conn.Write(text); err != nil {
				return err
			}
			text = nil
			heartbeat.Reset(o.untilHeartbeat(p))
			continue
		}
		select {
		case <-moved:
		case <-heartbeat.C:
			text = conn.Form().AppendHeartbeat(nil, 0, true)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// untilHeartbeat returns the time until the next heartbeat, or until the credential of a
// principal expires if that is sooner.
func (o *Overview) untilHeartbeat(p contracts.Principal) time.Duration {
	if p.Expires.IsZero() {
		return o.opts.Heartbeat
	}
	return min(o.opts.Heartbeat, time.Until(p.Expires))
}

// read returns what a follower is sent next. If that is nothing, moved is closed when
// there is more.
func (o *Overview) read(f *follower) (text []byte, moved <-chan struct{}, err error) {
	o.mu.Lock()
	b := f.of(o.scope(f.by.Principal.Scope))
	moved = b.moved
	end := b.first + uint64(len(b.recent))
	if f.next >= b.first {
		defer o.mu.Unlock()
		for ; f.next < end && len(text) == 0; f.next++ {
			text = b.recent[f.next-b.first].of(f)
		}
		return text, moved, nil
	}
	f.next = end
	list := o.shareList(b, f)
	o.mu.Unlock()
	text, err = list.encode()
	return text, moved, err
}

// shareList returns the list of a follower. The list may be older than the call, but no
// batch has been published since it was made. The caller holds mu.
func (o *Overview) shareList(b *broadcast, f *follower) *sharedList {
	key := listKey{f.limit, f.by.Principal.Role, f.by.Role}
	confined := f.by.Principal.SessionID != ""
	if b.list != nil && b.list.key == key && !confined {
		return b.list
	}
	list, err := o.list(f)
	shared := &sharedList{key, sync.OnceValues(func() ([]byte, error) {
		if err != nil {
			return nil, err
		}
		text, err := contracts.EncodeBody(list)
		return o.opts.Frame(nil, text), err
	})}
	if !confined && !o.loading {
		b.list = shared
	}
	return shared
}

// list returns the event with which the stream of a follower begins. The caller holds mu.
func (o *Overview) list(f *follower) (any, error) {
	if f.inbox {
		return &contracts.InboxEvent{Type: "questions", Inbox: o.inbox(f.by)}, nil
	}
	page, err := o.page(f.by.Principal, contracts.OverviewQuery{Limit: f.limit})
	return &contracts.OverviewEvent{Type: "sessions", Overview: page}, err
}

// of returns the broadcast of a scope that a follower reads.
func (f *follower) of(sc *scope) *broadcast {
	if f.inbox {
		return &sc.inbox
	}
	return &sc.sessions
}

func (o *Overview) enter(f *follower) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.followers[f] = true
	f.of(o.scope(f.by.Principal.Scope)).followers++
}

func (o *Overview) leave(f *follower) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.followers, f)
	b := f.of(o.scope(f.by.Principal.Scope))
	if b.followers--; b.followers == 0 {
		b.first += uint64(len(b.recent))
		b.recent, b.bytes, b.list = nil, 0, nil
	}
	o.release(f.by.Principal.Scope)
}

// Evict ends the streams of a principal whose credential was revoked.
func (o *Overview) Evict(principalID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.followers {
		if f.by.Principal.ID == principalID {
			f.conn.Close(errExpired)
		}
	}
}
