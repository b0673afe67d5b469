package utility

import (
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// pathSource makes a source of w that knows directories by their paths. The
// system follows symbolic links in them: a directory that a path does not lead
// to afterwards is not watched, but one that was replaced for a moment only may
// be watched in place of what it was replaced by.
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
			_ = w.Remove(path) // it fails if what it was is gone
			return "", fs.ErrNotExist
		},
		remove: func(key string) { _ = w.Remove(key) }, // it fails if the system has done so by itself
		close:  func() { _ = w.Close() },               // nothing is lost: nobody listens any more
	}
}

// movedFrom returns what the thing that a report is about was called before it
// was renamed to what the report says; "" if it was not, or that was in no
// watched directory. That is told in this form alone.
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
