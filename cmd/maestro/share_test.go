//go:build unix

package main

import (
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A link admits until the share is revoked. Its secret is in no log, and not accepted in
// a query.
func TestShareCommands(t *testing.T) {
	t.Parallel()
	r := serving(t, "--log-level", "debug")
	share := func(args ...string) string {
		t.Helper()
		cmd := program(t, append(append([]string{"share"}, args...), r.ready.BaseURL, "--token-file", r.ready.TokenFile)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("share %q: got %v and %s, want success", args, err, out)
		}
		return string(out)
	}
	made := share("create", "--label", "wall screen", "--expires", "1h", "--role", "controller")
	m := regexp.MustCompile(`^share ([0-9a-f]{24}) of session main, controller, until \S+\n(http://\S+/#share=(mshare_\S+))\n$`).FindStringSubmatch(made)
	if m == nil || !strings.HasPrefix(m[2], r.ready.BaseURL+"/#") {
		t.Fatalf("got %q, want the share and its link", made)
	}
	id, link, secret := m[1], m[2], m[3]
	attach := program(t, "attach", "--no-history", link)
	attach.Stdin = strings.NewReader("echo hi from a share\ny\n")
	if out, err := attach.CombinedOutput(); err != nil || !strings.Contains(string(out), "hi from a share") {
		t.Errorf("got %v and %s, want the link to admit", err, out)
	}
	if got := share("list"); !regexp.MustCompile(id + ` +controller +wall screen +\S+ +1 +\S+ 127\.0\.0\.1\n`).MatchString(got) {
		t.Errorf("got the list\n%s\nwant one use from 127.0.0.1", got)
	}
	for _, name := range []string{"token", "share", "ticket"} {
		res, err := http.Get(r.ready.BaseURL + "/api/headless/sessions/main?" + name + "=" + secret)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s in the query: got %s, want 401", name, res.Status)
		}
	}
	for role, want := range map[string]string{"viewer": "! you only watch\n", "approver": "! you only answer questions, and none is open\n"} {
		_, link, _ := strings.Cut(strings.TrimSpace(share("create", "--role", role)), "\n")
		attach := program(t, "attach", "--no-history", link)
		attach.Stdin = strings.NewReader("hi\n")
		if out, err := attach.CombinedOutput(); exitCode(t, err) != exitFailure || !strings.Contains(string(out), want) {
			t.Errorf("the link of a %s: got %v and %s, want the role of the link", role, err, out)
		}
	}
	share("revoke", id)
	attach = program(t, "attach", "--no-history", link)
	attach.Stdin = strings.NewReader("")
	if out, err := attach.CombinedOutput(); err == nil || !strings.Contains(string(out), "does not accept the link") {
		t.Errorf("got %v and %s after the revocation, want a refusal of the link", err, out)
	}
	if got := share("list"); strings.Contains(got, id) {
		t.Errorf("got the list\n%s\nwant no share", got)
	}
	_, other, _ := strings.Cut(share("create"), "share ")
	other, _, _ = strings.Cut(other, " ")
	out, err := program(t, "share", "revoke", r.ready.BaseURL, other, "--token-file", r.ready.TokenFile).CombinedOutput()
	if want := "share " + other + " is revoked\n"; err != nil || string(out) != want {
		t.Errorf("got %v and %s with the server first, want %s", err, out, want)
	}
	for _, args := range [][]string{{"revoke", id}, {"create", "--session", "none"}} {
		cmd := program(t, append(append([]string{"share"}, args...), r.ready.BaseURL, "--token-file", r.ready.TokenFile)...)
		if out, err := cmd.CombinedOutput(); exitCode(t, err) != exitFailure {
			t.Errorf("share %q: got %v and %s, want a failure", args, err, out)
		}
	}
	for _, args := range [][]string{{"revoke"}, {"create", link}, {"create", "--role", "king"}, {"create", "--expires", "9000h"}, {"create", "--expires", "1ms"}, {"create", "--expires", "31d"}, {"create", "--expires", "1y"}, {"create", "--expires", "d"}} {
		if out, err := program(t, append([]string{"share"}, args...)...).CombinedOutput(); exitCode(t, err) != 2 {
			t.Errorf("share %q: got %v and %s, want wrong usage", args, err, out)
		}
	}
	r.signal(syscall.SIGTERM)
	r.ends(128 + int(syscall.SIGTERM))
	if log := r.log.String(); strings.Contains(log, secret[len("mshare_"):][:12]) || !strings.Contains(log, "level=DEBUG") {
		t.Errorf("got the log\n%s\nwant one without the secret, at level debug", log)
	}
}
