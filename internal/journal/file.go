package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"
)

// File is a [Store] in a directory of append-only segment files. Appended entries
// survive the death of the process; synced entries survive the failure of the
// machine.
//
// The store gets a new epoch if entries that followers have seen may be missing:
// because the machine restarted, a file was damaged, or the directory is a copy
// whose original may have gone on. The cursors of a new epoch begin far beyond
// those of earlier ones; see [Store.EpochStart]. Entries that the store still has
// stay readable, so that its owner can rebuild its state (D4).
//
// It owns at most one goroutine, which syncs and removes old segments. Close waits
// for it.
type File struct {
	// Static after Open.
	dir     string
	opts    FileOptions
	boot    string
	epoch   string
	changed string   // why the epoch is new; empty if it is not
	lock    *os.File // held while open; contains the newest cursor, see markHead
	ops     fileOps

	syncMu sync.Mutex // held while syncing and removing; taken before mu

	mu            sync.Mutex
	meta          meta
	openMarked    bool       // the meta file says that the store is open
	segs          []*segment // oldest first; the last one is written to
	last          uint64     // newest cursor ever used
	synced        uint64     // newest entry on stable storage
	unsyncedNames bool       // segments were created since the directory was synced
	maintaining   bool       // the goroutine runs
	maintained    sync.Cond  // on mu: the goroutine has made progress or ended
	buf           []byte     // encoded bytes of one batch, reused
	head          [8]byte    // buffer of markHead, reused
	broken        error      // why the store cannot be written to
	closed        bool

	wg sync.WaitGroup // of the goroutine
}

// FileOptions configure a file store. The zero value is ready to use.
type FileOptions struct {
	// RetainBytes bounds the size of all segments. Zero means 256 MiB. Above it,
	// the oldest segments are removed if a later one begins with a checkpoint that
	// is on stable storage: the owner must write checkpoints to keep the limit. The
	// newest segment may exceed it by SegmentBytes. If entries are written faster
	// than the disk syncs them, Append waits at twice the limit.
	RetainBytes int64

	// RetainAge bounds the age of entries, relative to the newest entry and by
	// their own times. Entries are removed by the segment, so they may stay a
	// quarter longer. Zero means no limit.
	RetainAge time.Duration

	// SegmentBytes is the size at which a new segment begins. Zero means an
	// eighth of RetainBytes, at least 64 KiB and at most 8 MiB.
	SegmentBytes int64

	// Durable says that the owner shows entries only after Sync has returned. The
	// epoch then survives restarts of the machine, because no lost entry was seen.
	Durable bool

	// BootID returns a text that changes with every boot of the machine, and only
	// then; "" counts as a change. Nil means the system's: the boot_id of Linux,
	// the boot session of macOS, and "" elsewhere.
	BootID func() string
}

// reserveBlock is how many cursors the meta file reserves at a time.
const reserveBlock = 1 << 20

// Open opens the store in dir and makes the directory if needed. It cuts off the
// unfinished end that a crash left. It returns ErrLocked if the store is open
// elsewhere, and ErrCorrupt, with file and offset, for damage that no crash
// explains.
//
// It reads the newest segment, and after a restart of the machine also the segments
// that may not have been synced. Damage in older segments is found when they are
// read.
func Open(dir string, opts FileOptions) (*File, error) {
	return open(dir, opts, fileOps{createSegment, reopenSegment, openRegular})
}

// fileOps opens segment files. Tests replace it to make operations fail.
type fileOps struct {
	create func(path string) (segmentFile, error) // for writing
	reopen func(path string) (segmentFile, error) // for writing
	read   func(path string) (*os.File, error)
}

func open(dir string, opts FileOptions, system fileOps) (*File, error) {
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
	s := &File{dir: dir, opts: opts, boot: opts.BootID(), lock: lock, ops: system}
	s.maintained.L = &s.mu
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

// Changed says why Open began a new epoch. It is empty if Open did not.
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
	for s.maintaining && s.size()/2 > s.opts.RetainBytes {
		s.maintained.Wait()
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
	if s.needsSegment(entries, int64(size)) {
		return s.beginSegment(entries)
	}
	seg := s.segs[len(s.segs)-1]
	s.encode(s.buf[:0], entries)
	if err := s.writeBatch(seg.file, seg.size, entries); err != nil {
		return s.failWrite(err, seg.file.Truncate(seg.size))
	}
	s.noteWritten(seg, entries)
	return nil
}

func (s *File) size() (size int64) {
	for _, seg := range s.segs {
		size += seg.size
	}
	return size
}

// needsSegment reports whether entries, with size bytes of records, need a new
// segment.
func (s *File) needsSegment(entries []Entry, size int64) bool {
	if len(s.segs) == 0 {
		return true
	}
	seg := s.segs[len(s.segs)-1]
	age := time.Duration(entries[0].Time-seg.head.time) * time.Millisecond
	return seg.size+size > s.opts.SegmentBytes ||
		seg.last != s.last || seg.head.old ||
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

// beginSegment writes entries as the first batch of a new segment.
func (s *File) beginSegment(entries []Entry) error {
	head := segmentHead{
		first: entries[0].Cursor, prev: entries[0].Cursor - 1,
		checkpoint: lastCheckpoint(entries), synced: s.synced,
		time: entries[0].Time, journal: s.meta.Journal,
	}
	if n := len(s.segs); n > 0 {
		head.prev = s.segs[n-1].last
	}
	seg := &segment{path: segmentPath(s.dir, head.first), head: head, size: headSize}
	file, err := s.ops.create(seg.path)
	if err != nil {
		return err
	}
	seg.file = file
	s.encode(head.append(s.buf[:0]), entries)
	if err := s.writeBatch(file, 0, entries); err != nil {
		return s.failWrite(err, errors.Join(file.Close(), os.Remove(seg.path)))
	}
	s.segs = append(s.segs, seg)
	s.unsyncedNames = true
	s.noteWritten(seg, entries)
	if len(s.segs) > 1 && !s.maintaining {
		s.maintaining = true
		s.wg.Go(s.maintain) // ends when it has nothing left to do
	}
	return nil
}

// writeBatch writes s.buf, which encodes entries, at off, and then their last
// cursor to the lock file.
func (s *File) writeBatch(file segmentFile, off int64, entries []Entry) error {
	if _, err := file.WriteAt(s.buf, off); err != nil {
		return err
	}
	return s.markHead(entries[len(entries)-1].Cursor)
}

// markHead writes the newest cursor to the lock file. The next process compares it
// with the segments to find out whether entries are missing. It is not synced: it
// is not used after a restart of the machine.
func (s *File) markHead(last uint64) error {
	binary.LittleEndian.PutUint64(s.head[:], last)
	_, err := s.lock.WriteAt(s.head[:], 0)
	return err
}

// LastWritten returns when an entry was last appended to the journal in dir, or
// when the directory was last changed if there is no lock file. It does not open
// the journal.
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

// markedHead returns the newest cursor in a lock file, unless it cannot be read.
func markedHead(lock *os.File) (last uint64, ok bool) {
	var head [8]byte
	if _, err := lock.ReadAt(head[:], 0); err != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(head[:]), true
}

// failWrite returns the error of a failed write. If undoing the write failed too,
// the store is broken.
func (s *File) failWrite(err, undo error) error {
	if undo == nil {
		return err
	}
	s.broken = fmt.Errorf("%w: %w", ErrBroken, errors.Join(err, undo))
	return s.broken
}

// encode sets s.buf to dst followed by the records of entries.
func (s *File) encode(dst []byte, entries []Entry) {
	for i := range entries {
		dst = appendRecord(dst, &entries[i], i < len(entries)-1)
	}
	s.buf = dst
}

// noteWritten updates the state after entries were written at the end of seg.
func (s *File) noteWritten(seg *segment, entries []Entry) {
	for i := range entries {
		seg.index.note(entries[i].Cursor, seg.size)
		seg.size += int64(recordHead + len(entries[i].Body))
	}
	seg.last = entries[len(entries)-1].Cursor
	s.last = seg.last
	if cap(s.buf) > 1<<20 {
		s.buf = nil // release the memory of a large batch
	}
}

// reserve makes sure that the meta file marks the store as open and cursors up to
// last as used, before they are shown.
func (s *File) reserve(last uint64) error {
	if s.openMarked && (s.opts.Durable || last <= s.meta.Reserved) {
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
	s.meta, s.openMarked = next, true
	return nil
}

// Sync implements [Store]. If it fails, the store is broken, because the system may
// have dropped unwritten data.
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

// release closes all files, the lock last.
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

// Read implements [Store]. It opens the files for each call, so old segments need
// no descriptors and may be removed meanwhile.
func (s *File) Read(after uint64, fn func(Entry) bool) error {
	_, end := s.Bounds()
	if after > end {
		return ErrGap
	}
	for after < end {
		part, err := s.locate(after)
		if err != nil || part.seg == nil {
			return err
		}
		part.end = min(part.end, end)
		more, err := s.readPart(part, after, fn)
		if err != nil || !more {
			return err
		}
		after = part.end
	}
	return nil
}

// Rewind implements [Store].
func (s *File) Rewind(before, n uint64) (after uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range slices.Backward(s.segs) {
		end := min(before, seg.last+1)
		if end <= seg.head.first {
			continue
		}
		count := min(n, end-seg.head.first)
		after, ok = end-1-count, true
		if n -= count; n == 0 {
			break
		}
	}
	return after, ok
}

// A part is a range of readable records of a segment.
type part struct {
	seg   *segment // nil if there is nothing to read
	from  point    // a known record at or before the first
	end   uint64   // cursor of the last record
	bytes int64    // offset of the end
}

// locate finds the entry that follows the cursor after.
func (s *File) locate(after uint64) (part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.segs), func(i int) bool { return s.segs[i].last > after })
	if i == len(s.segs) { // after the last entry: at the end, or among lost cursors
		if after == s.last || i > 0 && after == s.segs[i-1].last {
			return part{}, nil
		}
		return part{}, ErrGap
	}
	seg := s.segs[i]
	if after+1 < seg.head.first && (i == 0 || after != s.segs[i-1].last) {
		return part{}, ErrGap
	}
	from := seg.index.find(after+1, seg.head.first)
	return part{seg: seg, from: from, end: seg.last, bytes: seg.size}, nil
}

// readPart calls fn with the entries of p after the cursor after and reports
// whether fn wants more.
func (s *File) readPart(p part, after uint64, fn func(Entry) bool) (more bool, err error) {
	f, err := s.ops.read(p.seg.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !s.hasSegment(p.seg):
		return false, ErrGap // retention removed it meanwhile
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return false, err
	}
	defer f.Close()
	r := newScanner(f, p.seg.path, p.from.off, p.bytes, p.from.cursor)
	defer r.release()
	for r.next <= p.end {
		p.seg.index.note(r.next, r.off)
		e, err := r.scan()
		if err == io.EOF {
			err = r.corrupt()
		}
		if err != nil {
			return false, err
		}
		if e.Cursor > after && !fn(e) {
			return false, nil
		}
	}
	return true, nil
}

func (s *File) hasSegment(seg *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.segs, seg)
}
