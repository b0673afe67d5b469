// Command hubserver is our side of bench's fan-out: the product's hub, journal
// and transports, wired as the product wires them, with an agent that publishes
// what bench orders. Viewers attach over WebSocket or as streams of server-sent
// events, also side by side. What the peers do not have either is left out: the
// command line, authentication, a real agent and the disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hubserver:", err)
		os.Exit(1)
	}
}

func run() error {
	timeout := flag.Duration("write-timeout", contracts.DefaultWriteTimeout, "disconnect viewers that do not take a write for this long")
	ttl := flag.Duration("subscription-ttl", contracts.DefaultSubscriptionTTL, "forget viewers on WebSockets so long after they left")
	flag.Parse()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := open(ln, *timeout, *ttl)
	if err != nil {
		return err
	}
	return s.Serve(os.Stdin, os.Stdout)
}

// open starts the session and lets viewers in on ln until the process ends.
// Those that do not take a write within timeout are disconnected, and those that
// left without a goodbye are forgotten after ttl.
func open(ln net.Listener, timeout, ttl time.Duration) (*control.Server, error) {
	agent := &publisher{}
	h, err := hub.New(hub.Options{
		SessionID: "bench", Cwd: "/", Agent: agent, Store: journal.NewMemory(journal.MemoryOptions{}), SubscriptionTTL: ttl,
	})
	if err != nil {
		return nil, err
	}
	if err := h.Start(context.Background()); err != nil {
		return nil, err
	}
	handler, err := routes(h, timeout)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler}
	go func() { // ends when the listener is closed, or with the process
		if err := server.Serve(ln); err != nil && !errors.Is(err, net.ErrClosed) {
			fmt.Fprintln(os.Stderr, "hubserver: serve:", err)
		}
	}()
	if err := agent.begin(); err != nil {
		return nil, err
	}
	return &control.Server{
		Addr: ln.Addr().String(), Publish: agent.publish,
		Viewers: func() int { return h.Summary().Connections }, // with those that have left and are not forgotten
	}, nil
}
