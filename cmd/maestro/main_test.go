package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/internal/console"
)

// scratch is a directory that all tests share.
var scratch string

// TestMain lets the test binary be the program as well, so that tests start
// real processes and the race detector watches those too.
func TestMain(m *testing.M) {
	if os.Getenv("MAESTRO_TEST_PANIC") != "" {
		attachPanicking()
	}
	if os.Getenv("MAESTRO_TEST_MAIN") != "" {
		os.Exit(run(os.Args[1:]))
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) { // as under nohup: programs that tests start would inherit that
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	flag.Parse()
	// Tests wait more than they compute.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := flag.Set(parallel.Name, strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	var err error
	if scratch, err = os.MkdirTemp("", "maestro-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // it is a temporary directory
	os.Exit(code)
}

// program is maestro with the arguments, in a workspace and with state of its
// own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "MAESTRO_TEST_MAIN=1", "XDG_STATE_HOME="+t.TempDir(), "SHELL=/bin/sh")
	cmd.WaitDelay = 0
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return e.ExitCode()
}

// codeAtEnd waits until a program ends, and returns its exit code. After patience it kills
// the program and returns -1.
func codeAtEnd(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	return exitCode(t, cmd.Wait())
}

// panicking is a client whose Next panics.
type panicking struct{ fakeDriver }

func (p *panicking) Next(context.Context) (client.Update, error) { panic("a mistake") }

// attachPanicking runs attach with a client that panics; see TestMain.
func attachPanicking() {
	mode, err := console.Open(os.Stdin, os.Stdout)
	if err != nil {
		panic(err)
	}
	a := newAttachment(&panicking{}, os.Stdout, os.Stderr, &attachFlags{}, mode.Size)
	a.mode = mode
	_ = a.run(context.Background(), os.Stdin, nil)
}
