package hub

import "github.com/seed-028515a8/maestro/contracts"

// A call is one command on its way in, from a socket or over HTTP. It is admitted
// and carried out in one transaction; a utility command is carried out after that. A
// call that is repeated with the same key gets the answer of the first, and waits
// for it if it is under way (A72).
type call struct {
	hub   *Hub
	from  caller
	cmd   contracts.Command
	bad   error   // why the text is no command, or none that the agent can serve
	key   *string // the id of a ws.send, or the Idempotency-Key of a request; nil for others
	trace string  // W3C traceparent, or empty
	late  bool    // the caller completes the answer after do, and then calls finish

	prompt  encoded       // what is published of a prompt, which may be long
	conn    *connection   // that the call is from
	earlier chan struct{} // of the same call, which is under way: closed when it has its answer
	outside bool          // an admitted utility command: do carries it out without the lock
	open    bool          // repeats with the same key wait for finish
	err     error         // the refusal
}

// A caller is where a call comes from, and where its answer goes.
type caller interface {
	// speaker returns the connection that the call is from. It is nil if the caller
	// gets no answer, or an error alone.
	speaker(tx *tx) (*connection, error)

	// begin is called before a command is carried out.
	begin(tx *tx)

	// answer is called once the command has had its effects, or was refused.
	answer(tx *tx, refusal *contracts.Error)

	// repeat gives the caller the answer to an earlier call. It returns the refusal
	// if the earlier call was refused.
	repeat(tx *tx, answer sent) error
}

// do carries out the call and returns its refusal.
func (c *call) do() error {
	h := c.hub
	if prompt, ok := c.cmd.(*contracts.Prompt); ok {
		c.prompt = encode(nil, rawEvent("message_start", map[string]any{
			"message": map[string]any{"role": "user", "content": prompt.Content},
		}))
		h.awaitStopped()
	}
	if c.bad == nil {
		c.bad = h.unfit(c.cmd)
	}
	for h.update(c.decide); c.earlier != nil; h.update(c.decide) {
		<-c.earlier // utilityPatience at the most
	}
	if c.outside {
		err := h.serveUtility(c.conn.id, c.cmd)
		h.update(func(tx *tx) { c.conclude(tx, err) })
	}
	return c.err
}

func (c *call) decide(tx *tx) {
	c.earlier = nil
	if c.conn, c.err = c.from.speaker(tx); c.conn == nil {
		return
	}
	sends := &c.conn.sends
	if c.key != nil {
		if c.earlier = sends.doing[*c.key]; c.earlier != nil {
			return
		}
		if answer, known := sends.get(*c.key); known {
			c.err = c.from.repeat(tx, answer)
			return
		}
	}
	err := c.admit(tx)
	if c.outside = err == nil && isUtility(c.cmd); !c.outside {
		c.conclude(tx, err)
	}
	if err == nil && c.key != nil && (c.outside || c.late) {
		sends.begin(*c.key)
		c.open = true
	}
}

// admit carries out the command, or lets the utilities do it afterwards.
func (c *call) admit(tx *tx) error {
	if c.bad != nil {
		if err := tx.mayAct(c.conn, c.cmd); err != nil { // whose command it is comes before what it says
			return err
		}
		return c.bad
	}
	c.from.begin(tx)
	if isUtility(c.cmd) {
		return tx.mayUse(c)
	}
	return tx.execute(c)
}

// conclude keeps the answer for repeats and answers the caller.
func (c *call) conclude(tx *tx, err error) {
	refusal := c.hub.refusal(err)
	if refusal != nil {
		c.err = refusal
	}
	c.remember(tx, refusal)
	c.from.answer(tx, refusal)
}

// remember keeps the answer for repeats. It does not keep a retryable refusal, so
// that a repeat is tried anew.
func (c *call) remember(tx *tx, refusal *contracts.Error) {
	if c.key == nil || refusal != nil && refusal.Code.Retryable() {
		return
	}
	answer := sent{cursor: tx.head(), err: refusal}
	c.conn.sends.put(*c.key, answer)
	tx.keepAnswer(answer.cursor)
}

// finish releases repeats of the call that wait for its answer.
func (c *call) finish() {
	if c.open {
		c.hub.update(func(*tx) { c.conn.sends.end(*c.key) })
	}
}

// A frame is a call from a socket.
type frame struct {
	*reader
	id *string // of a ws.send, nil for a bare message
}

// command takes one command of a client. id is that of a ws.send, nil for a bare
// message.
func (r *reader) command(id *string, cmd contracts.Command) {
	c := &call{hub: r.hub, from: frame{r, id}, cmd: cmd, key: id}
	defer c.finish()
	_ = c.do() // the client has been told
}

// speaker implements [caller].
func (f frame) speaker(tx *tx) (*connection, error) {
	if f.superseded(tx) {
		return nil, nil
	}
	tx.clients.touch(f.conn)
	return f.conn, nil
}

// begin implements [caller].
func (f frame) begin(*tx) {}

// answer implements [caller].
func (f frame) answer(tx *tx, refusal *contracts.Error) { f.reader.answer(tx, f.id, refusal) }

// repeat implements [caller].
func (f frame) repeat(tx *tx, answer sent) error {
	if answer.err != nil {
		f.answer(tx, answer.err)
	} else {
		f.result(tx, f.id, answer.cursor)
	}
	return nil
}
