//go:build unix

package agent

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// shellCommand returns the process that runs line in a shell, not as a login.
func shellCommand(shell, line string) *exec.Cmd {
	return exec.Command(findShell(shell), "-c", line)
}

// terminateGroup asks the group to end. It reports whether it has members.
func terminateGroup(leader *os.Process) bool {
	return unix.Kill(-leader.Pid, unix.SIGTERM) != unix.ESRCH
}

// groupExists reports whether the group has members, which may be ones that
// ended but were not waited for.
func groupExists(leader *os.Process) bool {
	return unix.Kill(-leader.Pid, 0) != unix.ESRCH
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
