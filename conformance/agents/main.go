package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
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

// run is the program. When ctx ends, so does everything it started.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("agents", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("only", "", "judge only the agents whose names match this expression")
	timeout := flags.Duration("timeout", 5*time.Minute, "how long everything may take")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	filter, err := regexp.Compile(*only)
	if err != nil || flags.NArg() != 1 {
		say(errs, "usage: agents [-only REGEXP] [-timeout DURATION] BINARY\n")
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := judge(ctx, flags.Arg(0), filter, out); err != nil {
		say(errs, "%v\n", err)
		return exitFailed
	}
	return exitPassed
}

// judge judges a binary with all agents, some side by side.
func judge(ctx context.Context, binary string, only *regexp.Regexp, out io.Writer) error {
	dir, err := os.MkdirTemp("", "maestro-agents-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's scratch space
	binary, err = filepath.Abs(binary)
	if err != nil {
		return err
	}
	b := &bench{binary: binary, dir: dir, out: out}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	chosen := b.candidates(only)
	if len(chosen) == 0 {
		return errors.New("no agent is called like " + only.String())
	}
	slots, failures := make(chan struct{}, sideBySide), make(chan error, len(chosen))
	var wg sync.WaitGroup
	for _, c := range chosen {
		slots <- struct{}{}
		wg.Go(func() { // ends with its runs, or with ctx
			failures <- b.judge(ctx, c)
			<-slots
		})
	}
	wg.Wait()
	close(failures)
	for failed := range failures {
		err = errors.Join(err, failed)
	}
	return err
}

// sideBySide is how many agents are judged at once: most of the time is spent
// waiting for them.
const sideBySide = 2

// say prints. A reader that has gone needs none.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
