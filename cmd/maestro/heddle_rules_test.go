//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/seed-028515a8/maestro/contracts"
)

// checkSend checks what holds for the lines of every send, which were read since the
// line before it.
func checkSend(t *testing.T, id string, result map[string]any, lines []map[string]any) {
	t.Helper()
	seq, text, open := 0, "", ""
	for _, line := range lines {
		if line["type"] != "event" {
			continue
		}
		if line["send_id"] != id || line["event_seq"] != float64(seq) {
			t.Errorf("H12, H13, H14: got %v, want event %d of %s", line, seq, id)
		}
		seq++
		body := line["event"].(map[string]any)
		switch body["event"] {
		case "content_delta":
			text += body["text"].(string)
		case "tool_start":
			if open != "" {
				t.Errorf("H17: got the start of %v while %s runs", body, open)
			}
			open = body["name"].(string)
		case "tool_end":
			if body["name"] != open {
				t.Errorf("H17: got the end of %v, want that of %q", body, open)
			}
			if n := utf8.RuneCountInString(body["result_preview"].(string)); n > 500 {
				t.Errorf("H19: got a preview of %d characters", n)
			}
			open, text = "", ""
		}
	}
	if result["status"] == "ok" && (result["response"] != text || open != "") {
		t.Errorf("H16, H17: got the response %q with %q running, want %q", result["response"], open, text)
	}
	model, tool, total := result["model_latency_ms"].(float64), result["tool_latency_ms"].(float64), result["total_latency_ms"].(float64)
	if model < 0 || tool < 0 || model+tool != total {
		t.Errorf("H38: got the latencies %v + %v = %v", model, tool, total)
	}
}

// sends sends a message, waits for its result and checks the events.
func (c *heddleClient) sends(id, message string) (result map[string]any, events []map[string]any) {
	c.t.Helper()
	c.write(heddleSend(id, message))
	result, events = c.result(id)
	checkSend(c.t, id, result, events)
	return result, events
}

func (c *heddleClient) init(version, tools, more string) map[string]any {
	c.t.Helper()
	c.write(heddleInit("init", version, tools, more))
	lines := c.until("init_ok", "init")
	return lines[len(lines)-1]
}

func errorCode(result map[string]any) any {
	e, _ := result["error"].(map[string]any)
	return e["code"]
}

func TestHeddleSessions(t *testing.T) {
	t.Parallel()
	m := newChatModel(t, saysText("hello"))
	c := heddleServer(t, m, nil)
	c.write(`{"type":"status","id":"0"}`, "not json")
	if line := c.next(); line["id"] != "0" || errorCode(line) != "protocol_error" {
		t.Errorf("H1, H7: got %v first, want the answer to the first line", line)
	}
	if line := c.next(); line["id"] != "unknown" || errorCode(line) != "protocol_error" {
		t.Errorf("H8: got %v", line)
	}
	semver := regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	seen := map[any]bool{}
	for range 2 {
		ok := c.init("", `[]`, `,"task_id":"T","worker_id":"W"`)
		if ok["session_id"] == "" || !semver.MatchString(ok["protocol_version"].(string)) {
			t.Errorf("H3: got %v", ok)
		}
		seen[ok["session_id"]] = true
		result, events := c.sends("a", "hi")
		for _, line := range append(events, result) {
			if line["task_id"] != "T" || line["worker_id"] != "W" || line["session_id"] != ok["session_id"] {
				t.Errorf("H31: got %v", line)
			}
		}
		c.write(`{"type":"status","id":"s"}`)
		status := c.next()
		if status["messages_count"] != float64(2) || status["active"] != false || status["model"] != "openrouter/auto" || status["session_id"] != ok["session_id"] {
			t.Errorf("H28: got %v", status)
		}
	}
	other := heddleServer(t, m, nil)
	seen[other.init("", `[]`, "")["session_id"]] = true
	if len(seen) != 3 {
		t.Errorf("H4: got the sessions %v, want three", seen)
	}
	result, events := other.sends("b", "hi")
	for _, line := range append(events, result) {
		if line["task_id"] != nil || line["worker_id"] != nil || line["failure"] != nil {
			t.Errorf("H31: got %v, want no ids", line)
		}
	}
	other.write(heddleSend("c", "bye"))
	if err := other.in.Close(); err != nil {
		t.Fatal(err)
	}
	if result, _ := other.result("c"); result["status"] != "ok" {
		t.Errorf("H30: got %v", result)
	}
	other.ends(0)
	c.write(heddleSend("x", "one"), heddleSend("y", "two"), `{"type":"shutdown","id":"z"}`)
	for _, id := range []string{"x", "y"} { // HB2: in order
		if result, events := c.result(id); result["status"] != "ok" || eventKinds(events) != "content_delta usage" {
			t.Errorf("H15, H29: got %v, %v", eventKinds(events), result)
		}
	}
	c.until("shutdown_ok", "z")
	c.ends(0)
}

func TestHeddleTools(t *testing.T) {
	t.Parallel()
	const long = `{"command":"head -c 3000 /dev/zero | tr '\\0' x; echo äöü"}`
	m := newChatModel(t, callsTool("bash", long), callsTool("bash", `{"command":"exit 3"}`), callsTool("glob", `{"pattern":"*"}`), saysText("done"))
	c := heddleServer(t, m, nil, "--allow", "bash")
	c.init("0.5.0", `["shell","glob"]`, `,"permissions":{"allow":["x"]},"Model":7`) // H11
	result, events := c.sends("a", "work")
	if got := eventKinds(events); got != "turn_state turn_state tool_start tool_end tool_start tool_end tool_start tool_end content_delta usage turn_state" {
		t.Errorf("H17, H37: got %s", got)
	}
	calls, _ := result["tool_calls_made"].([]any)
	if len(calls) != 3 || calls[0].(map[string]any)["name"] != "shell" || calls[2].(map[string]any)["name"] != "glob" || result["iterations"] != float64(4) {
		t.Errorf("H18: got %v", result)
	}
	if preview := events[5]["event"].(map[string]any)["result_preview"].(string); !strings.HasPrefix(preview, "Error: ") {
		t.Errorf("got %q, want that a failed tool is shown as such", preview)
	}
}

func TestHeddleToolsThatAreNotListedNeverRun(t *testing.T) { // H33
	t.Parallel()
	for _, tools := range []string{`[]`, `["read_file"]`} {
		c := heddleServer(t, newChatModel(t, callsTool("bash", `{"command":"touch ran"}`), callsTool("ask_user", `{}`), saysText("no")), nil, "--allow", "bash")
		c.init("", tools, "")
		result, events := c.sends("a", "run")
		if _, err := os.Stat(filepath.Join(c.cmd.Dir, "ran")); err == nil || eventKinds(events) != "content_delta usage" {
			t.Errorf("H33: got %v, %v", eventKinds(events), result)
		}
	}
}

func TestHeddleLimits(t *testing.T) {
	t.Parallel()
	for version, code := range map[string]string{"0.5.0": "max_iterations", "0.4.0": "provider_error"} {
		t.Run("H34 "+version, func(t *testing.T) {
			t.Parallel()
			m := newChatModel(t, callsTool("glob", `{"pattern":"a"}`), callsTool("glob", `{"pattern":"b"}`), callsTool("glob", `{"pattern":"c"}`))
			c := heddleServer(t, m, nil)
			c.init(version, `["glob"]`, `,"max_iterations":2`)
			if result, _ := c.sends("a", "go"); errorCode(result) != code || m.asked.Load() != 2 || result["iterations"] != float64(2) {
				t.Errorf("H34: got %v after %d model calls", result, m.asked.Load())
			}
		})
	}
	t.Run("H35", func(t *testing.T) {
		t.Parallel()
		c := heddleServer(t, newChatModel(t, callsTool("glob", `{"pattern":"a"}`)), nil)
		c.init("0.4.0", `["glob"]`, "")
		result, events := c.sends("a", "go")
		failure, _ := result["failure"].(map[string]any)
		if errorCode(result) != "loop_detected" || failure["loop_count"] != float64(3) || failure["loop_threshold"] != float64(3) || strings.Count(eventKinds(events), "tool_start") != 3 {
			t.Errorf("H35: got %s, %v", eventKinds(events), result)
		}
	})
	t.Run("H32", func(t *testing.T) {
		t.Parallel()
		c := heddleServer(t, newChatModel(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"no such model","type":"invalid_request_error"}}`)
		}), nil)
		c.init("0.3.0", `[]`, "")
		result, events := c.sends("a", "go")
		e := events[len(events)-1]["event"].(map[string]any)
		if errorCode(result) != "provider_error" || e["code"] != "provider_error" || e["message"] != "no such model" || e["retryable"] != false || result["failure"] != nil {
			t.Errorf("H32, H37: got %v, %v", e, result)
		}
	})
}

func TestHeddleHeartbeats(t *testing.T) { // H20
	t.Parallel()
	c := heddleServer(t, newChatModel(t, delayed(600*time.Millisecond, saysText("late"))), []string{"HEDDLE_HEARTBEAT_INTERVAL=100"})
	c.init("", `[]`, "")
	_, events := c.sends("a", "wait")
	last, count := -1.0, 0
	for _, e := range events {
		if body := e["event"].(map[string]any); body["event"] == "heartbeat" {
			if ms := body["duration_ms"].(float64); ms <= last {
				t.Errorf("H20: got %v after %v", ms, last)
			} else {
				last = ms
			}
			count++
		}
	}
	if count == 0 {
		t.Error("H20: got no heartbeat")
	}
}

func TestHeddleCancel(t *testing.T) {
	t.Parallel()
	t.Run("H23 while the model answers", func(t *testing.T) {
		t.Parallel()
		m := newChatModel(t, func(w http.ResponseWriter, r *http.Request) {
			chunk(w, "x", `{"content":"first words"}`, "null", "")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, saysText("again"))
		c := heddleServer(t, m, nil)
		c.init("0.5.0", `[]`, "")
		c.write(heddleSend("a", "talk"))
		for line := c.next(); eventKinds([]map[string]any{line}) != "content_delta"; line = c.next() {
		}
		c.write(`{"type":"status","id":"s"}`)
		if status := c.next(); status["active"] != true {
			t.Errorf("HB1: got %v, want an answer at once", status)
		}
		c.write(`{"type":"cancel","id":"k","target_id":"other"}`, `{"type":"cancel","id":"k","target_id":"a"}`)
		result, events := c.result("a")
		e, _ := result["error"].(map[string]any)
		if e["code"] != "cancelled" || e["message"] != "cancelled" || e["retryable"] != false || result["response"] != nil || eventKinds(events) != "turn_state turn_state" {
			t.Errorf("H23, H24: got %s, %v", eventKinds(events), result)
		}
		if result, _ := c.sends("b", "go on"); result["status"] != "ok" || result["response"] != "again" {
			t.Errorf("H27: got %v", result)
		}
	})
	t.Run("H26 while a tool runs", func(t *testing.T) {
		t.Parallel()
		c := heddleServer(t, newChatModel(t, callsTool("bash", `{"command":"echo $$ >pid.new; mv pid.new pid; sleep 600; echo"}`), saysText("again")), nil, "--allow", "bash")
		c.init("", `["bash"]`, "")
		c.write(heddleSend("a", "sleep"))
		for line := c.next(); eventKinds([]map[string]any{line}) != "tool_start"; line = c.next() {
		}
		var pid int
		awaitTrue(t, "the tool to run", func() bool {
			text, _ := os.ReadFile(filepath.Join(c.cmd.Dir, "pid"))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			return pid != 0
		})
		c.write(`{"type":"cancel","id":"k","target_id":"a"}`)
		result, _ := c.result("a")
		if calls, _ := result["tool_calls_made"].([]any); errorCode(result) != "cancelled" || len(calls) != 1 {
			t.Errorf("H18, H26: got %v", result)
		}
		awaitTrue(t, "the tool's process to be gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		if result, _ := c.sends("b", "go on"); result["status"] != "ok" {
			t.Errorf("H27: got %v", result)
		}
	})
}

// awaitTrue polls a condition.
func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

func TestHeddleApprovals(t *testing.T) { // H40
	t.Parallel()
	for name, test := range map[string]struct{ wait, extensions, kinds string }{
		"nobody answers":    {"50", `[]`, "permission_request permission_denied content_delta usage"},
		"nobody can answer": {"", `[]`, "permission_request permission_denied content_delta usage"},
		"the client denies": {"50", `["deny_all"]`, "permission_request permission_denied content_delta usage"},
		"the client allows": {"50", `["approve_all"]`, "permission_request tool_start tool_end content_delta usage"},
	} {
		t.Run("H40 "+name, func(t *testing.T) {
			t.Parallel()
			m := newChatModel(t, callsTool("bash", `{"command":"touch ran"}`), saysText("so be it"))
			c := heddleServer(t, m, []string{"HEDDLE_APPROVAL_WAIT=" + test.wait})
			c.init("", `["bash"]`, `,"extensions":`+test.extensions)
			result, events := c.sends("a", "run")
			_, err := os.Stat(filepath.Join(c.cmd.Dir, "ran"))
			if eventKinds(events) != test.kinds || result["status"] != "ok" || (err == nil) != strings.Contains(test.kinds, "tool_start") {
				t.Errorf("H40: got %s, %v, %v", eventKinds(events), result, err)
			}
		})
	}
}

// sharedHeddle starts a server with a session that a native controller has.
func sharedHeddle(t *testing.T, m *chatModel) (native *attendee, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "heddle")
	r := listening(t, "serve", "--agent", "llm:openai-chat/openrouter/auto", "--model-url", m.url, "--no-retries", "--listen-heddle", "unix:"+path)
	return r.attend("native", contracts.RoleController, approvals), path
}

func TestHeddleSendWaitsForControlNotForEver(t *testing.T) {
	t.Setenv("HEDDLE_CONTROL_WAIT", "100")
	_, path := sharedHeddle(t, newChatModel(t, saysText("never")))
	c := heddleSocket(t, path)
	c.init("0.4.0", `[]`, "")
	if result, _ := c.sends("a", "hi"); errorCode(result) != "protocol_error" || result["error"].(map[string]any)["retryable"] != true {
		t.Errorf("got %v, want that another client has control", result)
	}
}

func TestHeddleSharesControl(t *testing.T) {
	t.Parallel()
	m := newChatModel(t, saysText("hello"), saysText("native"), callsTool("bash", `{"command":"true"}`), saysText("approved"))
	native, path := sharedHeddle(t, m)
	c := heddleSocket(t, path)
	c.init("0.4.0", `["bash"]`, "")
	c.write(heddleSend("waits", "hi"))
	native.status("asks for control")
	if _, err := native.ReleaseControl(t.Context()); err != nil {
		t.Fatal(err)
	}
	if result, _ := c.result("waits"); result["response"] != "hello" {
		t.Errorf("got %v, want that the send ran", result)
	}

	native.takes()
	native.prompts("hidden")
	native.says("native")
	greedy := heddleSocket(t, path)
	greedy.init("0.4.0", `["bash"]`, `,"extensions":["take_control"]`)
	greedy.write(heddleSend("a", "run"))
	question := native.asked()
	native.takes()
	if _, err := native.Approve(t.Context(), question.RequestID, ""); err != nil {
		t.Fatal(err)
	}
	result, events := greedy.result("a")
	if eventKinds(events) != "permission_request tool_start tool_end content_delta usage" || result["response"] != "approved" {
		t.Errorf("H40: got %s, %v, want that the native client approved", eventKinds(events), result)
	}
	c.write(`{"type":"shutdown","id":"z"}`)
	if line := c.next(); line["type"] != "shutdown_ok" {
		t.Errorf("got %v, want that the runs of other clients are hidden", line)
	}
}

func TestHeddleHostileClients(t *testing.T) {
	t.Parallel()
	m := newChatModel(t, saysText("alive"))
	path := filepath.Join(t.TempDir(), "heddle")
	listening(t, "serve", "--agent", "llm:openai-chat/openrouter/auto", "--model-url", m.url, "--listen-heddle", "unix:"+path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &heddleClient{t: t, in: conn}
	c.read(conn, func() { _ = conn.Close() })
	go func() { // ends when all is written, or with the connection
		_, _ = io.WriteString(conn, strings.Repeat("x", 10<<20)+"\n\xff\xfe\n"+`{"type":"send","id":"early","message":"m"}`+"\n")
		_, _ = io.WriteString(conn, heddleInit("i", "", `[]`, "")+"\n")
	}()
	for _, want := range []string{"Line is longer than 8388608 bytes", "Invalid JSON", "Not initialized. Send 'init' first."} {
		if e, _ := c.next()["error"].(map[string]any); e["message"] != want {
			t.Errorf("HB6: got %v, want %s", e, want)
		}
	}
	c.until("init_ok", "i")
	if result, _ := c.sends("a", "hi"); result["response"] != "alive" {
		t.Errorf("got %v, want that the session is unharmed", result)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	c = heddleSocket(t, path) // after a client that broke off
	c.init("", `[]`, "")
	if result, _ := c.sends("a", "hi"); result["status"] != "ok" {
		t.Errorf("got %v", result)
	}
}

func TestHeddleTimesInMilliseconds(t *testing.T) { // HB8
	for text, want := range map[string]time.Duration{"": 0, "junk": 0, "-5": 0, "0": -1, " 250 ": 250 * time.Millisecond} {
		if got := milliseconds(text); got != want {
			t.Errorf("HB8: %q: got %v, want %v", text, got, want)
		}
	}
}

func TestHeddleOnAWebSocket(t *testing.T) {
	t.Parallel()
	m := newChatModel(t, saysText("hello"))
	r := serving(t, "--agent", "llm:openai-chat/openrouter/auto", "--model-url", m.url)
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(r.ready.BaseURL, "http", "ws", 1)+"/api/heddle/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(token))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{heddleInit("i", "0.4.0", `[]`, ""), heddleSend("a", "hi"), `{"type":"shutdown","id":"z"}`} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var types []string
	for {
		var line struct{ Type string }
		if err := wsjson.Read(ctx, conn, &line); err != nil {
			break // the server closes
		}
		types = append(types, line.Type)
	}
	if got := strings.Join(types, " "); got != "init_ok event event result shutdown_ok" {
		t.Errorf("H29: got %s", got)
	}
}

// Without --agent the client names the model. With it, any agent serves.
func TestHeddleWithAnotherAgent(t *testing.T) {
	t.Parallel()
	c := heddleServer(t, newChatModel(t, saysText("never")), nil, "--agent", "shell")
	c.init("0.4.0", `["bash"]`, `,"extensions":["approve_all"]`)
	result, events := c.sends("a", "echo hi")
	if result["status"] != "ok" || !strings.Contains(eventKinds(events), "permission_request tool_start tool_end") {
		t.Errorf("got %s, %v", eventKinds(events), result)
	}
}
