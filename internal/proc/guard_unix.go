//go:build unix

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is what the guard is called, in place of a program's path.
const guardName = "maestro-guard"

const (
	// guardPatience bounds how long the guard looks for processes.
	guardPatience = 5 * time.Second

	// tellDelay is how long the guard may leave lines unread, before it is taken
	// for stopped and another is started in its place.
	tellDelay = time.Second
)

// The guard is this program once more, so it has to be told apart before main
// runs, in every program that starts processes.
func init() {
	if len(os.Args) == 3 && os.Args[0] == guardName {
		guardMain(os.Args[1])
		os.Exit(0)
	}
}

// A guard is a process that does nothing until the server has died, and then
// kills what the server's groups have left. It learns of the death by the end of
// a pipe, which the kernel brings about in any case, and it is in a session of
// its own, so that no signal meant for the server reaches it.
//
// It is started with the first group, and once more should it be gone.
type guard struct {
	mu     sync.Mutex
	pipe   *os.File    // a line "+id" for each group that starts, "-id" for each that is empty
	proc   *os.Process // nil before the first group
	groups map[int]bool
}

var theGuard = guard{groups: make(map[int]bool)} // of this process; there is one server in it

// ready sees to it that there is a guard.
func (g *guard) ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc != nil && g.proc.Signal(unix.SIGCONT) == nil && g.tell("") == nil { // somebody may have stopped it
		return nil
	}
	return g.start()
}

// watch has the guard kill a group, should the server die.
func (g *guard) watch(id int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[id] = true
	if g.tell("+"+strconv.Itoa(id)) == nil {
		return nil
	}
	return g.start()
}

// forget says that a group is empty.
func (g *guard) forget(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, id)
	_ = g.tell("-" + strconv.Itoa(id)) // a guard that is gone has nothing to forget
}

// tell writes a line, which fails if the guard is gone or does not read. The
// caller holds g.mu.
func (g *guard) tell(line string) error {
	if err := g.pipe.SetWriteDeadline(time.Now().Add(tellDelay)); err != nil {
		return err
	}
	_, err := g.pipe.WriteString(line + "\n")
	return err
}

// start starts the guard, in the place of one that is gone. The caller holds
// g.mu.
func (g *guard) start() error {
	g.bury()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	if runtime.GOOS == "linux" {
		program = "/proc/self/exe" // even if the file was replaced
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	defer theirs.Close()
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("start guard: %w", err), ours.Close())
	}
	defer nowhere.Close()
	g.proc, err = os.StartProcess(program, []string{guardName, markName, "of " + strconv.Itoa(os.Getpid())}, &os.ProcAttr{
		Dir: "/", Env: []string{}, // of no group itself
		Files: []*os.File{theirs, nowhere, nowhere},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start guard: %w", err), ours.Close())
	}
	g.pipe = ours
	for id := range g.groups {
		if err := g.tell("+" + strconv.Itoa(id)); err != nil {
			return fmt.Errorf("start guard: %w", err)
		}
	}
	return nil
}

// bury waits for a guard that is gone. The caller holds g.mu.
func (g *guard) bury() {
	if g.proc == nil {
		return
	}
	_ = g.proc.Kill() // first: one that lives would take the end of the pipe for ours
	_, _ = g.proc.Wait()
	_ = g.pipe.Close()
	g.proc = nil
}

// Dismiss ends the guard, which kills what is left, and waits for it. A program
// that has started groups calls it when it ends in order, or the guard could wait
// for ever to be waited for: in many containers nobody else does that.
func Dismiss() { theGuard.dismiss() }

func (g *guard) dismiss() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc == nil {
		return
	}
	_ = g.pipe.Close()
	_ = g.proc.Signal(unix.SIGCONT) // somebody may have stopped it
	late := time.AfterFunc(guardPatience+killDelay, func() { _ = g.proc.Kill() })
	defer late.Stop()
	_, _ = g.proc.Wait()
	g.proc = nil
}

// guardMain is the guard's process.
func guardMain(mark string) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP)
	groups := make(map[int]bool)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() { // ends with the server
		line := lines.Text()
		id, err := strconv.Atoi(strings.TrimLeft(line, "+-"))
		if err != nil || id <= 1 {
			continue
		}
		if strings.HasPrefix(line, "+") {
			groups[id] = true
		} else {
			delete(groups, id)
		}
	}
	left := tree{leaders: groups, mark: "\x00" + mark + "="}
	within(guardPatience, nil, left.stubborn())
}
