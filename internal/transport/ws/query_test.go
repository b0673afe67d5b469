package ws

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestQueryBecomesAnAttach(t *testing.T) {
	cursor := func(n int64) *int64 { return &n }
	for _, tt := range []struct {
		path, query string
		want        contracts.Attach
	}{
		{"", "", contracts.Attach{}},
		{"", "sessionId=sess_a", contracts.Attach{SessionID: "sess_a"}},
		{"sess_a", "", contracts.Attach{SessionID: "sess_a"}},
		{"sess_a", "sessionId=sess_a", contracts.Attach{SessionID: "sess_a"}},
		{"", "sessionId=A.z_0%3A-9", contracts.Attach{SessionID: "A.z_0:-9"}},
		{"", "cursor=0", contracts.Attach{Cursor: cursor(0)}},
		{"", "cursor=17&epoch=e7f3", contracts.Attach{Cursor: cursor(17), Epoch: "e7f3"}},
		{"", "turns=1", contracts.Attach{Turns: 1}},
		{"", "turns=100", contracts.Attach{Turns: 100}},
		{"", "cursor=-1", contracts.Attach{Cursor: cursor(-1)}}, // of no journal; the hub resets
		{"", "connectionId=conn_1", contracts.Attach{ConnectionID: "conn_1"}},
		{"", "role=viewer", contracts.Attach{Role: contracts.RoleViewer}},
		{"", "role=controller&takeControl=1", contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce}},
		{"", "takeControl=later", contracts.Attach{Takeover: contracts.TakeoverLater}},
		{"", "takeControl=0&create=0", contracts.Attach{}},
		{"", "create=1", contracts.Attach{Create: true}},
		{"", "ticket=secret&somethingNew=1&somethingNew=2&Cursor=x", contracts.Attach{}},
		{"", "sessionId=" + strings.Repeat("x", 128), contracts.Attach{SessionID: strings.Repeat("x", 128)}},
	} {
		got, err := parseAttach(tt.path, tt.query)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s?%s: got %+v, %v, want %+v", tt.path, tt.query, got, err, tt.want)
		}
	}
}

func TestMalformedQueryIsRefused(t *testing.T) {
	for _, tt := range []struct{ path, query, want string }{
		{"", "cursor=", "malformed cursor"},
		{"", "cursor=x", "malformed cursor"},
		{"", "turns=0", "malformed turns"},
		{"", "turns=101", "malformed turns"},
		{"", "turns=1&turns=1", "malformed turns"},
		{"", "cursor=1.0", "malformed cursor"},
		{"", "cursor=0x1", "malformed cursor"},
		{"", "cursor=9223372036854775808", "malformed cursor"},
		{"", "cursor=1&cursor=1", "malformed cursor"},
		{"", "sessionId=", "malformed sessionId"},
		{"", "sessionId=a%2Fb", "malformed sessionId"},
		{"", "sessionId=a%00", "malformed sessionId"},
		{"", "sessionId=%C3%A4", "malformed sessionId"},
		{"", "sessionId=" + strings.Repeat("x", 129), "malformed sessionId"},
		{"", "sessionId=a&sessionId=b", "malformed sessionId"},
		{"a", "sessionId=b", "malformed session id"},
		{"../a", "", "malformed session id"},
		{"..", "", "malformed session id"},
		{"", "sessionId=.", "malformed sessionId"},
		{strings.Repeat("x", 129), "", "malformed session id"},
		{"", "connectionId=a+b", "malformed connectionId"},
		{"", "epoch=%22", "malformed epoch"},
		{"", "role=", "malformed role"},
		{"", "role=Viewer", "malformed role"},
		{"", "role=owner", "malformed role"},
		{"", "role=viewer&role=controller", "malformed role"},
		{"", "takeControl=", "malformed takeControl"},
		{"", "takeControl=true", "malformed takeControl"},
		{"", "create=yes", "malformed create"},
		{"", "ticket=a&ticket=b", "malformed ticket"},
		{"", "a=%zz", "malformed query"},
		{"", "a;b", "malformed query"},
	} {
		got, err := parseAttach(tt.path, tt.query)
		if err == nil || err.Code != contracts.CodeBadRequest || err.Message != tt.want {
			t.Errorf("%.40s?%.40s: got %+v, %v, want %s", tt.path, tt.query, got, err, tt.want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("", "sessionId=a&cursor=1&epoch=e&connectionId=c&role=viewer&takeControl=1&create=1&ticket=t")
	f.Add("a", "cursor=-9223372036854775808")
	f.Add("%2e", "a=b&&c;d")
	f.Fuzz(func(t *testing.T, path, query string) {
		att, err := parseAttach(path, query)
		if err != nil {
			if err.Code != contracts.CodeBadRequest || !reflect.DeepEqual(att, contracts.Attach{}) {
				t.Fatalf("got %+v, %v, want nothing and bad_request", att, err)
			}
			return
		}
		for _, id := range []string{att.SessionID, att.ConnectionID, att.Epoch} {
			if id != "" && (len(id) > 128 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") != "") {
				t.Fatalf("got id %q", id)
			}
		}
		values, parseErr := url.ParseQuery(query)
		if parseErr != nil {
			t.Fatalf("a query that does not parse was accepted: %v", parseErr)
		}
		if (att.Cursor != nil) != values.Has("cursor") || att.Create != (values.Get("create") == "1") || string(att.Role) != values.Get("role") {
			t.Fatalf("got %+v from %q", att, query)
		}
	})
}

// upgradeRequest returns a handshake without fault, changed by headers.
func upgradeRequest(headers map[string]string) *http.Request {
	r := httptest.NewRequest("GET", "/api/headless/ws", nil)
	r.Header = http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		"Sec-Websocket-Protocol": {"other", contracts.Subprotocol + ",maestro-headless-bearer.c2VjcmV0"},
	}
	for name, value := range headers {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

func TestOnlyOurHandshakeIsAccepted(t *testing.T) {
	const protocol = "Sec-WebSocket-Protocol"
	for _, tt := range []struct {
		name    string
		headers map[string]string
		want    contracts.Code
		answer  [2]string // a header of the answer
	}{
		{"ours", nil, "", [2]string{}},
		{"ours beside another version", map[string]string{protocol: "maestro-headless.2027-01-01, " + contracts.Subprotocol}, "", [2]string{}},
		{"another version", map[string]string{protocol: "maestro-headless.2027-01-01"}, contracts.CodeUpgradeRequired, [2]string{protocol, contracts.Subprotocol}},
		{"none", map[string]string{protocol: ""}, contracts.CodeBadRequest, [2]string{}},
		{"a stranger", map[string]string{protocol: "graphql-ws"}, contracts.CodeBadRequest, [2]string{}},
		{"a credential alone", map[string]string{protocol: "maestro-headless-bearer.c2VjcmV0"}, contracts.CodeBadRequest, [2]string{protocol, ""}},
		{"another case", map[string]string{protocol: strings.ToUpper(contracts.Subprotocol)}, contracts.CodeBadRequest, [2]string{}},
		{"no upgrade", map[string]string{"Upgrade": ""}, contracts.CodeUpgradeRequired, [2]string{"Upgrade", "websocket"}},
		{"another upgrade", map[string]string{"Upgrade": "h2c"}, contracts.CodeUpgradeRequired, [2]string{"Upgrade", "websocket"}},
		{"no connection header", map[string]string{"Connection": "keep-alive"}, contracts.CodeUpgradeRequired, [2]string{}},
		{"old version", map[string]string{"Sec-WebSocket-Version": "8"}, contracts.CodeUpgradeRequired, [2]string{"Sec-WebSocket-Version", "13"}},
		{"no key", map[string]string{"Sec-WebSocket-Key": ""}, contracts.CodeBadRequest, [2]string{}},
		{"short key", map[string]string{"Sec-WebSocket-Key": "c2hvcnQ="}, contracts.CodeBadRequest, [2]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := http.Header{}
			err := checkUpgrade(answer, upgradeRequest(tt.headers), false)
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || err.Code != tt.want):
				t.Fatalf("got %v, want %q", err, tt.want)
			case tt.answer[0] != "" && answer.Get(tt.answer[0]) != tt.answer[1]:
				t.Errorf("%s: got %q, want %q", tt.answer[0], answer.Get(tt.answer[0]), tt.answer[1])
			case err != nil && strings.Contains(err.Message, "c2VjcmV0"):
				t.Errorf("the text shows a credential: %s", err.Message)
			}
		})
	}
	post := upgradeRequest(nil)
	post.Method = "POST"
	answer := http.Header{}
	if err := checkUpgrade(answer, post, true); err == nil || err.Code != contracts.CodeMethodNotAllowed || answer.Get("Allow") != "GET" {
		t.Errorf("POST: got %v, Allow %q, want method_not_allowed, GET", err, answer.Get("Allow"))
	}
}
