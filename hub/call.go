package hub

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// A call is one command from a socket or an HTTP request. One transaction admits
// and executes it. A utility command is executed after that transaction, and a
// second one answers it. A repeat with the same key gets the first answer, and waits
// for it if the first call is in progress (A72).
type call struct {
	hub          *Hub
	source       callSource
	cmd          contracts.Command
	invalid      error   // why the text is not a command, or why the agent cannot serve the prompt
	key          *string // the id of a ws.send, or the Idempotency-Key of a request; nil for others
	trace        string  // W3C traceparent, or empty
	answersLater bool    // the source completes the answer after do, and then calls finish

	prompt      encoded       // encoded before the transaction, because a prompt may be long
	conn        *connection   // the sender
	inProgress  chan struct{} // an earlier call with the same key; closed when it has its answer
	runsUtility bool          // an admitted utility command: do executes it without the lock
	pending     bool          // repeats with the same key wait for finish
	err         error         // the refusal
}

// A callSource is the socket frame or HTTP request of a call. It receives the
// answer.
type callSource interface {
	// sender returns the connection that the call is from. It returns nil if the
	// call is ignored, or refused with the error.
	sender(tx *tx) (*connection, error)

	// beforeExecute is called before a valid command is executed.
	beforeExecute(tx *tx)

	// answer is called after the command was executed or refused.
	answer(tx *tx, refusal *contracts.Error)

	// repeat sends the answer of an earlier call with the same key. It returns the
	// refusal if the earlier call was refused.
	repeat(tx *tx, answer savedAnswer) error
}

// do executes the call and returns its refusal.
func (c *call) do() error {
	h := c.hub
	if prompt, ok := c.cmd.(*contracts.Prompt); ok {
		c.prompt = encode(nil, rawEvent("message_start", map[string]any{
			"message": map[string]any{"role": "user", "content": prompt.Content},
		}))
		h.awaitStopped()
	}
	if c.invalid == nil {
		c.invalid = h.checkPrompt(c.cmd)
	}
	for h.update(c.decide); c.inProgress != nil; h.update(c.decide) {
		<-c.inProgress // at most utilityTimeout
	}
	if c.runsUtility {
		err := h.serveUtility(c.conn.id, c.cmd)
		h.update(func(tx *tx) { c.conclude(tx, err) })
	}
	return c.err
}

// decide runs in a transaction. It answers a repeat, or admits the call.
func (c *call) decide(tx *tx) {
	c.inProgress = nil
	if c.conn, c.err = c.source.sender(tx); c.conn == nil {
		return
	}
	sends := &c.conn.sends
	if c.key != nil {
		if c.inProgress = sends.inProgress[*c.key]; c.inProgress != nil {
			return
		}
		if answer, known := sends.get(*c.key); known {
			c.err = c.source.repeat(tx, answer)
			return
		}
	}
	err := c.admit(tx)
	if c.runsUtility = err == nil && isUtility(c.cmd); !c.runsUtility {
		c.conclude(tx, err)
	}
	if err == nil && c.key != nil && (c.runsUtility || c.answersLater) {
		sends.begin(*c.key)
		c.pending = true
	}
}

// admit checks and executes the command. It only checks a utility command, which do
// executes.
func (c *call) admit(tx *tx) error {
	if c.invalid != nil {
		if err := tx.checkCommand(c.conn, c.cmd); err != nil { // the sender's rights are checked before the command's text
			return err
		}
		return c.invalid
	}
	c.source.beforeExecute(tx)
	if isUtility(c.cmd) {
		return tx.admitUtility(c)
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
	c.source.answer(tx, refusal)
}

// saveAnswer saves the answer for repeats. It does not save a retryable refusal, so
// that a repeat is tried again.
func (c *call) saveAnswer(tx *tx, refusal *contracts.Error) {
	if c.key == nil || refusal != nil && refusal.Code.Retryable() {
		return
	}
	answer := savedAnswer{cursor: tx.head(), err: refusal}
	c.conn.sends.put(*c.key, answer)
	tx.noteAnswer(answer.cursor)
}

// finish releases the repeats that wait for the call's answer.
func (c *call) finish() {
	if c.pending {
		c.hub.update(func(*tx) { c.conn.sends.end(*c.key) })
	}
}

// A frameCall is a call from a socket.
type frameCall struct {
	*reader
	id *string // of a ws.send; nil for a bare message
}

// command executes one command. id is that of a ws.send, nil for a bare message.
func (r *reader) command(id *string, cmd contracts.Command) {
	c := &call{hub: r.hub, source: frameCall{r, id}, cmd: cmd, key: id}
	defer c.finish()
	_ = c.do() // answer has sent the refusal
}

// sender implements [callSource].
func (f frameCall) sender(tx *tx) (*connection, error) {
	if f.isSuperseded(tx) {
		return nil, nil
	}
	tx.clients.touchLease(f.conn)
	return f.conn, nil
}

// beforeExecute implements [callSource].
func (f frameCall) beforeExecute(*tx) {}

// answer implements [callSource].
func (f frameCall) answer(tx *tx, refusal *contracts.Error) { f.reader.answer(tx, f.id, refusal) }

// repeat implements [callSource].
func (f frameCall) repeat(tx *tx, answer savedAnswer) error {
	if answer.err != nil {
		f.answer(tx, answer.err)
	} else {
		f.result(tx, f.id, answer.cursor)
	}
	return nil
}

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

// noteCommand writes an accepted command to the journal and folds it into the
// state, so that the change survives the process.
func (tx *tx) noteCommand(cmd contracts.Command, n note) {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		tx.logger.Error("encode command", "type", cmd.CommandType(), "err", err)
		return
	}
	n.Command = text
	tx.note(n)
	tx.log.events.ApplyCommand(cmd)
}

// noteAnswer adds the answer's cursor to the transaction's note of a ws.send. The
// cursor is known only after the command has published its events.
func (tx *tx) noteAnswer(cursor uint64) {
	if tx.unansweredSend == nil {
		return
	}
	tx.unansweredSend.Answer = cursor
	tx.out[tx.unansweredIndex].Body = encodeNote(*tx.unansweredSend)
	tx.unansweredSend = nil
}
