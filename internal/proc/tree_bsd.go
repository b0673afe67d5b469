//go:build unix && !linux

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// A tree is a set of groups. Processes that have left them are not found.
type tree struct {
	mark    string // unused here
	leaders map[int]bool
}

// newTree returns the tree of a group by its leader, whose environment has the
// mark.
func newTree(leader *os.Process, mark string) *tree {
	return &tree{mark: mark, leaders: map[int]bool{leader.Pid: true}}
}

// signal sends a signal to every process of the tree. It reports whether there
// was one; a zombie counts.
func (t *tree) signal(sig unix.Signal) bool {
	found := false
	for leader := range t.leaders {
		if unix.Kill(-leader, sig) != unix.ESRCH {
			found = true
		}
	}
	return found
}

// lastStarted returns "": groups need no search.
func lastStarted() string { return "" }

// fionread is the ioctl for the number of bytes that can be read. BSDs share it.
const fionread = 0x4004667f

// Hide does nothing: other systems than Linux have no such call, or do not need one.
func Hide() error { return nil }
