package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/internal/testkit/built"
)

const patience = time.Minute // for one step of a test

// blocks returns the code blocks of build-a-client.md with a language. Frames have none.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	page, err := os.ReadFile("build-a-client.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if b[1] == language {
			all = append(all, b[2])
		}
	}
	if len(all) == 0 {
		t.Fatalf("got no %q block in build-a-client.md", language)
	}
	return all
}

// dedent removes the indentation that all lines share.
func dedent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	least := -1
	for _, l := range lines {
		if indent := len(l) - len(strings.TrimLeft(l, " \t")); l != "" && (least < 0 || indent < least) {
			least = indent
		}
	}
	for i, l := range lines {
		lines[i] = l[min(max(least, 0), len(l)):]
	}
	return strings.Join(lines, "\n")
}

// TestClientPageQuotesTheExamples looks for each block of code in the example that CI runs.
func TestClientPageQuotesTheExamples(t *testing.T) {
	for language, paths := range map[string][]string{
		"js": {"../examples/browser/index.html", "../web/e2e/example.test.mjs"}, "go": {"../examples/go/main.go"},
	} {
		var lines []string
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, strings.Split(string(text), "\n")...)
		}
		for _, quote := range blocks(t, language) {
			length := strings.Count(strings.TrimRight(quote, "\n"), "\n") + 1
			found := false
			for i := range len(lines) - length + 1 {
				found = found || dedent(strings.Join(lines[i:i+length], "\n")) == dedent(quote)
			}
			if !found {
				t.Errorf("%s do not have these lines:\n%s", paths, quote)
			}
		}
	}
}

// A service is the program that was built, with the script that the page names.
type service struct {
	t                *testing.T
	args             []string
	cmd              *exec.Cmd
	url, token, path string
}

func startService(t *testing.T) *service {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "maestro")
	if err := built.Maestro(binary); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &service{t: t, path: binary, url: "http://127.0.0.1:0", args: []string{
		"serve", "--agent", "script:../examples/scripts/ask.json", "--pages", "../examples/browser",
		"--workspace", dir, "--state-dir", filepath.Join(dir, "state"), "--ready-stdout", "--log-level", "error",
	}}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start starts the server, on the same port as before.
func (s *service) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.path, append(s.args, "--listen", strings.TrimPrefix(s.url, "http://"))...)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct{ BaseURL, TokenFile string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		s.t.Fatalf("got %v and %q, want the ready line", err, line)
	}
	s.url, s.token = ready.BaseURL, ready.TokenFile
}

// kill ends the server at once.
func (s *service) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

// TestClientPageShowsWhatTheServerSends plays the frames of the page, in their order, as one
// conversation with a server.
func TestClientPageShowsWhatTheServerSends(t *testing.T) {
	t.Parallel()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{
		t: t, service: startService(t), sockets: map[string]*socket{}, real: map[string]string{}, shown: map[string]string{},
		http: &http.Client{Jar: jar, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	played := 0
	for _, block := range blocks(t, "") {
		if !actor.MatchString(strings.SplitN(block, "\n", 2)[0]) {
			continue // a command
		}
		for line := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(block, "\n    ", "")), "\n") {
			p.line(line)
			played++
		}
	}
	if played < 50 {
		t.Errorf("got %d lines of frames in the page, want them all", played)
	}
}

// A play is the conversation of the page.
type play struct {
	t       *testing.T
	service *service
	http    *http.Client
	answer  string             // to the last request: its status and the body or the Location
	sockets map[string]*socket // by the name of the client

	real, shown map[string]string // ids as the server chose them, by those in the page, and the other way round
}

// A socket is the WebSocket of one client.
type socket struct {
	conn  *websocket.Conn
	skips bool // frames may come before the next one that the page shows
}

var actor = regexp.MustCompile(`^(?:(\w+) )?(->|<-|\.\.\.|--) ?(.*)$`)

// line plays one line. After "->" is a frame or a request of a client, and after "<-" the frame or
// the answer that must come. "..." stands for frames that the page leaves out, and "--" comes before
// an event of the network.
func (p *play) line(line string) {
	p.t.Helper()
	m := actor.FindStringSubmatch(line)
	if m == nil {
		p.t.Fatalf("%s: is no line of a conversation", line)
	}
	who, what, rest := m[1], m[2], m[3]
	s := p.sockets[who]
	switch method, target, _ := strings.Cut(p.fill(rest), " "); {
	case what == "...":
		s.skips = true
	case rest == "the network fails":
		_ = s.conn.CloseNow() // without a word
	case what == "--":
		p.t.Fatalf("%s: is nothing that a test can do", line)
	case what == "->" && method == "GET" && strings.HasPrefix(target, "/api/headless/ws"):
		p.sockets[who] = p.dial(target)
	case what == "->" && (method == "GET" || method == "POST"):
		p.request(method, target)
	case what == "->":
		if err := s.conn.Write(p.within(), websocket.MessageText, []byte(p.fill(rest))); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
	case rest[0] == '{':
		p.expect(s, rest)
	case method == "close":
		_, text, err := s.conn.Read(p.within())
		closed, ok := errors.AsType[websocket.CloseError](err)
		if got := strings.TrimSpace(fmt.Sprint(int(closed.Code), " ", closed.Reason)); !ok || got != target {
			p.t.Fatalf("got %s %v %s, want the close %s", text, err, got, target)
		}
	default:
		status, body, _ := strings.Cut(rest, " ")
		gotStatus, got, _ := strings.Cut(p.answer, " ")
		if status != gotStatus || body != got && p.differs(body, got) != "" {
			p.t.Fatalf("got %s, want %s: %s", p.answer, rest, p.differs(body, got))
		}
	}
}

func (p *play) within() context.Context {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	p.t.Cleanup(cancel)
	return ctx
}

// fill replaces the ids of the page by those of the server.
func (p *play) fill(line string) string {
	for _, shown := range slices.SortedFunc(maps.Keys(p.real), func(a, b string) int { return len(b) - len(a) }) {
		line = strings.ReplaceAll(line, shown, p.real[shown])
	}
	return line
}

// dial opens a socket as a page in a browser does: with the cookie.
func (p *play) dial(target string) *socket {
	p.t.Helper()
	conn, _, err := websocket.Dial(p.within(), p.service.url+target, &websocket.DialOptions{
		HTTPClient: p.http, HTTPHeader: http.Header{"Origin": {p.service.url}}, Subprotocols: []string{"maestro-headless.2026-04-02"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	return &socket{conn: conn}
}

// request makes a request with the token, or with the cookie once there is one.
func (p *play) request(method, target string) {
	p.t.Helper()
	target, body, _ := strings.Cut(target, " ")
	req, err := http.NewRequestWithContext(p.within(), method, p.service.url+target, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := os.ReadFile(p.service.token)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if len(p.http.Jar.Cookies(req.URL)) == 0 {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := p.http.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	p.answer = fmt.Sprint(res.StatusCode, " ", res.Header.Get("Location")+strings.TrimSpace(string(text)))
}

// expect reads the frame that the page shows. Heartbeats may come at any time.
func (p *play) expect(s *socket, want string) {
	p.t.Helper()
	var differences strings.Builder
	for {
		_, got, err := s.conn.Read(p.within())
		if err != nil {
			p.t.Fatalf("got %v, want %s%s", err, want, &differences)
		}
		if bytes.HasPrefix(got, []byte(`{"type":"heartbeat"`)) {
			continue
		}
		difference := p.differs(want, string(got))
		p.t.Logf("%s", got)
		if difference == "" {
			s.skips = false
			return
		}
		fmt.Fprintf(&differences, "\ngot %s: %s", got, difference)
		if !s.skips {
			p.t.Fatalf("want %s%s", want, &differences)
		}
	}
}

var elided = strings.NewReplacer(`, ...}`, `,"...":0}`, `{...}`, `{"...":0}`, `[...]`, `["..."]`)

// differs says how a text that came differs from that of the page. "..." in the page stands for
// members of an object that the page leaves out. Ids and times may be others.
func (p *play) differs(want, got string) string {
	var w, g any
	if err := errors.Join(json.Unmarshal([]byte(elided.Replace(want)), &w), json.Unmarshal([]byte(got), &g)); err != nil {
		return err.Error()
	}
	found := map[string]string{}
	if difference := p.compare("", w, g, found); difference != "" {
		return difference
	}
	for shown, real := range found { // remembered only if the whole text agrees
		p.real[shown], p.shown[real] = real, shown
	}
	return ""
}

// Members whose values the server chooses: ids, which are the same wherever they are in the page,
// and times and lengths of time.
var (
	chosen = regexp.MustCompile(`(^|_)id$|^connection_token$|^epoch$|^digest$|^principal$|^ticket$`)
	timed  = regexp.MustCompile(`_at$|^timestamp$|_ms$`)
)

func (p *play) compare(key string, want, got any, found map[string]string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		_, some := w["..."]
		if !ok || !some && len(w) != len(g) {
			return fmt.Sprintf("%s has other members", key)
		}
		for name, value := range w {
			if name == "..." {
				continue
			}
			other, ok := g[name]
			if !ok {
				return fmt.Sprintf("%s has no %s", key, name)
			}
			if difference := p.compare(name, value, other, found); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if ok && len(w) == 1 && w[0] == "..." {
			return ""
		}
		if !ok || len(w) != len(g) {
			return fmt.Sprintf("%s has other elements", key)
		}
		for i := range w {
			if difference := p.compare(key, w[i], g[i], found); difference != "" {
				return difference
			}
		}
		return ""
	case string:
		g, ok := got.(string)
		if ok && chosen.MatchString(key) && w != g {
			if real, known := p.real[w]; known && real != g || !known && p.shown[g] != "" {
				return fmt.Sprintf("%s is another one than %s, which is %s", key, w, real)
			}
			found[w] = g
			return ""
		}
		if ok && timed.MatchString(key) {
			return ""
		}
	case float64:
		if _, ok := got.(float64); ok && timed.MatchString(key) && key != "heartbeat_interval_ms" {
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %v", key, got)
	}
	return ""
}

// TestGoExampleChats runs the program whose lines the page quotes.
func TestGoExampleChats(t *testing.T) {
	t.Parallel()
	s := startService(t)
	program := filepath.Join(t.TempDir(), "chat")
	if out, err := exec.Command("go", "build", "-o", program, "../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ann := startChat(t, program, s)
	ann.waits("in control: true")
	ann.says("run a test")
	ann.waits("> run a test\nI run the tests.\n? bash {\"command\":\"go test ./...\"}\n")
	ann.says("y")
	ann.waits("-- approved\nok\nThey pass.\n")
	ann.says("ask me")
	ann.waits("Which clock?")
	ann.says("UTC")
	ann.waits("-- answered\nI use the clock that you chose.\n")

	ben := startChat(t, program, s)
	ben.waits("in control: false")
	ben.waits("I use the clock that you chose.\n") // the history
	ben.says("hello")
	ben.waits("-- refused: ")
	ben.says("/ask")
	ann.waits("-- somebody asks for control: ")
	ann.says(ann.word())
	ben.waits("-- in control: true")
	ann.waits("-- in control: false")
	ben.says("count")
	ben.waits("\n1 2 3 ")

	s.kill()
	ben.waits("-- connection lost, trying again")
	s.start()
	ben.waits("-- connected, in control: true")
	ben.says("hello")
	ben.waits("> hello\nAsk me to test something, to ask you something, or to count.\n")
	ann.waits("> hello\n")
	ben.ends(0)
	ann.ends(0)

	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte(strings.Repeat("wrong", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.token = wrong
	eve := startChat(t, program, s)
	eve.waits("log in again, the token is not valid any more: ")
	eve.ends(1)
}

// A chat is a process of the example in Go.
type chat struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChat(t *testing.T, program string, s *service) *chat {
	t.Helper()
	c := &chat{t: t, cmd: exec.CommandContext(t.Context(), program, s.url, s.token)}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = c.cmd.Stdout
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	c.in, c.out = in, bufio.NewReader(out)
	return c
}

func (c *chat) says(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// waits reads until the program has written a text.
func (c *chat) waits(text string) {
	c.t.Helper()
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	var got strings.Builder
	for !strings.HasSuffix(got.String(), text) {
		b, err := c.out.ReadByte()
		if err != nil {
			c.t.Fatalf("got %q and %v, want %q", got.String(), err, text)
		}
		got.WriteByte(b)
	}
}

// word reads the rest of the line.
func (c *chat) word() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// ends ends the input and waits for the program.
func (c *chat) ends(code int) {
	c.t.Helper()
	if err := c.in.Close(); err != nil {
		c.t.Fatal(err)
	}
	text, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = c.cmd.Wait()
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("got exit code %d, want %d: %s", got, code, text)
	}
}

// TestBrowserExampleHasTypes checks the script in the page with the types that clients get.
func TestBrowserExampleHasTypes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../examples/browser/index.html")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile(`(?s)<script type="module">\n(.*?)</script>`).FindAllSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("got %d scripts, want one", len(scripts))
	}
	types, err := filepath.Abs("../contracts/ts")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "page.js")
	text := bytes.ReplaceAll(scripts[0][1], []byte("../../contracts/ts"), []byte(types))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(types, "node_modules", "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Fatalf("%v: run make others", err)
	}
	cmd := exec.Command("node", tsc, "--strict", "--allowJs", "--checkJs", "--noEmit", "--target", "es2022",
		"--lib", "es2023,dom,dom.iterable", "--module", "es2022", "--moduleResolution", "bundler", "--moduleDetection", "force", file)
	cmd.Dir = filepath.Dir(file) // away from the types of other packages
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}
