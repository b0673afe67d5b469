//go:build unix && !linux

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// A tree is groups. What has left them is not found.
type tree struct {
	mark    string // of no use here
	leaders map[int]bool
}

// newTree returns what the leader of a group, whose environment has the mark,
// will have started.
func newTree(leader *os.Process, mark string) *tree {
	return &tree{mark: mark, leaders: map[int]bool{leader.Pid: true}}
}

// lives reports whether a process of the tree is there.
func (t *tree) lives() bool { return t.signal(0) }

// signal sends a signal to every process of the tree. It reports whether there
// was one, which may be one that has ended and was not waited for.
func (t *tree) signal(sig unix.Signal) bool {
	found := false
	for leader := range t.leaders {
		if unix.Kill(-leader, sig) != unix.ESRCH {
			found = true
		}
	}
	return found
}

// terminate asks every process of the tree to end. It reports whether there was
// one.
func (t *tree) terminate() bool { return t.signal(unix.SIGTERM) }

// kill does not ask.
func (t *tree) kill() bool { return t.signal(unix.SIGKILL) }

// lastStarted returns nothing: groups are not looked through.
func lastStarted() string { return "" }
