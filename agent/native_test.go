//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// services are the forms that models are spoken to in.
var services = []string{"anthropic", "openai", "openai-chat"}

// A nativeSession is a native agent with a host around it.
type nativeSession struct {
	t     *testing.T
	host  *hosttest.Host
	agent contracts.Agent
}

// nativeOn starts an agent on the model at url.
func nativeOn(t *testing.T, service, url string, o Options) *nativeSession {
	t.Helper()
	o.ModelURL, o.Shell = url, "/bin/sh"
	a, err := Open("llm:"+service+"/local", o)
	hosttest.Must(t, err)
	s := &nativeSession{t: t, host: hosttest.New(t), agent: a}
	_, err = a.Start(t.Context(), s.host)
	hosttest.Must(t, err)
	t.Cleanup(func() { hosttest.Must(t, a.Close(context.Background())) })
	return s
}

// prompt has the agent work, and closes what it leaves open as the hub does.
func (s *nativeSession) prompt(text string) error {
	err := s.agent.Run(s.t.Context(), contracts.Work{Content: text})
	response, calls := "", map[string]bool{}
	for _, ev := range s.host.Shown() {
		switch e := ev.(type) {
		case *contracts.ResponseStart:
			response = e.ResponseID
		case *contracts.ResponseEnd:
			response = ""
		case *contracts.ToolCall:
			calls[e.CallID] = true
		case *contracts.ToolEnd:
			delete(calls, e.CallID)
		}
	}
	if len(calls) > 0 {
		s.t.Errorf("%q left the calls %v without an end", text, calls)
	}
	if response != "" {
		if err == nil {
			s.t.Errorf("%q left a response open without an error", text)
		}
		hosttest.Must(s.t, s.host.Publish(s.t.Context(), &contracts.ResponseEnd{ResponseID: response}))
	}
	return err
}

// answers returns the texts of the answers, without reasoning.
func (s *nativeSession) answers() []string {
	var ids []string
	texts := map[string]string{}
	for _, chunk := range hosttest.As[*contracts.ResponseChunk](s.host) {
		if chunk.IsThinking {
			continue
		}
		if texts[chunk.ResponseID] == "" {
			ids = append(ids, chunk.ResponseID)
		}
		texts[chunk.ResponseID] += chunk.Content
	}
	var all []string
	for _, id := range ids {
		all = append(all, texts[id])
	}
	return all
}

// The task's prompts, and its last words.
const (
	taskPrompt = "Do the task."
	taskGoOn   = "Go on with the task."
	taskDone   = "The task is done."
)

// taskTurns are turns in which a model writes, reads, searches, edits and runs
// something, and a last one without a call. Each of them says which it is.
func taskTurns(t testing.TB, count int) []localmodel.Turn {
	turns := make([]localmodel.Turn, count, count+1)
	for i := range turns {
		n := i / 5
		file := fmt.Sprintf("part%d/notes.txt", n)
		call := func(tool string, args map[string]any) localmodel.Call {
			text, err := json.Marshal(args)
			hosttest.Must(t, err)
			return localmodel.Call{Tool: tool, Args: text}
		}
		turn := &turns[i]
		turn.Text = fmt.Sprintf("Turn %d begins: a step of the task.", i)
		switch i % 5 {
		case 0:
			turn.Thinking = fmt.Sprintf("Part %d begins with its notes.", n)
			turn.Calls = []localmodel.Call{call("write", map[string]any{"path": file, "content": fmt.Sprintf("alpha %d\nbeta %d\n", n, n)})}
		case 1:
			turn.Calls = []localmodel.Call{
				call("read", map[string]any{"path": file}), call("grep", map[string]any{"pattern": fmt.Sprintf("beta %d", n)}),
			}
		case 2:
			turn.Calls = []localmodel.Call{call("edit", map[string]any{"path": file, "old_string": fmt.Sprintf("beta %d", n), "new_string": fmt.Sprintf("gamma %d", n)})}
		case 3:
			turn.Calls = []localmodel.Call{call("bash", map[string]any{"command": "cat " + file + " >>all.txt"})}
		case 4:
			turn.Thinking = "One more change."
			turn.Calls = []localmodel.Call{call("edit", map[string]any{"path": file, "old_string": "alpha", "new_string": "omega"})}
		}
	}
	return append(turns, localmodel.Turn{Text: taskDone})
}

// taskTree is what so many turns leave behind.
func taskTree(count int) map[string]string {
	tree := map[string]string{}
	for i := range count {
		n := i / 5
		file := fmt.Sprintf("part%d/notes.txt", n)
		switch i % 5 {
		case 0:
			tree[file] = fmt.Sprintf("alpha %d\nbeta %d\n", n, n)
		case 2:
			tree[file] = fmt.Sprintf("alpha %d\ngamma %d\n", n, n)
		case 3:
			tree["all.txt"] += tree[file]
		case 4:
			tree[file] = fmt.Sprintf("omega %d\ngamma %d\n", n, n)
		}
	}
	return tree
}

func treeOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	hosttest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		tree[filepath.ToSlash(name)] = string(text)
		return err
	}))
	return tree
}

func TestCostsAreTold(t *testing.T) {
	web := httptest.NewServer(localmodel.New(localmodel.Options{}))
	t.Cleanup(web.Close)
	for _, service := range services {
		for _, price := range []llm.Price{{}, {Input: 3, Output: 15, CacheRead: 0.5, CacheWrite: 4}} {
			s := nativeOn(t, service, web.URL, Options{Dir: t.TempDir(), Price: price})
			hosttest.Must(t, s.prompt("say what it costs"))
			ends := hosttest.As[*contracts.ResponseEnd](s.host)
			u := ends[len(ends)-1].Usage
			want := (float64(u.InputTokens)*price.Input + float64(u.OutputTokens)*price.Output + float64(u.CacheReadTokens)*price.CacheRead + float64(u.CacheWriteTokens)*price.CacheWrite) / 1e6
			if u.TotalCostUSD != want || (want == 0) != (price == llm.Price{}) {
				t.Errorf("%s at %+v: got %+v, want a cost of %v", service, price, u, want)
			}
		}
	}
}

func TestFortyTurnsLeaveTheExactTree(t *testing.T) {
	const count = 40
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			turns := taskTurns(t, count)
			m := localmodel.New(localmodel.Options{Script: []localmodel.Case{{Match: taskPrompt, Turns: turns}}})
			web := httptest.NewServer(m)
			t.Cleanup(web.Close)
			dir := t.TempDir()
			s := nativeOn(t, service, web.URL, Options{Dir: dir, StateDir: filepath.Join(t.TempDir(), "agent")})
			hosttest.Must(t, s.prompt(taskPrompt))
			if got, want := treeOf(t, dir), taskTree(count); !maps.Equal(got, want) {
				t.Errorf("got the tree %q, want %q", got, want)
			}
			var said []string
			for _, turn := range turns {
				said = append(said, turn.Text)
			}
			if got := s.answers(); strings.Join(got, "|") != strings.Join(said, "|") {
				t.Errorf("got the answers %q, want %q", got, said)
			}
			for _, end := range hosttest.As[*contracts.ToolEnd](s.host) {
				if !end.Success {
					t.Errorf("got a failed call %+v, want none", end)
				}
			}
			if got := len(m.Requests()); got != len(turns) {
				t.Errorf("got %d requests, want one for each of %d turns", got, len(turns))
			}
		})
	}
}

// A pipeNet is a network of one server, of pipes in memory.
type pipeNet struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipeNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.dialed <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (p *pipeNet) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipeNet) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements [net.Listener].
func (p *pipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// piped serves a model to every HTTP client of the process, in memory, so that a
// bubble sees when everybody sleeps.
func piped(t *testing.T, o localmodel.Options) *localmodel.Server {
	m := localmodel.New(o)
	network := &pipeNet{dialed: make(chan net.Conn), closed: make(chan struct{})}
	web := &http.Server{Handler: m}
	served := make(chan struct{})
	go func() { // ends with Close
		defer close(served)
		_ = web.Serve(network)
	}()
	usual, own := http.DefaultTransport, &http.Transport{DialContext: network.dial}
	http.DefaultTransport = own
	t.Cleanup(func() {
		http.DefaultTransport = usual
		own.CloseIdleConnections()
		_ = web.Close()
		<-served
	})
	return m
}

// nativeFaults are the ways in which a model fails, and what clients are told of a
// run that ended with it; "" if it does not end a run.
var nativeFaults = map[localmodel.FaultKind]contracts.ErrorType{
	localmodel.FaultRateLimited:  contracts.ErrorTransient,
	localmodel.FaultOverloaded:   contracts.ErrorTransient,
	localmodel.FaultServerError:  contracts.ErrorTransient,
	localmodel.FaultUnauthorized: contracts.ErrorFatal,
	localmodel.FaultTooLong:      contracts.ErrorFatal,
	localmodel.FaultNoQuota:      contracts.ErrorFatal,
	localmodel.FaultHTML:         contracts.ErrorTransient,
	localmodel.FaultSilent:       contracts.ErrorTransient,
	localmodel.FaultEmpty:        "",
	localmodel.FaultCutText:      contracts.ErrorTransient,
	localmodel.FaultCutArgs:      contracts.ErrorTransient,
	localmodel.FaultCutEnd:       contracts.ErrorTransient,
	localmodel.FaultMalformed:    contracts.ErrorTransient,
	localmodel.FaultErrorEvent:   contracts.ErrorTransient,
	localmodel.FaultFailedEvent:  contracts.ErrorTransient,
	localmodel.FaultSlow:         "",
	localmodel.FaultHang:         contracts.ErrorTransient,
}

// A faultyTask is a task with a fault at one of its turns.
type faultyTask struct {
	service string
	fault   localmodel.Fault
	at      int
	always  bool // until the run has ended; else once
}

const faultyTurns = 5 // one of each kind

// script goes on with the turn that failed, whatever the model is told after it,
// and in other words: what was said before the fault is said once.
func (f faultyTask) script(t testing.TB) []localmodel.Case {
	turns, again := taskTurns(t, faultyTurns), taskTurns(t, faultyTurns)
	for i := range faultyTurns {
		again[i].Text = "Resumed, " + again[i].Text[len("Turn "):]
	}
	return []localmodel.Case{
		{Match: "What went before", Turns: again[max(0, f.at-1):]}, // with the last turn after it
		{Match: "Person: ", Turns: []localmodel.Turn{{Text: "The task is on its way."}}},
		{Match: "was cut off by a failure", Turns: again[f.at:]},
		{Match: taskGoOn, Turns: again[f.at:]},
		{Match: taskPrompt, Turns: turns},
	}
}

// play runs the task in a bubble.
func (f faultyTask) play(t *testing.T) {
	var mu sync.Mutex
	failing, struck := true, 0
	m := piped(t, localmodel.Options{Script: f.script(t), DeltaRunes: 12, Inject: func(r localmodel.Request) localmodel.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !failing || struck == 0 && (r.Prompt != taskPrompt || r.Step != f.at) {
			return localmodel.Fault{}
		}
		struck++
		failing = f.always
		return f.fault
	}})
	dir := t.TempDir()
	s := nativeOn(t, f.service, "http://model.test", Options{Dir: dir, StateDir: filepath.Join(t.TempDir(), "agent")})
	err := s.prompt(taskPrompt)
	f.checkEnd(t, err)
	mu.Lock()
	failing = false
	if struck == 0 {
		t.Error("the fault never came")
	}
	mu.Unlock()
	if said := s.host.Said(); !strings.Contains(said, taskDone) {
		hosttest.Must(t, s.prompt(taskGoOn))
	} else if err != nil && !f.always { // the last words may be all of an answer whose end never comes
		t.Errorf("got %v after the last words, want none", err)
	}
	if got, want := treeOf(t, dir), taskTree(faultyTurns); !maps.Equal(got, want) {
		t.Errorf("got the tree %q, want %q", got, want)
	}
	hosttest.Must(t, s.prompt("Are you there?"))
	answers := s.answers()
	if last := answers[len(answers)-1]; !strings.Contains(last, "Are you there?") {
		t.Errorf("got the answer %q, want the prompt said back", last)
	}
	requests := m.Requests()
	f.checkKept(t, answers[:len(answers)-1], string(requests[len(requests)-1].Body))
}

// checkEnd checks what clients are told of the run with the fault.
func (f faultyTask) checkEnd(t *testing.T, err error) {
	t.Helper()
	want := nativeFaults[f.fault.Kind]
	own, isOwn := errors.AsType[*contracts.Error](err)
	switch {
	case err == nil && f.always && want != "":
		t.Errorf("got no error, want one of type %s", want)
	case err == nil:
	case !isOwn:
		t.Errorf("got %v, want an error for clients", err)
	case own.Type != want:
		t.Errorf("got type %s of %v, want %q", own.Type, err, want)
	case !f.always && want == contracts.ErrorTransient:
		t.Errorf("got %v, want a second try", err)
	}
}

// checkKept checks that what clients were shown is told to the model later, unless
// it was summarised.
func (f faultyTask) checkKept(t *testing.T, answers []string, body string) {
	t.Helper()
	if f.fault.Kind == localmodel.FaultTooLong {
		return
	}
	for _, text := range answers {
		if shown := strings.TrimSpace(text); !strings.Contains(body, shown) {
			t.Errorf("the model is not told any more that it said %q", shown)
		}
	}
}

// Every fault comes once at every turn of a task, and until the run has ended at
// some of them, in each of the forms.
func TestFaultsOfTheModelLeaveAUsableSession(t *testing.T) {
	for _, service := range services {
		for kind := range nativeFaults {
			t.Run(service+"/"+string(kind), func(t *testing.T) {
				for at := range faultyTurns + 1 {
					for _, always := range []bool{false, true} {
						if always && at != 1 && at != faultyTurns { // with two calls, and without
							continue
						}
						f := faultyTask{service, localmodel.Fault{Kind: kind}, at, always}
						name := fmt.Sprintf("turn %d, always %v", at, always)
						t.Run(name, func(t *testing.T) { synctest.Test(t, f.play) })
					}
				}
			})
		}
	}
}

// A connection that breaks is a cut, too.
func TestConnectionsThatBreakLeaveAUsableSession(t *testing.T) {
	for _, service := range services {
		for _, kind := range []localmodel.FaultKind{localmodel.FaultCutText, localmodel.FaultCutArgs, localmodel.FaultCutEnd} {
			f := faultyTask{service, localmodel.Fault{Kind: kind, Abort: true}, 2, true}
			t.Run(service+"/"+string(kind), func(t *testing.T) { synctest.Test(t, f.play) })
		}
	}
}

// A later agent on the same directory goes on with the conversation.
func TestNativeAgentsRememberTheConversation(t *testing.T) {
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			m := localmodel.New(localmodel.Options{})
			web := httptest.NewServer(m)
			t.Cleanup(web.Close)
			o := Options{Dir: t.TempDir(), StateDir: filepath.Join(t.TempDir(), "agent")}
			first := nativeOn(t, service, web.URL, o)
			hosttest.Must(t, first.prompt("say The word is heliotrope.\ncall bash {\"command\":\"echo from-the-tool\"}"))
			hosttest.Must(t, first.agent.Close(t.Context()))
			second := nativeOn(t, service, web.URL, o)
			hosttest.Must(t, second.prompt("What was the word?"))
			requests := m.Requests()
			for _, want := range []string{"heliotrope", "from-the-tool", "What was the word?"} {
				if body := string(requests[len(requests)-1].Body); !strings.Contains(body, want) {
					t.Errorf("got %s, want %q in it", body, want)
				}
			}
		})
	}
}

// The keys of providers go to them and nowhere else.
func TestKeysReachTheProviderAndNoCommand(t *testing.T) {
	for service, name := range map[string]string{"anthropic": "ANTHROPIC", "openai": "OPENAI", "openai-chat": "OPENAI"} {
		t.Run(service, func(t *testing.T) {
			const key = "sk-sentinel-4f1c09"
			var mu sync.Mutex
			var sent []string
			m := localmodel.New(localmodel.Options{})
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				sent = append(sent, r.Header.Get("X-Api-Key"), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				mu.Unlock()
				m.ServeHTTP(w, r)
			}))
			t.Cleanup(web.Close)
			t.Setenv(name+"_API_KEY", key)
			t.Setenv(name+"_BASE_URL", web.URL)
			s := nativeOn(t, service, "", Options{Dir: t.TempDir()})
			hosttest.Must(t, s.prompt("call bash {\"command\":\"env\"}"))
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(strings.Join(sent, " "), key) {
				t.Errorf("got the credentials %q, want the key", sent)
			}
			if output := s.host.Output(); !strings.Contains(output, "PATH=") || strings.Contains(output, key) {
				t.Errorf("got %s, want an environment without the key", output)
			}
			for _, r := range m.Requests() {
				if strings.Contains(string(r.Body), key) {
					t.Errorf("got %s, want no key in it", r.Body)
				}
			}
		})
	}
}

func TestNativeNamesAreChecked(t *testing.T) {
	for _, spec := range []string{"llm:", "llm:anthropic", "llm:/m", "llm:anthropic/", "llm:nobody/m"} {
		if _, err := Open(spec, Options{Dir: t.TempDir(), ModelURL: "http://127.0.0.1:1"}); err == nil {
			t.Errorf("Open(%q): got no error", spec)
		}
	}
	for _, rules := range []Options{{Allow: []string{"bash("}}, {Ask: []string{""}}, {Deny: []string{"()"}}} {
		rules.Dir, rules.ModelURL = t.TempDir(), "http://127.0.0.1:1"
		if _, err := Open("llm:anthropic/m", rules); err == nil {
			t.Errorf("Open with the rules %v: got no error", rules)
		}
	}
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} {
		t.Setenv(name, "")
	}
	if _, err := Open("llm:anthropic/m", Options{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "set ANTHROPIC_API_KEY, or say --model-url") {
		t.Errorf("without a key: got %v, want an error that says so", err)
	}
}

func TestRuleAboutAToolOfNobodyIsWarnedOf(t *testing.T) {
	var log strings.Builder
	_, err := Open("llm:anthropic/m", Options{
		Dir: t.TempDir(), ModelURL: "http://127.0.0.1:1", Allow: []string{"bash(ls:*)"}, Deny: []string{"nosuchtool", "mcp__everything__*"},
		Servers: []mcp.Server{{Name: "everything", Command: "true"}},
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	})
	hosttest.Must(t, err)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "rule=nosuchtool") {
		t.Errorf("got the log %q, want a warning about the one rule", got)
	}
}

// The rules of the operator and the tools of the client are told to the loop.
func TestNativeAgentsGetTheirOptions(t *testing.T) {
	m := localmodel.New(localmodel.Options{})
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	dir := t.TempDir()
	s := nativeOn(t, "anthropic", web.URL, Options{
		Dir: dir, Allow: []string{"bash(echo:*)"}, Deny: []string{"bash(rm:*)"}, MaxIterations: 3,
	})
	s.host.Tools = []contracts.ClientTool{{Name: "paint", Description: "Paints.", InputSchema: json.RawMessage(`{"type":"object"}`)}}
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
	hosttest.Must(t, s.prompt("call bash {\"command\":\"echo allowed\"}\ncall bash {\"command\":\"rm kept\"}"))
	if asked := s.host.Asked(); len(asked) > 0 {
		t.Errorf("asked %+v, want nothing", asked[0])
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil || !strings.Contains(s.host.Output(), "allowed\n") {
		t.Errorf("got %v and %q, want the file kept and the other command run", err, s.host.Output())
	}
	if body := string(m.Requests()[0].Body); !strings.Contains(body, `"paint"`) {
		t.Errorf("got %s, want the tool of the client", body)
	}
	err := s.prompt("call bash {\"command\":\"echo 1\"}\nthen\ncall bash {\"command\":\"echo 2\"}\nthen\ncall bash {\"command\":\"echo 3\"}\nthen\nsay four")
	if err == nil {
		t.Error("got no error, want the bound of the turns")
	}
}
