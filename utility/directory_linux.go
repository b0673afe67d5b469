package utility

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// directory returns a path to an open directory for starting a process in it.
// The path leads to the open directory even if path names another one by then.
// Without /proc it returns path.
func directory(dir *os.File, path string) string {
	open := fmt.Sprintf("%s/%d", ownFiles, dir.Fd())
	if _, err := os.Stat(open); errors.Is(err, fs.ErrNotExist) {
		return path
	}
	return open
}
