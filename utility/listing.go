package utility

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// A finding is the files below a directory at one time. It is not changed.
type finding struct {
	index
	complete bool          // nothing was left out because of a bound
	full     bool          // something was, because there are too many files
	unsure   bool          // tracked files may be among them that are not there
	asked    time.Time     // when all files were listed; all other changes before are in it
	asOf     time.Time     // the same with the changes that were told since
	took     time.Duration // that listing all files took

	marks []mark // what else tells how long it is true
}

// listAnew returns the files below dir, which is relative to the root: what git
// lists where there is git and a repository, else what the workspace finds by
// itself. The files of other repositories below dir are found by the workspace in
// any case, and those that git tracks count even if it cannot tell of the others.
func (h *lister) listAnew(ctx context.Context, dir string) (f *finding, err error) {
	f = &finding{asked: time.Now(), marks: h.marks(dir)}
	f.asOf = f.asked
	defer func() { f.took = time.Since(f.asked) }()
	var tracked []string
	if h.ws.Repository(dir) {
		g, listed := h.askGit(ctx, dir)
		tracked = g.files
		if listed {
			h.listNested(ctx, g)
			f.index, f.complete, f.full = newIndex(h.leaveOut(dir, g.files), true), !g.cut, g.full
			f.unsure = true
			return f, nil
		}
	}
	own, err := h.ws.List(ctx, dir, h.limit)
	f.full = !own.Complete && ctx.Err() == nil || len(own.Files)+len(tracked) > h.limit
	f.complete = own.Complete && !f.full
	if f.unsure = len(tracked) > 0; f.unsure {
		own.Files = merged(own.Files, tracked[:min(len(tracked), h.limit-len(own.Files))])
	}
	f.index = newIndex(h.leaveOut(dir, own.Files), false)
	return f, err
}

// listNested adds the files that lie in other repositories.
func (h *lister) listNested(ctx context.Context, g *gitListing) {
	var files []string
	for _, nested := range g.nested {
		own, err := h.ws.List(ctx, filepath.FromSlash(path.Join(g.dir, nested)), h.limit-len(g.files)-len(files))
		if err != nil {
			continue // a submodule that is not there
		}
		for _, file := range own.Files {
			files = append(files, nested+"/"+file)
		}
		g.cut = g.cut || !own.Complete
	}
	if len(files) > 0 {
		g.files = merged(g.files, files)
	}
}

// askGit returns what git lists below dir. It reports false if git is not there,
// does not list the directory or does not answer, and returns what is tracked if
// it told that.
//
// What is tracked and what else there is, is asked for at the same time: git
// takes one processor for each. Whether what is tracked is there, it is not
// asked: it would look for every file, which takes as long again.
func (h *lister) askGit(ctx context.Context, dir string) (*gitListing, bool) {
	tracked, others := h.newGitListing(dir), h.newGitListing(dir)
	var asked sync.WaitGroup
	var err error
	asked.Go(func() { err = others.ask(ctx, aboutRules, []string{tracked.dir}, "-o", "--exclude-standard") }) // ends with git, which ctx bounds
	err2 := tracked.ask(ctx, aboutIndex, []string{tracked.dir}, "-s", "-c")
	asked.Wait()
	switch {
	case ctx.Err() != nil || tracked.full || others.full:
		tracked.join(others)
		tracked.cut = true
		return tracked, true
	case err2 != nil:
		return h.newGitListing(dir), false // it may have told of some
	case err != nil:
		return tracked, false
	}
	tracked.join(others)
	if tracked.full {
		tracked.cut = true
		return tracked, true
	}
	return tracked, len(tracked.files) > 0 || len(tracked.nested) > 0 || !h.rootIgnored(ctx)
}

// isThere reports whether a file, slash-separated and relative to dir, exists.
func (h *lister) isThere(dir, file string) bool {
	info, err := h.ws.Lstat(filepath.Join(dir, filepath.FromSlash(file)))
	return err == nil && !info.IsDir()
}

// A gitListing is what git said about the files below dir.
type gitListing struct {
	of     *lister
	dir    string          // slash-separated, relative to the root
	files  []string        // relative to dir, as are all below
	seen   map[string]bool // files that have several stages
	nested []string        // other repositories
	size   int             // bytes in files
	text   strings.Builder // the newest of files, one behind the other
	full   bool            // there were more files than may be listed
	cut    bool            // git did not come to its end
}

func (h *lister) newGitListing(dir string) *gitListing {
	return &gitListing{of: h, dir: filepath.ToSlash(dir), seen: make(map[string]bool)}
}

// ask runs git to its end, or until g is full.
//
// It runs in the root and is told what to list as paths in the repository, which
// it does not look for behind symbolic links, so what is swapped in meanwhile
// leads nowhere.
func (g *gitListing) ask(ctx context.Context, about question, paths []string, what ...string) error {
	args := append([]string{"--literal-pathspecs", "ls-files", "-z", "-t"}, what...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &entryWriter{each: func(entry []byte) bool {
		if g.take(entry); g.full {
			cancel() // what else there is does not count
		}
		return !g.full
	}}
	return g.of.git(ctx, about, out, append(append(args, "--"), paths...)...)
}

// take notes an entry, unless g is full.
func (g *gitListing) take(entry []byte) {
	if g.full = len(g.files) == g.of.limit || g.size > maxListingBytes; !g.full {
		g.add(entry)
	}
}

// add notes an entry: "T mode object stage\tpath" for tracked files and "? path"
// for others.
func (g *gitListing) add(entry []byte) {
	tag, rest, _ := bytes.Cut(entry, []byte(" "))
	submodule := false
	if string(tag) != "?" {
		mode, after, _ := bytes.Cut(rest, []byte("\t"))
		submodule, rest = bytes.HasPrefix(mode, []byte("160000 ")), after
	}
	file := g.keep(rest)
	if g.dir != "." {
		file = strings.TrimPrefix(file, g.dir+"/")
	}
	dir, isDir := strings.CutSuffix(file, "/")
	switch {
	case ofVersionControl(file), !isDir && !fs.ValidPath(file): // git lists what the index holds
		return
	case isDir || submodule:
		g.nested = append(g.nested, dir)
		return
	case string(tag) == "S": // of a sparse checkout, and mostly not there
		if !g.of.isThere(g.dir, file) {
			return
		}
	case string(tag) == "M": // a conflict has an entry for each side
		if g.seen[file] {
			return
		}
		g.seen[file] = true
	}
	g.files, g.size = append(g.files, file), g.size+len(file)
}

// keep copies a name out of git's output. Many names share one piece of memory:
// an allocation for each would take more time and memory.
func (g *gitListing) keep(name []byte) string {
	if g.text.Cap()-g.text.Len() < len(name) {
		g.text = strings.Builder{}
		g.text.Grow(max(textPiece, len(name)))
	}
	from := g.text.Len()
	g.text.Write(name)
	return g.text.String()[from:]
}

// textPiece is how many bytes of paths lie in one piece.
const textPiece = 64 << 10

// ofVersionControl reports whether a path leads into a version-control
// directory.
func ofVersionControl(file string) bool {
	for name := range strings.SplitSeq(file, "/") {
		if workspace.VersionControl(name) {
			return true
		}
	}
	return false
}

// join adds what another listing of the same directory has.
func (g *gitListing) join(other *gitListing) {
	g.files = merged(g.files, other.files)
	g.nested = append(g.nested, other.nested...)
	g.size += other.size
	g.full = g.full || other.full || g.size > maxListingBytes
	if len(g.files) > g.of.limit {
		g.files, g.full = g.files[:g.of.limit], true
	}
}

// merged returns the files of two lists in their order, each once. Lists that are
// in order already, as those of git are, are not sorted: that takes longer than
// all else.
func merged(a, b []string) []string {
	for _, list := range [][]string{a, b} {
		if !slices.IsSorted(list) {
			slices.Sort(list)
		}
	}
	all := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return slices.Compact(append(append(all, a...), b...))
}
