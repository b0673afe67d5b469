package acpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
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

// A visit is one connection to the session. What it loses goes with the
// connection, once.
type visit struct {
	hub   *hub.Hub
	att   contracts.Attach
	loses *atomic.Pointer[string] // what a frame has in it that is lost
}

func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.hub.Serve(ctx, lossy{conn, v.loses}, hub.WireEnvelope, &v.att)
}

type lossy struct {
	*ws.Conn
	loses *atomic.Pointer[string]
}

var errLost = errors.New("the connection is lost")

func (c lossy) ReadFrame() ([]byte, error) {
	frame, err := c.Conn.ReadFrame()
	if what := c.loses.Load(); err == nil && what != nil && strings.Contains(string(frame), *what) {
		c.loses.Store(nil)
		return nil, errLost
	}
	return frame, err
}

// talks starts a server with one session, in dir. It ends with the test, and
// leaves nothing.
func talks(t *testing.T, dir string) (*talker, *hub.Hub, Server) {
	a, h, server, _ := loses(t, dir, hub.Options{})
	return a, h, server
}

// loses is the same for a server whose connections can be lost.
func loses(t *testing.T, dir string, opts hub.Options) (*talker, *hub.Hub, Server, *atomic.Pointer[string]) {
	t.Helper()
	a, lost := &talker{more: make(chan string), over: make(chan error, 1)}, &atomic.Pointer[string]{}
	opts.SessionID, opts.Cwd, opts.Agent, opts.Store = "s", dir, a, journal.NewMemory(journal.MemoryOptions{})
	h, err := hub.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	limiter := connlimit.New(connlimit.Options{})
	sockets, err := ws.New(ws.Options{
		ConnLimit: limiter,
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open:      func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &visit{h, att, lost}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sockets)
	t.Cleanup(func() {
		if err := errors.Join(h.Close(context.Background()), limiter.Close(context.Background())); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return a, h, Server{URL: server.URL, Workspace: dir}, lost
}

const (
	load   = `{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`
	prompt = `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go"}]}}`
)

// until reads lines until one has want in it, and returns that.
func (d *desk) until(want string) string {
	d.t.Helper()
	for {
		if line := d.hears(); strings.Contains(line, want) {
			return line
		}
	}
}

// idOf returns the id of a message.
func idOf(t *testing.T, line string) string {
	t.Helper()
	var m struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	return string(m.ID)
}

// TestRunsGoOnWithoutTheEditor closes the editor's output in the middle of an
// answer. The run goes on, and nothing of the editor is left.
func TestRunsGoOnWithoutTheEditor(t *testing.T) {
	a, h, server := talks(t, "/")
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	d.until(`"id":1,"result"`)
	d.until("available_commands_update")
	d.writes(prompt)
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
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for late := time.After(patience); h.Summary().Connections != 0; { // the server hears of it a moment later
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("got %+v, want nobody attached", h.Summary())
		}
	}
	if got := h.Summary(); !got.Responding {
		t.Errorf("got %+v, want a run that goes on", got)
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
	d := &desk{t: t, in: toPeer, from: fromPeer, out: bufio.NewReader(fromPeer)}
	d.says(hello)
	d.writes(load)
	d.until("available_commands_update")
	d.writes(prompt)
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

// TestAnswersAreNotLost loses an answer with its connection, which the server has
// forgotten by the time the editor is back. The question is not put again.
func TestAnswersAreNotLost(t *testing.T) {
	a, _, server, lost := loses(t, "/", hub.Options{SubscriptionTTL: time.Millisecond})
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	d.until("available_commands_update")
	d.writes(prompt)
	close(a.more)
	asked := d.until("session/request_permission")
	what := "server_request_response"
	lost.Store(&what)
	d.writes(`{"jsonrpc":"2.0","id":` + idOf(t, asked) + `,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`)
	for {
		line := d.hears()
		if strings.Contains(line, "session/request_permission") {
			t.Fatalf("got %s, want the question put once", line)
		}
		if strings.Contains(line, `"stopReason":"end_turn"`) {
			return
		}
	}
}

// TestQuestionsOfOthersAreNotCancelled has the editor say "cancelled" to the
// question of a run that it did not start.
func TestQuestionsOfOthersAreNotCancelled(t *testing.T) {
	a, h, server := talks(t, "/")
	other, err := client.Dial(t.Context(), server.URL, client.WithRole(contracts.RoleController))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Prompt(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(false); err != nil {
		t.Fatal(err)
	}
	close(a.more)
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	asked := d.until("session/request_permission")
	d.writes(`{"jsonrpc":"2.0","id":` + idOf(t, asked) + `,"result":{"outcome":{"outcome":"cancelled"}}}`)
	d.until("The question waits for an answer")
	if got := h.Summary(); !got.Responding || got.Pending != 1 {
		t.Errorf("got %+v, want a run whose question waits", got)
	}
}

// TestGiantPromptsAreRefused sends more than a server takes, which would end the
// connection. The session goes on.
func TestGiantPromptsAreRefused(t *testing.T) {
	a, _, server := talks(t, "/")
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	d.until("available_commands_update")
	d.writes(strings.Replace(prompt, `"text":"go"`, `"text":"`+strings.Repeat("x", contracts.MaxSocketBytes)+`"`, 1))
	if got, want := d.hears(), `"id":2,"error":{"code":-32001,"message":"this has `; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
	// What is around a command fits beside the longest one.
	d.writes(strings.Replace(prompt, `"text":"go"`, `"text":"`+strings.Repeat("x", maxSent-100)+`"`, 1))
	a.more <- "as long as it may be"
	d.until("as long as it may be")
	close(a.more)
	asked := d.until("session/request_permission")
	d.writes(`{"jsonrpc":"2.0","id":` + idOf(t, asked) + `,"result":{"outcome":{"outcome":"selected","optionId":"reject"}}}`)
	d.until(`"stopReason":"end_turn"`)
}

// TestEditorIsToldThatTheSessionEnded ends a session while nothing goes on.
func TestEditorIsToldThatTheSessionEnded(t *testing.T) {
	_, h, server := talks(t, "/")
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	d.until("available_commands_update")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.until("Detached from this session: the session has ended")
	if got := d.says(prompt); !strings.Contains(got, "is not attached") && !strings.Contains(got, "the session has ended") {
		t.Errorf("got %s, want that there is no session any more", got)
	}
}

// TestEditorIsToldThatTheServerIsAway loses the connection with a prompt, and the
// server for a while.
func TestEditorIsToldThatTheServerIsAway(t *testing.T) {
	a, _, server, lost := loses(t, "/", hub.Options{})
	d := seat(t, Options{Open: func(context.Context, string) (Server, error) { return server, nil }})
	d.says(hello)
	d.writes(load)
	d.until("available_commands_update")
	what := `"prompt"`
	lost.Store(&what)
	d.writes(prompt)
	d.until(textAway)
	close(a.more) // the prompt is sent again by itself
	asked := d.until("session/request_permission")
	d.writes(`{"jsonrpc":"2.0","id":` + idOf(t, asked) + `,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`)
	d.until(`"stopReason":"end_turn"`)
}
