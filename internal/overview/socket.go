package overview

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A client of a socket and the server exchange these frames:
//
//	-> ws.follow {id, lists, limit}
//	<- ws.result {id, seq, cursor}
//	<- list {sessions} | list {inbox}        the list itself, and then its changes
//	-> ws.answer {id, session_id, message}
//	<- ws.result {id, seq, cursor, ended}
//
// ws.ping and ws.bye have their usual effect, and ws.error answers everything else.

// An order is what the reader of a socket tells its writer.
type order struct {
	answer    []byte // frames
	follow    bool   // the socket follows the lists of positions from now on
	positions []position
	end       error // nil, or why the connection ends after the answer
}

// A reader reads the frames of one socket.
type reader struct {
	*Overview
	f       *follower
	ctx     context.Context // ends with the socket
	orders  chan order      // unbuffered: a client that does not read its answers is not read
	decoder *contracts.Decoder
	limiter *rate.Limiter
	seq     uint64 // number of frames read
}

// Serve serves a client that follows lists and answers questions on a socket, until the
// client leaves or ctx ends. It reads in the caller's goroutine and writes in another
// one, which has ended when Serve returns. A *contracts.Error says why Serve ended the
// connection.
func (o *Overview) Serve(ctx context.Context, conn hub.Conn, by contracts.Caller) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := &follower{by: by, conn: conn, wire: socket}
	r := &reader{
		Overview: o, f: f, ctx: ctx, orders: make(chan order), decoder: &contracts.Decoder{Strict: o.opts.Strict},
		limiter: rate.NewLimiter(contracts.MaxViewerFrames, contracts.ViewerFrameBurst),
	}
	o.enter(f)
	defer o.leave(f)
	end := func() { conn.Close(refusalOf(context.Cause(ctx))) } // interrupts the reader and the writer
	defer context.AfterFunc(ctx, end)()
	var writer sync.WaitGroup
	writer.Go(func() { stop(o.feed(ctx, f, r.orders)) })
	stop(r.read()) // after the writer has stopped, this has no effect
	writer.Wait()
	end() // if nothing had to be interrupted
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// refusalOf returns the reason of the end of a connection that clients see; nil for a
// client that has left.
func refusalOf(err error) *contracts.Error {
	refusal, _ := errors.AsType[*contracts.Error](err)
	if refusal == nil && errors.Is(err, context.Canceled) { // the server ends
		return &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}
	}
	return refusal
}

// read reads frames until the connection ends.
func (r *reader) read() error {
	for {
		text, err := r.f.conn.ReadFrame()
		refusal, unread := errors.AsType[*contracts.Error](err)
		if err != nil && !unread {
			return err
		}
		r.seq++
		if !r.valid(r.f.by.Principal) {
			return hub.ErrExpired
		}
		count := 1
		if unread {
			r.refuse(nil, refusal)
		} else {
			count = r.handle(text)
		}
		if err := sleep.For(r.ctx, r.limiter.ReserveN(time.Now(), count).Delay()); err != nil {
			return err
		}
	}
}

// handle handles a frame, and returns how many frames it counts as.
func (r *reader) handle(text []byte) int {
	frame, err := r.decoder.ClientFrame(text)
	if err != nil {
		r.undecodable(text, err)
		return 1
	}
	switch f := frame.(type) {
	case *contracts.FollowLists:
		r.follow(f)
		return contracts.FollowFrames
	case *contracts.AnswerQuestion:
		r.answer(f)
	case *contracts.Ping:
		r.send(order{}, &contracts.Pong{ID: optional(f.ID)})
	case *contracts.Ack:
	case *contracts.Bye:
		r.send(order{end: io.EOF}, nil)
	default:
		r.refuse(nil, errNoSession)
	}
	return 1
}

var errNoSession = &contracts.Error{
	Code: contracts.CodeBadRequest, Message: "this socket is for lists, and has no session",
}

// undecodable refuses a frame. It ends the connection if the frames after this one cannot
// be trusted.
func (r *reader) undecodable(text []byte, err error) {
	var head struct{ Type string }
	_ = json.Unmarshal(text, &head) // a text that has no type is no unknown frame
	stranger := errors.Is(err, contracts.ErrUnknownType) && strings.HasPrefix(head.Type, "ws.")
	why := r.refusal(err)
	var next order
	if stranger || errors.Is(err, contracts.ErrMalformed) {
		next.end = why
	}
	r.send(next, contracts.NewRefusal(nil, r.seq, why))
}

// follow sets which lists the socket carries.
func (r *reader) follow(f *contracts.FollowLists) {
	next := order{follow: true}
	for _, name := range f.Lists {
		p := position{list: name}
		if name == contracts.ListSessions {
			p.limit = int(f.Limit)
		} else if err := handshake.MayAnswer(r.f.by, ""); err != nil {
			r.refuse(optional(f.ID), err)
			return
		}
		next.positions = append(next.positions, p)
	}
	if f.Limit < 0 || f.Limit > contracts.MaxOverviewPage {
		r.refuse(optional(f.ID), &contracts.Error{Code: contracts.CodeBadRequest, Message: "limit must be 1 to 500"})
		return
	}
	r.send(next, &contracts.Result{ID: optional(f.ID), Seq: r.seq})
}

// answer answers a question of the inbox. It opens a session at rest.
func (r *reader) answer(f *contracts.AnswerQuestion) {
	cursor, ended, err := r.decide(f)
	if err != nil {
		r.refuse(&f.ID, err)
		return
	}
	r.send(order{}, &contracts.Result{ID: &f.ID, Seq: r.seq, Cursor: cursor, Ended: &ended})
}

func (r *reader) decide(f *contracts.AnswerQuestion) (cursor uint64, ended bool, err error) {
	if err := handshake.MayAnswer(r.f.by, ""); err != nil {
		return 0, false, err
	}
	switch only := r.f.by.Principal.SessionID; {
	case !contracts.ValidID(f.SessionID):
		return 0, false, &contracts.Error{Code: contracts.CodeBadRequest, Message: "malformed session id"}
	case only != "" && only != f.SessionID:
		return 0, false, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential is for another session"}
	}
	cmd, err := r.decoder.Command(f.Message)
	if err != nil {
		return 0, false, err
	}
	response, ok := cmd.(*contracts.ServerRequestResponse)
	if !ok {
		return 0, false, &contracts.Error{Code: contracts.CodeBadRequest, Message: "message must be a server_request_response"}
	}
	h, err := r.opts.Find(r.ctx, f.SessionID, r.f.by.Principal)
	if err != nil {
		return 0, false, err
	}
	return h.Answer(response, r.f.by)
}

// refuse answers a frame with an error.
func (r *reader) refuse(id *string, err error) {
	r.send(order{}, contracts.NewRefusal(id, r.seq, r.refusal(err)))
}

// refusal converts an error to one that a client may see.
func (r *reader) refusal(err error) *contracts.Error {
	if why, ok := errors.AsType[*contracts.Error](err); ok {
		return why
	}
	r.opts.Log.Error("internal error", "err", err)
	return &contracts.Error{Code: contracts.CodeInternal, Message: "internal error"}
}

// send waits until the writer takes an order with a frame as its answer; nil for none.
func (r *reader) send(next order, answer contracts.Frame) {
	if answer != nil {
		text, err := contracts.EncodeFrame(answer)
		if err != nil {
			r.opts.Log.Error("encode a frame", "type", answer.FrameType(), "err", err)
			return
		}
		next.answer = r.f.conn.Form().AppendControl(nil, text)
	}
	select {
	case r.orders <- next:
	case <-r.ctx.Done():
	}
}

func optional(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}
