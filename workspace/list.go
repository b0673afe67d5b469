package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// readBatch is how many entries of a directory are read at once.
const readBatch = 4096

// versionControl are the directories that listings leave out: what is in them
// is not the user's.
var versionControl = []string{".git", ".hg", ".svn", ".bzr", ".jj"}

// VersionControl reports whether name is that of a directory in which a
// version-control system keeps its own files.
func VersionControl(name string) bool { return slices.Contains(versionControl, name) }

// A Listing is the files below a directory.
type Listing struct {
	Files    []string // slash-separated, relative to the directory
	Complete bool     // nothing was left out because of a bound

	marks marks
}

// List returns at most limit files below dir, which is relative to the root:
// those that git would list as tracked, or as untracked and not ignored, in as
// far as that can be told without git. A file that is tracked although it is
// ignored is left out, as only git knows it. Files in the working trees of other
// repositories below dir are listed by the rules of those.
//
// Symbolic links are listed and never followed, nearer files come before deeper
// ones, and what cannot be read is left out. When ctx ends the listing is what
// was found so far. The error says that dir itself cannot be read.
func (w *Workspace) List(ctx context.Context, dir string, limit int) (Listing, error) {
	dir, err := w.Real(dir)
	if err != nil {
		return Listing{}, err
	}
	if info, err := w.Stat(dir); err != nil || !info.IsDir() {
		return Listing{}, errors.Join(err, fs.ErrInvalid)
	}
	wk := walk{w: w, ctx: ctx, limit: limit}
	wk.Files, wk.Complete, wk.marks.start = []string{}, true, time.Now()
	start, ok := wk.enter(filepath.ToSlash(dir))
	if !ok {
		return wk.Listing, nil // dir itself is ignored
	}
	wk.base = start.path
	for wk.queue = []folder{start}; len(wk.queue) > 0 && wk.Complete; {
		next := wk.queue[0]
		wk.queue = wk.queue[1:]
		wk.visit(next)
	}
	return wk.Listing, nil
}

// A folder is a directory on the way.
type folder struct {
	path  string // slash-separated, relative to the root; "." is the root
	tree  string // the same from the top of its repository; "" is the top
	rules *level // what was said above it, its own ignore file not included
}

// child returns the folder for a directory in f, where rules hold.
func (f folder) child(name string, rules *level) folder {
	return folder{path: path.Join(f.path, name), tree: path.Join(f.tree, name), rules: rules}
}

// A walk lists a tree.
type walk struct {
	Listing
	w      *Workspace
	ctx    context.Context
	base   string // the path that Files are relative to
	limit  int
	queue  []folder // still to be visited; as many as there are directories
	global *level   // the user's own rules; see globalRules
	asked  bool     // global was read
}

// enter returns the folder for dir with the rules of everything above it. It
// reports false if dir itself is ignored.
func (wk *walk) enter(dir string) (folder, bool) {
	f := wk.top()
	if dir == "." {
		return f, true
	}
	for name := range strings.SplitSeq(dir, "/") {
		wk.markDir(f)
		rules := wk.ownRules(f)
		f = f.child(name, rules)
		if VersionControl(name) || rules.ignored(f.tree, true) {
			return f, false
		}
		f = wk.repository(f)
	}
	return f, true
}

// repository returns f as the top of a repository if it is one: what was said
// outside does not hold in it.
func (wk *walk) repository(f folder) folder {
	if f.tree == "" {
		return f
	}
	if _, err := wk.w.Lstat(filepath.FromSlash(path.Join(f.path, ".git"))); err != nil {
		return f
	}
	exclude := path.Join(f.path, ".git", "info", "exclude")
	if _, err := wk.w.Lstat(filepath.FromSlash(exclude)); err != nil {
		wk.marks.add(filepath.FromSlash(exclude), nil)
	}
	f.tree = ""
	f.rules = wk.globalRules().under(wk.ctx, "", wk.text(exclude))
	return f
}

// markDir notes that the listing depends on a directory that is on the way. A
// file that appears in it changes it.
func (wk *walk) markDir(f folder) {
	name := filepath.FromSlash(f.path)
	if info, err := wk.w.Lstat(name); err == nil {
		wk.marks.add(name, info)
	}
}

// ownRules returns the rules in f: those above it and those of its own file.
func (wk *walk) ownRules(f folder) *level {
	return f.rules.under(wk.ctx, f.tree, wk.text(path.Join(f.path, ".gitignore")))
}

// visit lists the files of one directory and puts its directories in the queue.
func (wk *walk) visit(f folder) {
	entries := wk.entries(f)
	if entries == nil {
		return
	}
	rules := wk.ownRules(f)
	for _, e := range entries {
		child := f.child(e.Name(), rules)
		switch {
		case wk.ctx.Err() != nil:
			wk.Complete = false
			return
		case VersionControl(e.Name()), rules.ignored(child.tree, e.IsDir()):
		case e.IsDir():
			wk.queue = append(wk.queue, wk.repository(child))
		case !e.Type().IsRegular() && e.Type() != fs.ModeSymlink:
		case len(wk.Files) == wk.limit:
			wk.Complete = false
			return
		default:
			wk.Files = append(wk.Files, wk.relative(child.path))
		}
	}
}

func (wk *walk) relative(path string) string {
	if wk.base == "." {
		return path
	}
	return path[len(wk.base)+1:]
}

// entries reads a directory, sorted by name. It stops when the walk is to end.
func (wk *walk) entries(f folder) []fs.DirEntry {
	dir, err := wk.w.root.Open(filepath.FromSlash(f.path))
	if err != nil {
		return nil
	}
	defer dir.Close()
	if info, err := dir.Stat(); err == nil {
		wk.marks.add(filepath.FromSlash(f.path), info)
	}
	var all []fs.DirEntry
	for {
		if wk.ctx.Err() != nil {
			wk.Complete = false
			break
		}
		batch, err := dir.ReadDir(readBatch)
		all = append(all, batch...)
		if err != nil || len(all) > 2*wk.limit+readBatch {
			break
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}
