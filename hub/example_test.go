package hub_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// A hub with the parts around it: an agent, a store, a transport and a client, which
// connects in memory. Package server does this for other programs, with credentials.
func Example() {
	ctx := context.Background()

	session, err := hub.New(hub.Options{
		SessionID: "demo",
		Cwd:       "/",
		Agent:     &shouter{},
		Store:     journal.NewMemory(journal.MemoryOptions{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := session.Start(ctx); err != nil {
		log.Fatal(err)
	}

	limiter := connlimit.New(connlimit.Options{})
	sockets, err := ws.New(ws.Options{
		ConnLimit: limiter,
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open:      func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &visit{session, att}, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	wires := make(pipes)
	go http.Serve(wires, sockets) // ends when wires closes

	talk(ctx, wires)

	// Clients first, then what they were attached to.
	if err := session.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if err := limiter.Close(ctx); err != nil {
		log.Fatal(err)
	}
	close(wires)
	// Output:
	// HELLO, WORLD
}

// talk is a client: it takes control, prompts, and prints the answer.
func talk(ctx context.Context, wires pipes) {
	c, err := client.Dial(ctx, "http://memory", client.WithRole(contracts.RoleController), client.WithDialer(wires.dial))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(false)
	if _, err := c.Prompt(ctx, "hello, world"); err != nil {
		log.Fatal(err)
	}
	for u, err := range c.Updates(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch e := u.Event.(type) {
		case *contracts.ResponseChunk:
			fmt.Print(e.Content)
		case *contracts.ResponseEnd:
			fmt.Println()
			return
		}
	}
}

// A shouter is a runtime: it says what it is told, louder.
type shouter struct {
	host contracts.Host
	runs int // prompts served; the hub asks for one at a time
}

// Start keeps the host, through which the runtime speaks.
func (s *shouter) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	s.host = host
	return contracts.AgentInfo{Model: "shouter", Provider: "example", Executor: contracts.ExecutorLive}, nil
}

// Configure would apply a system prompt.
func (s *shouter) Configure(*contracts.Init) {}

// Run serves one prompt. The hub closes the response when it returns.
func (s *shouter) Run(ctx context.Context, work contracts.Work) error {
	s.runs++
	id := fmt.Sprint("response-", s.runs)
	return s.host.Publish(ctx,
		&contracts.ResponseStart{ResponseID: id},
		&contracts.ResponseChunk{ResponseID: id, Content: strings.ToUpper(work.Content)},
	)
}

// Close has nothing to end.
func (s *shouter) Close(context.Context) error { return nil }

// A visit is one client's way from the transport to the session.
type visit struct {
	session *hub.Hub
	att     contracts.Attach
}

// Serve implements [ws.Session].
func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.session.Serve(ctx, conn, hub.WireEnvelope, &v.att)
}

// pipes is a net.Listener for connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (p pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
