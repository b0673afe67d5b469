package double_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance/double"
	"github.com/seed-028515a8/maestro/contracts"
)

const wellKnown = "/.well-known/evalops/remote-runner/"

// host starts a runner in a workspace. The site's paths begin at the root.
func host(t *testing.T, r double.Runner) *site {
	t.Helper()
	server := double.New(double.Options{Profile: contracts.ProfilePublic})
	if err := server.Host(r); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return &site{ctx: t.Context(), base: web.URL}
}

func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.md"), []byte("alpha\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const bound = "/api/headless/sessions/sess_a/"

func TestDrainedRunnerIsRestored(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	s := host(t, double.Runner{ID: "../mrs_1", SessionID: "sess_a", Owner: "gen_1", Workspace: dir})
	conn := s.post("/api/headless/connections", `{}`).text("connection_id")
	s.prompt(bound, conn, "hello")
	for body, status := range map[string]int{`{"export_paths":["../x"]}`: 403, `{"export_paths":["none.md"]}`: 400, `{"reason":1}`: 400, `[]`: 400} {
		if a := s.post(wellKnown+"drain", body); a.status != status || s.call("GET", wellKnown+"identity", "").at("ready") != true {
			t.Errorf("drain %s: got %d, want %d and a runner that is still ready", body, a.status, status)
		}
	}
	live := s.stream(bound, "")
	defer live.close()
	a := s.post(wellKnown+"drain", `{"reason":"r","export_paths":["notes.md"]}`)
	path := a.text("manifest_path")
	text, err := os.ReadFile(path)
	var written any
	if err != nil || json.Unmarshal(text, &written) != nil || !reflect.DeepEqual(written, a.at("manifest")) ||
		!strings.HasPrefix(filepath.Base(path), "___mrs_1-") {
		t.Errorf("got manifest %s at %s (%v), want what the answer has", text, path, err)
	}
	live.find("the snapshot of a drained runner", func(e event) bool {
		return e.kind == "snapshot" && answer{body: e.body}.at("snapshot", "state", "last_status") == "Drained"
	})
	again := s.post(wellKnown+"drain", `{}`)
	if !reflect.DeepEqual(again.body, a.body) || again.header.Get("X-Maestro-Drain-Replayed") != "true" {
		t.Errorf("got a second drain %v, want the first one's answer", again.body)
	}
	for _, path := range []string{"/api/headless/connections", bound + "subscribe", bound + "messages"} {
		if a := s.post(path, `{"type":"interrupt"}`, asConnection, conn); a.status != 503 || a.text("code") != "runtime_not_ready" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s after the drain: got %d %v", path, a.status, a.body)
		}
	}
	if st := s.call("GET", bound+"state", ""); st.at("cursor") != a.at("manifest", "runtime", "cursor") || st.at("state", "is_ready") != false {
		t.Errorf("state after the drain: got %d %v", st.status, st.body)
	}

	r := host(t, double.Runner{ID: "mrs_2", Workspace: dir, Manifest: path})
	st := r.call("GET", bound+"state", "")
	if st.at("cursor") != a.at("manifest", "runtime", "cursor") || st.at("state", "last_status") != "Restored from snapshot" {
		t.Errorf("got %v after the restore", st.body)
	}
	restored := r.stream(bound, "?cursor=0")
	defer restored.close()
	first, _ := restored.next()
	if first.kind != "reset" || first.body["reason"] != "restored_from_snapshot" || first.cursor != st.at("cursor") {
		t.Errorf("got %v first after the restore, want the reset", first)
	}
	for _, wrong := range append(s.wrongs, r.wrongs...) {
		t.Error(wrong)
	}
}

func TestRunnerRefusesOtherSessions(t *testing.T) {
	t.Parallel()
	s := host(t, double.Runner{ID: "mrs_1", SessionID: "sess_a", Owner: "gen_1", Workspace: workspace(t)})
	for _, a := range []answer{s.call("GET", "/api/headless/sessions/sess_b/state", ""), s.post("/api/headless/connections", `{"sessionId":"sess_b"}`),
		s.post("/api/headless/sessions/sess_b/subscribe", `{}`)} {
		details, _ := a.at("details").([]any)
		about, _ := details[0].(map[string]any)["metadata"].(map[string]any)
		if a.status != 409 || a.text("code") != "runtime_owned_elsewhere" || about["requested_maestro_session_id"] != "sess_b" || about["owner_instance_id"] != "gen_1" {
			t.Errorf("got %d %v, want runtime_owned_elsewhere", a.status, a.body)
		}
	}
}

func TestIncompleteManifestIsForInspectionOnly(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	s := host(t, double.Runner{ID: "mrs_1", SessionID: "sess_a", Workspace: dir})
	a := s.post(wellKnown+"drain", "")
	if a.at("manifest", "runtime", "flush_status") != "skipped" || a.at("manifest", "runtime", "cursor") != nil {
		t.Errorf("got %v without any activity, want a skipped flush", a.at("manifest", "runtime"))
	}
	r := host(t, double.Runner{ID: "mrs_2", Workspace: dir, Manifest: a.text("manifest_path")})
	if a := r.post("/api/headless/connections", `{}`); a.status != 503 {
		t.Errorf("got %d, want a runner that accepts nobody", a.status)
	}
	if a := r.call("GET", bound+"state", ""); a.at("state", "is_ready") != false || a.at("state", "last_status") != "Restore incomplete: runtime flush skipped" {
		t.Errorf("got %v, want the state for inspection", a.body)
	}
	for text, wrong := range map[string]string{`{`: "invalid_snapshot_manifest", `{"protocol_version":"x"}`: "invalid_snapshot_manifest"} {
		path := filepath.Join(dir, "bad.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := double.New(double.Options{}).Host(double.Runner{ID: "x", Workspace: dir, Manifest: path})
		if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("manifest %s: got %v, want %s", text, err, wrong)
		}
	}
}

// TestRunnerHasUtilities runs a command to its end.
func TestRunnerHasUtilities(t *testing.T) {
	t.Parallel()
	s := host(t, double.Runner{ID: "mrs_1", SessionID: "sess_a", Workspace: workspace(t)})
	conn := s.post("/api/headless/connections", `{"capabilities":{"utilityOperations":["command_exec","file_read"]}}`).text("connection_id")
	live := s.stream(bound, "")
	defer live.close()
	giveUp := time.AfterFunc(20*time.Second, live.stop)
	defer giveUp.Stop()
	a := s.post(bound+"messages", `{"type":"utility_command_start","command_id":"c","shell_mode":"direct","command":"sh -c \"printf '%s' 'a b'\""}`, asConnection, conn)
	if n, _ := a.at("snapshot", "state", "active_utility_commands").([]any); a.status != 200 || len(n) != 1 {
		t.Errorf("got %d %v, want the command listed", a.status, a.body)
	}
	out, _ := live.find("output", func(e event) bool { return e.message == "utility_command_output" })
	if got := (answer{body: out.body}).at("message", "content"); got != "a b" {
		t.Errorf("got output %q, want %q", got, "a b")
	}
	live.find("the end", func(e event) bool { return e.message == "utility_command_exited" })
	outside := s.post(bound+"messages", `{"type":"utility_file_read","read_id":"r","path":"/etc/hostname"}`, asConnection, conn)
	search := s.post(bound+"messages", `{"type":"utility_file_search","search_id":"s","query":"x"}`, asConnection, conn)
	if outside.status != 403 || !strings.Contains(outside.text("error"), "outside") || search.status != 501 {
		t.Errorf("got %d %v and %d, want 403 outside and 501", outside.status, outside.body, search.status)
	}
	for _, wrong := range s.wrongs {
		t.Error(wrong)
	}
}
