//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// A running is a server that has said it is ready.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   *bytes.Buffer // its standard error, once it has ended
	ready readiness
}

// serving starts maestro serve and waits until it is ready.
func serving(t *testing.T, args ...string) *running {
	t.Helper()
	return listening(t, append([]string{"serve"}, args...)...)
}

// listening starts maestro in a mode that listens, at any port unless args name one, and
// waits until it is ready.
func listening(t *testing.T, args ...string) *running {
	t.Helper()
	cmd := program(t, slices.Insert(args, 1, "--listen", "127.0.0.1:0", "--ready-stdout")...)
	r := &running{t: t, cmd: cmd, log: &bytes.Buffer{}}
	cmd.Stderr = r.log
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
	r.in = in
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("got %v before the ready line; log:\n%s", err, r.log)
	}
	if err := json.Unmarshal(line, &r.ready); err != nil {
		t.Fatalf("got %s, want the ready line: %v", line, err)
	}
	return r
}

// ends waits for the process and checks how it ended.
func (r *running) ends(code int) {
	r.t.Helper()
	if got := exitCode(r.t, r.cmd.Wait()); got != code {
		r.t.Errorf("got exit code %d, want %d; log:\n%s", got, code, r.log)
	}
}

// attach dials the server as a client on the same machine does.
func (r *running) attach(opts ...client.Option) *client.Client {
	r.t.Helper()
	if r.ready.TokenFile != "" {
		opts = append(opts, client.WithTokenFile(r.ready.TokenFile))
	}
	c, err := client.Dial(r.t.Context(), r.ready.BaseURL, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close(false) })
	return c
}

func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// get returns the answer to a request of the owner.
func (r *running) get(path string) (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.ready.BaseURL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.ready.TokenFile != "" {
		token, err := os.ReadFile(r.ready.TokenFile)
		if err != nil {
			r.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// until asks for a path until the answer has the status, and returns its body.
func (r *running) until(path string, status int) (body string) {
	r.t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		got, body := r.get(path)
		if got == status {
			return body
		}
		if time.Now().After(late) {
			r.t.Fatalf("%s: got %d %s, want %d", path, got, body, status)
		}
	}
}

// namesNoPath fails if a text for clients names a directory of the server.
func (r *running) namesNoPath(text string) {
	r.t.Helper()
	for _, dir := range []string{filepath.Dir(r.ready.TokenFile), "workspaces", ".seg", "meta.json"} {
		if strings.Contains(text, dir) {
			r.t.Errorf("got %s, which names the path %s", text, dir)
		}
	}
}

// connected returns what a client was told at its first handshake.
func connected(t *testing.T, c *client.Client) contracts.Attached {
	t.Helper()
	for {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind == client.KindConnected {
			return *u.Attached
		}
	}
}

func TestSignalsEndTheServerWithTheirCode(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129} {
		r := serving(t)
		c := r.attach()
		if err := r.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		r.ends(code)
		for { // the client is told to come back, not cut off
			u, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if u.Kind != client.KindDisconnected {
				continue
			}
			if e, ok := errors.AsType[*client.CloseError](u.Err); !ok || e.Reason != contracts.CodeGoingAway {
				t.Errorf("got %v, want %s", u.Err, contracts.CodeGoingAway)
			}
			break
		}
	}
}

// A start that waits for a file which never ends is ended by the first signal all
// the same.
func TestSignalEndsAStartThatHangs(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := syscall.Mkfifo(key, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "serve", "--listen", "127.0.0.1:0", "--jwt-key", key)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	end, err := os.OpenFile(key, os.O_WRONLY, 0) // once the server opens it for reading
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(t, cmd.Wait()); got != 143 {
		t.Errorf("got exit code %d, want 143", got)
	}
}

func TestReadyFileNamesTheServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	r := serving(t, "--ready-file", path, "--exit-on-stdin-eof")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got readiness
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got != r.ready || got.PID != r.cmd.Process.Pid || got.SessionID != "main" || !strings.HasPrefix(got.WSURL, "ws://127.0.0.1:") {
		t.Errorf("got %+v, want %+v", got, r.ready)
	}
	info, err := os.Stat(got.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("got token file mode %v, want 0600", info.Mode())
	}
	if err := r.in.Close(); err != nil {
		t.Fatal(err)
	}
	r.ends(0)
}

func TestOneServerPerJournal(t *testing.T) {
	t.Parallel()
	r := serving(t)
	second := program(t, "serve", "--listen", "127.0.0.1:0", "--workspace", r.cmd.Dir, "--state-dir", filepath.Dir(r.ready.TokenFile))
	out, err := second.CombinedOutput()
	if got := exitCode(t, err); got != exitFailure || !strings.Contains(string(out), "another process") {
		t.Errorf("got exit code %d and %s, want %d and that another process has the journal", got, out, exitFailure)
	}
	if want := "its own --workspace or --state-dir"; !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %q", out, want)
	}

	workspace := t.TempDir()
	runner := []string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", workspace}
	listening(t, runner...)
	out, err = program(t, append(runner, "--listen", "0")...).CombinedOutput()
	if got, want := exitCode(t, err), "its own --workspace-root or --state-dir"; got != exitFailure || !strings.Contains(string(out), want) {
		t.Errorf("hosted-runner: got exit code %d and %s, want %d and %q", got, out, exitFailure, want)
	}
}

// TestWhatIsToldHoldsEverywhere gives paths that count from where the server was
// started, and an address that is a port.
func TestWhatIsToldHoldsEverywhere(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]string{{"serve"}, {"hosted-runner", "--runner-session-id", "r", "--workspace-root", "."}} {
		cmd := program(t, append(mode, "--listen", "0", "--host", "127.0.0.1", "--state-dir", "st", "--ready-file", "ready.json", "--exit-on-stdin-eof")...)
		if mode[0] == "serve" {
			cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool { return arg == "--host" || arg == "127.0.0.1" })
		}
		out, err := cmd.CombinedOutput() // its input is at its end
		if got := exitCode(t, err); got != 0 {
			t.Fatalf("%q: got exit code %d and %s, want 0", mode, got, out)
		}
		var ready readiness
		text, err := os.ReadFile(filepath.Join(cmd.Dir, "ready.json"))
		if err != nil || json.Unmarshal(text, &ready) != nil {
			t.Fatalf("%q: got ready file %s, %v", mode, text, err)
		}
		if !strings.HasPrefix(ready.BaseURL, "http://127.0.0.1:") {
			t.Errorf("%q: got address %s, want one on 127.0.0.1", mode, ready.BaseURL)
		}
		if _, err := os.Stat(ready.TokenFile); err != nil || !filepath.IsAbs(ready.TokenFile) {
			t.Errorf("%q: got token file %q, %v, want its whole path", mode, ready.TokenFile, err)
		}
		if want := " --token-file " + ready.TokenFile; !strings.Contains(string(out), want) {
			t.Errorf("%q: got\n%s\nwant%s in it", mode, out, want)
		}
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"serve", "--listen", taken.Addr().String()}, exitFailure, "address already in use: choose another port with --listen"},
		{[]string{"headless", "--listen", takenPort}, exitFailure, "address already in use: choose another port with --listen"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--pprof", takenPort}, exitFailure, "with --pprof"},
		{[]string{"serve", "--listen", "99999"}, exitUsage, "want a port"},
		{[]string{"serve", "--listen", "here"}, exitUsage, "HOST:PORT or PORT"},
		{[]string{"serve", "--listen", "0.0.0.0:0", "--auth", "off"}, exitUsage, "loopback"},
		{[]string{"serve", "--listen", ":0", "--auth", "off"}, exitUsage, "loopback"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--pprof", "0.0.0.0:0"}, exitUsage, "loopback"},
		{[]string{"headless", "--listen", "0.0.0.0:0", "--auth", "off"}, exitUsage, "loopback"},
		{[]string{"serve", "--workspace", "/does/not/exist"}, exitFailure, "/does/not/exist"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--agent", "nobody"}, exitUsage, "nobody"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--agent", "headless:"}, exitUsage, "headless:"},
		{[]string{"serve", "--agent", "shell:x"}, exitUsage, "shell:x"},
		{[]string{"serve", "--agent", "llm:foo/bar"}, exitUsage, `unknown provider "foo"`},
		{[]string{"serve", "--agent", `acp:"a`}, exitUsage, "unterminated quotes"},
		{[]string{"hosted-runner", "--agent", "headless:'a"}, exitUsage, "unterminated quotes"},
		{[]string{"serve", "--deny", "bash"}, exitUsage, "--deny is for llm: agents, and the agent is shell"},
		{[]string{"serve", "--agent", "script:x", "--allow", "bash"}, exitUsage, "--allow is for llm:"},
		{[]string{"serve", "--agent", "acp:true", "--ask", "bash"}, exitUsage, "--ask is for llm:"},
		{[]string{"serve", "--agent", "headless:true", "--model-url", "http://127.0.0.1:1"}, exitUsage, "--model-url is for llm:"},
		{[]string{"hosted-runner", "--agent", "conformance", "--max-iterations", "100"}, exitUsage, "--max-iterations is for llm:"},
		{[]string{"headless", "--context-tokens", "8000"}, exitUsage, "--context-tokens is for llm:"},
		{[]string{"acp", "--max-tokens", "8000"}, exitUsage, "--max-tokens is for llm:"},
		{[]string{"serve", "--mcp-config", "mcp.json"}, exitUsage, "--mcp-config is for acp: and llm: agents, and the agent is shell"},
		{[]string{"serve", "--agent", "acp:true", "--mcp-config", "/does/not/exist"}, exitFailure, "/does/not/exist"},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--allow", "bash(("}, exitUsage, `--allow: rule "bash(("`},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--ask", ""}, exitUsage, `--ask: rule ""`},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--deny", "bash()"}, exitUsage, `--deny: rule "bash()"`},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--model-url", "nonsense"}, exitUsage, "--model-url: "},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--context-tokens", "5"}, exitUsage, "--context-tokens 5: want 4096 or more"},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--context-tokens", "-1"}, exitUsage, "--context-tokens -1"},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--max-iterations", "-3"}, exitUsage, "must not be negative"},
		{[]string{"serve", "--agent", "llm:openai-chat/any", "--max-tokens", "-3"}, exitUsage, "must not be negative"},
		{[]string{"serve", "--listen", taken.Addr().String(), "--env-pass", "MAESTRO_TEST_UNSET"}, exitFailure, "name=MAESTRO_TEST_UNSET"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--agent", "script:/does/not/exist"}, exitFailure, "/does/not/exist"},
		{[]string{"serve", "--agent", "llm:anthropic/m", "--deny", "Bash(touch:*)"}, exitUsage, "its name is bash"},
		{[]string{"serve", "--auth", "maybe"}, exitUsage, "maybe"},
		{[]string{"serve", "--lease-ttl", "-1s"}, exitUsage, "positive"},
		{[]string{"serve", "--max-connections", "0"}, exitUsage, "positive"},
		{[]string{"serve", "--request-timeout", "approval=soon"}, exitUsage, "never"},
		{[]string{"serve", "--request-timeout", "joke=1s"}, exitUsage, "joke"},
		{[]string{"serve", "--nonsense"}, exitUsage, "nonsense"},
		{[]string{"serve", "--nonsense"}, exitUsage, "maestro: see maestro help serve\n"},
		{[]string{"serve", "--max-sessions", "-4"}, exitUsage, "--max-sessions -4 must be positive"},
		{[]string{"serve", "--idle-ttl", "-4s"}, exitUsage, "--idle-ttl -4s must not be negative"},
		{[]string{"serve", "extra"}, exitUsage, `too many arguments ["extra"]: want maestro serve`},
		{[]string{"attach", "1", "2"}, exitUsage, `too many arguments ["1" "2"]: want maestro attach [SERVER]`},
		{[]string{"sessions", "delete"}, exitUsage, "an argument is missing: want maestro sessions delete SESSION..."},
		{[]string{"sessions", "export", "a", "b"}, exitUsage, `too many arguments ["a" "b"]: want maestro sessions export SESSION`},
		{[]string{"sessions", "remove"}, exitUsage, `no command "remove": maestro sessions has delete, export, list`},
		{[]string{"share", "make"}, exitUsage, `no command "make": maestro share has create, list, revoke`},
		{[]string{"completion", "csh"}, exitUsage, `no command "csh": maestro completion has bash, fish`},
		{[]string{"nonsense"}, exitUsage, "nonsense"},
		{[]string{"nonsense"}, exitUsage, "maestro: see maestro help\n"},
		{[]string{"help", "nonsense"}, exitUsage, `no command "nonsense"`},
		{[]string{"help", "serve", "nonsense"}, exitUsage, `no command "serve nonsense"`},
		{[]string{"headless", "--workspace", "/does/not/exist"}, exitFailure, `"fatal":true`},
		{[]string{"headless", "--auth", "maybe"}, exitUsage, `"fatal":true`},
		{[]string{"serve", "--ready-file", "/does/not/exist/ready", "--listen", "127.0.0.1:0"}, exitFailure, "/does/not/exist"},
		{[]string{"headless", "--agent", "nobody"}, exitUsage, `"fatal":true`},
		{[]string{"headless", "--nonsense"}, exitUsage, `"message":"Headless startup failed: unknown flag: --nonsense","fatal":true`},
		{[]string{"headless", "extra"}, exitUsage, `"fatal":true`},
		{[]string{"--headless", "--nonsense"}, exitUsage, `"fatal":true`},
		{[]string{"--mode", "headless", "--agent", "nobody"}, exitUsage, `"fatal":true`},
		{[]string{"--agent", "nobody", "--mode=headless"}, exitUsage, `"fatal":true`},
		{[]string{"--mode", "text"}, exitUsage, "unknown flag: --mode"},
		// What a hosted runner needs may come from its environment: it is a start that
		// fails. Its other flags are flags like all.
		{[]string{"hosted-runner"}, exitFailure, "MAESTRO_RUNNER_SESSION_ID"},
		{[]string{"hosted-runner", "--runner-session-id", "r"}, exitFailure, "MAESTRO_WORKSPACE_ROOT"},
		{[]string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", ".", "--listen", "99999"}, exitFailure, "TCP port"},
		{[]string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", ".", "--agent", "nobody"}, exitUsage, "nobody"},
		{[]string{"hosted-runner", "--max-sessions", "2"}, exitUsage, "max-sessions"},
		{[]string{"headless", "--turns", "101"}, exitUsage, "--turns must be at most 100"},
		{[]string{"headless", "--turns", "1", "--protocol", "heddle"}, exitUsage, "--turns needs --protocol maestro"},
		{[]string{"headless", "--max-kept-sessions", "2"}, exitUsage, "max-kept-sessions"},
		{[]string{"attach", "http://127.0.0.1:1"}, exitFailure, "nothing listens at 127.0.0.1:1"},
		{[]string{"attach", "ftp://127.0.0.1"}, exitUsage, "want ws://"},
		{[]string{"attach", "http://"}, exitUsage, "no host"},
		{[]string{"attach", "99999"}, exitUsage, "want a port from 1 to 65535"},
		{[]string{"attach", "0"}, exitUsage, "want a port from 1 to 65535"},
		{[]string{"acp", "127.0.0.1:99999"}, exitUsage, "want a port from 1 to 65535"},
		{[]string{"attach", "--view", "--take"}, exitUsage, "--view only watches: leave out --take"},
		{[]string{"acp", "--view", "--take"}, exitUsage, "--view only watches: leave out --take"},
		{[]string{"conformance"}, exitUsage, "target"},
		{[]string{"conformance", "--target", "nowhere"}, exitUsage, "nowhere"},
		{[]string{"conformance", "--target", "stdio:"}, exitUsage, "stdio:"},
		{[]string{"conformance", "--target", "stdio:true", "--format", "xml"}, exitUsage, "xml"},
		{[]string{"conformance", "--target", "stdio:true", "--run", "("}, exitUsage, "--run"},
		{[]string{"conformance", "--target", "stdio:true", "--protocol-profile", "x"}, exitUsage, "want seed or public"},
		{[]string{"conformance", "--target", "stdio:true", "--timeout", "0"}, exitUsage, "positive"},
		{[]string{"conformance", "--target", "stdio:'" + os.Args[0] + "' headless --agent shell"}, exitUsage, "--runtime any"},
		{[]string{"conformance", "--target", "stdio:/does/not/exist"}, exitFailure, "/does/not/exist"},
	} {
		out, err := program(t, test.args...).CombinedOutput()
		if got := exitCode(t, err); got != test.code || !strings.Contains(string(out), test.says) {
			t.Errorf("maestro %q: got exit code %d and %s, want %d and %q", test.args, got, out, test.code, test.says)
		}
	}
}

// TestHeadlessIsACommandAndAFlag starts it as clients of other implementations do.
func TestHeadlessIsACommandAndAFlag(t *testing.T) {
	for _, args := range [][]string{{"headless"}, {"--headless"}, {"--mode", "headless"}, {"--mode=headless"}, {"--agent", "conformance", "--headless"}} {
		out, err := program(t, args...).Output() // its input is at its end
		if err != nil || !strings.HasPrefix(string(out), `{"type":"ready",`) {
			t.Errorf("maestro %q: got %v and %s, want it to start and end", args, err, out)
		}
	}
}

func TestVersionAndHelpAreToldWhenAsked(t *testing.T) {
	t.Parallel()
	for want, ways := range map[string][][]string{
		"maestro " + wiring.Version() + "\n": {{"version"}, {"--version"}, {"-v"}},
		"\ncommit: ":                         {{"version"}},
		"\ndate: ":                           {{"version"}},
		"\ngo: " + runtime.Version() + "\nplatform: " + runtime.GOOS + "/" + runtime.GOARCH + "\n": {{"version"}},
		"--idle-ttl":    {{"help", "serve"}, {"serve", "--help"}},
		"hosted-runner": {{"help"}, {"--help"}, {}},
	} {
		for _, args := range ways {
			out, err := program(t, args...).Output()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("maestro %q: got %v and %s, want %q", args, err, out, want)
			}
		}
	}
}

// TestRunnerThatWouldBeOpenLeavesNothing refuses before there is a session.
func TestRunnerThatWouldBeOpenLeavesNothing(t *testing.T) {
	cmd := program(t, "hosted-runner", "--runner-session-id", "r", "--workspace-root", ".", "--listen", "0.0.0.0:0", "--auth", "off")
	out, err := cmd.CombinedOutput()
	if got := exitCode(t, err); got != exitUsage || !strings.Contains(string(out), "loopback") {
		t.Errorf("got exit code %d and %s, want %d and the reason", got, out, exitUsage)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the workspace, want nothing", left, err)
	}
}

// TestBrowsersGetThePage opens the address that the server prints, by its
// own name and by a stranger's that resolves to it.
func TestBrowsersGetThePage(t *testing.T) {
	t.Parallel()
	r := serving(t)
	for host, status := range map[string]int{"": http.StatusOK, "evil.example": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.ready.BaseURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Accept", "text/html,*/*")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != status || strings.Contains(string(body), "maestro attach") != (status == http.StatusOK) {
			t.Errorf("host %q: got %d %s, %v, want %d", host, res.StatusCode, body, err, status)
		}
	}
}

// TestScriptedAttachAnswersWhatItIsAsked pipes lines into attach: each waits for
// what the one before it started, and answers what that asks.
func TestScriptedAttachAnswersWhatItIsAsked(t *testing.T) {
	t.Parallel()
	r := serving(t)
	for _, test := range []struct {
		lines string
		code  int
		want  []string
		never string
	}{
		{"echo one\ny\necho two\nn not now\n", 0, []string{"  | one\n", "Reason: not now"}, "  | two"},
		{"echo three\n", exitFailure, []string{"no more lines"}, "  | three"},
		{"echo four\ny\n", exitFailure, []string{"! not sent: a question was open before"}, "  | "}, // that of three
		{"y\necho four\n", exitFailure, []string{"! not sent: a question was open before"}, "  | "},
		{"/interrupt\necho four\ny\n", 0, []string{"  | four\n"}, "not sent"},
		{"/who\n/nothing\necho five\ny\n", exitFailure, []string{"! there is no command /nothing"}, "five"},
	} {
		cmd := program(t, "attach", "--no-history", "--token-file", r.ready.TokenFile, r.ready.WSURL)
		cmd.Stdin = strings.NewReader(test.lines)
		out, err := cmd.CombinedOutput()
		if got := exitCode(t, err); got != test.code {
			t.Errorf("%q: got exit code %d, want %d; output:\n%s", test.lines, got, test.code, out)
		}
		for _, want := range test.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q: got\n%s\nwant %q in it", test.lines, out, want)
			}
		}
		if strings.Contains(string(out), test.never) {
			t.Errorf("%q: got\n%s\nwant no %q in it", test.lines, out, test.never)
		}
	}
}

func TestAttachTakesTheSessionFromTheURL(t *testing.T) {
	t.Parallel()
	r := serving(t)
	attach := func(url string, args ...string) (string, int) {
		cmd := program(t, append([]string{"attach", "--token-file", r.ready.TokenFile, url}, args...)...)
		cmd.Stdin = strings.NewReader("/quit\n")
		out, err := cmd.CombinedOutput()
		return string(out), exitCode(t, err)
	}
	address := strings.TrimPrefix(r.ready.BaseURL, "http://")
	for _, test := range []struct {
		url  string
		args []string
		code int
		want string
	}{
		{address, nil, 0, "session main"},
		{r.ready.WSURL, nil, 0, "session main"},
		{address, []string{"--session", "two"}, exitFailure, "not found"},
		{"ws://" + address + "/api/headless/ws?create=1&sessionId=two", nil, 0, "session two"},
		{address, []string{"--session", "two"}, 0, "session two"},
		{address, []string{"--session", "three", "--create"}, 0, "session three"},
		{r.ready.WSURL, []string{"--session", "two"}, exitUsage, "--session"},
		{r.ready.WSURL + "&cursor=3", nil, exitUsage, "cursor=3"},
	} {
		if out, code := attach(test.url, test.args...); code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("attach %s %q: got exit code %d and %s, want %d and %q", test.url, test.args, code, out, test.code, test.want)
		}
	}
}

// TestLogTellsTheLifeOfASession is about what an operator looks for at the level info.
func TestLogTellsTheLifeOfASession(t *testing.T) {
	t.Parallel()
	r := serving(t, "--log-format", "json")
	c := r.attach(client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce))
	if _, err := c.Prompt(t.Context(), "echo hi"); err != nil {
		t.Fatal(err)
	}
	var request string
	for ended := false; !ended; {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch ev := u.Event.(type) {
		case *contracts.ServerRequest:
			request = ev.RequestID
			if _, err := c.Approve(t.Context(), ev.RequestID, ""); err != nil {
				t.Fatal(err)
			}
		case *contracts.ResponseEnd:
			ended = true
		}
	}
	c.Close(false)
	r.signal(syscall.SIGTERM)
	r.ends(143)
	lines := logged(t, r.log.Bytes())
	for _, what := range []string{"session opened", "listening", "client attached", "control changed", "question asked", "question ended", "client detached", "control released", "ending", "session closed", "ended"} {
		if len(lines[what]) == 0 {
			t.Errorf("got no %q in\n%s", what, r.log)
		}
	}
	if t.Failed() {
		return
	}
	ended, attached := lines["question ended"][0], lines["client attached"][0]
	if ended["request"] != request || ended["verdict"] != "approved" || ended["connection"] != attached["connection"] || ended["name"] != "owner" || ended["session"] != "main" {
		t.Errorf("got %v, want who answered which question of which session", ended)
	}
}
