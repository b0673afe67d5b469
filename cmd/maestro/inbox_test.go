//go:build unix

package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// poseApproval makes the conformance agent of a session ask a question.
func (r *running) poseApproval(session, request string) {
	r.t.Helper()
	_, body := r.ask("POST", "/api/headless/connections", `{"sessionId":"`+session+`","takeControl":true}`)
	var c contracts.ConnectionAnswer
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		r.t.Fatal(err)
	}
	content := `__maestro_conformance_approval__:{"request_id":"` + request + `","tool":"bash","args":{"command":"ls"},"reason":"test"}`
	prompt, err := json.Marshal(map[string]string{"type": "prompt", "content": content})
	if err != nil {
		r.t.Fatal(err)
	}
	by := "X-Maestro-Headless-Connection-Id: " + c.ConnectionID
	if status, text := r.ask("POST", "/api/headless/sessions/"+session+"/messages", string(prompt), by); status != http.StatusOK {
		r.t.Fatalf("prompt: got %d %s", status, text)
	}
}

// notifying returns the flags of a server that notifies a webhook.
func notifying(t *testing.T, url string) []string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "receivers.json")
	text, err := json.Marshal(map[string]any{
		"link": "https://here/{session}/{request}", "web_push": map[string]any{"subject": "mailto:ops@example.com"},
		"receivers": []map[string]string{{
			"name": "ops", "kind": "webhook", "url": url, "secret": "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		}},
	})
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--agent", "conformance", "--state-dir", t.TempDir(), "--workspace", t.TempDir(), "--notify", config, "--connection-tokens", "optional",
	}
}

func TestQuestionIsNotifiedAndAnsweredInTheInbox(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	defer receiver.Close()
	r := serving(t, notifying(t, receiver.URL)...)
	next, ended := follows[contracts.InboxEvent](r, "/api/headless/inbox/events")
	if ev := next(); ev.Type != "questions" || len(ev.Inbox.Questions) != 0 {
		t.Errorf("got %+v, want an empty list", ev)
	}
	r.poseApproval("main", "q1")
	q := next().Question
	if q == nil || q.SessionID != "main" || q.RequestID != "q1" || q.Digest == "" {
		t.Fatalf("got %+v, want the question", q)
	}
	if got := <-told; !strings.Contains(got, `"link":"https://here/main/q1"`) {
		t.Errorf("the receiver got %s", got)
	}
	answer := `{"approved":true,"digest":"` + q.Digest + `"}`
	if status, text := r.ask("POST", "/api/headless/inbox/main/q1", answer); status != http.StatusOK {
		t.Fatalf("answer: got %d %s", status, text)
	}
	if status, text := r.ask("POST", "/api/headless/inbox/main/q1", answer); status != http.StatusNotFound {
		t.Errorf("a second answer: got %d %s", status, text)
	}
	if end := next().Ended; end == nil || end.Resolution != contracts.VerdictApproved || end.Author == nil || end.Author.Name == "" {
		t.Errorf("got %+v, want the end with its author", end)
	}
	if status, text := r.ask("GET", "/api/headless/inbox/deliveries", ""); status != http.StatusOK || !strings.Contains(text, `"name":"ops","kind":"webhook"`) {
		t.Errorf("deliveries: got %d %s", status, text)
	}
	if status, text := r.ask("GET", "/api/headless/inbox/push", ""); status != http.StatusOK || !strings.Contains(text, `"subscriptions":0`) {
		t.Errorf("push: got %d %s", status, text)
	}
	r.signal(syscall.SIGTERM)
	ended()
	r.ends(128 + int(syscall.SIGTERM))
}

func TestNotificationOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	ids := make(chan string, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		ids <- r.Header.Get("Webhook-Id")
	}))
	defer receiver.Close()
	flags := notifying(t, receiver.URL)
	r := serving(t, flags...)
	r.poseApproval("main", "q1")
	first := <-ids
	eventually(t, "a file with the notification", func() bool {
		paths, _ := filepath.Glob(filepath.Join(flags[3], "workspaces", "*", "notify.json"))
		if len(paths) != 1 {
			return false
		}
		text, err := os.ReadFile(paths[0])
		return err == nil && strings.Contains(string(text), `"attempts":`)
	})
	r.signal(syscall.SIGKILL)
	_ = r.cmd.Wait()
	for len(ids) > 0 { // attempts before the kill
		<-ids
	}
	down.Store(false)
	r = serving(t, flags...)
	if id := <-ids; id != first {
		t.Errorf("got the id %s, want %s as before", id, first)
	}
	eventually(t, "one delivery", func() bool {
		_, text := r.ask("GET", "/api/headless/inbox/deliveries", "")
		return strings.Contains(text, `"waiting":0,"delivered":1,"skipped":0,"failed":0`)
	})
	r.signal(syscall.SIGTERM)
	r.ends(128 + int(syscall.SIGTERM))
	r = serving(t, flags...)
	_, text := r.ask("GET", "/api/headless/inbox/deliveries", "")
	if !strings.Contains(text, `"waiting":0,"delivered":1,"skipped":0,"failed":0`) {
		t.Errorf("after another restart: got %s, want one delivery", text)
	}
	r.signal(syscall.SIGTERM)
	r.ends(128 + int(syscall.SIGTERM))
}

// One connection is enough for the list of sessions, the inbox and answers to questions.
func TestListsOnOneSocket(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "conformance", "--state-dir", t.TempDir(), "--workspace", t.TempDir(), "--connection-tokens", "optional")
	conn, _, err := websocket.Dial(t.Context(), r.ready.BaseURL+"/api/headless/lists/ws", &websocket.DialOptions{
		Subprotocols: []string{contracts.Subprotocol}, HTTPHeader: http.Header{"Authorization": {"Bearer " + readToken(t, r)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	send := func(text string) {
		t.Helper()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	until := func(is func(contracts.Frame) bool) {
		t.Helper()
		for {
			_, text, err := conn.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f, err := (&contracts.Decoder{Strict: true}).ServerFrame(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if is(f) {
				return
			}
		}
	}
	inbox := func(f contracts.Frame) contracts.InboxEvent {
		if l, ok := f.(*contracts.ListEnvelope); ok && l.Inbox != nil {
			return *l.Inbox
		}
		return contracts.InboxEvent{}
	}
	send(`{"type":"ws.follow","id":"f","lists":["sessions","inbox"]}`)
	until(func(f contracts.Frame) bool { return inbox(f).Type == "questions" })
	r.poseApproval("main", "q1")
	var q *contracts.InboxQuestion
	waits := false
	until(func(f contracts.Frame) bool { // in either order
		q = cmp.Or(inbox(f).Question, q)
		l, ok := f.(*contracts.ListEnvelope)
		waits = waits || ok && l.Sessions != nil && l.Sessions.Session != nil && l.Sessions.Session.Status == contracts.SessionWaiting
		return q != nil && waits
	})
	answer := `{"type":"ws.answer","id":"a","session_id":"main","message":{"type":"server_request_response","request_id":"q1",` +
		`"request_type":"approval","approved":true,"digest":"` + q.Digest + `"}}`
	send(answer)
	ended, resulted := false, false // in either order
	until(func(f contracts.Frame) bool {
		ended = ended || inbox(f).Ended != nil && inbox(f).Ended.Author != nil
		result, ok := f.(*contracts.Result)
		resulted = resulted || ok && *result.ID == "a" && *result.Ended
		return ended && resulted
	})
	send(answer)
	until(func(f contracts.Frame) bool {
		refusal, ok := f.(*contracts.Refusal)
		return ok && refusal.Code == contracts.CodeRequestNotFound
	})
	r.signal(syscall.SIGTERM)
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %v, want the server going away", err)
	}
	r.ends(128 + int(syscall.SIGTERM))
}
