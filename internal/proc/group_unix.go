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

// Status returns the leader's exit code, or -1 and the name of the signal that
// ended it. Call it after Exited is closed.
func (g *Group) Status() (code int, signal string) {
	state := g.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, unix.SignalName(status.Signal())
	}
	return state.ExitCode(), ""
}

// Unread returns the number of bytes in a pipe, or 0 if it cannot be
// determined.
func Unread(pipe *os.File) int {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), fionread) }); err != nil {
		return 0
	}
	return max(n, 0)
}

// lives reports whether a process of the tree has not ended.
func (t *tree) lives() bool { return t.signal(0) }

// terminate asks every process of the tree to end. It reports whether there was
// one.
func (t *tree) terminate() bool { return t.signal(unix.SIGTERM) }

// kill kills every process of the tree. It reports whether there was one.
func (t *tree) kill() bool { return t.signal(unix.SIGKILL) }

// killUntilGone returns a function that kills all processes of the tree, and reports
// whether one may be left. It must find none twice, because a process that executes
// another program has no environment for a moment, and four times while processes are
// being started, because one that starts another and ends is easily missed.
func (t *tree) killUntilGone() func() bool {
	nobody, last := 0, ""
	return func() bool {
		if nobody++; t.kill() {
			nobody = 0
		}
		before := last
		last = lastStarted()
		return nobody < 2 || nobody < 4 && last != before
	}
}
