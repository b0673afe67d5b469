//go:build unix

package double

import (
	"os"
	"os/exec"
	"syscall"
)

// groupOf has a program start in a process group of its own. On a terminal it
// does so by itself.
func groupOf(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks the group of a process to end, or ends it; alone spares all
// but the process.
func signalGroup(p *os.Process, force, alone bool) {
	sig, target := syscall.SIGTERM, -p.Pid
	if force {
		sig = syscall.SIGKILL
	}
	if alone {
		target = p.Pid
	}
	_ = syscall.Kill(target, sig) // it may be gone
}

var signalNames = map[syscall.Signal]string{syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT",
	syscall.SIGABRT: "SIGABRT", syscall.SIGKILL: "SIGKILL", syscall.SIGUSR1: "SIGUSR1", syscall.SIGSEGV: "SIGSEGV",
	syscall.SIGUSR2: "SIGUSR2", syscall.SIGPIPE: "SIGPIPE", syscall.SIGALRM: "SIGALRM", syscall.SIGTERM: "SIGTERM"}

// signalOf names the signal that ended a process; empty is none.
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalNames[status.Signal()]
	}
	return ""
}
