package utility

import (
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// pathSource makes a source of w that identifies directories by their paths.
// The system follows symbolic links in a path. If the path leads elsewhere
// afterwards, the directory is not watched; but if it led elsewhere for a
// moment only, the wrong directory may be watched.
func pathSource(w *fsnotify.Watcher) *source {
	return &source{
		events: w.Events, faults: w.Errors,
		add: func(dir *os.File, path string) (string, error) {
			if err := w.Add(path); err != nil {
				return "", err
			}
			want, err := dir.Stat()
			if err == nil {
				var got fs.FileInfo
				if got, err = os.Stat(path); err == nil && os.SameFile(want, got) {
					return path, nil
				}
			}
			_ = w.Remove(path) // fails if the watched directory is gone
			return "", fs.ErrNotExist
		},
		remove: func(key string) { _ = w.Remove(key) }, // fails if the system has removed it already
		close:  func() { _ = w.Close() },               // nobody reads the events any more
	}
}

// movedFrom returns the former name of the path in a report of a rename; "" if
// there was no rename, or the former directory is not watched. fsnotify exposes
// the former name only in the text of an event.
func movedFrom(ev fsnotify.Event) string {
	if !ev.Has(fsnotify.Create) {
		return ""
	}
	_, text, _ := strings.Cut(ev.String(), " ")
	text = strings.TrimLeft(text, " ")
	name, err := strconv.QuotedPrefix(text)
	if err != nil {
		return ""
	}
	from, moved := strings.CutPrefix(text[len(name):], " ← ")
	if !moved {
		return ""
	}
	if from, err = strconv.Unquote(from); err != nil {
		return ""
	}
	return from
}
