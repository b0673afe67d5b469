package mcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A record is a log that is written to from many goroutines.
type record struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	written chan struct{} // closed and replaced at each line
}

func (r *record) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.written)
	r.written = make(chan struct{})
	return r.buf.Write(line)
}

// await returns once there is a line with part in it.
func (r *record) await(t *testing.T, part string) {
	t.Helper()
	late := time.After(hosttest.Patience)
	for {
		r.mu.Lock()
		written, found := r.written, strings.Contains(r.buf.String(), part)
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-written:
		case <-late:
			t.Fatalf("got no %q in the log, want it:\n%s", part, r.text())
		}
	}
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func newRecord() (*record, *slog.Logger) {
	r := &record{written: make(chan struct{})}
	return r, slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Whatever a configuration holds is said to nobody: what clients are told comes
// from a list of reasons, and the log gets the rest without credentials.
func TestNothingOfAConfigurationIsToldToClients(t *testing.T) {
	t.Parallel()
	dies := testProgram(t, "program", "dies", "BOX_SECRET", "s3cret-words and --api-key=s3cret-key", "LOUD", "s3cret-loud")
	dies.Args = []string{"--token", "s3cret-arg", "--password=s3cret-assigned"}
	refuse := http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		http.Error(out, "who is "+req.URL.String()+req.Header.Get("Authorization"), http.StatusForbidden)
	})
	site := newSite(t, refuse)
	long := Server{Name: "refused", URL: site.URL + "/s3cret-path/mcp?key=s3cret-query", Headers: map[string]string{"Authorization": "Bearer s3cret-token"}}
	gone := long
	gone.Name, gone.URL = "gone", "http://127.0.0.1:1/s3cret-path/mcp?key=s3cret-query"
	absent := Server{Name: "absent", Command: "/s3cret-dir/program", Args: dies.Args}
	wrong := long
	wrong.Name, wrong.Headers = "wrong", map[string]string{"Authorization: Bearer s3cret-header": ""}

	h := newHost(t)
	rec, log := newRecord()
	s := open(t, h, Options{Log: log}, dies, long, gone, absent, wrong)
	for name, want := range map[string]string{
		`MCP server "program" `:                    "exit status 3",
		`MCP server "refused" (` + site.URL + `) `: "it answered 403 Forbidden",
		`MCP server "gone" (http://127.0.0.1:1) `:  "connection refused",
		`MCP server "absent" `:                     "its program does not start: no such file or directory",
		`MCP server "wrong" (` + site.URL + `) `:   "its configuration is not in order",
	} {
		awaitStatus(t, h, name)
		if said := statuses(h); !strings.Contains(said, want) {
			t.Errorf("got %q said, want %q", said, want)
		}
	}
	for _, l := range s.links {
		if _, err := l.connected(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want an error without secrets", err)
		}
	}
	s.Close()
	if said := statuses(h); strings.Contains(said, "s3cret") || strings.Contains(said, "/mcp") || strings.Contains(said, "cannot open the box") {
		t.Errorf("got %q said, want names, hosts and reasons", said)
	}
	for _, secret := range []string{"s3cret-words", "s3cret-key", "s3cret-loud", "s3cret-arg", "s3cret-assigned", "s3cret-query", "s3cret-token", "s3cret-path"} {
		if strings.Contains(rec.text(), secret) {
			t.Errorf("got %s in the log:\n%s", secret, rec.text())
		}
	}
	for _, want := range []string{"cannot open the box of ***", "exit status 3", "Forbidden", "connection refused"} {
		if !strings.Contains(rec.text(), want) {
			t.Errorf("got no %q in the log, want it:\n%s", want, rec.text())
		}
	}
}

func TestRefusalsOfServersAreShownWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := open(t, nil, Options{}, testProgram(t, "one", "tools", "BOX_SECRET", "s3cret-words"))
	res := must(t, s, "mcp__one__tell", "")
	if want := "The server refused the call: *** and API_KEY=*** do not fit"; !res.IsError || res.Text != want {
		t.Errorf("got %+v, want %q", res, want)
	}
}

func TestReasonsHoldNoAddresses(t *testing.T) {
	for want, err := range map[string]error{
		"its host is not found":           &url.Error{Op: "Post", URL: "https://s3cret/", Err: &net.DNSError{Name: "s3cret", IsNotFound: true}},
		"connection refused":              &url.Error{Op: "Post", URL: "https://s3cret/", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
		"permission denied":               &os.PathError{Op: "fork/exec", Path: "/s3cret", Err: syscall.EACCES},
		"there is no such program":        &exec.Error{Name: "s3cret", Err: exec.ErrNotFound},
		"it does not speak TLS":           &url.Error{Op: "Post", URL: "https://s3cret/", Err: http.ErrSchemeMismatch},
		"its certificate is not accepted": &url.Error{Op: "Post", URL: "https://s3cret/", Err: &tls.CertificateVerificationError{Err: errors.New("s3cret")}},
		"it did not answer in time":       fmt.Errorf("s3cret: %w", context.DeadlineExceeded),
		"the connection ended":            fmt.Errorf("s3cret: %w", io.EOF),
		"what it answered was not understood, or refused; the server's log has more": errors.New("s3cret"),
	} {
		if got := why(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestSecretsOfAServerAreKnown(t *testing.T) {
	l := &link{secrets: secretsOf(&Server{Env: map[string]string{"A": "s3cret-12", "B": "before s3cret-12 after"}})}
	if got := l.hide("got before s3cret-12 after and s3cret-12"); got != "got *** and ***" {
		t.Errorf("got %q, want a value hidden whole that holds another", got)
	}
	got := secretsOf(&Server{
		URL:     "https://host.example/team/s3cret%20path/mcp?key=a%20s3cret&k=short",
		Headers: map[string]string{"A": "Bearer s3cret-token", "B": "short"},
		Env:     map[string]string{"C": "s3cret-env"},
		Args:    []string{"--verbose-option", "--key=s3cret-value", "s3cret-word", "-x"},
	})
	for _, want := range []string{"/team/s3cret%20path/mcp", "/team/s3cret path/mcp", "key=a%20s3cret&k=short", "a s3cret", "Bearer s3cret-token", "s3cret-token", "s3cret-env", "s3cret-value", "s3cret-word"} {
		if !strings.Contains(fmt.Sprintf("%q", got), fmt.Sprintf("%q", want)) {
			t.Errorf("got %q, want %q among them", got, want)
		}
	}
	for _, value := range got {
		if value == "short" || value == "--verbose-option" || strings.Contains(value, "host.example") {
			t.Errorf("got %q, want it left as it is", value)
		}
	}
}
