package child

import "syscall"

// groupAttr makes the process lead a group, and has the kernel kill it when the
// server dies without a chance to do so. What it started itself is not covered.
func groupAttr(*syscall.SysProcAttr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
