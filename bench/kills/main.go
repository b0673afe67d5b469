// Command kills proves that a killed server loses nothing.
//
// It starts the built program, attaches followers, streams events and kills the
// server in mid-stream, again and again on the same state directory and port.
// After each kill it holds what every follower was shown against what the
// others were shown and against the journal as a newcomer reads it: no entry may
// be missing, shown twice or changed. Questions that wait for an answer during a
// kill have to be there afterwards, and to be answered once.
//
// It ends with status 1 unless nothing at all was found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A plan is what the command line asks for.
type plan struct {
	binary    string
	kills     int
	followers int // through package client; one of them controls
	events    int // of one stream
	seed      uint64
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kills:", err)
		os.Exit(1)
	}
}

func run() error {
	var p plan
	flag.StringVar(&p.binary, "binary", "bin/maestro", "program to kill")
	flag.IntVar(&p.kills, "kills", 100, "how often to kill it")
	flag.IntVar(&p.followers, "followers", 4, "followers through the Go client; one that keeps its own cursor comes on top")
	flag.IntVar(&p.events, "events", 10_000, "events of one stream")
	flag.Uint64Var(&p.seed, "seed", rand.Uint64(), "where the random moments come from")
	limit := flag.Duration("timeout", 20*time.Minute, "give up after this time")
	flag.Parse()
	if flag.NArg() > 0 || p.kills < 1 || p.followers < 1 || p.events < 10 {
		flag.Usage()
		return errors.New("there are no arguments; at least 1 kill, 1 follower and 10 events")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %v", *limit))
	defer cancel()

	fmt.Printf("seed %d\n", p.seed)
	t, err := newTrial(p)
	if err != nil {
		return err
	}
	err = errors.Join(t.run(ctx), t.close())
	fmt.Println(t.summary())
	if err == nil && !t.clean() {
		err = errors.New("the server lost, repeated or changed something")
	}
	return err
}
