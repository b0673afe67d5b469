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

// above describes the directory that an open directory lies in. It reports false
// if the system does not tell.
func above(*os.File) (fs.FileInfo, bool) { return nil, false }

// maxWatched is how many directories may be watched. Other systems have no such
// number.
func maxWatched() int { return math.MaxInt }

// maxFollowed is none, for listings: other systems may watch files instead of
// directories.
func maxFollowed() int { return 0 }
