//go:build unix

package proc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serverLine is the environment variable that makes this program a server with
// one group, which runs the line.
const serverLine = "CHILD_TEST_LINE"

// serve starts the group. Its output is that of the server.
func serve(line string) {
	cmd := ShellCommand("/bin/sh", line)
	cmd.Stdout = os.Stdout
	if os.Getenv("CHILD_TEST_GUARD") == "killed" { // once before, which the next group finds out
		first := exec.Command("true")
		if g, err := Start(first); err == nil {
			g.Stop(0, nil)
		}
		_ = theGuard.proc.Kill()
		_, _ = theGuard.proc.Wait()
	}
	if _, err := Start(cmd); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// Everything that has the server's output open has to end: the command and what
// it started, wherever that has gone.
func TestNothingIsLeftOfAServerThatWasKilled(t *testing.T) {
	t.Parallel()
	lines := map[string]string{
		"a command":          "echo ready; exec sleep 1000",
		"its background":     "sleep 1000 & (trap '' TERM; sleep 1000) & echo ready; wait",
		"after the command":  "sleep 1000 & (sleep 1000 & echo ready) & exit",
		"deaf to hanging up": "trap '' HUP TERM INT; (while :; do sleep 1; done) & echo ready; while :; do sleep 1; done",
	}
	if runtime.GOOS == "linux" {
		lines["a daemon"] = "setsid sh -c 'setsid sleep 1000 & echo ready' & wait"
		lines["without an environment"] = "(env -i sleep 1000) & echo ready; wait"
	}
	for name, line := range lines {
		for _, guard := range []string{"", "killed"} {
			t.Run(name+guard, func(t *testing.T) {
				t.Parallel()
				server := exec.Command(os.Args[0])
				server.Env = append(os.Environ(), serverLine+"="+line, "CHILD_TEST_GUARD="+guard)
				server.Stderr = os.Stderr
				pipe, err := server.StdoutPipe()
				if err == nil {
					err = server.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				out := bufio.NewReader(pipe)
				if said, err := out.ReadString('\n'); err != nil || said != "ready\n" {
					t.Errorf("got %q, %v; want a server that is ready", said, err)
				}
				if err := server.Process.Signal(unix.SIGKILL); err != nil {
					t.Error(err)
				}
				late := time.AfterFunc(patience, func() { _ = pipe.Close() })
				if _, err := io.Copy(io.Discard, out); err != nil {
					t.Errorf("got %v, want that everything ends", err)
				}
				if !late.Stop() {
					t.Error("got processes that live on, want none")
				}
				_ = server.Wait() // it was killed
			})
		}
	}
}

func TestNoGuardIsLeftOfAServerThatEnded(t *testing.T) {
	g, err := Start(exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	g.Stop(0, nil)
	guard := theGuard.proc.Pid
	Dismiss()
	if err := unix.Kill(guard, 0); err != unix.ESRCH {
		t.Errorf("got %v for the guard's process, want none", err)
	}
	if g, err = Start(exec.Command("true")); err != nil { // it is not too late for more
		t.Fatal(err)
	}
	g.Stop(0, nil)
}

// Whoever may run commands may stop the guard: that holds up neither the end of
// the server nor more commands.
func TestStoppedGuardGoesOn(t *testing.T) {
	for range 3 {
		g, err := Start(exec.Command("true"))
		if err != nil {
			t.Fatal(err)
		}
		g.Stop(0, nil)
		if err := theGuard.proc.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	go func() { // ends with the guard
		defer close(ended)
		Dismiss()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("got a guard that is waited for, want its end")
	}
}
