package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// ShellCommand returns the process that runs line in cmd; the preferred shell
// is ignored. cmd parses its command line unlike other programs, so line is
// passed unchanged.
func ShellCommand(_, line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: "cmd /C " + line}
	return cmd
}

// groupAttr returns attr: there are no groups to lead.
func groupAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

// A tree is a single process. Its descendants are not found.
type tree struct{ leader *os.Process }

func newTree(leader *os.Process, _ string) *tree { return &tree{leader} }

// terminate kills the process, because it cannot be asked to end. It reports
// whether the process was still running.
func (t *tree) terminate() bool { return t.leader.Kill() == nil }

// kill returns false: there is no process to wait for.
func (t *tree) kill() bool {
	_ = t.leader.Kill() // an error says that the process has ended
	return false
}

// killUntilGone returns a function that kills the process.
func (t *tree) killUntilGone() func() bool { return t.kill }

// lives returns false: after terminate there is no process to wait for.
func (t *tree) lives() bool { return false }

// A guard does nothing here.
type guard struct{}

var theGuard guard

// Dismiss does nothing here.
func Dismiss() {}

func (*guard) ready() error    { return nil }
func (*guard) watch(int) error { return nil }
func (*guard) forget(int)      {}

// Status returns the leader's exit code; no signal ends a process here. Call it after
// Exited is closed.
func (g *Group) Status() (code int, signal string) { return g.cmd.ProcessState.ExitCode(), "" }

// Unread returns 0: the number of bytes in a pipe cannot be determined.
func Unread(*os.File) int { return 0 }

// Hide does nothing: other systems than Linux have no such call, or do not need one.
func Hide() error { return nil }
