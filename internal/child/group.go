package child

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

const (
	// A group that was asked to end is looked at first after minPoll, then at
	// growing intervals.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// killDelay is how long a killed group has to be gone, before it is taken
	// for granted.
	killDelay = 100 * time.Millisecond
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
	leader *os.Process   // its id is that of the group
	exited chan struct{} // closed once the leader was waited for
}

// Start starts cmd as the leader of a group of its own. One goroutine waits for
// the leader and ends with it, so its owner must see Exited closed, which Kill
// brings about, before it lets go of the group.
func Start(cmd *exec.Cmd) (*Group, error) {
	g := &Group{cmd: cmd, exited: make(chan struct{})}
	cmd.SysProcAttr = groupAttr(cmd.SysProcAttr)
	started := make(chan error)
	go func() { // ends with the leader
		// Linux kills the leader when the thread that started it ends, so the
		// thread must live as long as the leader does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
			close(g.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	g.leader = cmd.Process
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
	if grace <= 0 || terminateGroup(g.leader) && !g.emptyWithin(grace, hurry) {
		g.Kill()
		g.emptyWithin(killDelay, nil)
	}
	<-g.exited
	reapGroup(g.leader)
}

// emptyWithin reports whether the group became empty before limit had passed or
// hurry was closed.
func (g *Group) emptyWithin(limit time.Duration, hurry <-chan struct{}) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	poll := minPoll
	look := time.NewTimer(poll)
	defer look.Stop()
	for groupLives(g.leader) {
		select {
		case <-look.C:
			poll = min(2*poll, maxPoll)
			look.Reset(poll)
		case <-late.C:
			return false
		case <-hurry:
			return false
		}
	}
	return true
}

// Kill ends every process of the group at once. It does not wait for that.
func (g *Group) Kill() { killGroup(g.leader) }
