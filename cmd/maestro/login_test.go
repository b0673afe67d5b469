//go:build unix

package main

import (
	"net/http"
	"net/http/cookiejar"
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
	r.killed()
	r = serving(t, append(folders, "--listen", strings.TrimPrefix(r.ready.BaseURL, "http://"))...)
	if got := get(browser, r.ready.BaseURL+"/api/headless/sessions"); got != http.StatusOK {
		t.Errorf("after a restart: got %d, want that the browser is still logged in", got)
	}
}
