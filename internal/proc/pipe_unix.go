//go:build unix

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// Unread returns the number of bytes in a pipe, or 0 if it cannot be
// determined.
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
