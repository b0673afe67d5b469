// Command drains proves that a hosted session can be moved while it is in use.
//
// It starts the built program as a hosted runner and loads it: two hundred
// viewers, half on event streams and half on WebSockets, a running prompt, three
// open questions and two commands. It drains the runner, moves the workspace,
// restores the session in a second runner, and has every viewer come back with
// the cursor it had. Nobody may have missed, seen twice or seen differently what
// another was shown; the manifest has to be whole; the commands have to be dead;
// and the questions have to wait, or to have been cancelled, as the runner was
// told.
//
// It ends with status 1 unless nothing at all was found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// A plan is what the command line asks for.
type plan struct {
	binary  string
	loops   int
	viewers int
	bound   time.Duration // of one drain
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "drains:", err)
		os.Exit(1)
	}
}

func run() error {
	var p plan
	flag.StringVar(&p.binary, "binary", "bin/maestro", "program to drain")
	flag.IntVar(&p.loops, "loops", 20, "how often to move a session")
	flag.IntVar(&p.viewers, "viewers", 200, "viewers of each session")
	flag.DurationVar(&p.bound, "bound", 5*time.Second, "how long a drain may take")
	limit := flag.Duration("timeout", 20*time.Minute, "give up after this time")
	flag.Parse()
	if flag.NArg() > 0 || p.loops < 1 || p.viewers < 2 {
		flag.Usage()
		return errors.New("there are no arguments; at least 1 loop and 2 viewers")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %v", *limit))
	defer cancel()

	var took []time.Duration
	faults := 0
	for i := range p.loops {
		t := &trial{plan: p, keep: i%2 == 0}
		err := errors.Join(t.run(ctx), t.close())
		for _, f := range t.faults {
			fmt.Println("  fault:", f)
		}
		faults += len(t.faults)
		took = append(took, t.took)
		fmt.Printf("%2d: %s, %d viewers saw %d deliveries up to cursor %d, drained in %v, resumed in %v: %d faults\n",
			i+1, t.mode(), p.viewers, t.delivered, t.final, t.took.Round(time.Millisecond), t.resumed.Round(time.Millisecond), len(t.faults))
		if err != nil {
			return fmt.Errorf("loop %d: %w", i+1, err)
		}
	}
	slices.Sort(took)
	fmt.Printf("%d drains of %d viewers: %d faults; drained in %v (median), %v (longest)\n",
		p.loops, p.viewers, faults, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	if faults > 0 {
		return errors.New("something was lost, repeated, changed or left behind")
	}
	return nil
}
