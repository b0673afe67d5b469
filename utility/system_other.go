//go:build !linux

package utility

import (
	"io/fs"
	"math"
	"os"

	"github.com/fsnotify/fsnotify"
)

// openSource opens the system's source.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return pathSource(w), nil
}

// above returns false: the system does not tell the parent of an open
// directory.
func above(*os.File) (fs.FileInfo, bool) { return nil, false }

// maxWatched is unbounded: other systems have no such limit.
func maxWatched() int { return math.MaxInt }

// maxFollowed is zero: other systems may watch each file instead of each
// directory, so listings do not follow.
func maxFollowed() int { return 0 }

// directory returns path: on other systems a process's directory can be named
// by its path only.
func directory(_ *os.File, path string) string { return path }
