package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

var (
	// ErrNotRegular says that what a path names is no regular file: a directory,
	// a pipe or a device, say.
	ErrNotRegular = errors.New("not a regular file")

	// ErrTooLarge says that a file is larger than was asked for.
	ErrTooLarge = errors.New("file is too large")
)

// ReadFile returns what the regular file at rel, which is relative to the root,
// holds, and describes it as it was before it was read. What is no regular file
// is not opened: that may wait for somebody, or do something. The error is
// [ErrOutside], [ErrNotRegular], [ErrTooLarge] if there are more than limit
// bytes, or the system's; with the second and third there is a description, too.
func (w *Workspace) ReadFile(rel string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := w.Stat(rel)
	if err != nil {
		return nil, nil, err
	}
	return w.readFile(rel, info, limit)
}

// ReadFileNoFollow is ReadFile to which a symbolic link at the end of rel is no
// regular file. One that takes the place of a file just then is followed, as
// far as it stays inside the root.
func (w *Workspace) ReadFileNoFollow(rel string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := w.Lstat(rel)
	if err != nil {
		return nil, nil, err
	}
	return w.readFile(rel, info, limit)
}

// readFile reads the file that was seen at rel.
func (w *Workspace) readFile(rel string, seen fs.FileInfo, limit int64) ([]byte, fs.FileInfo, error) {
	if !seen.Mode().IsRegular() {
		return nil, seen, fmt.Errorf("read %s: %w", rel, ErrNotRegular)
	}
	f, err := w.OpenFile(rel)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular(): // it is another one by now
		return nil, info, fmt.Errorf("read %s: %w", rel, ErrNotRegular)
	case info.Size() > limit:
		return nil, info, fmt.Errorf("read %s: %w", rel, ErrTooLarge)
	}
	var data bytes.Buffer
	data.Grow(int(info.Size()) + bytes.MinRead)
	switch n, err := data.ReadFrom(io.LimitReader(f, limit+1)); {
	case err != nil:
		return nil, info, err
	case n > limit: // it has grown
		return nil, info, fmt.Errorf("read %s: %w", rel, ErrTooLarge)
	}
	return data.Bytes(), info, nil
}
