package proc

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMembersThatNobodyWaitsForAreNoMembers(t *testing.T) {
	t.Parallel()
	// The first process ends when its parent, the shell, is another program.
	g := start(t, `(until [ "$(cat /proc/$$/comm)" = sleep ]; do :; done) & echo ready; exec sleep 1000`)
	deadline := time.Now().Add(patience)
	for zombies(t, g.ID()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("got no process that ended and was not waited for, want one")
		}
		time.Sleep(time.Millisecond)
	}
	if err := unix.Kill(g.ID(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-g.Exited()
	if g.tree.lives() {
		t.Error("got a group with members, want none")
	}
}

// zombies counts the members of a group that ended and were not waited for.
func zombies(t *testing.T, group int) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-eo", "pgid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == strconv.Itoa(group) && strings.HasPrefix(f[1], "Z") {
			n++
		}
	}
	return n
}

// The first process of a container becomes the parent of all whose own is gone.
func TestStrayChildrenAreWaitedFor(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as such
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	g := start(t, "setsid sleep 1000 & (sleep 1000 &) ; echo ready; exec sleep 1000")
	g.Stop(0, nil)
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "pid=,stat=,comm=", "--ppid", strconv.Itoa(os.Getpid())).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[2] == "sleep" {
			t.Errorf("got %q of a group that was stopped, want nothing", line)
		}
	}
}

// A process that starts another in a session of its own and ends, over and over,
// is never there for long.
func TestProcessThatMovesOnIsFound(t *testing.T) {
	const hop = `$SIG{TERM} = "IGNORE"; $end = time + 30; while (time < $end) { exit if fork; POSIX::setsid() }`
	for range 5 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := ShellCommand("/bin/sh", "echo ready; exec perl -MPOSIX -e '"+hop+"'")
		cmd.Stdout = w
		g, err := Start(cmd)
		_ = w.Close()
		if err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(r)
		if said, err := out.ReadString('\n'); err != nil || said != "ready\n" {
			t.Fatalf("got %q, %v; want a group that is ready", said, err)
		}
		g.Stop(0, nil)
		if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := out.ReadByte(); err != io.EOF {
			t.Errorf("got %v of a group that was stopped, want that nobody is left", err)
		}
		_ = r.Close()
	}
}
