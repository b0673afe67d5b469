package editor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/journal"
	"github.com/seed-028515a8/maestro/transport/door"
	"github.com/seed-028515a8/maestro/transport/ws"
)

// A talker asks for approval and then talks until it is told to stop.
type talker struct {
	host contracts.Host
	more chan string // what it says next
	over chan error  // 1-buffered; how its run ended
}

func (a *talker) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	a.host = host
	return contracts.AgentInfo{Model: "m", Provider: "p", Requests: []contracts.RequestType{contracts.RequestApproval}}, nil
}
func (a *talker) Configure(*contracts.Init)   {}
func (a *talker) Close(context.Context) error { return nil }

func (a *talker) Run(ctx context.Context, _ contracts.Work) (err error) {
	defer func() { a.over <- err }()
	if err := a.host.Publish(ctx, &contracts.ResponseStart{ResponseID: "r"}); err != nil {
		return err
	}
	for {
		select {
		case text, open := <-a.more:
			if !open {
				_, err := a.host.Ask(ctx, &contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, CallID: "q", Tool: "bash", Args: []byte(`{}`)}, contracts.AskOptions{})
				return err
			}
			if err := a.host.Publish(ctx, &contracts.ResponseChunk{ResponseID: "r", Content: text}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type visit struct {
	hub *hub.Hub
	att contracts.Attach
}

func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.hub.Serve(ctx, conn, hub.WireEnvelope, &v.att)
}

// talks starts a server with one session, in dir. It ends with the test, and
// leaves nothing.
func talks(t *testing.T, dir string) (*talker, *hub.Hub, Server) {
	t.Helper()
	a := &talker{more: make(chan string), over: make(chan error, 1)}
	h, err := hub.New(hub.Options{SessionID: "s", Cwd: dir, Agent: a, Store: journal.NewMemory(journal.MemoryOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	entrance := door.New(0)
	sockets, err := ws.New(ws.Options{
		Door:      entrance,
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open:      func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &visit{h, att}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sockets)
	t.Cleanup(func() {
		if err := errors.Join(h.Close(context.Background()), entrance.Close(context.Background())); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return a, h, Server{URL: server.URL, Workspace: dir}
}

const (
	load   = `{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`
	prompt = `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go"}]}}`
)

// until reads lines until one has want in it.
func (d *desk) until(want string) {
	d.t.Helper()
	for !strings.Contains(d.hears(), want) {
	}
}

// TestRunsGoOnWithoutTheEditor closes the editor's output in the middle of an
// answer. The run goes on, and nothing of the editor is left.
func TestRunsGoOnWithoutTheEditor(t *testing.T) {
	a, h, server := talks(t, "/")
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	if _, err := io.WriteString(d.in, load+"\n"); err != nil {
		t.Fatal(err)
	}
	d.until(`"id":1,"result"`)
	d.until("available_commands_update")
	if _, err := io.WriteString(d.in, prompt+"\n"); err != nil {
		t.Fatal(err)
	}
	a.more <- "half"
	d.until("half")
	if err := d.in.Close(); err != nil {
		t.Fatal(err)
	}
	d.until(`"id":2,"error"`) // nothing more will come
	if err := <-d.ended; err != nil {
		t.Errorf("got %v, want nothing", err)
	}
	d.ended <- nil // for the end of the test
	a.more <- "the other half"
	if got := h.Summary(); !got.Responding || got.Connections != 0 {
		t.Errorf("got %+v, want a run that goes on and nobody attached", got)
	}
}

// TestEndOfServeEndsEverything ends the context while a question waits at the
// editor.
func TestEndOfServeEndsEverything(t *testing.T) {
	a, _, server := talks(t, "/")
	in, toPeer := io.Pipe()
	fromPeer, out := io.Pipe()
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- Serve(ctx, in, out, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
		_ = out.Close()
	}()
	d := &desk{t: t, in: toPeer, out: bufio.NewReader(fromPeer)}
	d.says(hello)
	if _, err := io.WriteString(d.in, load+"\n"); err != nil {
		t.Fatal(err)
	}
	d.until("available_commands_update")
	if _, err := io.WriteString(d.in, prompt+"\n"); err != nil {
		t.Fatal(err)
	}
	close(a.more)
	d.until("session/request_permission")
	why := errors.New("a signal")
	stop(why)
	for {
		if _, err := d.out.ReadString('\n'); err != nil {
			break
		}
	}
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	_ = toPeer.Close()
}
