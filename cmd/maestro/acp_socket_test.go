//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// The client of the TypeScript library holds a conversation with a question on a
// WebSocket while a native client watches.
func TestSDKClientOnAWebSocket(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../internal/agent/acpserver/testdata/sdk/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(script), "node_modules")); err != nil {
		t.Fatalf("the library is not installed: run `make others` (%v)", err)
	}
	r := serving(t)
	token := readToken(t, r)
	watcher, err := client.Dial(t.Context(), r.ready.BaseURL, client.WithSession("shared", true), client.WithTokenFile(r.ready.TokenFile),
		client.WithHello(contracts.Hello{Role: contracts.RoleViewer}))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close(false)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	url := "ws" + strings.TrimPrefix(r.ready.BaseURL, "http") + "/acp?sessionId=shared"
	cmd := exec.CommandContext(ctx, "node", script, url, token, r.cmd.Dir, "echo hello > f; cat f")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("got %v, want success; output:\n%s\nlog:\n%s\nserver:\n%s", err, out, &log, r.log)
	}
	if text, err := os.ReadFile(filepath.Join(r.cmd.Dir, "f")); err != nil || string(text) != "hello\n" {
		t.Errorf("got %q, %v in the file, want hello", text, err)
	}

	type updateMeta struct {
		Maestro struct {
			Epoch     string
			Cursor    uint64
			InControl bool
		}
	}
	var got struct {
		Connection string
		Session    struct {
			SessionID string
			Meta      updateMeta `json:"_meta"`
		}
		Permission struct{ Options []struct{ Kind string } }
		Prompt     struct{ StopReason string }
		Sessions   struct {
			Sessions []struct{ SessionID, Cwd string }
		}
		Update struct {
			Meta updateMeta `json:"_meta"`
		}
	}
	var cursor uint64
	var controlled bool
	for line := range bytes.Lines(out) {
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		at := got.Update.Meta.Maestro
		if at.Cursor < cursor {
			t.Errorf("got cursor %d after %d in %s, want no step back", at.Cursor, cursor, line)
		}
		cursor, controlled = at.Cursor, controlled || at.InControl
	}
	epoch := watcher.Attached().Epoch
	if got.Connection == "" || got.Session.SessionID != "shared" || got.Session.Meta.Maestro.Epoch != epoch || got.Update.Meta.Maestro.Epoch != epoch {
		t.Errorf("got %+v, want the id of the connection, and session shared with epoch %s", got, epoch)
	}
	if len(got.Permission.Options) != 2 || got.Prompt.StopReason != "end_turn" || cursor == 0 || !controlled {
		t.Errorf("got %+v, last cursor %d, in control: %v, want a question, the end of the run and control; output:\n%s", got, cursor, controlled, out)
	}
	if !slices.Contains(got.Sessions.Sessions, struct{ SessionID, Cwd string }{"shared", r.cmd.Dir}) {
		t.Errorf("got the sessions %+v, want shared in %s", got.Sessions.Sessions, r.cmd.Dir)
	}

	var asked, answered, output bool
	for u, err := range watcher.Updates(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := u.Event.(type) {
		case *contracts.ServerRequest:
			asked = e.RequestType == contracts.RequestApproval
		case *contracts.ServerRequestResolved:
			answered = e.Resolution == contracts.VerdictApproved
		case *contracts.ToolOutput:
			output = output || strings.Contains(e.Content, "hello")
		}
		if u.Cursor >= cursor {
			break
		}
	}
	if !asked || !answered || !output {
		t.Errorf("the watcher saw the question: %v, its answer: %v, the output: %v, want all", asked, answered, output)
	}
}

// callJSON sends a request with a bearer credential and decodes the answer.
func callJSON(t *testing.T, method, url, token, body string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: got %s, %v", method, url, res.Status, err)
	}
}

// quoted returns a text as JSON.
func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readToken(t *testing.T, r *running) string {
	t.Helper()
	text, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// An acpTalk is an ACP client on a WebSocket that writes its messages by hand.
type acpTalk struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
}

func talkACP(t *testing.T, r *running, token, query string) *acpTalk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, r.ready.BaseURL+"/acp"+query, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	a := &acpTalk{t, conn, ctx}
	a.says(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
	a.until(`"protocolVersion":1`)
	return a
}

func (a *acpTalk) says(text string) {
	a.t.Helper()
	if err := a.conn.Write(a.ctx, websocket.MessageText, []byte(text)); err != nil {
		a.t.Fatal(err)
	}
}

// until returns the next message that contains want.
func (a *acpTalk) until(want string) string {
	a.t.Helper()
	for {
		_, text, err := a.conn.Read(a.ctx)
		if err != nil {
			a.t.Fatalf("got %v, want %s", err, want)
		}
		if strings.Contains(string(text), want) {
			return string(text)
		}
	}
}

// closed returns the code of the close frame.
func (a *acpTalk) closed() int {
	a.t.Helper()
	for {
		if _, _, err := a.conn.Read(a.ctx); err != nil {
			return int(websocket.CloseStatus(err))
		}
	}
}

func TestACPOnAWebSocketNeedsACredential(t *testing.T) {
	t.Parallel()
	r := serving(t)
	token := readToken(t, r)
	for name, tt := range map[string]struct {
		header http.Header
		want   int
	}{
		"no credential":    {http.Header{}, http.StatusUnauthorized},
		"wrong credential": {http.Header{"Authorization": {"Bearer " + strings.Repeat("x", 32)}}, http.StatusUnauthorized},
		"foreign page":     {http.Header{"Authorization": {"Bearer " + token}, "Origin": {"http://evil.example"}}, http.StatusForbidden},
	} {
		conn, res, err := websocket.Dial(t.Context(), r.ready.BaseURL+"/acp", &websocket.DialOptions{HTTPHeader: tt.header})
		if err == nil {
			_ = conn.CloseNow()
		}
		if res == nil || res.StatusCode != tt.want || res.Header.Get("Acp-Connection-Id") != "" {
			t.Errorf("%s: got %v, %v, want %d without an id", name, res, err, tt.want)
		}
	}
}

// A share confines an ACP client to its session and role, and revoking it closes the
// connection at once.
func TestShareOnACP(t *testing.T) {
	t.Parallel()
	r := serving(t)
	token := readToken(t, r)
	share := func(role string) (id, secret string) {
		var answer contracts.ShareAnswer
		callJSON(t, http.MethodPost, r.ready.BaseURL+"/api/headless/sessions/main/shares", token, `{"role":"`+role+`"}`, &answer)
		return answer.ShareID, answer.Token
	}
	id, secret := share("viewer")
	a := talkACP(t, r, secret, "")
	cwd := quoted(t, r.cmd.Dir)
	a.says(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"other","cwd":` + cwd + `,"mcpServers":[]}}`)
	if got := a.until(`"id":1,`); !strings.Contains(got, `"code":"access_denied"`) {
		t.Errorf("got %s, want access_denied for another session", got)
	}
	a.says(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	if got := a.until(`"id":2,`); !strings.Contains(got, `"sessionId":"main"`) {
		t.Errorf("got %s, want the shared session", got)
	}
	a.says(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"main","prompt":[{"type":"text","text":"touch g"}]}}`)
	if got := a.until(`"id":3,`); !strings.Contains(got, `"error":`) {
		t.Errorf("got %s, want a refusal of a viewer's prompt", got)
	}
	callJSON(t, http.MethodDelete, r.ready.BaseURL+"/api/headless/sessions/main/shares/"+id, token, "", &contracts.SuccessAnswer{})
	if got, want := a.closed(), contracts.CodeUnauthenticated.CloseCode(); got != want {
		t.Errorf("got close code %d after the share was revoked, want %d", got, want)
	}
	if exists(filepath.Join(r.cmd.Dir, "g")) {
		t.Error("a viewer's prompt was run")
	}
}

// An approver answers a question of another client's run without control.
func TestApproverOnACP(t *testing.T) {
	t.Parallel()
	r := serving(t)
	token, cwd := readToken(t, r), quoted(t, r.cmd.Dir)
	var share contracts.ShareAnswer
	callJSON(t, http.MethodPost, r.ready.BaseURL+"/api/headless/sessions/main/shares", token, `{"role":"approver"}`, &share)
	a := talkACP(t, r, share.Token, "")
	a.says(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	a.until(`"id":1,`)
	a.says(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"main","prompt":[{"type":"text","text":"touch g"}]}}`)
	if got := a.until(`"id":2,`); !strings.Contains(got, `"error":`) {
		t.Errorf("got %s, want a refusal of an approver's prompt", got)
	}
	owner := talkACP(t, r, token, "?sessionId=main")
	owner.says(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	owner.until(`"id":1,`)
	owner.says(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"main","prompt":[{"type":"text","text":"touch h"}]}}`)
	var ask struct {
		ID json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.until(`"session/request_permission"`)), &ask); err != nil {
		t.Fatal(err)
	}
	a.says(`{"jsonrpc":"2.0","id":` + string(ask.ID) + `,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`)
	if got := owner.until(`"id":2,`); !strings.Contains(got, `"end_turn"`) || !exists(filepath.Join(r.cmd.Dir, "h")) {
		t.Errorf("got %s, want the approved command to run", got)
	}
}

// A server that ends closes ACP connections, also while a prompt runs.
func TestACPConnectionEndsWithTheServer(t *testing.T) {
	t.Parallel()
	r := serving(t)
	a := talkACP(t, r, readToken(t, r), "?sessionId=main")
	cwd := quoted(t, r.cmd.Dir)
	a.says(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	a.until(`"id":1,`)
	a.says(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"main","prompt":[{"type":"text","text":"sleep 600"}]}}`)
	a.until(`"session/request_permission"`)
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if got := a.closed(); got != 1001 {
		t.Errorf("got close code %d, want 1001", got)
	}
	if err := r.cmd.Wait(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the exit code of a signal", err)
	}
}

func TestACPOnAHostedRunner(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	r := listening(t, "hosted-runner", "--runner-session-id", "r", "--workspace-root", work, "--maestro-session-id", "plan", "--agent", "shell")
	a := talkACP(t, r, readToken(t, r), "")
	cwd := quoted(t, work)
	a.says(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	if got := a.until(`"id":1,`); !strings.Contains(got, `"sessionId":"plan"`) {
		t.Errorf("got %s, want the runner's session", got)
	}
	a.says(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"other","cwd":` + cwd + `,"mcpServers":[]}}`)
	if got := a.until(`"id":2,`); !strings.Contains(got, `"error":`) {
		t.Errorf("got %s, want a refusal of another session", got)
	}
}
