package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// joinAs connects a principal in a role and returns what sends its commands.
func joinAs(t *testing.T, h *hub.Hub, principal string, role contracts.Role, take bool) func(contracts.Command) error {
	t.Helper()
	p := contracts.Principal{ID: principal}
	answer, token, err := h.Connect(&contracts.AttachRequest{Role: role, TakeControl: take}, contracts.Caller{Principal: p})
	if err != nil {
		t.Fatalf("connect %s as %s: %v", principal, role, err)
	}
	by := contracts.Caller{Principal: p, ConnectionID: answer.ConnectionID, Token: token}
	return func(cmd contracts.Command) error {
		text, err := contracts.EncodeCommand(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return h.Post(text, "", by, func([]byte) {})
	}
}

// asks puts an approval and returns its digest and where its outcome comes.
func asks(t *testing.T, h *hub.Hub, agent *puppet, id, tool string) (digest string, outcome <-chan contracts.Outcome) {
	t.Helper()
	req := &contracts.ServerRequest{RequestID: id, CallID: id, RequestType: contracts.RequestApproval, Tool: tool, Args: json.RawMessage(`{}`)}
	result := make(chan contracts.Outcome, 1)
	go func() { // ends with the question
		if out, err := agent.host.Ask(context.Background(), req, contracts.AskOptions{Timeout: -1}); err == nil {
			result <- out
		}
	}()
	synctest.Wait()
	return contracts.RequestDigest(h.SessionID(), req), result
}

func decision(id string, approved bool, digest string) *contracts.ServerRequestResponse {
	return &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestApproval, Approved: &approved, Digest: digest}
}

// refusedWith fails unless err is a refusal with a code; no code means no refusal.
func refusedWith(t *testing.T, what string, err error, want contracts.Code) {
	t.Helper()
	got := contracts.Code("")
	if refusal, ok := errors.AsType[*contracts.Error](err); ok {
		got = refusal.Code
	}
	if got != want || want == "" && err != nil {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}

func TestApproverAnswersWithoutTheLeaseAndDoesNothingElse(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		joinAs(t, h, "owner", contracts.RoleController, false)
		holder := h.Snapshot().State.ControllerConnectionID.Get()
		approver := joinAs(t, h, "rhea", contracts.RoleApprover, true)
		for _, cmd := range []contracts.Command{
			&contracts.Prompt{Content: "x"}, &contracts.Init{ApprovalMode: contracts.ApprovalAuto}, &contracts.Interrupt{}, &contracts.Cancel{}, &contracts.Shutdown{},
			&contracts.UtilityCommandStart{CommandID: "u", Command: "id"}, &contracts.UtilityFileRead{ReadID: "r", Path: "a"},
			&contracts.UtilityFileSearch{SearchID: "s", Query: "a"}, &contracts.UtilityFileWatchStart{WatchID: "w"},
		} {
			refusedWith(t, cmd.CommandType(), approver(cmd), contracts.CodeAccessDenied)
		}
		for _, kind := range []contracts.RequestType{contracts.RequestClientTool, contracts.RequestMCPElicitation, contracts.RequestToolRetry} {
			refusedWith(t, string(kind), approver(&contracts.ServerRequestResponse{RequestID: "unknown", RequestType: kind}), contracts.CodeRequestNotFound)
		}
		_, outcome := asks(t, h, agent, "q", "bash")
		refusedWith(t, "approval", approver(decision("q", true, "")), "")
		if out := <-outcome; out.Verdict != contracts.VerdictApproved || out.By != contracts.ResolvedByUser {
			t.Errorf("got %+v, want approved by the user", out)
		}
		if got := h.Snapshot().State.ControllerConnectionID.Get(); got != holder {
			t.Errorf("the lease moved from %s to %s", holder, got)
		}
	})
}

// Without a controller every question is asked, also those that an approver may not answer.
func TestApproverAnswersNoQuestionOfAProgram(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		approver := joinAs(t, h, "rhea", contracts.RoleApprover, false)
		for _, kind := range contracts.RequestTypes() {
			req := &contracts.ServerRequest{RequestID: string(kind), CallID: "call_" + string(kind), RequestType: kind, Tool: "x", Args: json.RawMessage(`{}`)}
			go func() { _, _ = agent.host.Ask(context.Background(), req, contracts.AskOptions{Timeout: -1}) }() // ends with the session at the latest
		}
		synctest.Wait()
		for _, kind := range contracts.RequestTypes() {
			want := contracts.CodeAccessDenied
			if kind == contracts.RequestApproval || kind == contracts.RequestUserInput {
				want = ""
			}
			legacy := &contracts.ClientToolResult{CallID: "call_" + string(kind), Content: []contracts.ContentBlock{}}
			if want != "" && kind != contracts.RequestToolRetry {
				refusedWith(t, "legacy "+string(kind), approver(legacy), want)
			}
			refusedWith(t, string(kind), approver(&contracts.ServerRequestResponse{RequestID: string(kind), RequestType: kind}), want)
		}
		if n := h.Summary().Pending; n != 3 {
			t.Errorf("%d questions are open, want the 3 that an approver may not answer", n)
		}
		if got := h.Snapshot().State.ControllerConnectionID.Get(); got != "" {
			t.Errorf("an approver holds the lease: %s", got)
		}
	})
}

func TestApproverIsListedAsViewerThatMayAnswer(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		answer, _, err := h.Connect(&contracts.AttachRequest{}, contracts.Caller{Principal: contracts.Principal{ID: "rhea", Role: contracts.RoleApprover}})
		if err != nil || answer.Role != contracts.RoleApprover {
			t.Fatalf("got role %s, %v, want the role of the credential", answer.Role, err)
		}
		st := h.Snapshot().State
		if c := st.Connections[0]; c.Role != contracts.RoleViewer || !c.MayAnswer || st.ConnectionRole != contracts.RoleViewer {
			t.Errorf("listed as %+v, in the state as %s, want a viewer that may answer", c, st.ConnectionRole)
		}
		_, _, err = h.Connect(&contracts.AttachRequest{Role: contracts.RoleController}, contracts.Caller{Principal: contracts.Principal{ID: "rhea", Role: contracts.RoleApprover}})
		refusedWith(t, "controller", err, contracts.CodeAccessDenied)
	})
}

// A principal may have credentials of different roles, so the credential of the request counts.
func TestApproverCredentialDoesNotDriveThroughAControllerConnection(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		answer, token, err := h.Connect(&contracts.AttachRequest{}, contracts.Caller{Principal: contracts.Principal{ID: "alice"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []contracts.Caller{
			{Principal: contracts.Principal{ID: "alice", Role: contracts.RoleApprover}, ConnectionID: answer.ConnectionID, Token: token},
			{Principal: contracts.Principal{ID: "alice"}, Role: contracts.RoleApprover, ConnectionID: answer.ConnectionID, Token: token},
		} {
			for _, text := range []string{`{"type":"prompt","content":"x"}`, `{"type":"hello","client_info":{"name":"x"}}`} {
				err := h.Post([]byte(text), "", by, func([]byte) {})
				refusedWith(t, text, err, contracts.CodeAccessDenied)
			}
		}
	})
}

func TestAnswerIsBoundToItsDigest(t *testing.T) {
	for _, required := range []bool{false, true} {
		withPuppet(t, hub.Options{RequireDigest: required}, func(t *testing.T, h *hub.Hub, agent *puppet) {
			send := joinAs(t, h, "owner", contracts.RoleController, false)
			digest, outcome := asks(t, h, agent, "q", "bash")
			other, _ := asks(t, h, agent, "other", "bash")
			refusedWith(t, "digest of another request", send(decision("q", true, other)), contracts.CodeDigestMismatch)
			refusedWith(t, "no digest", send(decision("q", false, "sha256:")), contracts.CodeDigestMismatch)
			if required {
				refusedWith(t, "legacy answer", send(&contracts.ToolResponse{CallID: "q", Approved: true}), contracts.CodeDigestRequired)
				refusedWith(t, "answer without a digest", send(decision("q", false, "")), contracts.CodeDigestRequired)
				_, _, err := h.Decide("q", true, "", "", contracts.Principal{ID: "x"})
				refusedWith(t, "decision without a digest", err, contracts.CodeDigestRequired)
			}
			_, _, err := h.Decide("q", true, "", other, contracts.Principal{ID: "x"})
			refusedWith(t, "decision with another digest", err, contracts.CodeDigestMismatch)
			refusedWith(t, "the digest", send(decision("q", true, digest)), "")
			if out := <-outcome; out.Verdict != contracts.VerdictApproved {
				t.Errorf("got %+v, want approved", out)
			}
		})
	}
}

func TestApprovalNeedsDistinctPrincipals(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	opts := hub.Options{Store: &mortal{Store: store}, Votes: []hub.VoteRule{{Votes: 3, Tool: "b*h"}, {Votes: 2}}}
	withPuppet(t, opts, func(t *testing.T, h *hub.Hub, agent *puppet) {
		owner := joinAs(t, h, "owner", contracts.RoleController, false)
		_, outcome := asks(t, h, agent, "q", "bash")
		asks(t, h, agent, "denied", "read")
		refusedWith(t, "mode auto", owner(&contracts.Init{ApprovalMode: contracts.ApprovalAuto}), "")
		rhea, again := joinAs(t, h, "rhea", contracts.RoleApprover, false), joinAs(t, h, "rhea", contracts.RoleApprover, false)
		refusedWith(t, "first", owner(decision("q", true, "")), "")
		refusedWith(t, "first again", owner(&contracts.ToolResponse{CallID: "q", Approved: true}), contracts.CodeAlreadyVoted)
		refusedWith(t, "second", rhea(decision("q", true, "")), "")
		refusedWith(t, "second over another connection", again(decision("q", true, "")), contracts.CodeAlreadyVoted)
		refusedWith(t, "one approval of two", rhea(decision("denied", true, "")), "")
		refusedWith(t, "denial", rhea(decision("denied", false, "")), "")
		if st := h.Snapshot().State; len(st.PendingApprovals) != 1 || len(outcome) != 0 {
			t.Errorf("pending: %+v, want q alone and undecided", st.PendingApprovals)
		}
		if err := h.Suspend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	opts.Store = &mortal{Store: store}
	withPuppet(t, opts, func(t *testing.T, h *hub.Hub, _ *puppet) { // the votes survive
		rhea := joinAs(t, h, "rhea", contracts.RoleApprover, false)
		refusedWith(t, "second after a restart", rhea(decision("q", true, "")), contracts.CodeAlreadyVoted)
		_, _, err := h.Decide("q", true, "", "", contracts.Principal{ID: "otto"})
		refusedWith(t, "third", err, "")
		refusedWith(t, "fourth", rhea(decision("q", true, "")), contracts.CodeRequestNotFound)
	})
	var votes []string
	for _, ev := range eventsIn(t, store) {
		switch ev := ev.(type) {
		case *contracts.RequestVoted:
			votes = append(votes, fmt.Sprint(ev.RequestID, " ", ev.Author.Principal, " ", ev.Approved, " ", ev.Votes, "/", ev.VotesNeeded))
		case *contracts.ServerRequestResolved:
			votes = append(votes, fmt.Sprint(ev.RequestID, " ", ev.Resolution, " ", ev.ResolvedBy))
		}
	}
	want := []string{"q owner true 1/3", "q rhea true 2/3", "denied rhea true 1/2", "denied rhea false 1/2", "denied denied user", "q otto true 3/3", "q approved user"}
	if !slices.Equal(votes, want) {
		t.Errorf("got %q, want %q", votes, want)
	}
}

func TestModeAutoDoesNotApproveAloneWhatNeedsVotes(t *testing.T) {
	opts := hub.Options{ApprovalMode: contracts.ApprovalAuto, Votes: []hub.VoteRule{{Votes: 2, Tool: "bash"}}}
	withPuppet(t, opts, func(t *testing.T, h *hub.Hub, agent *puppet) {
		_, free := asks(t, h, agent, "free", "read")
		if out := <-free; out.Verdict != contracts.VerdictApproved || out.By != contracts.ResolvedByPolicy {
			t.Errorf("a call without a rule: got %+v, want it approved by the mode", out)
		}
		if mode := agent.host.ApprovalMode(); mode != contracts.ApprovalPrompt {
			t.Errorf("got mode %s for the agent, want %s, because it may have to wait for votes", mode, contracts.ApprovalPrompt)
		}
		_, outcome := asks(t, h, agent, "q", "bash")
		refusedWith(t, "first", joinAs(t, h, "owner", contracts.RoleController, false)(decision("q", true, "")), "")
		synctest.Wait()
		if len(outcome) != 0 {
			t.Fatalf("got %+v after one vote, want the question open", <-outcome)
		}
		refusedWith(t, "second", joinAs(t, h, "rhea", contracts.RoleApprover, false)(decision("q", true, "")), "")
		if out := <-outcome; out.Verdict != contracts.VerdictApproved || out.By != contracts.ResolvedByUser {
			t.Errorf("got %+v, want it approved by people", out)
		}
	})
}

func TestRequestThatTheAgentHasCutIsMarked(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	withPuppet(t, hub.Options{Store: store}, func(t *testing.T, _ *hub.Hub, agent *puppet) {
		for i, cut := range []bool{true, false} {
			id := fmt.Sprint("q", i)
			req := &contracts.ServerRequest{
				RequestID: id, CallID: id, RequestType: contracts.RequestApproval, Tool: "bash", Args: json.RawMessage(`{}`),
			}
			go func() { // ends with the session
				_, _ = agent.host.Ask(context.Background(), req, contracts.AskOptions{Truncated: cut})
			}()
			synctest.Wait()
		}
	})
	marks := map[string]bool{}
	for _, ev := range eventsIn(t, store) {
		if shown, ok := ev.(*contracts.RequestShown); ok {
			marks[shown.RequestID] = shown.Truncated
		}
	}
	if want := map[string]bool{"q0": true, "q1": false}; !maps.Equal(marks, want) {
		t.Errorf("got %v, want %v", marks, want)
	}
}

// Nobody passes a note to the agent in the name of several.
func TestApprovalBySeveralHasNoNote(t *testing.T) {
	withPuppet(t, hub.Options{Votes: []hub.VoteRule{{Votes: 2}}}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		_, outcome := asks(t, h, agent, "q", "bash")
		for _, who := range []string{"rhea", "otto"} {
			vote := decision("q", true, "")
			vote.Reason, vote.Content = `{"remember":"session"}`, []contracts.ContentBlock{{Type: "text", Text: `{"remember":"session"}`}}
			refusedWith(t, who, joinAs(t, h, who, contracts.RoleApprover, false)(vote), "")
		}
		want := contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: "Approved", Announced: true}
		if out := <-outcome; !reflect.DeepEqual(out, want) {
			t.Errorf("got %+v, want %+v", out, want)
		}
	})
}

func TestVoteRuleMatchesToolNames(t *testing.T) {
	for _, tt := range []struct {
		rule, tool string
		want       bool
	}{
		{"", "bash", true}, {"*", "", true}, {"bash", "bash", true}, {"bash", "bash2", false}, {"bash", "xbash", false},
		{"b*h", "bash", true}, {"b*h", "bh", true}, {"b*b", "b", false}, {"mcp__*__get*", "mcp__a__getx", true},
		{"mcp__*__get*", "mcp__a_get", false}, {"*a*b*", "xbxa", false}, {"*a*b*", "xaxbx", true},
	} {
		if got := (hub.VoteRule{Votes: 2, Tool: tt.rule}).Matches(tt.tool); got != tt.want {
			t.Errorf("%q matches %q: got %t, want %t", tt.rule, tt.tool, got, tt.want)
		}
	}
}

// A mortal store is lost to its hub, but not to the next one: Close and kill leave
// what was stored.
type mortal struct {
	journal.Store
	dead atomic.Bool
}

var errKilled = errors.New("killed")

func (m *mortal) Append(entries []journal.Entry) error {
	if m.dead.Load() {
		return errKilled
	}
	return m.Store.Append(entries)
}

func (m *mortal) Close() error { return nil }

// eventsIn returns the events in a store and checks the audit in it.
func eventsIn(t *testing.T, store journal.Store) (events []contracts.Event) {
	t.Helper()
	first, _ := store.Bounds()
	var audit hub.AuditReader
	asked, ended := 0, 0
	err := store.Read(first-1, func(e journal.Entry) bool {
		r, why, err := audit.Read(e)
		if err != nil || why != "" {
			t.Errorf("audit at entry %d: %s, %v", e.Cursor, why, err)
		}
		if r != nil && r.What == hub.AuditAsked {
			asked++
		}
		if r != nil && r.What == hub.AuditEnded {
			ended++
		}
		e, seen := everybody.seen(e)
		if !seen || e.Kind != journal.Message {
			return true
		}
		ev, err := (&contracts.Decoder{}).Event(e.Body)
		if err != nil {
			t.Fatal(err)
		}
		switch ev.(type) {
		case *contracts.ServerRequest:
			asked--
		case *contracts.ServerRequestResolved:
			ended--
		}
		events = append(events, ev)
		return true
	})
	if err != nil || asked != 0 || ended != 0 {
		t.Errorf("got %v, and %d questions and %d ends more in the audit than in the events", err, asked, ended)
	}
	return events
}

var schedules = flag.Int("schedules", 150, "random schedules of questions, votes and failures")

// Whatever happens in which order, each question ends once, and an approval that needs
// votes is approved by so many principals.
func TestEachQuestionEndsOnceInEverySchedule(t *testing.T) {
	ends := map[string]int{}
	for seed := range *schedules {
		synctest.Test(t, func(t *testing.T) { playSchedule(t, rand.New(rand.NewPCG(uint64(seed), 7)), ends) })
		if t.Failed() {
			t.Fatalf("schedule %d", seed)
		}
	}
	t.Logf("%d schedules: %v", *schedules, ends)
	for _, end := range []string{"approved user", "denied user", "cancelled runtime", "denied policy"} {
		if ends[end] == 0 {
			t.Errorf("no question ended %s", end)
		}
	}
}

func playSchedule(t *testing.T, random *rand.Rand, ends map[string]int) {
	memory := journal.NewMemory(journal.MemoryOptions{})
	var (
		store *mortal
		h     *hub.Hub
		agent *puppet
		ids   []string
	)
	outcomes := map[string]<-chan contracts.Outcome{}
	begin := func() {
		store, agent = &mortal{Store: memory}, newPuppet()
		var err error
		h, err = hub.New(hub.Options{
			SessionID: "s", Agent: agent, Cwd: "/", Store: store, CheckpointBytes: 4 << 10,
			Votes: []hub.VoteRule{{Votes: 2, Tool: "two"}, {Votes: 3, Tool: "three"}},
		})
		if err == nil {
			err = h.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begin()
	for range 24 {
		who := fmt.Sprint("p", random.IntN(4))
		switch random.IntN(12) {
		case 0, 1, 2:
			id := fmt.Sprint("q", len(ids))
			ids = append(ids, id)
			_, outcomes[id] = asks(t, h, agent, id, []string{"one", "two", "three"}[random.IntN(3)])
		case 3, 4, 5, 6, 7:
			if len(ids) == 0 {
				continue
			}
			role, take := contracts.RoleApprover, random.IntN(3) == 0
			if take {
				role = contracts.RoleController
			}
			send := joinAs(t, h, who, role, take)
			cmd := decision(ids[random.IntN(len(ids))], random.IntN(6) > 0, []string{"", "", "", "sha256:0"}[random.IntN(4)])
			_ = send(cmd) // refused if it comes late, or twice
			if random.IntN(4) == 0 {
				_ = send(cmd)
			}
		case 8:
			mode := []contracts.ApprovalMode{contracts.ApprovalAuto, contracts.ApprovalFail, contracts.ApprovalPrompt}[random.IntN(3)]
			send := joinAs(t, h, who, contracts.RoleController, true)
			_ = send(&contracts.Init{ApprovalMode: mode})
			_ = send(&contracts.Init{ApprovalMode: contracts.ApprovalPrompt})
		case 9:
			if random.IntN(3) == 0 {
				_ = joinAs(t, h, who, contracts.RoleController, true)(&contracts.Interrupt{})
			}
		case 10:
			h.Evict(who) // all its connections end
		case 11:
			store.dead.Store(random.IntN(2) == 0) // killed: what follows is lost
			if random.IntN(4) > 0 {
				_ = h.Suspend(context.Background())
			}
			_ = h.Close(context.Background())
			begin()
		}
	}
	_ = joinAs(t, h, "p0", contracts.RoleController, true)(&contracts.Interrupt{})
	if n := h.Summary().Pending; n != 0 {
		t.Errorf("%d questions are open after an interrupt", n)
	}
	_ = h.Close(context.Background())
	synctest.Wait()
	open, voted := map[string]string{}, map[string]map[string]bool{}
	needed := map[string]int{"one": 1, "two": 2, "three": 3}
	for _, ev := range eventsIn(t, memory) {
		switch ev := ev.(type) {
		case *contracts.ServerRequest:
			open[ev.RequestID] = ev.Tool
			voted[ev.RequestID] = map[string]bool{}
		case *contracts.RequestVoted:
			if ev.Approved && voted[ev.RequestID][ev.Author.Principal] {
				t.Errorf("%s voted twice for %s", ev.Author.Principal, ev.RequestID)
			}
			voted[ev.RequestID][ev.Author.Principal] = ev.Approved
		case *contracts.ServerRequestResolved:
			tool, was := open[ev.RequestID]
			if !was {
				t.Errorf("%s ended twice", ev.RequestID)
			}
			delete(open, ev.RequestID)
			ends[string(ev.Resolution)+" "+string(ev.ResolvedBy)]++
			if n := needed[tool]; n > 1 && ev.Resolution == contracts.VerdictApproved && len(voted[ev.RequestID]) != n {
				t.Errorf("%s was approved by %v, want %d", ev.RequestID, voted[ev.RequestID], n)
			}
			select {
			case out := <-outcomes[ev.RequestID]:
				if out.Verdict != ev.Resolution {
					t.Errorf("%s ended %s, and the agent learned %s", ev.RequestID, ev.Resolution, out.Verdict)
				}
			default: // asked by an earlier process
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("%v did not end", open)
	}
}

func TestAuditFindsWhatWasChanged(t *testing.T) {
	memory := journal.NewMemory(journal.MemoryOptions{})
	withPuppet(t, hub.Options{Store: &mortal{Store: memory}, CheckpointBytes: 2 << 10}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		for i := range 12 {
			id := fmt.Sprint("q", i)
			digest, _ := asks(t, h, agent, id, "bash")
			refusedWith(t, id, joinAs(t, h, "p", contracts.RoleApprover, false)(decision(id, i%2 == 0, digest)), "")
		}
	})
	var entries []journal.Entry
	if err := memory.Read(0, func(e journal.Entry) bool {
		e.Body = slices.Clone(e.Body)
		entries = append(entries, e)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	verify := func(entries []journal.Entry) (records []*hub.AuditRecord, why string, cut uint64) {
		var a hub.AuditReader
		for _, e := range entries {
			r, wrong, err := a.Read(e)
			if err != nil {
				return records, err.Error(), a.Cut
			}
			if why == "" {
				why = wrong
			}
			if r != nil {
				records = append(records, r)
			}
		}
		return records, why, a.Cut
	}
	records, why, cut := verify(entries)
	if len(records) != 24 || why != "" || cut != 0 {
		t.Fatalf("got %d records, %q, cut %d, want 24 that fit", len(records), why, cut)
	}
	if r := records[1]; r.What != hub.AuditEnded || r.Principal != "p" || r.Connection == "" || r.Credential != "p" || !r.Echoed || r.Digest != records[0].Digest {
		t.Errorf("got %+v, want who answered which digest", r)
	}
	if _, why, cut := verify(entries[len(entries)/2:]); why != "" || cut == 0 {
		t.Errorf("without the first half: got %q, cut %d, want records that fit and how many are missing", why, cut)
	}
	checked := 0
	for i, e := range entries {
		parts := e.Parts()
		if e.Kind == journal.Checkpoint || !strings.Contains(string(parts.Hidden), `"audit"`) {
			continue
		}
		checked++
		forged := slices.Clone(entries)
		parts.Hidden = []byte(strings.Replace(string(parts.Hidden), `"request_id":"q`, `"request_id":"z`, 1))
		forged[i] = parts.Joint()
		if _, why, _ := verify(forged); !strings.Contains(why, "hash is not that of its content") {
			t.Errorf("entry %d changed: got %q", i, why)
		}
		if i == len(entries)-1 || !slices.ContainsFunc(entries[i+1:], func(e journal.Entry) bool {
			return e.Kind == journal.Checkpoint || strings.Contains(string(e.Body), `"audit"`)
		}) {
			continue // nothing follows it
		}
		if _, why, _ := verify(slices.Delete(slices.Clone(entries), i, i+1)); why == "" {
			t.Errorf("entry %d removed: no record does not fit", i)
		}
		if _, why, _ := verify(slices.Insert(slices.Clone(entries), i, e)); why == "" {
			t.Errorf("entry %d repeated: no record does not fit", i)
		}
	}
	if checked != 24 {
		t.Errorf("changed %d records, want 24", checked)
	}
}

// A drained session keeps the votes, and the rules of the next runner may demand more.
func TestVotesMoveWithADrainedSession(t *testing.T) {
	var from contracts.Restored
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		req := question(contracts.RequestApproval, "q")
		digest, _ := asks(t, h, agent, "q", req.Tool)
		from = contracts.Restored{SessionID: "s", Snapshot: h.Snapshot(), Cursor: h.Cursor(), Ready: true}
		from.Requests = []contracts.KeptRequest{{Request: req, Digest: digest, Needed: 2, Votes: []string{"rhea"}}}
	})
	withPuppet(t, hub.Options{Restored: &from, Votes: []hub.VoteRule{{Votes: 3}}}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		refusedWith(t, "second by one", joinAs(t, h, "rhea", contracts.RoleApprover, false)(decision("q", true, "")), contracts.CodeAlreadyVoted)
		for i, who := range []string{"otto", "vera"} {
			people := h.Snapshot().State.People
			if people == nil || len(people.Requests) != 1 || len(people.Requests[0].Votes) != 1+i || people.Requests[0].VotesNeeded != 3 {
				t.Errorf("before %s: got %+v, want the digest and the votes in the state", who, people)
			}
			refusedWith(t, who, joinAs(t, h, who, contracts.RoleApprover, false)(decision("q", true, from.Requests[0].Digest)), "")
		}
		if n := h.Summary().Pending; n != 0 {
			t.Errorf("%d questions are open after three votes", n)
		}
	})
}

func TestAuditRecordsReadWell(t *testing.T) {
	at := time.Date(2026, 4, 20, 9, 15, 45, 0, time.UTC)
	for want, r := range map[string]hub.AuditRecord{
		`asked approval "bash" request="q"`: {What: hub.AuditAsked, RequestID: "q", RequestType: contracts.RequestApproval, Tool: "bash"},
		`ended approval "a\nb" approved by "Ann" without its digest request="q" connection="c" credential="share_1"`: {
			What: hub.AuditEnded, RequestID: "q", RequestType: contracts.RequestApproval, Tool: "a\nb", Verdict: contracts.VerdictApproved, ResolvedBy: contracts.ResolvedByUser,
			Principal: "share_1", Name: "Ann", Connection: "c", Credential: "share_1",
		},
		`ended approval "bash" denied by policy`: {What: hub.AuditEnded, RequestType: contracts.RequestApproval, Tool: "bash",
			Verdict: contracts.VerdictDenied, ResolvedBy: contracts.ResolvedByPolicy},
		`lease to "Bob" principal="bob" credential="jwt_1" generation=2`: {
			What: hub.AuditLease, Principal: "bob", Name: "Bob", Credential: "jwt_1", Generation: 2,
		},
		`lease to nobody generation=3`: {What: hub.AuditLease, Generation: 3},
	} {
		r.N, r.Time = 7, at
		if got, want := r.String(), "7 2026-04-20T09:15:45.000Z "+want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
