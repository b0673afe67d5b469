package check_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/seed-028515a8/maestro/contracts"
)

// publicName is the name in the examples. The tests connect to loopback instead.
const publicName = "maestro.example"

// A site is a server behind a proxy, and a browser that may log in to it.
type site struct {
	server
	url     string // with the public name and the port of the proxy
	browser *http.Client
}

// browse returns a browser for a proxy at addr whose certificate is in the file.
func browse(t *testing.T, s server, addr, certificate string) *site {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	awaitTLS(t, addr)
	text, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("got no certificate in %s", certificate)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{server: s, url: "https://" + net.JoinHostPort(publicName, port), browser: &http.Client{
		Jar: jar, Transport: transport, CheckRedirect: stay,
	}}
}

// awaitTLS waits until a proxy has its certificate.
func awaitTLS(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: publicName, InsecureSkipVerify: true}) // only asks whether there is one
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// stay follows no redirect.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// request sends a request through the proxy. headers are names and values in turn.
func (s *site) request(t *testing.T, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// ask sends a request and reads the JSON of the answer, which must have the status.
func (s *site) ask(t *testing.T, status int, method, path, body string, headers ...string) (map[string]any, http.Header) {
	t.Helper()
	res := s.request(t, method, path, body, headers...)
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	answer := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || res.StatusCode != status {
		t.Fatalf("%s %s: got %d %.500s, %v, want %d and JSON", method, path, res.StatusCode, text, err, status)
	}
	return answer, res.Header
}

// attach opens a WebSocket as a page of the site does, and takes control.
func (s *site) attach(t *testing.T, origin string) (*websocket.Conn, error) {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), s.url+"/api/headless/ws?role=controller&takeControl=1", &websocket.DialOptions{
		HTTPClient: s.browser, HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{contracts.Subprotocol},
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 24)
	t.Cleanup(func() { _ = conn.CloseNow() })
	send(t, conn, `{"type":"hello","role":"controller","capabilities":{"server_requests":["approval"]}}`)
	return conn, nil
}

func send(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// until reads frames until one is of the type, also if it is the message in an envelope.
func until(t *testing.T, conn *websocket.Conn, kind string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var before string // the last frame
	for {
		var frame map[string]any
		if err := wsjson.Read(ctx, conn, &frame); err != nil {
			t.Fatalf("got %v, want %s; the last frame was %.1000s", err, kind, before)
		}
		if frame["type"] != "heartbeat" {
			before = fmt.Sprint(frame)
		}
		if message, ok := frame["message"].(map[string]any); ok {
			frame = message
		}
		if frame["type"] == kind {
			return frame
		}
	}
}

// stream opens a stream of events as a page of the site does. next returns the next envelope
// with the text.
func (s *site) stream(t *testing.T) (next func(text string)) {
	t.Helper()
	res := s.request(t, "GET", "/api/headless/sessions/main/events", "", "Accept", "text/event-stream", "Sec-Fetch-Site", "same-origin")
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		t.Fatalf("got %s %s, want 200 over HTTP/2", res.Proto, res.Status)
	}
	lines := bufio.NewReader(res.Body)
	return func(text string) {
		t.Helper()
		timer := time.AfterFunc(patience, func() { _ = res.Body.Close() })
		defer timer.Stop()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("got %v, want an event with %s", err, text)
			}
			if strings.HasPrefix(line, "data: ") && strings.Contains(line, text) {
				return
			}
		}
	}
}

// works uses the server as clients do, and fails if the proxy changes or stops something.
func (s *site) works(t *testing.T) {
	owner := []string{"Authorization", "Bearer " + s.token}
	if res := s.request(t, "GET", "/api/headless/sessions", ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("before the login: got %d, want 401", res.StatusCode)
	}
	ticket, _ := s.ask(t, http.StatusOK, "POST", "/api/headless/ws-tickets", `{"login":true}`, owner...)
	res := s.request(t, "GET", "/login?ticket="+ticket["ticket"].(string)+"&next=/", "")
	cookies := res.Cookies()
	if res.StatusCode != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].Secure || !cookies[0].HttpOnly {
		t.Fatalf("login: got %s and %v, want 303 and a secure cookie", res.Status, cookies)
	}
	s.ask(t, http.StatusOK, "GET", "/api/headless/sessions", "")
	if res := s.request(t, "GET", "/metrics", "", owner...); res.StatusCode != http.StatusNotFound {
		t.Errorf("metrics: got %d, want 404", res.StatusCode)
	}

	if _, err := s.attach(t, "https://evil.example"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a page of another site: got %v, want 403", err)
	}
	conn, err := s.attach(t, s.url)
	if err != nil {
		t.Fatal(err)
	}
	until(t, conn, "hello_ok")

	// The answer cannot go on before the question is answered, and that waits for the stream.
	events := s.stream(t)
	events(`"type":"snapshot"`)
	send(t, conn, `{"type":"prompt","content":"echo hello"}`)
	events(`"type":"server_request"`)
	question := until(t, conn, "server_request")
	answer, err := json.Marshal(map[string]any{
		"type": "server_request_response", "request_id": question["request_id"], "request_type": "approval", "approved": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	send(t, conn, string(answer))
	if out := until(t, conn, "tool_output"); out["content"] != "hello\n" {
		t.Errorf("got %v, want hello", out)
	}
	until(t, conn, "response_end")
	events(`"type":"response_end"`)

	// Nothing but heartbeats for a while, which come one by one.
	for range 3 {
		events(`"type":"heartbeat"`)
	}

	// A prompt of almost the largest size, on both transports; then too large ones.
	long := strings.Repeat("x", 1<<20-1024)
	send(t, conn, `{"type":"prompt","content":": `+long+`"}`)
	until(t, conn, "response_end") // the agent says that no command is so long
	page := []string{"Origin", s.url}
	attached, header := s.ask(t, http.StatusOK, "POST", "/api/headless/connections", `{"sessionId":"main","role":"controller","takeControl":true}`, page...)
	page = append(page, "X-Maestro-Headless-Connection-Id", attached["connection_id"].(string),
		"X-Maestro-Headless-Connection-Token", header.Get("X-Maestro-Headless-Connection-Token"))
	s.ask(t, http.StatusOK, "POST", "/api/headless/sessions/main/messages", `{"type":"prompt","content":": `+long+`"}`, page...)
	tooLong, _ := s.ask(t, http.StatusRequestEntityTooLarge, "POST", "/api/headless/sessions/main/messages", `{"type":"prompt","content":": `+long+long[:4096]+`"}`, page...)
	if tooLong["code"] != "payload_too_large" {
		t.Errorf("got %v, want the refusal of the server", tooLong)
	}
}

func TestCaddy(t *testing.T) {
	t.Parallel()
	s := serve(t, "--heartbeat-interval", "1s")
	addr, port := free(t)
	dir := t.TempDir()
	file := written(t, dir, "Caddyfile", "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"+
		adapted(t, "caddy/Caddyfile", publicName+" {", "https://"+publicName+":"+port+" {\n\tbind 127.0.0.1\n\ttls internal\n", "127.0.0.1:8787", s.addr))
	cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	start(t, "serving initial configuration", cmd)
	browse(t, s, addr, filepath.Join(dir, "caddy/pki/authorities/local/root.crt")).works(t)
}

func TestNginx(t *testing.T) {
	t.Parallel()
	s := serve(t, "--heartbeat-interval", "1s")
	addr, _ := free(t)
	plain, _ := free(t)
	dir := t.TempDir()
	certificate, key := selfSigned(t, dir)
	conf := written(t, dir, "maestro.conf", adapted(t, "nginx/maestro.conf", "127.0.0.1:8787", s.addr,
		"listen 443 ssl http2", "listen "+addr+" ssl http2", "listen 80;", "listen "+plain+";",
		"listen [::]:443 ssl http2;", "", "listen [::]:80;", "",
		"/etc/letsencrypt/live/maestro.example/fullchain.pem", certificate, "/etc/letsencrypt/live/maestro.example/privkey.pem", key))
	whole := "daemon off;\npid nginx.pid;\nerror_log stderr notice;\nworker_processes 1;\nevents {}\nhttp {\n\taccess_log off;\n"
	if os.Getuid() == 0 {
		whole = "user root;\n" + whole // the user that it is built with cannot read the directories of tests
	}
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		whole += "\t" + kind + "_temp_path " + kind + ";\n"
	}
	start(t, "start worker process ", exec.Command("nginx", "-e", "stderr", "-p", dir, "-c", written(t, dir, "nginx.conf", whole+"\tinclude "+conf+";\n}\n")))
	browse(t, s, addr, certificate).works(t)

	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+plain+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = publicName
	res, err := (&http.Client{CheckRedirect: stay}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got, want := res.Header.Get("Location"), "https://"+publicName+"/x"; res.StatusCode != http.StatusMovedPermanently || got != want {
		t.Errorf("got %d to %q, want 301 to %q", res.StatusCode, got, want)
	}
}

// TestTimeoutsOfProxiesFitTheServer compares the times in the examples with those of the
// server, which sends something on each connection once in a heartbeat, and closes
// connections between two requests after two minutes.
func TestTimeoutsOfProxiesFitTheServer(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Minute // --idle-timeout
	times := func(path, setting string) (all []time.Duration) {
		for _, found := range regexp.MustCompile(`(?m)^\s*`+setting+` (\w+);?$`).FindAllStringSubmatch(read(t, path), -1) {
			d, err := time.ParseDuration(found[1])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		if len(all) == 0 {
			t.Fatalf("%s: got no %s", path, setting)
		}
		return all
	}
	for _, d := range append(times("nginx/maestro.conf", "proxy_read_timeout"), times("nginx/maestro.conf", "proxy_send_timeout")...) {
		if d < 10*contracts.DefaultHeartbeatInterval {
			t.Errorf("nginx: got a timeout of %v, want much more than a heartbeat", d)
		}
	}
	for _, d := range append(times("nginx/maestro.conf", "keepalive_timeout"), times("caddy/Caddyfile", "keepalive")...) {
		if d >= idle {
			t.Errorf("got connections that are kept for %v, want less than %v", d, idle)
		}
	}
}

// selfSigned makes a certificate for the public name.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: publicName}, DNSNames: []string{publicName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return written(t, dir, "certificate.pem", encode("CERTIFICATE", der)), written(t, dir, "key.pem", encode("PRIVATE KEY", private))
}
