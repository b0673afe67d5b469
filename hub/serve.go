package hub

import (
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
)

// A Wire says which messages a client and the hub exchange on a connection.
type Wire int

const (
	// WireEnvelope begins with hello, followed by envelopes and ws.* control frames.
	WireEnvelope Wire = iota
	// WireBare has bare messages both ways and an optional hello. Refusals are error
	// messages. A client on it cannot be reset, so the agent waits for it.
	WireBare
)

// A Form encodes the frames of one kind of wire; see [contracts.Form].
type Form = contracts.Form

// A Conn is a connected client; see [contracts.Conn].
type Conn = contracts.Conn

var (
	errEnded      = errors.New("the session has ended")
	errGoingAway  = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}
	errSuperseded = &contracts.Error{Code: contracts.CodeSuperseded, Message: "a newer connection took this one's place"}
)

// Serve serves a client on conn until the peer leaves, ctx ends or the hub closes
// conn. It owns conn. It reads in the caller's goroutine and writes in at most one
// other, which has ended when Serve returns.
//
// A panic in code that serves conn, or in conn itself, ends only this connection.
// Serve does not change att. It takes a pointer, because a copy would stay on the
// stack of every idle connection.
func (h *Hub) Serve(ctx context.Context, conn Conn, wire Wire, att *contracts.Attach) (err error) {
	defer h.contain(conn, &err)
	unhook := context.AfterFunc(ctx, func() { conn.Close(errGoingAway) })
	defer unhook()
	if wire == WireBare {
		return h.serveBare(conn, att)
	}
	return h.serveEnvelope(conn, att)
}

// contain is deferred. It turns a panic into an error and closes conn, so that a
// panic does not affect other clients of the session.
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

// A reader reads the frames of one socket.
type reader struct {
	hub       *Hub
	conn      *connection
	box       *mailbox
	decoder   *contracts.Decoder
	seq       uint64 // number of frames read, handshake included
	resumable bool   // false if the client said that it will not return
	ended     bool   // the client said ws.bye, or ended the session: read no more

	limiter *rate.Limiter // of the frames of a viewer or approver; nil for controllers
}

// slowDown waits until a viewer that sent n frames may send more. It returns early
// if the connection or the session ends.
func (r *reader) slowDown(n int) {
	if r.limiter == nil {
		return
	}
	if delay := r.limiter.ReserveN(time.Now(), n).Delay(); delay > 0 {
		wait(delay, r.box.stopped, r.hub.done)
	}
}

// newDecoder returns a decoder for the texts of one client.
func (h *Hub) newDecoder() *contracts.Decoder {
	var named []string
	return &contracts.Decoder{Strict: h.opts.Strict, Unknown: func(pointer string) {
		h.metrics.UnknownKeys.Add(1)
		if len(named) < 32 && !slices.Contains(named, pointer) { // once per key and for 32 keys, so that a hostile client cannot fill the log
			named = append(named, pointer)
			h.logger.Debug("unknown key ignored", "key", pointer)
		}
	}}
}

func (h *Hub) serveEnvelope(conn Conn, att *contracts.Attach) error {
	r := &reader{hub: h, resumable: true, decoder: h.newDecoder()}
	if err := h.aside(conn, func() error { return r.handshake(conn, *att) }); err != nil {
		h.rejectHandshake(conn, r.seq, err)
		return err
	}
	defer func() { h.detach(r.box, r.resumable) }()
	if err := r.read(r.handleFrame); err != nil || !r.ended {
		return err
	}
	select {
	case <-r.box.stopped: // the goodbye was written, or failed
	case <-h.done:
	}
	return nil
}

// aside runs f in a temporary goroutine. Goroutine stacks grow but rarely shrink: run
// inline, a handshake would leave every idle connection with a deep stack.
func (h *Hub) aside(conn Conn, f func() error) (err error) {
	done := make(chan struct{}) // closed when f has returned
	go func() {                 // ends within Options.HandshakeTimeout
		defer close(done)
		defer h.contain(conn, &err)
		err = f()
	}()
	<-done
	return err
}

// read calls handle for every frame until the socket ends. If handle panics, read
// closes the socket, because detach waits for the writer and only a closed socket
// unblocks the writer.
func (r *reader) read(handle func(text []byte)) (err error) {
	defer r.hub.contain(r.box.conn, &err)
	for !r.ended {
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

// rejectHandshake closes a connection that never attached, after telling it why.
func (h *Hub) rejectHandshake(conn Conn, seq uint64, err error) {
	why, ok := errors.AsType[*contracts.Error](err)
	if ok {
		h.noteRefusal(why, "")
		var out []byte
		for _, frame := range []contracts.Frame{contracts.NewRefusal(nil, seq, why), goodbyeFrame(why, 0)} {
			if text, err := contracts.EncodeFrame(frame); err == nil {
				out = conn.Form().AppendControl(out, text)
			}
		}
		_ = conn.Write(out) // the socket is closed next in any case
	}
	conn.Close(why)
}

// handshake reads hello, and before it an optional ws.resume, and attaches the
// connection. It closes conn after Options.HandshakeTimeout (A113).
func (r *reader) handshake(conn Conn, att contracts.Attach) error {
	late := time.AfterFunc(r.hub.opts.HandshakeTimeout, func() {
		conn.Close(&contracts.Error{Code: contracts.CodeTimeout, Message: "no hello within the time allowed"})
	})
	defer late.Stop()
	frame, err := r.readHandshakeFrame(conn)
	if err != nil {
		return err
	}
	token := ""
	if resume, ok := frame.(*contracts.Resume); ok {
		token = resume.ConnectionToken
		if frame, err = r.readHandshakeFrame(conn); err != nil {
			return err
		}
	}
	m, _ := frame.(*contracts.Message)
	var hello *contracts.Hello
	if m != nil {
		hello, _ = m.Command.(*contracts.Hello)
	}
	if hello == nil {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "the first frame must be hello"}
	}
	r.conn, r.box, err = r.hub.attach(conn, att, hello, token)
	if err == nil && r.box.counted != contracts.RoleController {
		r.limiter = rate.NewLimiter(contracts.MaxViewerFrames, contracts.ViewerFrameBurst)
	}
	return err
}

func (r *reader) readHandshakeFrame(conn Conn) (contracts.Frame, error) {
	r.seq++
	text, err := conn.ReadFrame()
	if err != nil {
		return nil, err
	}
	return r.decoder.ClientFrame(text)
}

// handleFrame handles one frame of a networked client.
func (r *reader) handleFrame(text []byte) {
	frame, err := r.decoder.ClientFrame(text)
	if err != nil {
		r.undecodable(text, err)
		return
	}
	switch f := frame.(type) {
	case *contracts.Message:
		r.command(nil, f.Command)
	case *contracts.Send:
		cmd, err := r.decoder.Command(f.Message)
		if err != nil {
			r.refuse(&f.ID, err)
			return
		}
		r.command(&f.ID, cmd)
	case *contracts.Resume:
		r.refuse(nil, &contracts.Error{Code: contracts.CodeBadRequest, Message: "ws.resume is only for the first frame"})
	case *contracts.FollowLists:
		r.refuse(optional(f.ID), errOneSession)
	case *contracts.AnswerQuestion:
		r.refuse(&f.ID, errOneSession)
	case *contracts.Ack:
	case *contracts.Bye:
		r.resumable, r.ended = f.Keep, true
		r.hub.update(func(tx *tx) { tx.closeMailbox(r.box, nil) })
	case *contracts.Ping:
		r.pong(f)
	case *contracts.HistoryRequest:
		r.answerHistory(f)
		r.slowDown(contracts.HistoryFrames - 1) // read counts the frame itself
	default:
		r.handleLeaseFrame(frame) // all other frames are about the lease
	}
}

// undecodable answers a frame that cannot be decoded. Text that is not JSON and
// unknown ws.* frames close the socket (4400), because the following frames cannot
// be trusted. Anything else is refused.
func (r *reader) undecodable(text []byte, err error) {
	stranger := errors.Is(err, contracts.ErrUnknownType) && strings.HasPrefix(frameType(text), "ws.")
	if stranger || errors.Is(err, contracts.ErrMalformed) {
		why := &contracts.Error{Code: contracts.CodeBadRequest, Message: err.Error()}
		r.hub.update(func(tx *tx) { tx.closeMailbox(r.box, why) })
		return
	}
	r.refuse(nil, err)
}

// frameType returns the type of a frame that cannot be decoded, or "".
func frameType(text []byte) string {
	var head struct{ Type string }
	_ = json.Unmarshal(text, &head) // a text that is not JSON has no type
	return head.Type
}

// isSuperseded reports whether a newer socket replaced this one. The hub ignores
// frames of the older socket.
func (r *reader) isSuperseded(*tx) bool { return r.box.sub.box != r.box }

func (r *reader) pong(p *contracts.Ping) {
	h := r.hub
	h.update(func(tx *tx) {
		if r.isSuperseded(tx) {
			return
		}
		tx.pushFrame(r.box, &contracts.Pong{ID: optional(p.ID), LeaseExpiresAt: tx.expiry(r.conn).Value})
	})
}

// errOneSession refuses a frame for a socket of lists.
var errOneSession = &contracts.Error{
	Code: contracts.CodeBadRequest, Message: "this socket is for one session; lists are on /api/headless/lists/ws",
}

func optional(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// serveBare serves the local client. It exchanges bare messages, hello is optional,
// and it cannot reconnect.
func (h *Hub) serveBare(conn Conn, att *contracts.Attach) error {
	c, b, err := h.attachLocal(conn, *att)
	if err != nil {
		conn.Close(h.refusal(err))
		return err
	}
	r := &reader{hub: h, conn: c, box: b, decoder: h.newDecoder()}
	defer func() { h.detach(b, false) }()
	err = r.read(r.handleLine)
	h.finishLocal(b)
	return err
}

// finishLocal ends the session when the local client's input ends (R19). It waits
// until the last output was written.
func (h *Hub) finishLocal(b *mailbox) {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseOpen {
			tx.shutdown(&contracts.Shutdown{}, note{})
		}
	})
	select {
	case <-b.stopped:
	case <-h.done:
	}
}

// handleLine handles one line of the local client. Lines after a shutdown are not
// read (R18).
func (r *reader) handleLine(text []byte) {
	cmd, err := r.decoder.Command(text)
	if err == nil {
		r.command(nil, cmd)
		_, r.ended = cmd.(*contracts.Shutdown)
		r.ended = r.ended && r.hub.lifeNow().phase >= phaseClosing
		return
	}
	frame, other := r.decoder.ClientFrame(text)
	switch f := frame.(type) {
	case *contracts.HistoryRequest:
		r.answerHistory(f)
		return
	case nil:
		if frameType(text) == (*contracts.HistoryRequest)(nil).FrameType() {
			err = other
		}
	default:
		if r.hub.opts.Shared && r.handleLeaseFrame(frame) {
			return
		}
	}
	r.refuse(nil, err)
}
