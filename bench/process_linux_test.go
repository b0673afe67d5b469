package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

// TestMain lets the test binary play a server.
func TestMain(m *testing.M) {
	switch os.Getenv("BENCH_TEST_SERVER") {
	case "good":
		s := control.Server{Addr: "127.0.0.1:1", Publish: func([]byte) error { return nil }, Viewers: func() int { return 3 }}
		if err := s.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case "broken":
		fmt.Fprintln(os.Stderr, "port is taken")
		os.Exit(1)
	case "deaf":
		fmt.Println(`{"addr":"127.0.0.1:1"}`)
		select {} // until killed
	}
	os.Exit(m.Run())
}

func play(t *testing.T, ctx context.Context, role string) (*server, error) {
	t.Setenv("BENCH_TEST_SERVER", role)
	return launchControlled(ctx, plainDialect, os.Args[0])
}

// gone reports whether a process that was waited for has ended.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestServerObeysAndEndsWithItsInput(t *testing.T) {
	s, err := play(t, t.Context(), "good")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.registered(t.Context(), 3); err != nil {
		t.Errorf("registered: got %v, want nil", err)
	}
	if rep, err := s.ask("dance"); err == nil {
		t.Errorf("unknown order: got %+v, want an error", rep)
	}
	if cpu, err := cpuTime(s.pid); err != nil || cpu <= 0 {
		t.Errorf("processor time of a server: got %v, %v; want more than 0", cpu, err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("stop: got %v, want nil", err)
	}
	if !gone(s.pid) {
		t.Errorf("process %d is still there after stop", s.pid)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	if _, err := play(t, t.Context(), "broken"); err == nil || !strings.Contains(err.Error(), "port is taken") {
		t.Errorf("launch: got %v, want the server's complaint", err)
	}
}

func TestServerIsKilledWhenTheRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := play(t, ctx, "deaf")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	began := time.Now()
	if err := s.stop(); err == nil {
		t.Errorf("stop of a killed server: got nil, want an error")
	}
	if took := time.Since(began); took >= stopTimeout {
		t.Errorf("a server was left alone for %v after the run ended", took)
	}
	if !gone(s.pid) {
		t.Errorf("process %d is still there after the run ended", s.pid)
	}
}

func TestProcessorTimeIsThatOfTheThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadTime()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for began := time.Now(); time.Since(began) < 30*time.Millisecond; {
		own++
	}
	after, err := threadTime()
	if err != nil {
		t.Fatal(err)
	}
	// The machine may have given this thread little of the 30 ms, never more.
	if used := after - before; used <= 0 || used > time.Second {
		t.Errorf("processor time of %d rounds: got %v, want between 0 and 1 s", own, used)
	}
}
