//go:build unix

package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// HungUp reports whether nothing can read standard output any more.
func HungUp() bool {
	out := [1]unix.PollFd{{Fd: int32(syscall.Stdout)}} // without Events, only errors and hang-ups are reported
	n, err := unix.Poll(out[:], 0)
	return err == nil && n > 0
}
