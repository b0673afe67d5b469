package judge

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
	Passed = 0
	Failed = 1
	Usage  = 2 // of the program, which was wrong
)

// A Program is a command that judges what its flag -run chooses.
type Program struct {
	Name     string
	Chooses  string        // what -run says, as help
	Timeout  time.Duration // unless -timeout says another
	Bounds   string        // what it bounds, as help
	Operands string        // what follows the flags, as in a usage line
	Most     int           // operands; there is at least one

	// Judge reports whether everything passed. When ctx ends it ends soon, and so
	// does everything it started.
	Judge func(ctx context.Context, o Order) bool
}

// An Order is what a Program was told.
type Order struct {
	Filter    *regexp.Regexp // of names; matches all unless -run was given
	Timeout   time.Duration
	Operands  []string
	Out, Errs io.Writer
}

// Main runs the program until it has judged or is interrupted, and ends the
// process.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run is the program without the process, and returns its exit code.
func (p Program) Run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(errs)
	chosen := flags.String("run", "", p.Chooses)
	o := Order{Out: out, Errs: errs}
	flags.DurationVar(&o.Timeout, "timeout", p.Timeout, p.Bounds)
	if len(args) > 0 && args[0] == "--" {
		args = args[1:] // go run passes it on
	}
	if err := flags.Parse(args); err != nil {
		return Usage
	}
	var err error
	o.Operands = flags.Args()
	if o.Filter, err = regexp.Compile(*chosen); err != nil || len(o.Operands) == 0 || len(o.Operands) > p.Most {
		Say(errs, "usage: %s [-run REGEXP] [-timeout DURATION] %s\n", p.Name, p.Operands)
		return Usage
	}
	if !p.Judge(ctx, o) {
		return Failed
	}
	return Passed
}

// Say prints. A reader that has gone needs nothing.
func Say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
