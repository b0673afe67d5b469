//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// Each client asks for a command, and answers the approval without a digest. It is told
// why that is refused, and can end the run.
func TestClientsThatKnowNoDigestsAreToldSo(t *testing.T) {
	work := realDir(t)
	heddlePath, chordPath := filepath.Join(t.TempDir(), "heddle"), filepath.Join(t.TempDir(), "chord")
	r := serving(t, "--workspace", work, "--state-dir", t.TempDir(), "--require-digest", "--connection-tokens", "optional",
		"--listen-heddle", "unix:"+heddlePath, "--listen-chord", "unix:"+chordPath)

	for _, extension := range []string{"approve_all", "deny_all"} {
		heddle := dialLines(t, heddlePath)
		heddle.say(`{"type":"init","id":"i","protocol_version":"0.5.0","config":{"model":"m","system_prompt":"","tools":["bash"],"extensions":["` + extension + `"]}}`)
		heddle.until(`"init_ok"`)
		heddle.say(`{"type":"send","id":"s","message":"touch ` + extension + `"}`)
		heddle.until(`"error"`, `"tool_error"`, `"digest_required"`)
		heddle.until(`"result"`, `"tool_error"`, `digest of the request`)
		_ = heddle.conn.Close()
	}

	chord := dialLines(t, chordPath)
	chord.until(`"ready"`)
	chord.say(`{"type":"send","content":"/take"}`)
	chord.until("you are in control")
	chord.say(`{"type":"send","content":"touch chord"}`)
	var ask struct {
		Payload struct {
			RequestID string `json:"request_id"`
		}
	}
	if err := json.Unmarshal([]byte(chord.until(`"confirm_request"`)), &ask); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"allow", "deny"} {
		chord.say(`{"type":"confirm","request_id":"` + ask.Payload.RequestID + `","action":"` + action + `"}`)
		chord.until(`"error"`, `"digest_required"`, `digest of the request`)
	}
	chord.say(`{"type":"cancel"}`)
	chord.until(`"idle"`)

	native := r.attach(client.WithSession("main", false), client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce))
	if _, err := native.Prompt(t.Context(), "touch native"); err != nil {
		t.Fatal(err)
	}
	asked := readUntil(t, native, func(ev contracts.Event) bool { _, ok := ev.(*contracts.ServerRequest); return ok })
	id := asked.Event.(*contracts.ServerRequest).RequestID
	if _, err := native.Approve(t.Context(), id, ""); !errors.Is(err, &contracts.Error{Code: contracts.CodeDigestRequired}) {
		t.Errorf("a native client: got %v, want a refusal", err)
	}
	status, text := r.ask("POST", "/api/headless/sessions/main/messages", `{"type":"tool_response","call_id":"`+id+`","approved":true}`,
		"X-Maestro-Headless-Connection-Id: "+native.Attached().ConnectionID)
	if status != http.StatusBadRequest || !strings.Contains(text, "digest_required") {
		t.Errorf("over HTTP: got %d %s, want a refusal", status, text)
	}
	var tasks struct{ Data []struct{ ID string } }
	if _, text := r.get("/hecate/v1/tasks"); json.Unmarshal([]byte(text), &tasks) != nil || len(tasks.Data) != 1 {
		t.Fatalf("got the tasks %s, want one", text)
	}
	approvals := "/hecate/v1/tasks/" + tasks.Data[0].ID + "/approvals"
	eventually(t, "the approval at Hecate", func() bool {
		_, text := r.get(approvals + "/" + id)
		return strings.Contains(text, `"pending"`)
	})
	status, text = r.ask("POST", approvals+"/"+id+"/resolve", `{"decision":"approve"}`)
	if status != http.StatusBadRequest || !strings.Contains(text, "digest of the request") {
		t.Errorf("over Hecate: got %d %s, want a refusal", status, text)
	}
	if _, err := native.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = native.Close(false)

	token, cwd := readToken(t, r), quoted(t, work)
	editor := talkACP(t, r, token, "?sessionId=main")
	editor.says(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":` + cwd + `,"mcpServers":[]}}`)
	editor.until(`"id":1,`)
	editor.says(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"main","prompt":[{"type":"text","text":"touch acp"}]}}`)
	var permission struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(editor.until(`"session/request_permission"`)), &permission); err != nil {
		t.Fatal(err)
	}
	editor.says(`{"jsonrpc":"2.0","id":` + string(permission.ID) + `,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`)
	editor.until(`"end_turn"`)
	for _, name := range []string{"approve_all", "deny_all", "chord", "native"} {
		if exists(filepath.Join(work, name)) {
			t.Errorf("%s: the command ran", name)
		}
	}
	if !exists(filepath.Join(work, "acp")) {
		t.Error("the client that knows digests: the command did not run")
	}
}
