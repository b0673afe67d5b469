package child

import (
	"os"
	"os/exec"
	"syscall"
)

// ShellCommand returns the process that runs line in cmd, whatever shell is
// preferred. cmd does not read its command line as other programs do, so line
// is given to it as it is.
func ShellCommand(_, line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: "cmd /C " + line}
	return cmd
}

// groupAttr leaves attr as it is: there are no groups to lead.
func groupAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

// terminateGroup kills the leader, which cannot be asked to end, and not what
// it started. It reports whether the leader was still there.
func terminateGroup(leader *os.Process) bool { return leader.Kill() == nil }

// groupLives reports false: after terminateGroup there is nobody to wait for.
func groupLives(*os.Process) bool { return false }

// reapGroup does nothing: nobody has to wait for processes here.
func reapGroup(*os.Process) {}

// killGroup kills the leader.
func killGroup(leader *os.Process) {
	_ = leader.Kill() // it fails if the leader has ended, which is the aim
}

// exitStatus returns the exit code; no signal ends a process here.
func exitStatus(state *os.ProcessState) (code int, signal string) {
	return state.ExitCode(), ""
}
