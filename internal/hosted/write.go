package hosted

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"
)

// openSnapshotRoot opens the directory of manifests and creates it if it does
// not exist. The agent controls the workspace, so no link in the path may leave
// the workspace.
func (c *Config) openSnapshotRoot() (*os.Root, error) {
	rel, within := inside(c.WorkspaceRoot, c.SnapshotRoot)
	if !within {
		if err := os.MkdirAll(c.SnapshotRoot, 0o700); err != nil {
			return nil, err
		}
		return os.OpenRoot(c.SnapshotRoot)
	}
	workspace, err := os.OpenRoot(c.WorkspaceRoot)
	if err != nil {
		return nil, err
	}
	defer func() { _ = workspace.Close() }() // it was only read
	if err := workspace.MkdirAll(rel, 0o700); err != nil {
		return nil, err
	}
	return workspace.OpenRoot(rel)
}

// maxNamedID bounds the part of a runner session id in a file name, in bytes.
const maxNamedID = 120

// manifestName returns a name for a new manifest in dir: the runner, the time,
// and six random digits, because two drains may have the same millisecond.
func manifestName(dir *os.Root, runner string, at time.Time) (string, error) {
	id := cmp.Or(restrict(runner, "_-"), "runner")
	id = id[:min(len(id), maxNamedID)]
	when := restrict(stamp(at), "_-")
	for range 8 {
		name := fmt.Sprintf("%s-%s-%06d.json", id, when, rand.IntN(1_000_000))
		if _, err := dir.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", errors.New("no free name")
}

// writeFile writes a file atomically. After it has returned, the file survives
// a crash of the machine.
func writeFile(dir *os.Root, name string, content []byte) error {
	temporary := "." + name + ".tmp"
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temporary))
	}
	return syncDir(dir)
}
