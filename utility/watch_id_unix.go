//go:build unix

package utility

import (
	"io/fs"
	"syscall"
)

// A fileID distinguishes files of the system that exist at the same time.
type fileID struct{ dev, ino uint64 }

func idOf(info fs.FileInfo) fileID {
	st := info.Sys().(*syscall.Stat_t)
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}
}

// is reports whether info is of the file.
func (id fileID) is(info fs.FileInfo) bool { return idOf(info) == id }

// number returns a number that is unique on the file system.
func (id fileID) number() uint64 { return id.ino }
