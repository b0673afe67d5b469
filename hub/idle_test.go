package hub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

const idleTTL = 10 * time.Minute

// A cellar is what a directory opens sessions from that outlive their hubs.
type cellar struct {
	idle time.Duration

	mu     sync.Mutex
	stores map[hub.Key]journal.Store
	opened int
	agents []*puppet
}

func (c *cellar) open(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stores == nil {
		c.stores = map[hub.Key]journal.Store{}
	}
	if c.stores[key] == nil {
		if !options.Create {
			return nil, hub.ErrUnknownSession
		}
		c.stores[key] = lasting{journal.NewMemory(journal.MemoryOptions{})}
	}
	c.opened++
	agent := newPuppet()
	c.agents = append(c.agents, agent)
	h, err := hub.New(hub.Options{
		SessionID: key.ID, Cwd: "/", Agent: resumer{agent}, Store: c.stores[key], IdleTTL: c.idle,
		Init: options.Init, WorkingInterval: time.Hour,
	})
	if err != nil {
		return nil, err
	}
	return h, h.Start(ctx)
}

func (c *cellar) openings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// inCellar runs a test in a bubble with a directory over a cellar, and with its
// first session.
func inCellar(t *testing.T, test func(t *testing.T, d *hub.Directory, c *cellar, r *room)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cellar{idle: idleTTL}
		d := &hub.Directory{Open: c.open}
		h, err := get(d, t.Context(), "s", true)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Suspend(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		test(t, d, c, &room{Hub: h, t: t})
	})
}

// ended reports whether the hub has.
func (r *room) ended() bool {
	synctest.Wait()
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// again finds the session anew.
func again(t *testing.T, d *hub.Directory) *room {
	t.Helper()
	h, err := get(d, t.Context(), "s", false)
	if err != nil {
		t.Fatal(err)
	}
	return &room{Hub: h, t: t}
}

func TestIdleSessionRestsAndComesBackAsItWas(t *testing.T) { // A82, 3.6
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"init","system_prompt":"be brief"}`)
		alice.disconnects()
		cursor, epoch, before := r.Cursor(), r.Epoch(), r.Snapshot()
		time.Sleep(idleTTL - instant)
		if r.ended() {
			t.Error("got it asleep too early")
		}
		time.Sleep(instant)
		if !r.ended() {
			t.Error("got it awake, want it asleep")
		}
		if n := len(d.List()); n != 0 {
			t.Errorf("got %d sessions open, want none", n)
		}
		time.Sleep(24 * time.Hour)
		back := again(t, d)
		if back.Hub == r.Hub || back.Epoch() != epoch || back.Cursor() < cursor {
			t.Errorf("got epoch %s at %d, want %s at %d", back.Epoch(), back.Cursor(), epoch, cursor)
		}
		if string(back.Snapshot().LastInit) != string(before.LastInit) {
			t.Errorf("got init %s, want %s", back.Snapshot().LastInit, before.LastInit)
		}
		lines := back.arrived(back.guest("v").follows(from(int64(cursor)))) // as if nothing had happened
		if m, ok := back.decode(lines[0]).(*contracts.MessageEnvelope); !ok || m.Cursor <= cursor {
			t.Errorf("got %q, want a replay after %d", lines, cursor)
		}
	})
}

func TestWhoeverIsThereKeepsTheSessionAwake(t *testing.T) { // A82
	long := 3 * idleTTL
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		awake := func(what string, want bool) {
			t.Helper()
			if r.ended() == want {
				t.Fatalf("%s: got awake %t, want %t", what, !want, want)
			}
		}
		viewer := r.guest("v").follows(contracts.StreamRequest{})
		time.Sleep(long)
		awake("a stream", true)
		viewer.Close()
		peer, told := r.attach(contracts.Attach{Role: contracts.RoleController})
		time.Sleep(long)
		awake("a socket", true)
		peer.Close()
		alice := r.guest("a")
		for range int(long / subTTL) {
			alice.by = contracts.Caller{Token: told.ConnectionToken, ConnectionID: told.ConnectionID}
			alice.beats()
			time.Sleep(subTTL - instant)
		}
		awake("heartbeats", true)
		alice.posts(`{"type":"prompt","content":"go"}`)
		alice.disconnects()
		time.Sleep(long)
		awake("a run", true)
		c.agents[0].orders <- end(nil)
		time.Sleep(idleTTL - instant)
		awake("the end of a run", true)
		time.Sleep(2 * instant)
		awake("nobody", false)
	})
}

func TestTimeOfASessionIsCountedFromWhateverWasLast(t *testing.T) {
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		time.Sleep(idleTTL - instant)
		viewer := r.guest("v")
		viewer.connects(asViewer)
		viewer.disconnects() // a visit, however short
		time.Sleep(idleTTL - instant)
		if r.ended() {
			t.Error("got it asleep, want the visit counted")
		}
		time.Sleep(instant)
		if !r.ended() {
			t.Error("got it awake, want it asleep")
		}
	})
}

func TestSessionWithoutAnIdleLimitStaysOpen(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		time.Sleep(1000 * time.Hour)
		if r.ended() {
			t.Error("got it asleep")
		}
	})
}

func TestUtilitiesKeepASessionAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &toolbox{}
		r := openRoom(t, hub.Options{Utilities: b, IdleTTL: idleTTL})
		defer r.close()
		if err := b.Do(t.Context(), "nobody", &contracts.UtilityFileWatchStart{WatchID: "w"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * idleTTL)
		if r.ended() {
			t.Error("got it asleep while a watch runs")
		}
		if err := b.end(t.Context(), func(tool) bool { return true }, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(idleTTL)
		if !r.ended() {
			t.Error("got it awake, want it asleep")
		}
	})
}

// Questions do not keep a session awake: they wait in the journal, and what
// their deadline has decided meanwhile is told when it comes back (D8).
func TestQuestionsSleepWithTheirSession(t *testing.T) {
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"prompt","content":"go"}`)
		c.agents[0].orders <- c.agents[0].ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{Timeout: -1})
		synctest.Wait()
		r.suspend() // the run is cut, the question waits
		r = again(t, d)
		time.Sleep(leaseTTL) // for alice, who does not come back
		time.Sleep(idleTTL)
		if !r.ended() {
			t.Fatal("got it awake, want it asleep")
		}
		r = again(t, d)
		alice = r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"server_request_response","request_type":"approval","request_id":"q1","approved":true}`)
		synctest.Wait()
		last := c.agents[len(c.agents)-1]
		if got := last.learned()["q1"]; len(got) != 1 || got[0].Verdict != contracts.VerdictApproved {
			t.Errorf("got %+v, want the agent to act on the answer", got)
		}
		last.orders <- end(nil)
	})
}

// Whoever comes while a session falls asleep gets it as soon as it can be woken,
// and all who come get the same.
func TestSessionThatFallsAsleepIsWokenOnceForAll(t *testing.T) { // A83
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		all := func() []*hub.Hub {
			got := make([]*hub.Hub, 8)
			var wg sync.WaitGroup
			for i := range got {
				wg.Go(func() {
					var err error
					if got[i], err = get(d, t.Context(), "s", i%2 == 0); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return got
		}
		for round := range 20 {
			time.Sleep(idleTTL)
			early := all() // in the same moment, so that some may find it still awake
			synctest.Wait()
			late := all()
			for _, h := range append(early, late...) {
				if h == nil || h != late[0] && h != r.Hub || late[0] == r.Hub {
					t.Errorf("round %d: got %p, want %p, which was opened after %p", round, h, late[0], r.Hub)
				}
			}
			if c.openings() != round+2 {
				t.Errorf("round %d: got %d openings, want %d", round, c.openings(), round+2)
			}
			if _, _, err := late[0].Connect(&asViewer, contracts.Caller{}); err != nil {
				t.Errorf("round %d: got %v, want it awake", round, err)
			}
			time.Sleep(leaseTTL)
			r = &room{Hub: late[0], t: t}
		}
	})
}

func TestRequestToASessionThatFallsAsleepMayBeRepeated(t *testing.T) {
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		time.Sleep(idleTTL)
		if !r.ended() {
			t.Fatal("got it awake, want it asleep")
		}
		_, _, err := r.Connect(&asViewer, contracts.Caller{}) // found before, asked too late
		if err == nil {
			t.Fatal("got a connection of a session that is asleep")
		}
		if refusal, ok := err.(*contracts.Error); !ok || !refusal.Code.Retryable() && refusal.Code != contracts.CodeStaleSession {
			t.Errorf("got %v, want one that leads the client back", err)
		}
		again(t, d)
	})
}

func TestDirectoryOpensARuntimeAsItWasWished(t *testing.T) { // 1.7
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, _ *room) {
		first, opened, err := d.Get(t.Context(), hub.Key{ID: "wish"}, hub.OpenOptions{Create: true, Init: &contracts.Init{ApprovalMode: contracts.ApprovalFail}})
		if err != nil || !opened {
			t.Fatalf("got opened %t, %v", opened, err)
		}
		if mode := c.agents[1].host.ApprovalMode(); mode != contracts.ApprovalFail {
			t.Errorf("got approval mode %s, want fail", mode)
		}
		second, opened, err := d.Get(t.Context(), hub.Key{ID: "wish"}, hub.OpenOptions{Create: true, Init: &contracts.Init{ApprovalMode: contracts.ApprovalAuto}})
		if err != nil || opened || second != first || c.agents[1].host.ApprovalMode() != contracts.ApprovalFail {
			t.Errorf("got opened %t, %v, want the one there is, as it is", opened, err)
		}
	})
}

func TestSessionsOfAnotherScopeDoNotExist(t *testing.T) { // A84
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		find := func(scope, id string, create bool) (*hub.Hub, error) {
			h, _, err := d.Get(t.Context(), hub.Key{Scope: scope, ID: id}, hub.OpenOptions{Create: create})
			return h, err
		}
		_, err := find("other", "s", false)
		wantRefusal(t, err, contracts.CodeStaleSession, "Headless session not found")
		_, unknown := find("other", "never was", false)
		if fmt.Sprint(err) != fmt.Sprint(unknown) {
			t.Errorf("got %v, want it like %v", err, unknown)
		}
		theirs, err := find("other", "s", true)
		if err != nil || theirs == r.Hub || theirs.Epoch() == r.Epoch() {
			t.Errorf("got %p, %v, want a session of their own beside %p", theirs, err, r.Hub)
		}
		if mine, err := find("", "s", false); err != nil || mine != r.Hub {
			t.Errorf("got %p, %v, want %p still", mine, err, r.Hub)
		}
		want := map[hub.Key]*hub.Hub{{ID: "s"}: r.Hub, {Scope: "other", ID: "s"}: theirs}
		wantEqual(t, "sessions", d.List(), want)
		alice := (&room{Hub: theirs, t: t}).guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"shutdown"}`) // theirs ends, mine does not
		<-theirs.Done()
		synctest.Wait()
		if _, err = find("other", "s", false); err == nil {
			t.Error("got what was shut down")
		}
		if r.ended() {
			t.Error("got the session of the other scope ended too")
		}
	})
}

func TestSummaryIsThatOfNow(t *testing.T) {
	inCellar(t, func(t *testing.T, d *hub.Directory, c *cellar, r *room) {
		began := time.Now()
		time.Sleep(time.Second)
		alice := r.guest("a")
		alice.connects(asController)
		came := time.Now()
		time.Sleep(time.Second)
		got := r.Summary()
		if !got.Updated.Equal(came) || came.Equal(began) {
			t.Errorf("updated: got %v, want %v", got.Updated, came)
		}
		got.Updated = time.Time{}
		wantEqual(t, "somebody came", got, hub.Summary{Cursor: r.Cursor(), Connections: 1})
		alice.posts(`{"type":"prompt","content":"go"}`)
		c.agents[0].orders <- c.agents[0].ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{})
		synctest.Wait()
		got = r.Summary()
		got.Updated = time.Time{}
		wantEqual(t, "at work", got, hub.Summary{Cursor: r.Cursor(), Connections: 1, Responding: true, Pending: 1})
	})
}

func TestVisitOnAStreamCountsToItsEnd(t *testing.T) { // though nothing may be told of it
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{IdleTTL: idleTTL})
		defer r.close()
		stream := r.guest("v").follows(contracts.StreamRequest{})
		time.Sleep(2 * idleTTL)
		r.arrived(stream)
		stream.Close()
		time.Sleep(idleTTL - instant)
		if r.ended() {
			t.Error("got it asleep, want its time counted from the end of the stream")
		}
		time.Sleep(time.Second)
		if !r.ended() {
			t.Error("got it awake, want it asleep")
		}
	})
}

func TestSessionThatNobodyEverUsedRestsToo(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		inRoom(t, hub.Options{IdleTTL: idleTTL, Quiet: quiet}, func(t *testing.T, r *room) {
			time.Sleep(idleTTL - instant)
			if r.ended() {
				t.Error("got it asleep too early")
			}
			time.Sleep(instant)
			if !r.ended() {
				t.Error("got it awake, want it asleep")
			}
		})
	}
}
