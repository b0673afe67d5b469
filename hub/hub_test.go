package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// echo is an agent that answers each prompt with its text, and asks first when
// the text says so.
type echo struct{ host contracts.Host }

func (e *echo) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	e.host = host
	return contracts.AgentInfo{Model: "echo", Provider: "test", Executor: contracts.ExecutorLive}, nil
}

func (e *echo) Configure(*contracts.Init) {}

func (e *echo) Run(ctx context.Context, work contracts.Work) error {
	if work.Content == "panic" {
		panic("as told")
	}
	if work.Content == "ask" {
		_, err := e.host.Ask(ctx, &contracts.ServerRequest{
			RequestID: "r1", RequestType: contracts.RequestApproval, CallID: "r1", Tool: "bash", Args: []byte(`{}`), Reason: "test",
		}, contracts.AskOptions{})
		if err != nil {
			return err
		}
	}
	return e.host.Publish(ctx, &contracts.ResponseStart{ResponseID: "resp_" + work.Content},
		&contracts.ResponseChunk{ResponseID: "resp_" + work.Content, Content: work.Content})
}

func (e *echo) Close(context.Context) error { return nil }

func TestViewerSeesWhatTheControllerDoesAndCannotDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, journal.NewMemory(journal.MemoryOptions{}))
		alice, bob := r.join(contracts.RoleController, "", nil), r.join(contracts.RoleViewer, "", nil)
		r.until(bob, `"hello_ok"`)
		r.send(bob, `{"type":"prompt","content":"no"}`)
		r.until(bob, `"access_denied"`)
		r.send(alice, `{"type":"prompt","content":"hi"}`)
		seen := r.until(bob, `"response_end"`)
		if !strings.Contains(seen, `"content":"hi"`) || strings.Contains(seen, `"no"`) {
			t.Errorf("got %s, want the answer to hi alone", seen)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSilentControllerLosesLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, journal.NewMemory(journal.MemoryOptions{}))
		alice := r.join(contracts.RoleController, "", nil)
		r.until(alice, `"hello_ok"`)
		bob := r.join(contracts.RoleController, contracts.TakeoverLater, nil)
		r.until(bob, `"hello_ok"`)
		alice.Mute()
		time.Sleep(29 * time.Second)
		r.send(bob, `{"type":"ws.send","id":"1","message":{"type":"init"}}`)
		r.until(bob, `"controller_lease_held"`)
		time.Sleep(2 * time.Second)
		r.send(bob, `{"type":"ws.send","id":"2","message":{"type":"init"}}`)
		r.until(bob, `"ws.result","id":"2"`)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestQuestionSurvivesRestartAndIsAnsweredOnce(t *testing.T) {
	dir := t.TempDir()
	open := func() journal.Store {
		store, err := journal.Open(dir, journal.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	var cursor int64
	var epoch string
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, open())
		alice := r.join(contracts.RoleController, "", nil)
		r.send(alice, `{"type":"prompt","content":"ask"}`)
		r.until(alice, `"server_request"`)
		cursor, epoch = int64(r.Cursor()), r.Epoch()
		if err := r.Suspend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, open())
		if r.Epoch() != epoch {
			t.Errorf("epoch: got %s, want %s", r.Epoch(), epoch)
		}
		bob := r.join(contracts.RoleController, contracts.TakeoverForce, &cursor)
		seen := r.until(bob, `"hello_ok"`)
		if !strings.Contains(seen, `"resume":"replay"`) || strings.Contains(seen, `"server_request"`) {
			t.Errorf("got %s, want a replay of what came after the request", seen)
		}
		answer := `{"type":"ws.send","id":"%","message":{"type":"server_request_response","request_id":"r1","request_type":"approval","approved":true}}`
		r.send(bob, strings.Replace(answer, "%", "1", 1))
		if seen = r.until(bob, `"ws.result","id":"1"`); !strings.Contains(seen, `"resolution":"approved"`) {
			t.Errorf("got %s, want the resolution before the result", seen)
		}
		r.send(bob, strings.Replace(answer, "%", "2", 1))
		r.until(bob, `"request_not_found"`)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPanickingAgentEndsItsRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, journal.NewMemory(journal.MemoryOptions{}))
		alice := r.join(contracts.RoleController, "", nil)
		r.send(alice, `{"type":"prompt","content":"panic"}`)
		r.until(alice, `"response_end"`)
		r.send(alice, `{"type":"prompt","content":"next"}`)
		r.until(alice, `"content":"next"`)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSupersededSocketCannotAct holds a socket whose place a newer one took: it
// hangs in a write, but what it sends still arrives.
func TestSupersededSocketCannotAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{})
		old, first := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.until(old, `"hello_ok"`)
		synctest.Wait()
		old.Freeze()
		again, second := r.attach(contracts.Attach{Role: contracts.RoleController, ConnectionID: first.ConnectionID},
			`{"type":"ws.resume","connection_token":"`+first.ConnectionToken+`"}`, `{"type":"hello"}`)
		if second.ConnectionID != first.ConnectionID {
			t.Fatalf("got connection %s, want %s again", second.ConnectionID, first.ConnectionID)
		}
		r.until(again, `"hello_ok"`)
		r.send(old, `{"type":"prompt","content":"from the old socket"}`)
		r.send(old, `{"type":"ws.take_control","id":"x"}`)
		r.send(old, `{"type":"ws.bye"}`)
		synctest.Wait()
		r.send(again, `{"type":"prompt","content":"from the new one"}`)
		if got := r.until(again, `"response_end"`); strings.Contains(got, "old socket") || strings.Contains(got, `"id":"x"`) {
			t.Errorf("got %s, want nothing of what the old socket sent", got)
		}
		r.close()
	})
}

func TestFullSessionLetsItsOwnComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{MaxConnections: 1})
		peer, was := r.attach(contracts.Attach{Role: contracts.RoleController})
		peer.Close()
		synctest.Wait()
		if err := r.Admit(contracts.Attach{}); !errors.Is(err, &contracts.Error{Code: contracts.CodeOverloaded}) {
			t.Errorf("got %v for a stranger, want %s", err, contracts.CodeOverloaded)
		}
		back := contracts.Attach{Role: contracts.RoleController, ConnectionID: was.ConnectionID}
		if err := r.Admit(back); err != nil {
			t.Fatal(err)
		}
		_, is := r.attach(back, `{"type":"ws.resume","connection_token":"`+was.ConnectionToken+`"}`, `{"type":"hello"}`)
		if is.ConnectionID != was.ConnectionID {
			t.Errorf("got connection %s, want %s", is.ConnectionID, was.ConnectionID)
		}
		r.close()
	})
}

func TestThoseWhoLeftMakeRoomForThoseWhoCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{MaxConnections: 3, MaxControllers: 2})
		holder, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		gone, first := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		gone.Close()
		synctest.Wait()
		gone, second := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater})
		gone.Close()
		synctest.Wait()
		attached := func(att contracts.Attach, token string) string {
			_, got := r.attach(att, `{"type":"ws.resume","connection_token":"`+token+`"}`, `{"type":"hello"}`)
			return got.ConnectionID
		}
		r.attach(contracts.Attach{Role: contracts.RoleViewer}) // takes the place of the one that left first
		if got := attached(contracts.Attach{Role: contracts.RoleController, ConnectionID: second.ConnectionID, Takeover: contracts.TakeoverLater}, second.ConnectionToken); got != second.ConnectionID {
			t.Errorf("got connection %s, want %s, which left later", got, second.ConnectionID)
		}
		wantCode(t, r.Admit(contracts.Attach{Role: contracts.RoleViewer}), contracts.CodeOverloaded) // all three are here
		wantCode(t, r.Admit(contracts.Attach{Role: contracts.RoleViewer, ConnectionID: first.ConnectionID}), contracts.CodeOverloaded)
		holder.Close()
		synctest.Wait()
		wantCode(t, r.Admit(contracts.Attach{Role: contracts.RoleViewer}), contracts.CodeOverloaded) // the holder's place is kept
		r.close()
	})
}

func TestOverlongEventIsReplacedByAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := newPlayer(func(ctx context.Context, host contracts.Host, _ contracts.Work) error {
			return host.Publish(ctx, &contracts.Status{Message: strings.Repeat("x", contracts.MaxEventBytes)}, &contracts.Status{Message: "after"})
		})
		r := openRoom(t, hub.Options{Agent: agent})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		if got := r.until(alice, `"after"`); !strings.Contains(got, "is too long") || len(got) > 1<<16 {
			t.Errorf("got %.3000s, want the error in place of the status", got)
		}
		r.close()
	})
}

// A scratched store has lost what its entries before a cursor said.
type scratched struct {
	journal.Store
	upTo uint64
}

func (s *scratched) Read(after uint64, each func(journal.Entry) bool) error {
	if after < s.upTo {
		return errors.New("scratched")
	}
	return s.Store.Read(after, each)
}

func TestWhatCannotBeReadIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		store := &scratched{Store: journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store, WindowBytes: 1, Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"hi"}`)
		r.until(alice, `"response_end"`)
		synctest.Wait() // alice has read everything
		store.upTo = r.Cursor()
		from := int64(1)
		bob, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &from})
		if got := r.until(bob, `"type":"reset"`); !strings.Contains(got, `"reason":"replay_gap"`) {
			t.Errorf("got %s, want a reset", got)
		}
		log.wants(t, "scratched")
		r.close()
	})
}
