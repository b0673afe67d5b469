package proc

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

// A tree is a process. What it started is not found.
type tree struct{ leader *os.Process }

func newTree(leader *os.Process, _ string) *tree { return &tree{leader} }

// terminate kills the process, which cannot be asked to end. It reports whether
// it was still there.
func (t *tree) terminate() bool { return t.leader.Kill() == nil }

// kill reports false: there is nobody to wait for.
func (t *tree) kill() bool {
	_ = t.leader.Kill() // it fails if the process has ended, which is the aim
	return false
}

// stubborn returns a function that kills the process.
func (t *tree) stubborn() func() bool { return t.kill }

// lives reports false: after terminate there is nobody to wait for.
func (t *tree) lives() bool { return false }

// A guard does nothing here.
type guard struct{}

var theGuard guard

// Dismiss does nothing here.
func Dismiss() {}

func (*guard) ready() error    { return nil }
func (*guard) watch(int) error { return nil }
func (*guard) forget(int)      {}

// exitStatus returns the exit code; no signal ends a process here.
func exitStatus(state *os.ProcessState) (code int, signal string) {
	return state.ExitCode(), ""
}
