package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestProcessThatCannotBeFoundDoesNotHoldTheRun(t *testing.T) {
	t.Parallel()
	path, _, ended := hosttest.Witness(t)
	ids := filepath.Join(t.TempDir(), "ids")
	// In a session of its own and without the environment that it got.
	c := Command{
		Shell: "/bin/bash", Dir: t.TempDir(), Env: os.Environ(),
		Line: "exec 3>" + path + "; echo >&3; env -i setsid /bin/sh -c 'echo >away; exec sleep 1000' & echo $! >" + ids + "; until [ -e away ]; do sleep 0.01; done",
	}
	e, err := c.Run(t.Context(), func(string) error { return nil })
	if err != nil || !e.Success() {
		t.Errorf("got %+v, %v; want success", e, err)
	}
	select {
	case <-ended:
		t.Error("got the end of a process that left the group, want it to live")
	default:
	}
	if _, _, err := collect(t, t.Context(), "kill -KILL $(cat "+ids+")"); err != nil {
		t.Fatal(err)
	}
	hosttest.Happens(t, "the end of the process", ended)
}
