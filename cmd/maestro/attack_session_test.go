//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// commands are messages that do something, one of each kind.
var commands = []string{
	shutdown, `{"type":"interrupt"}`, `{"type":"cancel"}`, `{"type":"prompt","content":"echo owned"}`, `{"type":"init","system_prompt":"obey me","approval_mode":"auto"}`,
	`{"type":"hello","protocol_version":"2026-04-02"}`, `{"type":"hello","protocol_version":"2026-04-02","role":"controller"}`,
	`{"type":"tool_response","call_id":"c","approved":true}`, `{"type":"server_request_response","request_id":"r","request_type":"approval","approved":true}`,
	`{"type":"client_tool_result","call_id":"c","content":[],"is_error":false}`, `{"type":"utility_command_start","command_id":"u","command":"id"}`,
	`{"type":"utility_file_read","read_id":"u","path":"/etc/passwd"}`, `{"type":"utility_file_search","search_id":"u","query":"x"}`,
	`{"type":"utility_file_watch_start","watch_id":"u"}`, `{"type":"utility_command_terminate","command_id":"u"}`,
}

// sendAll sends every command.
func sendAll(s shot) (shots []shot) {
	for _, body := range commands {
		s.what, s.body = sendToMain, body
		shots = append(shots, s, shot{as: s.as, what: "POST /api/headless/sessions/{main}/message", body: body, headers: s.headers, code: s.code})
	}
	return shots
}

// impersonations are all that can be done in the name of the victim's connection
// with its ids, which everybody sees. headers carry what else there is.
func impersonations(as string, headers ...string) []shot {
	conn, sub := contracts.CodeStaleConnection, contracts.CodeStaleSubscription
	both := conn // of the two the subscription is looked at first, but not whose secret it needs
	if as != "owner" {
		both = sub
	}
	with := func(more ...string) []string { return append(slices.Clone(headers), more...) }
	return slices.Concat(
		sendAll(shot{as: as, headers: with("X-Maestro-Headless-Connection-Id: {conn}"), code: conn}),
		sendAll(shot{as: as, headers: with("X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Role: controller"), code: conn}),
		sendAll(shot{as: as, headers: with("X-Composer-Headless-Subscriber-Id: {sub}"), code: sub}),
		sendAll(shot{as: as, headers: with("X-Evalops-Headless-Subscription-Id: {sub}", "X-Maestro-Headless-Connection-Id: {conn}"), code: both}),
		[]shot{
			{as: as, what: "POST /api/headless/sessions/{main}/heartbeat", body: `{"connectionId":"{conn}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/heartbeat", body: `{"subscriptionId":"{sub}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/heartbeat", headers: with("X-Maestro-Headless-Connection-Id: {conn}"), code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/unsubscribe", body: `{"subscriptionId":"{sub}"}`, headers: headers, code: sub},
			{as: as, what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{conn}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{conn}","subscriptionId":"{sub}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/disconnect", headers: with("X-Maestro-Headless-Subscriber-Id: {sub}"), code: conn},
			{as: as, what: "GET /api/headless/sessions/{main}/events?subscriptionId={sub}", headers: headers, code: sub},
			{as: as, what: "GET /api/headless/sessions/{main}/events?cursor=0", headers: with("X-Maestro-Headless-Subscriber-Id: {sub}"), code: sub},
			{as: as, what: "POST /api/headless/connections", body: `{"sessionId":"{main}","connectionId":"{conn}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/connections", body: `{"sessionId":"{main}","connectionId":"{conn}","takeControl":true}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/connections", body: `{"sessionId":"{main}"}`, headers: with("X-Maestro-Headless-Connection-Id: {conn}"), code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/subscribe", body: `{"connectionId":"{conn}"}`, headers: headers, code: conn},
			{as: as, what: "POST /api/headless/sessions/{main}/subscribe", body: `{"connectionId":"{conn}","optOutNotifications":["status"]}`, headers: headers, code: conn},
		})
}

// connectionAttacks are made by somebody who may attach, on the connection of
// somebody else.
func connectionAttacks() []attack {
	held := contracts.CodeControllerLeaseHeld
	resume := func(who, secret string) func(*testing.T, *fort) {
		return func(t *testing.T, f *fort) {
			p := f.attachAs(who, "sessionId={main}&connectionId={conn}&role=viewer", f.fill(`{"type":"ws.resume","connection_token":"`+secret+`"}`))
			p.send(helloText)
			var got struct {
				ConnectionID   string `json:"connection_id"`
				SubscriptionID string `json:"subscription_id"`
				Role           contracts.Role
				Granted        bool `json:"controller_lease_granted"`
			}
			text := p.sees(t, `"type":"ws.attached"`, `"ws.attached"`)
			if err := json.Unmarshal([]byte(text), &got); err != nil || got.ConnectionID == f.words["conn"] || got.SubscriptionID == f.words["sub"] || got.Role != contracts.RoleViewer || got.Granted {
				t.Errorf("got %s, %v, want a connection of its own", text, err)
			}
		}
	}
	return []attack{
		{name: "connection without its secret", on: "token", shots: impersonations("owner")},
		{name: "connection with a wrong secret", on: "token", shots: impersonations("owner", "X-Maestro-Headless-Connection-Token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")},
		{name: "connection with the secret in another spelling", on: "token", shots: impersonations("owner", "X-Composer-Headless-Connection-Token: {secret}")},
		{name: "connection of another principal", on: "jwt", shots: impersonations("mallory")},
		{name: "connection of another principal with its secret", on: "jwt", shots: impersonations("mallory", "X-Maestro-Headless-Connection-Token: {secret}")},
		{name: "connection with the secret of one's own", on: "jwt", arm: func(t *testing.T, f *fort) {
			r := f.want(shot{as: "mallory", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"viewer"}`})
			f.words["own"], f.words["mine"] = r.header.Get("X-Maestro-Headless-Connection-Token"), r.text("connection_id")
		}, shots: append(impersonations("mallory", "X-Maestro-Headless-Connection-Token: {own}"),
			shot{as: "mallory", what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{mine}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleConnection})},
		{name: "socket resumed with a wrong secret", on: "token", attaches: true, strike: resume("owner", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")},
		{name: "socket resumed by another principal", on: "jwt", attaches: true, strike: resume("mallory", "{secret}")},
		{name: "guessed connections", on: "token", arm: func(_ *testing.T, f *fort) {
			id := f.words["conn"]
			f.words["near"], f.words["half"] = id[:len(id)-1]+string(id[len(id)-1]^1), id[:len(id)/2]
		}, shots: slices.Concat(guesses("{near}"), guesses("{half}"), guesses("local"), guesses("conn_1"), guesses("conn_"), guesses("*"), guesses("{sub}"))},
		{name: "guessed subscriptions", on: "token", shots: append(every(shot{as: "owner", headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleSubscription},
			"GET /api/headless/sessions/{main}/events?subscriptionId=sub_1", "GET /api/headless/sessions/{main}/events?subscriptionId={conn}", "GET /api/headless/sessions/{main}/events?subscriptionId=local",
			"GET /api/headless/sessions/{other}/events?subscriptionId={sub}"),
			shot{as: "owner", what: "POST /api/headless/sessions/{other}/unsubscribe", body: `{"subscriptionId":"{sub}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleSubscription},
			shot{as: "owner", what: "POST /api/headless/sessions/{main}/unsubscribe", body: `{"subscriptionId":"local"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleSubscription})},
		{name: "connection of another session", on: "token", shots: sendElsewhere()},
		{name: "messages of nobody", on: "token", shots: sendAll(shot{as: "owner", code: contracts.CodeStaleConnection})},
		{name: "lease that is held", on: "jwt", shots: []shot{
			{as: "mallory", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"controller"}`, code: held},
			{as: "mallory", what: "POST /api/headless/sessions/{main}/subscribe", body: `{}`, code: held},
			{as: "mallory", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"role":"controller","takeControl":false}`, code: held},
			{as: "mallory", what: "WS /api/headless/ws?sessionId={main}&role=controller", code: held},
			{as: "owner", what: "GET /api/headless/sessions/{main}", code: contracts.CodeStaleSession}}},
		{name: "role of an established connection", on: "token", shots: []shot{
			{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","connectionId":"{conn}","role":"viewer"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeRoleConflict},
			{as: "owner", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"connectionId":"{conn}","role":"viewer"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeRoleConflict}}},
		{name: "implicit stream that wants the lease", on: "jwt", attaches: true, strike: func(t *testing.T, f *fort) {
			p := f.dial()
			head, _ := f.request(shot{as: "mallory", what: "GET /api/headless/sessions/{main}/events?role=controller&takeControl=1", headers: []string{"X-Maestro-Headless-Role: controller", "Accept: text/event-stream"}})
			if _, err := p.Write([]byte(head)); err != nil {
				t.Fatal(err)
			}
			if r := f.read(p); r.status != 200 {
				t.Errorf("got %d, want a stream", r.status)
			}
			if _, err := p.r.ReadBytes('}'); err != nil { // it is attached
				t.Error(err)
			}
		}},
	}
}

// guesses use an id that might be somebody's.
func guesses(id string) []shot {
	conn := contracts.CodeStaleConnection
	return []shot{
		{as: "owner", what: sendToMain, body: shutdown, headers: []string{"X-Maestro-Headless-Connection-Id: " + id, "X-Maestro-Headless-Connection-Token: {secret}"}, code: conn},
		{as: "owner", what: "POST /api/headless/sessions/{main}/heartbeat", body: `{"connectionId":"` + id + `"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: conn},
		{as: "owner", what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"` + id + `"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: conn},
		{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","connectionId":"` + id + `"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: conn},
	}
}

// sendElsewhere uses the victim's right ids and secret on another session.
func sendElsewhere() (shots []shot) {
	for _, s := range sendAll(shot{as: "owner", headers: []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleConnection}) {
		s.what = strings.Replace(s.what, "{main}", "{other}", 1)
		shots = append(shots, s)
	}
	return shots
}

// scopeAttacks are made by bob, who is in no team, on the sessions of one.
func scopeAttacks() []attack {
	var all []shot
	for _, s := range surface {
		switch {
		case !strings.Contains(s.what, "/sessions/{main}") && !strings.Contains(s.what, "sessionId={main}") || strings.Contains(s.what, "DELETE") && strings.Contains(s.what, "/shares"):
			continue // it names no session
		}
		s.as, s.code = "bob", contracts.CodeStaleSession
		all = append(all, s)
	}
	all = append(all, shot{as: "bob", what: "POST /api/headless/connections", body: `{"sessionId":"{main}"}`, code: contracts.CodeStaleSession},
		shot{as: "owner", what: stateOfMain, code: contracts.CodeStaleSession}) // nor does the server's owner reach into scopes
	return []attack{
		{name: "session of another scope", on: "jwt", shots: all},
		{name: "session of another scope with the ids in it", on: "jwt", shots: scopeOnly(impersonations("bob", "X-Maestro-Headless-Connection-Token: {secret}"))},
		{name: "session of another scope, told from one that never was", on: "jwt", strike: func(t *testing.T, f *fort) {
			for _, s := range all[:len(all)-1] {
				there := f.fire(s)
				f.words["main"], f.words["never"] = "never", f.words["main"]
				not := f.fire(s)
				f.words["main"] = f.words["never"]
				if there.status != not.status || !bytes.Equal(there.body, not.body) || fmt.Sprint(undated(there)) != fmt.Sprint(undated(not)) {
					t.Errorf("%s: got %d %s %v for one that is there and %d %s %v for one that is not", s.what, there.status, there.body, there.header, not.status, not.body, not.header)
				}
			}
		}},
		{name: "list of another scope", on: "jwt", strike: func(t *testing.T, f *fort) {
			for _, who := range []string{"bob", "owner"} {
				if r := f.want(shot{as: who, what: "GET /api/headless/sessions"}); bytes.Contains(r.body, []byte(`"side"`)) {
					t.Errorf("%s: got %s, want nothing of the team's", who, r.body)
				}
			}
		}},
		{name: "ticket for a session of another scope", on: "jwt", strike: func(t *testing.T, f *fort) {
			f.words["ticket"] = f.want(shot{as: "bob", what: "POST /api/headless/ws-tickets", body: `{"sessionId":"{main}"}`}).text("ticket") // it says nothing of who may
			f.refuses(shot{what: stateOfMain + "?ticket={ticket}", code: contracts.CodeStaleSession})
		}},
		{name: "request made twice by another principal", on: "jwt", attaches: true, arm: func(_ *testing.T, f *fort) {
			f.watch = []string{"bob"} // the team has two sessions more afterwards, and rightly so
		}, strike: func(t *testing.T, f *fort) {
			key := []string{"Idempotency-Key: the-same"}
			first := f.want(shot{as: "mallory", what: "POST /api/headless/sessions", body: `{"role":"viewer"}`, headers: key}).text("session_id")
			second := f.want(shot{as: "alice", what: "POST /api/headless/sessions", body: `{"role":"viewer"}`, headers: key}).text("session_id")
			again := f.want(shot{as: "mallory", what: "POST /api/headless/sessions", body: `{"role":"viewer"}`, headers: key}).text("session_id")
			if first == second || first != again {
				t.Errorf("got %s, %s for alice, and then %s, want each to have one of their own", first, second, again)
			}
		}},
		{name: "session of the same name in another scope", on: "jwt", attaches: true, arm: func(_ *testing.T, f *fort) {
			f.watch = []string{"alice"} // bob's sessions are more by one afterwards, and rightly so
		}, strike: func(t *testing.T, f *fort) {
			r := f.want(shot{as: "bob", what: "POST /api/headless/sessions", body: `{"sessionId":"{main}","role":"viewer"}`})
			if bytes.Contains(r.body, []byte(f.words["conn"])) || bytes.Contains(r.body, []byte("victim")) {
				t.Errorf("got %s, want a session of his own", r.body)
			}
			f.want(shot{as: "bob", what: "GET /api/headless/sessions/{main}/state"})
		}},
	}
}

// undated is a header without what differs by the clock.
func undated(r reply) map[string][]string {
	h := r.header.Clone()
	h.Del("Date")
	return h
}

// scopeOnly are shots of somebody who does not even learn that there is a
// session.
func scopeOnly(shots []shot) []shot {
	for i := range shots {
		shots[i].code = contracts.CodeStaleSession
	}
	return shots
}

// viewerAttacks are made by vic, whose credential allows watching.
func viewerAttacks() []attack {
	denied := contracts.CodeAccessDenied
	join := func(t *testing.T, f *fort) {
		r := f.want(shot{as: "vic", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"capabilities":{"serverRequests":["approval"]}}`})
		f.words["mine"], f.words["watching"], f.words["own"] = r.text("connection_id"), r.text("subscription_id"), r.header.Get("X-Maestro-Headless-Connection-Token")
	}
	own := []string{"X-Maestro-Headless-Connection-Id: {mine}", "X-Maestro-Headless-Connection-Token: {own}"}
	return []attack{
		{name: "viewer who sends", on: "jwt", arm: join, shots: sendAll(shot{as: "vic", headers: own, code: denied})},
		{name: "viewer who sends as a controller", on: "jwt", arm: join, shots: sendAll(shot{as: "vic", headers: append(slices.Clone(own), "X-Maestro-Headless-Role: controller"), code: denied})},
		{name: "viewer who sends by a subscription", on: "jwt", arm: join, shots: sendAll(shot{as: "vic", headers: []string{"X-Maestro-Headless-Subscriber-Id: {watching}", "X-Maestro-Headless-Connection-Token: {own}"}, code: denied})},
		{name: "viewer of a right credential who sends as a controller", on: "token", arm: func(t *testing.T, f *fort) {
			r := f.want(shot{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"viewer"}`})
			f.words["mine"], f.words["own"] = r.text("connection_id"), r.header.Get("X-Maestro-Headless-Connection-Token")
		}, shots: append(sendAll(shot{as: "owner", headers: append(slices.Clone(own), "X-Maestro-Headless-Role: controller"), code: denied}),
			shot{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","connectionId":"{mine}","role":"controller","takeControl":true}`, headers: own, code: contracts.CodeRoleConflict})},
		{name: "controller who says to be a viewer", on: "token", shots: sendAll(shot{as: "owner", headers: []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}", "X-Composer-Headless-Role: viewer"}, code: denied})},
		{name: "viewer who takes over", on: "jwt", arm: join, shots: []shot{
			{as: "vic", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"controller","takeControl":true}`, code: denied},
			{as: "vic", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","takeControl":true}`, headers: []string{"X-Maestro-Headless-Role: controller"}, code: denied},
			{as: "vic", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"role":"controller","takeControl":true}`, code: denied},
			{as: "vic", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"connectionId":"{mine}","role":"controller","takeControl":true}`, headers: own, code: contracts.CodeRoleConflict},
			{as: "vic", what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=1", code: denied},
			{as: "vic", what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=later", code: denied}}},
		{name: "viewer who takes over on a socket", on: "jwt", attaches: true, strike: func(t *testing.T, f *fort) {
			p := f.attachAs("vic", "sessionId={main}", strings.Replace(helloText, `"type"`, `"role":"controller","type"`, 1))
			if got := p.sees(t, `"type":"ws.attached"`); !strings.HasPrefix(got, "4403 ") && !strings.Contains(got, `"role":"viewer"`) {
				t.Errorf("got %.200s, want a refusal or a viewer", got)
			}
			p = f.attachAs("vic", "sessionId={main}", quietText)
			p.sees(t, `"type":"ws.attached"`, `"role":"viewer"`)
			for i, text := range []string{`{"type":"ws.take_control","id":"%d"}`, `{"type":"ws.take_control","id":"%d","force":true}`, `{"type":"ws.release_control","id":"%d"}`, `{"type":"ws.ask_control","id":"%d"}`,
				`{"type":"ws.send","id":"%d","message":` + shutdown + `}`, `{"type":"ws.send","id":"%d","message":{"type":"prompt","content":"x"}}`, `{"type":"ws.send","id":"%d","message":{"type":"hello","protocol_version":"2026-04-02","role":"controller"}}`} {
				p.send(fmt.Sprintf(text, i))
				got, err := p.until(fmt.Sprintf(`"id":"%d"`, i))
				if err != nil || strings.Contains(got, `"ws.result"`) || strings.Contains(got, `"granted":true`) {
					t.Errorf("%s: got %.300s, %v, want a refusal", text, got, err)
				}
				if strings.HasPrefix(got, "4") {
					p = f.attachAs("vic", "sessionId={main}", quietText)
					p.sees(t, `"type":"ws.attached"`)
				}
			}
			p.send(shutdown)
			p.sees(t, `"ws.error"`, string(denied))
		}},
		{name: "viewer who creates", on: "jwt", shots: []shot{
			{as: "vic", what: "POST /api/headless/connections", body: `{}`, code: denied}, {as: "vic", what: "POST /api/headless/connections", body: `{"role":"controller"}`, code: denied},
			{as: "vic", what: "POST /api/headless/sessions", body: `{"sessionId":"new"}`, code: denied}, {as: "vic", what: "POST /api/headless/sessions", body: `{}`, code: denied},
			{as: "vic", what: "POST /api/headless/sessions", body: `{}`, headers: []string{"Idempotency-Key: k"}, code: denied},
			{as: "vic", what: "WS /api/headless/ws?sessionId=new&create=1", code: denied}, {as: "vic", what: "WS /api/headless/sessions/new/ws?create=1", code: denied}}},
		{name: "viewer who shares", on: "jwt", shots: []shot{
			{as: "vic", what: "POST /api/headless/sessions/{main}/shares", body: `{"role":"controller"}`, code: denied}, {as: "vic", what: "POST /api/headless/sessions/{main}/shares", body: `{}`, code: denied},
			{as: "vic", what: "GET /api/headless/sessions/{main}/shares", code: denied}, {as: "vic", what: "DELETE /api/headless/sessions/{main}/shares/0123", code: denied},
			{as: "vic", what: "POST /api/headless/ws-tickets", body: `{"role":"controller"}`, code: denied}, {as: "vic", what: "GET /metrics", code: denied}}},
		{name: "viewer who brings tools", on: "jwt", shots: []shot{
			{as: "vic", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","enableClientTools":true,"capabilities":{"serverRequests":["client_tool"]}}`, code: contracts.CodeBadRequest},
			{as: "vic", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"capabilities":{"serverRequests":["mcp_elicitation"]}}`, code: contracts.CodeBadRequest},
			{as: "vic", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"capabilities":{"serverRequests":["user_input"]}}`, code: contracts.CodeBadRequest}}},
	}
}

// boundAttacks are made by bea, whose credential is for the other session.
func boundAttacks() []attack {
	denied := contracts.CodeAccessDenied
	var paths []shot
	for _, s := range surface {
		if strings.Contains(s.what, "/sessions/{main}") {
			s.as, s.code = "bea", denied
			paths = append(paths, s)
		}
	}
	return []attack{
		{name: "another session by the path", on: "jwt", shots: paths},
		{name: "another session by the body", on: "jwt", shots: []shot{
			{as: "bea", what: "POST /api/headless/connections", body: `{"sessionId":"{main}"}`, code: denied}, {as: "bea", what: "POST /api/headless/connections", body: `{"sessionId":" {main} "}`, code: denied},
			{as: "bea", what: "POST /api/headless/sessions", body: `{"sessionId":"{main}"}`, code: denied}, {as: "bea", what: "POST /api/headless/sessions", body: `{"sessionId":"new"}`, code: denied},
			{as: "bea", what: "POST /api/headless/sessions/{other}/subscribe", body: `{"sessionId":"{main}"}`, code: denied},
			{as: "bea", what: "POST /api/headless/ws-tickets", body: `{"sessionId":"{main}"}`, code: denied}}},
		{name: "another session by the query", on: "jwt", shots: every(shot{as: "bea", code: denied}, "WS /api/headless/ws?sessionId={main}", "WS /api/headless/ws?sessionId={main}&create=1", "WS /api/headless/ws?sessionId=new&create=1")},
		{name: "another session by a socket's path", on: "jwt", shots: []shot{{as: "bea", what: "WS /api/headless/sessions/{main}/ws", code: denied}, {as: "bea", what: "WS /api/headless/sessions/{other}/ws?sessionId={main}", code: contracts.CodeBadRequest}}},
		{name: "another session by its ids", on: "jwt", shots: []shot{
			{as: "bea", what: "POST /api/headless/sessions/{other}/disconnect", body: `{"connectionId":"{conn}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleConnection},
			{as: "bea", what: "GET /api/headless/sessions/{other}/events?subscriptionId={sub}", headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleSubscription}}},
		{name: "another session by the list", on: "jwt", strike: func(t *testing.T, f *fort) {
			if r := f.want(shot{as: "bea", what: "GET /api/headless/sessions"}); bytes.Contains(r.body, []byte(`"plan"`)) || !bytes.Contains(r.body, []byte(`"side"`)) {
				t.Errorf("got %s, want the one session", r.body)
			}
		}},
		{name: "shares beyond the session", on: "jwt", shots: []shot{{as: "bea", what: "POST /api/headless/sessions/{main}/shares", body: `{}`, code: denied}, {as: "bea", what: "GET /metrics", code: denied}}},
	}
}
