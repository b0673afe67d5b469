package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/chaos"
	program "github.com/seed-028515a8/maestro/internal/testkit/built"
)

// The transports by short names.
const (
	onStdio  = conformance.Stdio
	onSocket = conformance.Socket
	onHTTP   = conformance.HTTP
	onHosted = conformance.Hosted
)

// A subject is the built server, with faults in front of it if there are any.
type subject struct {
	on     conformance.Transport
	public bool     // started with the public profile
	strict bool     // started to refuse unknown keys
	auth   bool     // started to want a credential
	flags  []string // more flags of the server
	agent  []string // flags that choose the agent; empty for the conformance agent
	faults string   // one a line
}

// config starts the subject, for the length of the test, and returns how it is judged.
func (j subject) config(t *testing.T) conformance.Config {
	t.Helper()
	c := conformance.Config{Strict: j.strict}
	flags := slices.Concat(j.agent, j.flags)
	if len(j.agent) == 0 {
		flags = append([]string{"--agent", "conformance"}, flags...)
	}
	if j.public {
		flags, c.Profile = append(flags, "--protocol-profile", "public"), contracts.ProfilePublic
	}
	if j.strict {
		flags = append(flags, "--strict")
	}
	switch j.on {
	case onStdio:
		c.Target = "stdio:" + j.command(t, asStdio, append([]string{"headless", "--workspace", workspace(t)}, flags...))
	case onHosted:
		c.Spawn = j.command(t, asRunner, append([]string{"hosted-runner", "--auth", "off", "--ready-stdout", "--exit-on-stdin-eof"}, flags...))
	default:
		server := serverWith(t, j.auth, flags)
		if c.Target, c.Token = server.base, server.token; j.faults != "" {
			c.Target = behind(t, server.base, j.faults)
		}
		if j.on == onSocket {
			c.Target = strings.Replace(c.Target, "http", "ws", 1)
		}
	}
	return c
}

// command is the command line of the built program, behind the test binary if there
// are faults.
func (j subject) command(t *testing.T, as string, args []string) string {
	t.Helper()
	args = append([]string{built(t)}, args...)
	if j.faults == "" {
		return quoted(args)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return quoted(append([]string{self, as, j.faults}, args...))
}

// behind is a proxy with faults before a server, for the length of the test.
func behind(t *testing.T, base, faults string) string {
	t.Helper()
	return serveHandler(t, proxy(t, base, faults))
}

func proxy(t *testing.T, base, faults string) *chaos.Proxy {
	t.Helper()
	list, err := parseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chaos.NewProxy(base, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func serveHandler(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// parseFaults reads faults, one a line.
func parseFaults(lines string) ([]chaos.Fault, error) {
	var faults []chaos.Fault
	for line := range strings.Lines(lines) {
		f, err := chaos.Parse(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// quoted writes words as a command line.
func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}

// asStdio and asRunner make the test binary a server with faults. The faults follow,
// one a line, and then the command.
const (
	asStdio  = "stdio-with-faults"
	asRunner = "runner-with-faults"
)

// serveWithFaults is the test binary as a server with faults.
func serveWithFaults(as, lines string, command []string) int {
	faults, err := parseFaults(lines)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 2
	case as == asStdio:
		return chaos.Stdio(command, faults)
	}
	return chaos.Runner(command, faults)
}

// scratch holds what all tests share: the built program, and the files of servers.
var scratch string

// build compiles the program once.
var build = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "maestro")
	return binary, program.Maestro(binary)
})

func built(t *testing.T) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// A running is a server that tests share.
type running struct {
	base, token string
	end         func()
}

// servers are the shared servers by their flags. They run until all tests are over.
var servers struct {
	mu sync.Mutex
	by map[string]*running
}

// serverWith returns the shared server that was started with flags.
func serverWith(t *testing.T, auth bool, flags []string) *running {
	t.Helper()
	binary := built(t)
	servers.mu.Lock()
	defer servers.mu.Unlock()
	key := fmt.Sprint(auth, flags)
	if s := servers.by[key]; s != nil {
		return s
	}
	s, err := startServer(binary, auth, flags)
	if err != nil {
		t.Fatal(err)
	}
	if servers.by == nil {
		servers.by = map[string]*running{}
	}
	servers.by[key] = s
	return s
}

// endServers ends the shared servers.
func endServers() {
	for _, s := range servers.by {
		s.end()
	}
}

// startServer starts a server with times that keep the slow scenarios short.
func startServer(binary string, auth bool, flags []string) (*running, error) {
	dir, err := os.MkdirTemp(scratch, "server-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "workspace"), 0o700); err != nil {
		return nil, err
	}
	policy := "off"
	if auth {
		policy = "token"
	}
	ready := filepath.Join(dir, "ready.json")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--auth", policy, "--request-rate", "-1",
		"--heartbeat-interval", "3s", "--lease-ttl", "15s", "--state-dir", filepath.Join(dir, "state"),
		"--workspace", filepath.Join(dir, "workspace"), "--ready-file", ready}, flags)...)
	var said strings.Builder
	cmd.Stderr, cmd.WaitDelay = &said, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	exited := make(chan struct{})
	go func() { // ends with the server, which end interrupts
		_ = cmd.Wait() // it was interrupted
		close(exited)
	}()
	s := &running{end: func() {
		cancel()
		<-exited
	}}
	if err := s.await(ready, exited); err != nil {
		s.end()
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return s, nil
}

// await looks for the ready file until the server has written it.
func (s *running) await(path string, exited <-chan struct{}) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-exited:
			return errors.New("the server ended before it was ready")
		case <-deadline:
			return errors.New("got no ready file within a minute")
		case <-look.C:
		}
		var ready struct {
			BaseURL   string `json:"baseUrl"`
			TokenFile string `json:"tokenFile"`
		}
		text, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(text, &ready) != nil || ready.BaseURL == "" {
			continue
		}
		s.base = ready.BaseURL
		if ready.TokenFile != "" {
			token, err := os.ReadFile(ready.TokenFile)
			if err != nil {
				return err
			}
			s.token = strings.TrimSpace(string(token))
		}
		return nil
	}
}

// workspace is an empty directory, by a path without links.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// judge runs the suite, with more patience than usual: tests share the machine.
func judge(t *testing.T, c conformance.Config) conformance.Report {
	t.Helper()
	c.Patience = cmp.Or(c.Patience, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 4*time.Minute)
	report, err := conformance.Maestro().Run(t.Context(), c)
	if err != nil {
		t.Errorf("run against %s: %v", c.Target, err)
	}
	return report
}

// judgeTwice is judge for servers whose slowness is not what the test is about: it
// judges each scenario that fails once more, alone.
func judgeTwice(t *testing.T, c conformance.Config) conformance.Report {
	t.Helper()
	report := judge(t, c)
	for i, r := range report.Results {
		if r.Outcome == conformance.Failed {
			c.Filter = regexp.MustCompile("^" + regexp.QuoteMeta(r.Name) + "$")
			again := judge(t, c)
			report.Results[i] = again.Results[0]
			report.Left += again.Left
		}
	}
	return report
}

// passes fails the test with every failure in a report, or if nothing passed.
func passes(t *testing.T, report conformance.Report) {
	t.Helper()
	for _, r := range report.Results {
		if f := r.Failure; f != nil {
			t.Errorf("%s: %s: got a failure of %s: %s\n\t%s", report.Target, r.Name, f.Rule, f.Message, strings.Join(f.Exchange, "\n\t"))
		}
	}
	if !report.OK() && !t.Failed() {
		t.Errorf("%s: got nothing judged", report.Target)
	}
}

// short is the patience for what a fault keeps from coming.
const short = 1500 * time.Millisecond

// judgeBroken judges a server with faults, with little patience for what they keep from
// coming. Unless the report is as expected, the machine may have been slow, and the
// run is repeated with more patience. It returns the last report.
func judgeBroken(t *testing.T, c conformance.Config, expected func(conformance.Report) bool) (report conformance.Report, ok bool) {
	t.Helper()
	for _, c.Patience = range []time.Duration{short, 8 * time.Second} {
		if report = judge(t, c); expected(report) {
			return report, true
		}
	}
	return report, false
}

// sideBySide calls do for all items, n at a time. Judging is mostly waiting, so that
// n is more than the processors there are.
func sideBySide[T any](n int, items []T, do func(T)) {
	slots := make(chan struct{}, n)
	var wg sync.WaitGroup
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(item)
		})
	}
	wg.Wait()
}
