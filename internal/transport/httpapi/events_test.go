package httpapi

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestStreamsBeginWhereTheyAreAskedTo(t *testing.T) {
	at := func(n int64) *int64 { return &n }
	long := strings.Repeat("e", contracts.MaxIDBytes)
	for _, tt := range []struct {
		query   string
		headers []string
		want    contracts.StreamRequest
		bad     string
	}{
		{"", nil, contracts.StreamRequest{}, ""},
		{"cursor=7", nil, contracts.StreamRequest{Cursor: at(7)}, ""},
		{"cursor=0", nil, contracts.StreamRequest{Cursor: at(0)}, ""},
		{"cursor=-1", nil, contracts.StreamRequest{Cursor: at(-1)}, ""}, // a gap, for the session to say
		{"cursor=9223372036854775807", nil, contracts.StreamRequest{Cursor: at(math.MaxInt64)}, ""},
		{"cursor=", nil, contracts.StreamRequest{}, ""},
		{"cursor=7&epoch=e7f3", nil, contracts.StreamRequest{Cursor: at(7), Epoch: "e7f3"}, ""},
		{"epoch=" + long, nil, contracts.StreamRequest{Epoch: long}, ""},
		{"other=1&other=2&CURSOR=9", nil, contracts.StreamRequest{}, ""},
		{"turns=3", nil, contracts.StreamRequest{Turns: 3}, ""},
		{"turns=100&optOutNotifications=status", nil, contracts.StreamRequest{Turns: 100, OptOuts: []contracts.Notification{contracts.NotifyStatus}}, ""},
		{"turns=101", nil, contracts.StreamRequest{}, "1 to 100"},
		{"turns=-1", nil, contracts.StreamRequest{}, "1 to 100"},
		{"cursor=x", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=1.5", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=1e3", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=0x10", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=1_000", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=+7", nil, contracts.StreamRequest{}, "integer"}, // a blank before a seven
		{"cursor=7%00", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=9223372036854775808", nil, contracts.StreamRequest{}, "integer"},
		{"cursor=7&cursor=7", nil, contracts.StreamRequest{}, "more than once"},
		{"epoch=a&epoch=a", nil, contracts.StreamRequest{}, "more than once"},
		{"epoch=" + long + "e", nil, contracts.StreamRequest{}, "epoch"},
		{"cursor=7;epoch=x", nil, contracts.StreamRequest{}, "malformed query"},
		{"cursor=%zz", nil, contracts.StreamRequest{}, "malformed query"},

		{"", []string{"Last-Event-ID: e7f3.9"}, contracts.StreamRequest{Cursor: at(9), Epoch: "e7f3"}, ""},
		{"cursor=7&epoch=old", []string{"Last-Event-ID: e7f3.9"}, contracts.StreamRequest{Cursor: at(9), Epoch: "e7f3"}, ""},
		{"cursor=7&epoch=old", []string{"Last-Event-ID: 9"}, contracts.StreamRequest{Cursor: at(7), Epoch: "old"}, ""},
		{"cursor=7", []string{"Last-Event-ID:"}, contracts.StreamRequest{Cursor: at(7)}, ""},
		{"cursor=7", []string{"Last-Event-ID: e7f3.-1"}, contracts.StreamRequest{Cursor: at(7)}, ""},

		{"subscriptionId=sub_q", nil, contracts.StreamRequest{SubscriptionID: "sub_q"}, ""},
		{"", []string{"x-maestro-headless-subscriber-id: sub_h"}, contracts.StreamRequest{SubscriptionID: "sub_h"}, ""},
		{"subscriptionId=sub_q", []string{"x-maestro-headless-subscriber-id: sub_h"}, contracts.StreamRequest{SubscriptionID: "sub_q"}, ""},
		{"subscriptionId=", []string{"x-maestro-headless-subscriber-id: sub_h"}, contracts.StreamRequest{SubscriptionID: "sub_h"}, ""},
		{"subscriptionId=sub_q&cursor=7", []string{"Last-Event-ID: e7f3.9"}, contracts.StreamRequest{SubscriptionID: "sub_q", Cursor: at(9), Epoch: "e7f3"}, ""},
		{"subscriptionId=a&subscriptionId=a", nil, contracts.StreamRequest{}, "more than once"},

		{"optOutNotifications=status", nil, contracts.StreamRequest{OptOuts: []contracts.Notification{contracts.NotifyStatus}}, ""},
		{"optOutNotifications=heartbeat,%20connection_info,compaction,status", nil, contracts.StreamRequest{OptOuts: []contracts.Notification{
			contracts.NotifyHeartbeat, contracts.NotifyConnectionInfo, contracts.NotifyCompaction, contracts.NotifyStatus}}, ""},
		{"optOutNotifications=", nil, contracts.StreamRequest{}, ""},
		{"optOutNotifications=status&subscriptionId=sub_q", nil, contracts.StreamRequest{SubscriptionID: "sub_q"}, ""}, // it has its own
		{"optOutNotifications=status,", nil, contracts.StreamRequest{}, "unknown notification"},
		{"optOutNotifications=STATUS", nil, contracts.StreamRequest{}, "unknown notification"},
		{"optOutNotifications=error", nil, contracts.StreamRequest{}, "unknown notification"},
		{"optOutNotifications=status&optOutNotifications=heartbeat", nil, contracts.StreamRequest{}, "more than once"},
		{"optOutNotifications=status,status", nil, contracts.StreamRequest{}, "more than once"},
		{"optOutNotifications=" + strings.Repeat("status,", 9999) + "status", nil, contracts.StreamRequest{}, "more than once"},
	} {
		h := newHouse(t, nil)
		e := h.ask("GET", sessionPath+"/events?"+tt.query, "", tt.headers...)
		if tt.bad != "" {
			has(t, e.refused(contracts.CodeBadRequest), tt.bad)
			h.session.untouched(t)
			if len(h.wanted) > 0 {
				t.Errorf("%s: got %+v looked for, want nothing", e.what, h.wanted)
			}
			continue
		}
		if got := h.session.last(t).stream; !same(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", e.what, got, tt.want)
		}
	}
}

func same(a, b contracts.StreamRequest) bool {
	if (a.Cursor == nil) != (b.Cursor == nil) || a.Cursor != nil && *a.Cursor != *b.Cursor {
		return false
	}
	return a.SubscriptionID == b.SubscriptionID && a.Epoch == b.Epoch && slices.Equal(a.OptOuts, b.OptOuts)
}

func TestStreamCarriesTheCaller(t *testing.T) {
	h := newHouse(t, nil)
	h.ask("GET", sessionPath+"/events", "", "x-maestro-headless-role: viewer", "x-maestro-headless-connection-token: t")
	if got := h.session.last(t).by; got.Role != contracts.RoleViewer || got.Token != "t" || got.Principal != h.principal {
		t.Errorf("got %+v", got)
	}
}

func FuzzStreamRequest(f *testing.F) {
	f.Add("cursor=7&epoch=e7f3", "e7f3.9")
	f.Add("subscriptionId=s&optOutNotifications=status,heartbeat", "")
	f.Add("cursor=1&cursor=2;%zz", "..5")
	f.Fuzz(func(t *testing.T, query, last string) {
		r := httptest.NewRequest("GET", "/events", nil)
		r.URL.RawQuery = query
		r.Header = http.Header{"Last-Event-Id": {last}}
		req, err := streamRequest(r, contracts.Caller{})
		if err != nil {
			if refusal, ok := err.(*contracts.Error); !ok || refusal.Code != contracts.CodeBadRequest {
				t.Errorf("%q: got %v, want a refusal", query, err)
			}
			return
		}
		if len(req.Epoch) > contracts.MaxIDBytes || len(req.OptOuts) > 4 || req.SubscriptionID != "" && req.OptOuts != nil {
			t.Errorf("%q: got %+v, want it within bounds", query, req)
		}
		for i, n := range req.OptOuts {
			if slices.Contains(req.OptOuts[:i], n) {
				t.Errorf("%q: got %q twice", query, n)
			}
		}
	})
}

// FuzzRequests asks for anything anyhow. Whatever comes is one answer, of a kind
// that clients know, and only right requests reach the session.
func FuzzRequests(f *testing.F) {
	for _, r := range routes {
		f.Add(r.method, r.path, r.body)
	}
	f.Add("POST", "/api/headless/sessions/%2e%2e/messages", "{}")
	f.Add("GET", "/api/headless/sessions/a%2Fb", "")
	f.Add("DELETE", "/api/headless/sessions/a/", "\x00")
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequest(method, "http://localhost"+target, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(target, "/") {
			return // no such request comes from net/http
		}
		h := newHouse(t, func(o *Options) { o.MaxBodyBytes = 100 })
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 204, 301, 307, 400, 404, 405, 409, 413}, w.Code) {
			t.Errorf("%s %q %q: got %d %s", method, target, body, w.Code, w.Body)
		}
		if w.Code != 200 && w.Code != 409 {
			h.session.untouched(t)
		}
		for _, want := range h.wanted {
			if want.ID != "" && !contracts.ValidID(want.ID) {
				t.Errorf("%s %q %q: got session %q looked for", method, target, body, want.ID)
			}
		}
	})
}
