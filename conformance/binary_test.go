package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
)

// soon are the flags that keep the slow scenarios short.
func soon(more ...string) []string {
	return append([]string{"--lease-ttl", "10s", "--heartbeat-interval", "5s"}, more...)
}

// aboutMessages are the scenarios on stdio and sockets for which it matters how
// strict a server is. aboutBodies, aboutRuns and aboutWho are those over HTTP for
// which that matters, which profile it has, and whom it lets in.
var (
	aboutMessages = regexp.MustCompile("^(framing|handshake|run|request|interrupt|shutdown|state|lease|handover|viewer|stream|resume|answer|socket|utility|offer)/")

	aboutBodies = regexp.MustCompile("^(route|header|refusal|connection|session|subscription|unsubscribe|heartbeat/[acu]|disconnect|post|tool)")
	aboutRuns   = regexp.MustCompile("^(refusal|session|subscription|return|post|parity)/")
	aboutWho    = regexp.MustCompile("^(route|header|session|connection|subscription|unsubscribe|disconnect|claim/[^e]|watcher|return|post|token|parity)/?")
)

// TestBuiltBinary holds the real server against the whole suite, as its users
// start it.
func TestBuiltBinary(t *testing.T) {
	t.Parallel()
	binary := build(t)
	for name, run := range map[string]func(*testing.T) conformance.Config{
		"stdio": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: fmt.Sprintf("stdio:'%s' headless --agent conformance --workspace '%s'", binary, t.TempDir())}
		},
		"stdio strict": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: fmt.Sprintf("stdio:'%s' headless --agent conformance --strict --workspace '%s'", binary, t.TempDir()), Strict: true, Filter: aboutMessages}
		},
		"stdio public": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: fmt.Sprintf("stdio:'%s' headless --agent conformance --protocol-profile public --workspace '%s'", binary, t.TempDir()),
				Profile: contracts.ProfilePublic, Filter: aboutMessages}
		},
		"ws": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: serve(t, binary, soon("--auth", "off")...).WSURL}
		},
		"ws strict": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: serve(t, binary, soon("--auth", "off", "--strict")...).WSURL, Strict: true, Filter: aboutMessages}
		},
		"http": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: serve(t, binary, soon("--auth", "off")...).BaseURL}
		},
		"http strict": func(t *testing.T) conformance.Config {
			return conformance.Config{Target: serve(t, binary, "--auth", "off", "--strict").BaseURL, Strict: true, Filter: aboutBodies}
		},
		"http public": func(t *testing.T) conformance.Config {
			ready := serve(t, binary, "--auth", "off", "--protocol-profile", "public")
			return conformance.Config{Target: ready.BaseURL, Profile: contracts.ProfilePublic, Filter: aboutRuns}
		},
		"http with authentication": func(t *testing.T) conformance.Config {
			ready := serve(t, binary, "--auth", "token")
			token, err := os.ReadFile(ready.TokenFile)
			if err != nil {
				t.Fatal(err)
			}
			return conformance.Config{Target: ready.BaseURL, Token: strings.TrimSpace(string(token)), Filter: aboutWho}
		},
		"hosted": func(*testing.T) conformance.Config { return conformance.Config{Spawn: hostedCommand(binary)} },
		"hosted public": func(*testing.T) conformance.Config {
			return conformance.Config{Spawn: hostedCommand(binary) + " --protocol-profile public", Profile: contracts.ProfilePublic}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := judge(t, run(t))
			passes(t, report)
			if report.Left != 0 {
				t.Errorf("got %d sessions that could not be ended, want none", report.Left)
			}
			for _, r := range report.Results {
				if len(r.Advice) > 0 {
					t.Errorf("%s: got advice %+v, want none", r.Name, r.Advice)
				}
			}
		})
	}
}

// hostedCommand starts a hosted runner as the process contract wants it.
func hostedCommand(binary string) string {
	return "'" + binary + "' hosted-runner --agent conformance --auth off --ready-stdout --exit-on-stdin-eof"
}

// build compiles the program.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "maestro")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/maestro").CombinedOutput()
	if err != nil {
		t.Fatalf("build cmd/maestro: %v\n%s", err, out)
	}
	return binary
}

// serve starts a server for the length of the test.
func serve(t *testing.T, binary string, flags ...string) readiness {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--agent", "conformance",
		"--state-dir", filepath.Join(dir, "state"), "--workspace", t.TempDir(), "--ready-file", ready}, flags...)
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // ends when t.Context does, which interrupts the server
	t.Cleanup(func() {
		<-exited
		if t.Failed() {
			t.Logf("the server's log:\n%s", stderr.String())
		}
	})
	return awaitReady(t, ready, exited)
}

// readiness is what a server says of itself once it listens.
type readiness struct {
	BaseURL   string `json:"baseUrl"`
	WSURL     string `json:"wsUrl"`
	TokenFile string `json:"tokenFile"`
}

// awaitReady looks for the ready file until the server has written it.
func awaitReady(t *testing.T, path string, exited chan error) readiness {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the server ended before it was ready: %v", err)
		case <-deadline:
			t.Fatal("got no ready file within 30 s")
		case <-look.C:
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		var ready readiness
		if err != nil || json.Unmarshal(text, &ready) != nil || ready.WSURL == "" || ready.BaseURL == "" {
			t.Fatalf("got ready file %q (%v), want an object with baseUrl and wsUrl", text, err)
		}
		return ready
	}
}
