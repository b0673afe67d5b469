package utility

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/child"
	"github.com/seed-028515a8/maestro/workspace"
)

// list returns the files below rel: what git lists where there is git and a
// repository, else what the workspace finds by itself. The files of other
// repositories below rel are found by the workspace in any case.
func (h *Host) list(ctx context.Context, rel string) (workspace.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()
	if real, err := h.ws.Real(rel); err == nil && h.ws.Repository(real) {
		if listing, ok := h.listByGit(ctx, real); ok {
			return listing, nil
		}
	}
	return h.ws.List(ctx, rel, maxSearchFiles)
}

// listByGit reports false if git is not there or does not list rel.
//
// It runs in the root and is told rel as a path in the repository, which it
// does not look for behind symbolic links, so what is swapped in meanwhile leads
// nowhere.
func (h *Host) listByGit(ctx context.Context, rel string) (workspace.Listing, bool) {
	g := gitListing{ws: h.ws, dir: filepath.ToSlash(rel), removed: make(map[string]bool), seen: make(map[string]bool)}
	err := h.runGit(ctx, &g)
	switch {
	case err != nil && ctx.Err() == nil && !g.full:
		return workspace.Listing{}, false
	case len(g.files) == 0 && len(g.nested) == 0 && h.rootIgnored(ctx):
		return workspace.Listing{}, false
	}
	listing := workspace.Listing{Files: g.present(), Complete: ctx.Err() == nil && !g.full}
	return h.addNested(ctx, listing, g), true
}

// runGit has g filled by git.
func (h *Host) runGit(ctx context.Context, g *gitListing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := h.git(ctx, "--literal-pathspecs", "ls-files", "-z", "-t", "-s", "-c", "-o", "-d", "--exclude-standard", "--", g.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.take(out); g.full {
		cancel() // what else there is does not count
	}
	return cmd.Wait()
}

// rootIgnored reports whether the repository around the root ignores all of it.
func (h *Host) rootIgnored(ctx context.Context) bool {
	return h.git(ctx, "check-ignore", "-q", ".").Run() == nil
}

// git returns a git process in the root. It runs nothing that the repository's
// configuration names.
func (h *Host) git(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"-c", "core.fsmonitor=false", "-C", h.ws.Root()}, args...)
	cmd := exec.CommandContext(ctx, "git", args...)
	env := child.Environ(os.Environ(), h.opts.Hosted, h.opts.EnvPass)
	cmd.Env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0")
	return cmd
}

// addNested adds the files of the repositories that git found and left alone.
func (h *Host) addNested(ctx context.Context, listing workspace.Listing, g gitListing) workspace.Listing {
	for _, dir := range g.nested {
		inner, err := h.ws.List(ctx, filepath.FromSlash(path.Join(g.dir, dir)), maxSearchFiles-len(listing.Files))
		if err != nil {
			continue // a submodule that is not there
		}
		for _, file := range inner.Files {
			listing.Files = append(listing.Files, path.Join(dir, file))
		}
		listing.Complete = listing.Complete && inner.Complete
	}
	return listing
}

// A gitListing is what git said about the files below dir.
type gitListing struct {
	ws      *workspace.Workspace
	dir     string          // slash-separated, relative to the root
	files   []string        // relative to dir, as are all below
	seen    map[string]bool // files that have several stages
	removed map[string]bool // tracked and not there
	nested  []string        // other repositories
	full    bool            // there were more files than may be listed
}

// take reads git's output: "T mode object stage\tpath" for tracked files, where
// T is R for those that are not there, and "? path" for others.
func (g *gitListing) take(out io.Reader) {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		entry, err := lines.ReadString(0)
		if err != nil {
			return // git ends every entry
		}
		if len(g.files) == maxSearchFiles {
			g.full = true
			return
		}
		g.add(strings.TrimSuffix(entry, "\x00"))
	}
}

func (g *gitListing) add(entry string) {
	tag, file, _ := strings.Cut(entry, " ")
	submodule := false
	if tag != "?" {
		mode, after, _ := strings.Cut(file, "\t")
		submodule, file = strings.HasPrefix(mode, "160000 "), after
	}
	if g.dir != "." {
		file = strings.TrimPrefix(file, g.dir+"/")
	}
	dir, isDir := strings.CutSuffix(file, "/")
	switch {
	case slices.ContainsFunc(strings.Split(file, "/"), workspace.VersionControl):
	case isDir || submodule:
		g.nested = append(g.nested, dir)
	case tag == "R":
		g.removed[file] = true
	case tag == "S": // of a sparse checkout, and mostly not there
		if _, err := g.ws.Lstat(filepath.FromSlash(path.Join(g.dir, file))); err == nil {
			g.files = append(g.files, file)
		}
	case tag == "M": // a conflict has an entry for each side
		if !g.seen[file] {
			g.seen[file] = true
			g.files = append(g.files, file)
		}
	default:
		g.files = append(g.files, file)
	}
}

// present returns the files that are there.
func (g *gitListing) present() []string {
	return slices.DeleteFunc(g.files, func(file string) bool { return g.removed[file] })
}
