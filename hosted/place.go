package hosted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links one path may go through.
const maxLinks = 40

var errLoop = errors.New("too many symbolic links")

// A place is where a path leads once its symbolic links are resolved.
type place struct {
	path   string // absolute
	exists bool   // false if something on the way or at the end does not
}

// locate resolves an absolute path. What does not exist has no links, so the
// rest of such a path counts as it is written. It differs from
// filepath.EvalSymlinks in that, and in that a dangling link leads where it
// points.
func locate(path string) (place, error) {
	volume := filepath.VolumeName(path)
	top := volume + string(filepath.Separator)
	at, isFile, links := place{top, true}, false, 0
	todo := steps(path[len(volume):])
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if isFile { // nothing lies below a file
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
			at, isFile = place{next, false}, false
		case err != nil:
			return place{}, err
		case target == "":
			at.path, isFile = next, !mode.IsDir()
		case links == maxLinks:
			return place{}, errLoop
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

// look returns what lies at path and, if that is a symbolic link, its target.
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

// inside returns the path of a place from the root, both without links, and
// reports whether it is the root or lies below it.
func inside(root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
