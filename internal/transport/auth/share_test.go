package auth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	sharesPath = "/api/headless/sessions/sess_a/shares"
	jsonBody   = "Content-Type: application/json"
)

// sharing is an Authenticator with shares on a disk, and the routes to them.
type sharing struct {
	*Authenticator
	http.Handler
	clock   *clock
	opts    Options
	revoked []string
	log     bytes.Buffer
}

// newSharing returns one that accepts the token, and JWTs signed with secretKey.
func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{clock: &clock{epoch}}
	s.opts = Options{
		Token: token, Keys: loadKeys(t, secretKey), ShareFile: filepath.Join(t.TempDir(), "deep", "shares.json"), Now: s.clock.Now,
		Revoked: func(id string) { s.revoked = append(s.revoked, id) },
		Log:     slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.restart(t)
	return s
}

// restart makes another Authenticator of the same file.
func (s *sharing) restart(t *testing.T) {
	t.Helper()
	g, err := New(s.opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/api/headless/sessions/{id}/shares", g.Shares())
	mux.Handle("/api/headless/sessions/{id}/shares/{share_id}", g.Shares())
	s.Authenticator, s.Handler = g, g.Wrap(mux)
}

func (s *sharing) ask(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := request(method, target, append(headers, jsonBody)...)
	r.Body = httptest.NewRequest(method, "/", strings.NewReader(body)).Body
	return serve(s, r)
}

// A minted share, as the answer has it.
type minted struct {
	ShareID   string    `json:"share_id"`
	Token     string    `json:"token"`
	Role      string    `json:"role"`
	SessionID string    `json:"session_id"`
	Label     string    `json:"label"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (s *sharing) mint(t *testing.T, body string, headers ...string) minted {
	t.Helper()
	if len(headers) == 0 {
		headers = []string{bearer}
	}
	w := s.ask("POST", sharesPath, body, headers...)
	var m minted
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 {
		t.Fatalf("got %d %s, want a share", w.Code, w.Body)
	}
	return m
}

func (s *sharing) list(t *testing.T, headers ...string) []minted {
	t.Helper()
	w := s.ask("GET", sharesPath, "", headers...)
	var list struct{ Shares []minted }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 || list.Shares == nil {
		t.Fatalf("got %d %s, want shares", w.Code, w.Body)
	}
	return list.Shares
}

// jwtOf returns the header with a JWT.
func jwtOf(claims changes) string {
	return "Authorization: Bearer " + sign(jwt.SigningMethodHS256, []byte(secretKey), claims, nil)
}

func TestShareLetsIntoOneSession(t *testing.T) {
	s := newSharing(t)
	for _, tt := range []struct {
		body string
		by   string
		want contracts.Principal // but for the id
	}{
		{"", bearer, contracts.Principal{Role: contracts.RoleViewer, Expires: epoch.Add(24 * time.Hour)}},
		{"{}", bearer, contracts.Principal{Role: contracts.RoleViewer, Expires: epoch.Add(24 * time.Hour)}},
		{`{"role":null,"label":null,"expiresInSeconds":null,"more":1}`, bearer, contracts.Principal{Role: contracts.RoleViewer, Expires: epoch.Add(24 * time.Hour)}},
		{`{"role":"controller","expiresInSeconds":60,"label":"for Bob"}`, bearer, contracts.Principal{Name: "for Bob", Expires: epoch.Add(time.Minute)}},
		{`{"role":"viewer","expiresInSeconds":2592000}`, bearer, contracts.Principal{Role: contracts.RoleViewer, Expires: epoch.Add(30 * 24 * time.Hour)}},
		// It is of its minter's scope and ends with its minter's credential.
		{`{"expiresInSeconds":60}`, jwtOf(nil), contracts.Principal{Scope: "user_alice", Role: contracts.RoleViewer, Expires: epoch.Add(time.Minute)}},
		{"", jwtOf(changes{"scope": "project-7"}), contracts.Principal{Scope: "project-7", Role: contracts.RoleViewer, Expires: epoch.Add(time.Hour)}},
	} {
		m := s.mint(t, tt.body, tt.by)
		tt.want.Name = cmp.Or(tt.want.Name, "guest")
		tt.want.ID, tt.want.SessionID, tt.want.Expires = "share_"+m.ShareID, "sess_a", tt.want.Expires.UTC()
		if p, err := present(s.Authenticator, m.Token); err != nil || p != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.body, p, err, tt.want)
		}
		if !strings.HasPrefix(m.Token, "mshare_") || len(m.Token) != len("mshare_")+43 || m.SessionID != "sess_a" || !m.ExpiresAt.Equal(tt.want.Expires) {
			t.Errorf("%s: got %+v", tt.body, m)
		}
		if _, err := s.Authorize(request("GET", socket, upgrade, sameOne, offer(m.Token))); err != nil {
			t.Errorf("%s: as a subprotocol: %v", tt.body, err)
		}
	}
}

func TestShareRequestIsChecked(t *testing.T) {
	s := newSharing(t)
	for _, tt := range []struct {
		body string
		want int
	}{
		{`{"role":"owner"}`, 400}, {`{"role":1}`, 400}, {`{"role":"Viewer"}`, 400},
		{`{"expiresInSeconds":0}`, 400}, {`{"expiresInSeconds":-1}`, 400}, {`{"expiresInSeconds":2592001}`, 400},
		{`{"expiresInSeconds":9223372036854775807}`, 400}, {`{"expiresInSeconds":9223372036854775808}`, 400}, {`{"expiresInSeconds":-9223372036854775808}`, 400},
		{`{"expiresInSeconds":1.5}`, 400}, {`{"expiresInSeconds":"60"}`, 400}, {`{"expiresInSeconds":60,"expiresInSeconds":61}`, 400},
		{`{"label":"` + strings.Repeat("x", 64) + `"}`, 200}, {`{"label":"` + strings.Repeat("x", 65) + `"}`, 400},
		{`{"label":"` + strings.Repeat("ä", 33) + `"}`, 400}, {`{"label":"a\nb"}`, 400}, {`{"label":"a\u0000b"}`, 400}, {`{"label":["x"]}`, 400},
		{"[]", 400}, {"{", 400}, {`{"x":"` + strings.Repeat("x", 4<<10) + `"}`, 413},
	} {
		if w := s.ask("POST", sharesPath, tt.body, bearer); w.Code != tt.want {
			t.Errorf("%.60s: got %d %s, want %d", tt.body, w.Code, w.Body, tt.want)
		}
	}
	r := request("POST", sharesPath, bearer, "Content-Type: text/plain")
	r.Body = httptest.NewRequest("POST", "/", strings.NewReader("{}")).Body
	if w := serve(s, r); w.Code != 400 {
		t.Errorf("form: got %d, want 400", w.Code)
	}
}

func TestOnlyControllersShare(t *testing.T) {
	s := newSharing(t)
	for _, role := range []string{"viewer", "controller"} {
		m := s.mint(t, `{"role":"`+role+`"}`)
		key := "Authorization: Bearer " + m.Token
		ticketed := func() string {
			r := request("POST", "/api/headless/ws-tickets", key)
			r.Body = http.NoBody
			var answer struct{ Ticket string }
			if err := json.Unmarshal(serve(s.Tickets(), r).Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			return answer.Ticket
		}
		cookie := "Cookie: " + cookieOf(t, serve(s.Login(), request("GET", "/login?ticket="+ticketed())))
		for name, headers := range map[string][]string{
			role + " share": {key}, role + " share's cookie": {cookie, sameOne},
			"viewer JWT": {jwtOf(changes{"role": "viewer"})}, "JWT for another session": {jwtOf(changes{"session_id": "sess_b"})},
		} {
			for _, ask := range [][2]string{{"POST", sharesPath}, {"GET", sharesPath}, {"DELETE", sharesPath + "/" + m.ShareID}} {
				if w := s.ask(ask[0], ask[1], "", headers...); w.Code != 403 {
					t.Errorf("%s: %s: got %d %s, want 403", name, ask[0], w.Code, w.Body)
				}
			}
		}
		if w := s.ask("GET", sharesPath+"?ticket="+ticketed(), ""); w.Code != 403 {
			t.Errorf("%s share's ticket: got %d, want 403", role, w.Code)
		}
	}
	if got := len(s.list(t, bearer)); got != 2 || len(s.revoked) != 0 {
		t.Errorf("got %d shares and %v revoked, want 2 and none", got, s.revoked)
	}
}

func TestSharingIsRefused(t *testing.T) {
	s := newSharing(t)
	m := s.mint(t, "")
	s.Authenticator.opts.Session = func(_ context.Context, _ contracts.Principal, session string) error {
		if session == "sess_x" {
			return &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}
		}
		return nil
	}
	for _, tt := range []struct {
		name, method, target string
		headers              []string
		want                 int
	}{
		{"no credential", "POST", sharesPath, nil, 401},
		{"wrong credential", "GET", sharesPath, []string{"Authorization: Bearer x"}, 401},
		{"strange page", "POST", sharesPath, []string{bearer, "Origin: https://evil.example"}, 403},
		{"strange page that reads", "GET", sharesPath, []string{bearer, "Origin: https://evil.example"}, 403},
		{"across sites", "DELETE", sharesPath + "/" + m.ShareID, []string{bearer, "Sec-Fetch-Site: cross-site"}, 403},
		{"another method", "PUT", sharesPath, []string{bearer}, 405},
		{"reading one", "GET", sharesPath + "/" + m.ShareID, []string{bearer}, 405},
		{"unknown session", "POST", "/api/headless/sessions/sess_x/shares", []string{bearer}, 404},
		{"odd session", "POST", "/api/headless/sessions/a%2Fb/shares", []string{bearer}, 400},
		{"unknown share", "DELETE", sharesPath + "/000000000000000000000000", []string{bearer}, 404},
		{"another session's share", "DELETE", "/api/headless/sessions/sess_b/shares/" + m.ShareID, []string{bearer}, 404},
		{"another scope's share", "DELETE", sharesPath + "/" + m.ShareID, []string{jwtOf(nil)}, 404},
		{"by its token", "DELETE", sharesPath + "/" + m.Token, []string{bearer}, 404},
		{"by its principal", "DELETE", sharesPath + "/share_" + m.ShareID, []string{bearer}, 404},
	} {
		if w := s.ask(tt.method, tt.target, "", tt.headers...); w.Code != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.want)
		}
	}
	if _, err := present(s.Authenticator, m.Token); err != nil || len(s.revoked) != 0 {
		t.Errorf("got %v and %v revoked, want the share to live", err, s.revoked)
	}
	off := newAuthenticator(t, Options{Off: true})
	r := request("POST", sharesPath)
	r.SetPathValue("id", "sess_a")
	if w := serve(off.Shares(), r); w.Code != 403 {
		t.Errorf("with authentication off: got %d, want 403", w.Code)
	}
}

func TestSharesAreListedWithoutTheirTokens(t *testing.T) {
	s := newSharing(t)
	if got := s.list(t, bearer); len(got) != 0 {
		t.Errorf("got %+v, want none", got)
	}
	first := s.mint(t, `{"label":"Bob"}`)
	s.clock.now = epoch.Add(time.Second)
	second := s.mint(t, `{"role":"controller"}`)
	s.mint(t, "", jwtOf(nil)) // of another scope
	w := s.ask("GET", sharesPath, "", bearer)
	want := `{"shares":[{"share_id":"` + first.ShareID + `","role":"viewer","label":"Bob","created_at":"2027-01-15T08:00:00.000Z","expires_at":"2027-01-16T08:00:00.000Z"},` +
		`{"share_id":"` + second.ShareID + `","role":"controller","created_at":"2027-01-15T08:00:01.000Z","expires_at":"2027-01-16T08:00:01.000Z"}]}` + "\n"
	if w.Body.String() != want || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %s, want %s", w.Body, want)
	}
	if got := s.list(t, jwtOf(nil)); len(got) != 1 {
		t.Errorf("another scope: got %+v, want its own", got)
	}
	s.clock.now = epoch.Add(24 * time.Hour)
	if got := s.list(t, bearer); len(got) != 1 || got[0].ShareID != second.ShareID {
		t.Errorf("a day later: got %+v, want the second", got)
	}
}

func TestSharesEndWithTheirSession(t *testing.T) {
	s := newSharing(t)
	first, second := s.mint(t, ""), s.mint(t, "")
	for _, other := range [][2]string{{"", "other"}, {"team", "sess_a"}} {
		if err := s.RevokeShares(other[0], other[1]); err != nil || len(s.list(t, bearer)) != 2 {
			t.Fatalf("%q: got %v and %v, want the shares of another session to stay", other, err, s.list(t, bearer))
		}
	}
	if err := s.RevokeShares("", "sess_a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, m := range []minted{first, second} {
			if _, err := present(s.Authenticator, m.Token); err == nil {
				t.Errorf("share %s is still of use", m.ShareID)
			}
		}
		s.restart(t)
	}
	if got, want := fmt.Sprint(s.revoked), fmt.Sprintf("[share_%s share_%s]", first.ShareID, second.ShareID); got != want {
		t.Errorf("got %s revoked, want %s", got, want)
	}
}

func TestRevokedShareIsOfNoUse(t *testing.T) {
	s := newSharing(t)
	kept, m := s.mint(t, ""), s.mint(t, "")
	p, err := present(s.Authenticator, m.Token)
	if err != nil {
		t.Fatal(err)
	}
	mintTicket := func() string {
		text, _, err := s.Mint(p, "", "", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ticket := mintTicket()
	cookie := "Cookie: " + cookieOf(t, serve(s.Login(), request("GET", "/login?ticket="+mintTicket())))
	if w := s.ask("DELETE", sharesPath+"/"+m.ShareID, "", bearer); w.Code != 200 || w.Body.String() != "{\"success\":true}\n" {
		t.Fatalf("got %d %s, want success", w.Code, w.Body)
	}
	if got := fmt.Sprint(s.revoked); got != "[share_"+m.ShareID+"]" {
		t.Errorf("got %s revoked, want the share's principal", got)
	}
	check := func(when string) {
		t.Helper()
		for name, headers := range map[string][]string{
			"token": {"Authorization: Bearer " + m.Token}, "subprotocol": {upgrade, sameOne, offer(m.Token)}, "cookie": {cookie},
		} {
			if _, err := s.Authorize(request("GET", socket, headers...)); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
				t.Errorf("%s, %s: got %v, want unauthenticated", when, name, err)
			}
		}
		if _, err := present(s.Authenticator, kept.Token); err != nil {
			t.Errorf("%s, the other: %v", when, err)
		}
	}
	check("at once")
	if s.Alive(p) || !s.Alive(s.owner) {
		t.Errorf("got alive %v and the owner %v, want the owner alone", s.Alive(p), s.Alive(s.owner))
	}
	if _, err := s.Authorize(request("GET", "/?ticket="+ticket)); err == nil {
		t.Error("its ticket still lets in")
	}
	if w := s.ask("DELETE", sharesPath+"/"+m.ShareID, "", bearer); w.Code != 404 || len(s.revoked) != 1 {
		t.Errorf("again: got %d and %v, want 404", w.Code, s.revoked)
	}
	s.restart(t)
	check("after a restart")
}

func TestSharesSurviveARestart(t *testing.T) {
	s := newSharing(t)
	long := s.mint(t, `{"expiresInSeconds":7200,"label":"a \"b\" é","role":"controller"}`, jwtOf(changes{"exp": inSeconds(86400), "scope": "p"}))
	short := s.mint(t, `{"expiresInSeconds":60}`)
	want, err := present(s.Authenticator, long.Token)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.opts.ShareFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []minted{long, short} {
		if strings.Contains(string(text), strings.TrimPrefix(m.Token, sharePrefix)) {
			t.Error("the token stands in the file")
		}
	}
	info, err := os.Stat(s.opts.ShareFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode().Perm(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(s.opts.ShareFile)); err != nil || len(files) != 1 {
		t.Errorf("got %v, %v, want the file alone", files, err)
	}
	s.clock.now = epoch.Add(time.Minute)
	s.restart(t)
	if p, err := present(s.Authenticator, long.Token); err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	if _, err := present(s.Authenticator, short.Token); err == nil || len(*s.shares.list.Load()) != 1 {
		t.Errorf("got %v and %d shares, want the expired one gone", err, len(*s.shares.list.Load()))
	}
	if got := s.list(t, jwtOf(changes{"exp": inSeconds(86400), "scope": "p"})); len(got) != 1 || got[0].Label != `a "b" é` || got[0].Role != "controller" {
		t.Errorf("got %+v, want the share", got)
	}
	s.mint(t, "")
	if text, err := os.ReadFile(s.opts.ShareFile); err != nil || strings.Contains(string(text), short.ShareID) {
		t.Errorf("the expired share is still in the file, %v", err)
	}
}

func TestShareExpires(t *testing.T) {
	s := newSharing(t)
	m := s.mint(t, `{"expiresInSeconds":60}`)
	for _, tt := range []struct {
		at time.Duration
		ok bool
	}{{time.Minute - 1, true}, {time.Minute, false}} {
		s.clock.now = epoch.Add(tt.at)
		if _, err := present(s.Authenticator, m.Token); (err == nil) != tt.ok {
			t.Errorf("after %v: got %v, want admission %v", tt.at, err, tt.ok)
		}
	}
	if w := s.ask("DELETE", sharesPath+"/"+m.ShareID, "", bearer); w.Code != 404 {
		t.Errorf("revoking it: got %d, want 404", w.Code)
	}
}

func TestSharesAreBounded(t *testing.T) {
	s := newSharing(t)
	s.shares.path = "" // a thousand files would take a while
	add := func(scope string) error {
		_, err := s.shares.mint(&share{Scope: scope, SessionID: "sess_a", Role: contracts.RoleViewer, CreatedAt: epoch, ExpiresAt: epoch.Add(time.Hour)}, s.clock.now)
		return err
	}
	for i := range maxSharesOfScope {
		if err := add("a"); err != nil {
			t.Fatalf("share %d: %v", i, err)
		}
	}
	if err := add("a"); !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
		t.Errorf("one more of a scope: got %v, want rate_limited", err)
	}
	for i := range maxShares - maxSharesOfScope {
		if err := add(fmt.Sprint("b", i%4)); err != nil {
			t.Fatalf("share %d: %v", i, err)
		}
	}
	if err := add("c"); !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
		t.Errorf("one more: got %v, want rate_limited", err)
	}
	if w := s.ask("POST", sharesPath, "", bearer); w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("over HTTP: got %d %v, want 429 and Retry-After", w.Code, w.Header())
	}
	s.clock.now = epoch.Add(time.Hour)
	if err := add("c"); err != nil || len(*s.shares.list.Load()) != 1 {
		t.Errorf("after all have expired: got %v and %d kept, want 1", err, len(*s.shares.list.Load()))
	}
}

func TestShareIsNotMintedIfItCannotBeKept(t *testing.T) {
	s := newSharing(t)
	m := s.mint(t, "")
	// A file in the place of the folder: the superuser could write any other.
	dir := filepath.Dir(s.opts.ShareFile)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if w := s.ask("POST", sharesPath, "", bearer); w.Code != 503 || strings.Contains(w.Body.String(), dir) || !strings.Contains(w.Body.String(), `"runtime_not_ready"`) {
		t.Errorf("minting: got %d %s, want 503 and a fixed text", w.Code, w.Body)
	}
	if got := len(s.list(t, bearer)); got != 1 {
		t.Errorf("got %d shares, want 1", got)
	}
	// Revoking works at once, and says that it will not last.
	if w := s.ask("DELETE", sharesPath+"/"+m.ShareID, "", bearer); w.Code != 503 || len(s.revoked) != 1 {
		t.Errorf("revoking: got %d and %v revoked, want 503 and the share", w.Code, s.revoked)
	}
	if got := s.log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "shares cannot be kept") {
		t.Errorf("got the log %q, want one line for both", got)
	}
	if _, err := present(s.Authenticator, m.Token); err == nil {
		t.Error("the revoked share still lets in")
	}
	if got := len(s.list(t, bearer)); got != 0 {
		t.Errorf("got %d shares, want none", got)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	if w := s.ask("DELETE", sharesPath+"/"+m.ShareID, "", bearer); w.Code != 200 {
		t.Errorf("revoking once more: got %d, want 200", w.Code)
	}
	s.restart(t)
	if _, err := present(s.Authenticator, m.Token); err == nil {
		t.Error("the revoked share came back")
	}
}

func TestUnfitShareFileIsRefused(t *testing.T) {
	const good = `{"id":"a","sha256":"` + "0000000000000000000000000000000000000000000000000000000000000000" + `","session_id":"s","role":"viewer","expires_at":"2099-01-01T00:00:00Z"}`
	file := func(shares string) string { return `{"version":1,"shares":[` + shares + `]}` }
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		ok            bool
	}{
		{"good", file(good), 0o600, true},
		{"no shares", file(""), 0o600, true},
		{"readable by all", file(good), 0o644, false},
		{"writable by the group", file(good), 0o620, false},
		{"empty", "", 0o600, false},
		{"half", file(good)[:100], 0o600, false},
		{"of the future", strings.Replace(file(good), `"version":1`, `"version":2`, 1), 0o600, false},
		{"no version", `{"shares":[]}`, 0o600, false},
		{"short hash", file(strings.Replace(good, "0000", "", 1)), 0o600, false},
		{"long hash", file(strings.Replace(good, "0000", "000000", 1)), 0o600, false},
		{"unknown role", file(strings.Replace(good, "viewer", "owner", 1)), 0o600, false},
		{"no role", file(strings.Replace(good, "viewer", "", 1)), 0o600, false},
		{"no session", file(strings.Replace(good, `"s"`, `""`, 1)), 0o600, false},
		{"odd session", file(strings.Replace(good, `"s"`, `"../s"`, 1)), 0o600, false},
		{"odd scope", file(strings.Replace(good, `"role"`, `"scope":"../s","role"`, 1)), 0o600, false},
		{"no end", file(strings.Replace(good, `,"expires_at":"2099-01-01T00:00:00Z"`, "", 1)), 0o600, false},
		{"too many", file(strings.TrimSuffix(strings.Repeat(good+",", maxShares+1), ",")), 0o600, false},
	} {
		_, err := New(Options{Token: token, ShareFile: writeFile(t, tt.content, tt.mode)})
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want acceptance %v", tt.name, err, tt.ok)
		}
	}
}

func TestSharesAreMintedByManyAtOnce(t *testing.T) {
	s := newSharing(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				w := s.ask("POST", sharesPath, "", bearer)
				var m minted
				if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 {
					t.Errorf("got %d %s", w.Code, w.Body)
					return
				}
				if _, err := present(s.Authenticator, m.Token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.restart(t)
	if got := len(s.list(t, bearer)); got != 32 {
		t.Errorf("got %d shares, want 32", got)
	}
}

// The list says how often a share was used, and when and from where last, also after a
// restart.
func TestUseOfSharesIsListed(t *testing.T) {
	s := newSharing(t)
	unused, used := s.mint(t, ""), s.mint(t, "")
	for i := range 3 {
		s.clock.now = epoch.Add(time.Duration(i) * time.Minute)
		r := request("GET", socket, "Authorization: Bearer "+used.Token)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:4711", i)
		if _, err := s.Authorize(r); err != nil {
			t.Fatal(err)
		}
	}
	r := request("GET", socket, "Authorization: Bearer "+used.Token+"x")
	if _, err := s.Authorize(r); err == nil {
		t.Fatal("a wrong token lets in")
	}
	check := func(when string) {
		t.Helper()
		var list contracts.ShareList
		w := s.ask("GET", sharesPath, "", bearer)
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Shares) != 2 {
			t.Fatalf("%s: got %s, %v, want two shares", when, w.Body, err)
		}
		never, often := list.Shares[0], list.Shares[1]
		if never.ShareID != unused.ShareID || never.Uses != 0 || never.LastUsedAt != "" || never.LastUsedFrom != "" {
			t.Errorf("%s: got %+v, want that it was never used", when, never)
		}
		if often.Uses != 3 || often.LastUsedAt != "2027-01-15T08:02:00.000Z" || often.LastUsedFrom != "192.0.2.2" {
			t.Errorf("%s: got %+v, want three uses, the last after two minutes from 192.0.2.2", when, often)
		}
	}
	check("at once")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	check("after a restart")
	third := s.mint(t, "")
	s.restart(t)
	if w := s.ask("DELETE", sharesPath+"/"+third.ShareID, "", bearer); w.Code != 200 {
		t.Fatalf("got %d, want that it is revoked", w.Code)
	}
	s.restart(t)
	check("after other shares have changed")
	if n := len(s.shares.usages.byID); n != 2 {
		t.Errorf("got usages of %d shares, want those of the live ones", n)
	}
}

func TestShareIsUsedByMany(t *testing.T) {
	s := newSharing(t)
	m := s.mint(t, "")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				if _, err := present(s.Authenticator, m.Token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if got := s.shares.usages.of(m.ShareID).Uses; got != 100 {
		t.Errorf("got %d uses, want 100", got)
	}
}
