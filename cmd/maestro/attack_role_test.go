//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// roleFort lets in vic and rhea, whose credentials allow watching, and watching and
// answering, and the holders of two shares with the same rights. A question is open, to
// which one answer is not enough.
func roleFort(t *testing.T) *fort {
	t.Helper()
	f := startFort(t, patient("serve", "--listen", "127.0.0.1:0", "--idle-ttl", "0", "--state-dir", t.TempDir(), "--approvals", "2", "--require-digest",
		"--jwt-key", forge().file(t), "--jwt-issuer", issuer, "--jwt-audience", audience, "--jwt-scope-claim", "scope")...)
	for name, role := range map[string]string{"alice": "controller", "vic": "viewer", "rhea": "approver"} {
		f.keys[name] = forge().token(name, claims{"scope": "team", "role": role})
	}
	f.settle("alice", "plan", "side")
	for name, role := range map[string]string{"guest": "viewer", "judge": "approver"} {
		f.keys[name] = f.want(shot{as: "alice", what: "POST /api/headless/sessions/plan/shares", body: `{"role":"` + role + `"}`}).text("token")
	}
	f.want(shot{as: "alice", what: sendToMain, headers: []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}"},
		body: `{"type":"prompt","content":"__maestro_conformance_approval__:{\"request_id\":\"open\",\"tool\":\"bash\",\"args\":{},\"reason\":\"r\"}"}`})
	for since := time.Now(); ; {
		st := f.snapshots("alice")
		if slices.ContainsFunc(st, func(s *contracts.Snapshot) bool { return len(s.State.PendingApprovals) == 1 && !s.State.IsResponding }) {
			return f
		}
		if time.Since(since) > patience {
			t.Fatal("the question does not open")
		}
	}
}

// roleAttacks are made by everybody who may not drive, each in the same ways.
func roleAttacks() (all []attack) {
	for _, who := range []string{"vic", "rhea", "guest", "judge"} {
		all = append(all, attacksBy(who, who == "rhea" || who == "judge")...)
	}
	return all
}

// attacksBy are the attacks by one of them. answers says that its right is to answer.
func attacksBy(who string, answers bool) (all []attack) {
	denied := contracts.CodeAccessDenied
	join := func(_ *testing.T, f *fort) {
		r := f.want(shot{as: who, what: "POST /api/headless/sessions/{main}/subscribe", body: `{"capabilities":{"serverRequests":["approval"]}}`})
		f.words["mine"], f.words["own"] = r.text("connection_id"), r.header.Get("X-Maestro-Headless-Connection-Token")
	}
	own := []string{"X-Maestro-Headless-Connection-Id: {mine}", "X-Maestro-Headless-Connection-Token: {own}"}
	asController := append(slices.Clone(own), "X-Maestro-Headless-Role: controller")
	sends := func(name string, code contracts.Code, messages ...string) {
		var shots []shot
		for _, body := range messages {
			for _, headers := range [][]string{own, asController} {
				shots = append(shots, shot{as: who, what: sendToMain, body: body, headers: headers, code: code})
			}
		}
		all = append(all, attack{name: who + ": " + name, on: "roles", arm: join, shots: shots, attaches: answers}) // an approver's requests count as activity
	}
	// may is the code for an answer, which a viewer is refused in any case.
	may := func(code contracts.Code) contracts.Code {
		if answers {
			return code
		}
		return denied
	}
	sends("prompt", denied, `{"type":"prompt","content":"echo owned"}`)
	sends("init", denied, `{"type":"init","approval_mode":"auto"}`, `{"type":"init","system_prompt":"obey me"}`)
	sends("interrupt", denied, `{"type":"interrupt"}`, `{"type":"cancel"}`)
	sends("shutdown", denied, shutdown)
	sends("command", denied, `{"type":"utility_command_start","command_id":"u","command":"id"}`, `{"type":"utility_command_terminate","command_id":"u"}`,
		`{"type":"utility_command_stdin","command_id":"u","content":"x"}`, `{"type":"utility_command_resize","command_id":"u","columns":1,"rows":1}`)
	sends("files", denied, `{"type":"utility_file_read","read_id":"u","path":"/etc/passwd"}`, `{"type":"utility_file_search","search_id":"u","query":"x"}`,
		`{"type":"utility_file_watch_start","watch_id":"u"}`, `{"type":"utility_file_watch_stop","watch_id":"u"}`)
	sends("hello as controller", may(contracts.CodeRoleConflict), `{"type":"hello","protocol_version":"2026-04-02","role":"controller"}`)
	sends("answer without the digest", may(contracts.CodeDigestRequired), `{"type":"tool_response","call_id":"open","approved":true}`,
		`{"type":"server_request_response","request_id":"open","request_type":"approval","approved":true}`,
		`{"type":"server_request_response","request_id":"open","request_type":"approval","approved":false}`)
	sends("answer with another digest", may(contracts.CodeDigestMismatch),
		`{"type":"server_request_response","request_id":"open","request_type":"approval","approved":true,"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"}`,
		`{"type":"server_request_response","request_id":"open","request_type":"approval","approved":true,"digest":"open"}`)
	sends("answer of another type", may(contracts.CodeRequestTypeMismatch), `{"type":"server_request_response","request_id":"open","request_type":"client_tool","content":[]}`,
		`{"type":"server_request_response","request_id":"open","request_type":"tool_retry","decision_action":"retry"}`)
	controller := `{"role":"controller","takeControl":true}`
	return append(all,
		attack{name: who + ": takeover", on: "roles", arm: join, shots: []shot{
			{as: who, what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"controller","takeControl":true}`, code: denied},
			{as: who, what: "POST /api/headless/sessions/{main}/subscribe", body: controller, code: denied},
			{as: who, what: "POST /api/headless/sessions/{main}/subscribe", body: controller, headers: own, code: contracts.CodeRoleConflict},
			{as: who, what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=1", code: denied},
			{as: who, what: "WS /api/headless/ws?sessionId={main}&role=controller&takeControl=later", code: denied}}},
		attack{name: who + ": takeover on a socket", on: "roles", attaches: true, strike: func(t *testing.T, f *fort) {
			p := f.attachAs(who, "sessionId={main}", quietText)
			p.sees(t, `"type":"ws.attached"`)
			for i, text := range []string{`{"type":"ws.take_control","id":"%d"}`, `{"type":"ws.release_control","id":"%d"}`, `{"type":"ws.ask_control","id":"%d"}`,
				`{"type":"ws.grant_control","id":"%d","connection_id":"{conn}"}`, `{"type":"ws.deny_control","id":"%d","connection_id":"{conn}"}`,
				`{"type":"ws.send","id":"%d","message":` + shutdown + `}`, `{"type":"ws.send","id":"%d","message":{"type":"prompt","content":"x"}}`} {
				p.send(f.fill(fmt.Sprintf(text, i)))
				if got, err := p.until(fmt.Sprintf(`"id":"%d"`, i)); err != nil || strings.Contains(got, `"ws.result"`) || strings.Contains(got, `"granted":true`) {
					t.Errorf("%s: got %.300s, %v, want a refusal", text, got, err)
				}
			}
		}},
		attack{name: who + ": lists on a socket", on: "roles", shots: []shot{
			{as: who, what: "WS /api/headless/lists/ws?role=controller", code: denied},
		}, strike: func(t *testing.T, f *fort) {
			p := f.upgrade(shot{as: who, what: "WS /api/headless/lists/ws"})
			answer := func(session, request, rest string) string {
				return `{"type":"ws.answer","id":"%d","session_id":"` + session + `","message":{"type":"server_request_response","request_id":"` + request + `",` + rest + `}}`
			}
			approved := `"request_type":"approval","approved":true`
			texts := []string{
				answer("{main}", "open", approved), answer("{main}", "open", approved+`,"digest":"open"`), answer("{other}", "open", approved),
				answer("../{main}", "open", approved), answer("{main}", "open", `"request_type":"tool_retry","decision_action":"retry"`),
				`{"type":"ws.answer","id":"%d","session_id":"{main}","message":` + shutdown + `}`, `{"type":"ws.answer","id":"%d","session_id":"{main}","message":{}}`,
			}
			if !answers {
				texts = append(texts, `{"type":"ws.follow","id":"%d","lists":["inbox"]}`, `{"type":"ws.follow","id":"%d","lists":["sessions","inbox"]}`)
			}
			for i, text := range texts {
				p.send(f.fill(fmt.Sprintf(text, i)))
				p.sees(t, fmt.Sprintf(`"id":"%d"`, i), `"type":"ws.error"`)
			}
			for _, text := range []string{shutdown, `{"type":"prompt","content":"x"}`, `{"type":"ws.take_control"}`, `{"type":"hello","role":"controller"}`} {
				p.send(text)
				p.sees(t, `"type":"ws.error"`)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}},
		attack{name: who + ": the controller's connection", on: "roles", shots: []shot{
			{as: who, what: sendToMain, body: shutdown, headers: []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}"},
				code: map[bool]contracts.Code{true: contracts.CodeStaleConnection, false: denied}[answers]},
			{as: who, what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{conn}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleConnection},
			{as: who, what: "POST /api/headless/sessions/{main}/unsubscribe", body: `{"subscriptionId":"{sub}"}`, headers: []string{"X-Maestro-Headless-Connection-Token: {secret}"}, code: contracts.CodeStaleSubscription}}},
		attack{name: who + ": shares and tickets", on: "roles", shots: []shot{
			{as: who, what: "POST /api/headless/sessions/{main}/shares", body: `{"role":"controller"}`, code: denied},
			{as: who, what: "POST /api/headless/sessions/{main}/shares", body: `{"role":"approver"}`, code: denied},
			{as: who, what: "GET /api/headless/sessions/{main}/shares", code: denied},
			{as: who, what: "POST /api/headless/ws-tickets", body: `{"role":"controller"}`, code: denied},
			{as: who, what: "POST /api/headless/sessions", body: `{"sessionId":"new"}`, code: denied},
			{as: who, what: "WS /api/headless/ws?sessionId=new&create=1", code: denied}}},
		attack{name: who + ": tools of its own", on: "roles", shots: []shot{
			{as: who, what: "POST /api/headless/connections", body: `{"sessionId":"{main}","enableClientTools":true,"capabilities":{"serverRequests":["client_tool"]}}`, code: contracts.CodeBadRequest},
			{as: who, what: "POST /api/headless/sessions/{main}/subscribe", body: `{"capabilities":{"serverRequests":["mcp_elicitation"]}}`, code: contracts.CodeBadRequest}}},
	)
}
