package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// What a session is made with counts once: what its clients say later is not
// undone by a restart.
func TestSessionBeginsAsItWasWishedOnce(t *testing.T) { // 1.6, 1.7
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			wish := &contracts.Init{ApprovalMode: contracts.ApprovalFail, ThinkingLevel: contracts.ThinkingHigh}
			agent := newPlayer(nil)
			r := openRoom(t, hub.Options{Store: store, Init: wish, Agent: agent, CheckpointBytes: checkpoint})
			if got := <-agent.inits; got.ThinkingLevel != contracts.ThinkingHigh || agent.host.ApprovalMode() != contracts.ApprovalFail {
				t.Errorf("got the agent configured with %+v, mode %s, want the wish", got, agent.host.ApprovalMode())
			}
			var last contracts.Init
			if err := json.Unmarshal(r.Snapshot().LastInit, &last); err != nil || last.ApprovalMode != contracts.ApprovalFail {
				t.Errorf("last init: got %+v, %v, want it shown", last, err)
			}
			alice := r.guest("a")
			alice.connects(asController)
			alice.posts(`{"type":"init","approval_mode":"auto"}`)
			r.suspend()
			r = openRoom(t, hub.Options{Store: store, Init: wish, Agent: agent, CheckpointBytes: checkpoint})
			defer r.close()
			if mode := agent.host.ApprovalMode(); mode != contracts.ApprovalAuto {
				t.Errorf("got approval mode %s, want auto, as a client has said since", mode)
			}
		})
	}
}

func TestWishDoesNotMakeAPast(t *testing.T) {
	inRoom(t, hub.Options{Init: &contracts.Init{ApprovalMode: contracts.ApprovalFail}}, func(t *testing.T, r *room) {
		if q := r.quiesces(); q.Active {
			t.Errorf("got %+v, want a session in which nothing happened", q)
		}
	})
}

// A request is vetted before a session is made for it.
func TestVettedRequestIsOneThatASessionMayAccept(t *testing.T) {
	viewing := contracts.Principal{Role: contracts.RoleViewer}
	tools := &contracts.AttachCapabilities{ServerRequests: []contracts.RequestType{contracts.RequestClientTool}}
	for _, tt := range []struct {
		req  contracts.AttachRequest
		by   contracts.Principal
		role contracts.Role // of the header
		want contracts.Code // empty: fit
	}{
		{contracts.AttachRequest{}, contracts.Principal{}, "", ""},
		{contracts.AttachRequest{}, viewing, "", ""}, // it views
		{contracts.AttachRequest{Role: contracts.RoleController}, viewing, "", contracts.CodeAccessDenied},
		{contracts.AttachRequest{}, viewing, contracts.RoleController, contracts.CodeAccessDenied},
		{contracts.AttachRequest{EnableClientTools: true}, contracts.Principal{}, "", contracts.CodeBadRequest},
		{contracts.AttachRequest{EnableClientTools: true, Capabilities: tools}, contracts.Principal{}, "", ""},
		{contracts.AttachRequest{EnableClientTools: true, Capabilities: tools}, contracts.Principal{}, contracts.RoleViewer, contracts.CodeBadRequest},
		{contracts.AttachRequest{ProtocolVersion: strings.Repeat("x", 300)}, contracts.Principal{}, "", contracts.CodeBadRequest},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			err := hub.Vet(&tt.req, tt.by, tt.role)
			if tt.want == "" && err != nil {
				t.Errorf("got %v, want it fit", err)
			} else if tt.want != "" {
				wantCode(t, err, tt.want)
			}
		})
	}
}

func TestDirectoryKnowsWhatAClientHasEnded(t *testing.T) { // A76
	inCellar(t, func(t *testing.T, d *hub.Directory, _ *cellar, r *room) {
		key := hub.Key{ID: "s"}
		if d.Retired(key) {
			t.Error("got the session ended, want it open")
		}
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"shutdown"}`)
		<-r.Done()
		synctest.Wait()
		if !d.Retired(key) || d.Retired(hub.Key{Scope: "other", ID: "s"}) {
			t.Error("got it not ended, or another of its name ended too")
		}
		if _, err := get(d, t.Context(), "s", true); err != nil || d.Retired(key) {
			t.Errorf("got %v, want it made anew", err)
		}
	})
}

// An echoing agent has answers shown as they come.
type echoing struct{ *puppet }

func (e echoing) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	info, err := e.puppet.Start(ctx, host)
	info.Echoes, info.KeepsRequests = true, true
	return info, err
}

func TestAnswersOfAnEchoingAgentAreShownAsTheyCome(t *testing.T) { // 6.2
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet()
		r := openRoom(t, hub.Options{Agent: echoing{p}})
		defer r.close()
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		for _, tt := range []struct{ answer, want string }{
			{`"request_type":"approval","approved":true`, `"resolution":"approved"`},
			{`"request_type":"approval","approved":false`, `"resolution":"denied"`},
			{`"request_type":"approval","result":{"success":false,"output":"","error":"not today"}`, `"resolution":"denied","reason":"not today"`}, // A68
			{`"request_type":"approval","reason":"because"`, `"resolution":"denied","reason":"because"`},
			{`"request_type":"client_tool","content":[],"is_error":true`, `"resolution":"completed"`},
			{`"request_type":"user_input","content":[]`, `"resolution":"answered"`},
			{`"request_type":"mcp_elicitation","content":[]`, `"resolution":"answered"`},
			{`"request_type":"tool_retry","decision_action":"retry"`, `"resolution":"retried"`},
		} {
			r.arrived(stream)
			alice.posts(`{"type":"server_request_response","request_id":"x",` + tt.answer + `}`)
			if got := strings.Join(r.arrived(stream), "\n"); !strings.Contains(got, tt.want) || !strings.Contains(got, `"resolved_by":"user"`) {
				t.Errorf("%s: got %s, want %s by the user", tt.answer, got, tt.want)
			}
		}
		alice.posts(`{"type":"prompt","content":"go"}`)
		asked := make(chan error, 1)
		p.orders <- func(context.Context) (bool, error) {
			go func() { // ends with the answer
				_, err := p.host.Ask(context.Background(), question(contracts.RequestApproval, "q1"), contracts.AskOptions{})
				asked <- err
			}()
			return false, nil
		}
		synctest.Wait()
		p.orders <- end(nil)
		synctest.Wait()
		if n := len(r.Snapshot().State.PendingApprovals); n != 1 {
			t.Errorf("got %d questions after the run, want it kept", n)
		}
		alice.posts(`{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":true}`)
		if n := len(r.Snapshot().State.PendingApprovals); n != 0 {
			t.Errorf("got %d questions, want it answered", n)
		}
		if err := <-asked; err != nil {
			t.Errorf("got %v, want the agent told", err)
		}
	})
}

func TestLocalAnswerThatPolicyMadeNeedlessIsIgnored(t *testing.T) {
	inRoom(t, hub.Options{ApprovalMode: contracts.ApprovalAuto}, func(t *testing.T, r *room) {
		conn, local := memconn.New(memconn.Options{Bare: true})
		served := make(chan error, 1)
		go func() { served <- r.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		for _, text := range []string{
			`{"type":"tool_response","call_id":"x","approved":true}`,
			`{"type":"server_request_response","request_id":"x","request_type":"approval","approved":true}`,
		} {
			r.send(local, text)
			r.until(local, `"Tool response ignored (auto-approval mode)"`)
		}
		r.send(local, `{"type":"server_request_response","request_id":"x","request_type":"user_input","content":[]}`)
		r.until(local, `"type":"error"`)
		local.Close()
		<-served
		<-r.Done()
	})
}

// In a crowd a snapshot is shared by those who ask at one cursor.
func TestStateIsServedInACrowd(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		for range 12 {
			r.follow()
		}
		first, err := r.State()
		if err != nil {
			t.Fatal(err)
		}
		second, err := r.State()
		if err != nil || string(first) != string(second) || stateIn(t, second).Cursor != r.Cursor() {
			t.Errorf("got %s, %v, want the state of now", second, err)
		}
	})
}

// follow opens a stream of its own.
func (r *room) follow() *memconn.Peer {
	r.t.Helper()
	return r.guest("crowd").follows(contracts.StreamRequest{})
}
