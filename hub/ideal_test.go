package hub_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A model is what a world should look like.
type model struct {
	resumes  bool
	now      time.Time
	mode     contracts.ApprovalMode
	running  bool
	conns    map[string]*modelConn
	former   map[string]time.Time // connections that are gone, by id: since when
	holder   string
	alive    time.Time // the holder's last sign of life that is known beside its connection's
	turn     int       // counts asks for the lease
	ids      int       // counts questions and calls
	pending  []*modelRequest
	answered []string                     // requests of an earlier process whose answers wait for a run
	resolved map[string]contracts.Verdict // of requests that clients saw, by id
	answers  map[string]contracts.Verdict // that the agent learned, by request id

	prompters []string                         // connections that began runs, in order
	votes     int                              // that did not end their questions
	voted     map[string]bool                  // requests that needed votes and got one, by id
	kinds     map[string]contracts.RequestType // of requests that clients saw, by id
	authors   map[string]string                // whose answers ended requests, by request id; see byline
}

// A modelConn is a connection. One of a socket has exactly one subscription.
type modelConn struct {
	role    contracts.Role
	able    bool   // can answer every type of request
	guest   string // who made it over HTTP; empty: it has a socket
	member  string // whose socket it is; empty: made over HTTP
	subs    []*modelSub
	seen    time.Time // the last request, or the end of a socket or stream
	unused  bool      // never had a subscription
	asks    int       // turn of its wish for the lease, or zero
	denials []time.Time
}

// A modelSub is a subscription.
type modelSub struct {
	id       string
	attached bool
	since    time.Time // while detached: what its time counts from
	greeted  int       // answers to hello
}

// attached reports whether a socket or a stream is there.
func (c *modelConn) attached() bool {
	return slices.ContainsFunc(c.subs, func(sub *modelSub) bool { return sub.attached })
}

// sub returns the subscription of that id, or nil.
func (c *modelConn) sub(id string) *modelSub {
	for _, sub := range c.subs {
		if sub.id == id {
			return sub
		}
	}
	return nil
}

// expires returns when the connection, or the first of its subscriptions, is
// over unless something happens; zero if never.
func (c *modelConn) expires() (at time.Time, sub *modelSub) {
	if len(c.subs) == 0 {
		return c.seen.Add(contracts.DefaultLeaseTTL), nil
	}
	for _, s := range c.subs {
		if end := s.since.Add(contracts.DefaultSubscriptionTTL); !s.attached && (sub == nil || end.Before(at)) {
			at, sub = end, s
		}
	}
	return at, sub
}

type modelRequest struct {
	req      *contracts.ServerRequest
	deadline time.Time // zero: never
	restored bool      // asked by an earlier process
	votes    []string  // principals that have approved
}

func newModel(resumes bool) model {
	return model{
		resumes: resumes, mode: contracts.ApprovalPrompt, now: time.Now(), conns: map[string]*modelConn{}, former: map[string]time.Time{},
		resolved: map[string]contracts.Verdict{}, answers: map[string]contracts.Verdict{},
		authors: map[string]string{}, kinds: map[string]contracts.RequestType{}, voted: map[string]bool{},
	}
}

// mayDrive returns why a connection may not act, or nothing.
func (m *model) mayDrive(id string) contracts.Code {
	c := m.conns[id]
	switch {
	case c.role == contracts.RoleViewer:
		if c.guest == "" {
			c.denials = append(c.denials, m.now)
		}
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
	m.holder, m.alive = id, m.now
	m.conns[id].asks = 0
}

// free gives the lease to whoever has asked longest, if anybody.
func (m *model) free() {
	m.holder = ""
	next := ""
	for id, c := range m.conns {
		if c.asks > 0 && c.attached() && (next == "" || c.asks < m.conns[next].asks) {
			next = id
		}
	}
	if next != "" {
		m.grant(next)
	}
}

// enter adds a connection on a socket, or one that comes back to it.
func (m *model) enter(id, who string, role contracts.Role, how contracts.Takeover, able bool) {
	c := m.conns[id]
	if c == nil {
		c = &modelConn{member: who, subs: []*modelSub{{}}}
		m.conns[id] = c
	}
	c.role, c.able, c.subs[0].attached = role, able, true
	m.claim(id, how == contracts.TakeoverForce)
}

// claim gives a controller the lease as it attaches, if it may have it.
func (m *model) claim(id string, force bool) {
	if m.conns[id].role == contracts.RoleController && (m.holder == "" || m.holder != id && force) {
		m.grant(id)
	}
}

// detach ends the socket of a connection, or the stream of its subscription.
func (m *model) detach(id, sub string) {
	c := m.conns[id]
	c.seen = m.now
	s := c.sub(sub)
	s.attached, s.since = false, m.now
}

// heard is a request of a guest.
func (m *model) heard(id string) {
	c := m.conns[id]
	c.seen = m.now
	for _, s := range c.subs {
		s.since = m.now
	}
}

// drop ends a subscription, the last one with its connection.
func (m *model) drop(id string, sub *modelSub) {
	c := m.conns[id]
	if len(c.subs) == 1 {
		m.destroy(id)
		return
	}
	c.subs = slices.DeleteFunc(c.subs, func(s *modelSub) bool { return s == sub })
}

func (m *model) destroy(id string) {
	delete(m.conns, id)
	m.former[id] = m.now
	if m.holder == id {
		m.free()
	}
}

// wasHere reports whether a connection has ended lately.
func (m *model) wasHere(id string) bool {
	at, was := m.former[id]
	return was && m.now.Sub(at) <= 10*time.Minute
}

// ask opens a question, unless policy decides it.
func (m *model) ask(req *contracts.ServerRequest, deadline time.Time) {
	verdict := contracts.Verdict("")
	switch c := m.conns[m.holder]; {
	case needsTwo(req) && m.mode == contracts.ApprovalAuto:
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
	m.kinds[req.RequestID] = req.RequestType
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

// approve counts the approval of a question by a principal. It returns the code of a
// refusal, and whether it was the last approval that the question needs.
func (q *modelRequest) approve(principal string) (refused contracts.Code, last bool) {
	if !needsTwo(q.req) {
		return "", true
	}
	if slices.Contains(q.votes, principal) {
		return contracts.CodeAlreadyVoted, false
	}
	return "", len(q.votes) == 1
}

// answer ends a question by an answer, or counts its approval.
func (m *model) answer(q *modelRequest, verdict contracts.Verdict, principal, conn string) {
	if verdict == contracts.VerdictApproved {
		_, last := q.approve(principal)
		q.votes = append(q.votes, principal)
		if m.voted[q.req.RequestID] = needsTwo(q.req); !last {
			m.votes++
			return
		}
	}
	m.authors[q.req.RequestID] = byline(principal, conn)
	m.resolve(q, verdict)
}

// toolOfTwo is a tool whose approvals need two votes.
const toolOfTwo = "two"

func needsTwo(req *contracts.ServerRequest) bool {
	return req.RequestType == contracts.RequestApproval && req.Tool == toolOfTwo
}

// byline names who did something: a principal, and its connection if it has one.
func byline(principal, conn string) string { return principal + "/" + conn }

// setMode decides the waiting approvals (R65).
func (m *model) setMode(mode contracts.ApprovalMode) {
	m.mode = mode
	verdict := map[contracts.ApprovalMode]contracts.Verdict{contracts.ApprovalAuto: contracts.VerdictApproved, contracts.ApprovalFail: contracts.VerdictDenied}[mode]
	if verdict == "" {
		return
	}
	for _, q := range slices.Clone(m.pending) {
		if q.req.RequestType == contracts.RequestApproval && !(needsTwo(q.req) && mode == contracts.ApprovalAuto) {
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

// drain ends the run, with or without the questions.
func (m *model) drain(keeps bool) {
	if !keeps {
		m.interrupt()
	}
	m.running, m.answered = false, nil
}

// restart keeps controllers, detached, and everything that waits.
func (m *model) restart() {
	m.running, m.answered, m.now = false, nil, time.Now()
	m.former, m.alive = map[string]time.Time{}, m.now
	for id, c := range m.conns {
		if c.role == contracts.RoleViewer {
			delete(m.conns, id)
			continue
		}
		c.asks, c.denials, c.seen, c.unused = 0, nil, m.now, false
		for _, s := range c.subs {
			s.attached, s.since = false, m.now
		}
	}
	for _, q := range m.pending {
		q.restored = true
	}
}

// move keeps what waits, and nobody.
func (m *model) move() {
	m.restart()
	m.conns, m.holder = map[string]*modelConn{}, ""
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

// next returns what the clock does next, and when.
func (m *model) next() (at time.Time, act func()) {
	for _, q := range m.pending {
		if !q.deadline.IsZero() && (act == nil || q.deadline.Before(at)) {
			at, act = q.deadline, func() { m.resolve(q, expired(q.req.RequestType)) }
		}
	}
	for id, c := range m.conns {
		end, sub := c.expires()
		switch {
		case end.IsZero() || act != nil && !end.Before(at):
		case sub != nil:
			at, act = end, func() { m.drop(id, sub) }
		default:
			at, act = end, func() { m.destroy(id) }
		}
	}
	if end := m.leaseEnds(); !end.IsZero() && (act == nil || end.Before(at)) {
		at, act = end, m.free
	}
	return at, act
}

// leaseEnds returns when the holder loses the lease for want of a sign of life;
// zero if never. A socket gives one by itself.
func (m *model) leaseEnds() time.Time {
	c := m.conns[m.holder]
	if c == nil || c.guest == "" && c.attached() {
		return time.Time{}
	}
	seen := m.alive
	if c.seen.After(seen) {
		seen = c.seen
	}
	return seen.Add(contracts.DefaultLeaseTTL)
}

func expired(kind contracts.RequestType) contracts.Verdict {
	return cmp.Or(map[contracts.RequestType]contracts.Verdict{
		contracts.RequestApproval: contracts.VerdictDenied, contracts.RequestToolRetry: contracts.VerdictCancelled,
	}[kind], contracts.VerdictFailed)
}
