//go:build !unix

package workspace

import (
	"io/fs"
	"os"
)

// keepOwner does nothing where files have no owner that a process could change.
func keepOwner(*os.File, fs.FileInfo) {}
