package utility

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// ownFiles has an entry for each file that this process has open, which leads
// to that file itself and not to what its name leads to by now.
const ownFiles = "/proc/self/fd"

// openSource opens the system's source.
//
// A directory is not watched by its path: another one may be there by the time
// the system looks, or a link to one outside the workspace. Nor is a path used
// twice: what was reported about a directory that is gone would be taken for a
// report about the next one of its name, and fsnotify, which knows directories by
// the paths they were added with, has one entry for both.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	s := pathSource(w)
	paths, err := newOpenPaths()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoOpenPaths):
		return s, nil // there is no /proc, or none of the usual kind
	case err != nil:
		return nil, errors.Join(err, w.Close())
	}
	s.add = func(dir *os.File, _ string) (string, error) {
		path := paths.to(dir)
		return path, w.Add(path)
	}
	s.close = func() {
		_ = w.Close() // nothing is lost: nobody listens any more
		paths.close()
	}
	return s, nil
}

// An openPaths makes paths that lead to open files, and never the same path
// again although the system soon uses the number of a file again. ownFiles is
// itself open several times, so that there are as many entries in it that lead
// back to it; a path goes through them in an order of its own before it comes to
// the file.
type openPaths struct {
	loops [4]*os.File // ownFiles
	made  int
}

var errNoOpenPaths = errors.New(ownFiles + " does not lead to open files")

func newOpenPaths() (*openPaths, error) {
	p := &openPaths{}
	for i := range p.loops {
		f, err := os.Open(ownFiles)
		if err != nil {
			p.close()
			return nil, err
		}
		p.loops[i] = f
	}
	if want, err := p.loops[0].Stat(); err == nil {
		if got, err := os.Stat(p.to(p.loops[0])); err == nil && os.SameFile(want, got) {
			return p, nil
		}
	}
	p.close()
	return nil, errNoOpenPaths
}

// to returns a new path to what f has open. It leads there as long as f is open.
func (p *openPaths) to(f *os.File) string {
	p.made++
	path := []byte(ownFiles)
	for n := p.made; n > 0; n /= len(p.loops) {
		path = append(path, '/')
		path = strconv.AppendUint(path, uint64(p.loops[n%len(p.loops)].Fd()), 10)
	}
	path = append(path, '/')
	return string(strconv.AppendUint(path, uint64(f.Fd()), 10))
}

func (p *openPaths) close() {
	for _, f := range p.loops {
		if f != nil {
			_ = f.Close()
		}
	}
}

// above describes the directory that an open directory lies in. It reports false
// if the system does not tell.
func above(dir *os.File) (fs.FileInfo, bool) {
	info, err := os.Stat(ownFiles + "/" + strconv.FormatUint(uint64(dir.Fd()), 10) + "/..")
	return info, err == nil
}

// maxWatched is how many directories the process may have watched: half of what the
// system lets this user watch. The user has other programs, and the system keeps a
// kilobyte for each.
func maxWatched() int {
	if n, ok := maxUserWatches(); ok {
		return n / 2
	}
	return math.MaxInt
}

// maxFollowed is how many of them may be taken before none is watched for listings
// alone, so that watches find some left. It is none if the system does not say how
// many there may be.
func maxFollowed() int {
	n, _ := maxUserWatches()
	return n / 8 * 3
}

func maxUserWatches() (n int, ok bool) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}
