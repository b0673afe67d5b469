//go:build unix

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is the guard's name in place of a program path.
const guardName = "maestro-guard"

const (
	guardPatience = 5 * time.Second // bounds how long the guard looks for processes
	tellDelay     = time.Second     // to read a line; a slower guard counts as stopped, and another is started
)

// The guard runs this program again, so every program that starts processes
// must recognize it before main runs.
func init() {
	if len(os.Args) == 3 && os.Args[0] == guardName {
		guardMain(os.Args[1])
		os.Exit(0)
	}
}

// A guard is a process that kills what is left of the server's groups after the
// server has died, which the end of a pipe tells it. It is in its own session, so
// that no signal for the server reaches it. It is started with the first group, and
// again if it has gone.
type guard struct {
	mu     sync.Mutex
	pipe   *os.File    // a line "+id" for each group that starts, "-id" for each that is empty
	proc   *os.Process // nil before the first group
	groups map[int]bool
}

var theGuard = guard{groups: make(map[int]bool)} // one for this process

// ready starts the guard unless it runs.
func (g *guard) ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc != nil && g.proc.Signal(unix.SIGCONT) == nil && g.tell("") == nil { // SIGCONT, because the guard may have been stopped
		return nil
	}
	return g.start()
}

// watch makes the guard kill a group if the server dies.
func (g *guard) watch(id int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[id] = true
	if g.tell("+"+strconv.Itoa(id)) == nil {
		return nil
	}
	return g.start()
}

// forget tells the guard that a group is empty.
func (g *guard) forget(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, id)
	_ = g.tell("-" + strconv.Itoa(id)) // a guard that has gone needs no update
}

// tell writes a line. It fails if the guard has gone or does not read. The
// caller holds g.mu.
func (g *guard) tell(line string) error {
	if err := g.pipe.SetWriteDeadline(time.Now().Add(tellDelay)); err != nil {
		return err
	}
	_, err := g.pipe.WriteString(line + "\n")
	return err
}

// start starts the guard, in place of a former one. The caller holds g.mu.
func (g *guard) start() error {
	g.reap()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	if runtime.GOOS == "linux" {
		program = "/proc/self/exe" // also valid if the file was replaced
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Cmd{
		Path: program, Args: []string{guardName, markName, "of " + strconv.Itoa(os.Getpid())},
		Dir: "/", Env: []string{}, // without a mark, so that it belongs to no group
		Stdin: theirs, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start guard: %w", err), ours.Close())
	}
	g.proc = cmd.Process
	g.pipe = ours
	for id := range g.groups {
		if err := g.tell("+" + strconv.Itoa(id)); err != nil {
			return fmt.Errorf("start guard: %w", err)
		}
	}
	return nil
}

// reap kills a former guard and waits for it. The caller holds g.mu.
func (g *guard) reap() {
	if g.proc == nil {
		return
	}
	_ = g.proc.Kill() // before the pipe is closed, because a live guard would take that for the server's death
	_, _ = g.proc.Wait()
	_ = g.pipe.Close()
	g.proc = nil
}

// Dismiss ends the guard, which kills the remaining processes, and waits for it. A
// program that has started groups must call it before a normal end, because in many
// containers nothing else waits for the guard.
func Dismiss() {
	g := &theGuard
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc == nil {
		return
	}
	_ = g.pipe.Close()
	_ = g.proc.Signal(unix.SIGCONT) // the guard may have been stopped
	late := time.AfterFunc(guardPatience+killDelay, func() { _ = g.proc.Kill() })
	defer late.Stop()
	_, _ = g.proc.Wait()
	g.proc = nil
}

// guardMain runs in the guard's process.
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
	within(guardPatience, nil, left.killUntilGone())
}
