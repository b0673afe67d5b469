//go:build unix

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// outputClosed reports whether nothing can read standard output any more.
func outputClosed() bool {
	out := [1]unix.PollFd{{Fd: int32(syscall.Stdout)}} // without Events, only errors and hang-ups are reported
	n, err := unix.Poll(out[:], 0)
	return err == nil && n > 0
}
