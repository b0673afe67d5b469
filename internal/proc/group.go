package proc

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

const (
	// A group that was asked to end is looked at first after minPoll, then at
	// growing intervals.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// killDelay is how long a killed group has to be gone, before it is taken
	// for granted: the kernel lets go of some only when a disk answers.
	killDelay = time.Second
)

// A Group is a running command with the processes it started, as far as they
// did not leave its process group. Its methods may be called from any
// goroutine.
//
// The leader may have been waited for while others of the group live. The
// group's id is still right: no process gets the id of a group that has members,
// and as systems hand ids out in turn, that of an empty group is not seen again
// soon.
type Group struct {
	cmd    *exec.Cmd
	leader *os.Process // its id is that of the group
	tree   *tree
	exited chan struct{} // closed once the leader was waited for
}

// Start starts cmd as the leader of a session of its own, and so of a group. One
// goroutine waits for the leader and ends with it, so its owner must see Stop
// return before it lets go of the group.
func Start(cmd *exec.Cmd) (*Group, error) {
	if err := theGuard.ready(); err != nil { // it finds by their marks what it was not told of
		return nil, err
	}
	mark := markName + "=" + strconv.FormatUint(groups.Add(1), 10)
	cmd.SysProcAttr = groupAttr(cmd.SysProcAttr)
	cmd.Env = slices.Concat([]string{mark}, marks(os.Environ()), cmd.Environ()) // where it is found soonest
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd, leader: cmd.Process, tree: newTree(cmd.Process, mark), exited: make(chan struct{})}
	go func() { // ends with the leader
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(g.exited)
	}()
	if err := theGuard.watch(g.ID()); err != nil {
		g.Stop(0, nil)
		return nil, err
	}
	return g, nil
}

// ID returns the leader's process id, which is also that of the group.
func (g *Group) ID() int { return g.leader.Pid }

// Exited is closed once the leader has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Status returns the leader's exit code, or -1 and the name of the signal that
// ended it. It may be asked once Exited is closed.
func (g *Group) Status() (code int, signal string) { return exitStatus(g.cmd.ProcessState) }

// Stop asks every process of the group to end, and kills what is left of it
// after grace, or as soon as hurry is closed. Without grace it kills at once. It
// returns when the leader was waited for and the group is empty; a killed group
// is taken for empty after a moment.
func (g *Group) Stop(grace time.Duration, hurry <-chan struct{}) {
	if grace > 0 && g.tree.terminate() {
		within(grace, hurry, g.tree.lives)
	}
	within(killDelay, nil, g.tree.stubborn())
	<-g.exited
	theGuard.forget(g.ID())
}

// within asks at growing intervals whether somebody is left, until nobody is,
// limit has passed or hurry is closed.
func within(limit time.Duration, hurry <-chan struct{}, left func() bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	poll := minPoll
	look := time.NewTimer(poll)
	defer look.Stop()
	for left() {
		select {
		case <-look.C:
			poll = min(2*poll, maxPoll)
			look.Reset(poll)
		case <-late.C:
			return
		case <-hurry:
			return
		}
	}
}

// Kill ends every process of the group at once. It does not wait for that, and
// Stop has still to see to what they were just starting.
func (g *Group) Kill() { g.tree.kill() }
