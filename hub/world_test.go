package hub_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A world is a real hub with a puppet and clients, and beside it a small model
// of what they should find: see model.
type world struct {
	*hub.Hub
	model
	setting setting
	agent   *puppet
	store   *journal.Memory
	disk    *mortal         // the store, for this process
	office  *office         // nil without an inbox
	desk    *desk           // what the office has stored
	counted map[string]bool // questions in the tally
	ledger  *ledger
	members [4]*member
	guests  [3]*visitor
	learned map[string][]contracts.Outcome // by agents of earlier processes
	past    []contracts.Event              // in the stores of earlier runners
	origin  *contracts.Quiesced            // what this runner began with; nil: nothing
	start   *contracts.Snapshot            // the state then
	moments []*contracts.Snapshot          // what the hub has shown after each step of this runner
	grants  uint64                         // largest generation that a client was told before this step, and
	newest  uint64                         // with it
}

// A setting is what does not change in a world.
type setting struct {
	resumes    bool  // the agent can act on answers to earlier questions
	cancels    bool  // a drain cancels them
	inbox      bool  // there is an inbox, and some approvals need two votes
	listSocket bool  // the inbox is followed on a socket, else on a stream
	done       tally // may be nil
}

// A member is a client: the latest connection that somebody had.
type member struct {
	*follower
	id, token string
	seq       uint64 // frames sent on this socket
	sent      int    // ws.send frames of this connection
	refused   bool   // the attachment
	attaching bool   // since the last check
	denied    bool   // its wish for the lease, since the last check
}

func newWorld(s setting) (*world, error) {
	w := &world{
		setting: s, model: newModel(s.resumes), desk: &desk{}, counted: map[string]bool{},
		store: journal.NewMemory(journal.MemoryOptions{}), learned: map[string][]contracts.Outcome{},
	}
	for i := range w.guests {
		w.guests[i] = newVisitor(fmt.Sprint("guest-", i))
	}
	return w, w.open()
}

// open starts a hub on the world's store.
func (w *world) open() (err error) {
	w.agent = newPuppet()
	w.ledger = &ledger{store: w.store, start: w.start, transient: map[uint64]string{}}
	if w.origin != nil {
		w.ledger.base = w.origin.Cursor
	}
	var agent contracts.Agent = w.agent
	if w.resumes {
		agent = resumer{w.agent}
	}
	var origin *contracts.Restored
	if w.origin != nil {
		if origin, err = restoredFrom(*w.origin); err != nil {
			return err
		}
	}
	w.disk = &mortal{Store: w.store}
	opts := hub.Options{
		SessionID: "s", Cwd: "/", Agent: agent, Store: w.disk, WindowBytes: 4 << 10, CheckpointBytes: 6 << 10,
		DrainCancels: w.setting.cancels, Restored: origin, Votes: []hub.VoteRule{{Votes: 2, Tool: toolOfTwo}},
	}
	start := func() (*hub.Hub, error) {
		if w.Hub, err = hub.New(opts); err != nil {
			return nil, err
		}
		return w.Hub, w.Start(context.Background())
	}
	if w.setting.inbox {
		return w.openOffice(&opts, start)
	}
	_, err = start()
	return err
}

// end closes everything, so that no goroutine stays behind.
func (w *world) end() error {
	err := w.Close(context.Background())
	w.closeOffice()
	for _, m := range w.members {
		if m != nil {
			m.peer.Close()
		}
	}
	for _, g := range w.guests {
		for _, f := range g.streams {
			f.peer.Close()
		}
	}
	return err
}

// restart goes on with another hub on what the first has stored: all of it if
// the first could end in order, else what there was at that moment.
func (w *world) restart(crash bool) error {
	epoch, old, agent := w.Epoch(), w.Hub, w.agent
	end := old.Suspend
	if crash {
		if err := w.adopt(agent); err != nil {
			return err
		}
		end = old.Close
	}
	if crash {
		w.desk.lost.Store(true)
	}
	if err := end(context.Background()); err != nil && !w.disk.dead.Load() {
		return err
	}
	w.closeOffice()
	if !crash {
		if err := w.adopt(agent); err != nil {
			return err
		}
	}
	for i, m := range w.members {
		if m == nil {
			continue
		}
		m.peer.Close()
		if crash { // nobody has heard what is not in the copy
			m.ended = true
		} else if err := m.read(); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
	}
	for _, g := range w.guests {
		if err := g.cutOff(crash); err != nil {
			return err
		}
	}
	synctest.Wait()
	w.model.restart()
	for _, g := range w.guests {
		for id, p := range g.places { // what waited for its streams is lost
			if c := w.conns[g.by.ConnectionID]; c != nil && c.sub(id) != nil {
				c.sub(id).greeted = p.greeted
			}
		}
	}
	if err := w.open(); err != nil {
		return err
	}
	if w.Epoch() != epoch {
		return fmt.Errorf("epoch after a restart: got %s, want %s", w.Epoch(), epoch)
	}
	return nil
}

// adopt copies the store, and remembers what the agent has learned so far.
func (w *world) adopt(agent *puppet) (err error) {
	if err := w.retire(agent); err != nil {
		return err
	}
	w.store, err = copyStore(w.store)
	return err
}

// retire remembers what an agent has learned.
func (w *world) retire(agent *puppet) error {
	for id, outs := range agent.learned() {
		w.learned[id] = append(w.learned[id], outs...)
	}
	return w.ledger.refresh()
}

// join attaches somebody, as a new connection or, from an earlier one, with its
// token and perhaps its cursor.
func (w *world) join(who int, role contracts.Role, how contracts.Takeover, from *member, token string, cursor bool, able bool) error {
	conn, peer := memconn.New(memconn.Options{})
	m := &member{follower: newFollower(peer, w.ledger), seq: 1}
	m.people = who%2 == 0
	att := contracts.Attach{Role: role, Takeover: how, Epoch: w.Epoch(), Principal: contracts.Principal{ID: memberName(who)}}
	if from != nil {
		att.ConnectionID, m.people = from.id, from.people
		if cursor && from.cursor > 0 {
			at := int64(from.cursor)
			att.Cursor, m.cursor, m.state, m.resumes = &at, from.cursor, from.state, true
		}
	}
	go func() { // ends when the hub or the peer closes the connection
		_ = w.Serve(context.Background(), conn, hub.WireEnvelope, &att)
	}()
	if token != "" {
		m.seq++
		if err := peer.Send(fmt.Sprintf(`{"type":"ws.resume","connection_token":%q}`, token)); err != nil {
			return err
		}
	}
	hello := fmt.Sprintf(`{"type":"hello","capabilities":{"people":%t}}`, m.people)
	if able {
		hello = fmt.Sprintf(`{"type":"hello","capabilities":{"server_requests":["client_tool","mcp_elicitation","user_input","tool_retry"],"people":%t}}`, m.people)
	}
	if err := peer.Send(hello); err != nil {
		return err
	}
	synctest.Wait()
	if err := w.ledger.refresh(); err != nil {
		return err
	}
	if err := m.read(); err != nil {
		return err
	}
	if err := m.greeted(); err != nil {
		return err
	}
	w.members[who] = m
	return nil
}

// greeted looks at how the handshake ended.
func (m *member) greeted() error {
	if len(m.control) == 0 {
		return errors.New("got no answer to hello, want ws.attached or ws.goodbye")
	}
	first := m.control[0]
	m.control = m.control[1:]
	if refusal, ok := first.(*contracts.Refusal); ok && len(m.control) > 0 { // says why, before the goodbye
		if refusal.Code != contracts.CodeControllerLeaseHeld {
			return fmt.Errorf("refused attachment: got %+v, want %s", refusal, contracts.CodeControllerLeaseHeld)
		}
		first, m.control = m.control[0], m.control[1:]
	}
	switch f := first.(type) {
	case *contracts.Attached:
		m.id, m.token, m.attaching = f.ConnectionID, f.ConnectionToken, true
		return nil
	case *contracts.Goodbye:
		m.refused = true
		if !m.ended || f.Code != 4409 || f.Reason != string(contracts.CodeControllerLeaseHeld) {
			return fmt.Errorf("refused attachment: got %+v, ended %t, want 4409 and the end", f, m.ended)
		}
		return nil
	}
	return fmt.Errorf("got %s, want ws.attached or a refusal", first.FrameType())
}

// answered sends a frame and returns an error unless it is answered exactly
// once, with code; an empty one means that it is accepted.
func (w *world) answered(m *member, text string, code contracts.Code) error {
	m.seq++
	if err := m.peer.Send(text); err != nil {
		return err
	}
	if err := w.settle(); err != nil {
		return err
	}
	var got []contracts.Code
	m.control = slices.DeleteFunc(m.control, func(f contracts.Frame) bool {
		switch f := f.(type) {
		case *contracts.Result:
			if f.Seq == m.seq {
				got = append(got, "")
			}
			return f.Seq == m.seq
		case *contracts.Refusal:
			if f.Seq == m.seq {
				got = append(got, f.Code)
			}
			return f.Seq == m.seq
		}
		return false
	})
	if !slices.Equal(got, []contracts.Code{code}) {
		return fmt.Errorf("%s: got the answers %q, want %q", text, got, code)
	}
	return nil
}

// settle waits until nothing happens any more and reads what came of it. In a
// crowd, who is present is told a little later.
func (w *world) settle() error {
	synctest.Wait()
	if len(w.conns) > 8 {
		w.pass(250 * time.Millisecond)
	}
	if err := w.ledger.refresh(); err != nil {
		return err
	}
	for i, m := range w.members {
		if m == nil {
			continue
		}
		if err := m.read(); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
	}
	for i, g := range w.guests {
		if err := g.read(); err != nil {
			return fmt.Errorf("guest %d: %w", i, err)
		}
	}
	return nil
}

// gathering is how long news of who is here may wait for others.
const gathering = 250 * time.Millisecond

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.model.pass(time.Now())
}

// check returns an error where the world is not what the model says. before is
// who held the lease before the step.
func (w *world) check(before string) error {
	if w.setting.inbox {
		w.pass(listing)
	}
	if err := w.settle(); err != nil {
		return err
	}
	live := w.Snapshot()
	for i, m := range w.members {
		if m == nil {
			continue
		}
		if err := w.checkMember(m, before, live); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
	}
	for i, g := range w.guests {
		if err := w.checkGuest(g, live); err != nil {
			return fmt.Errorf("guest %d: %w", i, err)
		}
	}
	w.grants = w.newest
	return errors.Join(w.checkState(live), w.checkPast(live), w.checkRequests(), w.checkOffice())
}

func (w *world) checkMember(m *member, before string, live *contracts.Snapshot) error {
	c := w.conns[m.id]
	if attached := c != nil && c.attached() && !m.refused; attached == m.ended {
		return fmt.Errorf("connection %s: got ended %t, want attached %t", m.id, m.ended, attached)
	} else if !attached {
		return nil
	}
	if err := m.caughtUp(live); err != nil {
		return err
	}
	var told []contracts.LeaseChange
	for _, f := range m.control {
		switch f := f.(type) {
		case *contracts.LeaseChange:
			told = append(told, *f)
		case *contracts.ControlRequest:
			if w.conns[f.ConnectionID] == nil || w.holder != m.id {
				return fmt.Errorf("got %+v, want it for the holder alone", f)
			}
		default:
			return fmt.Errorf("got an unexpected %s: %+v", f.FrameType(), f)
		}
	}
	m.control = nil
	return w.checkTold(m, before, told)
}

// checkTold holds what a client was told about the lease against who had it:
// who took part in a hand-over is told once, and nobody else. A refused wish
// is told too, and changes nothing.
func (w *world) checkTold(m *member, before string, told []contracts.LeaseChange) error {
	var want []bool
	switch {
	case m.attaching && (before == "" || before == m.id): // ws.attached has told it
	case before != m.id && w.holder == m.id:
		want = []bool{true}
	case before == m.id && w.holder != m.id, m.denied:
		want = []bool{false}
	}
	m.attaching, m.denied = false, false
	var got []bool
	for _, f := range told {
		got = append(got, f.Granted)
		w.newest = max(w.newest, f.Generation)
		if f.Generation < w.grants || f.Granted && f.Generation == w.grants {
			return fmt.Errorf("got generation %d, want more than %d", f.Generation, w.grants)
		}
		if id := f.ControllerConnectionID; f.Granted != (id != nil && *id == m.id) {
			return fmt.Errorf("told of the controller: got %+v", f)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("told of the lease: got %+v, want %v", told, want)
	}
	return nil
}

// checkState holds the hub's own view against the model.
func (w *world) checkState(live *contracts.Snapshot) error {
	var got []string
	for _, r := range live.State.PendingRequests {
		got = append(got, r.ID)
	}
	slices.Sort(got)
	var want []string
	for _, q := range w.pending {
		want = append(want, q.req.RequestID)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("pending requests: got %q, want %q", got, want)
	}
	if got := live.State.ControllerConnectionID.Get(); got != w.holder {
		return fmt.Errorf("controller: got %q, want %q", got, w.holder)
	}
	if got := authored(live.State.People.Controller); got != w.holder {
		return fmt.Errorf("controller among the people: got %q, want %q", got, w.holder)
	}
	holders := 0
	for _, c := range live.State.Connections {
		if c.ControllerLeaseGranted {
			holders++
		}
	}
	if want := min(len(w.holder), 1); holders != want {
		return fmt.Errorf("connections that hold the lease: got %d, want %d", holders, want)
	}
	subs := 0
	for _, c := range w.conns {
		subs += len(c.subs)
	}
	count, wanted := [2]int{int(live.State.ConnectionCount), int(live.State.SubscriberCount)}, [2]int{len(w.conns), subs}
	if count != wanted {
		return fmt.Errorf("connections and subscriptions: got %d, want %d", count, wanted)
	}
	if got := w.agent.active() == 1; got != w.running {
		return fmt.Errorf("run active: got %t, want %t", got, w.running)
	}
	folded, err := w.ledger.fold(live.Cursor)
	if err != nil {
		return err
	}
	if got, want := shown(folded.Snapshot(live.Cursor), false), shown(live, false); got != want {
		return fmt.Errorf("journal folded up to cursor %d:\n got %s\nwant %s", live.Cursor, got, want)
	}
	return nil
}

// checkPast holds the state as of an earlier cursor against what the hub has shown there.
func (w *world) checkPast(live *contracts.Snapshot) error {
	w.moments = append(w.moments, live)
	then := w.moments[len(w.moments)/2]
	past, err := stateAt(w.Hub, then.Cursor)
	if err != nil || w.origin != nil && past.Cursor > then.Cursor {
		return err // the journal of a restored session has the state from its first checkpoint on
	}
	return sameMoment(past, then)
}

// checkRequests holds how requests ended against the model: for clients, for
// the agent, and for the calls they were about.
func (w *world) checkRequests() error {
	events, err := w.events()
	if err != nil {
		return err
	}
	told := map[string][]contracts.Verdict{}
	for _, ev := range events {
		if e, ok := ev.(*contracts.ServerRequestResolved); ok {
			told[e.RequestID] = append(told[e.RequestID], e.Resolution)
		}
	}
	if !maps.EqualFunc(told, w.resolved, func(got []contracts.Verdict, want contracts.Verdict) bool {
		return len(got) == 1 && got[0] == want
	}) {
		return fmt.Errorf("resolutions: got %v, want %v", told, w.resolved)
	}
	if err := w.checkAuthors(events); err != nil {
		return err
	}
	learned := w.agent.learned()
	for id, outs := range w.learned {
		learned[id] = append(slices.Clone(outs), learned[id]...)
	}
	if !maps.EqualFunc(learned, w.answers, func(got []contracts.Outcome, want contracts.Verdict) bool {
		return len(got) == 1 && got[0].Verdict == want
	}) {
		return fmt.Errorf("outcomes the agent learned: got %v, want %v", learned, w.answers)
	}
	open, stray := openCalls(events)
	if len(stray) > 0 {
		return fmt.Errorf("calls that ended without being open: %q", stray)
	}
	if !w.running && len(open) > len(w.pending) { // answers wait only for a run
		return fmt.Errorf("open calls with no run: got %q, want those of %d waiting requests", open, len(w.pending))
	}
	return nil
}

// checkAuthors holds who did what against the model: each prompt and each answer is shown
// once, with its author, and each move of control begins where the last one ended.
func (w *world) checkAuthors(events []contracts.Event) error {
	var prompters []string
	answered := map[string][]string{}
	for _, ev := range events {
		switch e := ev.(type) {
		case *contracts.PromptAccepted:
			prompters = append(prompters, authored(&e.Author))
		case *contracts.ServerRequestResolved:
			if e.Author != nil {
				answered[e.RequestID] = append(answered[e.RequestID], byline(e.Author.Principal, e.Author.ConnectionID))
			}
		}
	}
	if !slices.Equal(prompters, w.prompters) {
		return fmt.Errorf("authors of prompts: got %q, want %q", prompters, w.prompters)
	}
	if !maps.EqualFunc(answered, w.authors, func(got []string, want string) bool { return len(got) == 1 && got[0] == want }) {
		return fmt.Errorf("authors of answers: got %q, want %q", answered, w.authors)
	}
	here, err := w.ledger.events()
	holder := ""
	for _, ev := range here {
		if e, ok := ev.(*contracts.ControlChanged); ok {
			if got := authored(e.From); got != holder || e.To == nil && e.From == nil {
				return fmt.Errorf("control moved from %q to %q, want from %q", got, authored(e.To), holder)
			}
			holder = authored(e.To)
		}
	}
	return err
}

// authored returns the connection of an author, or "" for nobody.
func authored(a *contracts.Author) string {
	if a == nil {
		return ""
	}
	return a.ConnectionID
}

// events returns the public events so far, in this runner and those before it.
func (w *world) events() ([]contracts.Event, error) {
	events, err := w.ledger.events()
	return append(slices.Clone(w.past), events...), err
}
