// Command peers is the other side of bench: other people's ways to send one
// stream of messages to many viewers, each set up as its own documentation
// advises for broadcast, and raw TCP as the floor.
//
// It is a module of its own so that what is only compared with is no dependency
// of maestro. bench builds and drives it; see package control.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/bench/control"
)

// A design builds a server that accepts viewers on ln. messages is how many
// will be published at most.
type design func(ln net.Listener, messages int) (*control.Server, error)

var designs = map[string]design{
	"naive":   startNaive,
	"gorilla": startGorilla,
	"gws":     startGWS,
	"melody":  startMelody,
	"nats":    startNATS,
	"sse":     startSSE,
	"raw1":    func(ln net.Listener, n int) (*control.Server, error) { return startRaw(ln, n, 1), nil },
	"raw64":   func(ln net.Listener, n int) (*control.Server, error) { return startRaw(ln, n, 64), nil },
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("design", "naive", strings.Join(slices.Sorted(maps.Keys(designs)), " | "))
	messages := flag.Int("messages", 1024, "how many messages will be published at most")
	flag.Parse()
	start, ok := designs[*name]
	if !ok {
		return fmt.Errorf("unknown design %q", *name)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := start(ln, *messages)
	if err != nil {
		return fmt.Errorf("start %s: %w", *name, err)
	}
	return server.Serve(os.Stdin, os.Stdout)
}

// serveHTTP answers every request on ln with handler until the process ends.
func serveHTTP(ln net.Listener, handler http.HandlerFunc) {
	server := &http.Server{Handler: handler}
	go func() { // ends with the process
		if err := server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "peers: serve:", err)
		}
	}()
}
