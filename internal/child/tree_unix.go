//go:build unix

package child

import "os"

// newTree returns what the leader of a group, whose environment has the mark,
// will have started.
func newTree(leader *os.Process, mark string) *tree {
	return &tree{mark: "\x00" + mark + "\x00", leaders: map[int]bool{leader.Pid: true}}
}
