package hub

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A call is one command from a socket or an HTTP request. One transaction admits
// and executes it. A utility command is executed after that transaction, and a
// second one answers it. A repeat with the same key gets the first answer, and waits
// for it if the first call is in progress (A72).
type call struct {
	hub     *Hub
	source  callSource
	http    *httpCall // the source; nil for a socket
	cmd     contracts.Command
	invalid error   // why the text is not a command, or why the agent cannot serve the prompt
	key     *string // the id of a ws.send, or the Idempotency-Key of a request; nil for others
	trace   string  // W3C traceparent, or empty

	prompt      encoded       // encoded before the transaction, because a prompt may be long
	conn        *connection   // the sender
	earlier     chan struct{} // closed when an earlier call with the same key has its answer; nil: there is none
	runsUtility bool          // an admitted utility command: do executes it without the lock
	saved       *savedAnswer  // what repeats with the same key get, and wait for; nil if they do not wait
	err         error         // the refusal
}

// A callSource is the socket frame or HTTP request of a call. It receives the
// answer.
type callSource interface {
	// sender returns the connection that the call is from. It returns nil if the
	// call is ignored, or refused with the error.
	sender(tx *tx) (*connection, error)

	// answer is called after the command was executed or refused. key is that of
	// the call.
	answer(tx *tx, key *string, refusal *contracts.Error)

	// repeat sends the answer of an earlier call with the same key. It returns the
	// refusal if the earlier call was refused.
	repeat(tx *tx, key *string, answer *savedAnswer) error
}

// do executes the call and returns its refusal. The caller calls finish when the
// sender has its answer.
func (c *call) do() error {
	h := c.hub
	if prompt, ok := c.cmd.(*contracts.Prompt); ok {
		c.prompt = encodePrompt(prompt.Content)
		h.awaitStopped()
		if checker, can := h.opts.Agent.(Checker); can && c.invalid == nil {
			c.invalid = checker.Check(prompt.Content)
		}
	}
	if edit, ok := c.cmd.(*contracts.QueueEdit); ok {
		if checker, can := h.opts.Agent.(Checker); can && c.invalid == nil {
			c.invalid = checker.Check(edit.Content)
		}
	}
	for h.update(c.decide); c.earlier != nil; h.update(c.decide) {
		<-c.earlier // at most utilityTimeout
	}
	if c.runsUtility {
		err := h.serveUtility(c.conn.id, c.cmd)
		h.update(func(tx *tx) { c.conclude(tx, err) })
	}
	return c.err
}

// stopTimeout is how long a prompt that follows an interrupt waits for the old run
// to end before it is refused.
const stopTimeout = 5 * time.Second

// awaitStopped waits up to stopTimeout for a run that is being stopped.
func (h *Hub) awaitStopped() {
	h.mu.Lock()
	r := h.state.work.run
	stopping := r != nil && r.stop != nil
	h.mu.Unlock()
	if stopping {
		wait(stopTimeout, r.done, nil)
	}
}

// decide runs in a transaction. It answers a repeat, or admits the call.
func (c *call) decide(tx *tx) {
	c.earlier = nil
	if c.conn, c.err = c.source.sender(tx); c.conn == nil {
		return
	}
	if c.key != nil {
		switch answer := c.conn.sends.answers[*c.key]; {
		case answer == nil:
		case answer.pending != nil:
			c.earlier = answer.pending
			return
		default:
			c.err = c.source.repeat(tx, c.key, answer)
			return
		}
	}
	err := c.admit(tx)
	c.runsUtility = err == nil && isUtility(c.cmd)
	if err == nil && c.key != nil && (c.runsUtility || c.http != nil) {
		c.saved = c.conn.sends.begin(*c.key)
	}
	if !c.runsUtility {
		c.conclude(tx, err)
	}
}

// fromApprover reports whether the sender may only answer questions: by the role of
// its connection, its credential, or the header of the request.
func (c *call) fromApprover() bool {
	by := contracts.Caller{}
	if c.http != nil {
		by = c.http.by
	}
	return slices.Contains([]contracts.Role{c.conn.role, by.Role, by.Principal.Role}, contracts.RoleApprover)
}

// admit checks and executes the command. It only checks a utility command, which do
// executes.
func (c *call) admit(tx *tx) error {
	if c.invalid != nil {
		if err := tx.checkCommand(c); err != nil { // the sender's rights are checked before the command's text
			return err
		}
		return c.invalid
	}
	if c.http != nil {
		c.http.beforeExecute(tx)
	}
	return tx.execute(c)
}

// conclude saves the answer for repeats and answers the source.
func (c *call) conclude(tx *tx, err error) {
	refusal := c.hub.refusal(err)
	if refusal != nil {
		c.err = refusal
	}
	c.saveAnswer(tx, refusal)
	c.source.answer(tx, c.key, refusal)
}

// saveAnswer saves the answer for repeats. It does not save a retryable refusal, so
// that a repeat is tried again.
func (c *call) saveAnswer(tx *tx, refusal *contracts.Error) {
	if c.key == nil || refusal != nil && refusal.Code.Retryable() {
		return
	}
	c.conn.sends.put(*c.key, tx.head(), refusal)
	tx.noteAnswer(tx.head())
}

// finish releases the repeats that wait for the call's answer.
func (c *call) finish() {
	if c.saved != nil {
		c.hub.update(func(*tx) { c.conn.sends.end(*c.key, c.saved) })
	}
}

// sends holds the answers to recent ws.send frames and keyed requests, so that a
// client that lost an answer can repeat the frame without a second execution (A72).
type sends struct {
	answers map[string]*savedAnswer // also of calls in progress
	order   []string                // those with an answer, oldest first; at most maxSends
}

type savedAnswer struct {
	pending  chan struct{} // closed by end; nil if the call is not in progress
	answered bool          // the fields below are set
	cursor   uint64
	err      *contracts.Error
	body     []byte // encoded answer of an HTTP request; nil if it was not saved
}

// Limits of the answers saved for repeats.
const (
	maxSends       = 1024
	maxSavedBody   = 64 << 10 // bytes; a longer answer is not saved
	maxSavedBodies = 1 << 20  // bytes for one connection; the oldest are dropped
)

// entry returns the answer of a call, which may be new.
func (m *sends) entry(id string) *savedAnswer {
	if m.answers == nil {
		m.answers = map[string]*savedAnswer{}
	}
	if m.answers[id] == nil {
		m.answers[id] = &savedAnswer{}
	}
	return m.answers[id]
}

// begin marks a call as in progress until end.
func (m *sends) begin(id string) *savedAnswer {
	a := m.entry(id)
	a.pending = make(chan struct{})
	return a
}

func (m *sends) end(id string, a *savedAnswer) {
	close(a.pending)
	if a.pending = nil; !a.answered && m.answers[id] == a {
		delete(m.answers, id)
	}
}

func (m *sends) put(id string, cursor uint64, err *contracts.Error) {
	a := m.entry(id)
	if !a.answered {
		m.order = append(m.order, id)
	}
	a.answered, a.cursor, a.err, a.body = true, cursor, err, nil
	if len(m.order) > maxSends {
		delete(m.answers, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
}

// saveBody saves the encoded answer to a request.
func (m *sends) saveBody(id string, body []byte) {
	saved := m.answers[id]
	if saved == nil || len(body) > maxSavedBody {
		return
	}
	saved.body = bytes.Clone(body)
	size := len(body)
	for _, other := range slices.Backward(m.order) {
		if a := m.answers[other]; a != saved {
			if size += len(a.body); size > maxSavedBodies {
				a.body = nil
			}
		}
	}
}

// accepted lists the answers that are not refusals, oldest first. A refused frame
// changed nothing, so a client may repeat it after a restart.
func (m *sends) accepted() (list []savedSend) {
	for _, id := range m.order {
		if a := m.answers[id]; a.err == nil {
			list = append(list, savedSend{ID: id, Cursor: a.cursor})
		}
	}
	return list
}

// command executes one command. id is that of a ws.send, nil for a bare message.
func (r *reader) command(id *string, cmd contracts.Command) {
	c := &call{hub: r.hub, source: r, cmd: cmd, key: id}
	defer c.finish()
	_ = c.do() // answer has sent the refusal
	if _, hello := cmd.(*contracts.Hello); hello {
		r.slowDown(contracts.HelloFrames) // a change is published to all clients
	}
}

// sender implements [callSource].
func (r *reader) sender(tx *tx) (*connection, error) {
	if r.isSuperseded(tx) {
		return nil, nil
	}
	return r.conn, nil
}

// repeat implements [callSource].
func (r *reader) repeat(tx *tx, id *string, answer *savedAnswer) error {
	if answer.err != nil {
		r.answer(tx, id, answer.err)
	} else {
		r.result(tx, id, answer.cursor)
	}
	return nil
}

// answer implements [callSource]. It sends the result or refusal of the current frame. Every command, and every
// frame about the lease, gets exactly one, in the order of the frames and after the
// events that it caused (A116).
func (r *reader) answer(tx *tx, id *string, refusal *contracts.Error) {
	if refusal == nil {
		r.result(tx, id, tx.head())
		return
	}
	r.hub.noteRefusal(refusal, r.conn.id)
	if r.conn.bare {
		tx.pushEvent(r.box, tx.head(), refusal.Event())
		return
	}
	tx.pushFrame(r.box, contracts.NewRefusal(id, r.seq, refusal))
	if refusal.Code == contracts.CodeAccessDenied && r.conn.role != contracts.RoleController && r.conn.countDenial(tx.now) {
		tx.closeMailbox(r.box, refusal)
	}
}

func (r *reader) result(tx *tx, id *string, cursor uint64) {
	if !r.conn.bare {
		tx.pushFrame(r.box, &contracts.Result{ID: id, Seq: r.seq, Cursor: cursor})
	}
}

func (r *reader) refuse(id *string, err error) {
	r.hub.update(func(tx *tx) { r.answer(tx, id, r.hub.refusal(err)) })
}

// An httpCall is a call over HTTP.
type httpCall struct {
	call
	by contracts.Caller

	run             *run   // the answer waits for the end of this run; nil if it does not wait
	publishedBefore uint64 // number of events published before the call
	snapshot        *sharedSnapshot
	people          bool // the answer's snapshot has people
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
	p.call = call{hub: h, source: p, http: p, trace: by.Trace}
	if key != "" {
		p.key = new(sendPrefix + key)
	}
	p.cmd, p.invalid = h.newDecoder().Command(text)
	defer close(p.replied)
	answer, err := p.serve()
	if err == nil {
		reply(answer)
	}
	return h.refusedOr(err)
}

func (p *httpCall) serve() ([]byte, error) {
	defer p.finish()
	switch err := p.do(); {
	case err != nil:
		return nil, err
	case p.savedBody != nil:
		return p.savedBody, nil
	case p.run != nil:
		wait(immediateRunTimeout, p.run.done, nil)
		p.hub.update(func(tx *tx) {
			p.capture(tx)
			p.saveAnswer(tx, nil)
		})
	}
	body, err := p.hub.encodeSnapshot(p.snapshot, p.people)
	if err == nil {
		p.reply.Snapshot = body
		body, err = contracts.EncodeBody(&p.reply)
	}
	if err == nil && p.key != nil {
		p.hub.update(func(*tx) { p.conn.sends.saveBody(*p.key, body) })
	}
	return body, err
}

// immediateRunTimeout is how long the answer to a prompt waits for the run of an
// agent with AgentInfo.Immediate.
const immediateRunTimeout = 250 * time.Millisecond

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

var (
	errViewerSends = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Viewer headless connections cannot send messages"}
)

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
func (p *httpCall) answer(tx *tx, _ *string, refusal *contracts.Error) {
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

// repeat implements [callSource]. If the first answer was too long to save, the
// repeat gets the current state instead.
func (p *httpCall) repeat(tx *tx, _ *string, answer *savedAnswer) error {
	if answer.err != nil {
		return answer.err
	}
	if p.savedBody = answer.body; p.savedBody == nil {
		p.capture(tx)
		p.reply.Cursor, p.reply.PublishedMessages = answer.cursor, 0
	}
	return nil
}

// capture records the answer: the state, and the number of events that the command
// published.
func (p *httpCall) capture(tx *tx) {
	execution := "runtime_handled"
	if _, hello := p.cmd.(*contracts.Hello); hello {
		execution = "transport_only"
	}
	p.snapshot, p.people = tx.pendingSnapshot(), p.conn.terms.People()
	p.reply = contracts.MessageAnswer{
		OK: true, Success: true, Accepted: true, Cursor: tx.head(),
		Execution: execution, PublishedMessages: tx.log.published - p.publishedBefore, Message: "handled",
	}
}

// refusedOr returns nil for nil. It counts a refusal and converts it to an error
// that a client may see.
func (h *Hub) refusedOr(err error) error {
	if err == nil {
		return nil
	}
	refusal := h.refusal(err)
	h.noteRefusal(refusal, "")
	return refusal
}

// noteRefusal counts and logs a refusal. connection may be empty.
func (h *Hub) noteRefusal(refusal *contracts.Error, connection string) {
	h.opts.Observer.Refused(refusal.Code)
	h.logger.Debug("command refused", "code", refusal.Code, "message", refusal.Message, "connection", connection)
}

// refusal converts an error to one that a client may see, and nil to nil. Other
// errors are logged and become "internal error".
func (h *Hub) refusal(err error) *contracts.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*contracts.Error](err); ok {
		return e
	}
	h.logger.Error("internal error", "err", err)
	return &contracts.Error{Code: contracts.CodeInternal, Message: "internal error"}
}
