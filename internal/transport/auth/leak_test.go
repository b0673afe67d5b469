package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
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
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

// A sink is a log that many may write to.
type sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// leaked returns a part of secret that is in text, or the empty string.
func leaked(text, secret string) string {
	const part = 12
	for i := 0; i+part <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+part]) {
			return secret[i : i+part]
		}
	}
	return ""
}

// planted are the requests with a secret in each place that a client, or an
// attacker, could put it in. Each is all of a request but for Connection.
func planted(secret string) (requests []string) {
	encoded := b64([]byte(secret))
	add := func(format string, args ...any) {
		requests = append(requests, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\r\n"))
	}
	const host = "\nHost: localhost\n"
	paths := []string{"/login", "/who", "/control", "/logout", "/api/headless/ws-tickets", "/api/headless/whoami", "/api/headless/sessions/sess_a/shares"}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			start := method + " " + path
			for _, header := range []string{
				"Authorization: Bearer " + secret, "Authorization: " + secret, "Authorization: Basic " + secret, "authorization: bearer  " + secret + "x",
				"Authorization: Bearer " + secret + "\nAuthorization: Bearer x", "Authorization: Bearer " + secret + strings.Repeat("x", 9<<10),
				"X-Api-Key: " + secret, "X-Maestro-Api-Key: " + secret, "X-Composer-Api-Key: " + secret + "\nX-Maestro-Api-Key: x",
				"Cookie: maestro_session_8787=" + secret, "Cookie: maestro_session=" + secret + "; maestro_session=x", "Cookie: maestro_session=\"" + secret,
				"Cookie: maestro_session_8787=" + secret + "\nOrigin: http://localhost", "Cookie: " + secret,
				"Upgrade: websocket\nOrigin: http://localhost\nSec-WebSocket-Protocol: " + bearerProtocol + encoded,
				"Upgrade: websocket\nSec-WebSocket-Protocol: " + bearerProtocol + encoded + ", " + bearerProtocol + encoded,
				"Sec-WebSocket-Protocol: " + bearerProtocol + "!" + secret, "Sec-WebSocket-Protocol: " + secret,
				"Origin: " + secret, "Origin: https://" + secret, "Origin: http://localhost\nOrigin: " + secret, "Sec-Fetch-Site: " + secret,
				"Access-Control-Request-Method: " + secret + "\nOrigin: http://localhost", "Access-Control-Request-Headers: " + secret,
				"Content-Type: " + secret, "Last-Event-ID: " + secret, "Expect: " + secret, "Transfer-Encoding: " + secret, "Content-Length: " + secret,
				secret, secret + " : x", "X-" + secret + "\x00: x", "X-Long: " + secret + strings.Repeat("x", 40<<10),
			} {
				add("%s HTTP/1.1%s%s\n\n", start, host, header)
			}
			if method == "OPTIONS" {
				continue
			}
			for _, query := range []string{
				"ticket=" + secret, "ticket=" + secret + "&next=/", "ticket=" + secret + "&ticket=x", "ticket=" + secret + "%zz", "token=" + secret,
				"next=//" + secret, "ticket=" + secret + "&next=//evil.example", "next=https://" + secret + "&ticket=x", secret,
			} {
				add("%s?%s HTTP/1.1%s\n", start, query, host)
				add("%s?%s HTTP/1.1%sUpgrade: websocket\n\n", start, query, host)
				add("%s HTTP/1.1%s\n", strings.Replace(start, "/", "//", 1)+"?"+query, host)
			}
			for _, body := range []string{
				"{}", secret, `{"` + secret, `{"role":"` + secret + `"}`, `{"sessionId":"/` + secret + `"}`, `{"label":["` + secret + `"]}`,
				`{"label":"` + secret + strings.Repeat("x", 64) + `"}`, `{"expiresInSeconds":"` + secret + `"}`, `{"x":"` + secret + strings.Repeat("x", 5<<10) + `"}`,
			} {
				add("%s?ticket=%s HTTP/1.1%sAuthorization: Bearer %s\nContent-Type: application/json\nContent-Length: %d\n\n%s", start, secret, host, token, len(body), body)
			}
		}
		add("%s %s HTTP/1.1%s\n", secret, path, host)
		add("GET %s/%s HTTP/1.1%s\n", path, secret, host)
		add("DELETE %s/%s HTTP/1.1%sAuthorization: Bearer %s\n\n", path, secret, host, token)
		add("GET %s HTTP/1.1\nHost: %s\n\n", path, secret)
		add("GET %s HTTP/1.1\nHost: local host/%s\n\n", path, secret)
		add("GET %s HTTP/%s%s\n", path, secret, host)
		add("GET %s%%%s HTTP/1.1%s\n", path, secret, host)
	}
	return requests
}

func TestSecretsAreInNoAnswerAndNoLog(t *testing.T) {
	out := &sink{}
	dir := filepath.Join(t.TempDir(), "state")
	g, err := New(Options{
		Token: token, ControlToken: controlToken, Keys: loadKeys(t, secretKey), ShareFile: filepath.Join(dir, "shares"),
		RateLimit: ratelimit.New(ratelimit.Options{RequestRate: -1, FailureRate: -1}),
		Log:       slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	who := func(w http.ResponseWriter, r *http.Request) {
		p, err := g.Authorize(r)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		_ = json.NewEncoder(w).Encode(p)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/who", who)
	mux.HandleFunc("/control", func(w http.ResponseWriter, r *http.Request) {
		if err := g.Control(r); err != nil {
			g.fail(w, r, err)
		}
	})
	mux.Handle("/login", g.Login())
	mux.Handle("/logout", g.Logout())
	mux.Handle("/api/headless/ws-tickets", g.Tickets())
	mux.Handle("/api/headless/whoami", g.WhoAmI())
	mux.Handle("/api/headless/sessions/{id}/shares", g.Shares())
	mux.Handle("/api/headless/sessions/{id}/shares/{share_id}", g.Shares())
	server := httptest.NewUnstartedServer(g.Wrap(mux))
	server.Config.ErrorLog = log.New(out, "", 0)
	server.Config.MaxHeaderBytes = 32 << 10
	server.Start()
	defer server.Close()

	share := &share{SessionID: "sess_a", Role: contracts.RoleController, CreatedAt: time.Now().UTC(), ExpiresAt: time.Now().UTC().Add(time.Hour)}
	shareToken, err := g.shares.mint(share, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signed := sign(jwt.SigningMethodHS256, []byte(secretKey), changes{"exp": time.Now().Add(time.Hour).Unix(), "iat": nil}, nil)
	_, cookie, _ := strings.Cut(login(t, g), "maestro_session_8787=")
	ticket := mint(t, g, "", "", "")

	// With its folder gone, what would be kept fails, so that there is a log.
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{
		"token": token, "control token": controlToken, "share": shareToken, "JWT": signed, "ticket": ticket, "cookie": cookie,
		"API key": "not-the-right-api-key-0123456789",
	}
	statuses := map[string]int{}
	for name, secret := range secrets {
		for _, request := range planted(secret) {
			answer := exchange(t, server.Listener.Addr().String(), request)
			if len(answer) >= 12 {
				statuses[answer[9:12]]++
			}
			for _, s := range []string{secret, b64([]byte(secret))} {
				if part := leaked(answer, s); part != "" {
					t.Errorf("%s: got %q in the answer to %.200q:\n%.500s", name, part, request, answer)
				}
			}
		}
	}
	for _, status := range []string{"200", "204", "303", "400", "401", "403", "404", "405", "413", "431", "503"} {
		if statuses[status] == 0 {
			t.Errorf("got no answer %s of %v, want each kind", status, statuses)
		}
	}
	logged := out.String()
	if !strings.Contains(logged, "shares cannot be kept") {
		t.Errorf("got the log %q, want faults in it", logged)
	}
	for name, secret := range secrets {
		if part := leaked(logged, secret) + leaked(logged, b64([]byte(secret))); part != "" {
			t.Errorf("%s: got %q in the log", name, part)
		}
	}
}

// exchange sends a request as it is and returns all of the answer.
func exchange(t *testing.T, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	// The server may refuse and close before it has read all. The end of the
	// request is for one that waits for more.
	_, _ = io.WriteString(conn, strings.Replace(request, "\r\nHost:", "\r\nConnection: close\r\nHost:", 1))
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	return string(answer)
}
