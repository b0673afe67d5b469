//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// pagesDir makes a directory with a page.
func pagesDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("<script>1</script>"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPagesNeedNoCredentialAndTheRestDoes(t *testing.T) {
	t.Parallel()
	r := serving(t, "--pages", pagesDir(t))
	for path, status := range map[string]int{
		"/pages/": 200, "/pages": 200, "/pages/none": 404, "/pages/..": 400, "/pages/%2e%2e/": 400, "/pages//": 400, "/api/headless/whoami": 401,
	} {
		res, err := http.Get(r.ready.BaseURL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s: got %d, want %d", path, res.StatusCode, status)
		}
		if status == 200 && !strings.Contains(res.Header.Get("Content-Security-Policy"), "script-src 'self' 'sha256-") {
			t.Errorf("%s: got the policy %q, want the hash of the script", path, res.Header.Get("Content-Security-Policy"))
		}
	}
	if status, _ := serving(t).get("/pages/"); status != 404 {
		t.Errorf("got %d without --pages, want 404", status)
	}
}

// A page is everybody's to read, so nothing secret may lie beside it.
func TestPagesAreNotWhereSecretsAre(t *testing.T) {
	t.Parallel()
	dir := pagesDir(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "maestro.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(filepath.Join(state, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"missing":            {[]string{"--pages", filepath.Join(dir, "none")}, "--pages: "},
		"a file":             {[]string{"--pages", filepath.Join(dir, "index.html")}, "--pages: "},
		"state below":        {[]string{"--pages", dir, "--state-dir", filepath.Join(dir, "a", "b")}, "keeps there"},
		"state through link": {[]string{"--pages", dir, "--state-dir", filepath.Join(link, "state")}, "--state-dir keeps there"},
		"below the state":    {[]string{"--pages", filepath.Join(state, "inner"), "--state-dir", state}, "--state-dir keeps there"},
		"a new token":        {[]string{"--pages", link, "--metrics-token-file", filepath.Join(dir, "metrics-token")}, "--metrics-token-file keeps there"},
		"the settings":       {[]string{"--pages", link, "--config", filepath.Join(dir, "maestro.toml")}, "--config keeps there"},
	} {
		out, err := program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--exit-on-stdin-eof"}, test.args...)...).CombinedOutput()
		if code := exitCode(t, err); code != 1 || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: got exit code %d and %s, want 1 and %q", name, code, out, test.want)
		}
	}
}

func TestPagesThatTheAgentCanChangeAreNamedInTheLog(t *testing.T) {
	t.Parallel()
	dir := pagesDir(t)
	for name, workspace := range map[string]string{"beside": t.TempDir(), "above": filepath.Dir(dir), "the same": dir} {
		r := serving(t, "--pages", dir, "--workspace", workspace)
		r.signal(syscall.SIGTERM)
		r.ends(143)
		if got := strings.Contains(r.log.String(), "the agent can change the pages"); got != (name != "beside") {
			t.Errorf("%s: got a warning: %t; log:\n%s", name, got, r.log)
		}
	}
}
