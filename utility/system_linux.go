package utility

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// ownFiles has an entry for each open file of this process. An entry leads to
// the open file itself, not to its current name.
const ownFiles = "/proc/self/fd"

// openSource opens the system's source.
//
// A directory is not watched by its path, because another directory, or a link
// out of the workspace, may be there by the time the system looks. No path is
// used twice: otherwise a report about a removed directory would be taken for
// one about the next directory of that name, and fsnotify, which identifies
// directories by the added path, would have one entry for both.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	s := pathSource(w)
	paths, err := newOpenPaths()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoOpenPaths):
		return s, nil // there is no usable /proc
	case err != nil:
		return nil, errors.Join(err, w.Close())
	}
	s.add = func(dir *os.File, _ string) (string, error) {
		path := paths.to(dir)
		return path, w.Add(path)
	}
	s.close = func() {
		_ = w.Close() // nobody reads the events any more
		paths.close()
	}
	return s, nil
}

// An openPaths makes paths that lead to open files, never the same path twice,
// although the system soon reuses a file's number. It has ownFiles open several
// times, so ownFiles has as many entries that lead back to itself. Each path
// goes through these entries in a different order before it comes to the file.
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

// to returns a new path to f. It is valid while f is open.
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

// above returns the parent of an open directory, or false if the system does
// not tell.
func above(dir *os.File) (fs.FileInfo, bool) {
	info, err := os.Stat(ownFiles + "/" + strconv.FormatUint(uint64(dir.Fd()), 10) + "/..")
	return info, err == nil
}

// watchLimits returns the number of directories that the process may watch:
// half of the user's limit, because the user has other programs, and the system
// needs about 1 KiB for each. For listings alone it watches further directories
// up to three eighths of the limit, so that some are left for watches, or none
// if the system does not tell its limit.
func watchLimits() (most, forListings int) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	n, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || wrong != nil {
		return math.MaxInt, 0
	}
	return n / 2, n / 8 * 3
}

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
