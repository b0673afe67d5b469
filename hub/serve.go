package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

var (
	errEnded   = errors.New("the session has ended")
	goingAway  = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}
	superseded = &contracts.Error{Code: contracts.CodeSuperseded, Message: "a newer connection took this one's place"}
)

// Serve speaks the protocol on conn until the peer leaves, ctx ends or the hub
// closes it. It owns conn: it reads in the caller's goroutine and writes in at
// most one other, which has ended when Serve returns.
//
// A panic in what serves conn, or in conn itself, ends this connection alone. att
// is not changed; it is a pointer because a copy of it on the stack of every idle
// connection would double that.
func (h *Hub) Serve(ctx context.Context, conn Conn, wire Wire, att *contracts.Attach) (err error) {
	defer h.contain(conn, &err)
	unhook := context.AfterFunc(ctx, func() { conn.Close(goingAway) })
	defer unhook()
	if wire == WireBare {
		return h.serveBare(conn, att)
	}
	return h.serveEnvelope(conn, att)
}

// contain, deferred, turns a panic in what serves conn into an error, and closes
// conn: the other clients of the session must not pay for it.
func (h *Hub) contain(conn Conn, err *error) {
	p := recover()
	if p == nil {
		return
	}
	h.logger.Error("connection panicked", "panic", p, "stack", string(debug.Stack()))
	why := &contracts.Error{Code: contracts.CodeInternal, Message: "internal error"}
	*err = why
	conn.Close(why)
}

// A reader is the reading side of one socket.
type reader struct {
	hub     *Hub
	conn    *connection
	box     *mailbox
	decoder *contracts.Decoder
	seq     uint64 // frames read, those of the handshake included
	keep    bool   // what the client said about coming back, or true
	left    bool   // the client said goodbye

	pace *rate.Limiter // of a viewer's frames; nil for controllers
}

// slowDown waits until a viewer may send more, after it sent n frames. The end
// of the connection or of the session ends the wait.
func (r *reader) slowDown(n int) {
	if r.pace == nil {
		return
	}
	wait := r.pace.ReserveN(time.Now(), n).Delay()
	if wait <= 0 {
		return
	}
	pause := time.NewTimer(wait)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.box.parted:
	case <-r.hub.done:
	}
}

func (h *Hub) newReader() *reader {
	r := &reader{hub: h, keep: true, decoder: &contracts.Decoder{Strict: h.opts.Strict}}
	named := map[string]bool{}
	r.decoder.Unknown = func(pointer string) {
		h.metrics.UnknownKeys.Add(1)
		if len(named) < 32 && !named[pointer] { // once per key; a hostile client cannot fill the log
			named[pointer] = true
			h.logger.Debug("unknown key ignored", "key", pointer)
		}
	}
	return r
}

func (h *Hub) serveEnvelope(conn Conn, att *contracts.Attach) error {
	r := h.newReader()
	if err := r.enter(conn, att); err != nil {
		h.turnAway(conn, r.seq, err)
		return err
	}
	defer func() { h.detach(r.box, r.keep) }()
	if err := r.read(r.frame); err != nil || !r.left {
		return err
	}
	select {
	case <-r.box.parted: // its goodbye has been written, or cannot be
	case <-h.done:
	}
	return nil
}

// enter does the handshake on a stack of its own. The handshake needs a deep
// one and a reader that waits a shallow one, but a stack that has grown does not
// shrink below four times what is in use: that would be most of the memory of an
// idle viewer.
func (r *reader) enter(conn Conn, att *contracts.Attach) (err error) {
	done := make(chan struct{}) // closed when the handshake has ended
	go func() {                 // ends within Options.HandshakeTimeout
		defer close(done)
		defer r.hub.contain(conn, &err)
		err = r.welcome(conn, *att)
	}()
	<-done
	return err
}

// read hands every frame to handle until the socket ends. A panic is contained
// here, before the connection is detached: that waits for its writer, which only
// the closed socket lets go.
func (r *reader) read(handle func(text []byte)) (err error) {
	defer r.hub.contain(r.box.conn, &err)
	for !r.left {
		text, err := r.box.conn.ReadFrame()
		refusal, ok := errors.AsType[*contracts.Error](err)
		switch {
		case ok:
			r.seq++
			r.refuse(nil, refusal)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		default:
			r.seq++
			handle(text)
			r.slowDown(1)
		}
	}
	return nil
}

// turnAway ends a connection that never attached.
func (h *Hub) turnAway(conn Conn, seq uint64, err error) {
	why, ok := errors.AsType[*contracts.Error](err)
	if ok {
		h.refused(why.Code)
		var out []byte
		for _, frame := range []contracts.Frame{refusalFrame(nil, seq, why), farewell(why, 0)} {
			if text, err := contracts.EncodeFrame(frame); err == nil {
				out = conn.Form().AppendControl(out, text)
			}
		}
		_ = conn.Write(out) // the socket is closed next; whether they arrived is not ours to know
	}
	conn.Close(why)
}

// refusalFrame is the answer to the seq-th frame of a socket, which was refused.
func refusalFrame(id *string, seq uint64, why *contracts.Error) *contracts.Refusal {
	return &contracts.Refusal{
		ID: id, Seq: seq, Message: why.Message, Code: why.Code, ErrorType: why.Code,
		Retryable: why.Code.Retryable(), Details: why.Details(),
	}
}

// When the process ends, the first returnAtOnce clients are told to come back
// after a second, and the others after them, returnRate in a second: the next
// process lets in no more with the default limits.
const (
	returnAtOnce = 1000
	returnRate   = 500
)

// farewell is the last frame of a connection. turn is how many are told to come
// back before it.
func farewell(why *contracts.Error, turn int) *contracts.Goodbye {
	if why == nil {
		return &contracts.Goodbye{Code: 1000, Reason: "normal"}
	}
	bye := &contracts.Goodbye{Code: int64(why.Code.CloseCode()), Reason: string(why.Code), Resume: why.Code.Retryable()}
	if bye.Resume {
		bye.RetryAfterMS = 1000 + int64(max(0, turn-returnAtOnce+1)*1000/returnRate)
	}
	return bye
}

// part ends a connection in order: what it has not read yet, a goodbye, the
// close. A nil reason is a normal end.
func (tx *tx) part(b *mailbox, why *contracts.Error) {
	if b == nil {
		return
	}
	p := parcel{at: tx.head(), part: true, why: why}
	turn := 0
	if why == goingAway {
		turn = tx.clients.sentAway
		tx.clients.sentAway++
	}
	if text, err := contracts.EncodeFrame(farewell(why, turn)); err == nil && !b.bare {
		p.frame = b.form.AppendControl(nil, text)
	}
	tx.push(b, p)
}

// welcome is the handshake: hello first, perhaps after a claim to an earlier
// connection, within the time allowed (A113).
func (r *reader) welcome(conn Conn, att contracts.Attach) error {
	late := time.AfterFunc(r.hub.opts.HandshakeTimeout, func() {
		conn.Close(&contracts.Error{Code: contracts.CodeTimeout, Message: "no hello within the time allowed"})
	})
	defer late.Stop()
	frame, err := r.first(conn)
	if err != nil {
		return err
	}
	token := ""
	if resume, ok := frame.(*contracts.Resume); ok {
		token = resume.ConnectionToken
		if frame, err = r.first(conn); err != nil {
			return err
		}
	}
	hello, ok := helloIn(frame)
	if !ok {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "the first frame must be hello"}
	}
	r.conn, r.box, err = r.hub.attach(conn, att, hello, token)
	if err == nil && r.box.viewer {
		r.pace = rate.NewLimiter(contracts.MaxViewerFrames, contracts.ViewerFrameBurst)
	}
	return err
}

// first reads a frame of the handshake.
func (r *reader) first(conn Conn) (contracts.Frame, error) {
	r.seq++
	text, err := conn.ReadFrame()
	if err != nil {
		return nil, err
	}
	return r.decoder.ClientFrame(text)
}

func helloIn(frame contracts.Frame) (*contracts.Hello, bool) {
	m, ok := frame.(*contracts.Message)
	if !ok {
		return nil, false
	}
	hello, ok := m.Command.(*contracts.Hello)
	return hello, ok
}

// frame handles one frame of a networked client.
func (r *reader) frame(text []byte) {
	frame, err := r.decoder.ClientFrame(text)
	if err != nil {
		r.undecodable(text, err)
		return
	}
	switch f := frame.(type) {
	case *contracts.Message:
		r.command(nil, f.Command)
		if _, hello := f.Command.(*contracts.Hello); hello {
			r.slowDown(contracts.HelloFrames) // a change is announced to everybody
		}
	case *contracts.Send:
		cmd, err := r.decoder.Command(f.Message)
		if err != nil {
			r.refuse(&f.ID, err)
			return
		}
		r.command(&f.ID, cmd)
		if _, hello := cmd.(*contracts.Hello); hello {
			r.slowDown(contracts.HelloFrames) // a change is announced to everybody
		}
	case *contracts.Resume:
		r.refuse(nil, &contracts.Error{Code: contracts.CodeBadRequest, Message: "ws.resume is only for the first frame"})
	case *contracts.Ack:
		r.hub.metrics.Acks.Add(1)
	case *contracts.Bye:
		r.keep, r.left = f.Keep, true
		r.hub.update(func(tx *tx) { tx.part(r.box, nil) })
	case *contracts.Ping:
		r.pong(f)
	default:
		id, _ := steering(frame) // there are no others
		r.control(id, frame)
	}
}

// undecodable answers a frame that is not one. What is not JSON, or a control
// frame nobody knows, means that the peer is lost: it is closed (4400).
func (r *reader) undecodable(text []byte, err error) {
	stranger := errors.Is(err, contracts.ErrUnknownType) && strings.HasPrefix(typeOf(text), "ws.")
	if stranger || errors.Is(err, contracts.ErrMalformed) {
		why := &contracts.Error{Code: contracts.CodeBadRequest, Message: err.Error()}
		r.hub.update(func(tx *tx) { tx.part(r.box, why) })
		return
	}
	r.refuse(nil, err)
}

// superseded reports whether a newer socket has taken this one's place: what
// this one still sends counts for nothing.
func (r *reader) superseded(*tx) bool { return r.box.sub.box != r.box }

// typeOf returns the type of a text that no decoder knows, or "".
func typeOf(text []byte) string {
	var head struct{ Type string }
	if json.Unmarshal(text, &head) != nil {
		return ""
	}
	return head.Type
}

func (r *reader) refuse(id *string, err error) {
	r.hub.update(func(tx *tx) { r.answer(tx, id, r.hub.refusal(err)) })
}

func (r *reader) pong(p *contracts.Ping) {
	h := r.hub
	h.update(func(tx *tx) {
		if r.superseded(tx) {
			return
		}
		tx.clients.touch(r.conn)
		tx.pushFrame(r.box, &contracts.Pong{ID: optional(p.ID), LeaseExpiresAt: tx.expiry(r.conn).Value})
	})
}

func optional(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// answer tells the client how its frame ended: once for every frame, in the
// order of the frames (A116), and after the events the frame caused.
func (r *reader) answer(tx *tx, id *string, refusal *contracts.Error) {
	h := r.hub
	if refusal == nil {
		r.result(tx, id, tx.head())
		return
	}
	h.refused(refusal.Code)
	if r.conn.bare {
		tx.pushEvent(r.box, tx.head(), refusal.Event())
		return
	}
	tx.pushFrame(r.box, refusalFrame(id, r.seq, refusal))
	if refusal.Code == contracts.CodeAccessDenied && r.conn.role == contracts.RoleViewer && r.conn.denied(tx.now) {
		tx.part(r.box, refusal)
	}
}

func (r *reader) result(tx *tx, id *string, cursor uint64) {
	if !r.conn.bare {
		tx.pushFrame(r.box, &contracts.Result{ID: id, Seq: r.seq, Cursor: cursor})
	}
}

// refusal turns any error into one a client can be shown, and none into none.
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

// pushFrame queues a control frame at the head, if there is a mailbox.
func (tx *tx) pushFrame(b *mailbox, f contracts.Frame) {
	if b == nil {
		return
	}
	text, err := contracts.EncodeFrame(f)
	if err != nil {
		tx.logger.Error("encode frame", "type", f.FrameType(), "err", err)
		return
	}
	if frame := b.form.AppendControl(nil, text); len(frame) > 0 { // a stream has no control frames
		tx.push(b, parcel{at: tx.head(), frame: frame})
	}
}

// pushEvent queues a private event at cursor.
func (tx *tx) pushEvent(b *mailbox, cursor uint64, ev contracts.Event) {
	tx.push(b, parcel{at: cursor, frame: b.form.AppendMessage(nil, cursor, encode(nil, ev).Body)})
}

// tell queues a control frame for every socket of the connection. Streams, which
// have no such frames, learn of it from events.
func (tx *tx) tell(c *connection, f contracts.Frame) {
	for _, sub := range c.subs {
		tx.pushFrame(sub.box, f)
	}
}

// confide queues a private event at cursor for every subscription of the
// connection. One that is detached finds it when it comes back.
func (tx *tx) confide(c *connection, cursor uint64, ev contracts.Event) {
	body := encode(nil, ev).Body
	for _, sub := range c.subs {
		if b := sub.box; b != nil {
			tx.push(b, parcel{at: cursor, frame: b.form.AppendMessage(nil, cursor, body)})
			continue
		}
		if len(sub.held) == maxHeld {
			sub.held = slices.Delete(sub.held, 0, 1)
		}
		sub.held = append(sub.held, held{cursor, body})
	}
}

// serveBare serves the local client: bare messages, hello optional, and no
// sockets to come back on.
func (h *Hub) serveBare(conn Conn, att *contracts.Attach) error {
	c, b, err := h.attachLocal(conn, *att)
	if err != nil {
		conn.Close(h.refusal(err))
		return err
	}
	r := h.newReader()
	r.conn, r.box = c, b
	defer func() { h.detach(b, false) }()
	err = r.read(r.line)
	h.finishLocal(b)
	return err
}

// finishLocal ends the session with its local client: the end of its input is
// the end of the runtime (R19). The client still reads how everything ended.
func (h *Hub) finishLocal(b *mailbox) {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseOpen {
			tx.shutdown(&contracts.Shutdown{}, note{})
		}
	})
	select {
	case <-b.parted:
	case <-h.done:
	}
}

// line handles one line of the local client. Nothing is read after a shutdown
// (R18).
func (r *reader) line(text []byte) {
	cmd, err := r.decoder.Command(text)
	if err == nil {
		r.command(nil, cmd)
		_, r.left = cmd.(*contracts.Shutdown)
		r.left = r.left && r.hub.lifeNow().phase >= phaseClosing
		return
	}
	if r.hub.opts.Shared {
		if frame, other := r.decoder.ClientFrame(text); other == nil {
			if id, ok := steering(frame); ok {
				r.control(id, frame)
				return
			}
		}
	}
	r.refuse(nil, err)
}

// displayName is how status lines call a connection.
func (c *connection) displayName() string {
	return cmp.Or(abridge.Bytes(c.terms.Name(), 64), c.id)
}
