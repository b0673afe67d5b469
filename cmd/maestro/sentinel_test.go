//go:build unix

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A lookout plants secrets and looks for them in everything that comes out of a
// server.
type lookout struct {
	t       *testing.T
	r       *running
	secrets map[string]string // by what they are
	seen    bytes.Buffer      // everything that was answered where no secret belongs
}

// request asks with a credential and returns the answer. Everything in it is
// looked at, unless it is the place where a secret is handed over.
func (l *lookout) request(method, path, credential, body string, handsOver bool) (int, http.Header, []byte) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.r.ready.BaseURL+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	if token := l.secrets["connection token"]; token != "" {
		req.Header.Set("X-Maestro-Headless-Connection-Token", token)
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	if !handsOver {
		fmt.Fprintf(&l.seen, "%d %v\n%s\n", resp.StatusCode, resp.Header, text)
	}
	return resp.StatusCode, resp.Header, text
}

// find fails the test for every secret in text, plain or in base64.
func (l *lookout) find(where string, text []byte) {
	l.t.Helper()
	for name, secret := range l.secrets {
		for _, form := range []string{secret, base64.RawURLEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))} {
			if i := bytes.Index(text, []byte(form)); i >= 0 {
				l.t.Errorf("%s: got the %s, want none: ...%.120s", where, name, text[max(0, i-60):])
			}
		}
	}
}

// findInFiles looks into every file below dir but those that keep a secret.
func (l *lookout) findInFiles(dir string, keepers ...string) {
	l.t.Helper()
	looked := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		for _, keeper := range keepers {
			if path == keeper {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		looked++
		l.find(path, text)
		return err
	})
	if err != nil || looked == 0 {
		l.t.Errorf("looked into %d files of %s: %v", looked, dir, err)
	}
}

// field returns a string member of a JSON object.
func (l *lookout) field(text []byte, name string) string {
	l.t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		l.t.Fatalf("%s: %v", text, err)
	}
	value, ok := object[name].(string)
	if !ok || value == "" {
		l.t.Fatalf("got %s, want a %s", text, name)
	}
	return value
}

// Secrets that a server is told or makes go to whom they belong and nowhere
// else: not into answers to others, errors, logs, journals, metrics, the
// environment of commands or a drain's manifest.
func TestSecretsStayWhereTheyBelong(t *testing.T) {
	for name, secret := range map[string]string{"SENTINEL_API_KEY": "sentinel-provider-key-6d1f", "SENTINEL_PASSWORD": "sentinel-password-77aa"} {
		t.Setenv(name, secret)
	}
	workspace := t.TempDir()
	r := serving(t, "--agent", "shell", "--workspace", workspace, "--log-level", "debug")
	l := &lookout{t: t, r: r, secrets: map[string]string{
		"provider key": "sentinel-provider-key-6d1f", "password": "sentinel-password-77aa",
	}}
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	l.secrets["token"] = strings.TrimSpace(string(token))
	own := l.secrets["token"]

	// Secrets that the server makes.
	_, _, share := l.request("POST", "/api/headless/sessions/main/shares", own, `{"role":"viewer","label":"wall"}`, true)
	l.secrets["share"] = l.field(share, "token")
	_, _, ticket := l.request("POST", "/api/headless/ws-tickets", own, `{}`, true)
	l.secrets["ticket"] = l.field(ticket, "ticket")
	_, header, connection := l.request("POST", "/api/headless/connections", own, `{"sessionId":"main","role":"controller","capabilities":{"utilityOperations":["command_exec"]}}`, true)
	l.secrets["connection token"] = header.Get("X-Maestro-Headless-Connection-Token")
	if l.secrets["connection token"] == "" {
		t.Fatalf("got %s, want a connection and its token", connection)
	}
	id := l.field(connection, "connection_id")

	// Requests of all kinds, right and wrong.
	for _, credential := range []string{own, l.secrets["share"], own + "x", l.secrets["share"] + "x", l.secrets["ticket"]} {
		l.request("GET", "/api/headless/sessions", credential, "", false)
		l.request("GET", "/api/headless/sessions/main/state", credential, "", false)
		l.request("GET", "/api/headless/sessions/main/shares", credential, "", false)
		l.request("GET", "/api/headless/sessions/"+credential+"/state", credential, "", false)
		l.request("POST", "/api/headless/sessions/main/subscribe", credential, `{"role":"viewer"}`, false)
		l.request("POST", "/api/headless/sessions/main/messages", credential, `{"type":"prompt"`, false)
		l.request("POST", "/api/headless/sessions/main/heartbeat", credential, `{"connectionId":"`+id+`"}`, false)
		l.request("GET", "/metrics", credential, "", false)
		l.request("PUT", "/api/headless/connections", credential, "", false)
		l.request("GET", "/nowhere", credential, "", false)
	}
	l.request("GET", "/login?ticket="+l.secrets["ticket"]+"x", "", "", false)

	// What a command is told, and what the session keeps of it.
	c := r.attach(client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce), client.WithHistory())
	if _, err := c.Prompt(t.Context(), "env; echo done-with-it"); err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	for {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Event == nil {
			continue
		}
		text, err := contracts.EncodeEvent(u.Event)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(text.Body)
		if q, ok := u.Event.(*contracts.ServerRequest); ok {
			if _, err := c.Approve(t.Context(), q.RequestID, ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := u.Event.(*contracts.ResponseEnd); ok {
			break
		}
	}
	if !strings.Contains(shown.String(), "done-with-it") || !strings.Contains(shown.String(), "PATH=") {
		t.Fatalf("got %s, want the environment of a command", shown.Bytes())
	}
	l.find("events", shown.Bytes())
	l.find("answers", l.seen.Bytes())

	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r.ends(130)
	l.find("log", r.log.Bytes())
	l.findInFiles(filepath.Dir(r.ready.TokenFile), r.ready.TokenFile)
}
