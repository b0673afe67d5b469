//go:build unix && !linux

package child

import "syscall"

// groupAttr makes the process lead a group. Without Linux nothing ends it when
// the server is killed.
func groupAttr(*syscall.SysProcAttr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
