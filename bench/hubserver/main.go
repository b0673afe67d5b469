// Command hubserver is our side of bench's fan-out: the product's hub, journal
// and WebSocket transport, wired as the product wires them, with an agent that
// publishes what bench orders. What the peers do not have either is left out:
// the command line, authentication, a real agent and the disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/journal"
	"github.com/seed-028515a8/maestro/transport/ws"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hubserver:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	timeout := flag.Duration("write-timeout", contracts.DefaultWriteTimeout, "disconnect viewers that do not take a write for this long")
	profiles := flag.String("profile", "", "write profiles of processor time and heap to this folder; empty: none")
	flag.Parse()
	if *profiles != "" {
		stop, err := profile(*profiles)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	agent := &publisher{}
	h, err := hub.New(hub.Options{SessionID: "bench", Cwd: "/", Agent: agent, Store: journal.NewMemory(journal.MemoryOptions{})})
	if err != nil {
		return err
	}
	if err := h.Start(context.Background()); err != nil {
		return err
	}
	handler, err := ws.New(ws.Options{
		Authorize:  func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open:       func(_ context.Context, att contracts.Attach) (ws.Session, error) { return session{h, att}, nil },
		AttachRate: -1, // bench attaches as fast as it can

		WriteTimeout: *timeout,
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api/headless/ws", handler)
	server := &http.Server{Handler: mux}
	go func() { // ends with the process
		if err := server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "hubserver: serve:", err)
		}
	}()
	if err := agent.begin(); err != nil {
		return err
	}
	s := control.Server{Addr: ln.Addr().String(), Publish: agent.publish, Viewers: handler.Connections}
	return s.Serve(os.Stdin, os.Stdout)
}

// A session is one viewer's way from the transport to the hub.
type session struct {
	hub *hub.Hub
	att contracts.Attach
}

// Serve implements [ws.Session].
func (s session) Serve(ctx context.Context, conn *ws.Conn) error {
	return s.hub.Serve(ctx, conn, hub.WireEnvelope, s.att)
}

// A publisher is an agent that says what it is told to, in one response that
// never ends.
type publisher struct{ host contracts.Host }

func (p *publisher) begin() error {
	return p.host.Publish(context.Background(), &contracts.ResponseStart{ResponseID: control.ResponseID})
}

func (p *publisher) publish(text []byte) error {
	return p.host.Publish(context.Background(), &contracts.ResponseChunk{ResponseID: control.ResponseID, Content: string(text)})
}

// Start implements [hub.Agent].
func (p *publisher) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	p.host = host
	return contracts.AgentInfo{Model: "none", Provider: "bench", Executor: contracts.ExecutorReplay}, nil
}

// Configure implements [hub.Agent]; there is nothing to configure.
func (p *publisher) Configure(*contracts.Init) {}

// Run implements [hub.Agent]; viewers cannot prompt.
func (p *publisher) Run(context.Context, contracts.Work) error { return nil }

// Close implements [hub.Agent].
func (p *publisher) Close(context.Context) error { return nil }
