package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// keyed sends a message with an idempotency key.
func (g *guest) keyed(key, text string) ([]byte, error) {
	return g.Send([]byte(text), key, g.by)
}

// wantKeyed sends a message with a key, which must be accepted.
func (g *guest) wantKeyed(key, text string) []byte {
	g.t.Helper()
	body, err := g.keyed(key, text)
	if err != nil {
		g.t.Fatalf("send %s with key %s: %v", text, key, err)
	}
	return body
}

func TestRepeatedRequestGetsTheSameBytesAndDoesNothing(t *testing.T) { // A72
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		for i, text := range []string{`{"type":"init","approval_mode":"auto"}`, `{"type":"prompt","content":"hi"}`, startC1, `{"type":"hello"}`} {
			key := fmt.Sprint("key-", i)
			first := alice.wantKeyed(key, text)
			synctest.Wait()
			cursor, served := r.Cursor(), b.done
			for range 2 {
				if again := alice.wantKeyed(key, text); !bytes.Equal(again, first) {
					t.Errorf("%s: got %s, want %s", text, again, first)
				}
			}
			if r.Cursor() != cursor || b.done != served {
				t.Errorf("%s: got cursor %d, %d served, want nothing done since %d, %d", text, r.Cursor(), b.done, cursor, served)
			}
		}
	})
}

func TestKeysBelongToTheirConnection(t *testing.T) { // 1.12
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("a")
		alice.connects(asController)
		first := alice.wantKeyed("k", `{"type":"init"}`)
		bob.connects(byForce)
		if second := bob.wantKeyed("k", `{"type":"init"}`); bytes.Equal(first, second) {
			t.Errorf("got %s for the other connection, want its own", second)
		}
		_, err := alice.keyed("other", `{"type":"init"}`)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		if again := alice.wantKeyed("k", `{"type":"init"}`); !bytes.Equal(again, first) {
			t.Errorf("got %s, want what was answered while it had the lease", again)
		}
	})
}

// Keys are not mixed up with the ids of ws.send, though a connection may have
// both.
func TestKeysAreNotIdsOfFrames(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("")
		alice.subscribes(asController)
		att, first := comeBack(contracts.Attached{Role: contracts.RoleController, ConnectionID: alice.by.ConnectionID, ConnectionToken: alice.by.Token})
		peer, _ := r.attach(att, first...)
		r.send(peer, `{"type":"ws.send","id":"k","message":{"type":"init"}}`)
		result := r.last(r.until(peer, `"ws.result"`)).(*contracts.Result)
		if got := decodeAnswer(t, alice.wantKeyed("k", `{"type":"init"}`)); got.Cursor <= result.Cursor {
			t.Errorf("got cursor %d, want more than that of the frame, %d", got.Cursor, result.Cursor)
		}
	})
}

// TestDuplicateOfARequestUnderWayWaitsForItsAnswer: clients repeat what took too
// long, while the first is still being served.
func TestDuplicateOfARequestUnderWayWaitsForItsAnswer(t *testing.T) { // A72
	for name, text := range map[string]string{
		"a command":      startC1,
		"a refused read": `{"type":"utility_file_read","read_id":"r","path":"gone"}`,
		"a prompt":       `{"type":"prompt","content":"slow"}`,
	} {
		t.Run(name, func(t *testing.T) {
			agent := hasty{newPlayer(func(ctx context.Context, _ contracts.Host, _ contracts.Work) error {
				<-ctx.Done() // so that the answer waits its moment
				return nil
			})}
			withTools(t, hub.Options{Agent: agent}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
				b.gate = make(chan struct{})
				bodies, errs := make([][]byte, 4), make([]error, 4)
				var wg sync.WaitGroup
				for i := range bodies {
					wg.Go(func() { bodies[i], errs[i] = alice.keyed("k", text) })
				}
				synctest.Wait()
				close(b.gate)
				wg.Wait()
				for i := range bodies {
					if !bytes.Equal(bodies[i], bodies[0]) || fmt.Sprint(errs[i]) != fmt.Sprint(errs[0]) {
						t.Errorf("got %s, %v, want %s, %v", bodies[i], errs[i], bodies[0], errs[0])
					}
				}
				if strings.Contains(name, "refused") {
					wantCode(t, errs[0], contracts.CodeNotFound)
				} else if errs[0] != nil || len(bodies[0]) == 0 {
					t.Errorf("got %s, %v, want it accepted", bodies[0], errs[0])
				}
				if b.done > 1 {
					t.Errorf("got it served %d times, want once", b.done)
				}
			})
		})
	}
}

func TestDuplicateWhoseConnectionGoesMeanwhileIsRefused(t *testing.T) {
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		b.gate = make(chan struct{})
		errs := make(chan error, 2)
		for range 2 {
			go func() { _, err := alice.keyed("k", startC1); errs <- err }() // ends when the gate opens
			synctest.Wait()
		}
		alice.disconnects()
		close(b.gate)
		got := []error{<-errs, <-errs}
		if got[0] == nil {
			got[0], got[1] = got[1], got[0]
		}
		wantCode(t, got[0], contracts.CodeStaleConnection)
		if got[1] != nil {
			t.Errorf("the first: got %v, want it answered", got[1])
		}
	})
}

func TestRefusalIsRememberedUnlessItInvitesAnotherTry(t *testing.T) { // 1.12
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.connects(asController)
		answer := `{"type":"server_request_response","request_type":"approval","request_id":"r1","approved":true}`
		_, err := alice.keyed("answer", answer)
		wantCode(t, err, contracts.CodeRequestNotFound)
		alice.posts(`{"type":"prompt","content":"ask"}`)
		synctest.Wait()
		_, err = alice.keyed("answer", answer) // it could be done now
		wantCode(t, err, contracts.CodeRequestNotFound)
		_, err = alice.keyed("prompt", `{"type":"prompt","content":"next"}`)
		wantCode(t, err, contracts.CodeRuntimeBusy)
		alice.wantKeyed("answer 2", answer)
		synctest.Wait()
		alice.wantKeyed("prompt", `{"type":"prompt","content":"next"}`) // the same key, later
		synctest.Wait()
		bob.connects(byForce)
		_, err = alice.keyed("lease", `{"type":"init"}`)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		bob.disconnects()
		_, err = alice.keyed("lease", `{"type":"init"}`)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		_, err = alice.keyed("nonsense", `{"type":"nonsense"}`)
		wantCode(t, err, contracts.CodeBadRequest)
		_, err = alice.keyed("nonsense", `{"type":"init"}`)
		wantCode(t, err, contracts.CodeBadRequest)
	})
}

// The 1024 latest keys of a connection are known, and at most a mebibyte of
// answers. The answer of one that was dropped is made anew; nothing is done
// twice.
func TestRememberedAnswersAreBounded(t *testing.T) { // A72, D10
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(fmt.Sprintf(`{"type":"init","system_prompt":%q}`, strings.Repeat("x", 20<<10))) // in every answer's snapshot
		first := alice.wantKeyed("0", `{"type":"interrupt"}`)
		for i := 1; i < 1024; i++ {
			alice.wantKeyed(fmt.Sprint(i), `{"type":"interrupt"}`)
		}
		last := alice.wantKeyed("1010", `{"type":"interrupt"}`)
		alice.posts(`{"type":"init"}`)
		cursor := r.Cursor()
		if again := alice.wantKeyed("1010", `{"type":"interrupt"}`); !bytes.Equal(again, last) {
			t.Errorf("got %s, want the latest answers kept", again)
		}
		old := decodeAnswer(t, alice.wantKeyed("0", `{"type":"interrupt"}`))
		if snap := stateIn(t, old.Snapshot); snap.Cursor != cursor {
			t.Errorf("got the state at %d, want the oldest answers dropped and this made anew at %d", snap.Cursor, cursor)
		}
		if want := decodeAnswer(t, first); old.Cursor != want.Cursor || !old.Accepted || old.Execution != want.Execution {
			t.Errorf("got %+v, want an answer like the first", old)
		}
		alice.wantKeyed("1024", `{"type":"init","approval_mode":"auto"}`)
		alice.wantKeyed("1", `{"type":"init"}`) // still known
		if got := r.Cursor(); got != cursor+2 { // a note and a status
			t.Errorf("got cursor %d, want %d: only the new key done", got, cursor+2)
		}
		alice.wantKeyed("0", `{"type":"init"}`) // forgotten
		if got := r.Cursor(); got != cursor+4 {
			t.Errorf("got cursor %d, want %d: the forgotten key done again", got, cursor+4)
		}
	})
}

func TestAnswerTooLongToKeepIsMadeAnew(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(fmt.Sprintf(`{"type":"init","system_prompt":%q}`, strings.Repeat("x", 100<<10)))
		first := decodeAnswer(t, alice.wantKeyed("k", `{"type":"prompt","content":"hi"}`))
		synctest.Wait()
		cursor := r.Cursor()
		again := decodeAnswer(t, alice.wantKeyed("k", `{"type":"prompt","content":"hi"}`))
		if again.Cursor != first.Cursor || again.PublishedMessages != 0 || !again.Success || r.Cursor() != cursor {
			t.Errorf("got %+v, want the first answer's cursor %d and nothing done", again, first.Cursor)
		}
		if snap := stateIn(t, again.Snapshot); snap.Cursor != cursor {
			t.Errorf("snapshot: got cursor %d, want that of now, %d", snap.Cursor, cursor)
		}
	})
}

func TestKeySurvivesARestart(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			r := openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			alice := r.guest("a")
			alice.subscribes(asController)
			first := decodeAnswer(t, alice.wantKeyed("k", `{"type":"prompt","content":"hi"}`))
			synctest.Wait()
			r.suspend()
			r = openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			defer r.close()
			again := &guest{r, alice.by}
			cursor := r.Cursor()
			got := decodeAnswer(t, again.wantKeyed("k", `{"type":"prompt","content":"hi"}`))
			if got.Cursor != first.Cursor || r.Cursor() != cursor {
				t.Errorf("got %+v at %d, want the answer of cursor %d and nothing done", got, r.Cursor(), first.Cursor)
			}
		})
	}
}

// TestResumedSendOfACommandRunsOnce loses its socket while the server starts the
// command, comes back and sends the frame again.
func TestResumedSendOfACommandRunsOnce(t *testing.T) { // A72
	tools := &toolbox{gate: make(chan struct{})}
	synctest.Test(t, func(t *testing.T) {
		tools.gate = make(chan struct{}) // of the bubble
		r := openRoom(t, hub.Options{Utilities: tools})
		defer r.close()
		const (
			hello = `{"type":"hello","capabilities":{"utility_operations":["command_exec"]}}`
			start = `{"type":"ws.send","id":"s","message":{"type":"utility_command_start","command_id":"c1","command":"make"}}`
		)
		first, told := r.attach(contracts.Attach{Role: contracts.RoleController}, hello)
		r.send(first, start)
		synctest.Wait() // it is being started
		att, _ := comeBack(told)
		again, _ := r.attach(att, `{"type":"ws.resume","connection_token":"`+told.ConnectionToken+`"}`, hello)
		r.send(again, start)
		synctest.Wait()
		close(tools.gate)
		r.until(again, `"type":"ws.result","id":"s"`)
		if tools.done != 1 {
			t.Errorf("started %d times, want once", tools.done)
		}
	})
}
