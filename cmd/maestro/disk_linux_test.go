package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// limitFiles makes the process fail to write beyond so many bytes of a file, as
// on a disk that is full, for anybody who may run the process.
func (r *running) limitFiles(bytes uint64) {
	r.t.Helper()
	if err := unix.Prlimit(r.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		r.t.Fatal(err)
	}
}

// A server whose disk is full says so, refuses, and goes on by itself each time
// there is room: with the same epoch, and with everything it has shown.
func TestServerOutlivesAFullDisk(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "conformance")
	const state = "/api/headless/sessions/main/state"
	epoch, cursor := "", uint64(0)
	for round := range 12 {
		c := r.attach(client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce), client.WithoutReconnect())
		at := connected(t, c)
		if round > 0 && at.Epoch != epoch {
			t.Errorf("round %d: got epoch %s, want %s", round, at.Epoch, epoch)
		}
		epoch = at.Epoch
		said := strings.Repeat("x", 100+round)
		accepted(t, c, &contracts.Init{SystemPrompt: &said})

		r.limitFiles(uint64(round) * 41) // some writes are short
		lost := strings.Repeat("lost ", 100)
		if _, err := c.Send(t.Context(), &contracts.Init{SystemPrompt: &lost}); err == nil {
			t.Errorf("round %d: got a command accepted that could not be kept", round)
		} else {
			r.namesNoPath(err.Error())
			if e, ok := errors.AsType[*client.CloseError](err); !ok || e.Reason != contracts.CodeRuntimeNotReady {
				t.Errorf("round %d: got %v, want runtime_not_ready, so that clients reconnect", round, err)
			}
		}
		_ = c.Close(false)
		if text := r.until("/readyz", http.StatusServiceUnavailable); !strings.Contains(text, "disk is full") {
			t.Errorf("round %d: got %s, want the reason", round, text)
		}
		if metrics := r.until("/metrics", http.StatusOK); !strings.Contains(metrics, "\nmaestro_ready 0\n") {
			t.Errorf("round %d: got no maestro_ready 0 in the metrics", round)
		}
		for range 3 {
			r.namesNoPath(r.until(state, http.StatusServiceUnavailable))
		}

		r.limitFiles(unix.RLIM_INFINITY)
		r.until("/readyz", http.StatusOK)
		if metrics := r.until("/metrics", http.StatusOK); !strings.Contains(metrics, "\nmaestro_ready 1\n") || !strings.Contains(metrics, "\nmaestro_stored_request_age_seconds 0\n") {
			t.Errorf("round %d: got no maestro_ready 1, or no age of stored questions, in the metrics", round)
		}
		snap, err := (&contracts.Decoder{}).Snapshot([]byte(r.until(state, http.StatusOK)))
		if err != nil {
			t.Fatal(err)
		}
		if snap.Cursor <= cursor || !strings.Contains(string(snap.LastInit), `"`+said+`"`) {
			t.Errorf("round %d: got cursor %d and %s, want beyond %d with what was accepted", round, snap.Cursor, snap.LastInit, cursor)
		}
		cursor = snap.Cursor
	}
	r.signal(unix.SIGTERM)
	r.ends(143)
}

func TestDoctorSaysHowToFreeADisk(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(state, ".try")); err != nil { // what wiring.TryWrite writes
		t.Fatal(err)
	}
	out, err := program(t, "doctor", "--listen", "127.0.0.1:0", "--state-dir", state).CombinedOutput()
	if got := exitCode(t, err); got != exitFailure || !strings.Contains(string(out), "no space left") || !strings.Contains(string(out), "(df, df -i): maestro sessions prune") {
		t.Errorf("got %d, want %d and how to free space in\n%s", got, exitFailure, out)
	}
}

// A hosted runner has one session, and ends with it: whoever started it starts
// the next one, which goes on.
func TestHostedRunnerEndsWithAFullDisk(t *testing.T) {
	t.Parallel()
	workspace, state := t.TempDir(), t.TempDir()
	args := []string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", workspace, "--state-dir", state, "--maestro-session-id", "s", "--auth", "off", "--agent", "conformance"}
	r := listening(t, args...)
	c := r.attach(client.WithSession("s", false), client.WithRole(contracts.RoleController), client.WithoutReconnect())
	epoch := connected(t, c).Epoch
	r.limitFiles(0)
	if _, err := c.Prompt(t.Context(), "a prompt"); err == nil {
		t.Error("got a prompt accepted, want it refused")
	}
	r.ends(exitFailure)

	r = listening(t, args...)
	c = r.attach(client.WithSession("s", false), client.WithoutReconnect())
	if got := connected(t, c).Epoch; got != epoch {
		t.Errorf("got epoch %s, want %s", got, epoch)
	}
}
