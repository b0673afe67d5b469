package journal

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadDir calls fn with the entries of the journal in dir, oldest first, until fn
// returns an error, which ReadDir returns. It changes nothing and needs no lock, so
// another process may have the journal open: ReadDir then ends with a batch that was
// whole when it read the newest segment. A body is valid until fn returns. ErrCorrupt
// means that a segment is damaged or does not continue the one before it.
func ReadDir(dir string, fn func(Entry) error) error {
	files, err := openSegments(dir)
	defer func() {
		for _, f := range files {
			_ = f.Close() // only read from
		}
	}()
	r := dirReader{fn: fn}
	for i, f := range files {
		if err == nil {
			err = r.segment(f, i == len(files)-1)
		}
	}
	return err
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

// A dirReader is the state of one ReadDir.
type dirReader struct {
	fn      func(Entry) error
	journal string // id of the journal; empty before the first segment
	last    uint64 // newest cursor that was read
}

// segment calls fn with the entries of the whole batches of a segment, which must continue
// the segment before it. Only the newest segment may end within a batch.
func (d *dirReader) segment(f *os.File, newest bool) error {
	path := f.Name()
	head, size, ok, err := readHead(f)
	first, _ := segmentFirst(filepath.Base(path))
	switch {
	case err != nil:
		return err
	case !ok && newest: // just begun
		return mayEnd(f, headSize, size, first)
	case !ok || head.first != first || d.journal != "" && (head.journal != d.journal || head.prev != d.last):
		return corruptAt(path, 0)
	}
	d.journal = head.journal
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
			if err := d.fn(e); err != nil {
				return err
			}
		}
		batch, d.last = batch[:0], r.next-1
	}
}
