package hosted

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks bounds the symbolic links in the resolution of one path.
const maxLinks = 40

var errLoop = errors.New("too many symbolic links")

// A resolvedPath is the target of a path with its symbolic links resolved.
type resolvedPath struct {
	path   string // absolute
	exists bool   // false if the target or a directory of the path does not exist
}

// locate resolves an absolute path. A part that does not exist has no links, so
// the rest is used as written. Unlike filepath.EvalSymlinks it accepts such
// paths, and follows a dangling link to its target.
func locate(path string) (resolvedPath, error) { return locateWithin(path, maxLinks) }

// locateWithin is locate for a path with at most links dangling links.
func locateWithin(path string, links int) (resolvedPath, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolvedPath{real, true}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return resolvedPath{}, err
	}
	dir, name := filepath.Split(path) // filepath.Dir would clean dir, but links must be resolved before ..
	target, err := os.Readlink(path)
	switch {
	case err != nil:
		at, err := locateWithin(cmp.Or(strings.TrimRight(dir, string(filepath.Separator)), dir), links)
		return resolvedPath{filepath.Join(at.path, name), false}, err
	case links == 0:
		return resolvedPath{}, errLoop
	case !filepath.IsAbs(target):
		target = dir + target
	}
	return locateWithin(target, links-1)
}

// inside returns path relative to root, and reports whether it is root or below
// it. Neither may contain links.
func inside(root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
