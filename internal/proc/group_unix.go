//go:build unix

package proc

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ShellCommand returns the process that runs line in a non-login shell.
func ShellCommand(shell, line string) *exec.Cmd {
	return exec.Command(FindShell(shell), "-c", line)
}

// groupAttr makes the process lead a new session, and so a group.
func groupAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setsid = true
	return attr
}

// exitStatus returns the exit code, or -1 and the name of the signal that ended
// the process.
func exitStatus(state *os.ProcessState) (code int, signal string) {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, unix.SignalName(status.Signal())
	}
	return state.ExitCode(), ""
}
