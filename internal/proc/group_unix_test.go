//go:build unix

package proc

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it: none outlives the tests.
func TestMain(m *testing.M) {
	if line := os.Getenv(serverLine); line != "" {
		serve(line) // until it is killed
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test; it is generous because real processes
// share the machine.
const patience = 20 * time.Second

// start runs line as a group and returns once it has said so.
func start(t *testing.T, line string) *Group {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := ShellCommand("/bin/sh", line)
	cmd.Stdout = w
	g, err := Start(cmd)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		<-g.Exited()
	})
	if said, err := bufio.NewReader(r).ReadString('\n'); err != nil || said != "ready\n" {
		t.Fatalf("got %q, %v; want a group that is ready", said, err)
	}
	return g
}

func TestStoppedGroupIsEmpty(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		line   string
		grace  time.Duration
		signal string
	}{
		"obedient":      {"echo ready; exec sleep 1000", patience, "SIGTERM"},
		"family":        {"sleep 1000 & sleep 1000 & echo ready; wait", patience, "SIGTERM"},
		"deaf":          {"trap '' TERM; sleep 1000 & echo ready; while :; do sleep 1; done", 100 * time.Millisecond, "SIGKILL"},
		"without grace": {"sleep 1000 & echo ready; wait", 0, "SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, tt.line)
			began := time.Now()
			g.Stop(tt.grace, nil)
			if took := time.Since(began); took > patience/2 {
				t.Errorf("got an end after %s, want it as soon as the group is empty", took)
			}
			if code, signal := g.Status(); code != -1 || signal != tt.signal {
				t.Errorf("got code %d, signal %s; want %s", code, signal, tt.signal)
			}
			if g.tree.lives() {
				t.Error("got a group with members, want none")
			}
			g.Stop(tt.grace, nil) // nothing is left to stop
		})
	}
}

func TestHurryCutsGraceShort(t *testing.T) {
	t.Parallel()
	g := start(t, "trap '' TERM; echo ready; while :; do sleep 1; done")
	hurry := make(chan struct{})
	close(hurry)
	g.Stop(time.Hour, hurry)
	if _, signal := g.Status(); signal != "SIGKILL" {
		t.Errorf("got signal %q, want SIGKILL", signal)
	}
}

func TestProgramThatCannotStartIsAnError(t *testing.T) {
	cmd := ShellCommand("", "true")
	cmd.Dir = filepath.Join(t.TempDir(), "absent")
	if _, err := Start(cmd); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
	}
}

func TestFirstUsableShellIsTaken(t *testing.T) {
	t.Setenv("SHELL", "/bin/sh")
	for _, tt := range []struct{ preferred, want string }{
		{"", "/bin/sh"},
		{"/absent/shell", "/bin/sh"},
		{"/bin/cat", "/bin/cat"},
	} {
		if got := FindShell(tt.preferred); got != tt.want {
			t.Errorf("FindShell(%q): got %s, want %s", tt.preferred, got, tt.want)
		}
	}
}

func TestProgramsAreFoundWhereTheProcessWouldLook(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/tool", "b/tool", "b/plain"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o700)
		if strings.HasSuffix(name, "plain") {
			mode = 0o600
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	env := []string{"PATH=/nowhere", "PATH=" + strings.Join([]string{"", ".", "rel", b, a}, string(filepath.ListSeparator))}
	for name, want := range map[string]string{
		"tool": filepath.Join(b, "tool"), "./tool": filepath.Join(a, "tool"), "../b/tool": filepath.Join(b, "tool"),
		filepath.Join(b, "tool"): filepath.Join(b, "tool"), "plain": "", "../b/plain": "", "none": "", "": "",
	} {
		got, err := FindProgram(name, a, env)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := FindProgram("tool", a, nil); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without PATH: got %v, want %v", err, exec.ErrNotFound)
	}
}
