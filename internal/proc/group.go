package proc

import (
	"crypto/rand"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// Bounds of the growing intervals at which a group that is to end is checked.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// killDelay is how long to wait for a killed group to disappear. After it the group
	// counts as empty: the kernel ends some processes only when a disk responds.
	killDelay = time.Second
)

// A Group is a running command with the processes it started; see the package
// comment for those that leave the group. Its methods may be called from any
// goroutine. Its id stays valid after the leader has ended: systems do not reuse the
// id of a group that has members, nor soon that of an empty one.
type Group struct {
	cmd    *exec.Cmd
	tree   *tree
	exited chan struct{} // closed after the leader was waited for
}

// Start starts cmd as the leader of a new session, and so of a group. The owner must
// call Stop before it drops the group.
func Start(cmd *exec.Cmd) (*Group, error) {
	if err := theGuard.ready(); err != nil { // the guard also finds processes by their marks
		return nil, err
	}
	mark := markName + "=" + strconv.FormatUint(groups.Add(1), 10)
	cmd.SysProcAttr = groupAttr(cmd.SysProcAttr)
	marks := slices.DeleteFunc(os.Environ(), func(entry string) bool { return !strings.HasPrefix(entry, markPrefix) })
	cmd.Env = slices.Concat([]string{mark}, marks, cmd.Environ()) // the mark comes first, so that it is found soonest
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd, tree: newTree(cmd.Process, mark), exited: make(chan struct{})}
	go func() { // ends with the leader
		_ = cmd.Wait() // its result is in cmd.ProcessState
		close(g.exited)
	}()
	if err := theGuard.watch(g.ID()); err != nil {
		g.Stop(0, nil)
		return nil, err
	}
	return g, nil
}

// ID returns the leader's process id, which is also that of the group.
func (g *Group) ID() int { return g.cmd.Process.Pid }

// Exited is closed when the leader has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Stop asks every process of the group to end, and kills the rest after grace,
// or when hurry is closed. Without grace it kills at once. It returns when the
// leader was waited for and the group is empty; see killDelay for a killed
// group.
func (g *Group) Stop(grace time.Duration, hurry <-chan struct{}) {
	if grace > 0 && g.tree.terminate() {
		within(grace, hurry, g.tree.lives)
	}
	within(killDelay, nil, g.tree.killUntilGone())
	<-g.exited
	theGuard.forget(g.ID())
}

// within calls left at growing intervals until it returns false, limit has
// passed or hurry is closed.
func within(limit time.Duration, hurry <-chan struct{}, left func() bool) {
	late := time.After(limit)
	for poll := minPoll; left(); poll = min(2*poll, maxPoll) {
		select {
		case <-time.After(poll):
		case <-late:
			return
		case <-hurry:
			return
		}
	}
}

// Kill kills every process of the group. It does not wait. Stop must still be
// called, because a process may just have started another.
func (g *Group) Kill() { g.tree.kill() }

// markPrefix begins the name of the variable that marks the processes of a server. A
// server that runs in a command of another keeps the other's mark, so that both find
// their processes.
const markPrefix = "MAESTRO_CHILD_"

var (
	markName = markPrefix + rand.Text()[:12]
	groups   atomic.Uint64 // number of groups started
)
