package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadDir calls fn with the entries of the journal in dir, oldest first, until fn
// returns an error, which ReadDir returns. It changes nothing and needs no lock, so
// another process may have the journal open: ReadDir then ends with a batch that was
// whole when it read the newest segment. ErrCorrupt says that entries are damaged or
// missing. A body is valid until fn returns.
func ReadDir(dir string, fn func(Entry) error) error {
	// Read first: the entries that it knows to be synced are in the segments opened next.
	m, _, err := readMeta(dir, nil)
	if err != nil {
		return err
	}
	files, err := openSegments(dir)
	defer func() {
		for _, f := range files {
			_ = f.Close() // only read from
		}
	}()
	if len(files) > 0 && m == nil {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, filepath.Join(dir, metaName))
	}
	var first, last uint64
	restorable := false // from the first entry or from a checkpoint
	for i, f := range files {
		if err == nil {
			err = readSegment(f, m.Journal, last, i == len(files)-1, func(e Entry) error {
				first, last = cmp.Or(first, e.Cursor), e.Cursor
				restorable = restorable || e.Cursor == 1 || e.Kind == Checkpoint
				return fn(e)
			})
		}
	}
	switch {
	case err != nil:
		return err
	case m != nil && last < m.Synced:
		return fmt.Errorf("%w: the entries after cursor %d are missing in %s", ErrCorrupt, last, dir)
	case last > 0 && !restorable:
		return missingBefore(first)
	}
	return nil
}

// openSegments opens the segments in dir, oldest first, so that retention cannot take away
// those that have not been read.
func openSegments(dir string) (files []*os.File, err error) {
	for {
		paths, err := segmentPaths(dir)
		if err != nil || len(paths) == 0 {
			return nil, err
		}
		for _, path := range paths {
			f, err := openRegular(path)
			switch {
			case errors.Is(err, fs.ErrNotExist): // retention has removed it, and all older ones
				for _, older := range files {
					_ = older.Close() // only read from
				}
				files = nil
			case err != nil:
				return files, err
			default:
				files = append(files, f)
			}
		}
		if len(files) > 0 {
			return files, nil
		}
	}
}

// segmentPaths returns the paths of the segments in dir, oldest first. Wildcards in dir have
// no meaning.
func segmentPaths(dir string) ([]string, error) {
	paths, err := fs.Glob(os.DirFS(dir), "*"+segmentSuffix)
	for i, name := range paths {
		paths[i] = filepath.Join(dir, name)
	}
	return paths, err
}

// readSegment calls fn with the entries of the whole batches of a segment of a journal. after
// is the last cursor of the segment before, or zero. Only the newest segment may end within a
// batch.
func readSegment(f *os.File, journal string, after uint64, newest bool, fn func(Entry) error) error {
	path := f.Name()
	head, size, ok, err := readHead(f)
	first, _ := segmentFirst(filepath.Base(path))
	switch {
	case err != nil:
		return err
	case !ok && newest: // just begun
		return mayEnd(f, headSize, size, first)
	case !ok || head.first != first || head.journal != journal || after > 0 && head.prev != after:
		return corruptAt(path, 0)
	}
	r := newScanner(f, path, headSize, size, head.first)
	defer r.release()
	var batch []Entry
	for {
		e, err := r.scan()
		switch {
		case err == io.EOF && (newest || len(batch) == 0):
			return nil
		case err == io.EOF:
			return r.corrupt()
		case errors.Is(err, ErrCorrupt) && newest:
			return mayEnd(f, r.off, size, r.next) // unfinished
		case err != nil:
			return err
		}
		e.Body = bytes.Clone(e.Body)
		if batch = append(batch, e); r.more {
			continue
		}
		for _, e := range batch {
			if err := fn(e); err != nil {
				return err
			}
		}
		batch = batch[:0]
	}
}
