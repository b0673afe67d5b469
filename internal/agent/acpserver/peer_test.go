package acpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// patience bounds what a test waits for; it only matters when something hangs.
const patience = 30 * time.Second

// A desk is an editor that writes lines and reads what comes.
type desk struct {
	t     *testing.T
	in    *io.PipeWriter
	from  *io.PipeReader
	out   *bufio.Reader // of from
	ended chan error
}

// seat serves an editor that has no server to attach to.
func seat(t *testing.T, opts Options) *desk {
	t.Helper()
	if opts.Open == nil {
		opts.Open = func(context.Context, string) (Server, error) {
			return Server{}, errors.New("there is no server")
		}
	}
	in, toPeer := io.Pipe()
	fromPeer, out := io.Pipe()
	d := &desk{t: t, in: toPeer, from: fromPeer, out: bufio.NewReader(fromPeer), ended: make(chan error, 1)}
	go func() { d.ended <- Serve(context.Background(), in, out, opts) }() // ends with in
	t.Cleanup(func() {
		_ = toPeer.Close()
		_ = fromPeer.Close()
		select {
		case err := <-d.ended:
			if err != nil {
				t.Errorf("got %v at the end, want nothing", err)
			}
		case <-time.After(patience):
			t.Error("the peer has not ended")
		}
	})
	return d
}

// says writes a line and returns the next line that comes.
func (d *desk) says(line string) string {
	d.t.Helper()
	d.writes(line)
	return d.hears()
}

func (d *desk) writes(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) hears() string {
	d.t.Helper()
	late := time.AfterFunc(patience, func() { _ = d.from.CloseWithError(errors.New("nothing came")) })
	defer late.Stop()
	line, err := d.out.ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`

func TestGarbageIsAnswered(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"no JSON", `hello`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`},
		{"half a message", `{"jsonrpc":"2.0","id":1,`, `"code":-32700`},
		{"a list", `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"a number", `7`, `"id":null,"error":{"code":-32600`},
		{"neither question nor answer", `{"jsonrpc":"2.0","id":5}`, `"id":5,"error":{"code":-32600`},
		{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"initialize"}`, `"id":null,"error":{"code":-32600`},
		{"method of another type", `{"jsonrpc":"2.0","id":5,"method":5}`, `"code":-32600`},
		{"no parameters", `{"jsonrpc":"2.0","id":"x","method":"initialize"}`, `"id":"x","error":{"code":-32602`},
		{"too early", `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, `"id":2,"error":{"code":-32600`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := seat(t, Options{})
			if got := d.says(tt.line); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s in it", got, tt.want)
			}
			if got := d.says("\n\ufeff" + hello); !strings.Contains(got, `"loadSession":true`) {
				t.Errorf("afterwards: got %s, want an answer to initialize", got)
			}
		})
	}
}

func TestWrongRequestsAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"unknown method", `{"jsonrpc":"2.0","id":2,"method":"session/fork","params":{}}`, `"code":-32601`},
		{"second introduction", hello, `"code":-32600`},
		{"no parameters", `{"jsonrpc":"2.0","id":2,"method":"session/new"}`, `"code":-32602,"message":"Invalid params: cwd is no absolute path"`},
		{"no object", `{"jsonrpc":"2.0","id":2,"method":"session/list","params":"x"}`, `"code":-32602`},
		{"an empty list for no fields", `{"jsonrpc":"2.0","id":2,"method":"session/list","params":[]}`, `there is no server`},
		{"an object for no servers", `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":{}}}`, `there is no server`},
		{"nothing that has to be said", `{"jsonrpc":"2.0","id":2,"method":"session/list"}`, `there is no server`},
		{"an image", `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}}`, `session \"s\" is not attached`},
		{"unknown session", `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hi"}]}}`, `session \"s\" is not attached`},
		{"prompt of another type", `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":"hi"}}`, `"code":-32602`},
		{"no server", `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, `there is no server`},
		{"no session", `{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"cwd":"/","mcpServers":[]}}`, `"code":-32602`},
		{"session of another type", `{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"cwd":"/","sessionId":7}}`, `"code":-32602`},
		{"close unknown", `{"jsonrpc":"2.0","id":2,"method":"session/close","params":{"sessionId":"s"}}`, `"id":2,"error"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := seat(t, Options{})
			d.says(hello)
			if got := d.says(tt.line); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s in it", got, tt.want)
			}
		})
	}
}

// TestWhatIsOnlyToldIsNotAnswered sends notifications and an answer that nobody
// waits for before a question.
func TestWhatIsOnlyToldIsNotAnswered(t *testing.T) {
	d := seat(t, Options{})
	d.says(hello)
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`,
		`{"jsonrpc":"2.0","method":"session/cancel"}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`,
		`{"jsonrpc":"2.0","method":"_zed/what"}`,
		`{"jsonrpc":"2.0","id":99,"result":{}}`,
		`{"jsonrpc":"2.0","id":"no number","result":{}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"an answer to this might be answered"}}`,
	} {
		d.writes(line)
	}
	if got, want := d.says(`{"jsonrpc":"2.0","id":3,"method":"nothing"}`), `"id":3,"error":{"code":-32601`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

func TestLongLinesAreRefusedAndNotKept(t *testing.T) {
	d := seat(t, Options{})
	d.says(hello)
	long := fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"%s"}}`, strings.Repeat("x", contracts.MaxLineBytes))
	if got, want := d.says(long), `"id":4,"error":{"code":-32600`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
	long = fmt.Sprintf(`{"jsonrpc":"2.0","params":"%s","id":4,"method":"session/prompt"}`, strings.Repeat("x", contracts.MaxLineBytes))
	if got, want := d.says(long), `"id":null,"error":{"code":-32600`; !strings.Contains(got, want) {
		t.Errorf("id behind what is long: got %s, want %s in it", got, want)
	}
	if got, want := d.says(`{"jsonrpc":"2.0","id":5,"method":"nothing"}`), `"id":5`; !strings.Contains(got, want) {
		t.Errorf("afterwards: got %s, want %s in it", got, want)
	}
}

// TestTooManyRequestsAreRefused opens one request more than are served while the
// server does not answer.
func TestTooManyRequestsAreRefused(t *testing.T) {
	release := make(chan struct{})
	d := seat(t, Options{Open: func(ctx context.Context, _ string) (Server, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return Server{}, errors.New("at last")
	}})
	d.says(hello)
	for i := range maxServed + 1 {
		if _, err := fmt.Fprintf(d.in, `{"jsonrpc":"2.0","id":%d,"method":"session/list","params":{}}`+"\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := d.hears(), "too many requests"; !strings.Contains(got, want) {
		t.Errorf("got %s, want %q", got, want)
	}
	close(release)
	for range maxServed {
		if got, want := d.hears(), "at last"; !strings.Contains(got, want) {
			t.Errorf("got %s, want %q", got, want)
		}
	}
}

func TestAbilitiesThatCannotBeReadAreNone(t *testing.T) {
	for _, caps := range []string{`[]`, `"all"`, `null`, `{"elicitation":7}`} {
		d := seat(t, Options{})
		if got := d.says(strings.Replace(hello, `{}}`, caps+`}`, 1)); !strings.Contains(got, `"loadSession":true`) {
			t.Errorf("%s: got %s, want an answer", caps, got)
		}
	}
}

func TestVersionAndAbilitiesAreAgreedOn(t *testing.T) {
	d := seat(t, Options{Version: "1.2.3"})
	var got struct {
		Result struct {
			ProtocolVersion   int
			AgentInfo         struct{ Name, Version string }
			AgentCapabilities struct {
				LoadSession         bool
				PromptCapabilities  struct{ Image, Audio, EmbeddedContext bool }
				SessionCapabilities struct{ List, Resume, Close *struct{} }
			}
		}
	}
	line := d.says(strings.Replace(hello, `"protocolVersion":1`, `"protocolVersion":7`, 1))
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	r, caps := got.Result, got.Result.AgentCapabilities
	if r.ProtocolVersion != 1 || r.AgentInfo.Name != "maestro" || r.AgentInfo.Version != "1.2.3" {
		t.Errorf("got %s, want version 1 of maestro 1.2.3", line)
	}
	if s := caps.SessionCapabilities; !caps.LoadSession || s.List == nil || s.Resume == nil || s.Close == nil {
		t.Errorf("got %s, want sessions to be loaded, listed, resumed and closed", line)
	}
	if c := caps.PromptCapabilities; c.Image || c.Audio || !c.EmbeddedContext {
		t.Errorf("got %s, want embedded context and neither images nor audio", line)
	}
}

func TestReasonOfAServerOfOurOwnReachesTheEditor(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"a fault":   {errors.New("start agent: it needs a key"), `"code":-32001,"message":"start agent: it needs a key"`},
		"a refusal": {&contracts.Error{Code: contracts.CodeRuntimeOwnedElsewhere, Message: "in use"}, `"message":"in use","data":{"code":"runtime_owned_elsewhere"}`},
		"no such":   {&contracts.Error{Code: contracts.CodeStaleSession, Message: "gone"}, `session \"s\" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan bool, 1)
			d := seat(t, Options{Open: func(context.Context, string) (Server, error) {
				return Server{URL: "http://127.0.0.1:1", Workspace: "/", Ready: func(_ context.Context, session string, create bool) error {
					asked <- session == "s" && !create
					return tt.err
				}}, nil
			}})
			d.says(hello)
			if got := d.says(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s in it", got, tt.want)
			}
			if len(asked) == 0 || !<-asked {
				t.Error("got another question, want one about a session that is not to be made")
			}
		})
	}
}
