package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupAttr makes the process lead a group, and has the kernel kill it when the
// server dies without a chance to do so. What it started itself is not covered.
func groupAttr(*syscall.SysProcAttr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupLives reports whether the group has members that have not ended. In many
// containers nobody waits for processes whose parents are gone, or does so late,
// so those that ended still count as members for the kernel.
func groupLives(leader *os.Process) bool {
	if unix.Kill(-leader.Pid, 0) == unix.ESRCH {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil && livesIn(e.Name(), leader.Pid) {
			return true
		}
	}
	return false
}

// livesIn reports whether a process is in a group and has not ended.
func livesIn(id string, group int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", id, "stat"))
	if err != nil {
		return false // it is gone by now
	}
	// 17 (name, which may hold anything) S 1 17 ...: state, parent, group.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && fields[0][0] != 'Z' && fields[0][0] != 'X'
}

// reapGroup waits for members that have ended and became the server's children
// when their parents did, as happens to the first process of a container. The
// leader must have been waited for.
func reapGroup(leader *os.Process) {
	for {
		if id, err := unix.Wait4(-leader.Pid, nil, unix.WNOHANG, nil); id <= 0 || err != nil {
			return
		}
	}
}

// fionread is the ioctl for the number of bytes that can be read.
const fionread = unix.TIOCINQ
