//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of another one, as far as the
// process may: one that runs as root must not take files away from a user.
func keepOwner(f *os.File, of fs.FileInfo) {
	if stat, ok := of.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid)) // else it is the process's, as a new one is
	}
}
