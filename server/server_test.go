package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/server"
)

const token = "a-token-for-tests-0123456789"

// echo repeats the prompt.
func echo(ctx context.Context, r *server.Run) error { return r.Say(ctx, r.Content) }

// open starts a server with options, and a web server that serves it at /.
func open(t *testing.T, opts server.Options) (*server.Server, *httptest.Server) {
	t.Helper()
	if opts.NewAgent == nil && opts.Agent == "" {
		opts.NewAgent = server.AgentFunc("echo", echo)
	}
	srv, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
		web.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return srv, web
}

// dial attaches a controller.
func dial(t *testing.T, url string, opts ...client.Option) *client.Client {
	t.Helper()
	hello := contracts.Hello{
		Role:         contracts.RoleController,
		Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}, UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}},
	}
	c, err := client.Dial(t.Context(), url, append([]client.Option{client.WithToken(token), client.WithoutReconnect(), client.WithHello(hello)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(false) }) // the server may have ended it
	return c
}

// answer prompts and returns the text of the answer. It decides on each question.
func answer(t *testing.T, c *client.Client, prompt string, approve bool) string {
	t.Helper()
	if _, err := c.Prompt(t.Context(), prompt); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for u, err := range c.Updates(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := u.Event.(type) {
		case *contracts.ServerRequest:
			decide := c.Deny
			if approve {
				decide = c.Approve
			}
			if _, err := decide(t.Context(), e.RequestID, ""); err != nil {
				t.Fatal(err)
			}
		case *contracts.ToolEnd:
			if e.Success != approve {
				t.Errorf("got a call that ended with success %v, want %v", e.Success, approve)
			}
		case *contracts.ResponseChunk:
			text.WriteString(e.Content)
		case *contracts.ErrorEvent:
			text.WriteString("error: " + e.Message)
		case *contracts.ResponseEnd:
			return text.String()
		}
	}
	t.Fatal("the updates ended")
	return ""
}

// status returns the status of a GET, for which change may add headers.
func status(t *testing.T, url string, change func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func bearer(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
}

// A socket is a client that writes its messages by hand.
type socket struct {
	t    *testing.T
	conn *websocket.Conn
}

func dialSocket(t *testing.T, url string) socket {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{contracts.Subprotocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() }) // the server may have ended it
	return socket{t, conn}
}

func (s socket) says(text string) {
	s.t.Helper()
	if err := s.conn.Write(s.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// until returns the next message that contains want, or the close code if there is none.
func (s socket) until(want string) (text string, code websocket.StatusCode) {
	for {
		_, text, err := s.conn.Read(s.t.Context())
		if err != nil {
			return "", websocket.CloseStatus(err)
		}
		if strings.Contains(string(text), want) {
			return string(text), 0
		}
	}
}

func TestUnusableOptionsAreExplained(t *testing.T) {
	agent := server.AgentFunc("echo", echo)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		opts server.Options
		want string
	}{
		{server.Options{Token: token}, "no agent: set Options.NewAgent or Options.Agent"},
		{server.Options{Token: token, NewAgent: agent, Agent: "shell"}, "not both"},
		{server.Options{NewAgent: agent}, "no credential: set Options.Token or Options.Authenticate"},
		{server.Options{NewAgent: agent, Token: "short"}, "Options.Token: a token has 16 to"},
		{server.Options{NewAgent: agent, Token: strings.Repeat("a b", 20)}, "Options.Token: a token is printable ASCII without spaces"},
		{server.Options{Agent: "shell", Token: token}, "needs Options.Workspace"},
		{server.Options{Agent: "nonsense", Token: token, Workspace: "."}, `Options.Agent "nonsense": unknown, want shell`},
		{server.Options{Agent: "shell", Token: token, Workspace: filepath.Join(file, "none")}, "open workspace"},
		{server.Options{Agent: "shell", Token: token, Workspace: ".", Deny: []string{"bash"}}, "for an llm: agent"},
		{server.Options{NewAgent: agent, Token: token, ModelURL: "http://127.0.0.1"}, "for an llm: agent"},
		{server.Options{NewAgent: agent, Token: token, Utilities: true}, "Options.Utilities needs Options.Workspace"},
		{server.Options{NewAgent: agent, Token: token, StateDir: file}, "Options.StateDir: "},
		{server.Options{NewAgent: agent, Token: token, Origins: []string{"example.com"}}, `Options.Origins: "example.com" is not an origin`},
		{server.Options{NewAgent: agent, Token: token, Hosts: []string{"https://a.example"}}, `Options.Hosts: "https://a.example" is not a host name`},
		{server.Options{NewAgent: agent, Token: token, Hosts: []string{"*"}}, `Options.Hosts: "*" is not a host name`},
		{server.Options{NewAgent: agent, Token: token, Hosts: []string{"a.example", ""}}, `Options.Hosts: "" is not a host name`},
		{server.Options{NewAgent: agent, Token: token, MaxSessions: -1}, "must not be negative"},
	} {
		_, err := server.New(tt.opts)
		if err == nil || !strings.HasPrefix(err.Error(), "server: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want an error with %q", err, tt.want)
		}
	}
}

func TestAgentAsksAndAnswers(t *testing.T) {
	_, web := open(t, server.Options{Token: token, NewAgent: server.AgentFunc("birthdays", birthday)})
	c := dial(t, web.URL)
	if got, want := answer(t, c, "Ann", true), "Ann was born on May 4."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := answer(t, c, "Bob", false), "error: "+server.ErrNotApproved.Error(); !strings.Contains(got, want) {
		t.Errorf("got %q, want it to say %q", got, want)
	}
}

func TestFailedToolIsShownAsFailed(t *testing.T) {
	_, web := open(t, server.Options{Token: token, NewAgent: server.AgentFunc("broken", func(ctx context.Context, r *server.Run) error {
		_, err := r.Call(ctx, "tool", nil, "", func(context.Context) (string, error) { return "half", errors.New("it broke") })
		return err
	})})
	c := dial(t, web.URL)
	if _, err := c.Prompt(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	var output, failed string
	for u, err := range c.Updates(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := u.Event.(type) {
		case *contracts.ServerRequest:
			if _, err := c.Approve(t.Context(), e.RequestID, ""); err != nil {
				t.Fatal(err)
			}
		case *contracts.ToolOutput:
			output = e.Content
		case *contracts.ToolEnd:
			if e.Success || output != "half" {
				t.Errorf("got success %v after the output %q, want a failure after half", e.Success, output)
			}
		case *contracts.ErrorEvent:
			failed = e.Message
		}
		if failed != "" {
			break
		}
	}
	if !strings.Contains(failed, "it broke") {
		t.Errorf("got the error %q, want the tool's", failed)
	}
}

func TestLaterServerContinuesTheSession(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	opts := server.Options{Token: token, StateDir: dir, NewAgent: server.AgentFunc("echo", echo)}
	first, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(first)
	c := dial(t, web.URL)
	answer(t, c, "before", true)
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err = range c.Updates(t.Context()) { // ends with the connection
	}
	if closed, ok := errors.AsType[*client.CloseError](err); !ok || !strings.Contains(closed.Error(), "going") {
		t.Errorf("got %v, want the client told that the server goes away", err)
	}
	if got := status(t, web.URL+"/readyz", nil); got != http.StatusServiceUnavailable {
		t.Errorf("after Close: got status %d, want 503", got)
	}
	web.Close()

	_, web = open(t, opts)
	c = dial(t, web.URL, client.WithHistory())
	if got := answer(t, c, "after", true); got != "before" { // the history comes first
		t.Errorf("got the answer %q, want that of the first server", got)
	}
}

func TestStateWithoutADirectoryIsRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	srv, err := server.New(server.Options{Token: token, NewAgent: server.AgentFunc("echo", echo)})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	defer web.Close()
	answer(t, dial(t, web.URL), "x", true)
	for range 2 { // the second call does nothing
		if err := srv.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want nothing left", left, err)
	}
}

// TestCustomAuthentication names the user of a request in the header X-User.
func TestCustomAuthentication(t *testing.T) {
	log := &record{}
	users := map[string]contracts.Principal{
		"ann":   {ID: "ann", Scope: "one"},
		"bob":   {ID: "bob", Scope: "two", Name: "Bob\x1b"},
		"share": {ID: "share_1"},
	}
	_, web := open(t, server.Options{
		Token: token, Log: slog.New(slog.NewTextHandler(log, nil)),
		Authenticate: func(r *http.Request) (contracts.Principal, error) {
			name := r.Header.Get("X-User")
			if name == "banned" {
				return contracts.Principal{}, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "ask the operator"}
			}
			if name == "codeless" {
				return contracts.Principal{}, &contracts.Error{Message: "nobody said why"}
			}
			if p, ok := users[name]; ok {
				return p, nil
			}
			return contracts.Principal{}, errors.New("a secret of the program")
		},
	})
	user := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("X-User", name) } }
	const list = "/api/headless/sessions"
	for _, tt := range []struct {
		name string
		by   func(*http.Request)
		want int
	}{
		{"nobody", nil, 401}, {"a stranger", user("eve"), 401}, {"ann", user("ann"), 200}, {"the owner", bearer(token), 200},
		{"a wrong token", bearer("wrong-token-0123456789"), 401}, {"somebody banned", user("banned"), 403}, {"a refusal without a code", user("codeless"), 500},
		{"an unusable principal", user("share"), 500},
		{"another host", func(r *http.Request) { user("ann")(r); r.Host = "evil.example" }, 403},
		{"a foreign page", func(r *http.Request) { user("ann")(r); r.Header.Set("Origin", "https://evil.example") }, 403},
	} {
		if got := status(t, web.URL+list, tt.by); got != tt.want {
			t.Errorf("%s: got status %d, want %d", tt.name, got, tt.want)
		}
	}
	if got := log.String(); !strings.Contains(got, "are reserved") || !strings.Contains(got, `cause="a secret of the program"`) || !strings.Contains(got, "nobody said why") {
		t.Errorf("got the log %s, want why requests were refused", got)
	}
	if got := create(t, web.URL, `{"sessionId":"s"}`, user("ann")); got != 200 {
		t.Errorf("got status %d, want a session", got)
	}
	for name, want := range map[string]int{"ann": 200, "bob": 404} {
		if got := status(t, web.URL+list+"/s/state", user(name)); got != want {
			t.Errorf("%s reads the session of ann: got status %d, want %d", name, got, want)
		}
	}
}

func TestDisconnectEndsTheConnections(t *testing.T) {
	srv, web := open(t, server.Options{Authenticate: func(*http.Request) (contracts.Principal, error) {
		return contracts.Principal{ID: "ann"}, nil
	}})
	c := dial(t, web.URL)
	answer(t, c, "x", true)
	srv.Disconnect("bob")
	answer(t, c, "y", true)
	srv.Disconnect("ann")
	var err error
	for _, err = range c.Updates(t.Context()) {
	}
	if err == nil {
		t.Error("got no error, want the connection ended")
	}
}

// TestDisconnectEndsWhatIsNotAttachedYet is about a socket that says hello late.
func TestDisconnectEndsWhatIsNotAttachedYet(t *testing.T) {
	srv, web := open(t, server.Options{Authenticate: func(*http.Request) (contracts.Principal, error) {
		return contracts.Principal{ID: "ann"}, nil
	}})
	const hello = `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","role":"viewer"}`
	late := dialSocket(t, web.URL+"/api/headless/ws")
	srv.Disconnect("ann")
	late.says(hello)
	if text, code := late.until("ws.attached"); int(code) != contracts.CodeUnauthenticated.CloseCode() {
		t.Errorf("got %q and close code %d, want the late hello refused", text, code)
	}
	again := dialSocket(t, web.URL+"/api/headless/ws")
	again.says(hello)
	if text, code := again.until("ws.attached"); text == "" {
		t.Errorf("got close code %d, want a new connection accepted", code)
	}
}

// TestEditorsAttach holds a conversation over the Agent Client Protocol.
func TestEditorsAttach(t *testing.T) {
	_, web := open(t, server.Options{Token: token})
	s, session := dialSocket(t, web.URL+"/acp"), ""
	for _, step := range []struct{ says, want string }{
		{`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`, `"protocolVersion":1`},
		{`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, `"sessionId":"`},
		{`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"ID","prompt":[{"type":"text","text":"hello"}]}}`, `"end_turn"`},
	} {
		s.says(strings.Replace(step.says, "ID", session, 1))
		text, code := s.until(step.want)
		if text == "" {
			t.Fatalf("%s: got close code %d, want %s", step.says, code, step.want)
		}
		if _, rest, ok := strings.Cut(text, `"sessionId":"`); ok {
			session, _, _ = strings.Cut(rest, `"`)
		}
	}
}

// A user who was banned must not come back with what the server gave to the browser.
func TestDisconnectEndsLogins(t *testing.T) {
	var banned atomic.Bool
	srv, web := open(t, server.Options{Authenticate: func(r *http.Request) (contracts.Principal, error) {
		if banned.Load() || r.Header.Get("X-User") == "" {
			return contracts.Principal{}, errors.New("nobody")
		}
		return contracts.Principal{ID: r.Header.Get("X-User"), Scope: "team"}, nil
	}})
	req, err := http.NewRequestWithContext(t.Context(), "POST", web.URL+"/api/headless/ws-tickets", strings.NewReader(`{"login":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-User", "ann")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var answer contracts.TicketAnswer
	if err := errors.Join(json.NewDecoder(res.Body).Decode(&answer), res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	browser := *http.DefaultClient
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if res, err = browser.Get(web.URL + "/login?ticket=" + answer.Ticket); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // nothing was read
	cookies := res.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got %s and cookies %v, want one", res.Status, cookies)
	}
	asAnn := func(r *http.Request) { r.AddCookie(cookies[0]) }
	if got := status(t, web.URL+"/api/headless/whoami", asAnn); got != 200 {
		t.Fatalf("got status %d with the cookie, want 200", got)
	}
	banned.Store(true)
	srv.Disconnect("ann")
	if got := status(t, web.URL+"/api/headless/whoami", asAnn); got != 401 {
		t.Errorf("got status %d with the cookie of a banned user, want 401", got)
	}
}

// A user who was banned while a session opens for their request must not get in.
func TestDisconnectEndsWhatIsBeingOpened(t *testing.T) {
	opening, proceed := make(chan struct{}), make(chan struct{})
	agent := server.AgentFunc("slow", echo)
	srv, web := open(t, server.Options{
		NewAgent: func(s server.Session) (contracts.Agent, error) {
			close(opening)
			<-proceed
			return agent(s)
		},
		Authenticate: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{ID: "ann"}, nil },
	})
	ended := make(chan error)
	go func() { // ends with the connection
		c, err := client.Dial(t.Context(), web.URL, client.WithoutReconnect(), client.WithHello(contracts.Hello{Role: contracts.RoleViewer}))
		if err == nil {
			for _, err = range c.Updates(t.Context()) {
				if err != nil {
					break
				}
			}
			_ = c.Close(false) // the server has ended it
		}
		ended <- err
	}()
	<-opening
	srv.Disconnect("ann")
	close(proceed)
	if err := <-ended; !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		t.Errorf("got %v, want that the credential is no longer valid", err)
	}
	dial(t, web.URL) // a new connection is accepted
}

// TestStreamsOnAnyServer follows a session over server-sent events, behind a mux, with
// HTTP/1.1 and with HTTP/2.
func TestStreamsOnAnyServer(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv, plain := open(t, server.Options{Token: token})
		mux := http.NewServeMux()
		mux.Handle("/api/headless/", srv)
		web := httptest.NewUnstartedServer(mux)
		web.EnableHTTP2 = http2
		web.StartTLS()
		t.Cleanup(web.Close)
		c := dial(t, plain.URL)
		answer(t, c, "first", true) // the session exists
		req, err := http.NewRequestWithContext(t.Context(), "GET", web.URL+"/api/headless/sessions/main/events?cursor=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		bearer(token)(req)
		res, err := web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if want := major(http2); res.StatusCode != 200 || res.ProtoMajor != want {
			t.Fatalf("got %s over HTTP/%d, want 200 over HTTP/%d", res.Status, res.ProtoMajor, want)
		}
		answer(t, c, "second", true)
		found := false
		for lines := bufio.NewScanner(res.Body); !found && lines.Scan(); {
			found = strings.Contains(lines.Text(), `"content":"second"`)
		}
		if res.Body.Close(); !found {
			t.Errorf("HTTP/%d: the stream ended without the event", res.ProtoMajor)
		}
	}
}

// major returns the major version of HTTP.
func major(http2 bool) int {
	if http2 {
		return 2
	}
	return 1
}

func TestUtilitiesAreOnRequest(t *testing.T) {
	for _, on := range []bool{false, true} {
		_, web := open(t, server.Options{Token: token, Agent: "shell", Workspace: t.TempDir(), Utilities: on})
		c := dial(t, web.URL)
		_, err := c.Send(t.Context(), &contracts.UtilityFileRead{ReadID: "r", Path: "none"})
		if off := errors.Is(err, &contracts.Error{Code: contracts.CodeUnsupportedCapability}); off == on {
			t.Errorf("utilities %v: got %v", on, err)
		}
	}
}

func TestPageIsOnRequest(t *testing.T) {
	for _, on := range []bool{false, true} {
		srv, web := open(t, server.Options{Token: token, Page: on})
		if got := status(t, web.URL+"/manifest.webmanifest", nil); got == 200 != on {
			t.Errorf("page %v: got status %d", on, got)
		}
		asBrowser := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
		if got := status(t, web.URL+srv.LoginPath(), asBrowser); got != 200 { // follows the redirect to the page
			t.Errorf("page %v: got status %d after the login, want 200", on, got)
		}
	}
}
