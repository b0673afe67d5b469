//go:build unix

package utility

import (
	"io/fs"
	"syscall"
)

// A fileID distinguishes files of the system that exist at the same time.
type fileID struct{ dev, ino uint64 }

// idOf returns the id of a file, or the zero value if the system has none.
func idOf(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}
}

// number returns a number that is unique on the file system.
func (id fileID) number() uint64 { return id.ino }

// An identity tells whether two file infos are of the same file.
type identity struct{ fileID }

func identify(info fs.FileInfo) identity { return identity{idOf(info)} }

func (i identity) is(info fs.FileInfo) bool { return idOf(info) == i.fileID }
