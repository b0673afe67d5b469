package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// Exit codes.
const (
	exitPassed = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program. When ctx ends, the scenario under way fails and no other
// begins.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("adapter", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("run", "", "play only the scenarios whose names match this expression")
	timeout := flags.Duration("timeout", 30*time.Second, "how long one scenario may take")
	if len(args) > 0 && args[0] == "--" {
		args = args[1:] // go run passes it on
	}
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	filter, err := regexp.Compile(*only)
	if err != nil || flags.NArg() == 0 {
		say(errs, "usage: adapter [-run REGEXP] [-timeout DURATION] -- COMMAND [ARGUMENT...]\n")
		return exitUsage
	}
	played, failed := 0, 0
	for i, sc := range scenarios() {
		if !filter.MatchString(sc.name) || ctx.Err() != nil {
			continue
		}
		played++
		started := time.Now()
		s := newStage(ctx, flags.Args(), *timeout)
		err := s.play(sc)
		took := time.Since(started).Round(time.Millisecond)
		if err == nil {
			say(out, "ok    %d %-13s %s (%s)\n", i+1, sc.name, sc.title, took)
			continue
		}
		failed++
		say(out, "FAIL  %d %-13s %s (%s)\n      %v\n", i+1, sc.name, sc.title, took, err)
		for _, line := range s.trace.lines() {
			say(out, "      | %s\n", line)
		}
	}
	say(out, "%d of %d scenarios passed\n", played-failed, played)
	if failed > 0 || played == 0 || ctx.Err() != nil {
		return exitFailed
	}
	return exitPassed
}

// say prints. A reader of the report that has gone needs none.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
