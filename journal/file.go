package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// File is a [Store] in a directory of append-only segment files. What was
// appended survives the death of the process; what was synced survives the
// death of the machine.
//
// The store has a new epoch if entries that somebody was shown may be missing,
// because the machine restarted or a file was damaged, or if its directory is a
// copy, beside whose original other entries may exist. The cursors of a new
// epoch begin far beyond those of earlier ones; see [Store.EpochStart]. What the
// store still has stays readable, so that its owner can rebuild its state (D4).
//
// It owns one goroutine at a time, which syncs and removes old segments; Close
// waits for it.
type File struct {
	// Static after Open.
	dir     string
	opts    FileOptions
	boot    string
	epoch   string
	changed string   // why the epoch is new
	lock    *os.File // held while open; it holds the newest cursor, see markHead
	system  system

	syncMu sync.Mutex // held while syncing and removing; taken before mu

	mu      sync.Mutex
	meta    meta
	marked  bool       // meta says that the store is open
	segs    []*segment // oldest first; the last is written to
	last    uint64     // newest cursor ever used
	synced  uint64     // everything up to here is on stable storage
	names   bool       // segments were created since the directory was synced
	tidying bool       // the goroutine runs
	tidied  sync.Cond  // on mu: it has done something, or ended
	buf     []byte     // one batch's bytes, reused
	head    [8]byte    // likewise, for markHead
	broken  error      // why nothing can be written any more
	closed  bool

	wg sync.WaitGroup // the goroutine
}

// FileOptions configure a file store. The zero value is ready to use.
type FileOptions struct {
	// RetainBytes bounds the size of all segments. Zero means 256 MiB. Beyond
	// it the oldest segments are removed if a later one begins with a checkpoint
	// that is on stable storage: an owner has to write checkpoints to keep the
	// bound. The newest segment may exceed it by SegmentBytes. Where entries are
	// written faster than the disk syncs them, Append waits at twice the bound.
	RetainBytes int64

	// RetainAge bounds the age of entries, counted from the newest and by
	// their own times. Entries are removed by the segment, so they may live
	// longer by a quarter. Zero keeps them.
	RetainAge time.Duration

	// SegmentBytes is the size at which a new segment begins. Zero means an
	// eighth of RetainBytes, at least 64 KiB and at most 8 MiB.
	SegmentBytes int64

	// Durable says that the owner shows nothing before Sync has returned. The
	// epoch then outlives machine restarts: all that can be lost was not seen.
	Durable bool

	// BootID returns a text that changes with every boot of the machine, and
	// only then; "" counts as a change. Nil means the system's: the boot_id of
	// Linux, the boot session of macOS, and "" elsewhere.
	BootID func() string
}

// reserveBlock is how many cursors the meta file reserves at a time.
const reserveBlock = 1 << 20

// Open opens the store in dir and makes the directory if needed. It cuts off
// what a crash left unfinished. It returns ErrLocked if the store is open
// elsewhere, and ErrCorrupt, with file and offset, if something is damaged
// that no crash explains.
//
// It reads the newest segment, and after a machine restart what was not known
// to be synced. Damage in older ones is found when they are read.
func Open(dir string, opts FileOptions) (*File, error) {
	return open(dir, opts, system{createSegment, reopenSegment, openRegular})
}

// A system opens segment files. Tests have one that fails.
type system struct {
	create func(path string) (segmentFile, error) // for writing
	reopen func(path string) (segmentFile, error) // likewise
	read   func(path string) (*os.File, error)
}

func open(dir string, opts FileOptions, system system) (*File, error) {
	opts.RetainBytes = cmp.Or(opts.RetainBytes, 256<<20)
	opts.SegmentBytes = cmp.Or(opts.SegmentBytes, max(64<<10, min(opts.RetainBytes/8, 8<<20)))
	if opts.BootID == nil {
		opts.BootID = bootID
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	s := &File{dir: dir, opts: opts, boot: opts.BootID(), lock: lock, system: system}
	s.tidied.L = &s.mu
	if err = lockFile(lock); err == nil {
		err = s.recover()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal in %s: %w", dir, err), s.release())
	}
	s.epoch = s.meta.Epoch
	return s, nil
}

// Epoch implements [Store].
func (s *File) Epoch() string { return s.epoch }

// EpochStart implements [Store].
func (s *File) EpochStart() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta.Floor
}

// Changed says why Open began a new epoch. It is empty if it did not.
func (s *File) Changed() string { return s.changed }

// Bounds implements [Store].
func (s *File) Bounds() (first, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last == 0:
		return 0, 0
	case len(s.segs) == 0:
		return s.last + 1, s.last
	}
	return s.segs[0].head.first, s.last
}

// LastCheckpoint implements [Store].
func (s *File) LastCheckpoint() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range slices.Backward(s.segs) {
		if c := seg.checkpoint(); c > 0 {
			return c
		}
	}
	return 0
}

// Append implements [Store].
func (s *File) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.tidying && s.size()/2 > s.opts.RetainBytes {
		s.tidied.Wait()
	}
	switch {
	case s.closed:
		return errClosed
	case s.broken != nil:
		return s.broken
	}
	if err := checkBatch(s.last, entries); err != nil {
		return err
	}
	if err := s.reserve(entries[len(entries)-1].Cursor); err != nil {
		return fmt.Errorf("reserve cursors: %w", err)
	}
	size := 0
	for i := range entries {
		size += recordHead + len(entries[i].Body)
	}
	if s.full(entries, int64(size)) {
		return s.begin(entries)
	}
	seg := s.segs[len(s.segs)-1]
	s.encode(s.buf[:0], entries)
	if err := s.put(seg.file, seg.size, entries); err != nil {
		return s.undone(err, seg.file.Truncate(seg.size))
	}
	s.accept(seg, entries)
	return nil
}

// size returns the bytes of all segments.
func (s *File) size() (size int64) {
	for _, seg := range s.segs {
		size += seg.size
	}
	return size
}

// full reports whether entries, size bytes of records, begin a new segment.
func (s *File) full(entries []Entry, size int64) bool {
	if len(s.segs) == 0 {
		return true
	}
	seg := s.segs[len(s.segs)-1]
	age := time.Duration(entries[0].Time-seg.head.time) * time.Millisecond
	return seg.size+size > s.opts.SegmentBytes ||
		seg.last != s.last ||
		s.opts.RetainAge > 0 && age > s.opts.RetainAge/4 ||
		lastCheckpoint(entries) > 0
}

func lastCheckpoint(entries []Entry) uint64 {
	for _, e := range slices.Backward(entries) {
		if e.Kind == Checkpoint {
			return e.Cursor
		}
	}
	return 0
}

// begin writes entries as the first batch of a new segment.
func (s *File) begin(entries []Entry) error {
	head := segmentHead{
		first: entries[0].Cursor, prev: entries[0].Cursor - 1,
		checkpoint: lastCheckpoint(entries), synced: s.synced,
		time: entries[0].Time, journal: s.meta.Journal,
	}
	if n := len(s.segs); n > 0 {
		head.prev = s.segs[n-1].last
	}
	seg := &segment{path: segmentPath(s.dir, head.first), head: head, size: headSize}
	file, err := s.system.create(seg.path)
	if err != nil {
		return err
	}
	seg.file = file
	s.encode(head.append(s.buf[:0]), entries)
	if err := s.put(file, 0, entries); err != nil {
		return s.undone(err, errors.Join(file.Close(), os.Remove(seg.path)))
	}
	s.segs = append(s.segs, seg)
	s.names = true
	s.accept(seg, entries)
	if len(s.segs) > 1 && !s.tidying {
		s.tidying = true
		s.wg.Go(s.tidy) // ends when it has nothing left to do
	}
	return nil
}

// put writes s.buf, which encodes entries, at off, and then their last cursor to
// the lock file.
func (s *File) put(file segmentFile, off int64, entries []Entry) error {
	if _, err := file.WriteAt(s.buf, off); err != nil {
		return err
	}
	return s.markHead(entries[len(entries)-1].Cursor)
}

// markHead writes the newest cursor to the lock file. If the process dies, the
// next one finds it there, and knows whether entries are missing. It is not
// synced: after a restart of the machine nobody looks at it.
func (s *File) markHead(last uint64) error {
	binary.LittleEndian.PutUint64(s.head[:], last)
	_, err := s.lock.WriteAt(s.head[:], 0)
	return err
}

// LastWritten returns when an entry was last appended to the journal in dir, or
// when the directory was made. It does not open the journal.
func LastWritten(dir string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(dir)
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// markedHead returns the newest cursor that a process marked, math.MaxUint64 if
// that cannot be known.
func (s *File) markedHead() uint64 {
	if _, err := s.lock.ReadAt(s.head[:], 0); err != nil {
		return math.MaxUint64
	}
	return binary.LittleEndian.Uint64(s.head[:])
}

// undone returns the error of a write, after an attempt to undo it that ended
// with undo.
func (s *File) undone(err, undo error) error {
	if undo == nil {
		return err
	}
	s.broken = fmt.Errorf("%w: %w", ErrBroken, errors.Join(err, undo))
	return s.broken
}

// encode leaves dst and the records of entries in s.buf.
func (s *File) encode(dst []byte, entries []Entry) {
	for i := range entries {
		dst = appendRecord(dst, &entries[i], i < len(entries)-1)
	}
	s.buf = dst
}

// accept counts entries, which were written at the end of seg.
func (s *File) accept(seg *segment, entries []Entry) {
	for i := range entries {
		seg.index.note(entries[i].Cursor, seg.size)
		seg.size += int64(recordHead + len(entries[i].Body))
	}
	seg.last = entries[len(entries)-1].Cursor
	s.last = seg.last
	if cap(s.buf) > 1<<20 {
		s.buf = nil // one large batch must not cost memory for good
	}
}

// reserve makes sure that the meta file knows the store to be open and cursors
// up to last to be used, before anybody is shown one.
func (s *File) reserve(last uint64) error {
	if s.marked && (s.opts.Durable || last <= s.meta.Reserved) {
		return nil
	}
	next := s.meta
	next.Boot, next.Open, next.Synced = s.boot, true, s.synced
	if !s.opts.Durable {
		next.Unsynced = true
	}
	next.Reserved = max(next.Reserved, last+reserveBlock)
	if err := next.write(s.dir, s.lock); err != nil {
		return err
	}
	s.meta, s.marked = next, true
	return nil
}

// Sync implements [Store]. If it fails, the store is broken: the system may
// have dropped what it could not write.
func (s *File) Sync() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed
	}
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := s.flush(true); err != nil {
		return err
	}
	return s.retain()
}

// Close implements [Store].
func (s *File) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()

	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	err := s.flush(true)
	if err == nil {
		err = s.retain()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.meta.Open {
		s.meta.Open, s.meta.Unsynced, s.meta.Synced = false, false, s.synced
		err = s.meta.write(s.dir, s.lock)
	}
	return errors.Join(err, s.release())
}

// release closes all files; the lock goes last.
func (s *File) release() error {
	var err error
	for _, seg := range s.segs {
		if seg.file != nil {
			err = errors.Join(err, seg.file.Close())
			seg.file = nil
		}
	}
	return errors.Join(err, s.lock.Close())
}
