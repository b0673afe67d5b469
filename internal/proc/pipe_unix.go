//go:build unix

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// Unread returns how many bytes wait in a pipe to be read, 0 if that cannot be
// told.
func Unread(pipe *os.File) int {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), fionread) }); err != nil {
		return 0
	}
	return max(n, 0)
}
