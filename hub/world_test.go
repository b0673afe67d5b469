package hub_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/memconn"
	"github.com/seed-028515a8/maestro/journal"
)

// A world is a real hub with a puppet and clients, and beside it a small model
// of what they should find: see model.
type world struct {
	*hub.Hub
	model
	agent   *puppet
	resumes bool // the agent can act on answers to earlier questions
	store   *journal.Memory
	ledger  *ledger
	members [4]*member
	learned map[string][]contracts.Outcome // by agents of earlier processes
	grants  uint64                         // largest generation that a client was told before this step, and
	newest  uint64                         // with it
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

func newWorld(resumes bool) (*world, error) {
	w := &world{resumes: resumes, model: newModel(resumes), store: journal.NewMemory(journal.MemoryOptions{}), learned: map[string][]contracts.Outcome{}}
	return w, w.open()
}

// open starts a hub on the world's store.
func (w *world) open() (err error) {
	w.agent = newPuppet()
	w.ledger = &ledger{store: w.store}
	var agent hub.Agent = w.agent
	if w.resumes {
		agent = resumer{w.agent}
	}
	w.Hub, err = hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: agent, Store: w.store, WindowBytes: 4 << 10, CheckpointBytes: 6 << 10})
	if err != nil {
		return err
	}
	return w.Start(context.Background())
}

// end closes everything, so that no goroutine stays behind.
func (w *world) end() error {
	err := w.Close(context.Background())
	for _, m := range w.members {
		if m != nil {
			m.peer.Close()
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
	if err := end(context.Background()); err != nil {
		return err
	}
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
	synctest.Wait()
	w.model.restart()
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
	if err := w.ledger.refresh(); err != nil {
		return err
	}
	for id, outs := range agent.learned() {
		w.learned[id] = append(w.learned[id], outs...)
	}
	w.store, err = copyStore(w.store)
	return err
}

// join attaches somebody, as a new connection or, from an earlier one, with its
// token and perhaps its cursor.
func (w *world) join(who int, role contracts.Role, how contracts.Takeover, from *member, token string, cursor bool, able bool) error {
	conn, peer := memconn.New(memconn.Options{})
	m := &member{follower: newFollower(peer, w.ledger), seq: 1}
	att := contracts.Attach{Role: role, Takeover: how, Epoch: w.Epoch()}
	if from != nil {
		att.ConnectionID = from.id
		if cursor && from.cursor > 0 {
			at := int64(from.cursor)
			att.Cursor, m.cursor, m.state, m.resumes = &at, from.cursor, from.state, true
		}
	}
	go func() { // ends when the hub or the peer closes the connection
		_ = w.Serve(context.Background(), conn, hub.WireEnvelope, att)
	}()
	if token != "" {
		m.seq++
		if err := peer.Send(fmt.Sprintf(`{"type":"ws.resume","connection_token":%q}`, token)); err != nil {
			return err
		}
	}
	hello := `{"type":"hello"}`
	if able {
		hello = `{"type":"hello","capabilities":{"server_requests":["client_tool","mcp_elicitation","user_input","tool_retry"]}}`
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
	return nil
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.model.pass(time.Now())
}

// check returns an error where the world is not what the model says. before is
// who held the lease before the step.
func (w *world) check(before string) error {
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
	w.grants = w.newest
	return errors.Join(w.checkState(live), w.checkRequests())
}

func (w *world) checkMember(m *member, before string, live *contracts.Snapshot) error {
	c := w.conns[m.id]
	if attached := c != nil && c.attached && !m.refused; attached == m.ended {
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
	holders := 0
	for _, c := range live.State.Connections {
		if c.ControllerLeaseGranted {
			holders++
		}
	}
	if want := min(len(w.holder), 1); holders != want {
		return fmt.Errorf("connections that hold the lease: got %d, want %d", holders, want)
	}
	if got, want := int(live.State.ConnectionCount), len(w.conns); got != want {
		return fmt.Errorf("connections: got %d, want %d", got, want)
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

// checkRequests holds how requests ended against the model: for clients, for
// the agent, and for the calls they were about.
func (w *world) checkRequests() error {
	events, err := w.ledger.events()
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

// A model is what a world should look like.
type model struct {
	resumes  bool
	now      time.Time
	mode     contracts.ApprovalMode
	running  bool
	conns    map[string]*modelConn
	holder   string
	turn     int // counts asks for the lease
	ids      int // counts questions and calls
	pending  []*modelRequest
	answered []string                     // requests of an earlier process whose answers wait for a run
	resolved map[string]contracts.Verdict // of requests that clients saw, by id
	answers  map[string]contracts.Verdict // that the agent learned, by request id
}

type modelConn struct {
	role     contracts.Role
	able     bool      // can answer every type of request
	attached bool      //
	expires  time.Time // while detached
	asks     int       // turn of its wish for the lease, or zero
	denials  []time.Time
}

type modelRequest struct {
	req      *contracts.ServerRequest
	deadline time.Time // zero: never
	restored bool      // asked by an earlier process
}

func newModel(resumes bool) model {
	return model{
		resumes: resumes, mode: contracts.ApprovalPrompt, now: time.Now(), conns: map[string]*modelConn{},
		resolved: map[string]contracts.Verdict{}, answers: map[string]contracts.Verdict{},
	}
}

// mayDrive returns why a connection may not act, or nothing.
func (m *model) mayDrive(id string) contracts.Code {
	c := m.conns[id]
	switch {
	case c.role == contracts.RoleViewer:
		c.denials = append(c.denials, m.now)
		return contracts.CodeAccessDenied
	case m.holder != "" && m.holder != id:
		return contracts.CodeControllerLeaseHeld
	}
	return ""
}

// tooMany reports whether a connection was refused its last chance: ten times
// within a minute.
func (c *modelConn) tooMany() bool {
	n := len(c.denials)
	return n >= 10 && c.denials[n-1].Sub(c.denials[n-10]) < time.Minute
}

func (m *model) grant(id string) {
	m.holder = id
	m.conns[id].asks = 0
}

// free gives the lease to whoever has asked longest, if anybody.
func (m *model) free() {
	m.holder = ""
	next := ""
	for id, c := range m.conns {
		if c.asks > 0 && c.attached && (next == "" || c.asks < m.conns[next].asks) {
			next = id
		}
	}
	if next != "" {
		m.grant(next)
	}
}

func (m *model) detach(id string) {
	m.conns[id].attached, m.conns[id].expires = false, m.now.Add(contracts.DefaultSubscriptionTTL)
}

func (m *model) destroy(id string) {
	delete(m.conns, id)
	if m.holder == id {
		m.free()
	}
}

// ask opens a question, unless policy decides it.
func (m *model) ask(req *contracts.ServerRequest, deadline time.Time) {
	verdict := contracts.Verdict("")
	switch c := m.conns[m.holder]; {
	case req.RequestType == contracts.RequestApproval:
		verdict = map[contracts.ApprovalMode]contracts.Verdict{contracts.ApprovalAuto: contracts.VerdictApproved, contracts.ApprovalFail: contracts.VerdictDenied}[m.mode]
	case c == nil || c.able:
	case req.RequestType == contracts.RequestToolRetry:
		verdict = contracts.VerdictSkipped
	case req.RequestType == contracts.RequestMCPElicitation:
		verdict = contracts.VerdictCancelled
	default:
		verdict = contracts.VerdictFailed
	}
	if verdict != "" {
		m.answers[req.RequestID] = verdict
		return
	}
	m.pending = append(m.pending, &modelRequest{req: req, deadline: deadline})
}

// resolve ends a question. One of an earlier process is answered to nobody, or
// begins a run.
func (m *model) resolve(q *modelRequest, verdict contracts.Verdict) {
	m.pending = slices.DeleteFunc(m.pending, func(other *modelRequest) bool { return other == q })
	m.resolved[q.req.RequestID] = verdict
	switch {
	case !q.restored:
		m.answers[q.req.RequestID] = verdict
	case m.resumes && verdict != contracts.VerdictCancelled:
		m.answered = append(m.answered, q.req.RequestID)
		m.resumeNext()
	}
}

// resumeNext begins a run with the oldest answer that waits for one.
func (m *model) resumeNext() {
	if m.running || len(m.answered) == 0 {
		return
	}
	id := m.answered[0]
	m.answered = m.answered[1:]
	m.answers[id] = m.resolved[id]
	m.running = true
}

// setMode decides the waiting approvals (R65).
func (m *model) setMode(mode contracts.ApprovalMode) {
	m.mode = mode
	verdict := map[contracts.ApprovalMode]contracts.Verdict{contracts.ApprovalAuto: contracts.VerdictApproved, contracts.ApprovalFail: contracts.VerdictDenied}[mode]
	if verdict == "" {
		return
	}
	for _, q := range slices.Clone(m.pending) {
		if q.req.RequestType == contracts.RequestApproval {
			m.resolve(q, verdict)
		}
	}
}

// interrupt cancels everything that waits and ends the run (R66).
func (m *model) interrupt() {
	for _, q := range slices.Clone(m.pending) {
		m.resolve(q, contracts.VerdictCancelled)
	}
	m.running, m.answered = false, nil
}

// endRun cancels what the run has asked. Questions of an earlier process are
// not its own and wait on (D8).
func (m *model) endRun() {
	for _, q := range slices.Clone(m.pending) {
		if !q.restored {
			m.resolve(q, contracts.VerdictCancelled)
		}
	}
	m.running = false
	m.resumeNext()
}

// restart keeps controllers, detached, and everything that waits.
func (m *model) restart() {
	m.running, m.answered, m.now = false, nil, time.Now()
	for id, c := range m.conns {
		if c.role == contracts.RoleViewer {
			delete(m.conns, id)
			continue
		}
		c.asks, c.denials = 0, nil
		m.detach(id)
	}
	for _, q := range m.pending {
		q.restored = true
	}
}

// pass does what the clock does until now.
func (m *model) pass(now time.Time) {
	for {
		at, act := m.next()
		if act == nil || at.After(now) {
			break
		}
		m.now = at
		act()
	}
	m.now = now
}

// next returns what the clock does next, and when. At one time requests expire
// before connections.
func (m *model) next() (at time.Time, act func()) {
	for _, q := range m.pending {
		if !q.deadline.IsZero() && (act == nil || q.deadline.Before(at)) {
			at, act = q.deadline, func() { m.resolve(q, expired(q.req.RequestType)) }
		}
	}
	for id, c := range m.conns {
		if !c.attached && (act == nil || c.expires.Before(at)) {
			at, act = c.expires, func() { m.destroy(id) }
		}
	}
	return at, act
}

func expired(kind contracts.RequestType) contracts.Verdict {
	return cmp.Or(map[contracts.RequestType]contracts.Verdict{
		contracts.RequestApproval: contracts.VerdictDenied, contracts.RequestToolRetry: contracts.VerdictCancelled,
	}[kind], contracts.VerdictFailed)
}
