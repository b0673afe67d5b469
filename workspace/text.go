package workspace

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// textAt returns the first limit bytes of the regular file at an absolute path,
// without the last line if it is cut. It returns "" if the file cannot be read.
// Git's files may lie outside the root, but a symbolic link below the root
// cannot lead outside.
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

// textOfUnlinked is textAt for an open file. info was read before the file was
// opened, without following a symbolic link. If f is another file than info
// describes, the result is "".
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

// openWithoutWaiting opens a file for reading. It does not wait for the writer
// of a named pipe.
func openWithoutWaiting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
