package httpapi

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// A fakeOverview notes what it is asked last.
type fakeOverview struct {
	did     string
	by      contracts.Caller
	query   contracts.OverviewQuery
	updated contracts.SessionUpdate
	err     error
}

func (f *fakeOverview) note(did, id string, by contracts.Caller) (*contracts.SessionSummary, error) {
	f.did, f.by = did, by
	return &contracts.SessionSummary{SessionID: id, Status: contracts.SessionIdle}, f.err
}

func (f *fakeOverview) Page(p contracts.Principal, q contracts.OverviewQuery) (*contracts.Overview, error) {
	f.query = q
	sum, err := f.note("page", "a", contracts.Caller{Principal: p})
	return &contracts.Overview{Sessions: []contracts.SessionSummary{*sum}}, err
}

func (f *fakeOverview) Follow(_ context.Context, conn *sse.Conn, p contracts.Principal, limit int) error {
	f.query.Limit = limit
	_, _ = f.note("follow", "", contracts.Caller{Principal: p})
	if f.err != nil {
		return f.err
	}
	return conn.Write(sse.AppendData(nil, []byte(`{"type":"removed","session_id":"a"}`)))
}

func (f *fakeOverview) Inbox(by contracts.Caller) (*contracts.Inbox, error) {
	_, err := f.note("inbox", "", by)
	return &contracts.Inbox{Questions: []contracts.InboxQuestion{{SessionID: "a", RequestID: "q", RequestType: contracts.RequestApproval}}}, err
}

func (f *fakeOverview) FollowInbox(_ context.Context, conn *sse.Conn, by contracts.Caller) error {
	_, _ = f.note("follow inbox", "", by)
	return conn.Write(sse.AppendData(nil, []byte(`{"type":"ended"}`)))
}

func (f *fakeOverview) Update(id string, by contracts.Caller, u *contracts.SessionUpdate) (*contracts.SessionSummary, error) {
	f.updated = *u
	return f.note("update", id, by)
}

func (f *fakeOverview) Delete(_ context.Context, id string, by contracts.Caller) (*contracts.SessionSummary, error) {
	return f.note("delete", id, by)
}

func (f *fakeOverview) Restore(id string, by contracts.Caller) (*contracts.SessionSummary, error) {
	return f.note("restore", id, by)
}

const overviewPath = "/api/headless/overview"

func withOverview(t *testing.T) (*house, *fakeOverview) {
	f := new(fakeOverview)
	return newHouse(t, func(o *Options) { o.Overview = f }), f
}

func TestQueryOfAnOverview(t *testing.T) {
	h, f := withOverview(t)
	for query, want := range map[string]contracts.OverviewQuery{
		"": {},
		"?status=waiting,deleted&q=A%20b&archived=true&limit=7&after=MA": {
			Statuses: []contracts.SessionStatus{contracts.SessionWaiting, contracts.SessionDeleted}, Text: "A b", Archived: true, Limit: 7, After: "MA",
		},
		"?archived=false&q=&other=1": {},
	} {
		if got := h.ask("GET", overviewPath+query, "").ok(); !reflect.DeepEqual(f.query, want) || !strings.HasPrefix(got.Body.String(), `{"sessions":[{"session_id":"a"`) {
			t.Errorf("%s: got %+v and %s, want %+v", query, f.query, got.Body, want)
		}
	}
	for _, query := range []string{
		"?status=busy", "?status=idle,", "?archived=1", "?limit=0", "?limit=-1", "?limit=x", "?q=a&q=b", "?q=" + strings.Repeat("x", 600), "?a=%",
	} {
		for _, path := range []string{overviewPath, overviewPath + "/events"} {
			f.did = ""
			if h.ask("GET", path+query, "").refused(contracts.CodeBadRequest); f.did != "" {
				t.Errorf("%s: got to %s", query, f.did)
			}
		}
	}
}

func TestSessionIsChangedOverHTTP(t *testing.T) {
	h, f := withOverview(t)
	for _, tt := range []struct{ method, path, body, did string }{
		{"PATCH", sessionPath, `{"title":"x","archived":true}`, "update"},
		{"DELETE", sessionPath, "", "delete"},
		{"POST", sessionPath + "/restore", "", "restore"},
	} {
		f.err, h.principal.SessionID = nil, ""
		e := h.ask(tt.method, tt.path, tt.body, "X-Maestro-Headless-Connection-Id: conn_1", "X-Maestro-Headless-Role: viewer").ok()
		if f.did != tt.did || f.by.ConnectionID != "conn_1" || f.by.Role != contracts.RoleViewer || f.by.Principal != h.principal || !strings.Contains(e.Body.String(), `"session_id":"sess_a"`) {
			t.Errorf("%s: got %s by %+v and %s", tt.path, f.did, f.by, e.Body)
		}
		f.err = &contracts.Error{Code: contracts.CodeStaleSession, Message: "gone"}
		h.ask(tt.method, tt.path, tt.body).refused(contracts.CodeStaleSession)
		f.did, h.principal.SessionID = "", "sess_b"
		if h.ask(tt.method, tt.path, tt.body).refused(contracts.CodeAccessDenied); f.did != "" {
			t.Errorf("%s: a credential for another session got to %s", tt.path, f.did)
		}
	}
	h.principal.SessionID, f.did, f.err = "", "", nil
	for _, body := range []string{"", "[]", `{"title":null}` + "x", `{"title":7}`, `{"archived":"true"}`} {
		if h.ask("PATCH", sessionPath, body).refused(contracts.CodeBadRequest); f.did != "" {
			t.Errorf("%s: got to %s", body, f.did)
		}
	}
	if h.ask("PATCH", sessionPath, `{"archived":false}`).ok(); f.updated.Title != nil || *f.updated.Archived {
		t.Errorf("got %+v, want only archived", f.updated)
	}
}

func TestOverviewIsStreamed(t *testing.T) {
	h, f := withOverview(t)
	url := h.serve()
	res, err := http.Get(url + overviewPath + "/events?limit=3")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body) // the answer has ended
	if string(text) != "data: {\"type\":\"removed\",\"session_id\":\"a\"}\n\n" || err != nil || f.query.Limit != 3 || f.by.Principal != h.principal {
		t.Errorf("got %q, %v, for %+v with at most %d", text, err, f.by, f.query.Limit)
	}
	if _, ok := res.Header[headerEpoch]; ok || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %v, want a stream without an epoch", res.Header)
	}
	f.err = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "expired"}
	refused, err := http.Get(url + overviewPath + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Body.Close()
	if refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %s, want the refusal", refused.Status)
	}
}

func TestServerWithoutAnOverview(t *testing.T) {
	h := newHouse(t, nil)
	for _, what := range []string{"GET " + overviewPath, "GET " + overviewPath + "/events", "POST " + sessionPath + "/restore", "PATCH " + sessionPath, "DELETE " + sessionPath} {
		method, path, _ := strings.Cut(what, " ")
		h.ask(method, path, "").refused(contracts.CodeNotFound)
	}
	h.refuse = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "who?"}
	h.ask("GET", overviewPath, "").refused(contracts.CodeUnauthenticated)
}
