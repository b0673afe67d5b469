//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupAttr makes the process lead a group. Without Linux nothing ends it when
// the server is killed.
func groupAttr(*syscall.SysProcAttr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// groupLives reports whether the group has members, which may be ones that ended
// but were not waited for.
func groupLives(leader *os.Process) bool {
	return unix.Kill(-leader.Pid, 0) != unix.ESRCH
}

// reapGroup does nothing: the server is never the first process of a system.
func reapGroup(*os.Process) {}

// fionread is the ioctl for the number of bytes that can be read. BSDs share it.
const fionread = 0x4004667f
