package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// RestorePoint returns the cursor from which an owner reads a store to rebuild its
// state: the newest checkpoint, otherwise the first entry. It is zero if there are
// no entries. ErrCorrupt means that there is no checkpoint and the first entries
// are missing.
func RestorePoint(s Store) (uint64, error) {
	first, last := s.Bounds()
	switch mark := s.LastCheckpoint(); {
	case first == 0 || first > last:
		return 0, nil
	case mark > 0:
		return mark, nil
	case first > 1:
		return 0, missingBefore(first)
	}
	return first, nil
}

func missingBefore(first uint64) error {
	return fmt.Errorf("%w: the entries before cursor %d are missing, and there is no checkpoint of them", ErrCorrupt, first)
}

// Check opens the journal in dir as its owner would, which cuts off what a crash
// left, and reads all of it.
func Check(dir string) error {
	s, err := Open(dir, FileOptions{})
	if err != nil {
		return err
	}
	first, last := s.Bounds()
	if first <= last && last > 0 {
		err = s.Read(first-1, func(Entry) bool { return true })
	}
	_, missing := RestorePoint(s)
	return errors.Join(err, missing, s.Close())
}

// Lock takes the lock of the journal in dir without opening the journal. It returns
// ErrLocked while the journal is open. Close what it returns to release the lock.
func Lock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// A Repaired describes a repaired journal.
type Repaired struct {
	First, Last uint64 // cursors of the entries that were kept
	Newest      uint64 // cursor of the newest entry of the damaged journal; zero if unknown
	Aside       string // directory with the damaged files
}

// Repair replaces the damaged journal in dir with one, of a new epoch, that has the
// newest intact checkpoint, or the first entry, and the entries that precede and
// follow it without a break. It moves the damaged files to a new directory in dir.
// ErrCorrupt means that nothing can be kept; dir is then unchanged.
func Repair(dir string) (Repaired, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Repaired{}, err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return Repaired{}, fmt.Errorf("repair journal in %s: %w", dir, err)
	}
	parts, used, err := salvage(dir, lock)
	if err != nil {
		return Repaired{}, err
	}
	kept := Repaired{First: parts[0].head.first, Last: parts[len(parts)-1].last}
	kept.Newest, _ = markedHead(lock)
	fresh := filepath.Join(dir, "repaired")
	defer os.RemoveAll(fresh)
	if err := copyParts(parts, used, fresh, lock); err != nil {
		return Repaired{}, err
	}
	if kept.Aside, err = replace(dir, fresh); err != nil {
		return Repaired{}, err
	}
	return kept, nil
}

// A salvagedSegment is a segment up to its last whole batch.
type salvagedSegment struct {
	segment
	whole bool // nothing follows that batch
}

// follows reports whether r continues before.
func (r *salvagedSegment) follows(before *salvagedSegment) bool {
	return before.whole && r.head.journal == before.head.journal && r.head.prev == before.last
}

// salvage finds the segments to keep, oldest first, and the newest cursor that was
// used.
func salvage(dir string, lock *os.File) (parts []*salvagedSegment, used uint64, err error) {
	m, _, err := readMeta(dir, lock)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return nil, 0, err
	}
	if m != nil {
		used = max(m.Floor, m.Reserved)
	}
	paths, err := segmentPaths(dir)
	if err != nil {
		return nil, 0, err
	}
	var all []*salvagedSegment
	for _, path := range paths {
		r, err := salvageSegment(path)
		if err != nil {
			return nil, 0, err
		}
		if r != nil && (m == nil || m.Journal == r.head.journal) {
			all = append(all, r)
			used = max(used, r.last)
		}
	}
	start := -1
	for i, r := range all {
		if r.checkpoint() > 0 || start < 0 && r.head.first == 1 {
			start = i
		}
	}
	if start < 0 {
		return nil, 0, fmt.Errorf("%w: %s: nothing of it can be kept", ErrCorrupt, dir)
	}
	from, to := start, start+1
	for from > 0 && all[from].follows(all[from-1]) {
		from--
	}
	for to < len(all) && all[to].follows(all[to-1]) {
		to++
	}
	return all[from:to], used, nil
}

// salvageSegment reads a segment. It returns nil if the segment has no whole batch.
func salvageSegment(path string) (*salvagedSegment, error) {
	f, err := openRegular(path)
	if errors.Is(err, ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &salvagedSegment{segment: segment{path: path}}
	head, size, ok, err := readHead(f)
	if err != nil && !errors.Is(err, errVersion) {
		return nil, err
	}
	if name, _ := segmentFirst(filepath.Base(path)); !ok || head.first != name {
		return nil, nil
	}
	r.head = head
	if _, err := r.measure(f, size); err != io.EOF && !errors.Is(err, ErrCorrupt) {
		return nil, err
	}
	if r.size == headSize {
		return nil, nil
	}
	r.whole = r.size == size
	return r, nil
}

// copyParts makes a journal of parts in dir, which will be placed beside lock. Its
// epoch begins beyond used.
func copyParts(parts []*salvagedSegment, used uint64, dir string, lock *os.File) error {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	for _, r := range parts {
		if err := copyStart(filepath.Join(dir, filepath.Base(r.path)), r.path, r.size); err != nil {
			return err
		}
	}
	m := meta{
		Version: metaVersion, Journal: parts[0].head.journal, Epoch: newEpoch(),
		Floor: epochStart(used), Synced: parts[len(parts)-1].last,
	}
	return m.write(dir, lock)
}

// copyStart copies the first size bytes of a file to a new one on stable storage.
func copyStart(to, from string, size int64) error {
	in, err := openRegular(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, size)
	return errors.Join(err, out.Sync(), out.Close())
}

// replace moves the segments of dir to a new directory in it, and those of fresh to
// dir. If it is interrupted, the meta file is missing or says so.
func replace(dir, fresh string) (aside string, err error) {
	for n := 1; ; n++ {
		aside = filepath.Join(dir, fmt.Sprintf("damaged-%d", n))
		if err := os.Mkdir(aside, 0o700); err == nil {
			break
		} else if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	meta := filepath.Join(dir, metaName)
	if err := os.Rename(meta, filepath.Join(aside, metaName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.WriteFile(meta, []byte("a repair was interrupted"), 0o600); err != nil {
		return "", err
	}
	if err := errors.Join(moveSegments(dir, aside), moveSegments(fresh, dir), syncDir(aside)); err != nil {
		return "", err
	}
	return aside, errors.Join(os.Rename(filepath.Join(fresh, metaName), meta), syncDir(dir))
}

func moveSegments(from, to string) error {
	paths, err := segmentPaths(from)
	for _, path := range paths {
		err = errors.Join(err, os.Rename(path, filepath.Join(to, filepath.Base(path))))
	}
	return err
}
