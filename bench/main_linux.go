package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

func main() {
	// The main goroutine stays on one thread, for good. It is the one thread of
	// the viewers, whose processor time is read by thread, and the parent of
	// every server, whose life the kernel ties to that of a thread.
	runtime.LockOSThread()
	log.SetFlags(log.Ltime)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	reps := flag.Int("reps", 5, "repetitions; fewer than 5 are no basis for a verdict")
	quick := flag.Bool("quick", false, "one tiny repetition, to see that everything runs")
	only := flag.String("only", "", "regular expression: which measurements to take")
	designs := flag.String("designs", "", "regular expression: which servers to compare in fan-out, and which parts of growth to measure")
	write := flag.String("write", "", "also write the report to this file")
	limit := flag.Duration("timeout", 45*time.Minute, "give up after this time")
	flag.Parse()
	if flag.NArg() > 0 || *reps < 1 {
		flag.Usage()
		return errors.New("-reps is at least 1 and there are no arguments")
	}
	onlyRE, err1 := regexp.Compile(*only)
	designsRE, err2 := regexp.Compile(*designs)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()

	b := &bench{plan: newPlan(*reps, *quick), designs: designsRE}
	if err := b.run(ctx, onlyRE); err != nil {
		return err
	}
	fmt.Print(&b.report)
	if *write != "" {
		if err := os.WriteFile(*write, []byte(b.report.String()), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(b.voids...) // a report with holes in it is a failure
}
