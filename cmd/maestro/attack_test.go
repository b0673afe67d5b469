//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An attack is something that must not work. Nothing may have changed after it.
type attack struct {
	name string
	on   string // the fort; empty for an attack on a server of its own, beside others
	arm  func(t *testing.T, f *fort)
	// shots are requests, each with the refusal that it must meet.
	shots  []shot
	strike func(t *testing.T, f *fort)
	// attaches says that the attacker gets as far as any client may: the state
	// shows it, and what counts is that nothing else changed.
	attaches bool
}

// A shot is one request.
type shot struct {
	as      string // whose credential it carries; empty is none
	what    string // method and target; the method WS is a WebSocket handshake
	body    string
	headers []string
	code    contracts.Code // of the refusal; empty is none
	status  int            // of the answer, if not the code's or 200
}

// attacks are all there are.
func attacks() []attack {
	return slices.Concat(
		credentialAttacks(), jwtAttacks(), ticketAttacks(), shareAttacks(), browserAttacks(), openAttacks(),
		wireAttacks(), bodyAttacks(), connectionAttacks(), scopeAttacks(), viewerAttacks(), roleAttacks(), boundAttacks(),
		hostedAttacks(), restoreAttacks(), floodAttacks(),
	)
}

const leastAttacks = 50

func TestAttacksFail(t *testing.T) {
	t.Parallel()
	forts := map[string]*fort{"token": tokenFort(t), "off": openFort(t), "jwt": jwtFort(t), "roles": roleFort(t), "hosted": hostedFort(t)}
	all := attacks()
	if len(all) < leastAttacks {
		t.Errorf("got %d attacks, want at least %d", len(all), leastAttacks)
	}
	names := map[string]bool{}
	for _, a := range all {
		name := cmp.Or(a.on, "own") + "/" + a.name
		if names[name] {
			t.Errorf("%q is there twice", name)
		}
		names[name] = true
		t.Run(name, func(t *testing.T) {
			if a.on == "" {
				t.Parallel()
			}
			a.run(t, forts[a.on])
		})
	}
	t.Logf("%d attacks", len(all))
}

func (a attack) run(t *testing.T, f *fort) {
	if f == nil {
		a.strike(t, nil)
		return
	}
	f = f.at(t)
	if a.arm != nil {
		a.arm(t, f)
	}
	before := f.witness(a.attaches)
	for _, s := range a.shots {
		f.refuses(s)
	}
	if a.strike != nil {
		a.strike(t, f)
	}
	if a.attaches {
		f.quiet()
	}
	f.unchanged(before, f.witness(a.attaches))
	f.leave()
}

// A guest is a connection that was made for an attack.
type guest struct{ as, session, id, secret string }

// leave ends the connections that were made for an attack: in a crowd the server
// tells later who is there.
func (f *fort) leave() {
	f.t.Helper()
	for _, g := range f.guests {
		f.fire(shot{as: g.as, what: "POST /api/headless/sessions/" + g.session + "/disconnect", body: `{"connectionId":"` + g.id + `"}`,
			headers: []string{"X-Maestro-Headless-Connection-Token: " + g.secret}})
	}
}

// joined notes a connection if one was made.
func (f *fort) joined(s shot, r reply) {
	var body struct {
		Session    string `json:"session_id"`
		Connection string `json:"connection_id"`
	}
	secret := r.header.Get("X-Maestro-Headless-Connection-Token")
	if secret == "" || json.Unmarshal(r.body, &body) != nil || body.Connection == "" {
		return
	}
	if _, path, ok := strings.Cut(f.fill(s.what), "/sessions/"); ok && body.Session == "" {
		body.Session, _, _ = strings.Cut(path, "/")
	}
	f.guests = append(f.guests, guest{s.as, body.Session, body.Connection, secret})
}

// quiet hangs up all connections and waits until the server has noticed.
func (f *fort) quiet() {
	f.t.Helper()
	for _, p := range f.peers {
		p.send(`{"type":"ws.bye","keep":false}`)
		_ = p.Close()
	}
	for since := time.Now(); f.attached(); {
		if time.Since(since) > patience {
			f.t.Fatal("the server does not notice that a client has gone")
		}
	}
	for _, who := range f.watch { // that a stream has gone is told with other news, such as this
		for _, snap := range f.snapshots(who) {
			f.want(shot{as: who, what: "POST /api/headless/connections", body: `{"sessionId":"` + snap.SessionID + `","role":"viewer"}`})
		}
	}
}

// attached reports whether anybody follows a session that is watched.
func (f *fort) attached() bool {
	f.t.Helper()
	for _, who := range f.watch {
		for _, snap := range f.snapshots(who) {
			if slices.ContainsFunc(snap.State.Connections, func(c contracts.ConnectionState) bool { return c.AttachedSubscriptionCount > 0 }) {
				return true
			}
		}
	}
	return false
}

// snapshots are the states of somebody's sessions.
func (f *fort) snapshots(who string) (list []*contracts.Snapshot) {
	f.t.Helper()
	var sessions contracts.SessionList
	if err := json.Unmarshal(f.want(shot{as: who, what: "GET /api/headless/sessions"}).body, &sessions); err != nil {
		f.t.Fatal(err)
	}
	for _, s := range sessions.Sessions {
		snap, err := (&contracts.Decoder{}).Snapshot(f.want(shot{as: who, what: "GET /api/headless/sessions/" + s.SessionID + "/state"}).body)
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, snap)
	}
	return list
}

// A fort is a server under attack.
type fort struct {
	t     *testing.T
	ready readiness
	addr  string
	log   *syncLog

	words  map[string]string // what attackers know or guess, by its name in shots
	keys   map[string]string // credentials, by whose they are
	watch  []string          // whose sessions must not change
	dirs   []string          // whose files must not change
	always []string          // headers of every request
	peers  []*peer           // of this test
	guests []guest           // of this test
	from   byte              // last part of the address attacks come from: wrong credentials count by address
}

var attackers atomic.Uint32

// at is the fort in another test.
func (f *fort) at(t *testing.T) *fort {
	other := *f
	other.t, other.words, other.peers, other.guests = t, maps.Clone(f.words), nil, nil
	other.from = byte(1 + attackers.Add(1)%250)
	return &other
}

// A syncLog is a log that a process writes while a test reads.
type syncLog struct{ *os.File }

func (l syncLog) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waits returns the log from a position on, once it has the text.
func (l syncLog) waits(t *testing.T, from int, text string) string {
	t.Helper()
	for since := time.Now(); ; {
		log := l.text(t)[from:]
		if strings.Contains(log, text) {
			return log
		}
		if time.Since(since) > patience {
			t.Fatalf("got the log\n%s\nwant a line with %s", log, text)
		}
	}
}

// patient adds flags that make nothing happen by the clock, so that whatever
// changes was changed by somebody.
func patient(args ...string) []string {
	return append(args, "--lease-ttl", "24h", "--subscription-ttl", "24h", "--heartbeat-interval", "24h", "--agent", "conformance",
		"--request-rate", "-1", "--attach-rate", "-1") // other limits than those have attacks of their own
}

// startFort starts a server. It ends with the test, and fails it if it has
// panicked.
func startFort(t *testing.T, args ...string) *fort {
	t.Helper()
	return startFortAs(t, func(*exec.Cmd) {}, args...)
}

// startFortAs is startFort with a command that change has changed.
func startFortAs(t *testing.T, change func(*exec.Cmd), args ...string) *fort {
	t.Helper()
	cmd := program(t, append(args, "--ready-stdout")...)
	change(cmd)
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	log := &syncLog{file}
	cmd.Stderr = file
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		survived := cmd.Process.Kill() == nil
		_ = cmd.Wait()
		if text := log.text(t); !survived || strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
			t.Errorf("the server did not get through (alive: %v); log:\n%.20000s", survived, text)
		}
		_ = file.Close()
	})
	f := &fort{t: t, log: log, from: 1, words: map[string]string{}, keys: map[string]string{}, dirs: []string{cmd.Dir}}
	if err := json.NewDecoder(out).Decode(&f.ready); err != nil {
		t.Fatalf("got %v, want the ready line; log:\n%s", err, log.text(t))
	}
	f.addr = strings.TrimPrefix(f.ready.BaseURL, "http://")
	f.words["addr"] = f.addr
	f.words["port"] = f.addr[strings.LastIndexByte(f.addr, ':')+1:]
	if f.ready.TokenFile != "" {
		f.dirs = append(f.dirs, filepath.Dir(f.ready.TokenFile))
		f.keys["owner"] = f.secretFile(f.ready.TokenFile)
	}
	return f
}

func (f *fort) secretFile(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// settle gives the fort something to lose: a session whose lease is held, and
// another one.
func (f *fort) settle(who, session, other string) {
	f.t.Helper()
	f.words["main"], f.words["other"] = session, other
	for _, id := range []string{session, other} {
		f.want(shot{as: who, what: "POST /api/headless/sessions", body: `{"sessionId":"` + id + `","role":"viewer"}`})
	}
	made := f.want(shot{as: who, what: "POST /api/headless/sessions/" + session + "/subscribe", body: `{"role":"controller","takeControl":true,"clientInfo":{"name":"victim"}}`})
	f.words["conn"], f.words["sub"] = made.text("connection_id"), made.text("subscription_id")
	f.words["secret"] = made.header.Get("X-Maestro-Headless-Connection-Token")
	f.watch = append(f.watch, who)
}

// An answer is what came back.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// text returns a string member of the answer.
func (r reply) text(name string) string {
	r.t.Helper()
	var object map[string]any
	err := json.Unmarshal(r.body, &object)
	value, ok := object[name].(string)
	if err != nil || !ok || value == "" {
		r.t.Fatalf("got %s, %v, want a member %s", r.body, err, name)
	}
	return value
}

// fill puts what is known in the place of its names.
func (f *fort) fill(text string) string {
	for name, value := range f.words {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// request is the text of a shot, without its body.
func (f *fort) request(s shot) (head, body string) {
	method, target, _ := strings.Cut(f.fill(s.what), " ")
	headers := slices.Clone(f.always)
	if s.as != "" {
		key, ok := f.keys[s.as]
		if !ok {
			f.t.Fatalf("nobody is called %q", s.as)
		}
		headers = append(headers, "Authorization: Bearer "+key)
	}
	connection := "Connection: close"
	if method == "WS" {
		method, connection = "GET", "Connection: Upgrade"
		headers = append(headers, "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
		if !mentions(s.headers, "Sec-WebSocket-Protocol") {
			headers = append(headers, "Sec-WebSocket-Protocol: "+contracts.Subprotocol)
		}
	}
	for _, h := range s.headers {
		headers = append(headers, f.fill(h))
	}
	if !mentions(s.headers, "Host") {
		headers = append([]string{"Host: " + f.addr}, headers...)
	}
	body = f.fill(s.body)
	if method == "POST" && !mentions(s.headers, "Content-Type") {
		headers = append(headers, "Content-Type: application/json")
	}
	if (body != "" || method == "POST") && !mentions(s.headers, "Content-Length") && !mentions(s.headers, "Transfer-Encoding") {
		headers = append(headers, fmt.Sprint("Content-Length: ", len(body)))
	}
	return method + " " + target + " HTTP/1.1\r\n" + connection + "\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n", body
}

func mentions(headers []string, name string) bool {
	return slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)+":") })
}

// fire sends a shot over a connection of its own.
func (f *fort) fire(s shot) reply {
	f.t.Helper()
	p := f.dial()
	defer p.Close()
	head, body := f.request(s)
	go func() { // ends with the connection, at the latest
		_, _ = io.WriteString(p, head+body)
	}()
	r := f.read(p)
	if r.status == http.StatusSwitchingProtocols && s.code != "" { // a page is refused by ws.error and the close code
		text, err := p.until(`"type":"ws.error"`)
		closed, errClose := p.until("")
		if err == nil && errClose == nil && closed == fmt.Sprintf("%d %s", s.code.CloseCode(), s.code) {
			r.status, r.body = s.code.HTTPStatus(), []byte(text)
		}
	}
	f.joined(s, r)
	return r
}

func (f *fort) dial() *peer {
	f.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, f.from)}}
	conn, err := d.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		f.t.Fatal(err)
	}
	p := &peer{conn, bufio.NewReader(conn)}
	f.peers = append(f.peers, p)
	return p
}

// read reads one answer; of a stream and of an upgrade the header alone.
func (f *fort) read(p *peer) reply {
	f.t.Helper()
	res, err := http.ReadResponse(p.r, nil)
	if err != nil {
		f.t.Fatalf("got %v, want an answer", err)
	}
	r := reply{t: f.t, status: res.StatusCode, header: res.Header}
	if res.StatusCode != http.StatusSwitchingProtocols && res.Header.Get("Content-Type") != "text/event-stream" {
		if r.body, err = io.ReadAll(res.Body); err != nil {
			f.t.Fatalf("got %v after %d %s", err, r.status, r.body)
		}
	}
	return r
}

// raw sends bytes as they are and returns everything that comes back. The
// sending side is closed, so that the server waits for nothing.
func (f *fort) raw(text string) string {
	f.t.Helper()
	return f.exchange(text, false)
}

// exchange is raw, but patient closes the sending side only once an answer
// comes: who hangs up before it has one is taken for gone.
func (f *fort) exchange(text string, patient bool) string {
	f.t.Helper()
	p := f.dial()
	defer p.Close()
	begun := make(chan struct{})
	go func() { // ends with the connection, at the latest
		_, _ = io.WriteString(p, f.fill(text))
		if patient {
			<-begun
		}
		_ = p.Conn.(*net.TCPConn).CloseWrite()
	}()
	_, err := p.r.Peek(1)
	close(begun)
	if err != nil {
		return ""
	}
	all, err := io.ReadAll(p.r)
	if err != nil && len(all) == 0 {
		f.t.Logf("%.100q: %v", text, err)
	}
	return string(all)
}

// want fires a shot that hits.
func (f *fort) want(s shot) reply {
	f.t.Helper()
	r := f.fire(s)
	if r.status != cmp.Or(s.status, 200) {
		f.t.Fatalf("%.300s %.200s: got %d %s", f.fill(s.what), s.body, r.status, r.body)
	}
	return r
}

// refuses fires a shot and fails the test unless the answer is the right
// refusal, which tells no secret.
func (f *fort) refuses(s shot) reply {
	f.t.Helper()
	r := f.fire(s)
	what := fmt.Sprintf("%.200s %.200s %.300q as %q", f.fill(s.what), s.body, s.headers, s.as)
	if s.code == "" {
		if r.status != cmp.Or(s.status, 200) {
			f.t.Errorf("%s: got %d %.300s, want %d", what, r.status, r.body, cmp.Or(s.status, 200))
		}
		return r
	}
	var body struct {
		Error     string
		Code      contracts.Code
		ErrorType contracts.Code `json:"error_type"`
	}
	err := json.Unmarshal(r.body, &body)
	if r.status != cmp.Or(s.status, s.code.HTTPStatus()) || err != nil || body.Code != s.code || body.ErrorType != s.code {
		f.t.Errorf("%s: got %d %.300s, want %d %s", what, r.status, r.body, cmp.Or(s.status, s.code.HTTPStatus()), s.code)
	}
	f.tellsNothing(what, fmt.Sprintf("%v %s", r.header, r.body))
	return r
}

// tellsNothing fails the test if a refusal has a secret in it, or a path of the
// machine.
func (f *fort) tellsNothing(what, text string) {
	f.t.Helper()
	secrets := append(slices.Collect(maps.Values(f.keys)), f.dirs...)
	if s := f.words["secret"]; s != "" {
		secrets = append(secrets, s)
	}
	for _, s := range secrets {
		if strings.Contains(text, s) {
			f.t.Errorf("%s: got %q in the refusal %.500s", what, s, text)
		}
	}
}

// witness says all that could have changed: the sessions, their states, and the
// files. Of those that clients have attached to it says what matters: who
// drives, what is being done, and what lies in the workspace.
func (f *fort) witness(attached bool) map[string]string {
	f.t.Helper()
	seen := map[string]string{}
	for _, who := range f.watch {
		list := f.want(shot{as: who, what: "GET /api/headless/sessions"})
		if !attached {
			seen["sessions of "+who] = string(list.body)
		}
		var sessions contracts.SessionList
		if err := json.Unmarshal(list.body, &sessions); err != nil {
			f.t.Fatal(err)
		}
		for _, s := range sessions.Sessions {
			state := f.want(shot{as: who, what: "GET /api/headless/sessions/" + s.SessionID + "/state"})
			seen["state of "+s.SessionID+" of "+who] = f.stateSeen(state.body, attached)
		}
	}
	for i, dir := range f.dirs {
		if i == 0 || !attached {
			f.filesSeen(dir, attached, seen)
		}
	}
	return seen
}

func (f *fort) stateSeen(state []byte, attached bool) string {
	f.t.Helper()
	if !attached {
		return string(state)
	}
	snap, err := (&contracts.Decoder{}).Snapshot(state)
	if err != nil {
		f.t.Fatal(err)
	}
	st := snap.State
	driver := "nobody"
	if id := st.ControllerConnectionID.Value; id != nil {
		driver = *id
	}
	here := slices.ContainsFunc(st.Connections, func(c contracts.ConnectionState) bool { return c.ConnectionID == f.words["conn"] })
	return fmt.Sprintf("%s drives, the victim is here: %v, ready: %v, responding: %v, open: %d %d %d, init: %v",
		driver, here, st.IsReady, st.IsResponding, len(st.PendingApprovals), len(st.ActiveTools), len(st.ActiveUtilityCommands), snap.LastInit)
}

// filesSeen says what is in dir, without a runner's journal if clients have
// attached.
func (f *fort) filesSeen(dir string, attached bool, seen map[string]string) {
	f.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if attached && d.Name() == ".maestro" {
			return fs.SkipDir
		}
		if d.Name() == "summary.json.new" || d.Name() == "cookies.json" {
			return nil // the first becomes summary.json at any time; some attacks log in before they fail
		}
		what := d.Type().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if d.Name() == "summary.json" { // the server writes the rest of it at any time
				var set struct{ Marks json.RawMessage }
				if err := json.Unmarshal(text, &set); err != nil || set.Marks == nil {
					return err
				}
				text = set.Marks
			}
			what = fmt.Sprintf("%x", sha256.Sum256(text))
		}
		seen["file "+path] = what
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// unchanged fails the test if anything did.
func (f *fort) unchanged(before, after map[string]string) {
	f.t.Helper()
	for what, was := range before {
		if is := after[what]; is != was {
			f.t.Errorf("%s changed\nfrom %.1500s\nto   %.1500s", what, was, is)
		}
	}
	for what := range after {
		if _, ok := before[what]; !ok {
			f.t.Errorf("%s is new", what)
		}
	}
}

// every makes the same shot of many.
func every(s shot, whats ...string) (shots []shot) {
	for _, what := range whats {
		s.what = what
		shots = append(shots, s)
	}
	return shots
}

// withHeaders makes the same shot with each set of headers, of which one has
// its parts on lines.
func withHeaders(s shot, sets ...string) (shots []shot) {
	for _, set := range sets {
		s.headers = strings.Split(set, "\n")
		shots = append(shots, s)
	}
	return shots
}

// surface are requests to everything that needs a credential, on the session of
// the fort.
var surface = []shot{
	{what: "GET /api/headless/sessions"},
	{what: "POST /api/headless/sessions", body: `{"sessionId":"{main}"}`},
	{what: "POST /api/headless/connections", body: `{"sessionId":"{main}"}`},
	{what: "GET /api/headless/sessions/{main}"},
	{what: "GET /api/headless/sessions/{main}/state"},
	{what: "POST /api/headless/sessions/{main}/subscribe", body: `{}`},
	{what: "POST /api/headless/sessions/{main}/unsubscribe", body: `{"subscriptionId":"{sub}"}`},
	{what: "GET /api/headless/sessions/{main}/events"},
	{what: "GET /api/headless/sessions/{main}/offer"},
	{what: "POST /api/headless/sessions/{main}/messages", body: `{"type":"shutdown"}`},
	{what: "POST /api/headless/sessions/{main}/message", body: `{"type":"shutdown"}`},
	{what: "POST /api/headless/sessions/{main}/heartbeat", body: `{"connectionId":"{conn}"}`},
	{what: "POST /api/headless/sessions/{main}/disconnect", body: `{"connectionId":"{conn}"}`},
	{what: "WS /api/headless/ws?sessionId={main}"},
	{what: "WS /api/headless/sessions/{main}/ws"},
	{what: "GET /api/headless/whoami"},
	{what: "POST /api/headless/ws-tickets", body: `{}`},
	{what: "GET /api/headless/sessions/{main}/shares"},
	{what: "POST /api/headless/sessions/{main}/shares", body: `{}`},
	{what: "DELETE /api/headless/sessions/{main}/shares/000000000000000000000000"},
	{what: "GET /metrics"},
	{what: "GET /api/headless/overview"},
	{what: "GET /api/headless/overview/events"},
	{what: "WS /api/headless/lists/ws"},
	{what: "PATCH /api/headless/sessions/{main}", body: `{"title":"x","archived":true}`},
	{what: "DELETE /api/headless/sessions/{main}"},
	{what: "POST /api/headless/sessions/{main}/restore"},
}

// everywhere makes requests to the whole surface, all refused alike.
func everywhere(s shot) (shots []shot) {
	for _, at := range surface {
		at.as, at.code, at.status = s.as, s.code, s.status
		at.headers = append(slices.Clone(at.headers), s.headers...)
		shots = append(shots, at)
	}
	return shots
}

// attachAs attaches over a WebSocket.
func (f *fort) attachAs(who, query, hello string, headers ...string) *peer {
	f.t.Helper()
	p := f.upgrade(shot{as: who, what: "WS /api/headless/ws?" + query, headers: headers})
	p.send(hello)
	return p
}

// upgrade opens a WebSocket.
func (f *fort) upgrade(s shot) *peer {
	f.t.Helper()
	p := f.dial()
	head, _ := f.request(s)
	if _, err := io.WriteString(p, head); err != nil {
		f.t.Fatal(err)
	}
	if r := f.read(p); r.status != http.StatusSwitchingProtocols {
		f.t.Fatalf("got %d, want 101", r.status)
	}
	return p
}

// sees fails the test unless the next frame with mark in it has all of parts.
// A close counts as one.
func (p *peer) sees(t *testing.T, mark string, parts ...string) string {
	t.Helper()
	got, err := p.until(mark)
	for _, part := range parts {
		if err != nil || !strings.Contains(got, part) {
			t.Fatalf("got %.500s, %v, want %s", got, err, part)
		}
	}
	return got
}

// answers splits what came back over one connection.
func answers(t *testing.T, all string) (list []reply) {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(all))
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return list
		}
		body, err := io.ReadAll(res.Body)
		if err != nil && !bytes.Contains(body, []byte("{")) {
			t.Errorf("got half an answer: %v", err)
		}
		list = append(list, reply{t, res.StatusCode, res.Header, body})
	}
}
