package hub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A worker is an agent whose runs last until the test ends them.
type worker struct {
	*player
	info  contracts.AgentInfo
	began chan string // 64-buffered; the content of each run
	ends  chan error  // taken by the active run, which returns it
}

func newWorker() *worker {
	w := &worker{}
	w.player = newPlayer(func(ctx context.Context, _ contracts.Host, work contracts.Work) error {
		return w.run(ctx, work.Content)
	})
	return w
}

func (w *worker) run(ctx context.Context, content string) error {
	w.began <- content
	select {
	case err := <-w.ends:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	_, err := w.player.Start(ctx, host)
	w.began, w.ends = make(chan string, 64), make(chan error) // here, because the test is in a bubble
	w.info.Model, w.info.Provider, w.info.Executor = "worker", "test", contracts.ExecutorReplay
	return w.info, err
}

// runs fails unless the next run has that content.
func (w *worker) runs(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-w.began:
		if got != want {
			t.Fatalf("got a run of %q, want %q", got, want)
		}
	default:
		t.Fatalf("got no run, want one of %q", want)
	}
}

// finish ends the active run.
func (w *worker) finish(t *testing.T, err error) {
	t.Helper()
	select {
	case w.ends <- err:
	case <-time.After(time.Minute):
		t.Fatal("there is no run")
	}
}

func (w *worker) rests(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-w.began:
		t.Fatalf("got a run of %q, want none", got)
	default:
	}
}

// waiting returns the contents of the queue that clients see.
func (r *room) waiting() (contents []string, queue []contracts.QueuedPrompt) {
	synctest.Wait()
	queue = r.Snapshot().State.People.Queue
	for _, p := range queue {
		contents = append(contents, p.Content)
	}
	return contents, queue
}

func (r *room) wantQueue(held bool, want ...string) []contracts.QueuedPrompt {
	r.t.Helper()
	got, queue := r.waiting()
	if is := r.Snapshot().State.People.QueueHeld; !slices.Equal(got, want) || is != held {
		r.t.Fatalf("got queue %q, held %t; want %q, held %t", got, is, want, held)
	}
	return queue
}

func inWorkshop(t *testing.T, test func(t *testing.T, r *room, w *worker, ann *memconn.Peer)) {
	w := newWorker()
	w.info.Steers = true
	inRoom(t, hub.Options{Agent: w}, func(t *testing.T, r *room) {
		who := contracts.Principal{ID: "user_ann", Name: "Ann Lee"}
		ann, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: who}, helloPeople)
		test(t, r, w, ann)
	})
}

func TestPromptsWaitForTheRunAndStartInOrder(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		r.send(ann, `{"type":"prompt","content":"one","when":"next"}`) // nothing to wait for
		w.runs(t, "one")
		r.send(ann, `{"type":"ws.send","id":"1","message":{"type":"prompt","content":"refused","when":"now"}}`)
		r.until(ann, `"runtime_busy"`)
		for _, content := range []string{"two", "three", "four"} {
			r.send(ann, `{"type":"prompt","content":"`+content+`","when":"next","attachments":["/w/plan.md"]}`)
		}
		queue := r.wantQueue(false, "two", "three", "four")
		p := queue[0]
		if p.Author.Principal != "user_ann" || !slices.Equal(p.Attachments, []string{"plan.md"}) || p.When != contracts.PromptNext {
			t.Errorf("got %+v", p)
		}
		r.send(ann, fmt.Sprintf(`{"type":"queue_move","prompt_id":%q,"before":%q}`, queue[2].PromptID, queue[0].PromptID))
		r.wantQueue(false, "four", "two", "three")
		r.send(ann, fmt.Sprintf(`{"type":"queue_move","prompt_id":%q,"before":null}`, queue[2].PromptID))
		r.wantQueue(false, "two", "three", "four")
		r.send(ann, fmt.Sprintf(`{"type":"queue_edit","prompt_id":%q,"content":"2"}`, queue[0].PromptID))
		r.send(ann, fmt.Sprintf(`{"type":"queue_cancel","prompt_id":%q}`, queue[1].PromptID))
		r.wantQueue(false, "2", "four")
		w.finish(t, errors.New("failed"))
		w.runs(t, "2")
		r.wantQueue(false, "four")
		w.finish(t, nil)
		w.runs(t, "four")
		w.finish(t, nil)
		w.rests(t)
		r.wantQueue(false)
		prompts := r.Snapshot().State.People.Prompts
		if last := prompts[len(prompts)-1]; last.PromptID != queue[2].PromptID || last.Author.Name != "Ann Lee" {
			t.Errorf("got %+v, want the prompt with the id it had in the queue", last)
		}
	})
}

func TestQueueRefuses(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		n := 0
		refused := func(p *memconn.Peer, text, code string) {
			t.Helper()
			n++
			r.send(p, fmt.Sprintf(`{"type":"ws.send","id":"%d","message":%s}`, n, text))
			got, ok := r.last(r.until(p, fmt.Sprintf(`"id":"%d"`, n))).(*contracts.Refusal)
			if !ok || string(got.Code) != code {
				t.Errorf("%.80s: got %+v, want %s", text, got, code)
			}
		}
		r.send(ann, `{"type":"prompt","content":"one"}`)
		w.runs(t, "one")
		for _, text := range []string{
			`{"type":"queue_edit","prompt_id":"prompt_x","content":""}`, `{"type":"queue_cancel","prompt_id":"prompt_x"}`,
			`{"type":"queue_move","prompt_id":"prompt_x","before":null}`,
		} {
			refused(ann, text, "request_not_found")
		}
		refused(ann, `{"type":"prompt","content":"x","when":"later"}`, "bad_request")
		long := strings.Repeat("x", contracts.MaxQueuedBytes+1)
		refused(ann, `{"type":"prompt","when":"next","content":"`+long+`"}`, "payload_too_large")
		half := strings.Repeat("x", contracts.MaxQueuedBytes/2)
		for range 2 {
			r.send(ann, `{"type":"prompt","when":"next","content":"`+half+`"}`)
		}
		refused(ann, `{"type":"prompt","when":"next","content":"x"}`, "rate_limited")
		_, queue := r.waiting()
		if p := queue[1]; len(p.Content) != contracts.MaxPromptRecord || !p.Truncated {
			t.Errorf("got %d bytes, truncated %t", len(p.Content), p.Truncated)
		}
		edit := func(content string) string {
			return fmt.Sprintf(`{"type":"queue_edit","prompt_id":%q,"content":%q}`, queue[1].PromptID, content)
		}
		refused(ann, edit(half+"x"), "rate_limited")
		r.send(ann, edit("short"))
		for range contracts.MaxQueued - 2 {
			r.send(ann, `{"type":"prompt","when":"steer","content":"x"}`)
		}
		refused(ann, `{"type":"prompt","when":"steer","content":"x"}`, "rate_limited")
		bob, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater}, helloPeople)
		refused(bob, `{"type":"queue_resume"}`, "controller_lease_held")
		r.send(ann, `{"type":"ws.release_control"}`)
		synctest.Wait()
		plain, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		refused(plain, `{"type":"prompt","when":"next","content":"x"}`, "unsupported_capability")
		refused(plain, `{"type":"queue_resume"}`, "unsupported_capability")
		refused(plain, `{"type":"prompt","content":"x"}`, "runtime_busy")
	})
}

// The author of a text is the client that wrote it.
func TestEditorIsTheAuthor(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		r.send(ann, `{"type":"prompt","content":"one"}`)
		r.send(ann, `{"type":"prompt","content":"two","when":"next"}`)
		queue := r.wantQueue(false, "two")
		asBob := contracts.Attach{
			Role: contracts.RoleController, Takeover: contracts.TakeoverForce, Principal: contracts.Principal{ID: "bob"},
		}
		bob, _ := r.attach(asBob, helloPeople)
		r.send(bob, fmt.Sprintf(`{"type":"queue_edit","prompt_id":%q,"content":"2"}`, queue[0].PromptID))
		if p := r.wantQueue(false, "2")[0]; p.Author.Principal != "bob" || p.PromptID != queue[0].PromptID {
			t.Errorf("got %+v, want bob's", p)
		}
		w.runs(t, "one")
	})
}

func TestInterruptHoldsTheQueue(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		r.send(ann, `{"type":"prompt","content":"one"}`)
		w.runs(t, "one")
		r.send(ann, `{"type":"prompt","content":"two","when":"next"}`)
		r.send(ann, `{"type":"interrupt"}`)
		r.wantQueue(true, "two")
		w.rests(t)
		r.send(ann, `{"type":"prompt","content":"first this"}`)
		w.runs(t, "first this")
		r.send(ann, `{"type":"prompt","content":"three","when":"next"}`)
		w.finish(t, nil)
		w.rests(t)
		queue := r.wantQueue(true, "two", "three")
		r.send(ann, fmt.Sprintf(`{"type":"queue_cancel","prompt_id":%q}`, queue[0].PromptID))
		r.send(ann, `{"type":"queue_resume"}`)
		w.runs(t, "three")
		r.wantQueue(false)
		r.send(ann, `{"type":"prompt","content":"four","when":"next"}`)
		r.send(ann, `{"type":"cancel"}`)
		queue = r.wantQueue(true, "four")
		r.send(ann, fmt.Sprintf(`{"type":"queue_cancel","prompt_id":%q}`, queue[0].PromptID))
		r.wantQueue(false) // an empty queue is not held
		r.send(ann, `{"type":"prompt","content":"five","when":"next"}`)
		w.runs(t, "five")
	})
}

func TestAgentTakesSteering(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		r.send(ann, `{"type":"prompt","content":"one"}`)
		r.send(ann, `{"type":"prompt","content":"later","when":"next"}`)
		r.send(ann, `{"type":"prompt","content":"left","when":"steer"}`)
		r.send(ann, `{"type":"prompt","content":"right","when":"steer"}`)
		w.runs(t, "one")
		r.wantQueue(false, "later", "left", "right")
		var taken []string
		for _, work := range w.host.Steering(t.Context()) {
			taken = append(taken, work.Content)
		}
		if !slices.Equal(taken, []string{"left", "right"}) || len(w.host.Steering(t.Context())) > 0 {
			t.Errorf("got %q, want each once", taken)
		}
		r.wantQueue(false, "later")
		w.finish(t, nil)
		w.runs(t, "later")
		var accepted []string
		for _, p := range r.Snapshot().State.People.Prompts {
			accepted = append(accepted, p.Content)
		}
		if want := []string{"one", "left", "right", "later"}; !slices.Equal(accepted, want) {
			t.Errorf("got %q, want %q", accepted, want)
		}
	})
}

// What no agent takes starts a run of its own.
func TestSteeringThatIsNotTakenWaits(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		r.send(ann, `{"type":"prompt","content":"one"}`)
		r.send(ann, `{"type":"prompt","content":"late","when":"steer"}`)
		r.send(ann, `{"type":"prompt","content":"later","when":"steer"}`)
		r.wantQueue(false, "late", "later")
		w.runs(t, "one")
		w.finish(t, nil)
		w.runs(t, "late")
		queue := r.wantQueue(false, "later")
		if queue[0].When != contracts.PromptNext || len(w.host.Steering(t.Context())) > 0 {
			t.Errorf("got %+v, want a prompt that is next", queue[0])
		}
		r.send(ann, `{"type":"prompt","content":"stopped","when":"steer"}`)
		r.send(ann, `{"type":"interrupt"}`)
		queue = r.wantQueue(true, "later", "stopped")
		if queue[1].When != contracts.PromptNext || len(w.host.Steering(t.Context())) > 0 {
			t.Errorf("got %+v, want a prompt that is next", queue[1])
		}
	})
}

// A tearing store writes only the beginning of a batch when it is told to, and then
// fails, as if the process were killed while it wrote.
type tearing struct {
	journal.Store
	tear func(entries int) (kept int, now bool)
}

var errTorn = errors.New("killed")

func (s *tearing) Append(entries []journal.Entry) error {
	if kept, now := s.tear(len(entries)); now {
		return errors.Join(s.Store.Append(entries[:kept]), errTorn)
	}
	return s.Store.Append(entries)
}

// A schedule is a random sequence of commands, ends of runs, and kills, with what the
// queue and the runs must be.
type schedule struct {
	*room
	worker *worker
	rand   *rand.Rand
	store  *tearing
	caller contracts.Caller
	torn   bool // the next batch will be torn

	sent, step int
	queue      []string // contents
	began      map[string]bool
	cancelled  map[string]bool
}

func (s *schedule) open(store journal.Store) {
	s.store = &tearing{Store: store, tear: func(n int) (int, bool) {
		if !s.torn {
			return 0, false
		}
		s.torn = false
		return s.rand.IntN(n + 1), true
	}}
	s.worker = newWorker()
	s.worker.info.Steers = true
	s.room = openRoom(s.t, hub.Options{Store: s.store, Agent: s.worker})
}

// restart kills the process and opens the session again.
func (s *schedule) restart() {
	store := crashed(s.t, s.store.Store)
	s.store.tear = func(int) (int, bool) { return 0, false }
	s.collect()
	s.torn = false
	_ = s.Close(context.Background()) // what it writes is not in the copy
	s.open(store)
}

// collect notes which prompts the agent got.
func (s *schedule) collect() {
	synctest.Wait()
	for {
		select {
		case content := <-s.worker.began:
			s.got(content)
		default:
			return
		}
	}
}

func (s *schedule) got(content string) {
	if s.began[content] || s.cancelled[content] {
		s.t.Fatalf("the agent got %s again, or after it was cancelled", content)
	}
	s.began[content] = true
}

// post sends a command. If the process is killed meanwhile, it sends the command again
// to the next one. It returns the refusal of the last attempt.
func (s *schedule) post(text string) (again bool, err error) {
	s.step++
	key := fmt.Sprint("k", s.step)
	_, err = s.Send([]byte(text), key, s.caller)
	synctest.Wait()
	if s.Err() != nil {
		s.restart()
		_, err = s.Send([]byte(text), key, s.caller)
		synctest.Wait()
		again = true
	}
	return again, err
}

// do makes one random step. It reports whether the process was killed in it.
func (s *schedule) do() (killed bool) {
	s.torn = s.rand.IntN(6) == 0
	defer func() { s.torn = false }()
	_, queue := s.waiting()
	pick := func() int { return s.rand.IntN(len(queue)) }
	switch op := s.rand.IntN(12); {
	case op < 4:
		s.sent++
		content := fmt.Sprint("p", s.sent)
		when := []string{"next", "steer"}[s.rand.IntN(2)]
		again, err := s.post(fmt.Sprintf(`{"type":"prompt","content":%q,"when":%q}`, content, when))
		if err != nil {
			s.t.Fatal(err)
		}
		s.queue = append(s.queue, content)
		return again
	case op == 4 && len(queue) > 0:
		p := queue[pick()]
		again, err := s.post(fmt.Sprintf(`{"type":"queue_cancel","prompt_id":%q}`, p.PromptID))
		if err == nil {
			s.cancelled[p.Content] = true
			s.queue = slices.DeleteFunc(s.queue, func(c string) bool { return c == p.Content })
		}
		return again
	case op == 5 && len(queue) > 0:
		p, before := queue[pick()], queue[pick()]
		again, _ := s.post(fmt.Sprintf(`{"type":"queue_move","prompt_id":%q,"before":%q}`, p.PromptID, before.PromptID))
		s.queue, _ = s.waiting() // as the server says; that nothing is lost is checked
		return again
	case op == 6:
		again, _ := s.post(`{"type":"interrupt"}`)
		return again
	case op == 7:
		again, _ := s.post(`{"type":"queue_resume"}`)
		return again
	case op == 8:
		for _, work := range s.worker.host.Steering(s.t.Context()) {
			s.got(work.Content)
		}
	case op == 9:
		s.torn = false
		s.restart()
		return true
	default:
		select {
		case s.worker.ends <- nil:
		default: // no run is active
		}
	}
	synctest.Wait()
	if s.Err() != nil {
		s.restart()
		return true
	}
	return false
}

// check fails unless each prompt is in one place: in the queue, accepted for the agent
// and shown so, or cancelled; and the queue is in order.
func (s *schedule) check(killed bool) {
	s.collect()
	queue, _ := s.waiting()
	accepted := map[string]int{}
	for _, p := range s.Snapshot().State.People.Prompts {
		if accepted[p.Content]++; killed && !s.began[p.Content] {
			s.got(p.Content) // written, but the agent was killed before it began; clients see that its run was
		}
	}
	want := slices.DeleteFunc(slices.Clone(s.queue), func(c string) bool { return s.began[c] })
	if !slices.Equal(queue, want) {
		s.t.Fatalf("got queue %q, want %q", queue, want)
	}
	for content := range s.began {
		if accepted[content] != 1 {
			s.t.Fatalf("%s was shown as accepted %d times", content, accepted[content])
		}
	}
	if len(accepted) != len(s.began) {
		s.t.Fatalf("got %v as accepted; the agent got %v", accepted, s.began)
	}
	s.queue = queue
}

func TestNoPromptIsLostDoubledOrOutOfOrder(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			s := &schedule{rand: rand.New(rand.NewPCG(seed, 0)), began: map[string]bool{}, cancelled: map[string]bool{}}
			s.room = &room{t: t}
			s.open(journal.NewMemory(journal.MemoryOptions{}))
			defer func() { _ = s.Close(context.Background()) }()
			g := s.guest("ann")
			caps := &contracts.AttachCapabilities{People: true}
			g.subscribes(contracts.AttachRequest{Role: contracts.RoleController, Capabilities: caps})
			s.caller = g.by
			for range 12 {
				s.check(s.do())
			}
			if _, err := s.post(`{"type":"queue_resume"}`); err != nil {
				t.Fatal(err)
			}
			for range s.sent + 1 { // all that is left starts in order
				s.check(false)
				select {
				case s.worker.ends <- nil:
				default:
				}
			}
			if s.check(false); len(s.queue) > 0 || len(s.began)+len(s.cancelled) != s.sent {
				t.Errorf("got %d prompts with the agent, %d cancelled and %q in the queue, of %d",
					len(s.began), len(s.cancelled), s.queue, s.sent)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A resuming worker can act on answers to the questions of an earlier process.
type resumingWorker struct{ *worker }

func (w resumingWorker) Resume(ctx context.Context, _ *contracts.ServerRequest, _ contracts.Outcome) error {
	return w.run(ctx, "resumed")
}

func TestQueueWaitsForTheAnswerToARunOfAnEarlierProcess(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	w := newWorker()
	w.play = func(ctx context.Context, host contracts.Host, _ contracts.Work) error {
		_, err := host.Ask(ctx, question(contracts.RequestApproval, "q1"), contracts.AskOptions{})
		return err
	}
	inRoom(t, hub.Options{Agent: resumingWorker{w}, Store: store, CheckpointBytes: 1}, func(t *testing.T, r *room) {
		ann, _ := r.attach(contracts.Attach{Role: contracts.RoleController}, helloPeople)
		r.send(ann, `{"type":"prompt","content":"one"}`)
		r.send(ann, `{"type":"prompt","content":"two","when":"next"}`)
		r.wantQueue(false, "two")
		again := newWorker()
		next := openRoom(t, hub.Options{Agent: resumingWorker{again}, Store: crashed(t, store), NoReturn: true})
		defer next.close()
		again.rests(t)
		next.wantQueue(false, "two")
		if _, _, err := next.Decide("q1", true, "", "", contracts.Principal{}); err != nil {
			t.Fatal(err)
		}
		again.runs(t, "resumed")
		next.wantQueue(false, "two")
		again.finish(t, nil)
		again.runs(t, "two")
	})
}

func TestQueueMovesWithADrainedSession(t *testing.T) {
	for _, held := range []bool{false, true} {
		inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
			r.send(ann, `{"type":"prompt","content":"one"}`)
			w.runs(t, "one")
			r.send(ann, `{"type":"prompt","content":"two","when":"steer","attachments":["/w/plan.md"]}`)
			if held {
				r.send(ann, `{"type":"interrupt"}`)
			}
			r.wantQueue(held, "two")
			q := r.quiesces()
			r.Conclude(true)
			w.rests(t)
			if len(q.Queue.Prompts) != 1 || !slices.Equal(q.Queue.Prompts[0].Attachments, []string{"/w/plan.md"}) {
				t.Fatalf("got %+v", q.Queue)
			}
			from := restored(t, q)
			from.Queue = q.Queue
			again := newWorker()
			next := openRoom(t, hub.Options{Agent: again, Restored: from})
			defer next.close()
			if held {
				again.rests(t)
				next.wantQueue(true, "two")
				return
			}
			again.runs(t, "two")
			next.wantQueue(false)
		})
	}
}
