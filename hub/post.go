package hub

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// An httpCall is a call over HTTP.
type httpCall struct {
	call
	by contracts.Caller

	run             *run   // the answer waits for the end of this run; nil if it does not wait
	publishedBefore uint64 // number of events published before the call
	snapshot        *sharedSnapshot
	reply           contracts.MessageAnswer
	savedBody       []byte // the answer of an earlier request with the same key

	replied chan struct{} // closed when reply has returned, or will not be called
}

// sendPrefix separates idempotency keys from the ids of ws.send.
const sendPrefix = "http "

// Post executes the command in text for the caller's connection and calls reply
// with the encoded answer. It does not wait for the agent. A request that repeats
// key gets the first answer and changes nothing (A72).
//
// A run that the command begins starts after reply has returned, so that no event
// of the run reaches a stream before the answer: a client that sets its state from
// the answer would otherwise miss the end of the run. A client that does not read
// the answer delays the run by at most replyTimeout.
//
// Post checks, in this order: the phase of the session, the role that the request
// names, the connection and its secret, the role of the connection, the lease, the
// text, the capability, and what the command itself demands.
func (h *Hub) Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error {
	p := &httpCall{by: by, replied: make(chan struct{})}
	p.call = call{hub: h, source: p, trace: by.Trace, answersLater: true}
	defer close(p.replied)
	answer, err := p.serve(text, key)
	if err == nil {
		reply(answer)
	}
	return err
}

// serve executes the command and returns the encoded answer.
func (p *httpCall) serve(text []byte, key string) ([]byte, error) {
	h := p.hub
	if key != "" {
		id := sendPrefix + key
		p.key = &id
	}
	p.cmd, p.invalid = (&contracts.Decoder{Strict: h.opts.Strict, Unknown: h.unknownKey()}).Command(text)
	defer p.finish()
	switch err := p.do(); {
	case err != nil:
		return nil, h.refusedOr(err)
	case p.savedBody != nil:
		return p.savedBody, nil
	case p.run != nil:
		p.awaitRun()
	}
	return p.encode()
}

// beforeExecute implements [callSource].
func (p *httpCall) beforeExecute(tx *tx) {
	tx.noteActivity(p.conn)
	p.publishedBefore = tx.log.published
	if !tx.info.Immediate { // with Immediate, the answer shows what the run did
		tx.startRunAfter = p.replied
	}
	if start, ok := p.cmd.(*contracts.UtilityCommandStart); ok && tx.clients.starting[start.CommandID] == nil {
		tx.clients.starting[start.CommandID] = p
	}
}

// answer implements [callSource].
func (p *httpCall) answer(tx *tx, refusal *contracts.Error) {
	if start, ok := p.cmd.(*contracts.UtilityCommandStart); ok && tx.clients.starting[start.CommandID] == p {
		delete(tx.clients.starting, start.CommandID)
	}
	if refusal != nil {
		return
	}
	if _, prompt := p.cmd.(*contracts.Prompt); prompt && tx.info.Immediate {
		p.run = tx.work.run
	}
	if p.snapshot == nil {
		p.capture(tx)
	}
}

// immediateRunTimeout is how long the answer to a prompt waits for the run of an
// agent with AgentInfo.Immediate.
const immediateRunTimeout = 250 * time.Millisecond

// awaitRun waits up to immediateRunTimeout for the run, and captures the answer
// again.
func (p *httpCall) awaitRun() {
	wait(immediateRunTimeout, p.run.done, nil)
	p.hub.update(func(tx *tx) {
		p.capture(tx)
		p.saveAnswer(tx, nil)
	})
}

// captureStart captures the HTTP answer when utility_command_started is published,
// because a short command may have exited by the time Do returns (A66).
func (tx *tx) captureStart(id string) {
	if p := tx.clients.starting[id]; p != nil {
		p.capture(tx)
	}
}

// capture records the answer: the state, and the number of events that the command
// published.
func (p *httpCall) capture(tx *tx) {
	p.snapshot = tx.pendingSnapshot()
	p.reply = contracts.MessageAnswer{
		OK: true, Success: true, Accepted: true, Cursor: tx.head(),
		Execution: execution(p.cmd), PublishedMessages: tx.log.published - p.publishedBefore, Message: "handled",
	}
}

func (p *httpCall) encode() ([]byte, error) {
	h := p.hub
	body, err := h.encodeSnapshot(p.snapshot)
	if err == nil {
		p.reply.Snapshot = body
		body, err = contracts.EncodeBody(&p.reply)
	}
	if err != nil {
		return nil, h.refusedOr(err)
	}
	if p.key != nil {
		h.update(func(*tx) { p.conn.sends.saveBody(*p.key, body) })
	}
	return body, nil
}

// repeat implements [callSource]. If the first answer was too long to save, the
// repeat gets the current state instead.
func (p *httpCall) repeat(tx *tx, answer savedAnswer) error {
	if answer.err != nil {
		return answer.err
	}
	if p.savedBody = answer.body; p.savedBody == nil {
		p.capture(tx)
		p.reply.Cursor, p.reply.PublishedMessages = answer.cursor, 0
	}
	return nil
}

// execution returns the execution member of the answer.
func execution(cmd contracts.Command) string {
	if _, hello := cmd.(*contracts.Hello); hello {
		return "transport_only"
	}
	return "runtime_handled"
}

// sender implements [callSource]. Viewers send nothing over HTTP, not even hello
// (A37 to A39).
func (p *httpCall) sender(tx *tx) (*connection, error) {
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
	c, err := tx.identify(by)
	if err != nil {
		return nil, err
	}
	if c.role == contracts.RoleViewer {
		return nil, errViewerSends
	}
	return c, nil
}

var errViewerSends = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Viewer headless connections cannot send messages"}

// admitUtility admits a utility command.
func (tx *tx) admitUtility(call *call) error {
	c, cmd := call.conn, call.cmd
	if err := tx.checkCommand(c, cmd); err != nil {
		return err
	}
	if op := handshake.Operation(cmd); op != "" && !slices.Contains(tx.operations(), op) {
		return tx.unsupported(cmd)
	}
	tx.claim(c)
	tx.opts.Observer.Accepted(cmd, call.trace, tx.now)
	return nil
}

// Limits of the answers saved for repeated requests.
const (
	maxSavedBody   = 64 << 10 // bytes; a longer answer is not saved
	maxSavedBodies = 1 << 20  // bytes for one connection; the oldest are dropped
)

// saveBody saves the answer to a request for repeats.
func (m *sends) saveBody(id string, body []byte) {
	a, known := m.answers[id]
	if !known || len(body) > maxSavedBody {
		return
	}
	a.body = bytes.Clone(body)
	m.answers[id] = a
	m.bytes += len(body)
	for _, old := range m.order {
		if m.bytes <= maxSavedBodies {
			return
		}
		if a := m.answers[old]; a.body != nil && old != id {
			m.bytes -= len(a.body)
			a.body = nil
			m.answers[old] = a
		}
	}
}

// unknownKey returns the function that a decoder calls for each unknown key.
func (h *Hub) unknownKey() func(pointer string) {
	return func(pointer string) {
		h.metrics.UnknownKeys.Add(1)
		h.logger.Debug("unknown key ignored", "key", pointer)
	}
}
