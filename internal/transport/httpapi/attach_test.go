package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestConnectionsFindOrMakeTheirSession(t *testing.T) {
	for _, tt := range []struct {
		path, body string
		opened     bool
		want       Wanted
		reaches    string
	}{
		{"/api/headless/connections", `{}`, true, Wanted{Create: true}, "Connect"},
		{"/api/headless/connections", `{"sessionId":""}`, true, Wanted{Create: true}, "Connect"},
		{"/api/headless/connections", `{"sessionId":" sess_b "}`, false, Wanted{ID: "sess_b"}, "Connect"}, // ruling 7
		{"/api/headless/sessions", `{}`, true, Wanted{Create: true}, "Connect"},
		{"/api/headless/sessions", `{"sessionId":"sess_b"}`, true, Wanted{ID: "sess_b", Create: true}, "Connect"},
		{"/api/headless/sessions", `{"sessionId":"sess_b"}`, false, Wanted{ID: "sess_b", Create: true}, "State"}, // it was there already
	} {
		h := newHouse(t, nil)
		h.opened = tt.opened
		h.session.token = "a-secret"
		e := h.ask("POST", tt.path, tt.body).ok()
		got := h.want()
		if got.Runtime == nil {
			t.Errorf("%s: got no wishes", e.what)
		}
		tt.want.Principal, got.Runtime = h.principal, nil
		if got != tt.want {
			t.Errorf("%s: got %+v looked for, want %+v", e.what, got, tt.want)
		}
		if got := h.session.last(t).method; got != tt.reaches {
			t.Errorf("%s: got %s, want %s", e.what, got, tt.reaches)
		}
		if made := tt.reaches == "Connect"; made != (e.Header().Get(contracts.HeaderConnectionToken) == "a-secret") {
			t.Errorf("%s: got the secret %q", e.what, e.Header().Get(contracts.HeaderConnectionToken))
		}
	}
}

// Whoever makes a session makes a connection: it renews none, whatever the
// request names.
func TestMakingASessionRenewsNothing(t *testing.T) {
	h := newHouse(t, nil)
	h.opened = true
	h.ask("POST", "/api/headless/sessions", `{"connectionId":"conn_b","role":"viewer"}`, "x-maestro-headless-connection-id: conn_h", "x-maestro-headless-role: controller").ok()
	got := h.session.last(t)
	if got.attach.ConnectionID != "" || got.by.ConnectionID != "" || got.attach.Role != contracts.RoleViewer || got.by.Role != contracts.RoleController {
		t.Errorf("got %+v by %+v, want no connection named", got.attach, got.by)
	}
}

func TestMalformedSessionIDsInBodies(t *testing.T) {
	h := newHouse(t, nil)
	for _, id := range []string{"a/b", "..\\\\b", "a b", "ä", strings.Repeat("x", contracts.MaxIDBytes+1), "a\\u0000b", "a\\nb", "a%2fb", ".", ".."} {
		for _, r := range routes {
			if r.attaches && r.method == "POST" {
				has(t, h.ask("POST", r.path, `{"sessionId":"`+id+`"}`).refused(contracts.CodeBadRequest), "malformed session id")
			}
		}
	}
	h.session.untouched(t)
	if len(h.wanted) > 0 {
		t.Errorf("got %+v looked for, want nothing", h.wanted)
	}
}

func TestBoundCredentialReachesOneSession(t *testing.T) {
	for _, r := range routes {
		h := newHouse(t, nil)
		h.principal.SessionID = "sess_a"
		h.ask(r.method, r.path, strings.ReplaceAll(r.body, "sess_a", ""))
		if got := h.want().ID; got != "sess_a" {
			t.Errorf("%s: got session %q, want the credential's", r.path, got)
		}
		h.session.last(t)

		h.principal.SessionID = "sess_z"
		if r.in() {
			has(t, h.ask(r.method, r.path, r.body).refused(contracts.CodeAccessDenied), "for another session")
		}
		if r.attaches && r.method == "POST" {
			path := strings.Replace(r.path, "sess_a", "sess_z", 1)
			has(t, h.ask(r.method, path, `{"sessionId":"sess_a"}`).refused(contracts.CodeAccessDenied), "for another session")
		}
		h.session.untouched(t)
		if len(h.wanted) > 0 {
			t.Errorf("%s: got %+v looked for, want nothing", r.path, h.wanted)
		}
	}
	h := newHouse(t, nil)
	h.principal.SessionID = "sess_z"
	h.ask("POST", "/api/headless/sessions", `{}`, "Idempotency-Key: k").ok()
	if got := h.want(); got.ID != "sess_z" {
		t.Errorf("got %+v, want the credential's session, whatever the key", got)
	}
}

// Who may not make a session is for whoever makes them to say.
func TestPrincipalOfCreationsIsKnown(t *testing.T) {
	for _, path := range []string{"/api/headless/sessions", "/api/headless/connections"} {
		h := newHouse(t, nil)
		h.principal.Role = contracts.RoleViewer
		h.found = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential does not allow making sessions"}
		has(t, h.ask("POST", path, `{"role":"controller"}`).refused(contracts.CodeAccessDenied), "making sessions")
		if got := h.want(); got.Principal != h.principal || !got.Create {
			t.Errorf("%s: got %+v looked for, want it to say who asks", path, got)
		}
		h.session.untouched(t)
	}
}

func TestWishesArriveAsTheyAre(t *testing.T) {
	body := `{"connectionId":"conn_1","protocolVersion":"2026-04-02","clientInfo":{"name":"ci","version":"1"},"workspaceRoot":"/w","model":"m",` +
		`"enableClientTools":true,"capabilities":{"serverRequests":["approval","client_tool"],"utilityOperations":["file_read"],"rawAgentEvents":true},` +
		`"optOutNotifications":["status"],"role":"controller","takeControl":true,"client":"vscode","thinkingLevel":"low","approvalMode":"auto"}`
	for _, path := range []string{"/api/headless/connections", sessionPath + "/subscribe"} {
		h := newHouse(t, nil)
		h.ask("POST", path, body, "x-maestro-headless-role: viewer", "x-maestro-headless-connection-id: conn_h").ok()
		got := h.session.last(t)
		a, by := got.attach, got.by
		if a.ConnectionID != "conn_1" || a.ProtocolVersion != "2026-04-02" || a.ClientInfo.Name != "ci" || a.WorkspaceRoot != "/w" || a.Model != "m" || !a.EnableClientTools ||
			len(a.Capabilities.ServerRequests) != 2 || !a.Capabilities.RawAgentEvents || !slices.Equal(a.OptOutNotifications, []contracts.Notification{contracts.NotifyStatus}) ||
			a.Role != contracts.RoleController || !a.TakeControl || a.Client != "vscode" || a.ThinkingLevel != "low" || a.ApprovalMode != contracts.ApprovalAuto {
			t.Errorf("%s: got %+v", path, a)
		}
		if by.Role != contracts.RoleViewer || by.ConnectionID != "conn_h" { // which of the two counts is for the session to say
			t.Errorf("%s: got %+v", path, by)
		}
	}
	for _, bad := range []string{
		`{"role":"admin"}`, `{"client":"emacs"}`, `{"capabilities":{"serverRequests":["approval","approval"]}}`, `{"capabilities":{"serverRequests":["x"]}}`,
		`{"capabilities":{"utilityOperations":["x"]}}`, `{"optOutNotifications":["status","status"]}`, `{"optOutNotifications":["x"]}`, `{"takeControl":"yes"}`,
		`{"thinkingLevel":"x"}`, `{"clientInfo":{}}`, `{"clientInfo":"x"}`,
	} {
		h := newHouse(t, nil)
		h.ask("POST", "/api/headless/connections", bad).refused(contracts.CodeBadRequest)
		h.session.untouched(t)
	}
}

func TestUnknownSessionsAreNotFound(t *testing.T) {
	for _, r := range routes {
		h := newHouse(t, nil)
		h.found = &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}
		has(t, h.ask(r.method, r.path, r.body).refused(contracts.CodeStaleSession), "Headless session not found")
		h.session.untouched(t)
	}
}
