package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/seed-028515a8/maestro/workspace"
)

// maxFileBytes bounds a file that is read, searched or written: 32 MiB. It is
// held in memory a few times over.
const maxFileBytes = 32 << 20

// A file is a file that the model named.
type file struct {
	rel  string // below the root
	name string // slash-separated, as the model is told of it
}

// locate returns what path names, relative to the workspace or absolute.
func (k *Kit) locate(path string) (file, error) {
	rel, err := k.Workspace.Rel(path)
	if err != nil {
		return file{}, refusal(fmt.Sprintf("%s is outside the workspace, which is %s. Use a path below it.", quote(path), k.Workspace.Root()))
	}
	return file{rel: rel, name: filepath.ToSlash(rel)}, nil
}

// refuse says why something could not be done with the file.
func (f file) refuse(err error) error {
	for _, known := range []struct {
		err  error
		text string
	}{
		{workspace.ErrOutside, "%s leads outside the workspace: a symbolic link in it does, or is absolute."},
		{workspace.ErrTooLarge, "%s is larger than the 32 MiB that can be read at once. Look at parts of it with bash."},
		{workspace.ErrNotRegular, "%s is not a regular file but a directory, a pipe or a device."},
		{workspace.ErrChanged, "%s was changed by somebody else just now and left alone. Read it again."},
		{fs.ErrNotExist, "There is no file %s."},
		{fs.ErrExist, "There is a file %s already. Read it before changing it."},
		{fs.ErrPermission, "No permission for %s."},
	} {
		if errors.Is(err, known.err) {
			return refusal(fmt.Sprintf(known.text, f.name))
		}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return refusal(fmt.Sprintf("%s: %v.", f.name, err))
}

// load returns what a regular file holds.
func (k *Kit) load(f file) ([]byte, fs.FileInfo, error) {
	data, info, err := k.Workspace.ReadFile(f.rel, maxFileBytes)
	switch {
	case err == nil:
		return data, info, nil
	case info != nil && info.IsDir():
		return nil, nil, refusal(f.name + " is a directory. Find the files in it with glob, or list it with bash.")
	}
	return nil, nil, f.refuse(err)
}

// key returns the path of a file with its links resolved.
func (k *Kit) key(f file) string {
	if real, err := k.Workspace.Real(f.rel); err == nil {
		return real
	}
	return f.rel
}
