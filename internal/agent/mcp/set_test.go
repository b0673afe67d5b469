package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// revisions are the two generations of the protocol.
var revisions = []string{"2025-11-25", "2026-07-28"}

func TestToolsOfProgramsAreListedAndCalled(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, revision), testProgram(t, "two", "tools"))
			tools := s.Tools()
			at := slices.IndexFunc(tools, func(tool Tool) bool { return tool.FullName == "mcp__one__echo" })
			if at < 0 {
				t.Fatalf("got tools %v, want echo among them; %s", tools, statuses(h))
			}
			echo := tools[at]
			var schema struct {
				Type       string
				Properties map[string]any
			}
			if err := json.Unmarshal(echo.Schema, &schema); err != nil || schema.Type != "object" || schema.Properties["text"] == nil {
				t.Errorf("got schema %s, %v; want that of the arguments", echo.Schema, err)
			}
			if echo.Server != "one" || echo.Name != "echo" || echo.Title != "Echo" || echo.Description != "Says it again." || !echo.ReadOnly {
				t.Errorf("got %+v, want what the server says of it", echo)
			}
			if at := slices.IndexFunc(tools, func(tool Tool) bool { return tool.FullName == "mcp__two__fail" }); at < 0 || tools[at].ReadOnly {
				t.Errorf("got %v, want a tool of the other server that may destroy something", tools)
			}
			res := must(t, s, "mcp__one__echo", `{"text":"hello"}`)
			says(t, res, `{"said":"hello"}`)
			for call, want := range map[string]string{
				"mcp__one__fail":  "no luck",
				"mcp__one__none":  "There is no tool mcp__one__none, or not any more.",
				"mcp__two__echo ": "There is no tool",
			} {
				if res := must(t, s, call, ""); !res.IsError || !strings.Contains(res.Text, want) {
					t.Errorf("%s: got %+v, want a failure with %q", call, res, want)
				}
			}
			for _, args := range []string{`{"text":7}`, `{}`} {
				if res := must(t, s, "mcp__one__echo", args); !res.IsError {
					t.Errorf("%s: got %+v, want a failure", args, res)
				}
			}
			if res := must(t, s, "mcp__one__echo", `[1]`); !res.IsError || res.Text != "Not called: the arguments are no JSON object." {
				t.Errorf("got %+v, want a refusal", res)
			}
			if got := statuses(h); got != "" {
				t.Errorf("got %q said, want nothing", got)
			}
		})
	}
}

func TestProgramsGetTheirEnvironmentAndNoMore(t *testing.T) {
	t.Setenv("MCP_TEST_API_KEY", "ours")
	t.Setenv("MCP_TEST_OTHER_KEY", "passed")
	t.Setenv("MCP_TEST_PLAIN", "plain")
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	hosttest.Must(t, err)
	hosttest.Must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	server := testProgram(t, "one", "tools", "THEIR_TOKEN", "theirs", "MCP_TEST_PLAIN", "replaced")
	server.Dir = "sub"
	s := open(t, nil, Options{Dir: dir, EnvPass: []string{"MCP_TEST_OTHER_KEY"}}, server)
	lines := strings.Split(must(t, s, "mcp__one__environment", "").Text, "\n")
	for _, want := range []string{filepath.Join(dir, "sub"), "THEIR_TOKEN=theirs", "MCP_TEST_OTHER_KEY=passed", "MCP_TEST_PLAIN=replaced"} {
		if !slices.Contains(lines, want) {
			t.Errorf("got no %s, want it", want)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "MCP_TEST_API_KEY=") || line == "MCP_TEST_PLAIN=plain" {
			t.Errorf("got %s, want it withheld", line)
		}
	}
}

func TestProgressExtendsACall(t *testing.T) {
	for _, revision := range revisions {
		synctest.Test(t, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "slow"}, nil)
			addText(server, "work", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
				for i := range 14 {
					time.Sleep(250 * time.Millisecond) // longer in all than a tool may be silent
					if err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
						ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Total: 14, Message: "working",
					}); err != nil {
						return "", err
					}
				}
				return "worked", nil
			})
			s := inMemory(t, server, revision, Options{Dir: t.TempDir(), Host: testHost{newHost(t)}, callTimeout: 3 * time.Second})
			var told []string
			res, err := s.call(t.Context(), "work", nil, func(text string) { told = append(told, text) })
			if err != nil || len(res.Content) != 1 {
				t.Fatalf("%s: got %+v, %v; want that it worked", revision, res, err)
			}
			if len(told) == 0 || !strings.HasSuffix(told[0], "/14: working") {
				t.Errorf("%s: got progress %q, want what the server told", revision, told)
			}
		})
	}
}

func TestSilenceEndsACall(t *testing.T) {
	t.Parallel()
	witness := newWitness(t)
	s := open(t, nil, Options{callTimeout: time.Second}, testProgram(t, "one", "tools", witnessVariable, witness.address))
	res := must(t, s, "mcp__one__hang", "")
	if !res.IsError || res.Text != "Cancelled: the tool did not answer and told of no progress for 1s." {
		t.Errorf("got %+v, want that it was cancelled", res)
	}
	witness.saw(t, "cancelled")
	s = open(t, nil, Options{callLimit: 50 * time.Millisecond}, testProgram(t, "one", "tools"))
	if res := must(t, s, "mcp__one__hang", ""); !res.IsError || res.Text != "Cancelled: the tool took longer than 50ms." {
		t.Errorf("got %+v, want that it was cancelled", res)
	}
}

func TestCancelledCallsAreCancelledAtTheServer(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			witness := newWitness(t)
			s := open(t, nil, Options{}, testProgram(t, "one", "tools", witnessVariable, witness.address, revisionVariable, revision))
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped")
			go func() {
				witness.saw(t, "hangs")
				cancel(stopped)
			}()
			if res, err := s.Call(ctx, "mcp__one__hang", nil, nil); !errors.Is(err, stopped) {
				t.Errorf("got %+v, %v; want %v", res, err, stopped)
			}
			witness.saw(t, "cancelled")
			says(t, must(t, s, "mcp__one__echo", `{"text":"still there"}`), `{"said":"still there"}`)
		})
	}
}

func TestCrashedProgramsAreStartedAgainWhenTheyAreUsed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "tools"))
	tools := len(s.Tools())
	_, err := s.Call(t.Context(), "mcp__one__crash", nil, nil)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "exit status 7; what it said is in the server's log") {
		t.Errorf("got %v, want %v and why", err, ErrUnavailable)
	}
	awaitStatus(t, h, `MCP server "one" is gone: the program exited: exit status 7; what it said is in the server's log. It is tried again when it is used.`)
	if got := len(s.Tools()); got != tools {
		t.Errorf("got %d tools, want the %d that are known", got, tools)
	}
	says(t, must(t, s, "mcp__one__echo", `{"text":"back"}`), `{"said":"back"}`)
	awaitStatus(t, h, `MCP server "one" is available again`)
}

func TestServersThatCannotBeReachedCostNothingElse(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{connectTimeout: 10 * time.Second},
		Server{Name: "absent", Command: "no-such-program-here"},
		Server{Name: "homeless", Command: "ls", Dir: "no/such/place"},
		Server{Name: "filed", Command: "ls", Dir: testBinary(t)},
		Server{Name: "nobody", URL: "http://127.0.0.1:1/mcp"},
		testProgram(t, "dies", "dies"),
		testProgram(t, "garbage", "garbage"),
		testProgram(t, "endless", "endless line"),
		Server{Name: "", Command: "x"},
		Server{Name: "dies", Command: "x"},
		testProgram(t, "fine", "tools"),
	)
	for _, want := range []string{
		`MCP server "absent" is not available: its program does not start: there is no such program. It is`,
		`MCP server "homeless" is not available: the directory in which it is to start (cwd) does not exist. It is`,
		`MCP server "filed" is not available: where it is to start (cwd) is no directory. It is`,
		`MCP server "nobody" (http://127.0.0.1:1) is not available: connection refused. It is`,
		`MCP server "dies" is not available: the program exited: exit status 3; what it said is in the server's log. It is`,
		`MCP server "garbage" is not available: wrote 17 lines in a row that are no messages`,
		`MCP server "endless" is not available: wrote a line longer than`,
		`MCP server "" is left out: its configuration is not in order`,
		`MCP server "dies" is left out: another server has the same name`,
	} {
		awaitStatus(t, h, want)
	}
	if got := s.Tools(); len(got) == 0 || got[0].Server != "fine" {
		t.Errorf("got %v, want the tools of the one that is fine", got)
	}
	says(t, must(t, s, "mcp__fine__echo", `{"text":"x"}`), `{"said":"x"}`)
}

func TestProgramsMayEndAnywhere(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"initialize", "notifications/initialized", "tools/list"} {
		h := newHost(t)
		open(t, h, Options{}, testProgram(t, "one", "ends", endVariable, method))
		awaitStatus(t, h, `MCP server "one" is not available: the program exited: exit status 6.`)
	}
	s := open(t, nil, Options{}, testProgram(t, "one", "ends", endVariable, "server/discover"))
	says(t, must(t, s, "mcp__one__go", ""), "went, 0 refused")
	s = open(t, nil, Options{}, testProgram(t, "one", "ends", endVariable, "tools/call"))
	if res, err := s.Call(t.Context(), "mcp__one__go", nil, nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "exit status 6") {
		t.Errorf("got %+v, %v; want %v and why", res, err, ErrUnavailable)
	}
}

func TestAddressesMayHangUpAnywhere(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"} {
		f := &flooder{over: make(chan struct{})}
		site := newSite(t, http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
			body, err := io.ReadAll(req.Body)
			if err != nil || strings.Contains(string(body), `"method":"`+method+`"`) {
				panic(http.ErrAbortHandler)
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			f.ServeHTTP(out, req)
		}))
		s := open(t, nil, Options{}, Server{Name: "one", URL: site.URL})
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
		if _, err := s.Call(ctx, "mcp__one__go", nil, nil); ctx.Err() != nil || method == "tools/call" && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want an end, and %v of a call", method, err, ErrUnavailable)
		}
		cancel()
		s.Close()
	}
}

func TestSilentProgramsAreGivenUp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{connectTimeout: 100 * time.Millisecond}, testProgram(t, "one", "silent"))
	awaitStatus(t, h, `MCP server "one" is not available: it did not answer in time`)
	if got := s.Tools(); len(got) > 0 {
		t.Errorf("got %v, want no tools", got)
	}
}

func TestProgramsThatStartLateAreFoundAtTheNextPrompt(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := t.TempDir()
	server := testProgram(t, "one", "tools")
	server.Command = filepath.Join(dir, "later")
	s := open(t, h, Options{Dir: dir}, server)
	awaitStatus(t, h, "is not available: its program does not start: no such file or directory")
	hosttest.Must(t, os.Symlink(testBinary(t), server.Command))
	s.Await(t.Context())
	reach(t, s) // on a machine that takes longer than people wait
	if got := s.Tools(); len(got) == 0 {
		t.Error("got no tools, want them once the program can be started")
	}
	awaitStatus(t, h, `MCP server "one" is available: `)
	if got := statuses(h); strings.Contains(got, "again.") || !strings.Contains(got, "It is tried again at the next prompt.") {
		t.Errorf("got %q, want what is true of a server that never was there", got)
	}
}

// Which servers are there is said once, of all, with those that are waited for.
func TestServersThatAreThereAreSaidOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	open(t, h, Options{}, testProgram(t, "one", "old and strict"))
	awaitStatus(t, h, "1 tool")

	synctest.Test(t, func(t *testing.T) {
		h := hosttest.New(t)
		s := &Set{life: t.Context(), opts: Options{Host: h, Log: slog.New(slog.DiscardHandler)}}
		attempts := map[string]chan struct{}{}
		var first []<-chan struct{}
		for _, name := range []string{"here", "soon", "late"} {
			l, attempt := newLink(s, Server{Name: name}), make(chan struct{})
			l.dialing, attempts[name] = attempt, attempt
			s.links, first = append(s.links, l), append(first, attempt)
		}
		arrive := func(l *link) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.session, l.dialing, l.tools = &session{}, nil, make([]Tool, 2)
			close(attempts[l.server.Name])
		}
		arrive(s.links[0])
		time.AfterFunc(2*noticeDelay, func() { arrive(s.links[1]) })
		s.introduce(first)
		var said []string
		for _, status := range hosttest.As[*contracts.Status](h) {
			said = append(said, status.Message)
		}
		want := []string{"Waiting for MCP servers: soon, late", "MCP servers are connected: here (2 tools), soon (2 tools)"}
		if !slices.Equal(said, want) {
			t.Errorf("got %q said, want %q", said, want)
		}
		if _, ok := s.links[2].newlyConnected(); ok || !s.links[2].alone {
			t.Error("got a late server that does not say itself when it is there")
		}
	})
}

// Nobody waits for a server that hangs longer than a moment, and not at all for one
// attempt twice.
func TestServersThatHangDelayNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Set{life: t.Context()}
		s.links = []*link{{set: s, dialing: make(chan struct{}), patience: time.Now().Add(firstDelay)}}
		for _, want := range []time.Duration{firstDelay, 0} {
			began := time.Now()
			s.Await(t.Context())
			if got := time.Since(began); got != want {
				t.Errorf("waited %s, want %s", got, want)
			}
		}
	})
}

func TestOlderProgramsAreGreetedInTheirWay(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"old", "old and strict", "greeting"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, Options{}, testProgram(t, "one", kind))
			says(t, must(t, s, "mcp__one__go", ""), "went, 0 refused")
			if got := statuses(h); strings.Contains(got, "not available") {
				t.Errorf("got %q said, want nothing bad", got)
			}
		})
	}
}

func TestQuestionsWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	crowded := make(chan struct{})
	h.Answer = func(*contracts.ServerRequest) contracts.Outcome { // as a client would, late
		<-crowded
		return answeredBy(`{"action":"cancel"}`)
	}
	s := open(t, h, Options{}, testProgram(t, "one", "requests"))
	done := make(chan Result, 1)
	go func() {
		res, err := s.Call(t.Context(), "mcp__one__go", nil, nil)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	awaitStatus(t, h, "too many questions are open")
	close(crowded)
	says(t, result(t, done), "went, 1000 refused")
	if got := strings.Count(statuses(h), "\n"); got > maxStatuses+1 {
		t.Errorf("got %d statuses, want at most %d and that there is more", got, maxStatuses)
	}
}

func TestChangesOfToolsAreFollowed(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, revision))
			says(t, must(t, s, "mcp__one__grow", ""), "grown")
			awaitStatus(t, h, `MCP server "one" has other tools now: 1 more (new)`)
			says(t, must(t, s, "mcp__one__new", ""), "new")
		})
	}
}

// Tools that a server changes, or takes away, are named, too.
func TestChangesOfToolsAreNamed(t *testing.T) {
	tool := func(name, description string) Tool { return Tool{Name: name, Description: description} }
	before := []Tool{tool("a", "x"), tool("b", "x"), tool("c", "x"), tool("d", "x")}
	for want, after := range map[string][]Tool{
		"":                           {tool("b", "x"), tool("a", "x"), tool("c", "x"), tool("d", "x")},
		"1 more (e)":                 append([]Tool{tool("e", "x")}, before...),
		"1 changed (b), 1 fewer (d)": {tool("a", "x"), tool("b", "y"), tool("c", "x")},
		"4 fewer (a, b, c, d)":       nil,
	} {
		if got := differences(before, after); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestManyToolsAreListed(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		s := open(t, nil, Options{}, testProgram(t, "one", "tools", revisionVariable, revision, "MCP_TEST_TOOLS", "200"))
		names := map[string]bool{}
		var last string
		for _, tool := range s.Tools() {
			names[tool.FullName] = true
			if tool.Name == "tool.199" {
				last = tool.FullName
			}
		}
		if len(names) < 200 || last == "" {
			t.Fatalf("got %d names, want 200 and more", len(names))
		}
		says(t, must(t, s, last, ""), "199")
	}
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "tools", "MCP_TEST_TOOLS", "600"))
	if got := len(s.Tools()); got != maxTools {
		t.Errorf("got %d tools, want %d", got, maxTools)
	}
	awaitStatus(t, h, "tools that nobody is offered")
}

// People read titles when they are asked, so that nothing may look like more than
// one.
func TestTitlesAreOneLine(t *testing.T) {
	for _, tool := range []*sdk.Tool{
		{Name: "Read\n\x1b[2JApproved\u202e"},
		{Name: "a", Title: "Read\n\x1b[2JApproved\u202e"},
		{Name: "a", Annotations: &sdk.ToolAnnotations{Title: "Read\n\x1b[2JApproved\u202e"}},
	} {
		if got, err := toolOf("one", tool); err != nil || got.Title != "Read [2JApproved" {
			t.Errorf("got %q, %v; want one line", got.Title, err)
		}
	}
}
