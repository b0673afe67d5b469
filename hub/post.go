package hub

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// A post is one command on its way in over HTTP.
type post struct {
	hub  *Hub
	by   contracts.Caller
	cmd  contracts.Command
	bad  error // why the text is no command, or none that the agent can serve
	send *string
	conn *connection

	run    *run   // that the answer waits for
	before uint64 // events published before it
	shot   shot
	answer contracts.MessageAnswer
	known  []byte // the answer to the same request, made earlier

	answered chan struct{} // closed when reply has returned, or will not be called

	earlier chan struct{} // of the same request, which is under way: closed when it has its answer
	doing   bool          // others may wait for this one
}

// sendPrefix keeps idempotency keys apart from the ids of ws.send.
const sendPrefix = "http "

// Post admits the command in text, for the connection that the caller speaks
// for, and hands reply the encoded answer. It does not wait for the agent. With a
// key, a request that is repeated gets the first answer again and changes
// nothing (A72).
//
// A run that the command begins starts once reply has returned, so that no event
// of it reaches a stream before the answer: clients that set their state from
// the answer would miss the run's end. A client that does not take the answer
// does not hold the run up for longer than replyPatience.
//
// The checks come in the order of maestro-attach 1.12: session, readiness,
// connection, owner, role, lease, the message itself, capability, state.
func (h *Hub) Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error {
	p := &post{hub: h, by: by, answered: make(chan struct{})}
	defer close(p.answered)
	answer, err := p.do(text, key)
	if err == nil {
		reply(answer)
	}
	return err
}

// do does the command and returns the encoded answer.
func (p *post) do(text []byte, key string) ([]byte, error) {
	h := p.hub
	if key != "" {
		id := sendPrefix + key
		p.send = &id
	}
	p.cmd, p.bad = (&contracts.Decoder{Strict: h.opts.Strict, Unknown: h.unknownKey()}).Command(text)
	if _, ok := p.cmd.(*contracts.Prompt); ok {
		h.awaitStopped()
	}
	unfit := h.unfit(p.cmd)
	if p.bad == nil {
		p.bad = unfit
	}
	err := p.enter()
	defer p.leave()
	switch {
	case err != nil || p.known != nil:
	case isUtility(p.cmd):
		err = p.utility()
	case p.run != nil:
		p.await()
	}
	switch {
	case err != nil:
		return nil, h.refusedOr(err)
	case p.known != nil:
		return p.known, nil
	}
	return p.encode()
}

// enter decides about the command, once no other request with its key is under
// way.
func (p *post) enter() (err error) {
	for {
		p.hub.update(func(tx *tx) { err = p.decide(tx) })
		if p.earlier == nil {
			return err
		}
		<-p.earlier
		p.earlier = nil
	}
}

// leave lets those go on that wait for this request.
func (p *post) leave() {
	if p.doing {
		p.hub.update(func(*tx) { p.conn.sends.end(*p.send) })
	}
}

func (p *post) decide(tx *tx) error {
	h := p.hub
	if err := tx.life.refuse(opMessage); err != nil {
		return err
	}
	c, err := tx.speaker(p.by)
	if err != nil {
		return err
	}
	p.conn = c
	if p.send != nil {
		if p.earlier = c.sends.doing[*p.send]; p.earlier != nil {
			return nil
		}
		if answer, known := c.sends.get(*p.send); known {
			return p.repeat(tx, answer)
		}
	}
	if !h.info.Immediate { // the answer to others shows what the run did
		tx.hold = p.answered
	}
	err = p.admit(tx)
	tx.hold = nil
	if err != nil {
		if p.send != nil {
			h.keepRefusal(c, *p.send, err)
		}
		return err
	}
	if p.send != nil {
		c.sends.begin(*p.send)
		p.doing = true
	}
	return nil
}

// admit does the command, or lets the utilities do it afterwards.
func (p *post) admit(tx *tx) error {
	h, c := p.hub, p.conn
	if p.bad != nil {
		if err := tx.mayAct(c, p.cmd); err != nil { // whose message it is comes before what it says
			return err
		}
		return p.bad
	}
	tx.heard(c)
	p.before = tx.log.shown
	if isUtility(p.cmd) {
		return tx.mayUse(c, p.cmd, origin{send: p.send, trace: p.by.Trace})
	}
	if err := tx.decide(c, p.cmd, origin{send: p.send, trace: p.by.Trace}); err != nil {
		return err
	}
	if _, prompt := p.cmd.(*contracts.Prompt); prompt && h.info.Immediate {
		p.run = tx.work.run
	}
	p.settle(tx)
	return nil
}

// settlePatience is how long the answer to a prompt waits for an agent whose
// runs end at once.
const settlePatience = 250 * time.Millisecond

// await waits a moment for the run that the command began, and takes the answer
// anew.
func (p *post) await() {
	patience := time.NewTimer(settlePatience)
	defer patience.Stop()
	select {
	case <-p.run.done:
	case <-patience.C:
	}
	p.hub.update(func(tx *tx) { p.settle(tx) })
}

// answerStart takes the answer to the start of a command in the moment the
// command is there: it may have ended before anybody else looks (A66).
func (tx *tx) answerStart(id string) {
	if p := tx.clients.starting[id]; p != nil {
		p.take(tx)
	}
}

// take takes down what the answer says.
func (p *post) take(tx *tx) {
	p.shot = tx.shot()
	p.answer = contracts.MessageAnswer{
		OK: true, Success: true, Accepted: true, Cursor: tx.head(),
		Execution: execution(p.cmd), PublishedMessages: tx.log.shown - p.before, Message: "handled",
	}
}

// settle completes the answer, once the command has had its effects.
func (p *post) settle(tx *tx) {
	if p.shot.shared == nil || p.run != nil {
		p.take(tx)
	}
	if p.send != nil {
		tx.remember(p.conn, *p.send, nil)
	}
}

// utility serves a utility command, outside the lock.
func (p *post) utility() error {
	h := p.hub
	start, starts := p.cmd.(*contracts.UtilityCommandStart)
	if starts {
		h.update(func(tx *tx) { tx.clients.starting[start.CommandID] = p })
	}
	err := h.serveUtility(p.conn.id, p.cmd)
	h.update(func(tx *tx) {
		if starts {
			delete(tx.clients.starting, start.CommandID)
		}
		if err == nil {
			p.settle(tx)
		} else if p.send != nil {
			h.keepRefusal(p.conn, *p.send, err)
		}
	})
	return err
}

func (p *post) encode() ([]byte, error) {
	h := p.hub
	body, err := h.develop(p.shot)
	if err == nil {
		p.answer.Snapshot = body
		body, err = contracts.EncodeBody(&p.answer)
	}
	if err != nil {
		return nil, h.refusedOr(err)
	}
	if p.send != nil {
		h.update(func(*tx) { p.conn.sends.keepBody(*p.send, body) })
	}
	return body, nil
}

// repeat answers as the same request was answered. An answer that was too long
// to keep is made anew, with the state of now.
func (p *post) repeat(tx *tx, answer sent) error {
	switch {
	case answer.err != nil:
		return answer.err
	case answer.body != nil:
		p.known = answer.body
		return nil
	}
	text, err := contracts.EncodeSnapshot(tx.snapshot())
	if err != nil {
		return err
	}
	p.known, err = contracts.EncodeBody(&contracts.MessageAnswer{
		OK: true, Success: true, Accepted: true, Cursor: answer.cursor,
		Execution: execution(p.cmd), Message: "handled", Snapshot: text,
	})
	return err
}

// execution says whether a command is the agent's or the server's business.
func execution(cmd contracts.Command) string {
	if _, hello := cmd.(*contracts.Hello); hello {
		return "transport_only"
	}
	return "runtime_handled"
}

// speaker finds the connection that a message comes from. A viewer, or who says
// to be one, sends nothing, not even hello (A37 to A39).
func (tx *tx) speaker(by contracts.Caller) (*connection, error) {
	if by.Role == contracts.RoleViewer || by.Principal.Role == contracts.RoleViewer {
		return nil, errViewerSends
	}
	if sub := tx.clients.subs[by.SubscriptionID]; by.SubscriptionID != "" && (sub == nil || sub.conn.principal.ID != by.Principal.ID || by.ConnectionID == "") {
		if _, err := tx.ownedSubscription(by.SubscriptionID, by); err != nil {
			return nil, err
		}
	}
	c, _, err := tx.identify(by)
	if err != nil {
		return nil, err
	}
	if c.role == contracts.RoleViewer {
		return nil, errViewerSends
	}
	return c, nil
}

var errViewerSends = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Viewer headless connections cannot send messages"}

// mayUse admits a utility command.
func (tx *tx) mayUse(c *connection, cmd contracts.Command, from origin) error {
	if err := tx.mayAct(c, cmd); err != nil {
		return err
	}
	if op := handshake.Operation(cmd); op != "" && !slices.Contains(tx.operations(), op) {
		return tx.unprovided(cmd)
	}
	tx.claim(c)
	tx.opts.Observer.Accepted(cmd, from.trace, tx.now)
	return nil
}

// keepRefusal remembers a refusal under its key, unless it invites another try.
func (h *Hub) keepRefusal(c *connection, id string, err error) {
	if refusal := h.refusal(err); !refusal.Code.Retryable() {
		c.sends.put(id, sent{err: refusal})
	}
}

const (
	keptBody   = 64 << 10 // a longer answer is not kept
	keptBodies = 1 << 20  // of one connection
)

// keepBody keeps the answer to a request, so that it can be repeated.
func (m *sends) keepBody(id string, body []byte) {
	a, known := m.answers[id]
	if !known || len(body) > keptBody {
		return
	}
	a.body = bytes.Clone(body)
	m.answers[id] = a
	m.bytes += len(body)
	for _, old := range m.order {
		if m.bytes <= keptBodies {
			return
		}
		if a := m.answers[old]; a.body != nil && old != id {
			m.bytes -= len(a.body)
			a.body = nil
			m.answers[old] = a
		}
	}
}

// unknownKey returns what is told of the keys that one text has too many.
func (h *Hub) unknownKey() func(pointer string) {
	return func(pointer string) {
		h.metrics.UnknownKeys.Add(1)
		h.logger.Debug("unknown key ignored", "key", pointer)
	}
}

// origin is how a command came in.
type origin struct {
	send  *string // its ws.send id or idempotency key
	trace string  // W3C traceparent
}
