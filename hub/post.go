package hub

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// A post is a call over HTTP.
type post struct {
	call
	by contracts.Caller

	run    *run   // that the answer waits for
	before uint64 // events published before it
	shot   shot
	reply  contracts.MessageAnswer
	known  []byte // the answer to the same request, made earlier

	answered chan struct{} // closed when reply has returned, or will not be called
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
// The checks come in this order (1.12): session, readiness,
// connection, owner, role, lease, the message itself, capability, state.
func (h *Hub) Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error {
	p := &post{by: by, answered: make(chan struct{})}
	p.call = call{hub: h, from: p, trace: by.Trace, late: true}
	defer close(p.answered)
	answer, err := p.serve(text, key)
	if err == nil {
		reply(answer)
	}
	return err
}

// serve carries out the command and returns the encoded answer.
func (p *post) serve(text []byte, key string) ([]byte, error) {
	h := p.hub
	if key != "" {
		id := sendPrefix + key
		p.key = &id
	}
	p.cmd, p.bad = (&contracts.Decoder{Strict: h.opts.Strict, Unknown: h.unknownKey()}).Command(text)
	defer p.finish()
	switch err := p.do(); {
	case err != nil:
		return nil, h.refusedOr(err)
	case p.known != nil:
		return p.known, nil
	case p.run != nil:
		p.await()
	}
	return p.encode()
}

// begin implements [caller].
func (p *post) begin(tx *tx) {
	tx.heard(p.conn)
	p.before = tx.log.shown
	if !tx.info.Immediate { // the answer to others shows what the run did
		tx.hold = p.answered
	}
	if start, ok := p.cmd.(*contracts.UtilityCommandStart); ok && tx.clients.starting[start.CommandID] == nil {
		tx.clients.starting[start.CommandID] = p
	}
}

// answer implements [caller].
func (p *post) answer(tx *tx, refusal *contracts.Error) {
	if start, ok := p.cmd.(*contracts.UtilityCommandStart); ok && tx.clients.starting[start.CommandID] == p {
		delete(tx.clients.starting, start.CommandID)
	}
	if refusal != nil {
		return
	}
	if _, prompt := p.cmd.(*contracts.Prompt); prompt && tx.info.Immediate {
		p.run = tx.work.run
	}
	if p.shot.shared == nil {
		p.capture(tx)
	}
}

// settlePatience is how long the answer to a prompt waits for an agent whose
// runs end at once.
const settlePatience = 250 * time.Millisecond

// await waits up to settlePatience for the run that the command began, and
// captures the answer again.
func (p *post) await() {
	patience := time.NewTimer(settlePatience)
	defer patience.Stop()
	select {
	case <-p.run.done:
	case <-patience.C:
	}
	p.hub.update(func(tx *tx) {
		p.capture(tx)
		p.remember(tx, nil)
	})
}

// answerStart captures the answer when utility_command_started is published,
// because a short command may have ended by the time do returns (A66).
func (tx *tx) answerStart(id string) {
	if p := tx.clients.starting[id]; p != nil {
		p.capture(tx)
	}
}

// capture records the HTTP answer: the state, and what the command published.
func (p *post) capture(tx *tx) {
	p.shot = tx.shot()
	p.reply = contracts.MessageAnswer{
		OK: true, Success: true, Accepted: true, Cursor: tx.head(),
		Execution: execution(p.cmd), PublishedMessages: tx.log.shown - p.before, Message: "handled",
	}
}

func (p *post) encode() ([]byte, error) {
	h := p.hub
	body, err := h.develop(p.shot)
	if err == nil {
		p.reply.Snapshot = body
		body, err = contracts.EncodeBody(&p.reply)
	}
	if err != nil {
		return nil, h.refusedOr(err)
	}
	if p.key != nil {
		h.update(func(*tx) { p.conn.sends.keepBody(*p.key, body) })
	}
	return body, nil
}

// repeat implements [caller]. If the answer was too long to keep, the repeat gets
// it with the present state.
func (p *post) repeat(tx *tx, answer sent) error {
	if answer.err != nil {
		return answer.err
	}
	if p.known = answer.body; p.known == nil {
		p.capture(tx)
		p.reply.Cursor, p.reply.PublishedMessages = answer.cursor, 0
	}
	return nil
}

// execution says whether a command is the agent's or the server's business.
func execution(cmd contracts.Command) string {
	if _, hello := cmd.(*contracts.Hello); hello {
		return "transport_only"
	}
	return "runtime_handled"
}

// speaker implements [caller]. A viewer, or who says to be one, sends nothing, not
// even hello (A37 to A39).
func (p *post) speaker(tx *tx) (*connection, error) {
	by := p.by
	if err := tx.life.refuse(opMessage); err != nil {
		return nil, err
	}
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
func (tx *tx) mayUse(call *call) error {
	c, cmd := call.conn, call.cmd
	if err := tx.mayAct(c, cmd); err != nil {
		return err
	}
	if op := handshake.Operation(cmd); op != "" && !slices.Contains(tx.operations(), op) {
		return tx.unprovided(cmd)
	}
	tx.claim(c)
	tx.opts.Observer.Accepted(cmd, call.trace, tx.now)
	return nil
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
