//go:build !unix

package workspace

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: on this system a process cannot change the owner of a
// file.
func keepOwner(*os.File, fs.FileInfo) {}
