//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// isOurs reports whether only the user of this process can write to a directory.
func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
