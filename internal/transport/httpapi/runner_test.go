package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// A fakeFence notes in which order it is asked, and refuses at the check named.
type fakeFence struct {
	t           *testing.T
	untouchable bool
	refuse      string
	asked       []string
}

func (f *fakeFence) check(name, what string) error {
	if f.untouchable {
		f.t.Errorf("the fence was asked about %s %q", name, what)
	}
	f.asked = append(f.asked, strings.TrimSuffix(name+" "+what, " "))
	if f.refuse == name {
		return &contracts.Error{Code: contracts.CodeRuntimeOwnedElsewhere, Message: name}
	}
	return nil
}

func (f *fakeFence) CheckSession(id string) error       { return f.check("session", id) }
func (f *fakeFence) CheckOwner(generation string) error { return f.check("owner", generation) }
func (f *fakeFence) CheckAttach() error                 { return f.check("attach", "") }
func (f *fakeFence) CheckMessage() error                { return f.check("message", "") }
func (f *fakeFence) CheckWorkspace(path string) error   { return f.check("workspace", path) }
func (f *fakeFence) take() (asked []string)             { asked, f.asked = f.asked, nil; return asked }

func TestFenceIsAskedInOrder(t *testing.T) {
	fence := &fakeFence{t: t}
	h := newHouse(t, func(o *Options) { o.Fence = fence })
	owner := headerOwner + ": gen_9"
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		want               []string
	}{
		{"POST", "/api/headless/connections", `{"sessionId":"sess_b","workspaceRoot":"/w"}`, []string{owner},
			[]string{"session", "owner gen_9", "session sess_b", "owner gen_9", "attach", "workspace /w"}},
		{"POST", "/api/headless/connections", `{}`, nil, []string{"session", "session", "owner", "attach", "workspace"}},
		{"POST", "/api/headless/sessions", `{"sessionId":" sess_b "}`, nil, []string{"session", "session sess_b", "owner", "attach", "workspace"}},
		{"POST", sessionPath + "/subscribe", `{}`, []string{owner}, []string{"session sess_a", "owner gen_9", "session", "owner gen_9", "attach", "workspace"}},
		{"GET", sessionPath + "/events", "", nil, []string{"session sess_a", "owner"}}, // goes on while the runner drains
		{"POST", sessionPath + "/messages", `{}`, []string{owner}, []string{"session sess_a", "owner gen_9", "message"}},
		{"POST", sessionPath + "/messages", `{}`, nil, []string{"session sess_a", "message"}},
		{"GET", sessionPath, "", nil, []string{"session sess_a"}},
		{"GET", sessionPath + "/state", "", []string{owner}, []string{"session sess_a", "owner gen_9"}},
		{"POST", sessionPath + "/heartbeat", "", nil, []string{"session sess_a"}},
		{"POST", sessionPath + "/disconnect", "", nil, []string{"session sess_a"}},
		{"POST", sessionPath + "/unsubscribe", `{"subscriptionId":"s"}`, nil, []string{"session sess_a"}},
	} {
		e := h.ask(tt.method, tt.path, tt.body, tt.headers...)
		if got := fence.take(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", e.what, got, tt.want)
		}
		h.session.last(t)
		// Whatever it refuses is refused, at that point, and the session does not
		// hear of it.
		for i, step := range tt.want {
			name, _, _ := strings.Cut(step, " ")
			if i != slices.IndexFunc(tt.want, func(s string) bool { return strings.HasPrefix(s, name) }) {
				continue
			}
			fence.refuse = name
			e := h.ask(tt.method, tt.path, tt.body, tt.headers...)
			has(t, e.refused(contracts.CodeRuntimeOwnedElsewhere), name)
			if got := fence.take(); !slices.Equal(got, tt.want[:i+1]) {
				t.Errorf("%s: got %q, want %q", e.what, got, tt.want[:i+1])
			}
			h.session.untouched(t)
		}
		fence.refuse = ""
	}
}

func TestFenceOfUpgrades(t *testing.T) {
	for _, tt := range []struct {
		path, id, header string
		want             []string
	}{
		{"/api/headless/ws", "", "", []string{"session", "owner", "attach"}},
		{"/api/headless/ws?sessionId=sess_b", "", "gen_9", []string{"session sess_b", "owner gen_9", "attach"}},
		{"/api/headless/sessions/sess_a/ws?sessionId=sess_b", "sess_a", "", []string{"session sess_a", "owner", "attach"}},
	} {
		r := httptest.NewRequest("GET", tt.path, nil)
		r.SetPathValue("id", tt.id)
		if tt.header != "" {
			r.Header.Set(headerOwner, tt.header)
		}
		fence := &fakeFence{t: t}
		if err := FenceUpgrade(fence, r); err != nil || !slices.Equal(fence.asked, tt.want) {
			t.Errorf("%s: got %q, %v, want %q", tt.path, fence.asked, err, tt.want)
		}
		for _, name := range []string{"session", "owner", "attach"} {
			if err := FenceUpgrade(&fakeFence{t: t, refuse: name}, r); err == nil || err.Error() != name {
				t.Errorf("%s: got %v, want what the check of %s said", tt.path, err, name)
			}
		}
	}
}

// A fakeRunner answers drains with what it was given.
type fakeRunner struct {
	answer   contracts.DrainAnswer
	replayed bool
	err      error
	bodies   []string
}

func (*fakeRunner) Identity() contracts.RunnerIdentity {
	return contracts.RunnerIdentity{ProtocolVersion: contracts.IdentityProtocol, RunnerSessionID: "mrs_41", OwnerInstanceID: "gen_9", Ready: true}
}

func (r *fakeRunner) Drain(_ context.Context, body []byte) (*contracts.DrainAnswer, bool, error) {
	r.bodies = append(r.bodies, string(body))
	return &r.answer, r.replayed, r.err
}

// runnerHouse has the routes of a runner.
func runnerHouse(t *testing.T, runner Runner, control func(*http.Request) error) *house {
	h := newHouse(t, nil)
	if control == nil {
		control = func(*http.Request) error { return nil }
	}
	mux := http.NewServeMux()
	RunnerRoutes(mux, runner, control)
	h.Handler = mux
	return h
}

const (
	identityPath = "/.well-known/evalops/remote-runner/identity"
	drainPath    = "/.well-known/evalops/remote-runner/drain"
)

// drainedAnswer is one that the schema allows.
func drainedAnswer(status contracts.DrainStatus) contracts.DrainAnswer {
	return contracts.DrainAnswer{
		ProtocolVersion: contracts.DrainProtocol, Status: status, RunnerSessionID: "mrs_41", ManifestPath: "/w/m.json",
		Manifest: contracts.Manifest{
			ProtocolVersion: contracts.ManifestProtocol, Snapshot: json.RawMessage(snapshot),
			Runtime:          contracts.ManifestRuntime{FlushStatus: contracts.FlushCompleted},
			WorkspaceExport:  contracts.WorkspaceExport{Mode: "local_path_contract"},
			PlatformEvidence: contracts.PlatformEvidence{Status: status, RuntimeFlushStatus: contracts.FlushCompleted},
		},
	}
}

func TestIdentityIsOpen(t *testing.T) {
	h := runnerHouse(t, &fakeRunner{}, func(*http.Request) error { return errors.New("asked for control") })
	want := `{"protocol_version":"evalops.remote-runner.identity.v1","runner_session_id":"mrs_41","owner_instance_id":"gen_9","ready":true,"draining":false}`
	if got := h.ask("GET", identityPath, "").ok().Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e := h.ask("POST", identityPath, "")
	e.refused(contracts.CodeMethodNotAllowed)
	if got := e.Header().Get("Allow"); got != "GET, HEAD, OPTIONS" {
		t.Errorf("got Allow %q", got)
	}
}

func TestWithoutARunnerThereIsNone(t *testing.T) {
	h := runnerHouse(t, nil, func(*http.Request) error { return errors.New("asked for control") })
	has(t, h.ask("GET", identityPath, "").refused(contracts.CodeNotFound), "hosted runner identity unavailable")
	has(t, h.ask("POST", drainPath, "").refused(contracts.CodeNotFound), "hosted runner drain unavailable")
}

func TestDrainNeedsControl(t *testing.T) {
	runner := &fakeRunner{answer: drainedAnswer(contracts.Drained)}
	h := runnerHouse(t, runner, func(*http.Request) error {
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "the control credential is required"}
	})
	h.ask("POST", drainPath, `{"reason":"x"}`).refused(contracts.CodeAccessDenied)
	h.ask("POST", drainPath, strings.Repeat("x", contracts.MaxDrainBytes+1)).refused(contracts.CodeAccessDenied)
	e := h.ask("GET", drainPath, "")
	e.refused(contracts.CodeMethodNotAllowed)
	if got := e.Header().Get("Allow"); got != "OPTIONS, POST" {
		t.Errorf("got Allow %q", got)
	}
	if len(runner.bodies) > 0 {
		t.Errorf("got drains %q, want none", runner.bodies)
	}
}

func TestDrainAnswersWithItsResult(t *testing.T) {
	for name, tt := range map[string]struct {
		status   contracts.DrainStatus
		replayed bool
		want     int
	}{
		"drained":     {contracts.Drained, false, 200},
		"replayed":    {contracts.Drained, true, 200},
		"interrupted": {contracts.DrainInterrupted, false, 503},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &fakeRunner{answer: drainedAnswer(tt.status), replayed: tt.replayed}
			e := runnerHouse(t, runner, nil).ask("POST", drainPath, `{"reason":"x"}`)
			var got contracts.DrainAnswer
			if err := json.Unmarshal(e.Body.Bytes(), &got); err != nil || e.Code != tt.want || got.Status != tt.status || got.ManifestPath != "/w/m.json" {
				t.Fatalf("got %d %s, %v, want %d and the answer in full", e.Code, e.Body, err, tt.want)
			}
			h := e.Header()
			if (h.Get(headerReplayed) == "true") != tt.replayed || (h.Get("Retry-After") != "") != (tt.want == 503) || h.Get("Cache-Control") != "no-store" {
				t.Errorf("got header %v", h)
			}
			if !slices.Equal(runner.bodies, []string{`{"reason":"x"}`}) {
				t.Errorf("got bodies %q", runner.bodies)
			}
		})
	}
}

func TestDrainRefusals(t *testing.T) {
	for _, code := range []contracts.Code{contracts.CodeBadRequest, contracts.CodeWorkspaceViolation, contracts.CodeRuntimeFailed, contracts.CodeTimeout} {
		runnerHouse(t, &fakeRunner{err: &contracts.Error{Code: code, Message: "because"}}, nil).ask("POST", drainPath, "").refused(code)
	}
	runnerHouse(t, &fakeRunner{err: errors.New("disk on fire")}, nil).ask("POST", drainPath, "").refused(contracts.CodeInternal)
	runner := &fakeRunner{answer: drainedAnswer(contracts.Drained)}
	h := runnerHouse(t, runner, nil)
	if e := h.ask("POST", drainPath, strings.Repeat(" ", contracts.MaxDrainBytes)); e.Code != 200 {
		t.Errorf("at the limit: got %d %s, want 200", e.Code, e.Body)
	}
	has(t, h.ask("POST", drainPath, strings.Repeat(" ", contracts.MaxDrainBytes+1)).refused(contracts.CodePayloadTooLarge), "Payload too large")
	if len(runner.bodies) != 1 {
		t.Errorf("got %d drains, want 1", len(runner.bodies))
	}
}
