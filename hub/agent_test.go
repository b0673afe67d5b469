package hub_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

func TestLongTextIsCutIntoMessages(t *testing.T) { // ruling 11
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(viewer, `"hello_ok"`)
		long := strings.Repeat("x", 2*contracts.MaxTextBytes+1)
		for _, tt := range []struct {
			event contracts.Event
			kind  string
		}{
			{&contracts.ResponseChunk{ResponseID: "r", Content: long}, "response_chunk"},
			{&contracts.ToolOutput{CallID: "t", Content: long}, "tool_output"},
			{&contracts.UtilityCommandOutput{CommandID: "c", Stream: contracts.StreamStdout, Content: long}, "utility_command_output"},
		} {
			if err := s.agent.host.Publish(t.Context(), tt.event, &contracts.ResponseStart{ResponseID: "next"}); err != nil {
				t.Fatal(err)
			}
			seen := s.until(viewer, `"response_start"`)
			if n := strings.Count(seen, `"type":"`+tt.kind+`"`); n != 3 || strings.Count(seen, "x") < len(long) {
				t.Errorf("%s: got %d messages with %d bytes, want 3 with all of it", tt.kind, n, len(seen))
			}
		}
	})
}

func TestMalformedEventIsReplacedByAnError(t *testing.T) { // R16
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		bad := &contracts.ToolCall{CallID: "t", Tool: "bash", Args: []byte(`{`)}
		if err := s.agent.host.Publish(t.Context(), bad); err != nil {
			t.Error(err)
		}
		s.until(viewer, `"Failed to emit headless message: `)
	})
}

func TestMalformedOrRepeatedQuestionIsRefused(t *testing.T) {
	withSoloist(t, hub.Options{MaxPending: 1}, func(t *testing.T, s *soloist) {
		ask := func(ctx context.Context, id string) error {
			_, err := s.agent.host.Ask(ctx, &contracts.ServerRequest{
				RequestID: id, RequestType: contracts.RequestApproval, CallID: id, Tool: "bash", Args: []byte(`{}`), Reason: "test",
			}, contracts.AskOptions{})
			return err
		}
		if err := ask(t.Context(), ""); err == nil {
			t.Error("got asked without an id, want an error")
		}
		ctx, stop := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		first := make(chan error, 1)
		go func() { first <- ask(ctx, "a") }() // ends with ctx
		synctest.Wait()
		wantCode(t, ask(t.Context(), "a"), contracts.CodeBadRequest)
		wantCode(t, ask(t.Context(), "b"), contracts.CodeOverloaded)
		stop(gaveUp)
		if err := <-first; !errors.Is(err, gaveUp) {
			t.Errorf("got %v, want %v", err, gaveUp)
		}
		if n := len(s.Snapshot().State.PendingApprovals); n != 0 {
			t.Errorf("got %d pending, want the question withdrawn with its asker", n)
		}
	})
}

func TestAgentMayWithdrawItsQuestion(t *testing.T) {
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		outcome := make(chan contracts.Outcome, 1)
		go func() { // ends with the withdrawal
			out, err := s.agent.host.Ask(context.Background(), &contracts.ServerRequest{
				RequestID: "a", RequestType: contracts.RequestApproval, CallID: "a", Tool: "bash", Args: []byte(`{}`), Reason: "test",
			}, contracts.AskOptions{Timeout: -1})
			if err != nil {
				t.Error(err)
			}
			outcome <- out
		}()
		time.Sleep(1000 * time.Hour) // it never expires
		withdraw := func() bool {
			return s.agent.host.Withdraw("a", contracts.VerdictCancelled, "moot", contracts.ResolvedByRuntime)
		}
		if !withdraw() {
			t.Error("got nothing withdrawn, want the open question")
		}
		if out := <-outcome; out.Verdict != contracts.VerdictCancelled || out.Reason != "moot" {
			t.Errorf("got %+v, want cancelled as moot", out)
		}
		if withdraw() {
			t.Error("got a question withdrawn twice, want once")
		}
	})
}

func TestQuestionEndsWithTheSession(t *testing.T) {
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		ask := func() error {
			_, err := s.agent.host.Ask(context.Background(), &contracts.ServerRequest{
				RequestID: "a", RequestType: contracts.RequestApproval, CallID: "a", Tool: "bash", Args: []byte(`{}`), Reason: "test",
			}, contracts.AskOptions{})
			return err
		}
		asked := make(chan error, 1)
		go func() { asked <- ask() }() // ends with the session
		synctest.Wait()
		s.suspend()
		if err := <-asked; err == nil {
			t.Error("got an outcome, want an error when the session ends")
		}
		if err := ask(); err == nil {
			t.Error("got asked after the end, want an error")
		}
	})
}

func TestAttachmentsReachTheAgentAndFailuresTheClients(t *testing.T) { // R43, R44
	prompt := `{"type":"prompt","content":"look","attachments":["a.txt","b.txt"]}`
	for _, tt := range []struct {
		name   string
		load   func([]string) ([]contracts.Attachment, []string)
		loaded int
		wants  []string
	}{
		{"none can be read", nil, 0, []string{"Attachment not readable: a.txt", "Attachment not readable: b.txt"}},
		{"one can be read", func(paths []string) ([]contracts.Attachment, []string) {
			return []contracts.Attachment{{Path: paths[0], Text: "text"}}, []string{"b.txt is gone"}
		}, 1, []string{"b.txt is gone", "Loaded 1 attachment(s)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan int, 1)
				agent := newPlayer(func(_ context.Context, _ contracts.Host, work contracts.Work) error {
					got <- len(work.Attachments)
					return nil
				})
				r := openRoom(t, hub.Options{Agent: agent, LoadAttachments: tt.load})
				defer r.close()
				alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
				r.send(alice, prompt)
				if n := <-got; n != tt.loaded {
					t.Errorf("got %d attachments, want %d", n, tt.loaded)
				}
				for _, want := range tt.wants {
					r.until(alice, want)
				}
			})
		})
	}
}

// stubborn is an agent whose run ends with Close and with nothing else.
type stubborn struct {
	*player
	closed chan struct{}
}

func newStubborn() *stubborn {
	s := &stubborn{closed: make(chan struct{})}
	s.player = newPlayer(func(context.Context, contracts.Host, contracts.Work) error {
		<-s.closed
		return nil
	})
	return s
}

func (s *stubborn) Close(context.Context) error {
	close(s.closed)
	return errors.New("did not go quietly")
}

func TestAgentThatDoesNotStopIsNotWaitedForLong(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  time.Duration // how long the caller waits; zero: for ever
		most time.Duration
	}{
		{"patiently", 0, 10 * time.Second},
		{"in a hurry", time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRoom(t, hub.Options{Agent: newStubborn()})
				alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
				r.send(alice, `{"type":"prompt","content":"go"}`)
				r.until(alice, `"ws.result"`)
				alice.Freeze() // nor does the client
				ctx := context.Background()
				if tt.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.ctx)
					defer cancel()
				}
				began := time.Now()
				if err := r.Close(ctx); err == nil {
					t.Error("got closed without a word, want the agent's error")
				}
				if took := time.Since(began); took == 0 || took > tt.most {
					t.Errorf("got closed after %v, want at most %v", took, tt.most)
				}
			})
		})
	}
}

func TestPromptDoesNotWaitForEverForTheOldRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		r := openRoom(t, hub.Options{Agent: newStubborn(), Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		r.send(alice, `{"type":"interrupt"}`)
		r.send(alice, `{"type":"ws.send","id":"2","message":{"type":"prompt","content":"again"}}`)
		r.until(alice, `"runtime_busy"`)
		r.send(alice, `{"type":"shutdown"}`)
		<-r.Done()
		synctest.Wait()
		log.wants(t, "did not go quietly")
	})
}

func TestSessionThatIsDrainingTakesNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := newStubborn()
		r := openRoom(t, hub.Options{Agent: agent})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		r.send(alice, `{"type":"shutdown"}`)
		r.send(alice, `{"type":"ws.send","id":"late","message":{"type":"init"}}`)
		r.until(alice, `"ws.error","id":"late"`)
		wantCode(t, r.Admit(contracts.Attach{}), contracts.CodeStaleSession) // nobody will come back to it
		r.send(alice, `{"type":"ws.take_control","id":"lease"}`)
		r.until(alice, `"ws.error","id":"lease"`)
		if n := r.told("refused " + string(contracts.CodeRuntimeNotReady)); n != 2 {
			t.Errorf("refusals: got %d, want 2", n)
		}
		<-r.Done()
		synctest.Wait()
	})
}

// unready is an agent that does not start.
type unready struct{ echo }

func (unready) Start(context.Context, contracts.Host) (contracts.AgentInfo, error) {
	return contracts.AgentInfo{}, errors.New("no model")
}

func TestAgentThatDoesNotStartEndsTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{}), closing: errors.New("and no disk")}
		h, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &unready{}, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no model") || !strings.Contains(err.Error(), "and no disk") {
			t.Errorf("got %v, want what failed at start and at close", err)
		}
		<-h.Done()
		conn, _ := memconn.New(memconn.Options{Bare: true})
		if err := h.Serve(t.Context(), conn, hub.WireBare, &contracts.Attach{}); err == nil {
			t.Error("got served by a hub that has ended, want an error")
		}
	})
}

func TestHubNeedsASessionAnAgentAndAStore(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	for _, opts := range []hub.Options{
		{Agent: &echo{}, Store: store},
		{SessionID: "s", Store: store},
		{SessionID: "s", Agent: &echo{}},
		{SessionID: "s", Agent: &echo{}, Store: store, WindowBytes: -1},
	} {
		if _, err := hub.New(opts); err == nil {
			t.Errorf("got a hub from %+v, want an error", opts)
		}
	}
	h, err := hub.New(hub.Options{SessionID: "s", Agent: &echo{}, Store: store})
	if err != nil || h.SessionID() != "s" || h.Followers() != 0 {
		t.Errorf("got %v, want a hub of session s that nobody follows", err)
	}
}

// A ponderous agent takes its time for the first configuration.
type ponderous struct {
	echo
	gate  chan struct{}
	calls atomic.Int32
	got   []string
}

func (p *ponderous) Configure(init *contracts.Init) {
	if p.calls.Add(1) == 1 {
		<-p.gate
	}
	p.got = append(p.got, string(init.ThinkingLevel))
}

// TestInitsReachTheAgentInTheirOrder sends two at the same time.
func TestInitsReachTheAgentInTheirOrder(t *testing.T) { // D15
	synctest.Test(t, func(t *testing.T) {
		agent := &ponderous{gate: make(chan struct{})}
		r := openRoom(t, hub.Options{Agent: agent})
		defer r.close()
		alice := r.guest("a")
		alice.connects(asController)
		var wg sync.WaitGroup
		for _, level := range []string{"low", "high"} {
			wg.Go(func() { alice.posts(`{"type":"init","thinking_level":"` + level + `"}`) })
			synctest.Wait() // it is decided
		}
		close(agent.gate)
		wg.Wait()
		if got := strings.Join(agent.got, " "); got != "low high" {
			t.Errorf("got %s, want low high", got)
		}
	})
}

// TestCallOfAQuestionThatOutlivesItsRunEndsOnce ends the run after the question was
// answered and before its asker ended the call.
func TestCallOfAQuestionThatOutlivesItsRunEndsOnce(t *testing.T) { // R46
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet()
		r := openRoom(t, hub.Options{Agent: echoing{p}})
		defer r.close()
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"ask"}`)
		runOver := make(chan struct{})
		p.orders <- func(ctx context.Context) (bool, error) {
			go func() { // ends with the answer
				req := &contracts.ServerRequest{RequestID: "q", RequestType: contracts.RequestApproval, CallID: "c", Tool: "bash", Args: []byte(`{}`), Reason: "test"}
				if _, err := p.host.Ask(context.Background(), req, contracts.AskOptions{}); err != nil {
					t.Error(err)
				}
				<-runOver
				if err := p.host.Publish(context.Background(), &contracts.ToolEnd{CallID: "c"}); err != nil {
					t.Error(err)
				}
			}()
			return false, nil
		}
		synctest.Wait()
		alice.posts(`{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false}`)
		p.orders <- end(nil)
		synctest.Wait()
		close(runOver)
		if got := strings.Count(strings.Join(r.arrived(stream), "\n"), `"type":"tool_end"`); got != 1 {
			t.Errorf("got %d ends of the call, want one", got)
		}
	})
}
