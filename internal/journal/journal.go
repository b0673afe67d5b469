package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A Journal is one session's ordered, bounded, replayable list of entries (D1). The
// newest entries are in memory, in the window, as bytes ready to be sent; the
// others are in its store. Followers read it through a [View], each at its own
// cursor.
//
// Append is called by one goroutine at a time, and so is Reveal. All other methods
// may be called at any time.
type Journal struct {
	// Static after New.
	store Store
	opts  Options

	// Updated in this order: slots, head, visible.
	head    atomic.Uint64 // newest entry
	visible atomic.Uint64 // newest entry that followers may see
	oldest  atomic.Uint64 // oldest entry in memory; head+1 if there is none

	merged  atomic.Uint64 // entries read as part of another's frame
	wasRead atomic.Bool   // the window was read since [Shared] last looked

	mu            sync.Mutex    // guards the writing side of the logs, and forms
	bodies        log           // the window
	forms         []*formFrames // active forms; a few
	reportedBytes int           // bytes of the window that opts.Shared knows of
}

// Options configure a journal. The zero value is ready to use.
type Options struct {
	// WindowBytes bounds the memory of bodies, frames of active forms and their
	// index. Zero means 8 MiB. Above it, the oldest entries leave the window; the
	// newest entry always stays. Memory is freed by the chunk, so up to 64 KiB more
	// are used for the bodies and for each form. Without open views, the limit is
	// 256 KiB.
	WindowBytes int

	// Shared holds limits shared with other journals of the process; nil means
	// limits of this journal alone.
	Shared *Shared

	// WindowEntries bounds the number of entries in memory. Zero means 65,536.
	WindowEntries int

	// After is the cursor after which an empty store begins, for a session restored
	// from elsewhere: its first entry gets After+1. If the store has entries, New
	// fails unless the last one is at After or later.
	After uint64

	// Deferred keeps appended entries invisible until Reveal. It is for group
	// commit: the owner syncs the store, then reveals.
	Deferred bool

	// Wake, if not nil, is called once after entries became visible. It must
	// not block and must not call the journal's Append or Reveal.
	Wake func()
}

const (
	defaultWindowBytes   = 8 << 20
	unfollowedBytes      = 256 << 10
	defaultWindowEntries = 1 << 16

	// warmEntries is how many entries New reads into the window. Followers that
	// reconnect after a restart are rarely further behind; these read from the
	// store.
	warmEntries = 1024
)

// New returns a journal of the entries in store, with the newest of them in the
// window. The caller still owns the store and closes it after the journal.
func New(store Store, opts Options) (*Journal, error) {
	opts.WindowBytes = cmp.Or(opts.WindowBytes, defaultWindowBytes)
	opts.WindowEntries = cmp.Or(opts.WindowEntries, defaultWindowEntries)
	if opts.WindowBytes < 0 || opts.WindowEntries < 0 {
		return nil, fmt.Errorf("journal window of %d bytes and %d entries", opts.WindowBytes, opts.WindowEntries)
	}
	if opts.Shared == nil {
		opts.Shared = NewShared(SharedOptions{})
	}
	j := &Journal{store: store, opts: opts}
	first, last := store.Bounds()
	switch {
	case last == 0:
		last = opts.After
		first = last + 1
	case last < opts.After:
		return nil, fmt.Errorf("journal ends at cursor %d and cannot continue from %d", last, opts.After)
	}
	j.head.Store(last)
	j.visible.Store(last)
	if err := j.warm(first, last); err != nil {
		return nil, fmt.Errorf("warm journal window: %w", err)
	}
	opts.Shared.join(j)
	j.reportSize()
	return j, nil
}

// Close releases the memory of the window. Do not follow the journal or append to
// it afterwards.
func (j *Journal) Close() {
	j.opts.Shared.leave(j)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.opts.Shared.used.Add(int64(-j.reportedBytes))
	j.reportedBytes = 0
}

// warm fills the window from the store. The window has no holes and ends at last,
// so it starts again after skipped cursors.
func (j *Journal) warm(first, last uint64) error {
	count := uint64(min(j.opts.WindowEntries, warmEntries))
	from := first
	if last >= count {
		from = max(first, last-count+1)
	}
	j.bodies.start(from)
	if from <= last {
		err := j.store.Read(from-1, func(e Entry) bool {
			if e.Cursor != j.bodies.next {
				j.bodies.start(e.Cursor)
			}
			j.insert(&e)
			return true
		})
		if err != nil && !errors.Is(err, ErrGap) { // ErrGap: the cursor was never used
			return err
		}
	}
	if j.bodies.next != last+1 {
		j.bodies.start(last + 1)
	}
	j.oldest.Store(j.bodies.first)
	return nil
}

// Epoch returns the epoch of the store. Cursors of different epochs are not
// comparable.
func (j *Journal) Epoch() string { return j.store.Epoch() }

// EpochStart returns the cursor after which the epoch began; see
// [Store.EpochStart].
func (j *Journal) EpochStart() uint64 { return j.store.EpochStart() }

// Head returns the newest cursor that was assigned.
func (j *Journal) Head() uint64 { return j.head.Load() }

// Visible returns the newest cursor that followers may see.
func (j *Journal) Visible() uint64 { return j.visible.Load() }

// First returns the oldest cursor that can be read, from memory or from the store;
// Head()+1 if there is none.
func (j *Journal) First() uint64 {
	oldest := j.oldest.Load()
	if first, last := j.store.Bounds(); last > 0 {
		return min(first, oldest)
	}
	return oldest
}

// InWindow reports whether the entry after the cursor after is in memory, or is the
// next one to be appended.
func (j *Journal) InWindow(after uint64) bool { return after+1 >= j.oldest.Load() }

// Merged returns how many entries have been read as part of another's frame since
// New (D5), counted for each follower.
func (j *Journal) Merged() uint64 { return j.merged.Load() }

// TakeTurn waits until one of the turns that all journals of the process share is free.
// A follower takes a turn before it reads from the store. It may keep the turn while it
// passes on what it has read, but must not wait for a client that reads slowly. leave
// ends the turn; later calls do nothing. Followers get their turns in the order in
// which they asked.
func (j *Journal) TakeTurn() (leave func()) {
	turns := j.opts.Shared.turns
	turns <- struct{}{}
	return sync.OnceFunc(func() { <-turns })
}

// Append assigns the next cursors to entries, writes them to the store and then
// makes them readable (D4). It returns the last cursor. After an error no cursor
// was used and no follower sees an entry.
//
// It sets the Cursor fields of entries and copies the bodies, which the caller may
// reuse. Its cost does not depend on the number of followers, and it makes no
// system call beside those of the store.
func (j *Journal) Append(entries ...Entry) (last uint64, err error) {
	last = j.head.Load()
	if len(entries) == 0 {
		return last, nil
	}
	for i := range entries {
		entries[i].Cursor = last + 1 + uint64(i)
	}
	if err := j.storeEntries(entries); err != nil {
		return last, fmt.Errorf("append after cursor %d: %w", last, err)
	}
	j.mu.Lock()
	for i := range entries {
		j.insert(&entries[i])
	}
	j.reportSize()
	j.mu.Unlock()
	j.opts.Shared.makeRoom()

	last += uint64(len(entries))
	j.head.Store(last)
	if !j.opts.Deferred {
		j.makeVisible(last)
	}
	return last, nil
}

// storeEntries writes entries to the store, with an empty note for each transient
// one.
func (j *Journal) storeEntries(entries []Entry) error {
	if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Transient }) {
		return j.store.Append(entries)
	}
	kept := slices.Clone(entries)
	for i := range kept {
		if e := &kept[i]; e.Transient {
			*e = Entry{Cursor: e.Cursor, Time: e.Time, Kind: Note}
		}
	}
	return j.store.Append(kept)
}

// Reveal makes the entries up to upTo visible, or up to the head if that is less.
// Visible entries stay visible.
func (j *Journal) Reveal(upTo uint64) {
	if upTo = min(upTo, j.head.Load()); upTo > j.visible.Load() {
		j.makeVisible(upTo)
	}
}

func (j *Journal) makeVisible(upTo uint64) {
	j.visible.Store(upTo)
	if j.opts.Wake != nil {
		j.opts.Wake()
	}
}

// insert adds e to the window, with a frame for each active form, and evicts older
// entries if needed.
func (j *Journal) insert(e *Entry) {
	for j.bodies.count() >= j.opts.WindowEntries {
		j.evict()
	}
	open, inner := e.variants()
	j.bodies.insert(open, inner, func(e *Entry) []byte { return append(j.bodies.room(len(e.Body)), e.Body...) })
	for _, f := range j.forms {
		f.log.insert(open, inner, f.frame)
	}
	j.evictTo(j.windowLimit())
}

// windowLimit returns the limit of the window in bytes.
func (j *Journal) windowLimit() int {
	if len(j.forms) == 0 {
		return min(j.opts.WindowBytes, unfollowedBytes)
	}
	return j.opts.WindowBytes
}

// windowBytes returns the size of the window in bytes. The caller is the writer or
// holds mu.
func (j *Journal) windowBytes() int {
	size := j.bodies.bytes
	for _, f := range j.forms {
		size += f.log.bytes
	}
	return size
}

// evictTo removes the oldest entries until the window has at most bound bytes.
func (j *Journal) evictTo(bound int) {
	for size := j.windowBytes(); size > bound && j.bodies.count() > 1; {
		size -= j.evict()
	}
}

func (j *Journal) reportSize() {
	size := j.windowBytes()
	j.opts.Shared.used.Add(int64(size - j.reportedBytes))
	j.reportedBytes = size
}

// shorten evicts entries until the window has at most windowFloor bytes, or with
// half the half of its bytes if that is more.
func (j *Journal) shorten(half bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	bound := windowFloor
	if half {
		bound = max(bound, j.reportedBytes/2)
	}
	j.evictTo(bound)
	j.bodies.fit()
	for _, f := range j.forms {
		f.log.fit()
	}
	j.reportSize()
}

// evict removes the oldest entry of the window and returns its bytes. It moves
// oldest first, so that a follower that misses a slot finds that its entry is older
// than the window.
func (j *Journal) evict() (freed int) {
	cursor := j.bodies.first
	j.oldest.Store(cursor + 1)
	freed = j.bodies.drop(cursor)
	for _, f := range j.forms {
		freed += f.log.drop(cursor)
	}
	return freed
}

// A formFrames holds the frames of one active form.
type formFrames struct {
	form Form
	refs int // open views
	log  log // begins where the form became active
}

// frameOverhead is about how many bytes a form adds to a body.
const frameOverhead = 128

// frame returns the frame of an entry, nil if the entry is hidden.
func (f *formFrames) frame(e *Entry) []byte {
	if e.Kind.hidden() {
		return nil
	}
	return appendFrame(f.log.room(len(e.Body)+frameOverhead), f.form, e.Kind, e.Cursor, e.Body)
}

// Follow returns a view of the journal in form f. While at least one view of a
// form is open, the journal makes the form's frames as entries are appended.
func (j *Journal) Follow(f Form) *View {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, have := range j.forms {
		if have.form == f {
			have.refs++
			return &View{journal: j, frames: have}
		}
	}
	made := &formFrames{form: f, refs: 1}
	made.log.start(j.bodies.next)
	j.forms = append(j.forms, made)
	return &View{journal: j, frames: made}
}

func (j *Journal) unfollow(f *formFrames) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.refs--; f.refs > 0 {
		return
	}
	j.forms = slices.DeleteFunc(j.forms, func(have *formFrames) bool { return have == f })
	if len(j.forms) == 0 {
		j.evictTo(j.windowLimit())
		j.bodies.fit()
	}
	j.reportSize()
}
