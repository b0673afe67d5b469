package utility

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// directory names an open directory for a process that is just being started,
// which still has the descriptor then: whatever is at its path meanwhile. Without
// /proc it returns the path.
func directory(dir *os.File, path string) string {
	open := fmt.Sprintf("%s/%d", ownFiles, dir.Fd())
	if _, err := os.Stat(open); errors.Is(err, fs.ErrNotExist) {
		return path
	}
	return open
}
