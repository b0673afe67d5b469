//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A lineClient is a client of another protocol on a Unix socket.
type lineClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialLines(t *testing.T, path string) *lineClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &lineClient{t, conn, bufio.NewReader(conn)}
}

func (c *lineClient) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// until returns the first line that has all the texts in it.
func (c *lineClient) until(texts ...string) string {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("got %v, want a line with %q", err, texts)
		}
		if has(line, texts) {
			return line
		}
	}
}

func has(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// hecateEvents returns the envelopes of all runs, and fails if one run's sequence has a
// hole or an id comes twice.
func hecateEvents(t *testing.T, r *running) (all []json.RawMessage, types string) {
	t.Helper()
	var list struct{ Data []json.RawMessage }
	status, body := r.get("/hecate/v1/events?limit=500")
	if err := json.Unmarshal([]byte(body), &list); status != 200 || err != nil {
		t.Fatalf("got %d %s, %v", status, body, err)
	}
	next, seen := map[string]uint64{}, map[string]bool{}
	for _, text := range list.Data {
		var e struct {
			ID       string `json:"event_id"`
			Run      string `json:"run_id"`
			Sequence uint64
			Type     string
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		if e.Sequence != next[e.Run] || seen[e.ID] {
			t.Errorf("got %s, want sequence %d and a new id", text, next[e.Run])
		}
		next[e.Run], seen[e.ID] = e.Sequence+1, true
		types += e.Type + " "
	}
	return list.Data, types
}

// hecateUntil returns the envelopes once one has the type.
func hecateUntil(t *testing.T, r *running, kind string) (all []json.RawMessage, types string) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		if all, types = hecateEvents(t, r); strings.Contains(types, kind) {
			return all, types
		}
		if time.Now().After(late) {
			t.Fatalf("got the events %s, want %s", types, kind)
		}
	}
}

// A Heddle client drives, a native viewer watches, a Hecate consumer follows, the server
// is killed while a question is open, and a Chord client takes control and answers it.
func TestClientsOfAllProtocolsShareASession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	heddlePath, chordPath := filepath.Join(dir, "heddle"), filepath.Join(dir, "chord")
	args := []string{"--workspace", t.TempDir(), "--state-dir", filepath.Join(dir, "state"),
		"--listen-heddle", "unix:" + heddlePath, "--listen-chord", "unix:" + chordPath}
	r := serving(t, args...)
	viewer := r.attach(client.WithSession("main", false))
	hecateEvents(t, r)

	driver := dialLines(t, heddlePath)
	driver.say(`{"type":"init","id":"i","config":{"model":"m","system_prompt":"","tools":["bash"]}}`)
	driver.until(`"init_ok"`, `"session_id":"main"`)
	driver.say(`{"type":"send","id":"s","message":"echo one; echo two"}`)
	driver.until(`"permission_request"`)
	last := readUntil(t, viewer, func(ev contracts.Event) bool { _, asked := ev.(*contracts.ServerRequest); return asked })
	before, _ := hecateUntil(t, r, "approval.requested")

	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // it was killed
	r = serving(t, args...)
	viewer = r.attach(client.WithSession("main", false), client.WithCursor(last.Epoch, last.Cursor))
	other := dialLines(t, heddlePath)
	other.say(`{"type":"init","id":"i","config":{"model":"m","system_prompt":"","tools":["bash"]}}`)
	other.until(`"init_ok"`, `"session_id":"main"`)

	answerer := dialLines(t, chordPath)
	answerer.until(`"ready"`)
	answerer.say(`{"type":"send","content":"/take"}`)
	answerer.until("you are in control")
	answerer.say(`{"type":"status"}`)
	var status struct {
		Payload struct {
			PendingConfirm struct {
				RequestID string `json:"request_id"`
			} `json:"pending_confirm"`
		}
	}
	if err := json.Unmarshal([]byte(answerer.until(`"status_response"`)), &status); err != nil {
		t.Fatal(err)
	}
	answerer.say(`{"type":"confirm","request_id":"` + status.Payload.PendingConfirm.RequestID + `","action":"allow"}`)
	answerer.until(`"idle"`, `"completed"`)

	var output string
	readUntil(t, viewer, func(ev contracts.Event) bool {
		if o, ok := ev.(*contracts.ToolOutput); ok {
			output += o.Content
		}
		_, ended := ev.(*contracts.ToolEnd)
		return ended
	})
	if output != "one\ntwo\n" {
		t.Errorf("the viewer: got the output %q, want %q", output, "one\ntwo\n")
	}
	other.say(`{"type":"status","id":"q"}`)
	other.until(`"status_ok"`, `"active":false`)
	all, types := hecateUntil(t, r, "run.finished")
	for i, text := range before {
		if string(all[i]) != string(text) {
			t.Errorf("after the restart: got event %s, want %s", all[i], text)
		}
	}
	if !strings.Contains(types, "approval.resolved") {
		t.Errorf("got the events %s, want approval.resolved", types)
	}
}

// readUntil reads updates until an event is the wanted one, and returns its update.
func readUntil(t *testing.T, c *client.Client, wanted func(contracts.Event) bool) client.Update {
	t.Helper()
	for {
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Event != nil && wanted(u.Event) {
			return u
		}
	}
}
