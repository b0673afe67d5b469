package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestFloodsFillNothing(t *testing.T) {
	t.Parallel()
	s := open(t, nil, Options{}, testProgram(t, "one", "flood"))
	var told []string
	begun := time.Now()
	res, err := s.Call(t.Context(), "mcp__one__go", nil, func(text string) { told = append(told, text) })
	if err != nil {
		t.Fatal(err)
	}
	says(t, res, "went, 0 refused")
	if most := 2 + int(time.Since(begun)/progressPause); len(told) == 0 || len(told) > most {
		t.Errorf("got progress %d times, want it once at least and at most %d times", len(told), most)
	}
	if last := strconv.Itoa(floodRounds - 1); len(told) > 0 && told[len(told)-1] != last {
		t.Errorf("got %s as the last progress, want %s", told[len(told)-1], last)
	}
}

func TestProgramsThatAskAndDoNotReadAreGivenUp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "deaf"))
	if res, err := s.Call(t.Context(), "mcp__one__go", nil, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %+v, %v; want %v", res, err, ErrUnavailable)
	}
	awaitStatus(t, h, `MCP server "one" is gone: the program does not read its input.`)
}

// A server may report a change whenever it is asked for the list.
func TestListsThatAlwaysChangeAreListedNowAndThen(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s := open(t, nil, Options{}, testProgram(t, "one", "eager"))
	lists := 0
	for range 200 {
		res := must(t, s, "mcp__one__go", "")
		if _, err := fmt.Sscanf(res.Text, "listed %d times", &lists); err != nil {
			t.Fatalf("got %+v, %v; want how often it was listed", res, err)
		}
	}
	if most := 2 + int(time.Since(begun)/relistPause); lists > most {
		t.Errorf("got %d lists, want at most %d", lists, most)
	}
}

// A change is not missed because the server could not list its tools just then.
func TestListsThatWereNotGivenAreAskedForAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	open(t, h, Options{}, testProgram(t, "one", "unsteady"))
	awaitStatus(t, h, `MCP server "one" has other tools now, but does not list them`)
	awaitStatus(t, h, `MCP server "one" has other tools now: 1 changed (go)`)
}

// A server that says much cannot hide that it replaced what people have come to
// trust.
func TestOtherToolsAreSaidWhateverElseIs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var log bytes.Buffer // read once the set is closed
	s := open(t, h, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, testProgram(t, "one", "swap"))
	must(t, s, "mcp__one__go", "")
	awaitStatus(t, h, `MCP server "one" has other tools now: 1 changed (go)`)
	s.Close()
	told := statuses(h)
	if got := strings.Count(told, "wanted to ask the model"); got != maxStatuses {
		t.Errorf("got %d statuses, want %d", got, maxStatuses)
	}
	if strings.Count(told, "says more than is shown") != 1 {
		t.Errorf("got %q, want it said once that there is more", told)
	}
	for what, want := range map[string]int{"wanted to ask the model": maxStatuses + 10, "has other tools now": 1} {
		if got := strings.Count(log.String(), what); got != want {
			t.Errorf("got %d times %q in the log, want %d", got, what, want)
		}
	}
}

// There is an end to what even the log is told.
func TestWhatIsSaidFillsNoLog(t *testing.T) {
	var log bytes.Buffer
	set := Open(Options{Dir: t.TempDir(), Host: testHost{newHost(t)}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer set.Close()
	l := newLink(set, Server{Name: "one"})
	for range 2 * maxLogged {
		l.say("talks", nil)
	}
	if got := strings.Count(log.String(), "talks"); got != maxLogged {
		t.Errorf("got %d lines, want %d", got, maxLogged)
	}
}

// inMemory returns a session with a server in this process, which speaks a revision.
// Nothing of the session runs.
func inMemory(t *testing.T, server *sdk.Server, revision string, o Options) *session {
	t.Helper()
	set := Open(o)
	t.Cleanup(set.Close)
	s := &session{link: newLink(set, Server{Name: "one"}), changed: make(chan struct{}, 1), over: make(chan struct{})}
	s.stopping, s.stop = context.WithCancelCause(t.Context())
	s.life, s.cut = context.WithCancel(t.Context())
	ours, theirs := sdk.NewInMemoryTransports()
	_, err := server.Connect(t.Context(), theirs, nil)
	hosttest.Must(t, err)
	s.client, err = s.newClient().Connect(t.Context(), ours, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	hosttest.Must(t, err)
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

// A server that reports a change and never says which is asked less and less often.
func TestListsThatAreNeverGivenAreAskedForNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		server := sdk.NewServer(&sdk.Implementation{Name: "stubborn"}, &sdk.ServerOptions{
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
		})
		server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
				if method == "tools/list" {
					lists.Add(1)
					return nil, errors.New("not now")
				}
				return next(ctx, method, req)
			}
		})
		s := inMemory(t, server, olderRevision, Options{Dir: t.TempDir(), Host: testHost{newHost(t)}})
		go s.run() // ends when it is stopped
		s.relist()
		time.Sleep(time.Hour)
		if got, most := lists.Load(), int64(10+time.Hour/maxBackoff); got < most/2 || got > most {
			t.Errorf("got %d lists in an hour, want at most %d and half of that", got, most)
		}
		s.stop(errClosed)
		<-s.over
	})
}

func TestQuestionsAreAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sdk.NewServer(&sdk.Implementation{Name: "curious"}, nil)
		addText(server, "ask", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
			res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
			if err != nil {
				return "", err
			}
			return res.Action, nil
		})
		h := newHost(t)
		h.Answer = func(*contracts.ServerRequest) contracts.Outcome { return answeredBy(`{"action":"decline"}`) }
		s := inMemory(t, server, olderRevision, Options{Dir: t.TempDir(), Host: testHost{h}})
		ask := func(want string) {
			t.Helper()
			res, err := s.call(t.Context(), "ask", nil, func(string) {})
			hosttest.Must(t, err)
			if text, ok := res.Content[0].(*sdk.TextContent); !ok || text.Text != want {
				t.Errorf("got %+v, want %s", res.Content[0], want)
			}
		}
		for range maxAsks {
			ask(elicit.Decline)
		}
		ask(elicit.Cancel)
		awaitStatus(t, h, "told that it is cancelled: it asks too often")
		time.Sleep(quotaWindow + 1)
		ask(elicit.Decline)
	})
}

// A flooder is a server of the older revision over HTTP. flood writes the events
// that come before the answer to a call; answers to those wait until the test ends.
type flooder struct {
	flood      atomic.Pointer[func(say func(format string, args ...any))]
	open, most atomic.Int64 // answers that it was given and has not taken
	over       chan struct{}
	tools      string // instead of one
}

func (f *flooder) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if req.Method != http.MethodPost || json.NewDecoder(req.Body).Decode(&m) != nil {
		http.Error(out, "", http.StatusMethodNotAllowed)
		return
	}
	answer := func(form string) {
		out.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, form)
	}
	switch m.Method {
	case "initialize":
		answer(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"1"}}`)
	case "tools/list":
		answer(`"result":{"tools":` + cmp.Or(f.tools, `[{"name":"go","inputSchema":{"type":"object"}}]`) + `}`)
	case "tools/call":
		out.Header().Set("Content-Type", "text/event-stream")
		say := func(format string, args ...any) { fmt.Fprintf(out, "data: "+format+"\n\n", args...) }
		if flood := f.flood.Load(); flood != nil {
			(*flood)(say)
		}
		say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"went"}]}}`, m.ID)
	case "server/discover":
		answer(`"error":{"code":-32601,"message":"unknown"}`)
	case "":
		if n := f.open.Add(1); n > f.most.Load() { // near enough
			f.most.Store(n)
		}
		defer f.open.Add(-1)
		select {
		case <-f.over:
		case <-req.Context().Done():
		}
		fallthrough
	default:
		out.WriteHeader(http.StatusAccepted)
	}
}

// The library answers each request of a server over HTTP with one of its own, so
// that a server could open any number of connections to itself.
func TestServersThatAskTooMuchOverHTTPAreGivenUp(t *testing.T) {
	t.Parallel()
	f := &flooder{over: make(chan struct{})}
	site := newSite(t, f)
	h := newHost(t)
	s := open(t, h, Options{}, Server{Name: "one", URL: site.URL})
	flood := func(say func(string, ...any)) {
		for i := range 10_000 {
			say(`{"jsonrpc":"2.0","id":"q%d","method":"ping"}`, i)
		}
	}
	f.flood.Store(&flood)
	_, err := s.Call(t.Context(), "mcp__one__go", nil, nil)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), errFlood.words) {
		t.Errorf("got %v, want %v and why", err, ErrUnavailable)
	}
	awaitStatus(t, h, "is gone: "+errFlood.words)
	if most := f.most.Load(); most > maxExchanges { // none, if the connection was cut before the first arrived
		t.Errorf("got %d answers at once, want at most %d", most, maxExchanges)
	}
	close(f.over)
	calm := func(func(string, ...any)) {}
	f.flood.Store(&calm)
	says(t, must(t, s, "mcp__one__go", ""), "went")
}

// What was answered last must not hide why the connection was cut.
func TestFloodsAreTheReasonWhateverElseIsAnswered(t *testing.T) {
	set := Open(Options{Dir: t.TempDir(), Host: testHost{newHost(t)}})
	defer set.Close()
	s := &session{link: newLink(set, Server{Name: "one"}), web: &web{}}
	s.stopping, s.stop = context.WithCancelCause(t.Context())
	s.stop(errFlood)
	s.web.note(&http.Request{Method: http.MethodPost}, nil)
	if got := s.reason(errors.New("client is closing")); !errors.Is(got, errFlood) {
		t.Errorf("got %v, want %v", got, errFlood)
	}
}

// A server that ends each of its streams at once says when the next is to be asked
// for.
func TestStreamsThatEndAreAskedForNowAndThen(t *testing.T) {
	t.Parallel()
	f := &flooder{over: make(chan struct{})}
	var streams atomic.Int64
	enough, begun := make(chan struct{}), time.Now()
	site := newSite(t, http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet {
			f.ServeHTTP(out, req)
			return
		}
		n := streams.Add(1)
		if n == 6 {
			close(enough)
		}
		out.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(out, "id: %d\nretry: 1\ndata:\n\n", n)
	}))
	open(t, nil, Options{}, Server{Name: "one", URL: site.URL})
	hosttest.Happens(t, "the stream is asked for again", enough)
	if n, most := streams.Load(), 2+int64(time.Since(begun)/streamPause); n > most {
		t.Errorf("got %d requests for a stream, want at most %d", n, most)
	}
}

// Whatever a server calls its tools, people and models are shown one line each, and
// not more than there is room for.
func TestHostileListsAreTamed(t *testing.T) {
	t.Parallel()
	tools := []map[string]any{
		{"name": "bash"}, {"name": "bash", "description": "another"}, {"name": "mcp__two__echo"}, {"name": ""},
		{"name": strings.Repeat("n", maxToolName+1)},
		{"name": "a\x1b[2J\nb\u202e", "description": "a\x1b[2J\u009bb"},
		{"name": "itself", "inputSchema": map[string]any{"$ref": "#"}},
		{"name": "list", "inputSchema": map[string]any{"type": "array"}},
		{"name": "long", "inputSchema": map[string]any{"description": strings.Repeat("x", maxSchemaBytes)}},
	}
	for i := range maxTools {
		tools = append(tools, map[string]any{"name": fmt.Sprint("t", i), "description": strings.Repeat("d", maxDescription)})
	}
	for _, tool := range tools {
		if tool["inputSchema"] == nil {
			tool["inputSchema"] = map[string]any{"type": "object"}
		}
	}
	list, err := json.Marshal(tools)
	hosttest.Must(t, err)
	f := &flooder{over: make(chan struct{}), tools: string(list)}
	h := newHost(t)
	s := open(t, h, Options{}, Server{Name: "one", URL: newSite(t, f).URL})
	names, size := map[string]bool{}, 0
	for _, tool := range s.Tools() {
		if names[tool.FullName] || !strings.HasPrefix(tool.FullName, "mcp__one__") {
			t.Errorf("got the name %q twice, or for what it is not", tool.FullName)
		}
		names[tool.FullName] = true
		size += len(tool.Description) + len(tool.Schema)
		if tool.Title == "" || strings.ContainsAny(tool.Title+tool.Description, "\x1b\n\u202e\u009b") || tool.Description == "another" {
			t.Errorf("got the title %q and %.40q, want what can be shown", tool.Title, tool.Description)
		}
	}
	if len(names) < 200 || size > maxToolsBytes {
		t.Errorf("got %d tools of %d bytes, want many and at most %d", len(names), size, maxToolsBytes)
	}
	awaitStatus(t, h, "tools that nobody is offered: ")
}

// A server that says that it is closing, in the middle of a call, may have done
// what it was called for.
func TestCallsThatWereSentAreNotRepeated(t *testing.T) {
	for _, revision := range revisions {
		for name, server := range map[string]Server{
			"program": testProgram(t, "one", "tools", revisionVariable, revision),
			"address": {Name: "one", URL: newSite(t, webTools(t, revision)).URL},
		} {
			s := open(t, nil, Options{}, server)
			if res, err := s.Call(t.Context(), "mcp__one__closing", nil, nil); !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s %s: got %+v, %v; want %v", name, revision, res, err, ErrUnavailable)
			}
			if name == "address" { // a program is started anew, and knows of no call
				says(t, must(t, s, "mcp__one__closing", ""), "called before")
			}
		}
	}
}
