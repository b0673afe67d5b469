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
// whole when it read the newest segment. A body is valid until fn returns.
func ReadDir(dir string, fn func(Entry) error) error {
	paths, err := segmentPaths(dir)
	if err != nil {
		return err
	}
	for i, path := range paths {
		err := readSegment(path, i == len(paths)-1, fn)
		if err != nil && !(i == 0 && errors.Is(err, fs.ErrNotExist)) { // retention has removed the oldest
			return err
		}
	}
	return nil
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

// readSegment calls fn with the entries of the whole batches of a segment. Only the
// newest segment may end within a batch.
func readSegment(path string, newest bool, fn func(Entry) error) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head, size, ok, err := readHead(f)
	switch {
	case err != nil:
		return err
	case !ok && newest:
		return nil // just begun
	case !ok:
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
			if more, other := recordFollows(f, r.off, size, r.next); more || other != nil {
				return errors.Join(err, other)
			}
			return nil // unfinished
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
