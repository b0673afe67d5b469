//go:build linux

package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// otherPage are what the browser says of a request that another page made, with
// this server's Host.
var otherPage = []string{
	"Origin: https://evil.example", "Origin: null", "Origin: http://{addr}.evil.example", "Origin: http://evil.example:{port}", "Origin: http://{addr}@evil.example",
	"Origin: http://127.0.0.1", "Origin: http://127.0.0.1:1", "Origin: http://localhost:{port}", "Origin: https://evil.example/http://{addr}", "Origin: file://", "Origin: ",
	"Origin: http://{addr}\nOrigin: https://evil.example", "Origin: https://evil.example\nOrigin: http://{addr}", "Origin: http://{addr} https://evil.example",
	"Origin: http://{addr}/", "Origin: HTTP://{addr}.", "Origin: javascript://{addr}", "Origin: http://{addr}\tx", "Origin: //{addr}", "Origin: {addr}",
	"Origin: chrome-extension://abcdefghijklmnop",
}

// strangeHosts are names that a stranger can make resolve to this machine, and
// what looks like ours.
var strangeHosts = []string{
	"Host: evil.example", "Host: evil.example:{port}", "Host: localhost.evil.example:{port}", "Host: 127.0.0.1.evil.example", "Host: 127.0.0.1.nip.io:{port}",
	"Host: 0.0.0.0:{port}", "Host: 10.0.0.1:{port}", "Host: [::2]:{port}", "Host: localhost.:x", "Host: 127.0.0.1:99999", "Host: 127.1:{port}", "Host: 2130706433:{port}",
	"Host: 0x7f000001:{port}", "Host: 017700000001:{port}", "Host: 127.0.0.1%00:{port}", "Host: localhost%2eevil.example", "Host: evil.example, localhost", "Host: [127.0.0.1]x:{port}",
}

// browserAttacks are made by pages of others in the browser of somebody who may.
func browserAttacks() []attack {
	denied := contracts.CodeAccessDenied
	login := func(t *testing.T, f *fort) {
		f.words["ticket"] = f.want(shot{as: "owner", what: "POST /api/headless/ws-tickets", body: `{}`}).text("ticket")
		set := f.want(shot{what: "GET /login?ticket={ticket}", status: 303}).header.Get("Set-Cookie")
		cookie, rest, _ := strings.Cut(set, ";")
		if !strings.Contains(rest, "HttpOnly") || !strings.Contains(rest, "SameSite=Strict") {
			t.Errorf("got cookie %q, want it out of the reach of pages", set)
		}
		f.words["cookie"] = cookie
		f.want(shot{what: stateOfMain, headers: []string{"Cookie: {cookie}"}}) // a read that its page cannot see
		f.words["ticket"] = f.want(shot{as: "owner", what: "POST /api/headless/ws-tickets", body: `{}`}).text("ticket")
	}
	ride := func(what, body string, sets ...string) (shots []shot) { // with the cookie, as browsers do
		for _, set := range sets {
			shots = append(shots, withHeaders(shot{what: what, body: body, code: denied}, "Cookie: {cookie}\n"+set)...)
		}
		return shots
	}
	unsaid := []string{"Accept: */*", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Sec-Fetch-Site: none"}
	var redirects []shot
	for _, next := range []string{
		"//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example", "/\n/evil.example", "javascript:alert(1)", "evil.example", "///evil.example",
		"http:evil.example", "/%09/evil.example\r\nSet-Cookie: a=b", "/\r\nSet-Cookie: a=b", "@evil.example", "%2f%2fevil.example/..", "/" + strings.Repeat("x", 3<<10), "/a\x00b", "/ä",
	} {
		redirects = append(redirects, shot{what: "GET /login?ticket={ticket}&next=" + url.QueryEscape(next), code: contracts.CodeBadRequest})
	}
	var attacks []attack
	for i, set := range otherPage {
		attacks = append(attacks, attack{name: fmt.Sprintf("page of another origin %d", i), on: "token", shots: []shot{
			{as: "owner", what: sendToMain, body: shutdown, headers: strings.Split(set, "\n"), code: denied},
			{as: "owner", what: stateOfMain, headers: strings.Split(set, "\n"), code: denied},
			{as: "owner", what: "WS /api/headless/ws?sessionId={main}", headers: strings.Split(set, "\n"), code: denied},
		}})
	}
	return append(attacks, []attack{
		{name: "rebound name", on: "token", shots: append(withHeaders(shot{as: "owner", what: stateOfMain, code: denied}, strangeHosts[:12]...),
			withHeaders(shot{as: "owner", what: sendToMain, body: shutdown, code: denied}, strangeHosts[:12]...)...)},
		{name: "malformed name", on: "token", strike: func(t *testing.T, f *fort) {
			for _, host := range strangeHosts[12:] {
				head, _ := f.request(shot{as: "owner", what: stateOfMain, headers: []string{host}})
				if got := f.raw(head); !strings.HasPrefix(got, "HTTP/1.1 400 ") && !strings.HasPrefix(got, "HTTP/1.1 403 ") {
					t.Errorf("%s: got %.200s, want 400 or 403", host, got)
				}
			}
		}},
		{name: "rebound name where everything is open", on: "token", shots: append(withHeaders(shot{what: "GET /healthz", code: denied}, strangeHosts[:4]...),
			withHeaders(shot{what: "GET /.well-known/evalops/remote-runner/identity", code: denied}, strangeHosts[:4]...)...)},
		{name: "preflight of a stranger", on: "token", strike: func(t *testing.T, f *fort) {
			for _, set := range otherPage[:8] {
				r := f.refuses(shot{what: "OPTIONS " + strings.TrimPrefix(sendToMain, "POST "), code: denied,
					headers: append(strings.Split(set, "\n"), "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, x-maestro-headless-role")})
				for name := range r.header {
					if strings.HasPrefix(name, "Access-Control") {
						t.Errorf("%s: got %s: %s, want no leave", set, name, r.header.Get(name))
					}
				}
			}
		}},
		{name: "answer read by a stranger", on: "token", strike: func(t *testing.T, f *fort) {
			for _, what := range []string{stateOfMain, "GET /healthz", "GET /readyz", "GET /nowhere", "GET /login?ticket=x"} {
				r := f.fire(shot{as: "owner", what: what, headers: []string{"Origin: https://evil.example"}})
				if got := r.header.Get("Access-Control-Allow-Origin"); got != "" || r.header.Get("Access-Control-Allow-Credentials") != "" {
					t.Errorf("%s: got leave for %q, want none", what, got)
				}
			}
		}},
		{name: "cookie on a post of another page", on: "token", arm: login, shots: append(ride(sendToMain, shutdown, otherPage...), ride(sendToMain, shutdown, unsaid...)...)},
		{name: "cookie on a form", on: "token", arm: login, shots: ride(sendToMain, `{"type":"shutdown","x":"="}`, "Content-Type: text/plain\nOrigin: https://evil.example", "Content-Type: text/plain",
			"Content-Type: application/x-www-form-urlencoded\nSec-Fetch-Site: cross-site", "Content-Type: multipart/form-data; boundary=x\nOrigin: null")},
		{name: "cookie on another method of another page", on: "token", arm: login, shots: append(ride("DELETE /api/headless/sessions/{main}/shares/x", "", unsaid...), ride("POST /logout", "", unsaid[0], unsaid[1], otherPage[0])...)},
		{name: "cookie on a stream of another page", on: "token", arm: login, shots: append(ride("GET /api/headless/sessions/{main}/events", "", unsaid...),
			ride("GET /api/headless/sessions/{main}/events/", "", "Accept: text/event-stream", otherPage[0], otherPage[1])...)},
		{name: "cookie on a socket of another page", on: "token", arm: login, shots: append(ride("WS /api/headless/ws?sessionId={main}", "", otherPage...), ride("WS /api/headless/ws?sessionId={main}", "", unsaid...)...)},
		{name: "cookies that contradict each other", on: "token", arm: login, shots: []shot{{what: stateOfMain, headers: []string{"Cookie: {cookie}; maestro_session_{port}=x"}, code: contracts.CodeBadRequest}}},
		{name: "login that leads otherPage", on: "token", arm: login, shots: redirects, strike: func(t *testing.T, f *fort) {
			r := f.want(shot{what: "GET /login?ticket={ticket}&next=/path%3Fa%3Db", status: 303}) // none of them used it up
			if got := r.header.Get("Location"); got != "/path?a=b" {
				t.Errorf("got %q, want the path", got)
			}
		}},
		{name: "login by a preview", on: "token", arm: login, shots: every(shot{code: contracts.CodeMethodNotAllowed}, "POST /login?ticket={ticket}", "PUT /login?ticket={ticket}"),
			strike: func(t *testing.T, f *fort) {
				head, _ := f.request(shot{what: "HEAD /login?ticket={ticket}"})
				if got := f.raw(head); !strings.HasPrefix(got, "HTTP/1.1 405 ") || strings.Contains(got, "Set-Cookie") {
					t.Errorf("got %.300s, want 405", got)
				}
				f.want(shot{what: "GET /login?ticket={ticket}", status: 303})
			}},
		{name: "login from another page", on: "token", arm: login, shots: withHeaders(shot{what: "GET /login?ticket={ticket}", code: denied}, otherPage[:6]...)},
		{name: "cookie after the logout", on: "token", arm: func(t *testing.T, f *fort) {
			login(t, f)
			f.want(shot{what: "POST /logout", headers: []string{"Cookie: {cookie}", "Origin: http://{addr}"}})
		}, shots: []shot{{what: stateOfMain, headers: []string{"Cookie: {cookie}"}, code: contracts.CodeUnauthenticated}}},
	}...)
}

// openAttacks are made on a server that wants no credential, where a browser is
// all that somebody else needs.
func openAttacks() []attack {
	denied := contracts.CodeAccessDenied
	var everyHost, everyOrigin []shot
	for _, at := range surface {
		at.code = denied
		everyHost = append(everyHost, withHeaders(at, "Host: evil.example:{port}")...)
		everyOrigin = append(everyOrigin, withHeaders(at, "Origin: https://evil.example", "Origin: null")...)
	}
	return []attack{
		{name: "rebound name, everywhere", on: "off", shots: everyHost},
		{name: "page of another origin, everywhere", on: "off", shots: everyOrigin},
		{name: "rebound name", on: "off", shots: append(withHeaders(shot{what: stateOfMain, code: denied}, strangeHosts[:12]...), withHeaders(shot{what: sendToMain, body: shutdown, code: denied}, strangeHosts[:12]...)...)},
		{name: "page of another origin", on: "off", shots: append(withHeaders(shot{what: sendToMain, body: shutdown, code: denied}, otherPage...),
			withHeaders(shot{what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=1", code: denied}, otherPage...)...)},
		{name: "form of another page", on: "off", shots: append(withHeaders(shot{what: sendToMain, body: shutdown, code: denied}, "Content-Type: text/plain\nOrigin: https://evil.example",
			"Content-Type: text/plain\nSec-Fetch-Site: cross-site", "Content-Type: application/x-www-form-urlencoded\nSec-Fetch-Site: same-site\nOrigin: http://localhost:1"),
			withHeaders(shot{what: "POST /api/headless/sessions", body: `{"sessionId":"new"}`, code: denied}, "Content-Type: text/plain\nOrigin: https://evil.example", "Sec-Fetch-Site: cross-site")...)},
		{name: "preflight of a stranger", on: "off", shots: withHeaders(shot{what: "OPTIONS /api/headless/connections", code: denied}, "Origin: https://evil.example\nAccess-Control-Request-Method: POST",
			"Origin: null\nAccess-Control-Request-Method: POST", "Origin: https://evil.example\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Private-Network: true")},
		{name: "shares of a server that is open", on: "off", shots: []shot{
			{what: "POST /api/headless/sessions/{main}/shares", body: `{}`, code: denied}, {what: "GET /api/headless/sessions/{main}/shares", code: denied}}},
		{name: "login that leads otherPage", on: "off", shots: every(shot{code: contracts.CodeBadRequest}, "GET /login?next=//evil.example", "GET /login?next=https://evil.example", "GET /login?next=/%5Cevil.example")},
		{name: "secret of a connection that is wrong", on: "off", shots: []shot{
			{what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{conn}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: wrong"}, code: contracts.CodeStaleConnection},
			{what: sendToMain, body: shutdown, headers: []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: wrong"}, code: contracts.CodeStaleConnection}}},
	}
}
