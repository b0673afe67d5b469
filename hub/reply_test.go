package hub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// posting sends a prompt whose answer is taken by reply.
func (g *guest) posting(text string, reply func([]byte)) chan error {
	done := make(chan error, 1)
	go func() { done <- g.Post([]byte(text), "", g.by, reply) }() // ends with reply
	return done
}

const promptHi = `{"type":"prompt","content":"hi"}`

// TestRunStartsOnceItsPromptIsAnswered holds the answer to a prompt back, as a
// network does: nothing of the run may be seen before it.
func TestRunStartsOnceItsPromptIsAnswered(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		gate := make(chan struct{})
		var answer contracts.MessageAnswer
		done := alice.posting(promptHi, func(body []byte) {
			answer = decodeAnswer(t, body)
			<-gate
		})
		synctest.Wait()
		if got := r.Cursor(); answer.Cursor != got || !answer.OK {
			t.Fatalf("got cursor %d while the answer says %d: want nothing after it", got, answer.Cursor)
		}
		close(gate)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r.until(stream, `"response_start"`)
		r.until(stream, `"response_end"`)
	})
}

// TestRunEndsAlthoughItsPromptIsNotAnswered has a client take no answer.
func TestRunEndsAlthoughItsPromptIsNotAnswered(t *testing.T) {
	for _, tt := range []struct {
		interrupt bool
		end       string        // what the stream shows
		within    time.Duration // after the prompt
	}{
		{false, `"response_end"`, time.Second},
		{true, "Run interrupted by user", 0},
	} {
		inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
			alice := r.guest("a")
			alice.subscribes(asController)
			stream := alice.follows(alice.place(-1))
			gate := make(chan struct{})
			start := time.Now()
			done := alice.posting(promptHi, func([]byte) { <-gate })
			if tt.interrupt {
				synctest.Wait()
				alice.posts(`{"type":"interrupt"}`)
			}
			r.until(stream, tt.end)
			if took := time.Since(start); took > tt.within {
				t.Errorf("interrupted %t: got the end of the run after %v, want it within %v", tt.interrupt, took, tt.within)
			}
			close(gate)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRunOutlivesWhoAskedForIt has the handler of the request give up while it
// writes the answer.
func TestRunOutlivesWhoAskedForIt(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		func() {
			defer func() { _ = recover() }()
			_ = r.Post([]byte(promptHi), "", alice.by, func([]byte) { panic("the client has gone") })
		}()
		start := time.Now()
		r.until(stream, `"response_end"`)
		if took := time.Since(start); took != 0 {
			t.Errorf("got the end of the run after %v, want it at once", took)
		}
	})
}
