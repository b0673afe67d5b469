package hecate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

const pollGap = 5 * time.Millisecond // leaves the processor to what is waited for

// script is what the sessions of a test do for a prompt.
const script = `{"keeps_questions": true, "prompts": [
	{"match": "hello", "steps": [{"say": "Hello, world."}, {"usage": {"input_tokens": 10, "output_tokens": 5}}]},
	{"match": "gated", "steps": [{"say": "I need it."}, {"tool": {"name": "bash", "args": {"command": "true"}, "output": "done\n", "gated": true}}, {"say": "Over."}]},
	{"match": "slow", "steps": [{"say": "Begun."}, {"tool": {"name": "bash", "args": {"command": "true"}, "output": "x\n"}}, {"delay_ms": 60000}]},
	{"match": "asks", "steps": [{"ask": {"type": "approval", "tool": "bash", "args": {"command": "true"}, "reason": "because", "timeout_ms": 100}}]},
	{"match": "secret", "steps": [{"say": "The value is hunter2-hunter2 ."}, {"tool": {"name": "bash", "args": {"command": "echo hunter2-hunter2"}, "output": "hunter2-hunter2\n", "gated": true}}]},
	{"match": "big", "steps": [{"repeat": {"times": 150, "steps": [{"tool": {"name": "bash", "args": {"command": "true"}, "output": "LONG"}}]}}]},
	{"match": "many", "steps": [{"repeat": {"times": 40, "steps": [{"tool": {"name": "bash", "args": {"command": "true"}, "output": "some output of a tool\n"}}]}}]}
], "default": [{"say": "Done."}]}`

// A world is a server of logs with real sessions.
type world struct {
	t       testing.TB
	dir     string // empty keeps all in memory
	hubs    *hub.Directory
	logs    *hecate.Server
	web     *httptest.Server
	limiter *connlimit.Limiter
	options hecate.Options
	store   func(journal.Store) journal.Store // changes the stores of sessions; nil leaves them
	votes   []hub.VoteRule                    // of sessions that are opened from now on
}

type source struct{ *hub.Hub }

func (s source) Follow(epoch string, cursor uint64) hecate.Follower {
	return s.Hub.Follow(epoch, cursor)
}

func newWorld(t testing.TB, change func(*hecate.Options)) *world {
	w := &world{t: t, dir: t.TempDir()}
	if change != nil {
		change(&w.options)
	}
	w.start()
	t.Cleanup(w.end)
	return w
}

func (w *world) start() {
	file := filepath.Join(w.dir, "script.json")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(script, "LONG", strings.Repeat("0123456789abcde ", 4000))), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.hubs = &hub.Directory{}
	w.hubs.Open = func(ctx context.Context, key hub.Key, _ hub.OpenOptions) (*hub.Hub, error) {
		store, err := journal.Open(filepath.Join(w.dir, key.Scope, "s-"+key.ID), journal.FileOptions{})
		if err != nil {
			return nil, err
		}
		history := journal.Store(store)
		if w.store != nil {
			history = w.store(history)
		}
		a, err := agent.Open("script:"+file, agent.Options{Dir: w.dir, SessionID: key.ID})
		if err != nil {
			return nil, err
		}
		h, err := hub.New(hub.Options{SessionID: key.ID, Cwd: "/", Agent: a, Store: history, Votes: w.votes})
		if err == nil {
			err = h.Start(ctx)
		}
		if err == nil {
			w.logs.Opened(key.Scope, source{h})
		}
		return h, err
	}
	w.limiter = connlimit.New(connlimit.Options{})
	o := w.options
	o.Dir = func(scope string) string { return filepath.Join(w.dir, scope) }
	o.Streams = sse.New(sse.Options{ConnLimit: w.limiter, WriteTimeout: 5 * time.Second})
	o.Authorize = func(r *http.Request) (p contracts.Principal, err error) {
		p.ID = "owner"
		if text := r.Header.Get("X-Principal"); text != "" {
			err = json.Unmarshal([]byte(text), &p)
		}
		if p.ID == "" {
			err = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "who?"}
		}
		return p, err
	}
	hubs := w.hubs
	o.Find = func(ctx context.Context, p contracts.Principal, id string) (hecate.Source, error) {
		h, _, err := hubs.Get(ctx, hub.Key{Scope: p.Scope, ID: id}, hub.OpenOptions{Create: true})
		return source{h}, err
	}
	var err error
	if w.logs, err = hecate.New(o); err != nil {
		w.t.Fatal(err)
	}
	mux := http.NewServeMux()
	w.logs.Routes(mux)
	w.web = httptest.NewUnstartedServer(mux)
	w.limiter.Guard(w.web.Config)
	w.web.Start()
}

// stop ends all as the process does when it is asked to.
func (w *world) stop() { w.stopIn(w.hubs.Suspend, w.limiter.Close, w.logs.Close) }

func (w *world) stopIn(order ...func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, end := range order {
		if err := end(ctx); err != nil {
			w.t.Error(err)
		}
	}
	w.web.Close()
}

func (w *world) end() { w.stop() }

func (w *world) restart() {
	w.stop()
	w.start()
}

func (w *world) open(scope, id string) *hub.Hub {
	w.t.Helper()
	h, _, err := w.hubs.Get(context.Background(), hub.Key{Scope: scope, ID: id}, hub.OpenOptions{Create: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// prompt sends a prompt to a session of the owner.
func (w *world) prompt(id, content string) { w.promptIn("", id, content) }

func (w *world) promptIn(scope, id, content string) {
	w.t.Helper()
	h := w.open(scope, id)
	for late := time.Now().Add(patience); ; time.Sleep(pollGap) {
		err := w.try(h, content)
		if err == nil {
			return
		}
		if time.Now().After(late) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) try(h *hub.Hub, content string) error {
	answer, token, err := h.Connect(&contracts.AttachRequest{}, contracts.Caller{Principal: contracts.Principal{ID: "owner"}, Role: contracts.RoleController})
	if err != nil {
		return err
	}
	by := contracts.Caller{Principal: contracts.Principal{ID: "owner"}, ConnectionID: answer.ConnectionID, Token: token}
	err = h.Post(fmt.Appendf(nil, `{"type":"prompt","content":%q}`, content), "", by, func([]byte) {})
	_, left := h.Disconnect(by)
	if err == nil {
		err = left
	}
	return err
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (w *world) request(method, path, body string, header ...string) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+"/hecate/v1"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.web.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, text}
}

// get returns the body of an answer with status 200.
func (w *world) get(path string, into any, header ...string) []byte {
	w.t.Helper()
	a := w.request("GET", path, "", header...)
	if a.status != http.StatusOK {
		w.t.Fatalf("%s: got %d %s, want 200", path, a.status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			w.t.Fatal(err)
		}
	}
	return a.body
}

// refuses checks the status and the type of a refusal.
func (w *world) refuses(method, path, body string, status int, kind string, header ...string) {
	w.t.Helper()
	a := w.request(method, path, body, header...)
	var refusal struct {
		Error struct{ Type, Message string }
	}
	if err := json.Unmarshal(a.body, &refusal); err != nil || a.status != status || refusal.Error.Type != kind || refusal.Error.Message == "" {
		w.t.Errorf("%s %s: got %d %s, want %d with type %s", method, path, a.status, a.body, status, kind)
	}
}

// A page is the body of a list of events.
type page struct {
	Object string
	Data   []json.RawMessage
	Next   *uint64 `json:"next_after_sequence"`
	More   bool    `json:"has_more"`
	First  uint64  `json:"first_available_sequence"`
}

func (p *page) events(t testing.TB) (all []wire.Event) {
	t.Helper()
	for _, line := range p.Data {
		ev, err := wire.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ev)
	}
	return all
}

type runInfo struct {
	ID, Status string
	Task       string `json:"task_id"`
	Last       uint64 `json:"last_sequence"`
}

// task returns the task of a session.
func (w *world) task(session string, header ...string) string {
	w.t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(pollGap) {
		var tasks struct {
			Data []struct {
				ID      string
				Session string `json:"maestro_session_id"`
			}
		}
		w.get("/tasks", &tasks, header...)
		for _, one := range tasks.Data {
			if one.Session == session {
				return one.ID
			}
		}
	}
	w.t.Fatalf("session %s has no task", session)
	return ""
}

// run returns the newest of at least n runs of a session when it has a status; an empty
// status is any.
func (w *world) run(session string, n int, status string) (path string, r runInfo) {
	w.t.Helper()
	task := w.task(session)
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(pollGap) {
		var runs struct{ Data []runInfo }
		w.get("/tasks/"+task+"/runs", &runs)
		if len(runs.Data) >= n && (status == "" || runs.Data[0].Status == status) {
			return "/tasks/" + task + "/runs/" + runs.Data[0].ID, runs.Data[0]
		}
	}
	w.t.Fatalf("session %s has no %s run %d", session, status, n)
	return "", r
}

// until reads a run until it has an event of a type.
func (w *world) until(path, kind string) []wire.Event {
	w.t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(pollGap) {
		var p page
		w.get(path+"/events?limit=500", &p)
		all := p.events(w.t)
		for _, ev := range all {
			if ev.Type == kind {
				return all
			}
		}
	}
	w.t.Fatalf("%s has no %s", path, kind)
	return nil
}

// A stream is an open stream of events.
type stream struct {
	t    testing.TB
	res  *http.Response
	text *bufio.Reader
	stop context.CancelFunc
}

func (w *world) stream(path string, header ...string) *stream {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", w.web.URL+"/hecate/v1"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.web.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { stop(); _ = res.Body.Close() })
	return &stream{w.t, res, bufio.NewReader(res.Body), stop}
}

// A block is one event of a stream, or a comment.
type block struct {
	id, data, comment, retry string
}

// next returns the next block; ok is false at the end.
func (s *stream) next() (b block, ok bool) {
	for {
		line, err := s.text.ReadString('\n')
		if err != nil {
			return b, false
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			return b, true
		case strings.HasPrefix(line, ":"):
			b.comment = line
		case name == "id":
			b.id = value
		case name == "data":
			b.data = value
		case name == "retry":
			b.retry = value
		default:
			s.t.Errorf("got the line %q in a stream", line)
		}
	}
}

// event returns the next event and its id; nil at the end.
func (s *stream) event() (id string, ev *wire.Event) {
	for {
		b, ok := s.next()
		if !ok {
			return "", nil
		}
		if b.data != "" {
			ev, err := wire.Parse([]byte(b.data))
			if err != nil {
				s.t.Fatal(err)
			}
			return b.id, &ev
		}
	}
}

func lines(p page) []byte {
	var all [][]byte
	for _, line := range p.Data {
		all = append(all, line)
	}
	return bytes.Join(all, []byte{'\n'})
}

func kinds(all []wire.Event) (list []string) {
	for _, ev := range all {
		list = append(list, ev.Type)
	}
	return list
}

type contractsPrincipal = contracts.Principal

// task0 makes the log of the owner.
func (w *world) task0() { w.get("/tasks", nil) }

// crash ends everything and puts another history in the place of a session.
func (w *world) crash(id string) {
	w.t.Helper()
	w.stopIn(w.logs.Close, w.hubs.Suspend, w.limiter.Close) // the logs do not see how runs end
	if err := os.RemoveAll(filepath.Join(w.dir, "s-"+id)); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}
