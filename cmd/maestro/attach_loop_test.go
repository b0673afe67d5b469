package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A fakeDriver plays the session; it records what is asked of it.
type fakeDriver struct {
	updates  chan news
	refuse   error
	accepted uint64 // the cursor in results
	state    contracts.State
	history  contracts.HistoryPage

	connections contracts.ConnectionList
	inbox       contracts.Inbox
	shares      contracts.ShareList
	voting      bool // answers in the inbox are votes that do not decide

	mu    sync.Mutex
	calls []string
}

func (d *fakeDriver) Next(ctx context.Context) (client.Update, error) {
	select {
	case n := <-d.updates:
		return n.update, n.err
	case <-ctx.Done():
		return client.Update{}, ctx.Err()
	}
}

func (d *fakeDriver) call(what string) (contracts.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what)
	return contracts.Result{Cursor: d.accepted}, d.refuse
}

func (d *fakeDriver) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, "\n")
}

func (d *fakeDriver) Send(_ context.Context, cmd contracts.Command) (contracts.Result, error) {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		return contracts.Result{}, err
	}
	return d.call(string(text))
}

func (d *fakeDriver) TakeControl(context.Context) (contracts.Result, error) { return d.call("take") }
func (d *fakeDriver) ReleaseControl(context.Context) (contracts.Result, error) {
	return d.call("release")
}
func (d *fakeDriver) AskControl(_ context.Context, reason string) (contracts.Result, error) {
	return d.call("ask " + reason)
}
func (d *fakeDriver) GrantControl(_ context.Context, id string) (contracts.Result, error) {
	return d.call("grant " + id)
}
func (d *fakeDriver) DenyControl(_ context.Context, id, reason string) (contracts.Result, error) {
	return d.call("deny " + id + " " + reason)
}
func (d *fakeDriver) History(_ context.Context, req contracts.HistoryRequest) (*contracts.HistoryPage, error) {
	_, err := d.call(fmt.Sprintf("history %s turns=%d query=%q", req.Kind, req.Turns, req.Query))
	return &d.history, err
}
func (d *fakeDriver) Close(bool) error { return nil }
func (d *fakeDriver) State() contracts.State {
	if d.state.Cwd != "" {
		return d.state
	}
	return contracts.State{ConnectionCount: 3, Connections: []contracts.ConnectionState{
		{ConnectionID: "conn_me", Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "ada"}},
		{ConnectionID: "conn_bob", Role: contracts.RoleViewer, ClientInfo: &contracts.ClientInfo{Name: "bob"}},
	}}
}

// A terminal is an attachment under test, inside a bubble.
type terminal struct {
	t       *testing.T
	driver  *fakeDriver
	a       *attachment
	in      *io.PipeWriter
	out     *transcript
	err     *transcript
	signals chan os.Signal
	left    chan error
}

// A transcript is a writer that can be read while it is written.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// open attaches, with lines that come whole, from a human if typed; begin are the
// first updates.
func open(t *testing.T, flags attachFlags, typed bool, begin ...client.Update) *terminal {
	return attachTo(t, flags, typed, nil, begin...)
}

// openLive attaches a human at a terminal.
func openLive(t *testing.T, flags attachFlags, begin ...client.Update) *terminal {
	return attachTo(t, flags, true, func() (int, int) { return 200, 50 }, begin...)
}

func attachTo(t *testing.T, flags attachFlags, typed bool, size func() (int, int), begin ...client.Update) *terminal {
	r, w := io.Pipe()
	tm := &terminal{
		t: t, driver: &fakeDriver{updates: make(chan news)}, in: w, out: &transcript{}, err: &transcript{},
		signals: make(chan os.Signal, 1), left: make(chan error, 1),
	}
	tm.a = newAttachment(tm.driver, tm.out, tm.err, &flags, size)
	tm.a.typed, tm.a.server = typed, tm.driver
	ctx, stop := context.WithCancel(t.Context())
	go func() { tm.left <- tm.a.run(ctx, r, tm.signals) }()
	t.Cleanup(func() {
		stop()
		_ = w.Close()
		_ = r.Close()
	})
	for _, u := range begin {
		tm.tell(u)
	}
	return tm
}

func (tm *terminal) tell(u client.Update) {
	tm.driver.updates <- news{update: u}
	synctest.Wait()
}

func (tm *terminal) typeLine(line string) {
	tm.t.Helper()
	if _, err := io.WriteString(tm.in, line+"\n"); err != nil {
		tm.t.Fatal(err)
	}
	synctest.Wait()
}

// press types keys on a terminal.
func (tm *terminal) press(keys string) {
	tm.t.Helper()
	if _, err := io.WriteString(tm.in, keys); err != nil {
		tm.t.Fatal(err)
	}
	synctest.Wait()
}

// What erases rows of a terminal, and what else moves its cursor.
var (
	erasing = regexp.MustCompile("\r\x1b\\[[JK]")
	moving  = regexp.MustCompile("\x1b\\[[0-9]*[A-Z]|\x1b[78]|\r")
)

// wantLast expects the last rows that were written on a terminal, each time they
// were.
func (tm *terminal) wantLast(want string) {
	tm.t.Helper()
	got := moving.ReplaceAllString(erasing.ReplaceAllString(tm.out.String(), "\n"), "")
	if !strings.HasSuffix(got, want) {
		tm.t.Fatalf("got output\n%s\nwant it to end with\n%s", got, want)
	}
}

// wantCalls compares what was asked of the server.
func (tm *terminal) wantCalls(want ...string) {
	tm.t.Helper()
	if got := tm.driver.called(); got != strings.Join(want, "\n") {
		tm.t.Fatalf("got calls\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// wantShown expects text at the end of the output.
func (tm *terminal) wantShown(want string) {
	tm.t.Helper()
	if got := tm.out.String(); !strings.HasSuffix(got, want) {
		tm.t.Fatalf("got output\n%s\nwant it to end with\n%s", got, want)
	}
}

// stillThere fails if the attachment has ended.
func (tm *terminal) stillThere() {
	tm.t.Helper()
	synctest.Wait()
	select {
	case err := <-tm.left:
		tm.t.Fatalf("left with %v", err)
	default:
	}
}

var approval = &contracts.ServerRequest{RequestID: "q1", RequestType: contracts.RequestApproval, CallID: "c1", Tool: "bash", Args: raw(`{"command":"ls"}`)}

func TestLinesBecomePromptsAndAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.typeLine("do it")
		tm.tell(told(approval)[0])
		tm.typeLine("what?")
		tm.wantShown("! want a decision: y, or n and a reason\n")
		tm.typeLine("n too risky")
		tm.tell(told(&contracts.ServerRequestResolved{RequestID: "q1"})[0])
		tm.typeLine("do something else")
		tm.wantCalls(`{"type":"prompt","content":"do it"}`,
			`{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"too risky"}}`,
			`{"type":"prompt","content":"do something else"}`)
	})
}

func TestCommandsOfTheAgentArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.typeLine("/review all")
		tm.wantShown("! there is no command /review: /help lists them; for the agent: //review\n")
		tm.tell(told(&contracts.Status{Message: "Agent commands: /init /review"})[0])
		tm.typeLine("/review all")
		tm.wantCalls(`{"type":"prompt","content":"/review all"}`)
		tm.typeLine("/help")
		tm.wantShown("\n  of the agent      /init /review\n")
	})
}

// TestRulesAreAskedOfAgentsThatHaveThem types the commands about what is remembered.
func TestRulesAreAskedOfAgentsThatHaveThem(t *testing.T) {
	for _, test := range []struct {
		agent contracts.Event
		takes bool
	}{
		{&contracts.Ready{Model: "shell", Provider: "local"}, false},
		{&contracts.Ready{Model: "some", Provider: "an-agent"}, false},
		{&contracts.Ready{Model: "some", Provider: "anthropic", ExecutorType: contracts.ExecutorReplay}, false},
		{&contracts.Ready{Model: "some", Provider: "openai-chat", ExecutorType: contracts.ExecutorLive}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"), told(test.agent)[0])
			tm.typeLine("/help")
			if got := strings.Contains(tm.out.String(), "/rules"); got != test.takes {
				t.Errorf("%+v: got /rules in the help %t, want %t", test.agent, got, test.takes)
			}
			tm.typeLine("/rules")
			if test.takes {
				tm.wantCalls(`{"type":"prompt","content":"/rules"}`)
				return
			}
			tm.wantShown("! there is no command /rules: /help lists them; for the agent: //rules\n")
			tm.wantCalls()
		})
	}
}

func TestViewerIsToldThatItOnlyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{view: true}, true, connectedAs("conn_me", "conn_bob"))
		for _, line := range []string{"hi", "/ask", "/take", "/release", "/grant", "/deny", "/interrupt"} {
			tm.typeLine(line)
			tm.wantShown("! you only watch: attach without --view to act\n")
		}
		tm.wantCalls()
	})
}

func TestHintsFitTheCredential(t *testing.T) {
	approver := connectedAs("conn_me", "conn_bob")
	approver.Attached.Role = contracts.RoleApprover
	for _, test := range []struct {
		flags     attachFlags
		begin     client.Update
		say, take string
	}{
		{attachFlags{view: true, share: "s"}, connectedAs("conn_me", "conn_bob"), "you only watch\n", "you only watch\n"},
		{attachFlags{approve: true}, approver, "you only answer questions, and none is open\n", "you only answer questions: attach without --approve to do more\n"},
		{attachFlags{approve: true, share: "s"}, approver, "you only answer questions, and none is open\n", "you only answer questions\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tm := open(t, test.flags, true, test.begin)
			tm.typeLine("hi")
			tm.wantShown("! " + test.say)
			tm.typeLine("/take")
			tm.wantShown("! " + test.take)
			tm.wantCalls()
		})
	}
}

// TestVoterIsToldThatOthersMustVote answers an approval that does not end.
func TestVoterIsToldThatOthersMustVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		approver := connectedAs("conn_me", "conn_bob")
		approver.Attached.Role = contracts.RoleApprover
		tm := openLive(t, attachFlags{approve: true}, approver)
		tm.wantLast("\nwatching > ")
		tm.tell(told(approval)[0])
		tm.press("y\r")
		tm.wantLast("watching, waiting > ")
		tm.press("y\r")
		tm.wantLast("! you have answered: the question waits for others\nwatching, waiting > ")
	})
}

func TestActingNeedsControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_bob"))
		tm.typeLine("hi")
		tm.wantShown("! conn_bob is in control: /ask or /take first\n")
		tm.typeLine("/ask my turn")
		tm.typeLine("/take")
		tm.wantCalls("ask my turn", "take")
	})
}

func TestFreeLeaseIsTakenByActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", ""))
		tm.typeLine("hi")
		tm.wantCalls(`{"type":"prompt","content":"hi"}`)
	})
}

func TestAskersAreGrantedAndDenied(t *testing.T) {
	ask := func(id, reason string) client.Update {
		return client.Update{Kind: client.KindControl, Control: &contracts.ControlRequest{
			ConnectionID: id, ClientInfo: &contracts.ClientInfo{Name: "bob"}, Reason: reason}}
	}
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.tell(ask("conn_1", "please"))
		tm.wantShown("-- bob (conn_1) asks for control: please: /grant 1 or /deny 1\n")
		tm.tell(ask("conn_2", ""))
		tm.wantShown("-- bob (conn_2) asks for control: /grant 2 or /deny 2\n")
		tm.tell(ask("conn_1", "again"))
		tm.wantShown("again: /grant 1 or /deny 1\n")
		tm.typeLine("/deny 2 not you")
		tm.typeLine("/grant")
		tm.typeLine("/grant")
		tm.wantShown("! no client with that number asks for control\n")
		tm.wantCalls("deny conn_2 not you", "grant conn_1")
	})
}

func TestRefusalByTheServerIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.driver.refuse = &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "already processing\x1b[2J"}
		tm.typeLine("hi")
		tm.wantShown("! prompt: the agent is at work on a prompt: /queue sends yours after it, /interrupt ends it\n")
		tm.stillThere()
	})
}

// TestRefusedPromptDoesNotShowLaterOnesTwice types at a terminal, which shows what
// is typed by itself.
func TestRefusedPromptDoesNotShowLaterOnesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		tm.driver.refuse = &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "already processing"}
		tm.press("refused\r")
		tm.wantLast("\n> refused") // to be sent again
		if n := len(tm.a.view.own); n != 0 {
			t.Errorf("got %d prompts that are awaited, want none", n)
		}
	})
}

func TestWhoTakesControlIsToldHowToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		me := "conn_me"
		tm := open(t, attachFlags{}, true, connectedAs(me, "conn_bob"))
		tm.tell(told(approval)[0])
		tm.wantShown("? approval: bash\n  $ ls\n  conn_bob can answer\n")
		tm.tell(client.Update{Kind: client.KindControl, Control: &contracts.LeaseChange{Granted: true, ControllerConnectionID: &me}})
		tm.wantShown("-- you are in control\n? approval: bash\n  $ ls\n  y = approve, n [reason] = deny\n")
		before := tm.out.String()
		tm.tell(snapshot(client.KindSnapshot, 8, contracts.State{
			ControllerConnectionID: contracts.String(me),
			PendingRequests:        []contracts.PendingRequest{{ID: approval.RequestID, Kind: approval.RequestType}},
		}))
		if got := tm.out.String(); got != before {
			t.Errorf("got the question again: %q", strings.TrimPrefix(got, before))
		}
	})
}

func TestFirstCtrlCInterruptsAndSecondLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"), told(&contracts.ResponseStart{ResponseID: "r"})[0])
		tm.signals <- os.Interrupt
		tm.stillThere()
		tm.wantCalls(`{"type":"interrupt"}`)
		time.Sleep(secondStroke + time.Second) // too long ago to count
		tm.tell(told(&contracts.ResponseEnd{ResponseID: "r"})[0])
		tm.signals <- os.Interrupt
		tm.stillThere()
		tm.wantCalls(`{"type":"interrupt"}`) // nothing runs any more
		tm.signals <- os.Interrupt
		if err := <-tm.left; err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
	})
}

func TestTerminationLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.signals <- syscall.SIGTERM
		if err := <-tm.left; err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
	})
}

func TestCtrlDLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		_ = tm.in.Close()
		if err := <-tm.left; err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
	})
}

func TestScriptLeavesWhenItsWorkIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, false, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0])
		tm.typeLine("work")
		_ = tm.in.Close()
		tm.tell(told(&contracts.ResponseStart{ResponseID: "r"})[0])
		time.Sleep(time.Hour)
		tm.stillThere() // the response is open
		tm.tell(told(&contracts.ResponseEnd{ResponseID: "r"})[0])
		began := time.Now()
		if err := <-tm.left; err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
		if got := time.Since(began); got != quietPeriod {
			t.Errorf("left after %v, want %v", got, quietPeriod)
		}
	})
}

func TestScriptWithALineThatIsTooLongFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, false, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0])
		go func() { _, _ = io.WriteString(tm.in, strings.Repeat("x", maxTyped+1)+"\n") }() // ends with the input
		if err := <-tm.left; err == nil || !strings.Contains(err.Error(), "a line has more than 1048576 bytes") {
			t.Errorf("got %v, want an error that says how long a line may be", err)
		}
	})
}

func TestScriptOfWhichNothingWasAcceptedFails(t *testing.T) {
	for _, test := range []struct {
		line  string
		flags attachFlags
	}{{"/foo", attachFlags{}}, {"/grant", attachFlags{}}, {"hi", attachFlags{view: true}}} {
		synctest.Test(t, func(t *testing.T) {
			tm := open(t, test.flags, false, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0],
				told(&contracts.ResponseStart{ResponseID: "r"})[0]) // of somebody else; it does not end
			go func() { // the lines wait for the run
				_, _ = io.WriteString(tm.in, test.line+"\n")
				_ = tm.in.Close()
			}()
			synctest.Wait()
			tm.tell(told(&contracts.ResponseEnd{ResponseID: "r"})[0])
			if err := <-tm.left; err == nil {
				t.Errorf("%s: got a quiet end, want a failure", test.line)
			}
		})
	}
}

func TestFollowerWithoutInputStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{view: true}, false, connectedAs("conn_me", ""))
		_ = tm.in.Close()
		time.Sleep(time.Hour)
		tm.stillThere()
	})
}

func TestEndOfTheSessionEndsTheAttachment(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool // an error is returned
	}{{&client.CloseError{Code: 1000}, false}, {&client.CloseError{Code: 4403}, true}} {
		synctest.Test(t, func(t *testing.T) {
			tm := open(t, attachFlags{}, true, connectedAs("conn_me", ""))
			tm.driver.updates <- news{err: test.err}
			if err := <-tm.left; (err != nil) != test.want {
				t.Errorf("%v: got %v", test.err, err)
			}
		})
	}
}

func TestHistoryIsShownWhileThePresentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", ""))
		past := &fakeDriver{updates: make(chan news)}
		tm.a.redial = func(context.Context) (follower, error) { return past, nil }
		tm.typeLine("/history")
		go func() { tm.driver.updates <- news{update: told(&contracts.Status{Message: "present"})[0]} }()
		for _, e := range []contracts.Event{&contracts.Status{Message: "past"}, &contracts.HelloOK{}} {
			past.updates <- news{update: told(e)[0]}
		}
		synctest.Wait()
		tm.wantShown("-- from the beginning\n-- past\n-- now\n-- present\n")

		tm.a.redial = func(context.Context) (follower, error) { return nil, errors.New("no such luck") }
		tm.typeLine("/history")
		tm.wantShown("-- from the beginning\n! history: no such luck\n-- now\n")
	})
}

func TestJSONLinesAreExactAndHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{json: true, view: true}, true, connectedAs("conn_me", ""))
		tm.tell(client.Update{Kind: client.KindEvent, Cursor: 7, Epoch: "e1", Replayed: true, Event: &contracts.Status{},
			Body: raw("{\"type\":\"status\",\"message\":\"a\u009b\u202e\"}")})
		tm.tell(client.Update{Kind: client.KindDisconnected, Cursor: 7, Err: errors.New("gone"), Retry: time.Second})
		tm.typeLine("hi")
		lines := strings.Split(strings.TrimSuffix(tm.out.String(), "\n"), "\n")
		if len(lines) != 3 {
			t.Fatalf("got %d lines, want 3:\n%s", len(lines), tm.out)
		}
		if strings.Contains(lines[0], "secret") || !strings.Contains(lines[0], `"connection_id":"conn_me"`) {
			t.Errorf("connected: got %s, want it without the token", lines[0])
		}
		if want := `{"kind":"event","cursor":7,"epoch":"e1","replayed":true,"message":{"type":"status","message":"a\u009b\u202e"}}`; lines[1] != want {
			t.Errorf("got %s, want %s", lines[1], want)
		}
		if want := `{"kind":"disconnected","cursor":7,"error":"gone","retry_ms":1000}`; lines[2] != want {
			t.Errorf("got %s, want %s", lines[2], want)
		}
		var back struct{ Message struct{ Message string } }
		if err := json.Unmarshal([]byte(lines[1]), &back); err != nil || back.Message.Message != "a\u009b\u202e" {
			t.Errorf("decoded: got %q, %v; want the text unchanged", back.Message.Message, err)
		}
		if got := tm.err.String(); !strings.Contains(got, "only watch") {
			t.Errorf("stderr: got %q, want the refusal", got)
		}
	})
}

func TestPromptSaysHowTheSessionStands(t *testing.T) {
	mine, bobs := connectedAs("conn_me", "conn_me"), connectedAs("conn_me", "conn_bob")
	works := told(&contracts.ResponseStart{ResponseID: "r"})[0]
	asks := told(approval)[0]
	approver := connectedAs("conn_me", "conn_bob")
	approver.Attached.Role = contracts.RoleApprover
	for _, test := range []struct {
		flags attachFlags
		begin []client.Update
		want  string
	}{
		{attachFlags{}, []client.Update{mine}, "> "},
		{attachFlags{}, []client.Update{mine, works}, "working > "},
		{attachFlags{}, []client.Update{mine, works, told(&contracts.ResponseEnd{ResponseID: "r"})[0]}, "> "},
		{attachFlags{}, []client.Update{mine, works, asks}, "approve? [y/n] "},
		{attachFlags{}, []client.Update{mine, lost(io.EOF)}, "reconnecting > "},
		{attachFlags{}, []client.Update{mine, asks, lost(io.EOF)}, "reconnecting approve? [y/n] "},
		{attachFlags{}, []client.Update{mine, lost(io.EOF), mine}, "> "},
		{attachFlags{}, []client.Update{connectedAs("conn_me", ""), asks}, "approve? [y/n] "},
		{attachFlags{view: true}, []client.Update{connectedAs("conn_me", "")}, "watching > "},
		{attachFlags{view: true}, []client.Update{bobs, works}, "watching, working > "},
		{attachFlags{}, []client.Update{bobs}, "watching (/ask, /take) > "},
		{attachFlags{}, []client.Update{bobs, asks}, "watching, waiting > "},
		{attachFlags{approve: true}, []client.Update{approver}, "watching > "},
		{attachFlags{approve: true}, []client.Update{approver, asks}, "approve? [y/n] "},
		{attachFlags{}, []client.Update{mine, told(&contracts.Ready{ExecutorType: contracts.ExecutorReplay})[0]}, "[REPLAY] > "},
	} {
		synctest.Test(t, func(t *testing.T) {
			openLive(t, test.flags, test.begin...).wantLast("\n" + test.want)
		})
	}
}

// TestLineBeingTypedSurvivesWhatIsPrinted types while an answer arrives.
func TestLineBeingTypedSurvivesWhatIsPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		tm.press("fix the")
		tm.tell(told(&contracts.ResponseStart{ResponseID: "r"})[0])
		tm.tell(told(&contracts.ResponseChunk{ResponseID: "r", Content: "once upon"})[0])
		tm.wantLast("  once upon\nworking > fix the")
		tm.press(" te\x7fest")
		tm.tell(told(&contracts.ResponseChunk{ResponseID: "r", Content: " a time"})[0])
		tm.wantLast("  once upon a time\nworking > fix the test")
		tm.wantCalls()
		tm.tell(told(&contracts.ResponseEnd{ResponseID: "r"})[0])
		tm.press("\r")
		tm.wantLast("> fix the test\nworking > ")
		tm.wantCalls(`{"type":"prompt","content":"fix the test"}`)
		tm.press("\x1b[A")
		tm.wantLast("working > fix the test")
	})
}

// TestQuestionThatComesWhileALineIsTypedIsNotAnsweredByIt has an approval arrive
// in the middle of a line that begins like its answer.
func TestQuestionThatComesWhileALineIsTypedIsNotAnsweredByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0])
		tm.press("y")
		tm.tell(told(approval)[0])
		tm.wantLast("-- what you were typing comes back after the answer\napprove? [y/n] ")
		tm.press("es, go on\r")
		tm.wantLast("! not sent: a question has come. Your line comes back after the answer\napprove? [y/n] ")
		tm.wantCalls()
		time.Sleep(secondStroke)
		tm.press("n\r")
		tm.tell(resolvedBy("q1", contracts.ResolvedByUser))
		tm.wantLast("> yes, go on")
		tm.press("\r")
		tm.wantCalls(`{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":false}`,
			`{"type":"prompt","content":"yes, go on"}`)
		tm.press("\x1b[A")
		tm.wantLast("> yes, go on") // answers are not in the history
	})
}

// TestScriptEndsAtTheFirstRefusal has lines be refused here and by the server.
func TestScriptEndsAtTheFirstRefusal(t *testing.T) {
	for _, test := range []struct {
		lines  string
		refuse error
		asked  bool // a question waits before
		want   []string
	}{
		{"/nothing\nwork\n", nil, false, nil},
		{"work\ny\n", &contracts.Error{Code: contracts.CodeRuntimeBusy}, false, []string{`{"type":"prompt","content":"work"}`}},
		{"work\ny\n", nil, true, nil},
		{"/take\ny\n", nil, true, []string{"take"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tm := open(t, attachFlags{}, false, connectedAs("conn_me", "conn_me"))
			tm.driver.refuse = test.refuse
			if test.asked {
				tm.tell(told(approval)[0])
			}
			go func() { _, _ = io.WriteString(tm.in, test.lines) }()
			tm.tell(told(&contracts.HelloOK{})[0])
			if err := <-tm.left; !errors.Is(err, exit(exitFailure)) {
				t.Errorf("%q: got %v, want exit code %d", test.lines, err, exitFailure)
			}
			tm.wantCalls(test.want...)
		})
	}
}

// TestScriptWaitsForTheEndOfAnInterruptedRun has a question wait that ends with it.
func TestScriptWaitsForTheEndOfAnInterruptedRun(t *testing.T) {
	over := &contracts.RawAgentEvent{EventKind: "agent_end"}
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, false, connectedAs("conn_me", "conn_me"), told(&contracts.RawAgentEvent{EventKind: "agent_start"})[0],
			told(approval)[0], told(&contracts.HelloOK{})[0])
		go func() { _, _ = io.WriteString(tm.in, "/interrupt\nwork\ny\n") }()
		synctest.Wait()
		tm.wantCalls(`{"type":"interrupt"}`)
		tm.tell(resolvedBy("q1", contracts.ResolvedByRuntime))
		tm.wantCalls(`{"type":"interrupt"}`)
		tm.tell(told(over)[0])
		tm.wantCalls(`{"type":"interrupt"}`, `{"type":"prompt","content":"work"}`)
		second := *approval
		second.RequestID = "q2"
		tm.tell(told(&second)[0])
		tm.wantCalls(`{"type":"interrupt"}`, `{"type":"prompt","content":"work"}`,
			`{"type":"server_request_response","request_id":"q2","request_type":"approval","approved":true}`)
	})
}

// TestLinesOfAProgramAnswerWhatItWasToldOf has a program that reads JSON take
// control while a question waits.
func TestLinesOfAProgramAnswerWhatItWasToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{json: true}, false, connectedAs("conn_me", "conn_me"), told(approval)[0], told(&contracts.HelloOK{})[0])
		tm.typeLine("/take")
		tm.typeLine("y")
		tm.wantCalls("take", `{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":true}`)
	})
}

// TestPasteAtAnApprovalIsNoConsent pastes what begins with a word of consent.
func TestPasteAtAnApprovalIsNoConsent(t *testing.T) {
	for _, paste := range []string{"yes please\recho and more", "y\r\r{}", "y and echo more"} {
		synctest.Test(t, func(t *testing.T) {
			tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0], told(approval)[0])
			tm.press("\x1b[200~" + paste + "\x1b[201~\r")
			tm.wantCalls()
			if !strings.Contains(tm.out.String(), "! not sent: ") {
				t.Errorf("%q: got\n%s\nwant that it is not sent", paste, tm.out)
			}
			tm.press("\x1b[A")
			tm.wantLast("approve? [y/n] " + strings.ReplaceAll(paste, "\r", "\n  "))
		})
	}
}

// TestLineTypedWithoutAConnectionIsAnnounced types a prompt, and what is not sent
// later.
func TestLineTypedWithoutAConnectionIsAnnounced(t *testing.T) {
	const waits = "-- not connected: this is sent when the connection is back\n"
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"), lost(io.EOF))
		tm.typeLine("work")
		tm.wantShown(waits)
		before := tm.out.String()
		tm.typeLine("/take")
		tm.tell(connectedAs("conn_me", "conn_me"))
		tm.typeLine("more")
		if strings.Contains(strings.TrimPrefix(tm.out.String(), before), waits) {
			t.Errorf("got\n%s\nwant it said once", tm.out)
		}
	})
}

// TestRefusedPasteIsInTheHistory has the server refuse a long paste while another
// line is typed.
func TestRefusedPasteIsInTheHistory(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		tm.driver.refuse = &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "already processing"}
		tm.press("\x1b[200~" + long + "\x1b[201~\rmore")
		tm.press("\x1b[A")
		tm.wantLast("> [200000 characters pasted]")
		tm.press("\x15\x1b[200~" + strings.Repeat(long, 6) + "\x1b[201~")
		if want := "! too long: a line has at most 1 MiB. The up key shows its beginning\n"; !strings.Contains(strings.ReplaceAll(tm.out.String(), "\r\n", "\n"), want) {
			t.Errorf("got\n%s\nwant %q", tm.out, want)
		}
		tm.press("\x1b[A")
		tm.wantLast("> [1048576 characters pasted]")
	})
}

// TestKeysThatLeaveAndStop has a human press them on an empty line.
func TestKeysThatLeaveAndStop(t *testing.T) {
	for keys, leaves := range map[string]bool{"\x04": true, "x\x04": false, "\x03\x03": true, "x\x03\x03": false, "/quit\r": true} {
		synctest.Test(t, func(t *testing.T) {
			tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
			tm.press(keys)
			if !leaves {
				tm.stillThere()
				return
			}
			if err := <-tm.left; err != nil {
				t.Errorf("%q: got %v, want a quiet end", keys, err)
			}
		})
	}
}

// TestClosedTerminalLeaves has the terminal go away, of which a signal tells.
func TestClosedTerminalLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		tm.signals <- syscall.SIGHUP
		if err := <-tm.left; err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
	})
}

func TestCtrlCEndsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		past := &fakeDriver{updates: make(chan news)}
		tm.a.redial = func(context.Context) (follower, error) { return past, nil }
		tm.press("/history\r")
		past.updates <- news{update: told(&contracts.Status{Message: "long ago"})[0]}
		synctest.Wait()
		tm.wantLast("-- from the beginning\nhistory, Ctrl-C ends it > \n-- long ago\nhistory, Ctrl-C ends it > ")
		tm.press("\x03")
		tm.wantLast("-- now\n> ")
		tm.stillThere()
	})
}

// TestPastIsLeftOutWithALineThatSaysSo starts with the latest entries of a session
// in which a question waits since before them.
func TestPastIsLeftOutWithALineThatSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true)
		tm.driver.state = contracts.State{
			Cwd: "/srv", ControllerConnectionID: contracts.String("conn_me"), IsResponding: true,
			CurrentResponse: &contracts.CurrentResponse{ResponseID: "r", Text: "all of the story"},
			ActiveTools:     []contracts.ActiveTool{{CallID: "c1", Tool: "grep"}, {CallID: "c2", Tool: "bash"}},
			PendingRequests: []contracts.PendingRequest{{ID: "old", Kind: contracts.RequestClientTool, Tool: "camera", Args: raw("{}")}},
		}
		tm.a.skipped = 998000
		for _, u := range append([]client.Update{connectedAs("conn_me", "conn_me")}, told(
			&contracts.ResponseChunk{ResponseID: "r", Content: "the story\n"},
			&contracts.ToolCall{CallID: "c2", Tool: "bash", Args: raw("{}")},
			&contracts.HelloOK{})...) {
			tm.tell(u)
		}
		if got, want := tm.out.String(), `-- attached to session sess_a
-- you are in control
-- earlier entries are not shown: /history shows the session from its beginning
  the story
* bash {}
-- workspace /srv
* grep is running
? client tool: camera
  {}
  a text as the tool's result, ! and a text to report a failure
`; got != want {
			compareText(t, got, want)
		}
		tm.typeLine("click")
		tm.wantCalls(`{"type":"server_request_response","request_id":"old","request_type":"client_tool","content":[{"type":"text","text":"click"}]}`)
	})
}

// TestEndedQuestionsOfThePastSayNothingOfAnswers has one of two questions wait in a
// replay. The history tells of no answers at all.
func TestEndedQuestionsOfThePastSayNothingOfAnswers(t *testing.T) {
	second := *approval
	second.RequestID = "q2"
	said := told(approval, &contracts.ServerRequestResolved{RequestID: "q1", RequestType: contracts.RequestApproval,
		Resolution: contracts.VerdictApproved, ResolvedBy: contracts.ResolvedByUser}, &second)
	const want = "? approval: bash\n  $ ls\n-- approved by user\n? approval: bash\n  $ ls\n  conn_bob can answer\n"
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true)
		tm.driver.state = contracts.State{Cwd: "/srv", PendingRequests: []contracts.PendingRequest{{ID: "q2", Kind: contracts.RequestApproval}}}
		tm.tell(connectedAs("conn_me", "conn_bob"))
		for _, u := range said {
			u.Replayed = true
			tm.tell(u)
		}
		tm.wantShown(want)
		past := &fakeDriver{updates: make(chan news)}
		tm.a.redial = func(context.Context) (follower, error) { return past, nil }
		tm.typeLine("/history")
		for _, u := range append([]client.Update{connectedAs("conn_past", "conn_bob")}, said...) {
			past.updates <- news{update: u}
		}
		synctest.Wait()
		tm.wantShown("-- from the beginning\n" + strings.TrimSuffix(want, "  conn_bob can answer\n"))
	})
}

// snapshot is a state that comes whole at cursor.
func snapshot(kind client.Kind, cursor uint64, st contracts.State) client.Update {
	return client.Update{Kind: kind, Cursor: cursor, Snapshot: &contracts.Snapshot{Cursor: cursor, State: st}}
}

// TestScriptWaitsForItsPromptAcrossAHandOver has the state, as every hand-over
// brings it, arrive after the prompt was sent and before its run begins.
func TestScriptWaitsForItsPromptAcrossAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		me := "conn_me"
		tm := open(t, attachFlags{}, false, connectedAs(me, "conn_bob"), told(&contracts.HelloOK{})[0])
		tm.driver.accepted = 9
		tm.tell(client.Update{Kind: client.KindControl, Control: &contracts.LeaseChange{Granted: true, ControllerConnectionID: &me}})
		tm.typeLine("work")
		tm.driver.updates <- news{update: snapshot(client.KindSnapshot, 8, contracts.State{ControllerConnectionID: contracts.String(me)})}
		go func() { _, _ = io.WriteString(tm.in, "y\n") }() // waits for the question
		synctest.Wait()
		tm.wantCalls(`{"type":"prompt","content":"work"}`)
		tm.tell(told(approval)[0])
		tm.wantCalls(`{"type":"prompt","content":"work"}`,
			`{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":true}`)
	})
}

// TestScriptGoesOnAfterARunThatItMissed has a connection that was lost come back
// to a state in which the run is over.
func TestScriptGoesOnAfterARunThatItMissed(t *testing.T) {
	for _, test := range []struct {
		state client.Update
		waits bool
	}{
		{snapshot(client.KindReset, 12, contracts.State{}), false},
		{snapshot(client.KindReset, 12, contracts.State{IsResponding: true}), true},
		{snapshot(client.KindReset, 9, contracts.State{}), true}, // as of before the prompt
	} {
		d := newActivity()
		d.note(connectedAs("conn_me", "conn_me"))
		d.await()
		d.accept(9)
		d.note(test.state)
		if got := d.running(); got != test.waits {
			t.Errorf("%+v, accepted before: got waiting %t, want %t", test.state.Snapshot, got, test.waits)
		}
		d = newActivity()
		d.note(connectedAs("conn_me", "conn_me"))
		d.await()
		d.note(test.state)
		if !d.running() {
			t.Errorf("%+v before the prompt was accepted: got no waiting", test.state.Snapshot)
		}
		d.accept(9)
		if got := d.running(); got != test.waits {
			t.Errorf("%+v, accepted after: got waiting %t, want %t", test.state.Snapshot, got, test.waits)
		}
	}
}

// TestHandOverDoesNotEndTheRun holds apart a state that follows what was seen
// and one that stands for what was missed.
func TestHandOverDoesNotEndTheRun(t *testing.T) {
	for _, test := range []struct {
		state client.Update
		runs  bool
	}{
		{snapshot(client.KindSnapshot, 5, contracts.State{}), true},
		{snapshot(client.KindReset, 5, contracts.State{}), false},
		{snapshot(client.KindReset, 5, contracts.State{IsResponding: true}), true},
	} {
		d := newActivity()
		d.note(connectedAs("conn_me", "conn_me"))
		d.note(told(&contracts.RawAgentEvent{EventKind: "agent_start"})[0])
		d.note(test.state)
		if got := d.running(); got != test.runs {
			t.Errorf("%s, responding %t: got running %t, want %t", test.state.Kind, test.state.Snapshot.State.IsResponding, got, test.runs)
		}
	}
}

// TestRunThatWasGoingOnEndsWithIt has a client come in the middle of a run, which
// goes on after its last tool.
func TestRunThatWasGoingOnEndsWithIt(t *testing.T) {
	for _, asked := range []bool{false, true} { // by this client, before it lost its connection
		d := newActivity()
		d.note(connectedAs("conn_me", "conn_me"))
		if asked {
			d.await()
			d.accept(9)
		}
		d.note(snapshot(client.KindReset, 12, contracts.State{IsResponding: true, TrackedTools: []contracts.PendingEntry{{CallID: "c"}}}))
		d.note(told(&contracts.ToolEnd{CallID: "c"})[0])
		if !d.running() {
			t.Errorf("asked %t: got an end with the tool, want it with the run", asked)
		}
		d.note(told(&contracts.RawAgentEvent{EventKind: "agent_end"})[0])
		if d.running() {
			t.Errorf("asked %t: got a run that goes on, want its end", asked)
		}
	}
}

func TestAnsweredQuestionIsNotAskedAgainByAnOlderState(t *testing.T) {
	d := newActivity()
	d.note(connectedAs("conn_me", "conn_me"))
	d.note(told(approval)[0])
	q := *d.first()
	older := snapshot(client.KindSnapshot, 5, contracts.State{PendingRequests: []contracts.PendingRequest{{ID: q.id, Kind: q.kind}}})
	d.answer(q.id)
	d.note(older)
	if d.first() != nil {
		t.Error("got the question again, want it answered")
	}
	d.reopen(q) // the answer was refused
	d.note(older)
	if d.first() == nil {
		t.Error("got no question after its answer was refused")
	}
	d.answer(q.id)
	d.note(told(&contracts.ServerRequestResolved{RequestID: q.id})[0])
	d.note(older)
	if d.first() == nil {
		t.Error("got no question, want what a later state says")
	}
}

// TestQuestionThatEndedIsNotOpenedAgain has somebody else's answer be the first.
func TestQuestionThatEndedIsNotOpenedAgain(t *testing.T) {
	d := newActivity()
	d.note(connectedAs("conn_me", "conn_me"))
	d.note(told(approval)[0])
	q := *d.first()
	d.answer(q.id)
	d.note(resolvedBy(q.id, contracts.ResolvedByUser))
	d.reopen(q)
	if d.first() != nil {
		t.Error("got the question again, want it gone")
	}
}

func TestWhoIsAskedForControlIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"),
			told(&contracts.ConnectionInfo{Connections: []contracts.ConnectionState{
				{ConnectionID: "conn_bob", ClientInfo: &contracts.ClientInfo{Name: "bob"}}, {ConnectionID: "conn_x"},
			}})[0])
		said := func(text string) client.Update { return told(&contracts.Status{Message: text})[0] }
		before := tm.out.String()
		tm.tell(said("bob asks for control"))
		tm.tell(said("conn_x asks for control"))
		if got := tm.out.String(); got != before {
			t.Errorf("got %q, want nothing: the question comes with how to answer it", strings.TrimPrefix(got, before))
		}
		tm.tell(said("the law asks for control")) // said by an agent
		tm.wantShown("-- the law asks for control\n")
		tm.tell(client.Update{Kind: client.KindControl, Control: &contracts.LeaseChange{ControllerConnectionID: new("conn_bob")}})
		tm.tell(said("conn_x asks for control"))
		tm.wantShown("-- conn_x asks for control\n") // somebody else is asked
	})
}

// elicitation is a question with a form, as a server asks it.
var elicitation = &contracts.ServerRequest{RequestID: "e1", RequestType: contracts.RequestMCPElicitation, CallID: "e1", Tool: "elicit", Args: raw(someForm)}

func resolvedBy(id string, by contracts.Resolver) client.Update {
	return told(&contracts.ServerRequestResolved{RequestID: id, Resolution: contracts.VerdictAnswered, ResolvedBy: by})[0]
}

func TestEnterTakesTheDefaultOfAField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.tell(told(elicitation)[0])
		for _, line := range []string{"", "Ada", "", "", "", "", "y"} { // the first is refused
			tm.typeLine(line)
		}
		tm.wantCalls(`{"type":"server_request_response","request_id":"e1","request_type":"mcp_elicitation",` +
			`"content":[{"type":"text","text":"{\"action\":\"accept\",\"content\":{\"age\":30,\"name\":\"Ada\",\"ok\":true}}"}]}`)
		tm.typeLine("") // nothing waits any more
		tm.stillThere()
	})
}

// TestLineForAQuestionThatWentIsNoPrompt has a question be answered elsewhere
// while its answer is being typed.
func TestLineForAQuestionThatWentIsNoPrompt(t *testing.T) {
	const notSent = "! not sent: the question has ended. If this was not its answer, send it again\n"
	other := &contracts.ServerRequest{RequestID: "q2", RequestType: contracts.RequestApproval, Tool: "bash", Args: raw(`{"command":"rm -rf /"}`)}
	attach := func(t *testing.T, typed bool) *terminal {
		return open(t, attachFlags{}, typed, connectedAs("conn_me", "conn_me"), told(&contracts.HelloOK{})[0])
	}
	synctest.Test(t, func(t *testing.T) {
		tm := attach(t, true)
		tm.tell(told(elicitation)[0])
		tm.typeLine("Ada")
		tm.tell(resolvedBy("e1", contracts.ResolvedByRuntime))
		time.Sleep(time.Hour)
		tm.typeLine("42")
		tm.wantShown(notSent)
		tm.wantCalls()
		tm.typeLine("42")
		tm.wantCalls(`{"type":"prompt","content":"42"}`)
	})
	synctest.Test(t, func(t *testing.T) {
		tm := attach(t, true)
		tm.tell(told(approval)[0])
		tm.tell(told(other)[0])
		tm.tell(resolvedBy("q1", contracts.ResolvedByUser))
		tm.typeLine("y")
		tm.wantShown(notSent)
		time.Sleep(time.Hour)
		tm.typeLine("y")
		tm.wantCalls(`{"type":"server_request_response","request_id":"q2","request_type":"approval","approved":true}`)
	})
	for _, later := range []struct {
		wait time.Duration
		by   contracts.Resolver
	}{{secondStroke, contracts.ResolvedByUser}, {0, contracts.ResolvedByRuntime}} {
		synctest.Test(t, func(t *testing.T) {
			tm := attach(t, true)
			tm.tell(told(approval)[0])
			tm.tell(resolvedBy("q1", later.by))
			time.Sleep(later.wait)
			tm.typeLine("go on")
			tm.wantCalls(`{"type":"prompt","content":"go on"}`)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tm := attach(t, false)
		tm.typeLine("work")
		tm.tell(told(elicitation)[0])
		tm.typeLine("Ada")
		tm.tell(resolvedBy("e1", contracts.ResolvedByClient))
		tm.tell(told(&contracts.RawAgentEvent{EventKind: "agent_start"})[0])
		go func() { _, _ = io.WriteString(tm.in, "42\n") }()
		tm.tell(told(&contracts.RawAgentEvent{EventKind: "agent_end"})[0])
		if err := <-tm.left; !errors.Is(err, exit(exitFailure)) {
			t.Errorf("got %v, want exit code %d", err, exitFailure)
		}
		tm.wantCalls(`{"type":"prompt","content":"work"}`)
	})
}

func TestShowTellsAllOfAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_me"))
		tm.typeLine("/show")
		tm.wantShown("! no question is open\n")
		command := strings.Repeat("x", 5000)
		tm.tell(told(&contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, Tool: "bash", Args: raw(`{"command":"` + command + `"}`)})[0])
		if strings.Contains(tm.out.String(), command) {
			t.Error("got all of the command before it was asked for")
		}
		tm.typeLine("/show")
		tm.wantShown("? approval: bash\n  $ " + command + "\n  y = approve, n [reason] = deny\n")
	})
}

// TestPasteIsOnePrompt pastes several lines, and more than a terminal in line mode
// takes at once.
func TestPasteIsOnePrompt(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	synctest.Test(t, func(t *testing.T) {
		tm := openLive(t, attachFlags{}, connectedAs("conn_me", "conn_me"))
		tm.press("\x1b[200~one\rtwo\x1b[201~")
		tm.wantCalls()
		tm.press("\r")
		tm.wantLast("> one\n  two\nworking > ")
		tm.press("see \x1b[200~" + long + "\x1b[201~\r")
		tm.wantLast("> see [10000 characters pasted]\nworking > ")
		tm.wantCalls(`{"type":"prompt","content":"one\ntwo"}`, `{"type":"prompt","content":"see `+long+`"}`)
	})
}

func TestScriptIsToldThatARunFailed(t *testing.T) {
	failed, went := &contracts.ErrorEvent{Message: "no", ErrorType: contracts.ErrorTransient}, &contracts.ResponseStart{ResponseID: "r"}
	end, over := &contracts.ResponseEnd{ResponseID: "r"}, &contracts.RawAgentEvent{EventKind: "agent_end"}
	begin := &contracts.RawAgentEvent{EventKind: "agent_start"}
	for _, test := range []struct {
		name   string
		events []contracts.Event
		want   bool
	}{
		{"an error at the end", []contracts.Event{begin, went, failed, end, over}, true},
		{"an error that was overcome", []contracts.Event{begin, failed, went, end, over}, false},
		{"an interrupt", []contracts.Event{begin, went, end, failed, over}, true},
		{"without raw events", []contracts.Event{went, failed, end}, true},
		{"one of somebody else's later", []contracts.Event{begin, went, end, over, begin, failed, over}, false},
		{"one before", []contracts.Event{begin, failed, over, begin, went, end, over}, true},
	} {
		d := newActivity()
		d.note(connectedAs("conn_me", "conn_me"))
		d.note(told(failed)[0]) // of before
		d.await()
		for _, u := range told(test.events...) {
			if test.name == "one before" && u.Event == contracts.Event(begin) && !d.own {
				d.await()
			}
			d.note(u)
		}
		if got := d.broke(); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}
