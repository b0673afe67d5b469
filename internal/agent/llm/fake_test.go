package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A turnFunc is what a scripted model does when it is asked.
type turnFunc func(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error)

// A fake is a model that follows a script, and checks what it is sent.
type fake struct {
	t     testing.TB
	mu    sync.Mutex
	turns []turnFunc
	after turnFunc         // what it does once they are over; nil fails the test
	asked []*model.Request // copies
	busy  bool
}

func newFake(t testing.TB, turns ...turnFunc) *fake { return &fake{t: t, turns: turns} }

func (f *fake) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	if err := validConversation(req.Messages); err != nil {
		f.t.Errorf("sent a conversation that no provider takes: %v", err)
	}
	if n := len(req.Messages); n > 0 && req.Messages[n-1].Role != model.RoleUser {
		f.t.Errorf("the last message is %q's, want the user's", req.Messages[n-1].Role)
	}
	f.mu.Lock()
	if f.busy {
		f.t.Error("the model is asked while it answers")
	}
	f.busy = true
	f.asked = append(f.asked, copyOf(f.t, req))
	next := f.after
	if len(f.turns) > 0 {
		next, f.turns = f.turns[0], f.turns[1:]
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy = false
	}()
	if next == nil {
		f.t.Error("the model is asked once more than the script goes on")
		return model.Reply{}, &model.Error{Kind: model.KindInvalid, Message: "the script is over"}
	}
	return next(ctx, req, say)
}

// request returns the i-th request so far, from the end if i is negative.
func (f *fake) request(i int) *model.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 {
		i += len(f.asked)
	}
	return f.asked[i]
}

func copyOf(t testing.TB, req *model.Request) *model.Request {
	text, err := json.Marshal(req)
	hosttest.Must(t, err)
	var again model.Request
	hosttest.Must(t, json.Unmarshal(text, &again))
	return &again
}

// says is a turn that streams a text and then makes calls.
func says(text string, calls ...model.Call) turnFunc {
	return func(_ context.Context, _ *model.Request, say func(model.Delta) error) (model.Reply, error) {
		for _, piece := range strings.SplitAfter(text, " ") {
			if err := say(model.Delta{Text: piece}); err != nil {
				return model.Reply{}, err
			}
		}
		return whole(text, calls...), nil
	}
}

func whole(text string, calls ...model.Call) model.Reply {
	reply := model.Reply{Message: model.Message{Role: model.RoleAssistant}, Stop: model.StopDone, Usage: model.Usage{Input: 10, Output: 5}}
	if text != "" {
		reply.Message.Parts = append(reply.Message.Parts, model.Part{Text: &text})
	}
	for _, c := range calls {
		reply.Message.Parts = append(reply.Message.Parts, model.Part{Call: &c})
		reply.Stop = model.StopCalls
	}
	return reply
}

// stops is a turn that streams a text and stops for a reason.
func stops(text string, why model.Stop) turnFunc {
	return func(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
		reply, err := says(text)(ctx, req, say)
		reply.Stop = why
		return reply, err
	}
}

// fails is a turn that streams a text and then fails.
func fails(text string, err error) turnFunc {
	return func(_ context.Context, _ *model.Request, say func(model.Delta) error) (model.Reply, error) {
		if text != "" {
			if err := say(model.Delta{Text: text}); err != nil {
				return model.Reply{}, err
			}
			return model.Reply{Message: *said(text), Usage: model.Usage{Input: 3}}, err
		}
		return model.Reply{}, err
	}
}

func failure(kind model.Kind) *model.Error {
	return &model.Error{Kind: kind, Status: 500, Message: "the provider says " + string(kind)}
}

// validConversation is what providers demand: roles alternate from the user's,
// and a message answers every call of the one before it exactly once, first.
func validConversation(messages []model.Message) error {
	seen := map[string]bool{}
	var open map[string]bool
	for i, msg := range messages {
		if want := []model.Role{model.RoleUser, model.RoleAssistant}[i%2]; msg.Role != want {
			return fmt.Errorf("message %d is %q's, want %q's", i, msg.Role, want)
		}
		if len(msg.Parts) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		var calls map[string]bool
		text := false
		for j, p := range msg.Parts {
			if fields(p) != 1 {
				return fmt.Errorf("part %d.%d has %d fields", i, j, fields(p))
			}
			switch {
			case p.Text != nil && strings.TrimSpace(*p.Text) == "":
				return fmt.Errorf("part %d.%d is blank", i, j)
			case p.Call != nil:
				if msg.Role != model.RoleAssistant || seen[p.Call.ID] || !goodID().MatchString(p.Call.ID) || p.Call.Tool == "" {
					return fmt.Errorf("part %d.%d is a bad call %+v", i, j, *p.Call)
				}
				var object map[string]any
				if json.Unmarshal(p.Call.Args, &object) != nil || object == nil {
					return fmt.Errorf("part %d.%d has the args %q, want an object", i, j, p.Call.Args)
				}
				if calls == nil {
					calls = map[string]bool{}
				}
				seen[p.Call.ID], calls[p.Call.ID] = true, true
			case p.Result != nil:
				if msg.Role != model.RoleUser || !open[p.Result.ID] || text {
					return fmt.Errorf("part %d.%d answers %q, which is not asked or too late", i, j, p.Result.ID)
				}
				delete(open, p.Result.ID)
			case p.Image != nil || p.Text != nil:
				text = true
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d leaves %d calls without an answer", i, len(open))
		}
		open = calls
	}
	if len(open) > 0 {
		return fmt.Errorf("the last message leaves %d calls without an answer", len(open))
	}
	return nil
}

func checkValid(t testing.TB, a *Agent) {
	t.Helper()
	if err := validConversation(a.journal.messages); err != nil {
		t.Errorf("the history is not valid: %v", err)
	}
	if len(a.journal.open) > 0 {
		t.Errorf("the calls %q are open", a.journal.open)
	}
}

// saidIn returns all that the model says in messages.
func saidIn(messages []model.Message) string {
	var text strings.Builder
	for _, msg := range messages {
		if msg.Role == model.RoleAssistant {
			text.WriteString(textOf(msg))
		}
	}
	return text.String()
}

// results returns the results in the last message of a request.
func results(req *model.Request) []model.CallResult {
	var all []model.CallResult
	for _, p := range req.Messages[len(req.Messages)-1].Parts {
		if p.Result != nil {
			all = append(all, *p.Result)
		}
	}
	return all
}

// A session is an agent with what the hub does at the end of a run: it closes
// what was left open.
type session struct {
	*Agent
	host *hosttest.Host
}

func (s *session) Run(ctx context.Context, work contracts.Work) error {
	defer s.finish()
	return s.Agent.Run(ctx, work)
}

func (s *session) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	defer s.finish()
	return s.Agent.Resume(ctx, req, out)
}

func (s *session) finish() {
	response, calls := "", map[string]bool{}
	for _, ev := range s.host.Shown() {
		switch e := ev.(type) {
		case *contracts.ResponseStart:
			response = e.ResponseID
		case *contracts.ResponseEnd:
			response = ""
		case *contracts.ToolCall:
			calls[e.CallID] = true
		case *contracts.ClientToolRequest:
			calls[e.CallID] = true
		case *contracts.ToolEnd:
			delete(calls, e.CallID)
		}
	}
	var ends []contracts.Event
	for id := range calls {
		ends = append(ends, &contracts.ToolEnd{CallID: id})
	}
	if response != "" {
		ends = append(ends, &contracts.ResponseEnd{ResponseID: response, ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}}})
	}
	if err := s.host.Publish(context.Background(), ends...); err != nil {
		panic(err)
	}
}

// at opens a workspace until the test ends.
func at(t testing.TB, dir string) *workspace.Workspace {
	t.Helper()
	work, err := workspace.Open(dir)
	hosttest.Must(t, err)
	t.Cleanup(func() { hosttest.Must(t, work.Close()) })
	return work
}

// open starts an agent.
func open(t testing.TB, host *hosttest.Host, o Options) *session {
	t.Helper()
	if o.Workspace == nil {
		o.Workspace = at(t, t.TempDir())
	}
	if o.Name == "" {
		o.Name = "example/atlas-large"
	}
	if o.ServerTools == nil {
		o.ServerTools = func(context.Context) []tool.Tool { return nil }
	}
	if o.ClientTools == nil {
		o.ClientTools = func() []model.Tool { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := New(o)
	_, err := a.Start(context.Background(), host)
	hosttest.Must(t, err)
	return &session{a, host}
}

// start starts an agent until the test ends.
func start(t testing.TB, host *hosttest.Host, o Options) *session {
	t.Helper()
	a := open(t, host, o)
	t.Cleanup(func() {
		hosttest.Must(t, a.Close(context.Background()))
		checkValid(t, a.Agent)
	})
	return a
}

func prompt(text string) contracts.Work { return contracts.Work{Content: text} }

func args(t testing.TB, value any) json.RawMessage {
	text, err := json.Marshal(value)
	hosttest.Must(t, err)
	return text
}

func callOf(id, name, text string) model.Call {
	return model.Call{ID: id, Tool: name, Args: json.RawMessage(text)}
}

// fileTools are tools that work on files below dir.
func fileTools(dir string) []tool.Tool {
	return []tool.Tool{
		{
			Tool:  model.Tool{Name: "write", Schema: json.RawMessage(`{"type":"object","required":["path","text"]}`)},
			Title: "Write", Gated: true, Brief: brief("Wrote", "Writing"),
			Run: files(dir, func(path string, a fileArgs) (string, error) {
				return "written", os.WriteFile(path, []byte(a.Text), 0o600)
			}),
		},
		{
			Tool:  model.Tool{Name: "read", Schema: json.RawMessage(`{"type":"object","required":["path"]}`)},
			Title: "Read", Brief: brief("Read", "Reading"),
			Run: files(dir, func(path string, _ fileArgs) (string, error) {
				text, err := os.ReadFile(path)
				return string(text), err
			}),
		},
		{
			Tool:  model.Tool{Name: "edit", Schema: json.RawMessage(`{"type":"object","required":["path","old","text"]}`)},
			Title: "Edit", Gated: true, Brief: brief("Edited", "Editing"),
			Run: files(dir, func(path string, a fileArgs) (string, error) {
				text, err := os.ReadFile(path)
				if err != nil {
					return "", err
				}
				if strings.Count(string(text), a.Old) != 1 {
					return "", errors.New("the old text is not there once")
				}
				return "edited", os.WriteFile(path, []byte(strings.Replace(string(text), a.Old, a.Text, 1)), 0o600)
			}),
		},
	}
}

type fileArgs struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	Text string `json:"text"`
}

func brief(did, doing string) func(json.RawMessage) (string, string) {
	return func(args json.RawMessage) (string, string) {
		path, _ := argument(args, "path")
		return did + " " + path, doing + " " + path
	}
}

func files(dir string, do func(path string, a fileArgs) (string, error)) func(context.Context, json.RawMessage, func(string) error) (tool.Result, error) {
	return func(ctx context.Context, args json.RawMessage, _ func(string) error) (tool.Result, error) {
		var a fileArgs
		if err := json.Unmarshal(args, &a); err != nil {
			return tool.Result{Text: err.Error(), IsError: true}, nil
		}
		text, err := do(filepath.Join(dir, a.Path), a)
		if err != nil {
			return tool.Result{Text: err.Error(), IsError: true}, nil
		}
		return tool.Result{Text: text}, nil
	}
}

// bash is a tool that says what it would run.
func bash(run func(ctx context.Context, command string, out func(string) error) (tool.Result, error)) tool.Tool {
	return tool.Tool{
		Tool:  model.Tool{Name: "bash", Schema: json.RawMessage(`{"type":"object","required":["command"]}`)},
		Title: "Bash", Gated: true,
		Brief: func(args json.RawMessage) (string, string) {
			command, _ := argument(args, "command")
			return "Ran " + command, "Running " + command
		},
		Run: func(ctx context.Context, args json.RawMessage, out func(string) error) (tool.Result, error) {
			command, _ := argument(args, "command")
			return run(ctx, command, out)
		},
	}
}

// echo is a bash whose result is the command.
func echo(_ context.Context, command string, _ func(string) error) (tool.Result, error) {
	return tool.Result{Text: "ran " + command}, nil
}

func statuses(h *hosttest.Host) []string {
	var texts []string
	for _, s := range hosttest.As[*contracts.Status](h) {
		texts = append(texts, s.Message)
	}
	return texts
}
