//go:build unix

package mcp

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestNothingIsLeftOfAClosedSet(t *testing.T) {
	t.Parallel()
	file, written, ended := hosttest.Witness(t)
	witness := newWitness(t)
	s := Open(Options{Dir: t.TempDir(), Host: testHost{newHost(t)}, Servers: []Server{
		testProgram(t, "one", "tools", witnessVariable, file), testProgram(t, "two", "tools", witnessVariable, witness.address),
	}})
	reach(t, s)
	says(t, must(t, s, "mcp__one__spawn", ""), "spawned")
	hosttest.Happens(t, "the child of the server writes", written)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Call(t.Context(), "mcp__two__hang", nil, nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v, want that the set was closed", err)
		}
	})
	witness.saw(t, "hangs")
	pipes := []*pipe{s.links[0].session.pipe, s.links[1].session.pipe}
	s.Close()
	for _, p := range pipes {
		select {
		case <-p.Done():
		default:
			t.Error("got a program that has not ended, want none after Close")
		}
	}
	hosttest.Happens(t, "what the server started ends", ended)
	wg.Wait()
	if _, err := s.Call(t.Context(), "mcp__one__echo", nil, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
	s.Close() // nothing is left to close
}

func TestWhatProgramsTellPeopleIsLoggedWithinBounds(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := t.TempDir()
	server := testProgram(t, "one", "tools")
	server.Command, server.Args = "/bin/sh", []string{"-c", `i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; exec "$0"`, testBinary(t)}
	s := open(t, nil, Options{Dir: dir, Log: log}, server)
	must(t, s, "mcp__one__echo", `{"text":"x"}`)
	s.Close()
	if got := strings.Count(buf.String(), "stderr="); got == 0 || got > 100 {
		t.Errorf("got %d lines, want some and at most 100", got)
	}
	if !strings.Contains(buf.String(), `mcp_server=one stderr="line 0"`) {
		t.Errorf("got %.200s, want the first line", buf.String())
	}
}
