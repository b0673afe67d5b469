package hosted

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// refusal returns err as a refusal, of which there must be one.
func refusal(t *testing.T, err error) *contracts.Error {
	t.Helper()
	e, ok := errors.AsType[*contracts.Error](err)
	if !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	return e
}

// ids is the metadata of every refusal of the runner in these tests.
func ids(more ...string) map[string]string {
	m := map[string]string{
		"runner_session_id": "mrs_41", "owner_instance_id": "gen_9", "workspace_id": "ws_1",
		"agent_run_id": "run_1", "maestro_session_id": "sess_alpha",
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func TestIdentityHasOnlyWhatAnybodyMayKnow(t *testing.T) { // A85
	r := runner(t, &puppet{id: "sess_alpha"})
	id := r.Identity()
	text, err := contracts.EncodeBody(&id)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"protocol_version":"evalops.remote-runner.identity.v1","runner_session_id":"mrs_41","owner_instance_id":"gen_9","ready":true,"draining":false}`
	if string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
	drain(t, r, "")
	id = r.Identity()
	if text, err = contracts.EncodeBody(&id); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"drain_manifest_path", "drain_status", "drained_at", "draining", "owner_instance_id", "protocol_version", "ready", "runner_session_id",
	}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, allowed) {
		t.Errorf("got %q, want %q", got, allowed)
	}
}

func TestReadinessFollowsTheWorkspace(t *testing.T) {
	r := runner(t, &puppet{id: "sess_alpha"})
	root := r.config.WorkspaceRoot
	for _, step := range []struct {
		do   func() error
		want bool
	}{
		{func() error { return os.Rename(root, root+".away") }, false},
		{func() error { return os.WriteFile(root, nil, 0o644) }, false},
		{func() error { return errors.Join(os.Remove(root), os.Rename(root+".away", root)) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if id := r.Identity(); id.Ready != step.want || id.Draining {
			t.Errorf("got %+v, want ready %v and not draining", id, step.want)
		}
		if err := r.CheckAttach(); (err == nil) != step.want {
			t.Errorf("got %v, want attachments accepted %v", err, step.want)
		}
	}
}

func TestIncompleteRestoreIsNeverReady(t *testing.T) { // A107
	r, err := New(Options{Config: configured(t), Session: &puppet{id: "sess_alpha"}, Restored: &contracts.Restored{}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if id := r.Identity(); id.Ready || id.Draining {
		t.Errorf("got %+v, want neither ready nor draining", id)
	}
	for _, err := range []error{r.CheckAttach(), r.CheckMessage()} {
		if e := refusal(t, err); e.Code != contracts.CodeRuntimeNotReady || !maps.Equal(e.Metadata, ids()) {
			t.Errorf("got %+v, want runtime_not_ready with the ids and nothing about draining", e)
		}
	}
	if err := r.CheckSession("sess_alpha"); err != nil {
		t.Errorf("got %v, want its state to be served", err)
	}
}

func TestOtherSessionIsOwnedElsewhere(t *testing.T) { // A88, A89
	r := runner(t, &puppet{id: "sess_alpha"})
	for _, id := range []string{"", "sess_alpha"} {
		if err := r.CheckSession(id); err != nil {
			t.Errorf("%q: got %v, want it accepted", id, err)
		}
	}
	e := refusal(t, r.CheckSession("sess_beta"))
	want := ids("requested_maestro_session_id", "sess_beta")
	if e.Code != contracts.CodeRuntimeOwnedElsewhere || e.Message != "Hosted runner is bound to Maestro session sess_alpha" || !maps.Equal(e.Metadata, want) {
		t.Errorf("got %+v, want runtime_owned_elsewhere with %v", e, want)
	}
	if d := e.Details()[0]; d.Domain != "maestro.hosted_runner" || d.Reason != "runtime_owned_elsewhere" {
		t.Errorf("got %+v, want the domain of hosted runners", d)
	}
	drain(t, r, "")
	if err := r.CheckSession("sess_alpha"); err != nil {
		t.Errorf("drained: got %v, want its own session still served", err)
	}
	want["draining"] = "true"
	if e := refusal(t, r.CheckSession("sess_beta")); e.Code != contracts.CodeRuntimeNotReady || !maps.Equal(e.Metadata, want) {
		t.Errorf("drained: got %+v, want runtime_not_ready with %v", e, want)
	}
}

func TestDrainingRunnerTakesNothingNew(t *testing.T) { // A89, A97
	r := runner(t, &puppet{id: "sess_alpha"})
	if err := errors.Join(r.CheckAttach(), r.CheckMessage()); err != nil {
		t.Fatal(err)
	}
	drain(t, r, "")
	for text, err := range map[string]error{
		"hosted runner is not accepting new attachments": r.CheckAttach(),
		"hosted runner is draining":                      r.CheckMessage(),
	} {
		if e := refusal(t, err); e.Code != contracts.CodeRuntimeNotReady || e.Message != text || !maps.Equal(e.Metadata, ids("draining", "true")) {
			t.Errorf("got %+v, want runtime_not_ready, %q", e, text)
		}
	}
}

func TestOwnerGenerationIsFenced(t *testing.T) { // A111
	owned := runner(t, &puppet{id: "sess_alpha"})
	required := runner(t, &puppet{id: "sess_alpha"}, "--require-owner-header")
	unowned := runner(t, &puppet{id: "sess_alpha"})
	unowned.config.OwnerInstanceID = ""
	for _, tt := range []struct {
		name   string
		r      *Runner
		header string
		want   contracts.Code
	}{
		{"owned", owned, "", ""},
		{"owned", owned, " gen_9 ", ""},
		{"owned", owned, "gen_8", contracts.CodeRuntimeOwnedElsewhere},
		{"required", required, "", contracts.CodeAccessDenied},
		{"required", required, "  ", contracts.CodeAccessDenied},
		{"required", required, "gen_9", ""},
		{"required", required, "gen_90", contracts.CodeRuntimeOwnedElsewhere},
		{"unowned", unowned, "", ""},
		{"unowned", unowned, "gen_9", contracts.CodeRuntimeOwnedElsewhere},
	} {
		err := tt.r.CheckOwner(tt.header)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s, %q: got %v, want it accepted", tt.name, tt.header, err)
			}
			continue
		}
		if e := refusal(t, err); e.Code != tt.want {
			t.Errorf("%s, %q: got %+v, want %s", tt.name, tt.header, e, tt.want)
		}
	}
	if e := refusal(t, owned.CheckOwner("gen_8")); !maps.Equal(e.Metadata, ids("requested_owner_instance_id", "gen_8")) {
		t.Errorf("got %v, want who it is and who was asked for", e.Metadata)
	}
}

func TestClientsWorkspaceIsTheRunners(t *testing.T) {
	r := runner(t, &puppet{id: "sess_alpha"})
	root := r.config.WorkspaceRoot
	link := filepath.Join(folder(t), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]contracts.Code{
		"": "", root: "", root + "/": "", link: "",
		filepath.Dir(link):    contracts.CodeRuntimeOwnedElsewhere,
		root + "/notes.md":    contracts.CodeBadRequest,
		root + "/missing":     contracts.CodeBadRequest,
		".":                   contracts.CodeBadRequest,
		filepath.Dir(root):    contracts.CodeRuntimeOwnedElsewhere,
		root + "/.maestro/..": "",
	} {
		err := r.CheckWorkspace(path)
		if want == "" && err != nil || want != "" && !errors.Is(err, &contracts.Error{Code: want}) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := r.CheckWorkspace(root); !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeFailed}) {
		t.Errorf("got %v without a workspace, want runtime_failed", err)
	}
}

func TestRunnerThatCouldNotDrainDoesNotStart(t *testing.T) {
	c := configured(t)
	write(t, filepath.Join(c.WorkspaceRoot, ".maestro"), "in the way")
	if r, err := New(Options{Config: c, Session: &puppet{}}); err == nil {
		t.Errorf("got %+v, want an error: there is no place for manifests", r.Identity())
	}
	if _, err := New(Options{Session: &puppet{}}); err == nil {
		t.Error("got no error for a configuration that is not resolved, want one")
	}
}
