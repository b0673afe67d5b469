package workspace

import (
	"io/fs"
	"time"
)

// settleTime is how old the last change of a directory must be for its
// modification time to tell the next one: file systems count in steps of up to
// two seconds.
const settleTime = 2 * time.Second

// A mark is what a directory or file that a listing depends on looked like.
type mark struct {
	path     string // relative to the root
	absolute bool   // it is not: the path is absolute
	there    bool
	size     int64 // of files
	changed  time.Time
}

// marks are what a listing depends on.
type marks struct {
	start time.Time // of the listing
	all   []mark    // as many as there are directories, and ignore files
	fresh bool      // something had changed just before, so that its time does not tell the next change
}

// add notes what is at path, which is relative to the root; nil if there is
// nothing.
func (m *marks) add(path string, info fs.FileInfo) { m.note(newMark(path, info)) }

// addAt notes what an absolute path names; see [Workspace.statAt].
func (m *marks) addAt(path string, info fs.FileInfo) {
	k := newMark(path, info)
	k.absolute = true
	m.note(k)
}

// join adds what others depend on.
func (m *marks) join(others marks) {
	m.all = append(m.all, others.all...)
	m.fresh = m.fresh || others.fresh
}

func newMark(path string, info fs.FileInfo) mark {
	k := mark{path: path}
	if info != nil {
		k.there, k.changed = true, info.ModTime()
		if !info.IsDir() {
			k.size = info.Size()
		}
	}
	return k
}

func (m *marks) note(k mark) {
	m.fresh = m.fresh || k.changed.After(m.start.Add(-settleTime))
	m.all = append(m.all, k)
}

// Current reports whether [Workspace.List] would return the listing again, and
// git likewise, as far as modification times tell. They do not tell so soon
// after a change: then it reports false.
func (w *Workspace) Current(l Listing) bool {
	if !l.Complete || l.marks.fresh || l.marks.start.IsZero() {
		return false
	}
	for _, k := range l.marks.all {
		stat := w.Lstat
		if k.absolute {
			stat = w.statAt
		}
		info, err := stat(k.path)
		if err != nil {
			info = nil
		}
		now := newMark(k.path, info)
		if now.there != k.there || now.size != k.size || !now.changed.Equal(k.changed) {
			return false
		}
	}
	return true
}
