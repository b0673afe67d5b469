//go:build unix

package heddle

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestCloseEndsAllThatTheProgramStarted(t *testing.T) {
	fifo, written, ended := hosttest.Witness(t)
	s := newStand(t, patient, []string{"<init", initOK, "<send", "!hold " + fifo, ok, "!hang"})
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	hosttest.Must(t, s.run(t))
	hosttest.Happens(t, "the process opens the file", written)
	hosttest.Must(t, s.Close(context.Background()))
	hosttest.Happens(t, "the process ends", ended)
}

func TestCredentialsAreNotPassed(t *testing.T) {
	t.Setenv("SOME_API_KEY", "secret")
	dir := t.TempDir()
	argv := []string{"/bin/sh", "-c", `env > env.txt; exit 1`}
	a := New(program.Options{Argv: argv, Dir: dir}, Config{})
	if _, err := a.Start(t.Context(), hosttest.New(t)); err == nil {
		t.Error("got no error, want one")
	}
	text, err := os.ReadFile(filepath.Join(dir, "env.txt"))
	if err != nil || strings.Contains(string(text), "SOME_API_KEY") {
		t.Errorf("got %q, %v; want an environment without the key", text, err)
	}
}
