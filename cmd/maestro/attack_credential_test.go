//go:build linux

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	stateOfMain = "GET /api/headless/sessions/{main}/state"
	sendToMain  = "POST /api/headless/sessions/{main}/messages"
	shutdown    = `{"type":"shutdown"}`
)

// credentialAttacks want in without the right token.
func credentialAttacks() []attack {
	var wrong []shot
	for _, who := range []string{"nobody", "longer", "shorter", "first half"} {
		wrong = append(wrong, shot{as: who, what: stateOfMain, code: contracts.CodeUnauthenticated},
			shot{as: who, what: sendToMain, body: shutdown, code: contracts.CodeUnauthenticated})
	}
	with := func(code contracts.Code, sets ...string) []shot {
		return append(withHeaders(shot{what: stateOfMain, code: code}, sets...), withHeaders(shot{what: sendToMain, body: shutdown, code: code}, sets...)...)
	}
	learn := func(t *testing.T, f *fort) {
		key := f.keys["owner"]
		f.words["token"], f.words["upper"], f.words["b64"] = key, strings.ToUpper(key), b64([]byte(key))
		f.words["basic"] = base64.StdEncoding.EncodeToString([]byte("maestro:" + key))
	}
	return []attack{
		{name: "no credential", on: "token", shots: everywhere(shot{code: contracts.CodeUnauthenticated})},
		{name: "wrong token", on: "token", shots: wrong},
		{name: "token in another case", on: "token", arm: learn, shots: with(contracts.CodeUnauthenticated, "Authorization: Bearer {upper}", "Authorization: Bearer {b64}")},
		{name: "token in the query", on: "token", arm: learn, shots: append(
			every(shot{code: contracts.CodeUnauthenticated}, stateOfMain+"?token={token}", stateOfMain+"?access_token={token}", stateOfMain+"?api_key={token}",
				stateOfMain+"?authorization=Bearer%20{token}", stateOfMain+"?ticket={token}"),
			append(every(shot{body: shutdown, code: contracts.CodeUnauthenticated}, sendToMain+"?token={token}", sendToMain+"?ticket={token}"),
				every(shot{headers: []string{"Origin: http://{addr}"}, code: contracts.CodeUnauthenticated}, "WS /api/headless/ws?sessionId={main}&ticket={token}", "WS /api/headless/ws?sessionId={main}&token={token}")...)...)},
		{name: "token in a cookie", on: "token", arm: learn, shots: with(contracts.CodeUnauthenticated,
			"Cookie: maestro_session_{port}={token}\nOrigin: http://{addr}", "Cookie: token={token}\nOrigin: http://{addr}")},
		{name: "token by another scheme", on: "token", arm: learn, shots: with(contracts.CodeUnauthenticated,
			"Authorization: Basic {basic}", "Authorization: {token}", "Authorization: Token {token}", "Authorization: Bearer", "Authorization: Bearer=\"{token}\"", "Proxy-Authorization: Bearer {token}")},
		{name: "two credentials at once", on: "token", arm: learn, shots: with(contracts.CodeBadRequest,
			"Authorization: Bearer x\nAuthorization: Bearer {token}", "Authorization: Bearer {token}\nAuthorization: Bearer {token}",
			"X-Maestro-Api-Key: x\nX-Composer-Api-Key: {token}", "X-Maestro-Api-Key: {token}\nX-Maestro-Api-Key: x")},
		{name: "wrong bearer beside a right key", on: "token", arm: learn, shots: with(contracts.CodeUnauthenticated, "Authorization: Bearer x\nX-Maestro-Api-Key: {token}")},
		{name: "credential of nine kibibytes", on: "token", shots: with(contracts.CodeUnauthenticated, "Authorization: Bearer "+strings.Repeat("x", 9<<10))},
		{name: "bearer subprotocol", on: "token", arm: learn, shots: append(
			withHeaders(shot{what: "WS /api/headless/ws?sessionId={main}", code: contracts.CodeUnauthenticated},
				"Origin: http://{addr}\nSec-WebSocket-Protocol: maestro-headless.2026-04-02, maestro-headless-bearer."+b64([]byte("wrong"))),
			append(withHeaders(shot{what: "WS /api/headless/ws?sessionId={main}", code: contracts.CodeAccessDenied}, // from no page
				"Sec-WebSocket-Protocol: maestro-headless.2026-04-02, maestro-headless-bearer.{b64}"),
				withHeaders(shot{what: "WS /api/headless/ws?sessionId={main}", code: contracts.CodeBadRequest},
					"Origin: http://{addr}\nSec-WebSocket-Protocol: maestro-headless.2026-04-02, maestro-headless-bearer.{b64}, maestro-headless-bearer.{b64}",
					"Origin: http://{addr}\nSec-WebSocket-Protocol: maestro-headless.2026-04-02, maestro-headless-bearer.!")...)...)},
		{name: "drain where nothing is hosted", on: "token", shots: []shot{
			{as: "owner", what: "POST /.well-known/evalops/remote-runner/drain", code: contracts.CodeNotFound},
			{what: "POST /.well-known/evalops/remote-runner/drain", code: contracts.CodeNotFound},
		}},
	}
}

// jwtAttacks want in with a JWT that is not right.
func jwtAttacks() []attack {
	s := forge()
	now := time.Now()
	issued := func(more claims) string { return s.token("alice", more) }
	team := func(more claims) claims { // what alice has, so that only the flaw stands in the way
		c := claims{"scope": "team"}
		maps.Copy(c, more)
		return good("alice", c)
	}
	one := func(name string, code contracts.Code, tokens ...string) attack {
		a := attack{name: "JWT " + name, on: "jwt"}
		for i, token := range tokens {
			who := fmt.Sprint("forger", i)
			add := func(f *fort) { f.keys = maps.Clone(f.keys); f.keys[who] = token }
			before := a.arm
			a.arm = func(t *testing.T, f *fort) {
				if before != nil {
					before(t, f)
				}
				add(f)
			}
			a.shots = append(a.shots, shot{as: who, what: stateOfMain, code: code}, shot{as: who, what: sendToMain, body: shutdown, code: code})
		}
		return a
	}
	no, denied := contracts.CodeUnauthenticated, contracts.CodeAccessDenied
	right := s.sign(header("HS256", claims{"kid": "hs"}), team(nil), s.secret)
	parts := strings.Split(right, ".")
	var confused []string
	for _, secret := range s.publicForms() {
		confused = append(confused, s.sign(header("HS256", nil), team(nil), secret), s.sign(header("HS256", claims{"kid": "rs"}), team(nil), secret))
	}
	return []attack{
		one("for another audience", denied, issued(claims{"scope": "team", "aud": "somebody-else"}), issued(claims{"scope": "team", "aud": nil}), issued(claims{"scope": "team", "aud": []string{"a", "b"}})),
		one("of another issuer", no, issued(claims{"scope": "team", "iss": "https://evil.example"}), issued(claims{"scope": "team", "iss": nil}), issued(claims{"scope": "team", "iss": issuer + "/"})),
		one("that has expired", no, issued(claims{"scope": "team", "exp": now.Add(-time.Second).Unix()}), issued(claims{"scope": "team", "exp": 0}), issued(claims{"scope": "team", "exp": -1})),
		one("that never expires", no, issued(claims{"scope": "team", "exp": nil}), issued(claims{"scope": "team", "exp": "never"}), issued(claims{"scope": "team", "exp": 1e300})),
		one("that is not yet valid", no, issued(claims{"scope": "team", "nbf": now.Add(time.Hour).Unix()}), issued(claims{"scope": "team", "iat": now.Add(time.Hour).Unix()})),
		one("without a signature", no, s.sign(header("none", nil), team(nil), nil), s.sign(header("None", nil), team(nil), nil), s.sign(header("NONE", claims{"kid": "hs"}), team(nil), nil),
			s.sign(header("", nil), team(nil), nil), parts[0]+"."+parts[1]+".", parts[0]+"."+parts[1]),
		one("signed with a public key", no, confused...),
		one("of an algorithm that is not in use", no, s.sign(header("HS512", nil), team(nil), s.secret), s.sign(header("PS256", claims{"kid": "rs"}), team(nil), s.rsa), s.sign(header("hs256", nil), team(nil), s.secret)),
		one("of an unknown key", no, s.sign(header("HS256", claims{"kid": "other"}), team(nil), s.secret), s.sign(header("RS256", claims{"kid": "hs"}), team(nil), s.rsa),
			s.sign(header("HS256", claims{"kid": "../../../dev/null"}), team(nil), []byte{}), s.sign(header("HS256", claims{"kid": "' OR 1=1"}), team(nil), []byte("x")),
			s.sign(header("HS256", claims{"kid": 7}), team(nil), s.secret)),
		one("that brings its key along", no, s.sign(header("RS256", claims{"jwk": map[string]string{"kty": "RSA", "n": b64(s.stranger.N.Bytes()), "e": "AQAB"}}), team(nil), s.stranger),
			s.sign(header("RS256", claims{"jku": "https://evil.example/keys", "kid": "evil"}), team(nil), s.stranger), s.sign(header("RS256", claims{"x5u": "https://evil.example/cert"}), team(nil), s.stranger)),
		one("with an extension nobody knows", no, s.sign(header("HS256", claims{"kid": "hs", "crit": []string{"exp"}}), team(nil), s.secret)),
		one("with the payload of another", no, parts[0]+"."+encoded(team(claims{"sub": "root"}))+"."+parts[2], parts[0]+"."+parts[1]+"."+b64([]byte("x")), right+"x", right+"="),
		one("in another serialization", no, `{"payload":"`+parts[1]+`","signatures":[]}`, right+"."+parts[2], "."+parts[1]+"."+parts[2], strings.ReplaceAll(right, ".", "..")),
		one("of nobody", no, issued(claims{"scope": "team", "sub": nil}), issued(claims{"scope": "team", "sub": ""}), issued(claims{"scope": "team", "sub": 7})),
		one("with a claim of the wrong kind", no, issued(claims{"scope": []string{"team"}}), issued(claims{"scope": "team", "role": 1}), issued(claims{"scope": "team", "session_id": []string{"plan"}})),
		one("with a role that does not exist", denied, issued(claims{"scope": "team", "role": "admin"}), issued(claims{"scope": "team", "role": "Viewer"})),
		one("with a scope that is a path", denied, issued(claims{"scope": "../team"}), issued(claims{"scope": "team/../team"}), issued(claims{"scope": ".."}), issued(claims{"scope": "."}),
			issued(claims{"scope": "team\x00"}), issued(claims{"scope": strings.Repeat("t", 65)})),
		one("with a session that is a path", denied, issued(claims{"scope": "team", "session_id": "../plan"}), issued(claims{"scope": "team", "session_id": "plan\n"})),
		{name: "JWT in the query", on: "jwt", arm: func(_ *testing.T, f *fort) { f.words["jwt"] = f.keys["alice"] },
			shots: every(shot{code: no}, stateOfMain+"?ticket={jwt}", stateOfMain+"?token={jwt}", stateOfMain+"?jwt={jwt}", stateOfMain+"?id_token={jwt}", "GET /login?ticket={jwt}")},
	}
}

// ticketAttacks want more of a ticket than it is for.
func ticketAttacks() []attack {
	mint := func(body string, headers ...string) func(*testing.T, *fort) {
		return func(t *testing.T, f *fort) {
			f.words["ticket"] = f.want(shot{as: "owner", what: "POST /api/headless/ws-tickets", body: f.fill(body), headers: headers}).text("ticket")
		}
	}
	no, denied := contracts.CodeUnauthenticated, contracts.CodeAccessDenied
	return []attack{
		{name: "ticket twice", on: "token", arm: func(t *testing.T, f *fort) {
			mint(`{}`)(t, f)
			f.want(shot{what: stateOfMain + "?ticket={ticket}"})
		}, shots: append(every(shot{code: no}, stateOfMain+"?ticket={ticket}", "GET /login?ticket={ticket}"),
			shot{what: "WS /api/headless/ws?sessionId={main}&ticket={ticket}", headers: []string{"Origin: http://{addr}"}, code: no})},
		{name: "ticket of another session", on: "token", arm: mint(`{"sessionId":"{other}"}`), shots: []shot{{what: stateOfMain + "?ticket={ticket}", code: denied}, {what: stateOfMain + "?ticket={ticket}", code: no}}},
		{name: "ticket of another session on a socket", on: "token", arm: mint(`{"sessionId":"{other}"}`, "Origin: http://{addr}"), shots: []shot{
			{what: "WS /api/headless/ws?sessionId={main}&ticket={ticket}", headers: []string{"Origin: http://{addr}"}, code: denied}}},
		{name: "ticket in the path's stead", on: "token", arm: mint(`{"sessionId":"{other}"}`, "Origin: http://{addr}"), shots: []shot{
			{what: "WS /api/headless/sessions/{main}/ws?ticket={ticket}", headers: []string{"Origin: http://{addr}"}, code: denied}}},
		{name: "viewer's ticket that drives", on: "token", arm: mint(`{"role":"viewer"}`, "Origin: http://{addr}"), shots: []shot{
			{what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=1&ticket={ticket}", headers: []string{"Origin: http://{addr}"}, code: denied}}},
		{name: "ticket that writes", on: "token", arm: mint(`{}`), shots: []shot{
			{what: sendToMain + "?ticket={ticket}", body: shutdown, code: no}, {what: "POST /api/headless/ws-tickets?ticket={ticket}", body: `{}`, code: no},
			{what: "POST /api/headless/sessions/{main}/shares?ticket={ticket}", body: `{}`, code: no}}},
		{name: "ticket of another origin", on: "token", arm: mint(`{}`, "Origin: http://{addr}"), shots: []shot{
			{what: "WS /api/headless/ws?sessionId={main}&ticket={ticket}", headers: []string{"Origin: http://localhost:{port}", "Host: localhost:{port}"}, code: denied}}},
		{name: "ticket without an origin", on: "token", arm: mint(`{}`, "Origin: http://{addr}"), shots: []shot{{what: "WS /api/headless/ws?sessionId={main}&ticket={ticket}", code: denied}}},
		{name: "two tickets", on: "token", arm: mint(`{}`), shots: []shot{{what: stateOfMain + "?ticket={ticket}&ticket=x", code: contracts.CodeBadRequest}}},
		{name: "guessed ticket", on: "token", shots: every(shot{code: no}, stateOfMain+"?ticket=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", stateOfMain+"?ticket=x", "GET /login?ticket=x", "GET /login")},
		{name: "ticket bound to a path", on: "token", shots: []shot{
			{as: "owner", what: "POST /api/headless/ws-tickets", body: `{"sessionId":"../x"}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/ws-tickets", body: `{"role":"admin"}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/ws-tickets", body: `{"role":"viewer","role":"controller"}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "GET /api/headless/ws-tickets", code: contracts.CodeMethodNotAllowed}}},
	}
}

// shareAttacks want more of a share than it gives.
func shareAttacks() []attack {
	mint := func(body string) func(*testing.T, *fort) {
		return func(t *testing.T, f *fort) {
			made := f.want(shot{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: body})
			f.keys = maps.Clone(f.keys)
			f.keys["guest"], f.words["share"], f.words["guest"] = made.text("token"), made.text("share_id"), made.text("token")
			f.want(shot{as: "guest", what: stateOfMain})
		}
	}
	no, denied := contracts.CodeUnauthenticated, contracts.CodeAccessDenied
	return []attack{
		{name: "share that was revoked", on: "token", arm: func(t *testing.T, f *fort) {
			mint(`{"role":"controller"}`)(t, f)
			f.want(shot{as: "owner", what: "DELETE /api/headless/sessions/{main}/shares/{share}"})
		}, shots: append(every(shot{as: "guest", code: no}, "GET /api/headless/sessions", stateOfMain, "GET /api/headless/sessions/{main}/events", "WS /api/headless/ws?sessionId={main}"),
			shot{as: "guest", what: sendToMain, body: shutdown, code: no}, shot{as: "guest", what: "POST /api/headless/connections", body: `{"takeControl":true}`, code: no})},
		{name: "socket of a share that is revoked", on: "token", attaches: true, arm: mint(`{}`), strike: func(t *testing.T, f *fort) {
			p := f.attachAs("guest", "sessionId={main}", helloText)
			p.sees(t, `"type":"ws.attached"`, `"role":"viewer"`)
			f.want(shot{as: "owner", what: "DELETE /api/headless/sessions/{main}/shares/{share}"})
			if got, err := p.until(`"type":"nothing"`); err == nil && !strings.HasPrefix(got, "44") {
				t.Errorf("got %.200s, want the end of the connection", got)
			}
		}},
		{name: "share that has expired", on: "token", arm: func(t *testing.T, f *fort) {
			mint(`{"role":"controller","expiresInSeconds":1}`)(t, f)
			for f.fire(shot{as: "guest", what: stateOfMain}).status == 200 {
			}
		}, shots: []shot{{as: "guest", what: stateOfMain, code: no}, {as: "guest", what: sendToMain, body: shutdown, code: no}}},
		{name: "share that mints", on: "token", arm: mint(`{"role":"controller"}`), shots: []shot{
			{as: "guest", what: "POST /api/headless/sessions/{main}/shares", body: `{"role":"viewer"}`, code: denied},
			{as: "guest", what: "GET /api/headless/sessions/{main}/shares", code: denied},
			{as: "guest", what: "DELETE /api/headless/sessions/{main}/shares/{share}", code: denied}}},
		{name: "share of a viewer that drives", on: "token", arm: mint(`{"role":"viewer"}`), shots: []shot{
			{as: "guest", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"role":"controller","takeControl":true}`, code: denied},
			{as: "guest", what: "POST /api/headless/connections", body: `{"role":"controller"}`, code: denied},
			{as: "guest", what: "POST /api/headless/ws-tickets", body: `{"role":"controller"}`, code: denied},
			{as: "guest", what: "WS /api/headless/ws?role=controller&takeControl=1", code: denied}}},
		{name: "share that reaches another session", on: "token", arm: mint(`{"role":"controller"}`), shots: slices.Concat(
			every(shot{as: "guest", code: denied}, "GET /api/headless/sessions/{other}", "GET /api/headless/sessions/{other}/events", "GET /api/headless/sessions/{other}/shares",
				"WS /api/headless/ws?sessionId={other}", "WS /api/headless/sessions/{other}/ws", "GET /metrics"),
			[]shot{{as: "guest", what: "POST /api/headless/sessions/{other}/messages", body: shutdown, code: denied},
				{as: "guest", what: "POST /api/headless/connections", body: `{"sessionId":"{other}"}`, code: denied},
				{as: "guest", what: "POST /api/headless/sessions", body: `{"sessionId":"new"}`, code: denied},
				{as: "guest", what: "POST /api/headless/ws-tickets", body: `{"sessionId":"{other}"}`, code: denied}}),
			strike: func(t *testing.T, f *fort) {
				var list contracts.SessionList
				r := f.want(shot{as: "guest", what: "GET /api/headless/sessions"})
				if err := json.Unmarshal(r.body, &list); err != nil || len(list.Sessions) != 1 || list.Sessions[0].SessionID != "main" {
					t.Errorf("got %s, want the share's session alone", r.body)
				}
			}},
		{name: "share revoked through another session", on: "token", arm: mint(`{}`), shots: []shot{
			{as: "owner", what: "DELETE /api/headless/sessions/{other}/shares/{share}", code: contracts.CodeNotFound},
			{as: "owner", what: "DELETE /api/headless/sessions/{main}/shares/..%2F{share}", code: contracts.CodeBadRequest},
			{as: "guest", what: stateOfMain}}},
		{name: "share that outlives everything", on: "token", shots: []shot{
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: `{"expiresInSeconds":2592001}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: `{"expiresInSeconds":-1}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: `{"expiresInSeconds":1e30}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: `{"role":"owner"}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: `{"label":"a\u001b[2Jb"}`, code: contracts.CodeBadRequest},
			{as: "owner", what: "POST /api/headless/sessions/unknown/shares", body: `{}`, code: contracts.CodeStaleSession}}},
		{name: "share token in the query", on: "token", arm: mint(`{}`), shots: every(shot{code: no}, stateOfMain+"?ticket={guest}", stateOfMain+"?token={guest}", "GET /login?ticket={guest}")},
	}
}
