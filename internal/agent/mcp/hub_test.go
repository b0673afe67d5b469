package mcp

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// A caller is a runtime whose prompts are names of tools.
type caller struct {
	server Server
	dir    string
	host   contracts.Host
	set    *Set
}

func (c *caller) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	c.host = host
	c.set = Open(Options{Servers: []Server{c.server}, Dir: c.dir, Host: host})
	for _, l := range c.set.links {
		_, _ = l.connected(ctx) // the session shows how it went
	}
	return contracts.AgentInfo{Model: "caller", Provider: "test", Executor: contracts.ExecutorLive, Requests: []contracts.RequestType{contracts.RequestMCPElicitation}}, nil
}

func (c *caller) Configure(*contracts.Init) {}

func (c *caller) Run(ctx context.Context, work contracts.Work) error {
	res, err := c.set.Call(ctx, work.Content, nil, nil)
	if err != nil {
		return err
	}
	return c.host.Publish(ctx, &contracts.ResponseStart{ResponseID: "r"}, &contracts.ResponseChunk{ResponseID: "r", Content: res.Text})
}

func (c *caller) Close(context.Context) error {
	c.set.Close()
	return nil
}

// A visit is a client's way to the session.
type visit struct {
	session *hub.Hub
	att     contracts.Attach
}

func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.session.Serve(ctx, conn, hub.WireEnvelope, &v.att)
}

// attach starts a session with a server and attaches a client as its controller,
// which can answer the given questions.
func attach(t *testing.T, server Server, answers ...contracts.RequestType) *client.Client {
	t.Helper()
	ctx := context.Background() // for the end, too
	session, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &caller{server: server, dir: t.TempDir()}, Store: journal.NewMemory(journal.MemoryOptions{})})
	hosttest.Must(t, err)
	hosttest.Must(t, session.Start(ctx))
	limiter := connlimit.New(connlimit.Options{})
	sockets, err := ws.New(ws.Options{
		ConnLimit: limiter,
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open:      func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &visit{session, att}, nil },
	})
	hosttest.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.Must(t, err)
	web := &http.Server{Handler: sockets}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }() // ends with web
	c, err := client.Dial(t.Context(), "http://"+listener.Addr().String(), client.WithRole(contracts.RoleController),
		client.WithHello(contracts.Hello{Capabilities: &contracts.Capabilities{ServerRequests: answers}}))
	hosttest.Must(t, err)
	t.Cleanup(func() {
		_ = c.Close(false)
		hosttest.Must(t, session.Close(ctx))
		hosttest.Must(t, limiter.Close(ctx))
		hosttest.Must(t, web.Close())
		<-served
	})
	return c
}

// follow prompts and returns what clients see until the run ends; act is
// called for each event.
func follow(t *testing.T, c *client.Client, prompt string, act func(contracts.Event)) (seen []contracts.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
	defer cancel()
	go func() {
		if _, err := c.Prompt(ctx, prompt); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	for u, err := range c.Updates(ctx) {
		if err != nil {
			t.Fatalf("got %v after %v, want the end of a response", err, seen)
		}
		if u.Event == nil {
			continue
		}
		seen = append(seen, u.Event)
		act(u.Event)
		failure, failed := u.Event.(*contracts.ErrorEvent)
		_, ended := u.Event.(*contracts.ResponseEnd)
		if failed && failure.ErrorType == contracts.ErrorCancelled || ended && !interrupted(seen) {
			return seen
		}
	}
	return seen
}

// interrupted reports whether a question among the events was cancelled with its
// run: then an error ends it.
func interrupted(seen []contracts.Event) bool {
	for _, ev := range seen {
		if r, ok := ev.(*contracts.ServerRequestResolved); ok && r.ResolvedBy == contracts.ResolvedByRuntime {
			return true
		}
	}
	return false
}

// ends counts the ends of calls of questions.
func ends(seen []contracts.Event) (n int) {
	for _, ev := range seen {
		if e, ok := ev.(*contracts.ToolEnd); ok && strings.HasPrefix(e.CallID, "mcp_elicitation:") {
			n++
		}
	}
	return n
}

// said returns the answer and the statuses, but for that which says that the server
// is there: it comes before or after the client.
func said(seen []contracts.Event) string {
	var b strings.Builder
	for _, ev := range seen {
		switch e := ev.(type) {
		case *contracts.ResponseChunk:
			b.WriteString(e.Content)
		case *contracts.Status:
			if !strings.HasPrefix(e.Message, "MCP servers are connected: ") {
				b.WriteString("(" + e.Message + ")")
			}
		}
	}
	return b.String()
}

func TestClientsAnswerServersThroughTheHub(t *testing.T) {
	for _, shape := range shapes {
		c := attach(t, testProgram(t, "one", "tools", revisionVariable, shape.revision), contracts.RequestMCPElicitation)
		seen := follow(t, c, shape.tool, func(ev contracts.Event) {
			if req, ok := ev.(*contracts.ServerRequest); ok {
				go func() {
					if _, err := c.Send(t.Context(), &contracts.ServerRequestResponse{
						RequestID: req.RequestID, RequestType: req.RequestType,
						Content: []contracts.ContentBlock{{Type: "text", Text: `{"action":"accept","content":{"name":"Ada"}}`}},
					}); err != nil {
						t.Error(err)
					}
				}()
			}
		})
		if got := said(seen); got != shape.prefix+"accept map[name:Ada]" || ends(seen) != 1 {
			t.Errorf("%v: got %q, %d ends of the question; want the answer and one", shape, got, ends(seen))
		}
	}
}

func TestQuestionsEndOnceWithTheirRun(t *testing.T) {
	for _, shape := range shapes {
		c := attach(t, testProgram(t, "one", "tools", revisionVariable, shape.revision), contracts.RequestMCPElicitation)
		seen := follow(t, c, shape.tool, func(ev contracts.Event) {
			if _, ok := ev.(*contracts.ServerRequest); ok {
				go func() {
					if _, err := c.Interrupt(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
		})
		if !interrupted(seen) || ends(seen) != 1 {
			t.Errorf("%v: got %d ends of the question, want one", shape, ends(seen))
		}
	}
}

func TestControllersThatCannotAnswerAreNotAsked(t *testing.T) {
	for _, shape := range shapes {
		c := attach(t, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		seen := follow(t, c, shape.tool, func(contracts.Event) {})
		if got := said(seen); !strings.Contains(got, shape.prefix+"cancel map[]") || !strings.Contains(got, "(The controlling client cannot answer mcp_elicitation requests)") ||
			!strings.Contains(got, `(MCP server "one" asked for input and was told that it is cancelled: The controlling client cannot answer`) || ends(seen) != 0 {
			t.Errorf("%v: got %q, %d ends; want that it was cancelled, aloud, and no question", shape, got, ends(seen))
		}
	}
}
