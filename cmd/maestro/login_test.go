//go:build unix

package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The link of the login command logs one browser in, and the cookie outlives a restart.
func TestLoginCommand(t *testing.T) {
	t.Parallel()
	folders := []string{"--state-dir", t.TempDir(), "--workspace", t.TempDir()}
	r := serving(t, folders...)
	link, err := program(t, "login", r.ready.BaseURL, "--token-file", r.ready.TokenFile).Output()
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(c http.Client, url string) int {
		t.Helper()
		res, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	browser := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if got := get(browser, strings.TrimSpace(string(link))); got != http.StatusSeeOther {
		t.Fatalf("%s: got %d, want a login", link, got)
	}
	if got := get(http.Client{}, strings.TrimSpace(string(link))); got != http.StatusUnauthorized {
		t.Errorf("the link again: got %d, want 401", got)
	}
	if out, err := program(t, "login", r.ready.BaseURL, "--token-file", r.ready.TokenFile, "--session", "nope").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "not found") {
		t.Errorf("of an unknown session: got %v, %s, want that it is not found", err, out)
	}
	link, err = program(t, "login", r.ready.BaseURL, "--token-file", r.ready.TokenFile, "--session", "main").Output()
	if err != nil {
		t.Fatal(err)
	}
	res, err := browser.Get(strings.TrimSpace(string(link)))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got, want := res.Header.Get("Location"), "/#session=main"; got != want {
		t.Errorf("%s: leads to %q, want %q", link, got, want)
	}
	r.killed()
	r = serving(t, append(folders, "--listen", strings.TrimPrefix(r.ready.BaseURL, "http://"))...)
	if got := get(browser, r.ready.BaseURL+"/api/headless/sessions"); got != http.StatusOK {
		t.Errorf("after a restart: got %d, want that the browser is still logged in", got)
	}
}

// A certificate of an unknown authority is named, and SSL_CERT_FILE makes it known.
func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewUnstartedServer(http.NotFoundHandler())
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that a client did not like the certificate
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(proxy.URL, "127.0.0.1", "localhost", 1) // no name in the certificate
	for _, command := range []string{"login", "attach"} {
		for _, c := range []struct{ url, env, want string }{
			{proxy.URL, "SSL_CERT_FILE=", "unknown authority; trust its authority with SSL_CERT_FILE=FILE"},
			{proxy.URL, "SSL_CERT_FILE=" + authority, "is no maestro server"},
			{elsewhere, "SSL_CERT_FILE=" + authority, "does not accept: x509: certificate is valid for"},
		} {
			cmd := program(t, command, c.url)
			cmd.Env = append(cmd.Env, c.env)
			out, err := cmd.CombinedOutput()
			if got := exitCode(t, err); got != exitFailure || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "1006") {
				t.Errorf("%s %s with %s: got %d, want %q in\n%s", command, c.url, c.env, got, c.want, out)
			}
		}
	}
}
