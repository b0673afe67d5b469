package workspace

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// textAt returns the first limit bytes of the regular file at an absolute path,
// without a line that is cut, or "" if it cannot be read. Git's files are found
// where git finds them, also outside the root, but symbolic links below the root
// do not lead there.
func (w *Workspace) textAt(path string, limit int) string {
	f, err := w.openAt(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return textFrom(f, limit)
}

// textOfUnlinked is textAt for an open file at which info was seen, without
// following a symbolic link, before it was opened.
func textOfUnlinked(f *os.File, info fs.FileInfo, limit int) string {
	opened, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || !os.SameFile(info, opened) {
		return ""
	}
	return textFrom(f, limit)
}

func textFrom(f io.Reader, limit int) string {
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return ""
	}
	if len(text) <= limit {
		return string(text)
	}
	whole := string(text[:limit])
	return whole[:strings.LastIndexByte(whole, '\n')+1]
}

// openWithoutWaiting opens a file for reading, also a named pipe without a
// writer.
func openWithoutWaiting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
