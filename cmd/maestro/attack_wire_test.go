//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// A smuggle is bytes that a proxy on the way may have read otherwise than we do.
// {auth} is a right credential, {kill} a request that would end the session if
// it were ever read as one with that credential.
type smuggle struct {
	name string
	text string
	// statuses are those that may come first; what comes after may only be a
	// refusal, for it has no credential.
	statuses []int
}

const smuggled = "POST /api/headless/sessions/{main}/messages HTTP/1.1\r\nHost: {addr}\r\nX-Maestro-Headless-Connection-Id: {conn}\r\n" +
	"X-Maestro-Headless-Connection-Token: {secret}\r\nContent-Length: 19\r\n\r\n" + shutdown

// wireAttacks are about where a request ends, where it goes and what is in its
// head.
func wireAttacks() []attack {
	post := "POST /api/headless/sessions/{main}/heartbeat HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\n"
	get := "GET /api/headless/sessions/{main}/state HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\n"
	// A heartbeat of nobody: it reads a body, and is refused whatever is in it.
	read := []int{404, 400}
	refused := []int{400, 501, 417, 505, 403}
	var list []attack
	for _, s := range []smuggle{
		{"length and chunks", post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX" + smuggled, append(read, refused...)},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n8\r\nSMUGGLED\r\n0\r\n\r\n" + smuggled, append(read, refused...)},
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 300\r\n\r\n{}" + smuggled, refused},
		{"lengths in a list", post + "Content-Length: 2, 300\r\n\r\n{}" + smuggled, refused},
		{"length with a sign", post + "Content-Length: +2\r\n\r\n{}" + smuggled, refused},
		{"negative length", post + "Content-Length: -2\r\n\r\n{}" + smuggled, refused},
		{"length in hex", post + "Content-Length: 0x2\r\n\r\n{}" + smuggled, refused},
		{"huge length", post + "Content-Length: 99999999999999999999\r\n\r\n{}", refused},
		{"length with a blank in it", post + "Content-Length: 2 0\r\n\r\n{}" + smuggled, refused},
		{"blank before the colon", post + "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}" + smuggled, refused},
		{"unknown coding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, refused},
		{"coding in a list", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled, refused},
		{"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, refused},
		{"coding behind a tab", post + "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled, append(read, refused...)},
		{"coding behind a control character", post + "Transfer-Encoding: \x0bchunked\r\nContent-Length: 2\r\n\r\n{}" + smuggled, refused},
		{"coding in a folded line", post + "X-Fold: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + smuggled, append(read, refused...)},
		{"first line folded", "POST /api/headless/sessions/{main}/heartbeat HTTP/1.1\r\n Host: evil.example\r\nHost: {addr}\r\nContent-Length: 0\r\n\r\n", refused},
		{"lone newlines", strings.ReplaceAll(post, "\r\n", "\n") + "Content-Length: 2\n\n{}" + smuggled, append(read, refused...)},
		{"lone returns", post + "X-One: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + smuggled, refused},
		{"malformed chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + smuggled, read},
		{"chunk of a huge size", post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n" + smuggled, []int{400}},
		{"chunk with a sign", post + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n" + smuggled, read},
		{"chunk without its end", post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n" + smuggled, read},
		{"chunk ended by a newline", post + "Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n" + smuggled, read},
		{"chunk with an extension", post + "Transfer-Encoding: chunked\r\n\r\n2;a=\"\n" + strings.Repeat("x", 100) + "\"\r\n{}\r\n0\r\n\r\n" + smuggled, read},
		{"coding of an old version", strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1) + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + smuggled, append(read, refused...)},
		{"body of a read", get + "Content-Length: 2\r\n\r\n{}" + smuggled, []int{200}},
		{"body of a read without a length", get + "\r\n" + smuggled, []int{200}},
		{"stream with a request in its body", strings.Replace(get, "/state", "/nothing", 1) + "Content-Length: 1000\r\n\r\n" + smuggled, []int{404}},
		{"unknown expectation", post + "Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", refused},
		{"NUL in a header", post + "X-One: a\x00b\r\nContent-Length: 2\r\n\r\n{}", refused},
		{"header without a colon", post + "Transfer-Encoding\r\nContent-Length: 2\r\n\r\n{}", refused},
		{"header without a name", post + ": chunked\r\nContent-Length: 2\r\n\r\n{}", refused},
		{"two Hosts", strings.Replace(get, "Host: {addr}", "Host: {addr}\r\nHost: evil.example", 1) + "\r\n", refused},
		{"no Host", strings.Replace(get, "Host: {addr}\r\n", "", 1) + "\r\n", refused},
		{"another host in the target", strings.Replace(get, "GET /", "GET http://evil.example/", 1) + "\r\n", []int{403}},
		{"user in the target", strings.Replace(get, "GET /", "GET http://{addr}@evil.example/", 1) + "\r\n", []int{403, 400}},
		{"target of a proxy", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", []int{403, 400}},
		{"target of nothing", "GET * HTTP/1.1\r\nHost: {addr}\r\n\r\n", []int{400, 404, 401}},
		{"version of no number", strings.Replace(get, "HTTP/1.1", "HTTP/x", 1) + "\r\n", refused},
		{"version of the future", strings.Replace(get, "HTTP/1.1", "HTTP/7.0", 1) + "\r\n", refused},
		{"no version at all", "GET /api/headless/sessions/{main}/state\r\n\r\n", refused},
		{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", refused},
		{"upgrade to HTTP/2", get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", []int{200}},
		{"blanks in the first line", "GET  /api/headless/sessions/{main}/state  HTTP/1.1\r\nHost: {addr}\r\n\r\n", refused},
		{"target with a blank", strings.Replace(get, "/state", "/sta te", 1) + "\r\n", refused},
		{"greeting of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 100) + "\r\n\r\n", refused},
	} {
		list = append(list, attack{name: "wire: " + s.name, on: "token", strike: func(t *testing.T, f *fort) {
			f.words["token"] = f.keys["owner"]
			served := slices.Contains(s.statuses, 200) || slices.Contains(s.statuses, 404) && len(s.statuses) > 1
			got := answers(t, f.exchange(s.text, served))
			if len(got) == 0 || !slices.Contains(s.statuses, got[0].status) {
				t.Fatalf("got %+v, want one of %d first", got, s.statuses)
			}
			if slices.Contains(refused, got[0].status) && got[0].header.Get("Content-Type") != "application/json; charset=utf-8" && len(got) > 1 {
				t.Errorf("got %d answers, want none after what could not be read", len(got))
			}
			for _, r := range got[1:] {
				if r.status < 400 {
					t.Errorf("got %d %.200s as a further answer, want at most a refusal", r.status, r.body)
				}
			}
		}})
	}
	return append(list, headAttacks()...)
}

// headAttacks are about what is in a head.
func headAttacks() []attack {
	bad, none := contracts.CodeBadRequest, contracts.CodeNotFound
	var ids []shot
	for _, id := range []string{
		"a%2Fb", "..%2Fother", "%2e%2e%2Fother", "%00", "main%00", "%C0%AE%C0%AE", "%C0%AF", "%5C..%5C", "..%5C", "%252e%252e%252f", "a%0d%0aSet-Cookie:%20a=b", "main%20", "%20main", "main%3Fx", "main%23",
		"~", "main;x=y", "%E2%80%AE", "%F0%9F%92%A9", strings.Repeat("a", 129), "%2F%2F", "C:%5C", "main%2f..%2fother", "*",
	} {
		ids = append(ids, every(shot{as: "owner", code: bad}, "GET /api/headless/sessions/"+id+"/state", "WS /api/headless/sessions/"+id+"/ws")...)
		ids = append(ids, shot{as: "owner", what: "POST /api/headless/sessions/" + id + "/messages", body: shutdown, code: bad})
	}
	return []attack{
		{name: "ids that are paths", on: "token", shots: ids},
		{name: "paths that go up", on: "token", shots: append(every(shot{as: "owner", code: bad}, "GET /api/headless/sessions/../sessions/{main}", "GET /api/headless/sessions/%2e%2e/%2e%2e/etc/passwd",
			"GET /api//headless/sessions/{main}", "GET //evil.example/%2e%2e", "GET /./api/headless/sessions/{main}", "GET /api/headless/sessions/..", "GET /api/headless/sessions/.", "GET /login/../api/headless/sessions/{main}/state"),
			every(shot{as: "owner", code: none}, "GET /etc/passwd", "GET /api/headless/sessions/{main}/state/x", "GET /.maestro/token", "GET /token", "GET /debug/pprof/", "GET /API/headless/sessions")...)},
		{name: "session ids in bodies", on: "token", shots: []shot{
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"../x"}`, code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"a\u0000b"}`, code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"."}`, code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":".."}`, code: bad},
			{as: "owner", what: "WS /api/headless/ws?sessionId=..&create=1", code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"a\r\nSet-Cookie: a=b"}`, code: bad},
			{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"/etc"}`, code: bad},
			{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"` + strings.Repeat("a", 129) + `"}`, code: bad},
			{as: "owner", what: "WS /api/headless/ws?sessionId=..%2Fx&create=1", code: bad},
			{as: "owner", what: "WS /api/headless/ws?sessionId=a%0d%0ab&create=1", code: bad},
			{as: "owner", what: "WS /api/headless/sessions/{main}/ws?sessionId={other}", code: bad},
			{as: "owner", what: "WS /api/headless/ws?sessionId={main}&sessionId={other}", code: bad}}},
		{name: "sessions named like folders", on: "", strike: func(t *testing.T, _ *fort) {
			f := tokenFort(t)
			for _, id := range []string{"...", "s-x", "con", "a:b"} {
				f.want(shot{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"` + id + `"}`})
				f.want(shot{as: "owner", what: "GET /api/headless/sessions/" + id})
			}
			root, err := filepath.Glob(filepath.Join(filepath.Dir(f.ready.TokenFile), "workspaces", "*"))
			if err != nil || len(root) != 1 {
				t.Fatalf("got %v, %v, want one folder", root, err)
			}
			for _, dir := range []string{filepath.Dir(f.ready.TokenFile), filepath.Dir(root[0]), f.dirs[0]} {
				files, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range files {
					if !slices.Contains([]string{"token", "workspaces", filepath.Base(root[0])}, file.Name()) {
						t.Errorf("got %s in %s, want sessions in their folder alone", file.Name(), dir)
					}
				}
			}
		}},
		{name: "workspace that is not the server's", on: "token", shots: []shot{
			{as: "owner", what: "POST /api/headless/connections", body: `{"workspaceRoot":"/etc"}`, code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"new","workspaceRoot":"/"}`, code: bad},
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"new","workspaceRoot":"../.."}`, code: bad}}},
		{name: "headers that contradict each other", on: "token", shots: withHeaders(shot{as: "owner", what: sendToMain, body: shutdown, code: bad},
			"X-Maestro-Headless-Connection-Id: {conn}\nX-Composer-Headless-Connection-Id: other", "X-Maestro-Headless-Role: viewer\nX-Evalops-Headless-Role: controller",
			"X-Maestro-Headless-Subscriber-Id: {sub}\nX-Maestro-Headless-Subscription-Id: other", "X-Maestro-Headless-Connection-Id: "+strings.Repeat("x", 129), "Idempotency-Key: "+strings.Repeat("x", 129),
			"Idempotency-Key: a\nIdempotency-Key: b")},
		{name: "another method by a header", on: "token", shots: append(withHeaders(shot{as: "owner", what: "POST /api/headless/sessions/{main}/shares/0123", code: contracts.CodeMethodNotAllowed},
			"X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE", "X-HTTP-Method: DELETE"),
			every(shot{as: "owner", code: contracts.CodeMethodNotAllowed}, "POST /api/headless/sessions/{main}/state?_method=DELETE", "DELETE /api/headless/sessions/{main}/state", "PUT /api/headless/sessions/{main}",
				"PATCH /api/headless/sessions/{main}/messages", "GET /api/headless/sessions/{main}/messages", "GET /api/headless/sessions/{main}/disconnect", "TRACE /api/headless/sessions/{main}", "post /api/headless/connections")...)},
		{name: "huge heads", on: "token", strike: func(t *testing.T, f *fort) {
			big := strings.Repeat("x", 64<<10)
			for name, s := range map[string]shot{
				"header": {as: "owner", what: stateOfMain, headers: []string{"X-One: " + big}}, "query": {as: "owner", what: stateOfMain + "?cursor=" + big},
				"path": {as: "owner", what: "GET /api/headless/sessions/" + big}, "cookie": {what: stateOfMain, headers: []string{"Cookie: maestro_session_{port}=" + big}},
				"many": {as: "owner", what: stateOfMain, headers: slices.Repeat([]string{"X-One: y"}, 8000)},
			} {
				head, _ := f.request(s)
				if got := f.raw(head); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
					t.Errorf("%s: got %.100s, want 431", name, got)
				}
			}
		}},
		{name: "forwarded by nobody", on: "token", shots: withHeaders(shot{what: stateOfMain, code: contracts.CodeUnauthenticated},
			"X-Forwarded-For: 127.0.0.1\nX-Real-IP: 127.0.0.1", "X-Forwarded-Host: localhost\nForwarded: for=127.0.0.1;host=localhost", "X-Forwarded-User: owner\nX-Remote-User: owner", "X-Original-URL: /healthz", "X-Rewrite-URL: /healthz")},
	}
}

// bodyAttacks are about what is in a body.
func bodyAttacks() []attack {
	bad, large := contracts.CodeBadRequest, contracts.CodePayloadTooLarge
	own := []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}"}
	send := func(body string, more ...string) shot {
		return shot{as: "owner", what: sendToMain, body: body, headers: append(slices.Clone(own), more...), code: bad}
	}
	attach := func(body string, more ...string) shot {
		return shot{as: "owner", what: "POST /api/headless/connections", body: body, headers: more, code: bad}
	}
	huge := `{"type":"prompt","content":"` + strings.Repeat("x", 10<<20) + `"}`
	deep := strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000)
	deepObjects := strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000)
	long := strings.Repeat("x", 1<<19)
	bomb := gzipped(`{"type":"prompt","content":"`, 64<<20, `"}`)
	return []attack{
		{name: "body of ten mebibytes", on: "token", shots: []shot{
			{as: "owner", what: sendToMain, body: huge, headers: own, code: large}, {as: "owner", what: "POST /api/headless/connections", body: huge, code: large},
			{as: "owner", what: "POST /api/headless/sessions/{main}/heartbeat", body: huge, code: large}, {as: "owner", what: "POST /api/headless/ws-tickets", body: huge, code: large},
			{as: "owner", what: "POST /api/headless/sessions/{main}/shares", body: huge, code: large}}},
		{name: "body of ten mebibytes in chunks", on: "token", shots: []shot{
			{as: "owner", what: sendToMain, body: chunked(huge), headers: append(slices.Clone(own), "Transfer-Encoding: chunked"), code: large},
			{as: "owner", what: "POST /api/headless/connections", body: chunked(huge), headers: []string{"Transfer-Encoding: chunked"}, code: large}}},
		{name: "body that announces too much", on: "token", strike: func(t *testing.T, f *fort) {
			for _, path := range []string{"connections", "sessions", "sessions/{main}/messages"} {
				head, _ := f.request(shot{as: "owner", what: "POST /api/headless/" + path, headers: append(slices.Clone(own), "Content-Length: 9999999999", "Expect: 100-continue")})
				if got := f.raw(head); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
					t.Errorf("%s: got %.100s, want 413 and no invitation", path, got)
				}
			}
		}},
		{name: "deep JSON", on: "token", shots: []shot{send(`{"type":"shutdown","x":` + deep + `}`), send(deep), send(deepObjects), send(`{"type":"init","x":` + deepObjects + `}`),
			attach(`{"x":` + deep + `}`), attach(deepObjects), attach(`{"clientInfo":` + deepObjects + `}`)}},
		{name: "keys that are there twice", on: "token", shots: []shot{send(`{"type":"prompt","type":"shutdown","content":"x"}`), send(`{"type":"shutdown","type":"shutdown"}`), send(`{"\u0074ype":"shutdown","type":"hello"}`),
			send(`{"type":"prompt","content":"a","content":"b"}`), attach(`{"role":"viewer","role":"controller"}`), attach(`{"takeControl":false,"takeControl":true}`), attach(`{"sessionId":"{main}","sessionId":"{other}"}`)}},
		{name: "keys of another case", on: "token", shots: []shot{send(`{"TYPE":"shutdown"}`), send(`{"Type":"shutdown"}`), send(`{"type":"prompt","CONTENT":"x"}`)}},
		{name: "what is not JSON", on: "token", shots: []shot{send(""), send("null"), send("[]"), send(`"shutdown"`), send(`{"type":"shutdown"`), send(`{"type":"shutdown"}{"type":"shutdown"}`), send("type=shutdown"),
			send("{\"type\":\"shutdown\",\"x\":\"\xff\"}"), send("\ufeff" + shutdown), send(shutdown + "\x00"), send(`{"type":"shutdown",}`), send(`{"type":NaN}`), send(`{type:"shutdown"}`), send(`<type>shutdown</type>`),
			send(strings.Repeat(" ", 1<<20)), attach("null"), attach(`{"role":"viewer"}x`)}},
		{name: "types nobody knows", on: "token", shots: []shot{send(`{"type":"__proto__"}`), send(`{"type":"ws.take_control"}`), send(`{"type":"ws.send","message":{"type":"shutdown"}}`), send(`{"type":"SHUTDOWN"}`),
			send(`{"type":"shutdown\u0000"}`), send(`{"type":["shutdown"]}`), send(`{"type":{"$ne":null}}`)}},
		{name: "compressed bomb", on: "token", shots: []shot{
			send(bomb, "Content-Encoding: gzip"), attach(bomb, "Content-Encoding: gzip"), send(bomb), attach(bomb, "Content-Encoding: deflate"), attach(bomb, "Content-Encoding: br"),
			{as: "owner", what: "POST /api/headless/ws-tickets", body: bomb[:min(len(bomb), 4000)], headers: []string{"Content-Encoding: gzip"}, code: bad}}},
		{name: "compressed bomb by its coding", on: "token", strike: func(t *testing.T, f *fort) {
			head, body := f.request(shot{as: "owner", what: "POST /api/headless/connections", body: bomb, headers: []string{"Transfer-Encoding: gzip, chunked"}})
			if got := f.raw(head + body); !strings.HasPrefix(got, "HTTP/1.1 501 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("got %.100s, want 501", got)
			}
		}},
		{name: "compressed bomb leaves no trace in memory", on: "", strike: func(t *testing.T, _ *fort) {
			f := tokenFort(t)
			v := victim{addr: f.addr, pid: f.ready.PID}
			before := v.resident(t)
			for range 20 {
				f.refuses(attach(bomb, "Content-Encoding: gzip"))
			}
			if got, most := v.resident(t)-before, int64(64<<20); got > most {
				t.Errorf("got %d MiB more, want at most %d: something was inflated", got>>20, most>>20)
			}
		}},
		{name: "control characters in a name", on: "token", attaches: true, strike: func(t *testing.T, f *fort) {
			for i, name := range []string{`\u001b[2J\u001b]0;owned\u0007`, `a\u0000b`, `a\r\nevent: x\r\ndata: {}\r\n\r\n`, `\u202eevil\u2028`} {
				r := f.fire(shot{as: "owner", what: "POST /api/headless/connections", body: `{"sessionId":"{main}","role":"viewer","protocolVersion":"` + name + `","clientInfo":{"name":"` + name + `","version":"` + strconv.Itoa(i) + name + `"}}`})
				if r.status != 200 && r.status != 400 {
					t.Errorf("%s: got %d %.200s, want it taken or refused", name, r.status, r.body)
				}
				if bytes.ContainsFunc(r.body, func(c rune) bool { return c < ' ' && c != '\n' || c == 0x7f || c == '\u2028' }) {
					t.Errorf("%s: got %q, want no control character as it is", name, r.body)
				}
			}
			if log := f.log.text(t); strings.ContainsFunc(log, func(c rune) bool { return c < ' ' && c != '\n' }) {
				t.Errorf("got log %q, want no control character in it", log)
			}
		}},
		{name: "names without end", on: "token", shots: []shot{
			attach(`{"sessionId":"{main}","clientInfo":{"name":"` + long + `"}}`), attach(`{"sessionId":"{main}","clientInfo":{"name":"x","version":"` + long + `"}}`), attach(`{"sessionId":"{main}","protocolVersion":"` + long + `"}`)}},
		{name: "refused creations that leave something behind", on: "token", shots: []shot{
			attach(`{"clientInfo":{"name":"` + long + `"}}`), attach(`{"role":"viewer","capabilities":{"serverRequests":["user_input"]}}`), attach(`{"enableClientTools":true}`),
			{as: "owner", what: "POST /api/headless/sessions", body: `{"sessionId":"left","role":"viewer","enableClientTools":true}`, code: bad}}},
	}
}

// gzipped compresses a text with so many letters in its middle.
func gzipped(before string, letters int, after string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = fmt.Fprint(w, before) // a buffer takes everything
	for range letters >> 16 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<16))
	}
	_, _ = fmt.Fprint(w, after)
	_ = w.Close()
	return b.String()
}

// chunked is a body in chunks of 64 KiB.
func chunked(body string) string {
	var b strings.Builder
	for part := range slices.Chunk([]byte(body), 64<<10) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	return b.String() + "0\r\n\r\n"
}
