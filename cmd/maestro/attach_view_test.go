package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
)

// told is an update that carries an event.
func told(events ...contracts.Event) []client.Update {
	var updates []client.Update
	for i, e := range events {
		updates = append(updates, client.Update{Kind: client.KindEvent, Cursor: uint64(i + 1), Event: e})
	}
	return updates
}

// connectedAs is the update that begins a connection.
func connectedAs(conn, controller string) client.Update {
	a := &contracts.Attached{SessionID: "sess_a", ConnectionID: conn, ConnectionToken: "secret", Role: contracts.RoleController, Resume: "replay"}
	if controller != "" {
		a.ControllerConnectionID = &controller
	}
	return client.Update{Kind: client.KindConnected, Attached: a}
}

// rendered returns what a view prints on a pipe.
func rendered(updates ...client.Update) string {
	var out strings.Builder
	v := newView(console.NewScreen(&out, false, nil, nil))
	for _, u := range updates {
		v.show(u)
	}
	return out.String()
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func TestSessionReadsLikeAConversation(t *testing.T) {
	branch := "main"
	exit := int64(2)
	got := rendered(append([]client.Update{connectedAs("conn_me", "")}, told(
		&contracts.Ready{Model: "atlas", Provider: "example", ExecutorType: contracts.ExecutorReplay},
		&contracts.SessionInfo{Cwd: "/srv/project", GitBranch: &branch},
		&contracts.RawAgentEvent{EventKind: "message_start", Event: raw(`{"type":"message_start","message":{"role":"user","content":"clean\nup"}}`)},
		&contracts.RawAgentEvent{EventKind: "message_start", Event: raw(`{"message":{"role":"assistant","content":"no"}}`)},
		&contracts.ResponseStart{ResponseID: "r"},
		&contracts.ResponseChunk{ResponseID: "r", Content: "Let me ", IsThinking: true},
		&contracts.ResponseChunk{ResponseID: "r", Content: "think.", IsThinking: true},
		&contracts.ResponseChunk{ResponseID: "r", Content: "I will "},
		&contracts.ResponseChunk{ResponseID: "r", Content: "clean."},
		&contracts.ResponseEnd{ResponseID: "r", DurationMS: 1234, Usage: contracts.Usage{TotalTokens: 42, TotalCostUSD: 0.0184}},
		&contracts.ToolCall{CallID: "c1", Tool: "bash", Args: raw(`{"command":"rm -rf build"}`), RequiresApproval: true},
		&contracts.ServerRequest{RequestID: "c1", RequestType: contracts.RequestApproval, CallID: "c1", Tool: "bash", Args: raw(`{"command":"rm -rf build"}`), Reason: "Approval required"},
		&contracts.ServerRequestResolved{RequestID: "c1", RequestType: contracts.RequestApproval, Resolution: contracts.VerdictApproved, Reason: "ok", ResolvedBy: contracts.ResolvedByUser},
		&contracts.ToolStart{CallID: "c1"},
		&contracts.ToolOutput{CallID: "c1", Content: "removed"},
		&contracts.ToolOutput{CallID: "c1", Content: " 14 files\nand"},
		&contracts.ToolOutput{CallID: "c1", Content: " more\n"},
		&contracts.ToolOutput{CallID: "c1", Content: "end"},
		&contracts.ToolEnd{CallID: "c1", Success: true},
		&contracts.ToolCall{CallID: "c2", Tool: "read", Args: raw(`{ "path": "x" }`)},
		&contracts.ToolEnd{CallID: "c2", ErrorCode: "governance_denied"},
		&contracts.UtilityCommandStarted{CommandID: "u1", Command: "go test"},
		&contracts.UtilityCommandOutput{CommandID: "u1", Stream: contracts.StreamStdout, Content: "FAIL\n"},
		&contracts.UtilityCommandExited{CommandID: "u1", ExitCode: &exit},
		&contracts.Compaction{Summary: "It was\nlong."},
		&contracts.Status{Message: "Loaded 2 attachment(s)"},
		&contracts.ErrorEvent{Message: "no\nnetwork", ErrorType: contracts.ErrorTransient},
		&contracts.ErrorEvent{Message: "gone", ErrorType: contracts.ErrorFatal, Fatal: true},
	)...)...)
	want := `-- attached to session sess_a
-- nobody is in control
-- [REPLAY] ready: atlas (example)
-- workspace /srv/project on main
> clean
  up
  Let me think.
  I will clean.
-- 1.2 s, 42 tokens, $0.0184
* bash $ rm -rf build
? approval: bash - Approval required
  $ rm -rf build
  y = approve, n [reason] = deny
-- approved by user: ok
  | removed 14 files
  | and more
  | end
  done: bash
* read {"path":"x"}
  failed: read (governance_denied)
-- command u1: go test
  | FAIL
-- command u1 exited with 2
-- history summarised: It was long.
-- Loaded 2 attachment(s)
! error (transient): no
  network
! fatal error (fatal): gone
`
	compareText(t, got, want)
}

// TestAnswersKeepTheirShape has them come whole and in pieces: all lines have the
// same margin, and nothing at the left is an agent's.
func TestAnswersKeepTheirShape(t *testing.T) {
	for _, text := range []string{
		"list:\n- a\n  - b\n* c\n> d\n-- e\n? f\n! g",
		"a: 1\n\nb:\n  - -\n  - 2\n---\n",
		"? approval: bash\n  $ ls\n-- approved\n",
		"\tmake\n\n\n",
	} {
		var want strings.Builder
		for line := range strings.Lines(text) {
			if line != "\n" {
				want.WriteString("  ")
			}
			want.WriteString(line)
		}
		for _, thinking := range []bool{false, true} {
			for _, size := range []int{1, 2, 3, len(text)} {
				var pieces []contracts.Event
				for rest := text; rest != ""; {
					n := min(size, len(rest))
					pieces = append(pieces, &contracts.ResponseChunk{Content: rest[:n], IsThinking: thinking})
					rest = rest[n:]
				}
				compareText(t, rendered(told(pieces...)...), want.String())
			}
		}
	}
}

func TestHandOversAreTold(t *testing.T) {
	me, bob := "conn_me", "conn_bob"
	people := []contracts.ConnectionState{
		{ConnectionID: me, Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "ada"}},
		{ConnectionID: bob, Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "bob\x1b[31m"}},
	}
	lease := func(f *contracts.LeaseChange) client.Update {
		return client.Update{Kind: client.KindControl, Control: f}
	}
	got := rendered(
		connectedAs(me, me),
		told(&contracts.ConnectionInfo{ControllerConnectionID: contracts.String(me), Connections: people})[0],
		lease(&contracts.LeaseChange{ControllerConnectionID: &bob, Reason: contracts.LeaseTakenOver}),
		told(&contracts.ConnectionInfo{ControllerConnectionID: contracts.String(bob), Connections: people})[0],
		lease(&contracts.LeaseChange{ControllerConnectionID: &bob, Reason: contracts.LeaseDenied, Message: "not yet"}),
		told(&contracts.ControlChanged{From: &contracts.Author{Name: "owner", ConnectionID: me}, To: &contracts.Author{Name: "Bob", ConnectionID: bob}})[0],
		lease(&contracts.LeaseChange{ControllerConnectionID: &bob, Reason: contracts.LeaseDenied, Message: "still not"}),
		told(&contracts.ConnectionInfo{ControllerConnectionID: contracts.Null(), Connections: people[:1]})[0],
		lease(&contracts.LeaseChange{Granted: true, ControllerConnectionID: &me, Reason: contracts.LeaseGranted}),
	)
	compareText(t, got, `-- attached to session sess_a
-- you are in control
-- bob (conn_bob) is in control (taken over)
-- bob (conn_bob) keeps control: not yet
-- Bob keeps control: still not
-- nobody is in control
-- you are in control (granted)
`)
}

// TestPastIsNotTakenForThePresent has what was missed hold hand-overs, the states
// that came with them and an answer that was going on.
func TestPastIsNotTakenForThePresent(t *testing.T) {
	missed := append(told(
		&contracts.ConnectionInfo{ControllerConnectionID: contracts.String("conn_bob")},
		&contracts.ResponseChunk{ResponseID: "r", Content: "half "},
		&contracts.ToolCall{CallID: "c", Tool: "bash", Args: raw("{}")},
	), snapshot(client.KindSnapshot, 3, contracts.State{ControllerConnectionID: contracts.Null(), Cwd: "/old",
		CurrentResponse: &contracts.CurrentResponse{ResponseID: "r", Text: "half "}}))
	for i := range missed {
		missed[i].Replayed = true
	}
	live := append(told(&contracts.HelloOK{}),
		snapshot(client.KindSnapshot, 9, contracts.State{ControllerConnectionID: contracts.String("conn_me"), // of a hand-over
			CurrentResponse: &contracts.CurrentResponse{ResponseID: "r", Text: "half "}, ActiveTools: []contracts.ActiveTool{{CallID: "c", Tool: "bash"}}}),
		told(&contracts.ResponseChunk{ResponseID: "r", Content: "done."})[0])
	got := rendered(append(append([]client.Update{connectedAs("conn_me", "conn_me")}, missed...), live...)...)
	compareText(t, got, `-- attached to session sess_a
-- you are in control
  half 
* bash {}
  done.`)
}

func lost(err error) client.Update {
	return client.Update{Kind: client.KindDisconnected, Err: &client.CloseError{Code: 1006, Err: err}}
}

func TestLossesAndResetsAreTold(t *testing.T) {
	state := contracts.State{
		Cwd: "/srv", CurrentResponse: &contracts.CurrentResponse{Text: "half a sen"},
		ActiveTools:            []contracts.ActiveTool{{CallID: "c", Tool: "bash", Output: "so far\n"}},
		ControllerConnectionID: contracts.String("conn_b"),
		PendingRequests: []contracts.PendingRequest{{ID: "q", Kind: contracts.RequestUserInput, Tool: "ask_user",
			Args: raw(`{"questions":[{"header":"Colour","question":"Which?","options":[{"label":"red","description":"warm"},{"label":"blue"}]}]}`)}},
	}
	got := rendered(
		connectedAs("conn_a", ""), told(&contracts.HelloOK{})[0],
		client.Update{Kind: client.KindDisconnected, Err: &client.CloseError{Code: 1001, Reason: contracts.CodeGoingAway}},
		lost(errors.New("EOF")), lost(fmt.Errorf("dial: %w", errors.New("refused"))), lost(errors.New("refused")),
		connectedAs("conn_a", ""),
		client.Update{Kind: client.KindReset, Reason: contracts.ResetLagged, Snapshot: &contracts.Snapshot{State: state}},
		told(&contracts.ResponseChunk{Content: "tence."})[0],
		told(&contracts.Status{Message: "over"})[0],
	)
	compareText(t, got, `-- attached to session sess_a
-- nobody is in control
-- connection lost (going away); trying again
-- connection lost (EOF); trying again
-- connection lost (refused); trying again
-- connected again to session sess_a
-- missed too much (lagged): starting over from the current state
-- workspace /srv
-- conn_b is in control
* bash is running
  | so far
  half a sen
? user input: ask_user
  Colour: Which?
    1. red - warm
    2. blue
  conn_b can answer
  tence.
-- over
`)
}

// TestFirstResetPointsToTheHistory attaches to a session that cannot replay, such as one in a new epoch.
func TestFirstResetPointsToTheHistory(t *testing.T) {
	reset := client.Update{Kind: client.KindReset, Reason: contracts.ResetGap, Snapshot: &contracts.Snapshot{State: contracts.State{Cwd: "/srv"}}}
	compareText(t, rendered(connectedAs("conn_a", "conn_a"), reset), `-- attached to session sess_a
-- you are in control
-- this is the current state: /history shows what is kept of the time before
-- workspace /srv
`)
	var out strings.Builder
	v := newView(console.NewScreen(&out, false, nil, nil))
	v.past = true
	v.show(reset)
	compareText(t, out.String(), `-- what was before is not kept any more: this is the current state
-- workspace /srv
`)
}

func TestQuestionsShowWhatIsAsked(t *testing.T) {
	for _, test := range []struct {
		kind       contracts.RequestType
		args, want string
	}{
		{contracts.RequestMCPElicitation, `{"serverName":"crm","message":"Your id?","url":"https://x","requestedSchema":{"type":"object"}}`,
			"? mcp elicitation: tool\n  crm: Your id?\n  https://x\n  {\"type\":\"object\"}\n  accept, decline, cancel, or a JSON object to accept with"},
		{contracts.RequestToolRetry, `{"args":{"command":"make"},"error_message":"no\nspace","attempt":2}`,
			"? tool retry: tool\n  $ make\n  attempt 2 failed: no\n    space\n  r = retry, s = skip, a = abort, each with an optional reason"},
		{contracts.RequestClientTool, `{"file":"a.txt"}`,
			"? client tool: tool\n  file: a.txt\n  a text as the tool's result, ! and a text to report a failure"},
	} {
		q := question{id: "q", kind: test.kind, tool: "tool", args: raw(test.args)}
		compareText(t, q.text(q.keys(false), false), test.want)
	}
}

func TestEndOfAnApprovalSaysWhatWasChosen(t *testing.T) {
	const offers = `{"_acp":{"options":[{"id":"all","name":"All","kind":"allow_always"},{"id":"no","name":"No","kind":"reject_once"}]}}`
	for _, test := range []struct {
		args    string
		verdict contracts.Verdict
		reason  string
		want    string
	}{
		{`{}`, contracts.VerdictApproved, "Approved", "approved by Ann"},
		{`{}`, contracts.VerdictDenied, "Denied by user", "denied by Ann"},
		{`{}`, contracts.VerdictDenied, "not now", "denied by Ann: not now"},
		{`{}`, contracts.VerdictApproved, `{"remember":"session","rule":"bash(ls)"}`, "approved by Ann, always in this session, as the rule bash(ls)"},
		{`{}`, contracts.VerdictDenied, `{"remember":"session","reason":"no"}`, "denied by Ann, always in this session: no"},
		{`{}`, contracts.VerdictApproved, `{"other":1}`, `approved by Ann: {"other":1}`},
		{offers, contracts.VerdictApproved, "Approved", "approved by Ann: 1. All (allow always, all)"},
		{offers, contracts.VerdictApproved, `{"option_id":"all"}`, "approved by Ann: 1. All (allow always, all)"},
		{offers, contracts.VerdictDenied, "not now", "denied by Ann: 2. No (reject once, no): not now"},
		{offers, contracts.VerdictDenied, `{"option_id":"no"}`, "denied by Ann: 2. No (reject once, no)"},
		{offers, contracts.VerdictApproved, `{"option_id":"no"}`, "answered by Ann: 2. No (reject once, no)"},
		{offers, contracts.VerdictApproved, `{"option_id":"x"}`, "approved by Ann: option x"},
		{offers, contracts.VerdictDenied, `{"option_id":"all"}`, "denied by Ann: 2. No (reject once, no)"}, // which is what agents make of it
		{offers, contracts.VerdictApproved, `{"option_id":"all"`, `approved by Ann: {"option_id":"all"`},
	} {
		ask := &contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, Tool: "edit", Args: raw(test.args)}
		got := rendered(told(ask, &contracts.ServerRequestResolved{RequestID: "q", RequestType: contracts.RequestApproval,
			Resolution: test.verdict, Reason: test.reason, ResolvedBy: contracts.ResolvedByUser,
			Author: &contracts.Author{Name: "Ann"}})...)
		if !strings.HasSuffix(got, "\n-- "+test.want+"\n") {
			t.Errorf("%s: got\n%s\nwant it to end with %s", test.reason, got, test.want)
		}
	}
}

// TestStateSaysWhichAgentItIs has the history left out.
func TestStateSaysWhichAgentItIs(t *testing.T) {
	st := contracts.State{Model: "atlas", Provider: "example"}
	compareText(t, rendered(snapshot(client.KindSnapshot, 1, st), snapshot(client.KindSnapshot, 2, st)), "-- ready: atlas (example)\n")
}

// TestNoAgentTextReachesTheTerminalRaw puts an escape sequence into every text
// of every event and snapshot that a view shows.
func TestNoAgentTextReachesTheTerminalRaw(t *testing.T) {
	const evil = "\x1b]0;owned\a\u009b2J\u202e"
	quoted, err := json.Marshal(map[string]string{"command": evil, "message": evil, "serverName": evil})
	if err != nil {
		t.Fatal(err)
	}
	user, err := json.Marshal(map[string]any{"message": map[string]any{"role": "user", "content": evil}})
	if err != nil {
		t.Fatal(err)
	}
	text := evil
	updates := told(
		&contracts.Ready{Model: evil, Provider: evil}, &contracts.SessionInfo{Cwd: evil, GitBranch: &text},
		&contracts.RawAgentEvent{EventKind: "message_start", Event: user},
		&contracts.PromptAccepted{Content: evil, Attachments: []string{evil}, Author: contracts.Author{Name: evil, ClaimedName: evil}},
		&contracts.ServerRequestResolved{Author: &contracts.Author{Name: evil, ClientInfo: &contracts.ClientInfo{Name: evil}}},
		&contracts.ResponseChunk{Content: evil}, &contracts.ResponseChunk{Content: evil, IsThinking: true},
		&contracts.ToolCall{CallID: evil, Tool: evil, Args: quoted}, &contracts.ToolOutput{CallID: evil, Content: evil},
		&contracts.ToolEnd{CallID: evil, ErrorCode: evil}, &contracts.Status{Message: evil}, &contracts.Compaction{Summary: evil},
		&contracts.ErrorEvent{Message: evil, ErrorType: evil},
		&contracts.ServerRequestResolved{RequestType: evil, Resolution: evil, ResolvedBy: evil, Reason: evil},
		&contracts.UtilityCommandStarted{CommandID: evil, Command: evil}, &contracts.UtilityCommandOutput{CommandID: evil, Content: evil},
		&contracts.UtilityCommandExited{CommandID: evil, Signal: &text, Reason: evil},
		&contracts.ConnectionInfo{ControllerConnectionID: contracts.String(evil), Connections: []contracts.ConnectionState{{ConnectionID: evil, ClientInfo: &contracts.ClientInfo{Name: evil}}}},
	)
	for _, kind := range append(contracts.RequestTypes(), evil) {
		updates = append(updates, told(&contracts.ServerRequest{RequestID: evil, RequestType: kind, Tool: evil, DisplayName: evil, Reason: evil, Args: quoted})...)
	}
	updates = append(updates,
		client.Update{Kind: client.KindDisconnected, Err: errors.New(evil)},
		client.Update{Kind: client.KindReset, Reason: evil, Snapshot: &contracts.Snapshot{State: contracts.State{Cwd: evil, LastError: &text}}},
		client.Update{Kind: client.KindControl, Control: &contracts.LeaseChange{Reason: contracts.LeaseDenied, Message: evil}},
		client.Update{Kind: client.KindControl, Control: &contracts.Refusal{Message: evil}},
		client.Update{Kind: client.KindConnected, Attached: &contracts.Attached{SessionID: evil, ConnectionID: evil, Role: evil}},
	)
	for i, u := range updates {
		if got := rendered(u); strings.ContainsAny(got, "\x1b\a\u009b\u202e") {
			t.Errorf("update %d (%s, %T): got %q", i, u.Kind, u.Event, got)
		}
	}
}

// liveScreen is a terminal on which a line is typed.
func liveScreen(out io.Writer) *console.Screen {
	return console.NewScreen(out, false, &console.Line{}, func() (int, int) { return 200, 50 })
}

func TestOwnPromptIsNotRepeated(t *testing.T) {
	said := told(&contracts.RawAgentEvent{EventKind: "message_start", Event: raw(`{"message":{"role":"user","content":"hi"}}`)})[0]
	var out strings.Builder
	v := newView(liveScreen(&out))
	v.expect("hi")
	v.show(said)
	v.screen.Hide()
	if out.String() != "" {
		t.Errorf("got %q, want nothing: the terminal shows what was typed", out.String())
	}
	v.show(said)
	v.screen.Hide()
	if want := "> hi\r\n"; out.String() != want {
		t.Errorf("said by another: got %q, want %q", out.String(), want)
	}
}

func TestPromptsAndAnswersHaveTheirAuthors(t *testing.T) {
	by := func(conn, name, claimed, program string) contracts.Author {
		a := contracts.Author{Principal: "p", Name: name, ClaimedName: claimed, ConnectionID: conn}
		if program != "" {
			a.ClientInfo = &contracts.ClientInfo{Name: program}
		}
		return a
	}
	message := &contracts.RawAgentEvent{EventKind: "message_start", Event: raw(`{"message":{"role":"user","content":"hi"}}`)}
	updates := []client.Update{connectedAs("conn_me", "")}
	for _, a := range []contracts.Author{
		by("conn_me", "Ann Lee", "", "lantern"), by("conn_b", "Bob", "", ""), by("conn_c", "owner", "cleo", "lantern"), by("conn_d", "for Dan", "", "lantern"),
		by("conn_e", "owner", "", attachName), by("", "Eve", "Eve", ""),
	} {
		resolved := &contracts.ServerRequestResolved{
			RequestType: contracts.RequestApproval, Resolution: contracts.VerdictApproved, ResolvedBy: contracts.ResolvedByUser, Author: &a,
		}
		updates = append(updates, told(&contracts.PromptAccepted{Content: "hi", Author: a}, message, resolved)...)
	}
	updates = append(updates, told(&contracts.PromptAccepted{Content: "long", Truncated: true, Attachments: []string{"a.md", "b.png"}, Author: by("conn_b", "Bob", "", "")})...)
	updates = append(updates, told(
		&contracts.RequestShown{Escaped: true, Display: `bash {"command":"rm \u202e"}`, VotesNeeded: 2},
		&contracts.RequestVoted{Approved: true, Author: by("conn_b", "Bob", "", ""), Votes: 1, VotesNeeded: 2},
		&contracts.Status{Message: "Bob approved bash: 1 of 2 votes"},
		&contracts.RequestVoted{Approved: true, Author: by("conn_me", "Ann Lee", "", ""), Votes: 2, VotesNeeded: 2},
	)...)
	compareText(t, rendered(updates...), `-- attached to session sess_a
-- nobody is in control
> hi
-- approved by you
Bob> hi
-- approved by Bob
owner (cleo)> hi
-- approved by owner (cleo)
for Dan (lantern)> hi
-- approved by for Dan (lantern)
owner> hi
-- approved by owner
Eve> hi
-- approved by Eve
Bob> long…
-- with a.md, b.png
-- the request has hidden characters: bash {"command":"rm \u202e"}
-- 2 principals must approve
-- Bob approved, 1 of 2
-- you approved, 2 of 2
`)
}

func TestThoseInControlAreNamedAsPeople(t *testing.T) {
	bob := &contracts.Author{Name: "Bob\x07 Lee", ConnectionID: "conn_bob", ClientInfo: &contracts.ClientInfo{Name: attachName}}
	owner := &contracts.Author{Name: "owner", ConnectionID: "conn_own", ClientInfo: &contracts.ClientInfo{Name: attachName}}
	moves := func(to *contracts.Author) []client.Update {
		lease := &contracts.LeaseChange{ControllerConnectionID: &to.ConnectionID}
		return append(told(&contracts.ControlChanged{To: to}), client.Update{Kind: client.KindControl, Control: lease})
	}
	state := contracts.State{People: &contracts.People{Controller: bob}, ControllerConnectionID: contracts.String("conn_bob")}
	updates := append([]client.Update{connectedAs("conn_me", "")}, moves(bob)...)
	updates = append(append(updates, moves(owner)...), client.Update{Kind: client.KindSnapshot, Snapshot: &contracts.Snapshot{State: state}})
	compareText(t, rendered(updates...), `-- attached to session sess_a
-- nobody is in control
-- Bob Lee is in control
-- owner is in control
-- Bob Lee is in control
`)
}

func TestOwnPromptIsKnownByItsAuthor(t *testing.T) {
	said := func(conn, text string, cut bool) client.Update {
		return told(&contracts.PromptAccepted{Content: text, Truncated: cut, Author: contracts.Author{Name: "Ann", ConnectionID: conn}})[0]
	}
	var out strings.Builder
	v := newView(liveScreen(&out))
	v.me = "conn_me"
	v.expect("hi")
	v.expect("hi there")
	v.show(said("conn_b", "hi", false)) // the same text of another person
	v.show(said("conn_me", "hi", false))
	v.show(said("conn_me", "hi ", true))
	v.show(said("conn_me", "hi", false))
	v.screen.Hide()
	if want := "Ann> hi\r\n> hi\r\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestRefusedPromptIsNoLongerExpected(t *testing.T) {
	said := func(text string) client.Update {
		return told(&contracts.RawAgentEvent{EventKind: "message_start", Event: raw(`{"message":{"role":"user","content":"` + text + `"}}`)})[0]
	}
	var out strings.Builder
	v := newView(liveScreen(&out))
	v.expect("refused")
	v.unexpect("refused")
	v.show(said("refused"))
	v.expect("lost") // with what a reset left out
	v.expect("three")
	v.show(said("three")) // which the terminal has shown
	v.show(said("lost"))
	v.screen.Hide()
	if want := "> refused\r\n> lost\r\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestOutputOfCommandsSideBySideIsToldApart(t *testing.T) {
	output := func(id string, stream contracts.Stream, text string) contracts.Event {
		return &contracts.UtilityCommandOutput{CommandID: id, Stream: stream, Content: text}
	}
	got := rendered(told(
		&contracts.UtilityCommandStarted{CommandID: "a", Command: "make"},
		output("a", contracts.StreamStdout, "one\ntwo\n"),
		output("a", contracts.StreamStderr, "oh\n"),
		&contracts.UtilityCommandStarted{CommandID: "b", Command: "tail"},
		output("a", contracts.StreamStdout, "three\nfo"),
		output("b", contracts.StreamStdout, "tick\n"),
		output("a", contracts.StreamStdout, "ur\n"),
		output("b", contracts.StreamStderr, "tock\n"),
		&contracts.UtilityCommandExited{CommandID: "b", Reason: "Terminated by\ncontroller"},
		output("a", contracts.StreamStdout, "five\n"),
	)...)
	compareText(t, got, `-- command a: make
  | one
  | two
 2| oh
-- command b: tail
  a | three
  a | fo
  b | tick
  a | ur
  b 2| tock
-- command b ended: Terminated by controller
  | five
`)
}

func TestCommandsOfAStateAreCounted(t *testing.T) {
	state := func(ids ...string) client.Update {
		var st contracts.State
		for _, id := range ids {
			st.ActiveUtilityCommands = append(st.ActiveUtilityCommands, contracts.ActiveCommand{CommandID: id})
		}
		return snapshot(client.KindSnapshot, 1, st)
	}
	says := told(&contracts.UtilityCommandOutput{CommandID: "a", Stream: contracts.StreamStdout, Content: "x\n"})[0]
	compareText(t, rendered(state("a", "b"), says, state("a"), says), "  a | x\n  | x\n")
}

// TestQuestionIsShownOnce has the state come again, in other words, as with every
// hand-over.
func TestQuestionIsShownOnce(t *testing.T) {
	pending := func(controller string) client.Update {
		return snapshot(client.KindSnapshot, 5, contracts.State{
			ControllerConnectionID: contracts.String(controller),
			PendingRequests:        []contracts.PendingRequest{{ID: approval.RequestID, Kind: approval.RequestType, Tool: "bash", DisplayName: "Running ls", Args: approval.Args}},
		})
	}
	watcher := connectedAs("conn_me", "conn_ada")
	watcher.Attached.Role = contracts.RoleViewer
	resolved := &contracts.ServerRequestResolved{RequestID: approval.RequestID, RequestType: contracts.RequestApproval, Resolution: contracts.VerdictDenied, ResolvedBy: contracts.ResolvedByUser}
	compareText(t, rendered(watcher, told(approval)[0], pending("conn_bob"), pending(""), told(resolved)[0], told(approval)[0]),
		`-- attached to session sess_a to watch
? approval: bash
  $ ls
  conn_ada can answer
-- conn_bob is in control
-- nobody is in control
-- denied by user
? approval: bash
  $ ls
  whoever takes control can answer
`)
}

func TestWatcherIsToldThatApproversCanAnswer(t *testing.T) {
	watcher := connectedAs("conn_me", "conn_ada")
	watcher.Attached.Role = contracts.RoleViewer
	people := &contracts.ConnectionInfo{Connections: []contracts.ConnectionState{{ConnectionID: "conn_ada"}, {ConnectionID: "conn_eve", MayAnswer: true}}}
	compareText(t, rendered(append([]client.Update{watcher}, told(people, approval)...)...), `-- attached to session sess_a to watch
? approval: bash
  $ ls
  conn_ada or an approver can answer
`)
}

// A silent run goes on, but not while it waits for somebody.
func TestNobodyWorksWhoWaitsForAnAnswer(t *testing.T) {
	ask := &contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, Tool: "edit", Args: raw(`{}`)}
	answered := &contracts.ServerRequestResolved{RequestID: "q", RequestType: contracts.RequestApproval, Resolution: contracts.VerdictApproved, ResolvedBy: contracts.ResolvedByUser}
	goesOn := &contracts.Status{Message: contracts.StatusWorking}
	got := rendered(told(goesOn, ask, goesOn, &contracts.Status{Message: "Retrying"}, answered, goesOn)...)
	var order []string
	for line := range strings.Lines(got) {
		for _, word := range []string{contracts.StatusWorking, "approval: edit", "Retrying", "approved by"} {
			if strings.Contains(line, word) {
				order = append(order, word)
			}
		}
	}
	if want := []string{contracts.StatusWorking, "approval: edit", "Retrying", "approved by", contracts.StatusWorking}; !slices.Equal(order, want) {
		t.Errorf("got\n%s\nwant %q", got, want)
	}
}

func TestLastErrorIsToldOnce(t *testing.T) {
	failed := "no network"
	state := func(last *string) client.Update {
		return snapshot(client.KindSnapshot, 1, contracts.State{LastError: last})
	}
	got := rendered(state(&failed), state(&failed), state(nil), state(&failed),
		told(&contracts.ErrorEvent{Message: "gone", ErrorType: contracts.ErrorTransient})[0], state(new("gone")))
	compareText(t, got, `-- last error: no network
-- last error: no network
! error (transient): gone
`)
}

// compareText fails at the first line that differs.
func compareText(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			t.Fatalf("line %d: got the end, want %q", i+1, w[i])
		case i >= len(w):
			t.Fatalf("line %d: got %q, want the end", i+1, g[i])
		case g[i] != w[i]:
			t.Fatalf("line %d: got %q, want %q\nall:\n%s", i+1, g[i], w[i], got)
		}
	}
}

func TestQueueIsTold(t *testing.T) {
	bob := contracts.Author{Name: "Bob", ConnectionID: "conn_b"}
	queue := []contracts.QueuedPrompt{{Content: "one", Author: bob}, {Content: "two\x1b[31m\nlines", Author: bob, When: contracts.PromptSteer}}
	updates := append([]client.Update{connectedAs("conn_me", "")}, told(&contracts.QueueChanged{Prompts: queue},
		&contracts.QueueChanged{Prompts: queue[:1], Held: true}, &contracts.QueueChanged{})...)
	compareText(t, rendered(updates...), `-- attached to session sess_a
-- nobody is in control
-- in the queue (2): one · two lines
-- the queue is held (1): /resume lets it go on
`)
	if got := queuedLine(2, &queue[1]); got != " 2 Bob (steers)> two lines" {
		t.Errorf("got %q", got)
	}
}
