package utility

import (
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestProcessThatLeftTheGroupEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]string{
		"to a group of its own":   "set -m; sleep 1000 &",
		"to a session of its own": "setsid sleep 1000 &",
		"as a daemon":             "setsid sh -c 'setsid sleep 1000 & exec 1<&- 2<&-' >/dev/null 2>&1 &",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, Options{Shell: "/bin/bash"}, nil)
			_, ended := r.witness("witness")
			r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; " + away})
			wantEnd(t, r.exited("c"), 0, "", "")
			r.happens("the end of the process", ended)
		})
	}
}

func TestProcessThatCannotBeFoundDoesNotHoldTheCommand(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{Shell: "/bin/bash"}, nil)
	_, ended := r.witness("witness")
	// In a session of its own and without the environment that it got.
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; " +
		"env -i setsid /bin/sh -c 'echo >away; while echo on; do sleep 0.01; done' & echo $! >id; until [ -e away ]; do sleep 0.01; done"})
	wantEnd(t, r.exited("c"), 0, "", "")
	select {
	case <-ended:
		t.Error("got the end of a process that left the group, want it to live")
	default:
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "clean", Command: "kill -KILL -$(cat id)"})
	r.happens("the end of the process", ended)
}
