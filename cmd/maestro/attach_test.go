package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// An attachServer is a server with one session of one response. It gives the state
// in a first connection, and the response in two more: the second breaks in the
// middle.
type attachServer struct {
	seen chan http.Header
	url  chan string
}

func (s *attachServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	s.seen <- r.Header
	s.url <- r.URL.RawQuery
	var text json.RawMessage
	for !strings.Contains(string(text), `"hello"`) {
		if wsjson.Read(r.Context(), conn, &text) != nil {
			return
		}
	}
	send := func(frames ...string) {
		for _, f := range frames {
			_ = wsjson.Write(r.Context(), conn, json.RawMessage(f)) // the client reads or the test fails
		}
	}
	resume := "replay"
	if !r.URL.Query().Has("cursor") {
		resume = "snapshot"
	}
	send(`{"type":"ws.attached","session_id":"s","connection_id":"c","connection_token":"t","subscription_id":"u","role":"controller","controller_lease_granted":true,"controller_connection_id":"c","lease_expires_at":null,"heartbeat_interval_ms":15000,"epoch":"e","resume":"` + resume + `","limits":{"max_frame_bytes":1048576,"mailbox":1048576}}`)
	if resume == "snapshot" {
		state, err := contracts.EncodeSnapshot(&contracts.Snapshot{ProtocolVersion: contracts.ProtocolVersion, SessionID: "s", Cursor: 2}, 0)
		if err == nil {
			send(`{"type":"snapshot","snapshot":` + string(state) + `}`)
			_ = wsjson.Read(r.Context(), conn, &text) // until the client has gone
		}
		return
	}
	if r.URL.Query().Get("cursor") == "0" {
		send(`{"type":"message","cursor":1,"message":{"type":"response_start","response_id":"r"}}`,
			`{"type":"message","cursor":2,"message":{"type":"response_chunk","response_id":"r","content":"Hello, ","is_thinking":false}}`)
		return // without a close frame
	}
	send(`{"type":"message","cursor":3,"message":{"type":"response_chunk","response_id":"r","content":"world.","is_thinking":false}}`,
		`{"type":"message","cursor":4,"message":{"type":"response_end","response_id":"r"}}`,
		`{"type":"message","cursor":5,"message":{"type":"hello_ok","protocol_version":"2026-04-02","connection_id":"c","role":"controller"}}`)
	if wsjson.Read(r.Context(), conn, &text) == nil && strings.Contains(string(text), `"prompt"`) {
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
}

func TestAttachSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	s := &attachServer{seen: make(chan http.Header, 4), url: make(chan string, 4)}
	server := httptest.NewServer(s)
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, typist := io.Pipe()
	var out strings.Builder
	cmd := attachCommand()
	cmd.SetArgs([]string{server.URL, "--token-file", token, "--take", "--name", "ada"})
	cmd.SetIn(in)
	cmd.SetOut(&out)
	go func() {
		first, again := <-s.url, ""
		for _, want := range []string{"role=controller", "takeControl=1"} {
			if !strings.Contains(first, want) {
				t.Errorf("first query: got %s, want %s in it", first, want)
			}
		}
		if past := <-s.url; !strings.Contains(past, "cursor=0") || !strings.Contains(past, "connectionId=c") {
			t.Errorf("second query: got %s, want all of the past for the same connection", past)
		}
		again = <-s.url
		for _, want := range []string{"cursor=2", "epoch=e", "connectionId=c", "takeControl=later"} {
			if !strings.Contains(again, want) {
				t.Errorf("third query: got %s, want %s in it", again, want)
			}
		}
		_, _ = io.WriteString(typist, "thank you\n") // fails if the command has ended, which fails the test
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	_ = typist.Close()
	if got := (<-s.seen).Get("Authorization"); got != "Bearer secret" {
		t.Errorf("Authorization: got %q, want Bearer secret", got)
	}
	for _, want := range []string{"Hello, ", "connection lost", "connected again to session s", "world.", "the session has ended"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q in it", out.String(), want)
		}
	}
}

// A toldWriter closes said once a text was written to it.
type toldWriter struct {
	transcript
	text string
	said chan struct{}
	once sync.Once
}

func (w *toldWriter) Write(p []byte) (int, error) {
	n, err := w.transcript.Write(p)
	if strings.Contains(w.transcript.String(), w.text) {
		w.once.Do(func() { close(w.said) })
	}
	return n, err
}

// TestAttachSaysThatItWaitsForTheServer has the server open the session only once
// that was said.
func TestAttachSaysThatItWaitsForTheServer(t *testing.T) {
	s := &attachServer{seen: make(chan http.Header, 4), url: make(chan string, 4)}
	said := &toldWriter{text: "an agent may take a minute to start\n", said: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-said.said:
			s.ServeHTTP(w, r)
		case <-r.Context().Done():
			t.Error("the client gave up")
		}
	}))
	defer server.Close()
	var out strings.Builder
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	cmd := attachCommand()
	cmd.SetArgs([]string{server.URL})
	cmd.SetIn(strings.NewReader("hello\n"))
	cmd.SetOut(&out)
	cmd.SetErr(said)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err != nil || !strings.Contains(out.String(), "world.") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
}

// A server that is away is waited for; one that has come back and refuses the
// token, whose file is gone, is left.
func TestAttachEndsWhereItsTokenIsRefused(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &attachServer{seen: make(chan http.Header, 4), url: make(chan string, 4)}
	var tries atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			s.ServeHTTP(w, r)
		case 2:
			if err := os.Remove(token); err != nil {
				t.Error(err)
			}
			s.ServeHTTP(w, r) // and the connection is lost
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"unknown token","code":"unauthenticated"}`)
		}
	}))
	defer server.Close()
	in, typist := io.Pipe()
	defer typist.Close()
	var out strings.Builder
	cmd := attachCommand()
	cmd.SetArgs([]string{server.URL, "--token-file", token})
	cmd.SetIn(in)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	if want := "does not accept the token in " + token + ": unknown token"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q; output:\n%s", err, want, out.String())
	}
	if got := tries.Load(); got != 4 {
		t.Errorf("got %d connections, want 4", got)
	}
}

func TestAttachRefusesWhatItCannotUse(t *testing.T) {
	missing, empty := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--view", "--take"}, "leave out --take"},
		{[]string{"--token-file", missing}, "token file"},
		{[]string{"--token-file", empty}, empty + " is empty"},
		{[]string{"ftp://host"}, "want ws://"},
		{[]string{"http://h:1/api/headless/sessions/main"}, `want http://h:1, and --session ID for one of its sessions`},
		{[]string{"http://a", "http://b"}, "at most 1 arg"},
	} {
		cmd := attachCommand()
		cmd.SetArgs(test.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want an error with %q", test.args, err, test.want)
		}
	}
}

func TestServerIsNamedInManyWays(t *testing.T) {
	for text, want := range map[string]string{
		"8787":            "http://127.0.0.1:8787",
		"localhost:8787":  "http://localhost:8787",
		"wss://h/proxied": "wss://h/proxied",
		"ws://h:1/api/headless/ws?sessionId=main": "ws://h:1/api/headless/ws",
	} {
		var flags attachFlags
		if got, err := flags.address(text); err != nil || got.String() != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestDefaultTokenFileMayBeMissing(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	flags := attachFlags{tokenFile: tokenFile(defaultStateRoot())}
	if path, err := flags.token(); path != "" || err != nil {
		t.Errorf("got %q, %v, want no token and no error", path, err)
	}
}

// A link admits in its own role, unless the user asked for another one.
func TestLinkGivesItsRole(t *testing.T) {
	refusal := func(role contracts.Role) error {
		err := contracts.Principal{Role: role}.CheckRole(contracts.RoleController)
		return &client.CloseError{Code: 4403, Reason: contracts.CodeAccessDenied, Message: err.Error()}
	}
	for _, test := range []struct {
		err                 error
		flags               attachFlags
		again, view, answer bool
	}{
		{refusal(contracts.RoleViewer), attachFlags{share: "s"}, true, true, false},
		{refusal(contracts.RoleApprover), attachFlags{share: "s"}, true, false, true},
		{refusal(contracts.RoleViewer), attachFlags{share: "s", take: true}, false, false, false},
		{refusal(contracts.RoleViewer), attachFlags{share: "s", approve: true}, false, false, true},
		{refusal(contracts.RoleViewer), attachFlags{}, false, false, false},
		{io.EOF, attachFlags{share: "s"}, false, false, false},
		{nil, attachFlags{share: "s"}, false, false, false},
	} {
		f := test.flags
		if again := f.lower(test.err); again != test.again || f.view != test.view || f.approve != test.answer {
			t.Errorf("%v with %+v: got %t, %+v", test.err, test.flags, again, f)
		}
	}
}

func TestFailureToAttachSaysWhatToDo(t *testing.T) {
	refused := func(code int, reason contracts.Code, message string) error {
		return fmt.Errorf("attach: %w", &client.CloseError{Code: code, Reason: reason, Message: message})
	}
	unknown := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "h", Server: "10.0.0.1"}}
	missing := refused(4404, contracts.CodeStaleSession, "gone")
	denied := refused(4403, contracts.CodeAccessDenied, "only viewing")
	for _, test := range []struct {
		err   error
		flags attachFlags
		token string
		want  string
	}{
		{&client.CloseError{Code: 1006, Err: unknown}, attachFlags{}, "", "nothing answers at h:1 (no such host): is `maestro serve` running?"},
		{refused(4401, contracts.CodeUnauthenticated, "invalid credential"), attachFlags{}, "/t", "h:1 does not accept the token in /t: invalid credential"},
		{refused(4401, contracts.CodeUnauthenticated, ""), attachFlags{}, "", "h:1 needs a token: name its file with --token-file, or run the command as the user of the server"},
		{refused(4401, contracts.CodeUnauthenticated, ""), attachFlags{share: "mshare_x"}, "", "h:1 does not accept the link: it has expired or was revoked"},
		{missing, attachFlags{session: "s"}, "", `session "s" not found: --create creates it`},
		{missing, attachFlags{session: "s", create: true}, "", missing.Error()},
		{refused(4404, contracts.CodeNotFound, "route not found"), attachFlags{session: "s"}, "", "h:1 answers, but not at that path: want http://HOST:PORT, and --session ID for one of its sessions"},
		{denied, attachFlags{}, "", "only viewing: attach with --view"},
		{denied, attachFlags{view: true}, "", denied.Error()},
		{
			refused(4403, contracts.CodeAccessDenied, "this credential only allows viewing and answering questions"), attachFlags{}, "",
			"this credential only allows viewing and answering questions: attach with --approve",
		},
		{io.EOF, attachFlags{}, "", "EOF"},
	} {
		if got := test.flags.explain(test.err, "h:1", test.token).Error(); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
}
