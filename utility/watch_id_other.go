//go:build !unix

package utility

import (
	"io/fs"
	"os"
)

// A fileID distinguishes files of the system that exist at the same time.
type fileID struct{}

// idOf returns the id of a file, or the zero value if the system has none.
func idOf(fs.FileInfo) fileID { return fileID{} }

// number returns a number that is unique on the file system.
func (fileID) number() uint64 { return 0 }

// An identity tells whether two file infos are of the same file.
type identity struct {
	fileID
	info fs.FileInfo
}

func identify(info fs.FileInfo) identity { return identity{info: info} }

func (i identity) is(info fs.FileInfo) bool { return os.SameFile(i.info, info) }
