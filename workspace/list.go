package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxIgnoreFile bounds what is read of one ignore file.
	maxIgnoreFile = 1 << 20

	// readBatch is how many entries of a directory are read at once.
	readBatch = 4096
)

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
	start, ok := w.start(filepath.ToSlash(dir))
	if !ok {
		return Listing{Files: []string{}, Complete: true}, nil
	}
	wk := walk{w: w, ctx: ctx, base: start.path, limit: limit, queue: []folder{start}}
	wk.Complete = true
	for len(wk.queue) > 0 && wk.Complete {
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

// start returns the folder for dir with the rules of everything above it. It
// reports false if dir itself is ignored.
func (w *Workspace) start(dir string) (folder, bool) {
	f := w.top()
	if dir == "." {
		return f, true
	}
	for name := range strings.SplitSeq(dir, "/") {
		rules := w.ownRules(f)
		f = f.child(name, rules)
		if VersionControl(name) || rules.ignored(f.tree, true) {
			return f, false
		}
		f = w.repository(f)
	}
	return f, true
}

// child returns the folder for a directory in f, where rules hold.
func (f folder) child(name string, rules *level) folder {
	return folder{path: path.Join(f.path, name), tree: path.Join(f.tree, name), rules: rules}
}

// repository returns f as the top of a repository if it is one: what was said
// outside does not hold in it.
func (w *Workspace) repository(f folder) folder {
	if f.tree == "" {
		return f
	}
	if _, err := w.Lstat(filepath.FromSlash(path.Join(f.path, ".git"))); err != nil {
		return f
	}
	f.tree = ""
	f.rules = globalRules().under("", w.ignoreText(path.Join(f.path, ".git", "info", "exclude")))
	return f
}

// ownRules returns the rules in f: those above it and those of its own file.
func (w *Workspace) ownRules(f folder) *level {
	return f.rules.under(f.tree, w.ignoreText(path.Join(f.path, ".gitignore")))
}

// ignoreText returns the text of an ignore file, or "" if there is none. As in git,
// one that is a symbolic link does not count.
func (w *Workspace) ignoreText(name string) string {
	name = filepath.FromSlash(name)
	if info, err := w.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := w.OpenFile(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return ""
	}
	return string(text)
}

// A walk lists a tree.
type walk struct {
	Listing
	w     *Workspace
	ctx   context.Context
	base  string // the path that Files are relative to
	limit int
	queue []folder // still to be visited; as many as there are directories
}

// visit lists the files of one directory and puts its directories in the queue.
func (wk *walk) visit(f folder) {
	entries := wk.entries(f)
	if entries == nil {
		return
	}
	rules := wk.w.ownRules(f)
	for _, e := range entries {
		child := f.child(e.Name(), rules)
		switch {
		case VersionControl(e.Name()), rules.ignored(child.tree, e.IsDir()):
		case e.IsDir():
			wk.queue = append(wk.queue, wk.w.repository(child))
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
