//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner and the group of another file, as far as the
// system allows it. Otherwise a process of root would take files away from
// their user.
func keepOwner(f *os.File, of fs.FileInfo) {
	if stat, ok := of.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid)) // if this fails, the file belongs to the process's user, as a new one does
	}
}
