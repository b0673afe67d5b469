package hosted

import (
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
func locate(path string) (resolvedPath, error) {
	volume := filepath.VolumeName(path)
	top := volume + string(filepath.Separator)
	at, isFile, links := resolvedPath{top, true}, false, 0
	todo := steps(path[len(volume):])
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if isFile { // nothing can be below a file
			at.exists = false
		}
		switch name {
		case "", ".":
			continue
		case "..":
			at.path, isFile = filepath.Dir(at.path), false
			continue
		}
		next := filepath.Join(at.path, name)
		target, mode, err := look(next)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			at, isFile = resolvedPath{next, false}, false
		case err != nil:
			return resolvedPath{}, err
		case target == "":
			at.path, isFile = next, !mode.IsDir()
		case links == maxLinks:
			return resolvedPath{}, errLoop
		default:
			links++
			if filepath.IsAbs(target) {
				at.path = top
			}
			todo = append(steps(target), todo...)
		}
	}
	return at, nil
}

func steps(path string) []string { return strings.Split(filepath.ToSlash(path), "/") }

// look returns the mode of the file at path and, for a symbolic link, its
// target.
func look(path string) (target string, mode fs.FileMode, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", 0, err
	}
	if mode = info.Mode(); mode&fs.ModeSymlink != 0 {
		target, err = os.Readlink(path)
	}
	return target, mode, err
}

// inside returns path relative to root, and reports whether it is root or below
// it. Neither may contain links.
func inside(root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
