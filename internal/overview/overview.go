package overview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// A Store keeps what an overview shows of a session beside the session's journal.
// The overview does not call it twice at once for one session, except for Load.
type Store interface {
	// Keys yields the stored sessions.
	Keys() iter.Seq[hub.Key]

	// Load returns what Save stored, or nil if it stored nothing, and when the session
	// was last written to. If the session is not stored, the error wraps fs.ErrNotExist.
	Load(key hub.Key) (text []byte, written time.Time, err error)

	// Save replaces what is stored. With durable, it is synced before Save returns. If
	// the session is not stored, the error wraps fs.ErrNotExist.
	Save(key hub.Key, text []byte, durable bool) error

	// Remove removes the session with its journal.
	Remove(key hub.Key) error
}

// Options configures an overview. The first four fields are required.
type Options struct {
	Store      Store
	Frame      func(dst, text []byte) []byte // appends the JSON of an event in the form of streams
	SocketForm contracts.Form                // of all sockets

	// Find opens a session of which a principal answers a question on a socket.
	Find func(ctx context.Context, id string, p contracts.Principal) (*hub.Hub, error)

	Max       int           // 50,000 sessions; above it those at rest that changed longest ago are not listed
	Undo      time.Duration // 10 min from the deletion of a session to its removal
	Heartbeat time.Duration // 15 s; a follower that was sent nothing for so long gets a heartbeat

	// Notify is told of open questions, those of earlier processes included, and of
	// questions that end. It must return at once and must not call the overview, whose
	// lock is held. Nil notifies nobody.
	Notify func(scope string, ev contracts.InboxEvent)

	Strict bool // sockets refuse unknown keys

	// Alive reports whether a principal's credential is still valid. Nil means always
	// valid.
	Alive func(contracts.Principal) bool

	Log *slog.Logger // default discards
}

// An Overview lists the sessions of a process: those that are open and those that are
// stored. It knows the sessions at rest by their stored summaries and never opens a
// journal. It is safe for concurrent use.
//
// One goroutine collects the changes of all sessions and encodes each change once for
// all followers; see publish.
type Overview struct {
	opts  Options
	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	wg    sync.WaitGroup
	wake  chan struct{} // 1-buffered; a token means that there is something to publish
	hurry chan struct{} // 1-buffered; a token means that asked is not empty

	changedMu sync.Mutex // may be taken while Hub.mu is held; no lock is taken under it
	changed   map[hub.Key]bool

	saving sync.Mutex // held while summaries are written or removed; taken before mu

	mu        sync.Mutex
	rows      map[hub.Key]*row
	scopes    map[string]*scope
	opening   map[hub.Key]bool // sessions that are being opened
	unsaved   map[hub.Key]bool // rows to be saved
	asked     map[hub.Key]bool // rows to be saved at once, because their questions changed
	deleted   map[hub.Key]bool // rows to be removed
	followers map[*follower]bool
	revision  uint64
	loading   bool
	truncated bool // rows were left out because of Max
	questions int  // of all rows; at most maxQuestions
	failing   bool // the last save failed
}

// A row is one session of an overview.
type row struct {
	key      hub.Key
	hub      *hub.Hub // nil if the session is not open
	record            // what is stored of it
	place    place
	lower    string // title in lower case, for searches
	revision uint64
	queued   bool // in scope.changed
}

// A record is what is stored of a session. Opening the session repairs all of it but
// the marks.
type record struct {
	hub.Record       // at most maxStored of its questions are stored
	Marks      marks `json:"marks,omitzero"`
}

// marks are what clients set. They are on disk before the client gets its answer.
type marks struct {
	Title    string    `json:"title,omitempty"`
	Archived bool      `json:"archived,omitempty"`
	Deleted  time.Time `json:"deleted,omitzero"`
}

// New returns an overview. It looks for the stored sessions in the background.
func New(opts Options) (*Overview, error) {
	if opts.Store == nil || opts.Frame == nil || opts.SocketForm == nil || opts.Find == nil {
		return nil, errors.New("overview: Store, Frame, SocketForm and Find are required")
	}
	opts.Max = positive(opts.Max, 50_000)
	opts.Undo = positive(opts.Undo, 10*time.Minute)
	opts.Heartbeat = positive(opts.Heartbeat, contracts.DefaultHeartbeatInterval)
	if opts.Alive == nil {
		opts.Alive = func(contracts.Principal) bool { return true }
	}
	if opts.Notify == nil {
		opts.Notify = func(string, contracts.InboxEvent) {}
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	o := &Overview{
		opts: opts, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		changed: map[hub.Key]bool{}, loading: true,
		rows: map[hub.Key]*row{}, scopes: map[string]*scope{}, opening: map[hub.Key]bool{},
		unsaved: map[hub.Key]bool{}, asked: map[hub.Key]bool{}, deleted: map[hub.Key]bool{}, followers: map[*follower]bool{},
		revision: uint64(time.Now().UnixMilli()) << 10, // above those of earlier processes, and below 2^53 for JavaScript
	}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.wg.Go(o.load)    // ends with ctx
	o.wg.Go(o.publish) // ends with ctx
	o.wg.Go(o.save)    // ends with ctx
	return o, nil
}

// Close ends the overview and saves what is not saved. Call it after the sessions and
// the followers have ended.
func (o *Overview) Close() {
	o.stop()
	o.wg.Wait()
	o.saveRows(&o.unsaved)
}

// load adds the stored sessions.
func (o *Overview) load() {
	for key := range o.opts.Store.Keys() {
		if o.ctx.Err() != nil {
			return
		}
		_, _ = o.find(key) // an error says that it was removed meanwhile
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loading = false
}

// find returns the row of a session that is known or stored, else hub.ErrUnknownSession.
func (o *Overview) find(key hub.Key) (*row, error) {
	o.mu.Lock()
	r := o.rows[key]
	o.mu.Unlock()
	if r != nil {
		return r, nil
	}
	text, written, err := o.opts.Store.Load(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hub.ErrUnknownSession
	}
	var stored record
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil { // opening the session repairs it
		o.opts.Log.Warn("a stored summary cannot be read", "session", key.ID, "err", err)
		stored = record{}
	}
	stored.Digest.At = cmp.Or(stored.Digest.At, written)
	o.mu.Lock()
	defer o.mu.Unlock()
	if r = o.rows[key]; r == nil {
		r = o.add(key, stored)
	}
	return r, nil
}

// add adds a row. The caller holds mu.
func (o *Overview) add(key hub.Key, rec record) *row {
	if len(o.rows) >= o.opts.Max {
		o.evict()
	}
	r := &row{key: key, record: rec}
	o.limitQuestions(key.Scope, &r.record, 0)
	r.place, r.lower = r.newPlace(), strings.ToLower(r.title())
	o.rows[key] = r
	o.scope(key.Scope).insert(r)
	if !r.Marks.Deleted.IsZero() {
		o.deleted[key] = true
	}
	o.compareQuestions(r, nil, nil)
	o.touch(r)
	return r
}

// limitQuestions leaves out questions of a row above maxQuestions and maxScopeQuestions.
// before is how many the row has had. The caller holds mu.
func (o *Overview) limitQuestions(scope string, rec *record, before int) {
	sc := o.scope(scope)
	room := min(maxQuestions-o.questions, maxScopeQuestions-sc.questions) + before
	if room = max(room, 0); len(rec.Questions) > room {
		rec.Questions, sc.leftOut = rec.Questions[:room], true
	}
}

// evict drops one of 64 rows: those at rest that changed longest ago. It keeps what is
// still to be saved or removed. The caller holds mu.
func (o *Overview) evict() {
	var atRest []*row
	for key, r := range o.rows {
		if r.hub == nil && !o.opening[key] && !o.unsaved[key] && !o.deleted[key] {
			atRest = append(atRest, r)
		}
	}
	slices.SortFunc(atRest, func(a, b *row) int { return cmp.Compare(a.place.at, b.place.at) })
	for _, r := range atRest[:min(len(atRest), o.opts.Max/64+1)] {
		o.drop(r)
	}
	o.truncated = true
}

// drop removes a row without telling followers. The caller holds mu.
func (o *Overview) drop(r *row) {
	before := r.questions()
	r.Questions = nil
	o.compareQuestions(r, before, nil)
	delete(o.rows, r.key)
	delete(o.unsaved, r.key)
	delete(o.asked, r.key)
	delete(o.deleted, r.key)
	o.scope(r.key.Scope).remove(r)
	o.release(r.key.Scope)
}

// gone removes the row of a session that is not stored any more. The caller holds mu.
func (o *Overview) gone(r *row) {
	sc := o.scope(r.key.Scope)
	sc.removed = append(sc.removed, r.key.ID)
	o.drop(r)
	signal(o.wake)
}

// change changes a row with f and moves it in the order. ended says how questions ended.
// The caller holds mu.
func (o *Overview) change(r *row, f func(), ended ...contracts.InboxEnding) {
	before, pending := r.questions(), r.Pending
	f()
	r.lower = strings.ToLower(r.title())
	o.compareQuestions(r, before, ended)
	if r.Pending != pending || !slices.Equal(r.questions(), before) {
		o.asked[r.key] = true
		signal(o.hurry)
	}
	if now := r.newPlace(); now != r.place {
		sc := o.scope(r.key.Scope)
		sc.remove(r)
		r.place = now
		sc.insert(r)
	}
	o.unsaved[r.key] = true
	o.touch(r)
}

// touch gives a row a new revision and queues it for followers. The caller holds mu.
func (o *Overview) touch(r *row) {
	o.revision++
	r.revision = o.revision
	if !r.queued {
		r.queued = true
		sc := o.scope(r.key.Scope)
		sc.changed = append(sc.changed, r)
		signal(o.wake)
	}
}

// Changed says that the summary of an open session has changed. It is for
// [Options.Changed].
func (o *Overview) Changed(key hub.Key) {
	o.changedMu.Lock()
	o.changed[key] = true
	o.changedMu.Unlock()
	signal(o.wake)
}

// refresh takes the records of the open sessions that have changed.
func (o *Overview) refresh() {
	o.changedMu.Lock()
	keys := o.changed
	o.changed = map[hub.Key]bool{}
	o.changedMu.Unlock()
	for key := range keys {
		o.mu.Lock()
		r := o.rows[key]
		var h *hub.Hub
		if r != nil {
			h = r.hub
		}
		o.mu.Unlock()
		if h != nil { // else the session is being opened
			o.take(r, h)
		}
	}
}

// take takes the record of an open session. It is called without mu, because it waits
// for the session.
func (o *Overview) take(r *row, h *hub.Hub) {
	rec, ended := h.Record()
	now := record{Record: rec}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.hub != h {
		return
	}
	now.Marks, now.Digest.At = r.Marks, cmp.Or(now.Digest.At, r.Digest.At) // zero: nothing has happened in the session
	o.limitQuestions(r.key.Scope, &now, len(r.questions()))
	o.change(r, func() { r.record = now }, ended...)
}

// Open opens a session with open and lists it as open until it has ended. It refuses a
// session that was deleted. Calls for one session must not overlap.
func (o *Overview) Open(key hub.Key, open func() (*hub.Hub, error)) (*hub.Hub, error) {
	_, _ = o.find(key) // an error says that it is new
	if err := o.beginOpen(key); err != nil {
		return nil, err
	}
	h, err := open()
	if refusal := o.endOpen(key, h, err); refusal != nil {
		if err := h.Suspend(context.Background()); err != nil {
			o.opts.Log.Error("end a deleted session", "session", key.ID, "err", err)
		}
		return nil, refusal
	}
	return h, err
}

func (o *Overview) beginOpen(key hub.Key) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deleted[key] {
		return errDeleted
	}
	o.opening[key] = true
	return nil
}

// endOpen ends what beginOpen began. It returns an error if the session was deleted
// meanwhile.
func (o *Overview) endOpen(key hub.Key, h *hub.Hub, failed error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.opening, key)
	r := o.rows[key]
	switch {
	case failed != nil:
		if r != nil && errors.Is(failed, hub.ErrUnknownSession) {
			o.gone(r)
		}
		return nil
	case o.deleted[key]:
		return errDeleted
	case r == nil:
		r = o.add(key, record{})
	}
	o.change(r, func() { r.hub, r.Digest.At = h, cmp.Or(r.Digest.At, time.Now()) })
	o.Changed(key)
	o.wg.Go(func() { // ends with the session
		<-h.Closed()
		o.take(r, h)
		o.mu.Lock()
		defer o.mu.Unlock()
		if r.hub == h { // else it is open again
			o.change(r, func() { r.hub = nil })
		}
	})
	return nil
}

// errDeleted refuses a session that was deleted and is not removed yet.
var errDeleted = &contracts.Error{
	Code: contracts.CodeStaleSession, Message: "the session was deleted; it can be restored until it is removed",
}

// positive returns n if it is positive, else def.
func positive[N int | time.Duration](n, def N) N { return cmp.Or(max(n, 0), def) }

// signal puts a token into a 1-buffered channel unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// timestamp returns a time as the wire has it.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
