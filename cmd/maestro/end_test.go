//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSignalWaitsForNobodyWhoIsSilent ends each command that listens while
// connections are open that ask nothing, half a question, or no more. A browser
// keeps such connections. internal/transport/connlimit proves that nothing of it takes time;
// here the bound leaves time for a busy machine. It is below the 5 s for which
// http.Server.Shutdown waits for a new connection that sends nothing.
func TestSignalWaitsForNobodyWhoIsSilent(t *testing.T) {
	t.Parallel()
	const bound = 4500 * time.Millisecond
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"serve":         {[]string{"serve"}, 143},
		"hosted-runner": {[]string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", "."}, 0},
		"headless":      {[]string{"headless"}, 143},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ready.json")
			cmd := program(t, append(tt.args, "--listen", "127.0.0.1:0", "--ready-file", path)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			ready := startListening(t, cmd, path)
			token, err := os.ReadFile(ready.TokenFile)
			if err != nil {
				t.Fatal(err)
			}
			crowd := silentCrowd(t, strings.TrimPrefix(ready.BaseURL, "http://"), strings.TrimSpace(string(token)))
			for _, c := range crowd {
				defer c.Close()
			}
			start := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			code := exitCode(t, cmd.Wait())
			took := time.Since(start)
			t.Logf("ended after %v with %d connections open", took, len(crowd))
			if code != tt.code || took > bound {
				t.Errorf("got exit code %d after %v, want %d within %v", code, took, tt.code, bound)
			}
		})
	}
}

// startListening starts a program and waits until it has said where it listens
// and written its first line.
func startListening(t *testing.T, cmd *exec.Cmd, path string) (ready readiness) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("got %q, %v, want a first line", line, err)
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &ready)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ready
}

// silentCrowd opens connections of each kind that no request is being answered
// on. When it returns the server knows all of them.
func silentCrowd(t *testing.T, addr, token string) (open []net.Conn) {
	t.Helper()
	const host = "Host: 127.0.0.1\r\n"
	known := "Authorization: Bearer " + token + "\r\n"
	dial := func(asks string, answers int) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, asks); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		for range answers {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
		return c
	}
	const health = "GET /healthz HTTP/1.1\r\n" + host + "\r\n"
	const body = "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	for range 10 {
		open = append(open,
			dial("", 0), dial("GET /healthz HTTP/1.1\r\n", 0), // silent, and half-asked
			dial(health, 1), dial(health+"GET /he", 1), // idle, and half-asked once more
			dial("POST /api/headless/connections HTTP/1.1\r\n"+host+body, 0),       // of nobody
			dial("POST /api/headless/connections HTTP/1.1\r\n"+host+known+body, 0)) // of somebody
		_ = dial("GET /healthz", 0).Close()
		_ = dial("POST /api/headless/connections HTTP/1.1\r\n"+host+known+body, 0).Close()
		broken := dial("GET /healthz", 0).(*net.TCPConn)
		_ = broken.SetLinger(0) // closes with a reset
		_ = broken.Close()
	}
	dial(health, 1).Close() // those before were accepted before
	return open
}
