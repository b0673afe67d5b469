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

// watchLimits returns no bound for watches, because other systems have no such
// limit, and zero for listings, because other systems may watch each file
// instead of each directory.
func watchLimits() (most, forListings int) { return math.MaxInt, 0 }

// directory returns path: on other systems a process's directory can be named
// by its path only.
func directory(_ *os.File, path string) string { return path }
