//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A chatReply answers one request to a chat completions endpoint.
type chatReply func(w http.ResponseWriter, r *http.Request)

// chunk writes one event of a stream.
func chunk(w http.ResponseWriter, id, delta, finish, more string) {
	fmt.Fprintf(w, "data: {\"id\":%q,\"object\":\"chat.completion.chunk\",\"model\":\"openrouter/auto\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]%s}\n\n", id, delta, finish, more)
}

// saysText streams a text with usage.
func saysText(text string) chatReply {
	return func(w http.ResponseWriter, _ *http.Request) {
		quoted, _ := json.Marshal(text) // a string can be encoded
		chunk(w, "chatcmpl-test", `{"role":"assistant","content":`+string(quoted)+`}`, "null", "")
		chunk(w, "chatcmpl-test", `{}`, `"stop"`, `,"usage":{"prompt_tokens":42,"completion_tokens":15,"total_tokens":57}`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// callsTool streams a call without usage.
func callsTool(name, args string) chatReply {
	return func(w http.ResponseWriter, _ *http.Request) {
		quoted, _ := json.Marshal(args) // a string can be encoded
		chunk(w, "chatcmpl-call", fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":%q,"arguments":%s}}]}`, name, quoted), "null", "")
		chunk(w, "chatcmpl-call", `{}`, `"tool_calls"`, "")
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

func fails500(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprint(w, `{"error":{"message":"Model error","type":"error","code":500}}`)
}

func delayed(d time.Duration, then chatReply) chatReply {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			then(w, r)
		case <-r.Context().Done():
		}
	}
}

// A chatModel is a model that answers by a script. The last reply repeats.
type chatModel struct {
	url   string
	asked atomic.Int64
}

func newChatModel(t *testing.T, replies ...chatReply) *chatModel {
	m := &chatModel{}
	m.url = webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/chat/completions" && r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		replies[min(int(m.asked.Add(1)), len(replies))-1](w, r)
	}))
	return m
}

// A heddleClient is the client's side of a Heddle server.
type heddleClient struct {
	t     *testing.T
	cmd   *exec.Cmd // nil on a socket
	in    io.WriteCloser
	out   io.Closer // on stdio
	lines *bufio.Scanner
	idle  *time.Timer // ends a read that takes too long
}

func (c *heddleClient) read(from io.Reader, stop func()) {
	c.lines = bufio.NewScanner(from)
	c.lines.Buffer(nil, 16<<20)
	c.idle = time.AfterFunc(patience, stop)
	c.t.Cleanup(func() { c.idle.Stop(); stop() })
}

// heddleServer starts a server for one client.
func heddleServer(t *testing.T, m *chatModel, env []string, args ...string) *heddleClient {
	t.Helper()
	cmd := program(t, append([]string{"headless", "--protocol", "heddle"}, args...)...)
	cmd.Env = append(append(cmd.Env, "HEDDLE_BASE_URL="+m.url, "HEDDLE_HEARTBEAT_INTERVAL=3600000"), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &heddleClient{t: t, cmd: cmd, in: in, out: out}
	c.read(out, func() { _ = cmd.Process.Kill() })
	return c
}

// heddleSocket connects to a server on a Unix socket.
func heddleSocket(t *testing.T, path string) *heddleClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &heddleClient{t: t, in: conn}
	c.read(conn, func() { _ = conn.Close() })
	return c
}

func (c *heddleClient) write(lines ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, strings.Join(lines, "\n")+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next line, or nil at the end.
func (c *heddleClient) next() map[string]any {
	c.t.Helper()
	c.idle.Reset(patience)
	if !c.lines.Scan() {
		return nil
	}
	var line map[string]any
	if err := json.Unmarshal(c.lines.Bytes(), &line); err != nil {
		c.t.Fatalf("H2: got %q, want a JSON object", c.lines.Bytes())
	}
	return line
}

// until returns the lines up to the first of a type with an id.
func (c *heddleClient) until(kind, id string) (lines []map[string]any) {
	c.t.Helper()
	for {
		line := c.next()
		if line == nil {
			c.t.Fatalf("got %v and the end, want a %s for %s", lines, kind, id)
		}
		lines = append(lines, line)
		if line["type"] == kind && line["id"] == id {
			return lines
		}
	}
}

// result returns the result of a request, and the events before it.
func (c *heddleClient) result(id string) (result map[string]any, events []map[string]any) {
	c.t.Helper()
	lines := c.until("result", id)
	return lines[len(lines)-1], lines[:len(lines)-1]
}

// ends checks that there are no more lines, and the exit code.
func (c *heddleClient) ends(code int) {
	c.t.Helper()
	if line := c.next(); line != nil {
		c.t.Errorf("got %v, want no more lines", line)
	}
	if got := exitCode(c.t, c.cmd.Wait()); got != code {
		c.t.Errorf("got exit code %d, want %d", got, code)
	}
}

func heddleInit(id, version, tools, more string) string {
	if version != "" {
		version = fmt.Sprintf(`"protocol_version":%q,`, version)
	}
	return fmt.Sprintf(`{"type":"init","id":%q,%s"config":{"model":"openrouter/auto","system_prompt":"You help.","tools":%s%s}}`, id, version, tools, more)
}

func heddleSend(id, message string) string {
	return fmt.Sprintf(`{"type":"send","id":%q,"message":%q}`, id, message)
}

// eventKinds returns the kinds of events, without heartbeats.
func eventKinds(events []map[string]any) string {
	var list []string
	for _, e := range events {
		body, _ := e["event"].(map[string]any)
		if name, _ := body["event"].(string); name != "heartbeat" && name != "" {
			list = append(list, name)
		}
	}
	return strings.Join(list, " ")
}

// unstable are the members that differ from run to run.
var unstable = []string{
	"session_id", "timestamp", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens", "event.result_preview",
	"event.details", "event.provider", "task_id", "worker_id", "model_latency_ms", "tool_latency_ms", "total_latency_ms",
	"protocol_version", "capabilities", "profile", "error.details.provider", "failure.provider", "failure.cancellation_source", "event_seq",
}

func stable(line map[string]any) map[string]any {
	for _, path := range unstable {
		at, keys := line, strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			at, _ = at[key].(map[string]any)
		}
		if at != nil {
			delete(at, keys[len(keys)-1])
		}
	}
	calls, _ := line["tool_calls_made"].([]any)
	for _, call := range calls {
		delete(call.(map[string]any), "id")
	}
	return line
}

func heddleTranscript(t *testing.T, name string) (in []string, out []map[string]any) {
	t.Helper()
	for _, part := range []string{"in", "out"} {
		text, err := os.ReadFile(filepath.Join("testdata", "heddle", name+"."+part+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if part == "in" {
				in = append(in, strings.TrimSuffix(line, "\n"))
				continue
			}
			var want map[string]any
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatal(err)
			}
			out = append(out, stable(want))
		}
	}
	return in, out
}

// plays writes a transcript and compares the answers.
func (c *heddleClient) plays(name string) {
	c.t.Helper()
	in, want := heddleTranscript(c.t, name)
	c.write(in...)
	for i, line := range want {
		got := c.next()
		if got == nil {
			c.t.Fatalf("line %d: got the end, want %v", i, line)
		}
		if got = stable(got); !reflect.DeepEqual(got, line) {
			c.t.Errorf("line %d: got %v, want %v", i, got, line)
		}
	}
}

// heddleModels are the models of the transcripts.
var heddleModels = map[string][]chatReply{
	"normal": {callsTool("glob", `{"pattern":"*"}`), saysText("Here are the files...")},
	"error":  {fails500}, "cancel": {delayed(5*time.Second, saysText("late"))}, "version-mismatch": {saysText("never")},
}

func TestHeddleTranscriptsOnStdio(t *testing.T) { // H39, H5, H29, H31
	t.Parallel()
	for name, replies := range heddleModels {
		t.Run("H39 "+name, func(t *testing.T) {
			t.Parallel()
			c := heddleServer(t, newChatModel(t, replies...), nil)
			c.plays(name)
			if name == "version-mismatch" {
				c.ends(1) // H5
			} else {
				c.ends(0) // H29
			}
		})
	}
}

// A Heddle client has the same session as a controller and ten viewers.
func TestHeddleTranscriptsOnASharedSession(t *testing.T) {
	t.Parallel()
	for name, replies := range heddleModels {
		t.Run("H39 "+name, func(t *testing.T) {
			t.Parallel()
			m := newChatModel(t, replies...)
			path := filepath.Join(t.TempDir(), "heddle")
			r := listening(t, "serve", "--agent", "llm:openai-chat/openrouter/auto", "--model-url", m.url, "--no-retries", "--listen-heddle", "unix:"+path)
			native := r.attend("native", contracts.RoleController, approvals)
			viewers := make([]*attendee, 10)
			for i := range viewers {
				viewers[i] = r.attend(fmt.Sprint("viewer ", i), contracts.RoleViewer, nil)
			}
			if _, err := native.ReleaseControl(t.Context()); err != nil {
				t.Fatal(err)
			}
			heddleSocket(t, path).plays(name)
			if name == "normal" {
				for _, v := range append(viewers, native) {
					v.says("Here are the files...")
				}
			}
		})
	}
}

// The client of docs/heddle.md works as it is printed there.
func TestHeddleClientOfTheDocuments(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("there is no node to run the client")
		return
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "heddle.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```js\n")
	source, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	for name, text := range map[string]string{"client.mjs": source, "maestro": "#!/bin/sh\nexec '" + os.Args[0] + "' \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m := newChatModel(t, callsTool("glob", `{"pattern":"*"}`), saysText("Two files."))
	cmd := program(t)
	cmd.Path, cmd.Args = node, []string{node, filepath.Join(dir, "client.mjs")}
	cmd.Env = append(cmd.Env, "HEDDLE_BASE_URL="+m.url, "PATH="+dir+":"+os.Getenv("PATH"))
	var told strings.Builder
	cmd.Stderr = &told
	if out, err := cmd.Output(); err != nil || string(out) != "Two files.\n" || told.String() != "tool: glob {\"pattern\":\"*\"}\n" {
		t.Errorf("got %q, %q, %v", out, told.String(), err)
	}
}

// A client that goes away while a tool runs takes its server with it.
func TestHeddleServerEndsWithItsClient(t *testing.T) { // HB10
	t.Parallel()
	for _, interval := range []string{"0", "20"} {
		t.Run(interval, func(t *testing.T) { heddleServerEndsWithItsClient(t, interval) })
	}
}

func heddleServerEndsWithItsClient(t *testing.T, interval string) {
	t.Parallel()
	c := heddleServer(t, newChatModel(t, callsTool("bash", `{"command":"sleep 600; echo"}`)), []string{"HEDDLE_HEARTBEAT_INTERVAL=" + interval}, "--allow", "bash")
	c.init("", `["bash"]`, "")
	c.write(heddleSend("a", "sleep"))
	for line := c.next(); eventKinds([]map[string]any{line}) != "tool_start"; line = c.next() {
	}
	if err := c.out.Close(); err != nil {
		t.Fatal(err)
	}
	if got := codeAtEnd(t, c.cmd); got <= 0 {
		t.Errorf("got exit code %d, want one of a failure", got)
	}
}

func TestHeddleClientWithoutAProviderIsToldTheVariables(t *testing.T) {
	t.Parallel()
	c := heddleServer(t, &chatModel{}, []string{"OPENAI_API_KEY="})
	c.write(heddleInit("i", "", "[]", ""))
	if r, _ := c.result("i"); !strings.Contains(fmt.Sprint(r["error"]), "set HEDDLE_BASE_URL") {
		t.Errorf("got %v, want the names of the variables", r)
	}
}
