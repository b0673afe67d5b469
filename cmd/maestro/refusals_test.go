//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// TestRefusalsAreLogged refuses a client for each reason and looks for the line
// that says so.
func TestRefusalsAreLogged(t *testing.T) {
	f := startFort(t, "serve", "--listen", "127.0.0.1:0", "--agent", "conformance", "--state-dir", t.TempDir())
	f.keys["stranger"] = "not-the-right-token-0123456789abcdefghijklmnop"
	f.keys["guest"] = f.want(shot{as: "owner", what: "POST /api/headless/sessions/main/shares", body: `{}`}).text("token")
	denied := contracts.CodeAccessDenied
	for _, tt := range []struct {
		shot shot
		want string // in the line
	}{
		{shot{as: "stranger", what: "GET /api/headless/sessions/main?ticket=secret-ticket", code: contracts.CodeUnauthenticated},
			`code=unauthenticated reason="invalid credential" remote=127.0.1.1:`},
		{shot{what: "WS /api/headless/ws", code: contracts.CodeUnauthenticated}, `reason="a credential is required"`},
		{shot{as: "owner", what: "GET /api/headless/sessions", headers: []string{"Host: maestro.example"}, code: denied},
			`reason="Host is not one of this server's"`},
		{shot{as: "owner", what: "POST /api/headless/sessions", headers: []string{"Origin: https://evil.example"}, code: denied},
			"origin=https://evil.example"},
		{shot{as: "guest", what: "WS /api/headless/ws?role=controller", code: denied}, `reason="this credential only allows viewing"`},
		{shot{as: "guest", what: "GET /api/headless/sessions/other", code: denied}, "route=/api/headless/sessions/{id}"},
	} {
		before := len(f.log.text(t))
		f.refuses(tt.shot)
		line := f.log.waits(t, before, "msg=refused")
		if strings.Count(line, "level=INFO msg=refused") != 1 || !strings.Contains(line, tt.want) {
			t.Errorf("%s: got %q, want a line with %s", tt.shot.what, line, tt.want)
		}
	}
	before := len(f.log.text(t))
	p := f.attachAs("guest", "", strings.Replace(helloText, `"type":"hello"`, `"type":"hello","role":"controller"`, 1))
	if got, err := p.until(""); err != nil || got != "4403 access_denied" {
		t.Errorf("got %s, %v, want 4403", got, err)
	}
	f.log.waits(t, before, `this credential only allows viewing" session=main principal=share_`)
	for i := range 100 {
		f.fire(shot{as: "stranger", what: fmt.Sprint("GET /", i)})
	}
	log := f.log.text(t)
	if got := strings.Count(log, "msg=refused"); got < 7 || got > 20 {
		t.Errorf("got %d lines for more than 100 refusals, want few", got)
	}
	f.tellsNothing("the log", log)
	if strings.Contains(log, "secret-ticket") {
		t.Errorf("got a ticket in the log:\n%s", log)
	}
}

// TestLimitsLeaveALine goes beyond limits that no answer to a request tells of.
func TestLimitsLeaveALine(t *testing.T) {
	f := startFort(t, "serve", "--listen", "127.0.0.1:0", "--agent", "conformance", "--state-dir", t.TempDir(), "--max-frame-bytes", "262144",
		"--max-unfinished-bytes", "1048576", "--max-principal-unfinished-bytes", "524288", "--max-address-connections", "4")
	f.keys["guest"] = f.want(shot{as: "owner", what: "POST /api/headless/sessions/main/shares", body: `{}`}).text("token")
	unfinished := frame(opText, strings.Repeat("x", 200<<10))
	for range 2 {
		p := f.attachAs("guest", "", helloText)
		_, _ = p.Write(unfinished[:len(unfinished)-1]) // refused as soon as there is no room
	}
	f.log.waits(t, 0, `code=rate_limited reason="too many unfinished messages of one principal" session=main principal=share_`)
	for range 5 {
		f.dial()
	}
	f.log.waits(t, 0, `code=overloaded reason="closed for a new connection: too many wait for a request" remote=127.0.`)
}

// TestOwnerGetsInWithoutDescriptors has silent connections use up all the files
// that the server may open.
func TestOwnerGetsInWithoutDescriptors(t *testing.T) {
	f := startFortAs(t, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `ulimit -n 64 && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}, "serve", "--listen", "127.0.0.1:0", "--agent", "conformance", "--state-dir", t.TempDir())
	for range 100 {
		f.dial()
	}
	f.want(shot{as: "owner", what: "GET /api/headless/sessions/main/state"})
	if log := f.log.waits(t, 0, "connections cannot be accepted"); strings.Count(log, "connections cannot be accepted") != 1 || !strings.Contains(log, "too many open files") {
		t.Errorf("got the log\n%s\nwant one line about descriptors", log)
	}
}
