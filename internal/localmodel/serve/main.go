// Serve runs the local model server for trying agents by hand.
//
//	go run ./internal/localmodel/serve [--listen 127.0.0.1:9911] [--script FILE] [--pause 30ms]
//
// It prints its URL once it listens and ends when it is interrupted.
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

	"github.com/seed-028515a8/maestro/internal/localmodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends, and returns once nothing of it runs any more.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:9911", "address to listen on")
	script := flags.String("script", "", "file with what is answered; without it prompts say so themselves")
	pause := flags.Duration("pause", 0, "time between two events of a stream")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options := localmodel.Options{Pause: *pause, Log: slog.New(slog.NewTextHandler(stderr, nil))}
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
