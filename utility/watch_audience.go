package utility

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// An audience is the set of watches, in any session, with the same directory
// and patterns. What to report is decided once for all of them.
type audience struct {
	// Static.
	name   string // equal for equal audiences only
	lister *lister
	real   string // the directory, relative to the workspace's root, with links resolved
	filter filter

	// Owned by the keeper.
	watches []*watch
	said    [numNotices]bool
}

func newAudience(l *lister, real string, include, exclude []string) *audience {
	return &audience{name: fmt.Sprintf("%q %q %q", real, include, exclude), lister: l, real: real, filter: newFilter(include, exclude)}
}

// add adds a watch and sends it the notices that the others got.
func (a *audience) add(w *watch) {
	w.audience = a
	a.watches = append(a.watches, w)
	for what, said := range a.said {
		if said {
			w.notices <- limitNotice(what)
		}
	}
}

// remove removes a watch. It reports whether it was the last one.
func (a *audience) remove(w *watch) bool {
	at := slices.Index(a.watches, w)
	if at >= 0 {
		a.watches = slices.Delete(a.watches, at, at+1)
	}
	return at >= 0 && len(a.watches) == 0
}

// listens reports whether any of the watches goes on.
func (a *audience) listens() bool {
	return slices.ContainsFunc(a.watches, func(w *watch) bool { return w.ctx.Err() == nil })
}

// end ends all watches.
func (a *audience) end(reason string) {
	for _, w := range a.watches {
		w.end(reason)
	}
}

// relative returns a workspace path relative to the directory, or false if it
// is not below it.
func (a *audience) relative(path string) (string, bool) {
	if a.real == "." {
		return path, path != "."
	}
	return strings.CutPrefix(path, a.real+string(filepath.Separator))
}

// covers reports whether changes in a directory may have to be reported.
func (a *audience) covers(dir string) bool {
	rel, ok := a.relative(dir)
	return ok && !a.lister.isExcluded(dir) && !a.filter.prunes(filepath.ToSlash(rel))
}

// reports reports whether changes of a path are reported.
func (a *audience) reports(path string) (rel string, ok bool) {
	rel, ok = a.relative(path)
	rel = filepath.ToSlash(rel)
	return rel, ok && !a.lister.isExcluded(path) && a.filter.admits(rel)
}

// tell passes a change on. A path renamed from a path that is not reported
// counts as created.
func (a *audience) tell(c treeChange) {
	rel, ok := a.reports(c.path)
	if !ok {
		return
	}
	kind := c.kind
	if kind == contracts.FileCreated {
		if _, moved := a.reports(c.from); moved && c.from != "" {
			kind = contracts.FileRenamed
		} else if c.known {
			kind = contracts.FileModified
		}
	}
	for _, w := range a.watches {
		w.take(noted{rel, kind, c.isDir})
	}
}

// notify tells the clients of all watches of who about a limit, once.
func notify(who []*audience, what limitNotice) {
	for _, a := range who {
		if !a.said[what] {
			a.said[what] = true
			for _, w := range a.watches {
				w.notices <- what
			}
		}
	}
}
