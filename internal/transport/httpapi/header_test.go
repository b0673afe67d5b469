package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestHeadersSayWhoSpeaks(t *testing.T) {
	long := strings.Repeat("x", contracts.MaxIDBytes)
	for _, tt := range []struct {
		headers []string
		want    contracts.Caller
		bad     string // in the refusal
	}{
		{nil, contracts.Caller{}, ""},
		{[]string{"x-maestro-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-composer-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-evalops-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"X-MAESTRO-HEADLESS-CONNECTION-ID: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-subscriber-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-maestro-headless-subscription-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-composer-headless-subscriber-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-composer-headless-subscription-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-evalops-headless-subscriber-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-evalops-headless-subscription-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-maestro-headless-role: viewer"}, contracts.Caller{Role: contracts.RoleViewer}, ""},
		{[]string{"x-composer-headless-role: controller"}, contracts.Caller{Role: contracts.RoleController}, ""},
		{[]string{"x-maestro-headless-role: Viewer"}, contracts.Caller{Role: contracts.RoleController}, ""}, // exactly viewer means viewer
		{[]string{"x-evalops-headless-role: admin"}, contracts.Caller{Role: contracts.RoleController}, ""},
		{[]string{"x-maestro-headless-connection-token: t"}, contracts.Caller{Token: "t"}, ""},
		{[]string{"x-composer-headless-connection-token: t"}, contracts.Caller{}, ""}, // it is ours alone
		{[]string{"traceparent: 00-ab-cd-01"}, contracts.Caller{Trace: "00-ab-cd-01"}, ""},

		// All that are there agree; those that are empty are not there.
		{[]string{"x-maestro-headless-connection-id: c", "x-composer-headless-connection-id: c", "x-evalops-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-connection-id:", "x-composer-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-connection-id: c", "x-composer-headless-connection-id:  "}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-connection-id:  c ", "x-composer-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-connection-id: c", "x-maestro-headless-connection-id: c"}, contracts.Caller{ConnectionID: "c"}, ""},
		{[]string{"x-maestro-headless-subscriber-id: s", "x-maestro-headless-subscription-id: s", "x-evalops-headless-subscription-id: s"}, contracts.Caller{SubscriptionID: "s"}, ""},
		{[]string{"x-maestro-headless-connection-id: c", "x-composer-headless-subscriber-id: s"}, contracts.Caller{ConnectionID: "c", SubscriptionID: "s"}, ""},

		{[]string{"x-maestro-headless-connection-id: c", "x-composer-headless-connection-id: d"}, contracts.Caller{}, "headless-connection-id contradict"},
		{[]string{"x-composer-headless-connection-id: c", "x-evalops-headless-connection-id: C"}, contracts.Caller{}, "headless-connection-id contradict"},
		{[]string{"x-maestro-headless-connection-id: c", "x-maestro-headless-connection-id: d"}, contracts.Caller{}, "headless-connection-id contradict"},
		{[]string{"x-maestro-headless-subscriber-id: s", "x-maestro-headless-subscription-id: t"}, contracts.Caller{}, "contradict"},
		{[]string{"x-maestro-headless-role: viewer", "x-composer-headless-role: controller"}, contracts.Caller{}, "headless-role contradict"},

		{[]string{"x-maestro-headless-connection-id: " + long}, contracts.Caller{ConnectionID: long}, ""},
		{[]string{"x-maestro-headless-connection-id: " + long + "x"}, contracts.Caller{}, "too long"},
		{[]string{"x-maestro-headless-subscriber-id: " + long + "x"}, contracts.Caller{}, "too long"},
		{[]string{"x-maestro-headless-connection-token: " + long + "x"}, contracts.Caller{}, "too long"},
		{[]string{"traceparent: " + long + "x"}, contracts.Caller{}, "too long"},
	} {
		h := newHouse(t, nil)
		for _, r := range []route{routes[9], routes[7]} { // heartbeat and messages
			e := h.ask(r.method, r.path, r.body, tt.headers...)
			if tt.bad != "" {
				has(t, e.refused(contracts.CodeBadRequest), tt.bad)
				h.session.untouched(t)
				continue
			}
			tt.want.Principal = h.principal
			if got := h.session.last(t).by; got != tt.want {
				t.Errorf("%s: got %+v, want %+v", e.what, got, tt.want)
			}
		}
	}
}

func TestApprovalModeIsOfTheBodyElseTheHeader(t *testing.T) {
	for _, tt := range []struct {
		body    string
		headers []string
		want    contracts.ApprovalMode
		bad     bool
	}{
		{`{}`, nil, "", false},
		{`{}`, []string{"x-composer-approval-mode: auto"}, contracts.ApprovalAuto, false},
		{`{}`, []string{"x-maestro-approval-mode: prompt", "x-composer-approval-mode: prompt"}, contracts.ApprovalPrompt, false},
		{`{"approvalMode":"fail"}`, []string{"x-maestro-approval-mode: auto"}, contracts.ApprovalFail, false},
		{`{}`, []string{"x-maestro-approval-mode: auto", "x-composer-approval-mode: fail"}, "", true},
		{`{"approvalMode":"fail"}`, []string{"x-maestro-approval-mode: auto", "x-composer-approval-mode: fail"}, "", true},
		{`{}`, []string{"x-maestro-approval-mode: yolo"}, "", true},
		{`{}`, []string{"x-maestro-approval-mode: AUTO"}, "", true},
		{`{"approvalMode":"yolo"}`, nil, "", true},
	} {
		h := newHouse(t, nil)
		e := h.ask("POST", "/api/headless/connections", tt.body, tt.headers...)
		if tt.bad {
			e.refused(contracts.CodeBadRequest)
			h.session.untouched(t)
			continue
		}
		if got := h.session.last(t).attach.ApprovalMode; got != tt.want || h.want().Runtime.ApprovalMode != tt.want {
			t.Errorf("%s: got %q, want %q", e.what, got, tt.want)
		}
	}
}

// keys are what clients may and may not name their requests with.
var keys = []struct {
	headers []string
	want    string
	ok      bool
}{
	{nil, "", true},
	{[]string{"Idempotency-Key: k"}, "k", true},
	{[]string{"idempotency-key: a b"}, "a b", true},
	{[]string{"Idempotency-Key: ~!\"#"}, "~!\"#", true},
	{[]string{"Idempotency-Key: " + strings.Repeat("k", contracts.MaxIDBytes)}, strings.Repeat("k", contracts.MaxIDBytes), true},
	{[]string{"Idempotency-Key: " + strings.Repeat("k", contracts.MaxIDBytes+1)}, "", false},
	{[]string{"Idempotency-Key:"}, "", false},
	{[]string{"Idempotency-Key: k", "Idempotency-Key: k"}, "", false},
	{[]string{"Idempotency-Key: a\tb"}, "", false},
	{[]string{"Idempotency-Key: a\x7f"}, "", false},
	{[]string{"Idempotency-Key: ä"}, "", false},
	{[]string{"Idempotency-Key: \x80"}, "", false},
	{[]string{"Idempotency-Key: a\x00"}, "", false},
}

func TestKeysOfMessages(t *testing.T) {
	for _, tt := range keys {
		h := newHouse(t, nil)
		e := h.ask("POST", sessionPath+"/messages", `{"type":"interrupt"}`, tt.headers...)
		if !tt.ok {
			has(t, e.refused(contracts.CodeBadRequest), "Idempotency-Key")
			h.session.untouched(t)
			continue
		}
		if got := h.session.last(t); e.Code != 200 || got.key != tt.want {
			t.Errorf("%s: got %d and key %q, want %q", e.what, e.Code, got.key, tt.want)
		}
	}
}

func TestKeysOfCreations(t *testing.T) {
	for _, path := range []string{"/api/headless/sessions", "/api/headless/connections"} {
		for _, tt := range keys {
			h := newHouse(t, nil)
			e := h.ask("POST", path, `{}`, tt.headers...)
			if !tt.ok {
				has(t, e.refused(contracts.CodeBadRequest), "Idempotency-Key")
				h.session.untouched(t)
				continue
			}
			if got := h.want(); got.Key != tt.want || got.ID != "" || !got.Create {
				t.Errorf("%s: got %+v looked for, want a new session with key %q", e.what, got, tt.want)
			}
		}
	}
}

func TestRoleOfCreationsIsTheHeaders(t *testing.T) {
	for header, want := range map[string]contracts.Role{"x-one: y": "", "x-maestro-headless-role: viewer": contracts.RoleViewer, "x-composer-headless-role: x": contracts.RoleController} {
		for _, path := range []string{"/api/headless/sessions", "/api/headless/connections"} {
			h := newHouse(t, nil)
			h.ask("POST", path, `{"role":"controller"}`, header)
			if got := h.want(); got.Role != want || got.Runtime.Role != contracts.RoleController {
				t.Errorf("%s: got %+v looked for, want role %q beside the body's", header, got, want)
			}
		}
	}
}

func FuzzCaller(f *testing.F) {
	f.Add("X-Maestro-Headless-Role", "viewer", "X-Composer-Headless-Role", "viewer")
	f.Add("x-evalops-headless-subscription-id", " s ", "X-Maestro-Headless-Subscriber-Id", "s")
	f.Add("X-Maestro-Headless-Connection-Id", "a", "X-Maestro-Headless-Connection-Id", "b")
	f.Add("Traceparent", strings.Repeat("x", 200), "Idempotency-Key", "\x00")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		h := http.Header{}
		h.Add(name1, value1)
		h.Add(name2, value2)
		by, err := caller(h)
		if err == nil {
			for _, s := range []string{by.ConnectionID, by.SubscriptionID, by.Token, by.Trace} {
				if len(s) > contracts.MaxIDBytes || s != "" && !slices.ContainsFunc([]string{value1, value2}, func(v string) bool { return strings.Contains(v, s) }) {
					t.Errorf("got %q out of %v", s, h)
				}
			}
			if by.Role != "" && by.Role != contracts.RoleViewer && by.Role != contracts.RoleController || by.Principal != (contracts.Principal{}) {
				t.Errorf("got %+v out of %v", by, h)
			}
		}
		if key, err := idempotencyKey(h); err == nil && (len(key) > contracts.MaxIDBytes || strings.Trim(key, " ~!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}") != "") {
			t.Errorf("got key %q", key)
		}
		// Which of two headers comes first says nothing.
		turned := http.Header{}
		turned.Add(name2, value2)
		turned.Add(name1, value1)
		if http.CanonicalHeaderKey(name1) == http.CanonicalHeaderKey(name2) {
			return // but of one header the first counts where that is the rule
		}
		if again, err2 := caller(turned); (err == nil) != (err2 == nil) || err == nil && again != by {
			t.Errorf("got %+v, %v and %+v, %v by order", by, err, again, err2)
		}
	})
}
