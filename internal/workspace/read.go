package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

var (
	// ErrNotRegular says that a path names a directory, a pipe, a device or
	// another file that is not regular.
	ErrNotRegular = errors.New("not a regular file")

	// ErrTooLarge says that a file is larger than the given limit.
	ErrTooLarge = errors.New("file is too large")
)

// ReadFile returns the contents of the regular file at rel, which is relative
// to the root, and describes the file as it was before the read. Other files
// are not opened, because that may wait or have an effect. The error is
// [ErrOutside], [ErrNotRegular], [ErrTooLarge] if the file has more than limit
// bytes, or the system's. With ErrNotRegular and ErrTooLarge the description is
// set, too.
func (w *Workspace) ReadFile(rel string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := w.Stat(rel)
	if err != nil {
		return nil, nil, err
	}
	return w.readFile(rel, info, limit)
}

// ReadFileNoFollow is ReadFile, but a symbolic link at the end of rel is
// [ErrNotRegular]. If a link replaces the file between check and open, it is
// followed, as far as it stays inside the root.
func (w *Workspace) ReadFileNoFollow(rel string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := w.Lstat(rel)
	if err != nil {
		return nil, nil, err
	}
	return w.readFile(rel, info, limit)
}

// readFile reads the file at rel that seen describes.
func (w *Workspace) readFile(rel string, seen fs.FileInfo, limit int64) ([]byte, fs.FileInfo, error) {
	if !seen.Mode().IsRegular() {
		return nil, seen, fmt.Errorf("read %s: %w", rel, ErrNotRegular)
	}
	f, err := w.OpenFile(rel)
	if err != nil {
		return nil, seen, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular(): // another file by now
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
