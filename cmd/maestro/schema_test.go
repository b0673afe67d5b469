//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

const schemas = "../../contracts/schema"

// A wireRecord has the values that a server sent, for contracts/ts/check.mjs.
type wireRecord struct{ bytes.Buffer }

func (r *wireRecord) add(def string, value []byte) {
	fmt.Fprintf(r, "{\"def\":%q,\"value\":%s}\n", def, bytes.TrimSpace(value))
}

// TestWireFitsTheSchemas records a session on all transports, and has programs of others
// check the schemas, the descriptions of the API, and the wireRecord.
func TestWireFitsTheSchemas(t *testing.T) {
	t.Parallel()
	var got wireRecord
	const hello = `{"type":"hello","capabilities":{"people":true,"server_requests":["approval"],"raw_agent_events":true}}`
	const prompt = `{"type":"prompt","content":"echo hello"}`
	allow := func(id string) string {
		return `{"type":"server_request_response","request_id":"` + id + `","request_type":"approval","approved":true}`
	}

	notify := filepath.Join(t.TempDir(), "notify.json")
	config := `{"link":"https://maestro.example/{session}/{request}","web_push":{"subject":"mailto:a@example.com"}}`
	if err := os.WriteFile(notify, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serving(t, "--notify", notify)
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	credential := http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(token))}}
	ws, _, err := websocket.Dial(t.Context(), r.ready.WSURL+"&role=controller", &websocket.DialOptions{HTTPHeader: credential, Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	for _, text := range []string{hello, prompt, `{"type":"ws.history","id":"h","kind":"entries"}`, `{"type":"ws.ping"}`, `{"type":"nonsense"}`} {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for ended := false; !ended; {
		_, text, err := ws.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.add("ServerFrame", text)
		if id := askedIn(t, text); id != "" {
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(allow(id))); err != nil {
				t.Fatal(err)
			}
		}
		ended = bytes.Contains(text, []byte(`"type":"response_end"`))
	}

	req, err := http.NewRequestWithContext(t.Context(), "GET", r.ready.BaseURL+"/api/headless/sessions/main/events?turns=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = credential
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			got.add("ServerFrame", []byte(data))
			if strings.Contains(data, `"type":"history"`) {
				break
			}
		}
	}
	for path, def := range map[string]string{
		"sessions": "SessionList", "overview": "Overview", "inbox": "Inbox", "whoami": "WhoAmI", "sessions/main": "Snapshot",
		"sessions/main/history": "HistoryPage", "sessions/main/turns": "HistoryPage", "sessions/main/connections": "ConnectionList",
	} {
		status, body := r.get("/api/headless/" + path)
		if status != http.StatusOK {
			t.Errorf("%s: got %d %s", path, status, body)
		}
		got.add(def, []byte(body))
	}
	r.routes(credential)
	r.signal(syscall.SIGTERM)
	for { // its goodbye
		_, text, err := ws.Read(t.Context())
		if err != nil {
			break
		}
		got.add("ServerFrame", text)
	}
	r.ends(143)

	local := program(t, "headless")
	in, err := local.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := local.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, hello+"\n"+prompt)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got.add("Event", lines.Bytes())
		if id := askedIn(t, lines.Bytes()); id != "" {
			fmt.Fprintln(in, allow(id))
		}
		if strings.Contains(lines.Text(), `"type":"response_end"`) {
			break
		}
	}
	_ = in.Close() // it ends
	_ = local.Wait()

	check := exec.CommandContext(t.Context(), "node", "../../contracts/ts/check.mjs")
	check.Stdin = &got
	said, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: run make others\n%s", err, said)
	}
	var counts map[string]int
	if err := json.Unmarshal(said, &counts); err != nil || counts["Event"] < 8 || counts["ServerFrame"] < 20 {
		t.Errorf("got %s, %v, want all frames and events checked", said, err)
	}
}

// askedIn returns the id of the approval in a message, if it is one.
func askedIn(t *testing.T, text []byte) string {
	t.Helper()
	type request struct {
		Type string `json:"type"`
		ID   string `json:"request_id"`
	}
	var m struct {
		request
		Message request `json:"message"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, one := range []request{m.request, m.Message} {
		if one.Type == "server_request" {
			return one.ID
		}
	}
	return ""
}

// routes asks for every operation of the description of the API.
func (r *running) routes(credential http.Header) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(schemas, "maestro.openapi.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(text, &api); err != nil {
		r.t.Fatal(err)
	}
	asked := 0
	for path, methods := range api.Paths {
		for method := range methods {
			target := strings.NewReplacer("{id}", "nobody", "{request}", "r", "{share_id}", "s").Replace(path)
			req, err := http.NewRequestWithContext(r.t.Context(), strings.ToUpper(method), r.ready.BaseURL+target, strings.NewReader("{}"))
			if err != nil {
				r.t.Fatal(err)
			}
			req.Header = credential.Clone()
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				r.t.Fatal(err)
			}
			var refusal struct{ Error string }
			if resp.StatusCode != http.StatusOK { // a stream does not end
				err = json.NewDecoder(resp.Body).Decode(&refusal)
			}
			_ = resp.Body.Close()
			if asked++; err != nil || resp.StatusCode == http.StatusMethodNotAllowed || refusal.Error == "route not found" || resp.StatusCode >= 500 {
				r.t.Errorf("%s %s: got %d %q, %v, want a route", method, path, resp.StatusCode, refusal.Error, err)
			}
		}
	}
	if asked < 30 {
		r.t.Errorf("got %d operations", asked)
	}
}
