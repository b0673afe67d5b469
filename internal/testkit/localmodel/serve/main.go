// Serve runs the local model server for trying agents by hand.
//
//	go run ./internal/testkit/localmodel/serve [--listen 127.0.0.1:9911] [--script FILE] [--pause 30ms] [--quiet]
//
// It prints its URL once it listens and ends when it is interrupted. The exit code
// is 2 for wrong usage, and 1 if it cannot serve.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage): // which has been explained
		stop()
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "serve:", err)
	stop()
	os.Exit(1)
}

var errUsage = errors.New("wrong usage")

// run serves until ctx ends, and returns once nothing of it runs any more.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:9911", "address to listen on")
	script := flags.String("script", "", "file with what is answered; without it prompts say so themselves")
	pause := flags.Duration("pause", 0, "time between two events of a stream")
	quiet := flags.Bool("quiet", false, "do not log requests")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(stderr, "too many arguments: %q\n", flags.Args())
		flags.Usage()
		return errUsage
	}
	options := localmodel.Options{Pause: *pause}
	if !*quiet {
		options.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if *script != "" {
		var err error
		if options.Script, err = localmodel.LoadScript(*script); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: localmodel.New(options), ReadHeaderTimeout: 10 * time.Second}
	if _, err := fmt.Fprintf(stdout, "http://%s\n", listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with the Close below
	select {
	case err = <-served:
	case <-ctx.Done():
		err = errors.Join(server.Close(), <-served) // replies that hang do not end by themselves
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
