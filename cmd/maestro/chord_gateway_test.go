//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// A gateway is a client that starts, stops and restarts the program as known ones do.
type gateway struct {
	t                 *testing.T
	binary, workspace string
	env               []string
	session           string // from ready
	*chordPeer
}

// newGateway makes a binary of one line, and the configuration of a provider.
func newGateway(t *testing.T, providerURL string) *gateway {
	t.Helper()
	g := &gateway{t: t, binary: filepath.Join(t.TempDir(), "chord"), workspace: t.TempDir()}
	config := filepath.Join(t.TempDir(), "config")
	for path, text := range map[string]string{
		g.binary: "#!/bin/sh\nexec " + os.Args[0] + ` "$@" --protocol chord` + "\n",
		filepath.Join(config, "config.yaml"): `providers:
  local: # a comment
    type: chat-completions
    api_url: ` + providerURL + `/v1/chat/completions
    models:
      some-model:
        name: some-model
        limit:
          context: 32000
          output: 1024
`,
		filepath.Join(config, "auth.yaml"): "local:\n  - $LOCAL_KEY\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.env = append(os.Environ(), "MAESTRO_TEST_MAIN=1", "SHELL=/bin/sh", "CHORD_CONFIG_HOME="+config, "CHORD_STATE_DIR="+t.TempDir(), "LOCAL_KEY=test-key")
	return g
}

// start starts the program in its own process group, and subscribes before it reads
// ready.
func (g *gateway) start() {
	g.t.Helper()
	args := []string{"headless", "-d", g.workspace}
	if g.session != "" {
		args = append(args, "--resume", g.session)
	}
	cmd := exec.CommandContext(g.t.Context(), g.binary, args...)
	cmd.Env, cmd.Dir = g.env, g.t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.chordPeer = chordStart(g.t, cmd)
	g.do("subscribe", "events", []string{"assistant_message", "confirm_request", "question_request", "idle", "error", "notification", "done_completion", "todos"})
	ready := g.next()
	if id := ready.text("session_id"); ready.Type != "ready" || g.session != "" && id != g.session {
		g.t.Fatalf("got %s, want ready with the session %q", ready.raw, g.session)
	}
	g.session = ready.text("session_id")
	if l := g.next(); l.Type != "subscribe_response" {
		g.t.Fatalf("got %s, want the answer to subscribe", l.raw)
	}
}

// stop closes the input and signals the group.
func (g *gateway) stop() {
	g.t.Helper()
	_ = g.in.Close()
	if err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		g.t.Fatal(err)
	}
	g.ends(0)
}

// provider answers requests with events in the form of Chat Completions, sent as coarsely
// as small servers do.
func provider(t *testing.T, answers ...[]string) (url string, requests *atomic.Int32) {
	requests = &atomic.Int32{}
	return webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1)) - 1
		if r.URL.Path != "/v1/chat/completions" || n >= len(answers) || r.Header.Get("Authorization") != "Bearer test-key" {
			http.Error(w, "unexpected request", http.StatusInternalServerError)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, choice := range answers[n] {
			fmt.Fprintf(w, "data: {\"id\":\"c\",\"model\":\"some-model\",\"choices\":[{\"index\":0,%s}]}\n\n", choice)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})), requests
}

var done = []string{`"delta":{"content":"Done."}`, `"finish_reason":"stop"`}

func TestChordGatewayContract(t *testing.T) {
	for _, tool := range []string{"todo_write", "TodoWrite"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			url, requests := provider(t, []string{
				`"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"` + tool + `"}}]}`,
				`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"todos\":[{\"id\":\"todo-1\",\"content\":\"Review\",\"status\":\"in_progress\",\"active_form\":\"reviewing\"}]}"}}]}`,
				`"finish_reason":"tool_calls"`,
			}, done)
			g := newGateway(t, url)
			g.start()
			if s, _ := g.status(); s.text("session_id") != g.session || s.text("last_outcome") != "" {
				t.Errorf("got %s", s.raw)
			}
			g.do("send", "content", "please update todos and then finish")
			idle, before := g.until("idle")
			todos, messages := find(before, "todos"), find(before, "assistant_message")
			if len(todos) != 1 || todos[0].text("todos") != "[map[active_form:reviewing content:Review id:todo-1 status:in_progress]]" {
				t.Errorf("got %q, want the tasks", todos)
			}
			if last := messages[len(messages)-1]; last.text("text") != "Done." || idle.text("last_outcome") != "completed" {
				t.Errorf("got %s and %s", last.raw, idle.raw)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("got %d requests, want 2", n)
			}
			g.stop()
		})
	}
}

func TestChordGatewayStopsAndRestarts(t *testing.T) {
	t.Parallel()
	url, _ := provider(t, done, done)
	g := newGateway(t, url)
	for range 2 {
		g.start()
		g.do("send", "content", "hello")
		if l, before := g.until("idle"); l.text("last_outcome") != "completed" || len(before) != 1 {
			t.Errorf("got %s after %q", l.raw, before)
		}
		g.stop()
	}
	g.start()
	g.do("send", "content", "/new")
	g.do("status")
	if l, _ := g.until("status_response"); l.text("session_id") == g.session {
		t.Errorf("got %s, want a new session", l.raw)
	}
	g.stop()
}

// TestChordSlowReader has a client that reads nothing while the agent says a lot: the
// agent goes on, and nothing but what is allowed is missing in the end.
func TestChordSlowReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	r := serving(t, "--listen-chord", "unix:"+path, "--agent", scripted(t, `{"prompts":[
{"match":"much","steps":[{"repeat":{"times":100,"steps":[{"say":"`+strings.Repeat("x", 60_000)+`"},{"end":true}]}},{"say":"The end."}]}]}`))
	w := &chordWorld{chordSocket(t, path), nil, nil}
	w.until("ready")
	w.says("much")
	watcher := r.attend("watcher", "viewer", nil)
	watcher.says("The end.")
	got := texts(w.idle("completed"))
	if len(got) != 101 || got[len(got)-1] != "The end." {
		t.Errorf("got %d messages, want 101", len(got))
	}
}

// TestChordReaderThatNeverReads sends commands and reads no answers: the process reads no
// more of them after a while, and ends when it is told.
func TestChordReaderThatNeverReads(t *testing.T) {
	t.Parallel()
	p := chordProcess(t, "--agent", scripted(t, recordedScript))
	p.next() // it runs
	stuck := make(chan struct{})
	go func() { // ends with the process
		defer close(stuck)
		for range 200_000 {
			if _, err := io.WriteString(p.in, `{"type":"status"}`+"\n"); err != nil {
				return
			}
		}
	}()
	select {
	case <-stuck:
		t.Error("all commands were read, want that the process waits for its reader")
	case <-time.After(time.Second):
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
	<-stuck
}

func TestChordConfigurationIsRead(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return map[string]string{"KEY": "k1"}[name] }
	for _, tt := range []struct{ name, config, auth, want string }{
		{"none", "", "", "nil"},
		{"second provider, several models", "log_level: info\nproviders:\n  a:\n    type: responses\n    api_url: http://a/v1/responses\n    models:\n      ma:\n  b:\n    api_url: \"http://b/v1/chat/completions\"\n    type: chat-completions\n    models:\n      m1: &big\n        limit:\n          context: 128000\n          output: 32768\n      m2: *big\nmodel_pools:\n  big:\n    - b/m1\n", "a:\n- other\nb:\n- \"$KEY\"\n- k2\n", "{http://b/v1 m1 k1 128000 32768}"},
		{"no key", "providers:\n  b:\n    type: chat-completions\n    api_url: http://b/v1/chat/completions\n    models:\n      m1:\n", "", "{http://b/v1 m1  0 0}"},
		{"another type", "providers:\n  b:\n    type: messages\n    api_url: http://b\n    models:\n      m:\n", "", "error"},
		{"not an outline", "[1, 2]\n- x: {y", "", "error"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"config.yaml": tt.config, "auth.yaml": tt.auth} {
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		p, err := readChordConfig(dir, env)
		got := "nil"
		switch {
		case err != nil:
			got = "error"
		case p != nil:
			got = fmt.Sprint(*p)
		}
		if got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", tt.name, got, err, tt.want)
		}
	}
}

// TestChordClientOfTheDocument runs the client in docs/chord.md.
func TestChordClientOfTheDocument(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is not installed")
		return
	}
	page, err := os.ReadFile("../../docs/chord.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```js\n")
	script, _, _ = strings.Cut(script, "```")
	dir := t.TempDir()
	_, flags := chordModel(t, 0)
	shim := "#!/bin/sh\nexec " + os.Args[0] + ` "$@" '` + strings.Join(flags, "' '") + "'\n"
	for name, text := range map[string]string{"client.mjs": script, "maestro": shim} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "client.mjs"), "say Hi\n"+runs("touch ran"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAESTRO_TEST_MAIN=1", "CHORD_STATE_DIR="+t.TempDir(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Hi") || !strings.Contains(string(out), "denied: bash") || exists(filepath.Join(dir, "ran")) {
		t.Errorf("got %v and %s, want the answer and a denied call", err, out)
	}
}

// A frames makes lines of the messages of a WebSocket.
type frames struct {
	*websocket.Conn
	ctx context.Context
}

func (f frames) Write(line []byte) (int, error) {
	return len(line), f.Conn.Write(f.ctx, websocket.MessageText, bytes.TrimSuffix(line, []byte("\n")))
}

func (f frames) Close() error { return f.Conn.Close(websocket.StatusNormalClosure, "") }

func TestChordOnAWebSocket(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", scripted(t, recordedScript))
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := websocket.Dial(t.Context(), r.ready.BaseURL+"/api/chord/ws", &websocket.DialOptions{
		Subprotocols: []string{contracts.Subprotocol}, HTTPHeader: http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(token))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	go func() { // ends with the connection
		defer out.Close()
		for {
			_, text, err := conn.Read(t.Context())
			if err != nil {
				return
			}
			_, _ = out.Write(append(bytes.TrimSuffix(text, []byte("\n")), '\n'))
		}
	}()
	p := &chordPeer{t: t, in: frames{conn, t.Context()}, out: bufio.NewReader(in), read: in, log: &strings.Builder{}}
	p.replay(chordRecording(t, recordings[0]), nil)
}
