package wiring

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
)

// newTestServer returns the sessions of a server in a workspace of its own.
func newTestServer(t testing.TB) *Server {
	t.Helper()
	m, err := NewSessions(Options{Agent: "shell", Workspace: t.TempDir(), RetainBytes: 256 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.Dir = t.TempDir()
	sh := &Server{Sessions: m, Directory: &hub.Directory{Open: m.Open}}
	if sh.overview, err = sh.openOverview(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sh.Directory.Suspend(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		sh.overview.Close()
	})
	return sh
}

// The same key of the same principal is the same session, and any other is
// another one.
func TestKeysNameSessions(t *testing.T) {
	named := map[string]string{}
	for _, p := range []contracts.Principal{{ID: "alice"}, {ID: "bob"}, {ID: "alice", Scope: "home"}, {ID: "e", Scope: "alic"}, {ID: "", Scope: "alice"}} {
		for _, key := range []string{"k", "K", "k1", "alice"} {
			want := httpapi.Wanted{Create: true, Key: key, Principal: p}
			id := newSessionID(want)
			if again := newSessionID(want); again != id {
				t.Errorf("%+v with %q: got %q and then %q, want one session", p, key, id, again)
			}
			if other, taken := named[id]; taken {
				t.Errorf("%+v with %q: got the session of %s", p, key, other)
			}
			named[id] = p.Scope + "/" + p.ID + "/" + key
		}
	}
	first, second := newSessionID(httpapi.Wanted{Create: true}), newSessionID(httpapi.Wanted{Create: true})
	if first == second {
		t.Errorf("without a key: got %s twice, want two sessions", first)
	}
}

func TestViewersFindSessionsAndMakeNone(t *testing.T) {
	sh := newTestServer(t)
	viewer := contracts.Principal{ID: "v", Role: contracts.RoleViewer}
	denied := &contracts.Error{Code: contracts.CodeAccessDenied}
	for _, tt := range []struct {
		want httpapi.Wanted
		err  error
	}{
		{httpapi.Wanted{Create: true}, denied},
		{httpapi.Wanted{ID: "a", Create: true}, denied},
		{httpapi.Wanted{ID: "a"}, hub.ErrUnknownSession},
		{httpapi.Wanted{Socket: true}, hub.ErrUnknownSession},
	} {
		tt.want.Principal = viewer
		if _, _, err := sh.Find(t.Context(), tt.want); !errors.Is(err, tt.err) {
			t.Errorf("%+v: got %v, want %v", tt.want, err, tt.err)
		}
	}
	if got := sh.list(viewer).Sessions; len(got) > 0 {
		t.Errorf("got the sessions %+v, want none made", got)
	}
	if _, opened, err := sh.Find(t.Context(), httpapi.Wanted{ID: "a", Create: true, Principal: contracts.Principal{ID: "o"}}); err != nil || !opened {
		t.Fatalf("the owner: got %v, %v, want a new session", opened, err)
	}
	if _, opened, err := sh.Find(t.Context(), httpapi.Wanted{ID: "a", Create: true, Principal: viewer}); err != nil || opened {
		t.Errorf("the viewer of a session that is there: got %v, %v, want it", opened, err)
	}
}

func TestRefusedRequestMakesNoSession(t *testing.T) {
	sh := newTestServer(t)
	for _, req := range []*contracts.AttachRequest{
		{EnableClientTools: true},
		{Role: contracts.RoleViewer, Capabilities: &contracts.AttachCapabilities{ServerRequests: []contracts.RequestType{contracts.RequestUserInput}}},
		{WorkspaceRoot: "/nowhere"},
	} {
		_, _, err := sh.Find(t.Context(), httpapi.Wanted{Create: true, Runtime: req})
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("%+v: got %v, want a refusal", req, err)
		}
	}
	if got := sh.list(contracts.Principal{}).Sessions; len(got) > 0 {
		t.Errorf("got the sessions %+v, want none", got)
	}
}

// A closingAgent counts its ends.
type closingAgent struct {
	contracts.Agent
	closed *int
	panics bool
}

func (a closingAgent) Close(context.Context) error {
	*a.closed++
	if a.panics {
		panic("bug in Close")
	}
	return nil
}

func TestAgentOfASessionThatCannotOpenIsClosed(t *testing.T) {
	m, key := newTestServer(t).Sessions, hub.Key{ID: "s"}
	store, err := journal.Open(m.SessionDir(key), journal.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	entry := journal.Entry{Cursor: 1, Kind: journal.Checkpoint, Body: []byte("{")}
	if err := errors.Join(store.Append([]journal.Entry{entry}), store.Close()); err != nil {
		t.Fatal(err)
	}
	for _, panics := range []bool{false, true} {
		closed := 0
		m.opts.NewAgent = func(hub.Key, agent.Options) (contracts.Agent, error) { return closingAgent{nil, &closed, panics}, nil }
		if _, err := m.Open(t.Context(), key, hub.OpenOptions{}); err == nil || closed != 1 || strings.Contains(err.Error(), "bug") != panics {
			t.Errorf("got %v and an agent that was closed %d times, want an error and once", err, closed)
		}
	}
}

func TestScopesDoNotSeeEachOther(t *testing.T) { // A84
	sh := newTestServer(t)
	mine, theirs := contracts.Principal{ID: "a", Scope: "a"}, contracts.Principal{ID: "b", Scope: "b"}
	h, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "s", Create: true, Principal: mine})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "s", Principal: theirs}); !errors.Is(err, hub.ErrUnknownSession) {
		t.Errorf("got %v, want it unknown", err)
	}
	other, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "s", Create: true, Principal: theirs})
	if err != nil || other == h {
		t.Errorf("got %v, %v, want another session of the same name", other, err)
	}
	for _, p := range []contracts.Principal{mine, theirs} {
		if got := sh.list(p).Sessions; len(got) != 1 || got[0].SessionID != "s" || !got[0].Open {
			t.Errorf("%s: got %+v, want one session", p.Scope, got)
		}
	}
	if got := sh.list(contracts.Principal{}).Sessions; len(got) > 0 {
		t.Errorf("the owner: got %+v, want none", got)
	}
}

func TestSessionsAreListedAfterARestart(t *testing.T) {
	sh := newTestServer(t)
	for _, id := range []string{"one", "two"} {
		if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: id, Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sh.Directory.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh.Directory = &hub.Directory{Open: sh.Sessions.Open}
	list := sh.list(contracts.Principal{}).Sessions
	if len(list) != 2 || list[0].Open || list[0].Cursor != nil || list[0].UpdatedAt == "" {
		t.Fatalf("got %+v, want both, not open", list)
	}
	h, opened, err := sh.Find(t.Context(), httpapi.Wanted{ID: "one"})
	if err != nil || !opened || h.Cursor() < 4 {
		t.Fatalf("got %v at %v, %v, want the session to go on", opened, h, err)
	}
	if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "../two"}); err == nil {
		t.Error("a path instead of an id: got a session, want an error")
	}
}

func TestWishesOfTheFirstRequestLast(t *testing.T) {
	sh := newTestServer(t)
	req := &contracts.AttachRequest{ApprovalMode: contracts.ApprovalFail, ThinkingLevel: contracts.ThinkingLow}
	h, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "w", Create: true, Runtime: req})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"init","thinking_level":"low","approval_mode":"fail"}`
	if got := string(h.Snapshot().LastInit); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := sh.Directory.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh.Directory = &hub.Directory{Open: sh.Sessions.Open}
	req.ApprovalMode = contracts.ApprovalAuto
	if h, _, err = sh.Find(t.Context(), httpapi.Wanted{ID: "w", Create: true, Runtime: req}); err != nil {
		t.Fatal(err)
	}
	if got := string(h.Snapshot().LastInit); got != want {
		t.Errorf("after a restart: got %s, want %s: the session is not new", got, want)
	}
}
