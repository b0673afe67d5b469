//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ShellCommand returns the process that runs line in a shell, not as a login.
func ShellCommand(shell, line string) *exec.Cmd {
	return exec.Command(FindShell(shell), "-c", line)
}

// terminateGroup asks the group to end. It reports whether it has members.
func terminateGroup(leader *os.Process) bool {
	return unix.Kill(-leader.Pid, unix.SIGTERM) != unix.ESRCH
}

// killGroup ends the group without asking.
func killGroup(leader *os.Process) {
	_ = unix.Kill(-leader.Pid, unix.SIGKILL) // it fails if the group is empty by now, which is the aim
}

// exitStatus returns the exit code, and the name of the signal that ended the
// process if one did.
func exitStatus(state *os.ProcessState) (code int, signal string) {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, unix.SignalName(status.Signal())
	}
	return state.ExitCode(), ""
}
