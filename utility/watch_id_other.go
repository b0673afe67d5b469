//go:build !unix

package utility

import (
	"io/fs"
	"os"
)

// A fileID distinguishes files of the system that exist at the same time. Two
// of the same file are not equal; use is to compare them.
type fileID struct{ info fs.FileInfo }

func idOf(info fs.FileInfo) fileID { return fileID{info} }

// is reports whether info is of the file.
func (id fileID) is(info fs.FileInfo) bool { return os.SameFile(id.info, info) }

// number returns a number that is unique on the file system, or 0.
func (fileID) number() uint64 { return 0 }
