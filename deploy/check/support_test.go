// Package check_test tries the examples in the folder above with the programs that they are
// for, on a real server. It is a module of its own, so that Maestro does not get its
// dependencies. `make deploy-check` runs it.
package check_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/built"
)

// maestro is the path of the program.
var maestro string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "maestro-deploy-")
	if err == nil {
		maestro = filepath.Join(dir, "maestro")
		err = errors.Join(os.Chdir("../.."), built.Maestro(maestro), os.Chdir("deploy/check")) // go build looks for the module there
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir) // it is a temporary directory
	os.Exit(code)
}

// patience bounds the start of a program, and each wait for an answer.
const patience = time.Minute

// read returns the text of a file in the folder above.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// adapted returns the text of a file in the folder above, with other paths and ports. The
// pairs are what stands in the file, at least once, and its replacement.
func adapted(t *testing.T, path string, pairs ...string) string {
	t.Helper()
	text := read(t, path)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%s: got no %q to replace", path, pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// written writes a file into a directory and returns its path.
func written(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// output runs a program to its end.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// fetch sends a GET request, with the token as its credential unless it is empty.
func fetch(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// free returns an address on loopback that was free a moment ago, and its port.
func free(t *testing.T) (addr, port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err = net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return addr, port
}

// start starts a program, which ends with the test, and waits until it writes a line with
// the text.
func start(t *testing.T, ready string, cmd *exec.Cmd) {
	t.Helper()
	var (
		mu   sync.Mutex
		said bytes.Buffer
	)
	log := func() string {
		mu.Lock()
		defer mu.Unlock()
		return said.String()
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // the program has a copy
	seen, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the program
		defer close(ended)
		var once sync.Once
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			mu.Lock()
			said.WriteString(lines.Text() + "\n")
			mu.Unlock()
			if strings.Contains(lines.Text(), ready) {
				once.Do(func() { close(seen) })
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // each program has its own codes
		timer.Stop()
		_ = out.SetReadDeadline(time.Now().Add(time.Second)) // for what its children still write
		<-ended
		_ = out.Close()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), log())
		}
	})
	select {
	case <-seen:
	case <-ended:
		t.Fatalf("%s ended before %q:\n%s", cmd.Path, ready, log())
	case <-time.After(patience):
		t.Fatalf("%s: got no %q within %v:\n%s", cmd.Path, ready, patience, log())
	}
}

// A server is a running maestro serve with the settings of the service.
type server struct {
	addr         string
	token        string
	metricsToken string // path
}

// serve starts a server with the settings in systemd/maestro.toml, but with directories and a
// port of its own.
func serve(t *testing.T, args ...string) server {
	t.Helper()
	dir := t.TempDir()
	s := server{metricsToken: filepath.Join(dir, "metrics-token")}
	config := written(t, dir, "maestro.toml", adapted(t, "systemd/maestro.toml",
		"/srv/maestro", t.TempDir(), "/var/lib/maestro/metrics-token", s.metricsToken))
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(maestro, append([]string{"serve", "--config", config, "--listen", "127.0.0.1:0", "--ready-file", ready}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME=", "SHELL=/bin/sh")
	start(t, "maestro listens on ", cmd)
	var told struct{ BaseURL, TokenFile string }
	text, err := os.ReadFile(ready)
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err == nil {
		text, err = os.ReadFile(told.TokenFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.addr, s.token = strings.TrimPrefix(told.BaseURL, "http://"), strings.TrimSpace(string(text))
	return s
}
