package acp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

var (
	loads   = map[string]any{"loadSession": true}
	resumes = map[string]any{"loadSession": true, "sessionCapabilities": map[string]any{"resume": map[string]any{}}}
)

// history is what a program repeats when it loads a session.
var history = []step{
	{Update: acp.UpdateUserMessageText("old question")}, says("old answer"), thinks("old thought"),
	calls("old", "Old call", "read", "completed", shows("old output")),
}

// first makes a step one that only the first process takes.
func first(s step) step {
	s.First = true
	return s
}

func TestDeadProgramIsStartedAgainWithItsConversation(t *testing.T) {
	for name, tt := range map[string]struct {
		setup  setup
		method string
		said   string
	}{
		"loads":      {setup{Can: loads, Replay: history}, acp.AgentMethodSessionLoad, ""},
		"resumes":    {setup{Can: resumes}, acp.AgentMethodSessionResume, ""},
		"neither":    {setup{}, "", "new conversation, because it could not go on with the earlier one: it keeps no sessions"},
		"refuses":    {setup{Can: loads, Refuse: "session/load", Code: -32603}, "", "earlier one: Not today: it rains"},
		"dies of":    {setup{Can: loads, Die: "session/load"}, "", "earlier one: the output of the other side ended"},
		"hangs on":   {setup{Can: loads, Hang: "session/load"}, "", "earlier one: agent process did not become ready in 5s"},
		"falls back": {setup{Can: resumes, Refuse: "session/resume", Code: -32601, Replay: history}, acp.AgentMethodSessionLoad, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, tt.setup, Options{})
			s.start(t)
			s.fails(t, contracts.ErrorTransient, "exit status 3", says("half a "), calls("c", "x", "other", "in_progress", shows("y")), first(step{Exit: 3}))
			if tt.setup.Hang != "" {
				s.wait.ready = 5 * time.Second
			}
			before := len(s.host.Shown())
			hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: script(done)}))
			s.says(t, "Agent process restarted")
			if tt.said != "" {
				s.says(t, tt.said)
			}
			if tt.method != "" && s.received(t, tt.method) != 1 {
				t.Errorf("got no %s, want one", tt.method)
			}
			for _, ev := range s.host.Shown()[before:] {
				switch ev.(type) {
				case *contracts.Status, *contracts.ResponseStart, *contracts.ResponseEnd:
				default:
					t.Errorf("got %#v, want nothing of the history", ev)
				}
			}
		})
	}
}

func TestProgramIsToldHowFarItsBrokenAnswerCame(t *testing.T) {
	const note = "your last answer was cut off"
	prompts := func(s *stand) (told []string) {
		for _, line := range noted(t, s.notes, "received") {
			if strings.Contains(line, `"method":"session/prompt"`) {
				_, after, _ := strings.Cut(line, note)
				told = append(told, after)
			}
		}
		return told
	}
	s := open(t, setup{Can: loads, Replay: history})
	long := strings.Repeat("x", maxTail)
	s.fails(t, contracts.ErrorTransient, "exit status 3", says(long), thinks("hm"), says("half a "), says("word"), calls("c", "x", "other", "pending", nil), step{Exit: 3})
	s.fails(t, contracts.ErrorTransient, "exit status 4", step{Exit: 4}) // before it said anything
	s.run(t, says("whole"), done)
	s.run(t, done)
	told := prompts(s)
	if len(told) != 4 || told[0] != "" || told[3] != "" {
		t.Fatalf("prompted with %q, want two with a note", told)
	}
	for _, text := range told[1:3] {
		if !strings.Contains(text, "xhalf a word]") || strings.Contains(text, "hm") || strings.Contains(text, long) {
			t.Errorf("the note goes on with %q, want the end of what was said", text)
		}
	}

	s = open(t, setup{})
	s.fails(t, contracts.ErrorTransient, "exit status 3", says("half"), calls("c", "x", "other", "pending", nil), first(step{Exit: 3}))
	s.run(t, done)
	if told := prompts(s); told[1] != "" {
		t.Errorf("prompted with %q, want no note in a new conversation", told)
	}
}

func TestCostsFromBeforeARestartAreNotCountedAgain(t *testing.T) {
	cost := func(amount float64) step {
		return step{Update: map[string]any{"sessionUpdate": "usage_update", "used": 0, "size": 0, "cost": map[string]any{"amount": amount, "currency": "USD"}}}
	}
	s := open(t, setup{Can: loads})
	s.fails(t, contracts.ErrorTransient, "exit status 3", cost(1), step{Exit: 3})
	s.run(t, cost(5), done)
	s.run(t, cost(6), done)
	ends := hosttest.As[*contracts.ResponseEnd](s.host)
	if got := []float64{ends[0].Usage.TotalCostUSD, ends[1].Usage.TotalCostUSD}; !slices.Equal(got, []float64{0, 1}) {
		t.Errorf("got costs %v, want that of the last run only", got)
	}
}

func TestConversationSurvivesTheServer(t *testing.T) {
	state := t.TempDir()
	dir := t.TempDir()
	set := setup{Can: loads, Replay: history}
	s := newStand(t, set, Options{Dir: dir, StateDir: state})
	s.start(t)
	s.run(t, done)
	hosttest.Must(t, s.Close(t.Context()))
	if info, err := os.Stat(filepath.Join(state, memoryName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want a file for its owner only", info, err)
	}

	again := newStand(t, set, Options{Dir: dir, StateDir: state})
	again.host.Earlier = true
	again.start(t)
	again.run(t, says("new"), done)
	if again.received(t, acp.AgentMethodSessionLoad) != 1 || again.received(t, acp.AgentMethodSessionNew) != 0 {
		t.Error("got no load of the session, want one and no new session")
	}
	again.shown(t, "response_start", "response_chunk", "response_end")
	if again.host.Said() != "new" || len(again.statuses()) > 0 {
		t.Errorf("got %q and statuses %q, want the new answer only", again.host.Said(), again.statuses())
	}
	hosttest.Must(t, again.Close(t.Context()))

	other := newStand(t, set, Options{StateDir: state}) // another directory
	other.start(t)
	other.run(t, done)
	other.says(t, "starts a new conversation")
}

// Another process of the program and another server have the same commands, which clients were told of.
func TestCommandsAreListedAgainOnlyWhenTheyChange(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	has := func(names ...string) step {
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name, "description": "x"})
		}
		return step{Update: map[string]any{"sessionUpdate": "available_commands_update", "availableCommands": list}}
	}
	for i, tt := range []struct {
		commands []string
		want     []string
	}{
		{[]string{"init", "plan"}, []string{"Agent commands: /init /plan"}},
		{[]string{"init", "plan"}, nil},
		{[]string{"init"}, []string{"Agent commands: /init"}},
	} {
		s := newStand(t, setup{Can: loads, Later: []step{has(tt.commands...)}}, Options{Dir: dir, StateDir: state})
		s.host.Earlier = i > 0
		s.start(t)
		s.run(t, done)
		s.peer.Load().proc.Kill(errors.New("killed by the test"))
		<-s.peer.Load().over
		s.run(t, says("hello"), has(tt.commands...), done)
		hosttest.Must(t, s.Close(t.Context()))
		got := slices.DeleteFunc(s.statuses(), func(text string) bool { return !strings.HasPrefix(text, "Agent commands") })
		if !slices.Equal(got, tt.want) {
			t.Errorf("server %d: said %q, want %q", i, got, tt.want)
		}
	}
}

func TestUnreadableMemoryIsAnotherConversation(t *testing.T) {
	state := t.TempDir()
	hosttest.Must(t, os.WriteFile(filepath.Join(state, memoryName), []byte("{"), 0o600))
	s := newStand(t, setup{Can: loads}, Options{StateDir: state})
	s.start(t)
	s.run(t, done)
	s.says(t, "starts a new conversation")
}

func TestSessionThatWasNeverPromptedIsNotMissed(t *testing.T) {
	s := newStand(t, setup{Can: loads}, Options{})
	s.start(t)
	s.peer.Load().proc.Kill(errors.New("killed by the test"))
	s.host.Await(func(ev contracts.Event) bool {
		e, ok := ev.(*contracts.ErrorEvent)
		return ok && e.ErrorType == contracts.ErrorTransient && strings.Contains(e.Message, "killed by the test")
	})
	s.run(t, done)
	if s.received(t, acp.AgentMethodSessionLoad) != 0 || !slices.Equal(s.statuses(), []string{"Agent process restarted"}) {
		t.Errorf("got statuses %q, want a restart and nothing to regret", s.statuses())
	}
}

func TestInterrupt(t *testing.T) {
	for name, tt := range map[string]struct {
		steps  []step
		starts int
	}{
		"obeyed":  {[]step{says("x"), {Await: "session/cancel"}, says(" y"), stops(acp.StopReasonCancelled)}, 1},
		"ignored": {[]step{says("x"), {Hang: true}}, 2},
		"fatal":   {[]step{says("x"), {Await: "session/cancel"}, {Exit: 5}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, setup{Can: loads, Replay: history}, Options{})
			if name == "ignored" {
				s.wait.interrupt = 100 * time.Millisecond
			}
			s.start(t)
			ctx, stop := context.WithCancelCause(t.Context())
			result := make(chan error, 1)
			go func() { // ends with ctx
				result <- s.Run(ctx, contracts.Work{Content: script(tt.steps...)})
			}()
			s.host.AwaitType("response_chunk")
			stop(errStopped)
			if err := <-result; !errors.Is(err, errStopped) {
				t.Errorf("got %v, want %v", err, errStopped)
			}
			id := hosttest.As[*contracts.ResponseStart](s.host)[0].ResponseID
			hosttest.Must(t, s.host.Publish(t.Context(), &contracts.ResponseEnd{ // as the hub does
				ResponseID: id, ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}},
			}))
			s.run(t, done)
			if got := len(noted(t, s.notes, "starts")); got != tt.starts {
				t.Errorf("got %d starts, want %d", got, tt.starts)
			}
		})
	}
}

func TestGarbageIsToldOnceAndPassedOver(t *testing.T) {
	s := open(t, setup{})
	s.run(t, step{Raw: "npm notice: new version", Times: 50}, step{Raw: `{"jsonrpc":"2.0"}`}, step{Raw: `[]`}, step{Raw: "\ufeff" + string(encode(message{JSONRPC: "2.0", Method: "x"}))},
		says("fine"), done)
	s.shown(t, "error", "response_start", "response_chunk", "response_end")
	if e := hosttest.As[*contracts.ErrorEvent](s.host)[0]; e.ErrorType != contracts.ErrorProtocol || strings.Contains(e.Message, "npm") {
		t.Errorf("got %+v, want a protocol error that repeats nothing", e)
	}
}

func TestNothingButGarbageEndsTheProgram(t *testing.T) {
	s := open(t, setup{})
	s.fails(t, contracts.ErrorTransient, "are no messages", step{Raw: "nonsense", Times: maxGarbage + 1}, step{Hang: true})
	s.run(t, done)
}

func TestHugeLinesCostOnlyThemselves(t *testing.T) {
	t.Run("notification", func(t *testing.T) {
		s := open(t, setup{})
		s.run(t, step{Raw: `{"jsonrpc":"2.0","method":"session/update","params":"`, Long: 100 << 20}, says("fine"), done)
		s.shown(t, "error", "response_start", "response_chunk", "response_end")
		if e := hosttest.As[*contracts.ErrorEvent](s.host)[0]; !strings.Contains(e.Message, "too long") {
			t.Errorf("got %q, want that it was too long", e.Message)
		}
	})
	t.Run("request", func(t *testing.T) {
		s := open(t, setup{})
		s.run(t, step{Raw: `{"jsonrpc":"2.0","id":77,"method":"fs/write_text_file","params":"`, Long: 11 << 20}, step{Answer: 77}, done)
		if got := noted(t, s.notes, "replies"); len(got) != 1 || !strings.Contains(got[0], "-32600") || !strings.Contains(got[0], "too long") {
			t.Errorf("the program was answered %q, want a refusal", got)
		}
	})
	t.Run("answer", func(t *testing.T) {
		s := open(t, setup{})
		id := "3" // initialize, session/new, session/prompt
		s.fails(t, contracts.ErrorTransient, "too long", step{Raw: `{"jsonrpc":"2.0","id":` + id + `,"result":"`, Long: 11 << 20})
		s.run(t, done)
	})
	t.Run("nothing known", func(t *testing.T) {
		s := open(t, setup{})
		s.fails(t, contracts.ErrorTransient, "too long", step{Raw: "x", Long: 11 << 20}, step{Hang: true})
		s.run(t, done)
	})
}

func TestSilenceIsNoConversationToMiss(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	for i := range 3 { // nobody prompts the first two
		s := newStand(t, setup{Can: loads}, Options{Dir: dir, StateDir: state})
		s.host.Earlier = i > 0
		s.start(t)
		if i == 2 {
			s.run(t, done)
		}
		if got := s.statuses(); len(got) > 0 {
			t.Errorf("got statuses %q, want none: nothing was said before", got)
		}
		hosttest.Must(t, s.Close(t.Context()))
	}
	s := newStand(t, setup{}, Options{Dir: dir, StateDir: t.TempDir()}) // what was said went to another agent
	s.host.Earlier = true
	s.start(t)
	s.run(t, done)
	s.says(t, "starts a new conversation")
}
