package double

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// upgrade makes a WebSocket, which lives in the call. The session may be in
// the path instead of the query.
func (s *Server) upgrade(w http.ResponseWriter, req *http.Request, id string) {
	query := req.URL.Query()
	if id != "" {
		query.Set("sessionId", id)
	}
	if e := s.gate(w, req, query); e != nil {
		refuseHTTP(w, s, e)
		return
	}
	conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(contracts.MaxSocketBytes)
	k := &socket{s: s, conn: conn, query: query}
	k.serve(req.Context())
}

// gate refuses what can be refused before the upgrade.
func (s *Server) gate(w http.ResponseWriter, req *http.Request, q url.Values) *contracts.Error {
	offered := req.Header.Get("Sec-WebSocket-Protocol")
	switch {
	case strings.Contains(offered, contracts.Subprotocol):
	case strings.Contains(offered, "maestro-headless."):
		w.Header().Set("Sec-WebSocket-Protocol", contracts.Subprotocol)
		return refuse(contracts.CodeUpgradeRequired, "", "unsupported version")
	default:
		return refuse(contracts.CodeBadRequest, "", "the subprotocol is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[q.Get("sessionId")]
	switch {
	case r == nil && q.Get("create") != "1":
		return refuse(contracts.CodeStaleSession, "", "Headless session not found")
	case r == nil:
		return nil
	}
	r.expire()
	if q.Get("role") == "controller" && q.Get("takeControl") == "" && q.Get("connectionId") == "" && r.holder != nil && !s.has(GrantsLeaseTwice) {
		return r.held(textHeld)
	}
	return nil
}

// A socket is one WebSocket connection.
type socket struct {
	s     *Server
	conn  *websocket.Conn
	query url.Values
	c     *client // after the handshake
	out   *outlet
	seq   uint64
}

// serve runs the connection to its end.
func (k *socket) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	k.out = newOutlet()
	wg.Go(func() { k.write(ctx, cancel) }) // ends with ctx, or after closing
	if e := k.handshake(ctx); e != nil {
		k.refuse(ctx, e)
		return
	}
	for {
		text, e := k.read(ctx)
		if e == nil {
			e = k.frame(text)
		}
		if e != nil {
			k.refuse(ctx, e)
			return
		}
	}
}

// errGone says that there is nobody left to tell.
var errGone = &contracts.Error{}

// read returns the next text frame.
func (k *socket) read(ctx context.Context) ([]byte, *contracts.Error) {
	kind, text, err := k.conn.Read(ctx)
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, refuse(contracts.CodeTimeout, "", "timeout")
	case err != nil:
		return nil, errGone
	case kind != websocket.MessageText:
		return nil, &contracts.Error{Code: contracts.CodeBadRequest, Metadata: map[string]string{"close": "1003"}}
	case !utf8.Valid(text):
		return nil, &contracts.Error{Code: contracts.CodeBadRequest, Metadata: map[string]string{"close": "1007"}}
	case !json.Valid(text):
		return nil, refuse(contracts.CodeBadRequest, "", "invalid JSON")
	}
	k.seq++
	return text, nil
}

// refuse closes for a reason and waits until the peer knows.
func (k *socket) refuse(ctx context.Context, e *contracts.Error) {
	k.detach()
	if e == errGone {
		return
	}
	code := e.Code.CloseCode()
	if given, err := strconv.Atoi(e.Metadata["close"]); err == nil {
		code = given
	}
	if k.s.has(WrongCloseCode) && code == 4400 {
		code = 1011
	}
	k.s.mu.Lock()
	k.out.push(encode("ws.goodbye", &contracts.Goodbye{Code: int64(code), Reason: string(e.Code)}))
	k.out.finish(code, string(e.Code))
	k.s.mu.Unlock()
	<-ctx.Done() // the writer cancels when it has closed
}

// detach leaves the connection to come back to.
func (k *socket) detach() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	c := k.c
	if c == nil || c.out != k.out {
		return
	}
	c.out, c.seen = nil, time.Now()
	if c.role == contracts.RoleViewer {
		c.room.leave(c)
	}
}

// write sends what is queued, heartbeats when idle, and closes at the end.
func (k *socket) write(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	beat := time.NewTicker(k.s.opts.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			k.heartbeat()
			continue
		case <-k.out.wake:
		}
		k.s.mu.Lock()
		queue, code, reason := k.out.take()
		k.s.mu.Unlock()
		for _, text := range queue {
			if k.conn.Write(ctx, websocket.MessageText, text) != nil {
				return
			}
		}
		if code != 0 {
			_ = k.conn.Close(websocket.StatusCode(code), reason) // the peer may be gone
			return
		}
	}
}

func (k *socket) heartbeat() {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.c == nil {
		return
	}
	if k.c.wants("heartbeat") {
		k.out.push(encode("heartbeat", &contracts.HeartbeatEnvelope{Cursor: k.c.room.head}))
	}
}

// handshake reads ws.resume and hello and attaches.
func (k *socket) handshake(ctx context.Context) *contracts.Error {
	ctx, cancel := context.WithTimeout(ctx, k.s.opts.HandshakeTimeout)
	defer cancel()
	text, e := k.first(ctx)
	if e != nil {
		return e
	}
	var resume contracts.Resume
	if typeOf(text) == "ws.resume" {
		_ = json.Unmarshal(text, &resume) // a wrong token is no token
		if text, e = k.first(ctx); e != nil {
			return e
		}
	}
	cmd, e := k.s.decode(text)
	if e != nil {
		return e
	}
	hello, ok := cmd.(*contracts.Hello)
	if !ok {
		return refuse(contracts.CodeBadRequest, "", "hello comes first")
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.attach(hello, resume.ConnectionToken)
}

// first reads a frame without letting the deadline break the connection: the
// library closes it when a read's context ends.
func (k *socket) first(ctx context.Context) ([]byte, *contracts.Error) {
	type arrival struct {
		text []byte
		e    *contracts.Error
	}
	got := make(chan arrival, 1)
	go func() { // ends when a frame comes or the connection goes
		text, e := k.read(context.Background())
		got <- arrival{text, e}
	}()
	select {
	case a := <-got:
		return a.text, a.e
	case <-ctx.Done():
		return nil, refuse(contracts.CodeTimeout, "", "no hello came")
	}
}

// typeOf returns the type key of a frame.
func typeOf(text []byte) string {
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(text, &head) // an unusual type is no known one
	return head.Type
}

// attach joins the session.
func (k *socket) attach(h *contracts.Hello, token string) *contracts.Error {
	s, q := k.s, k.query
	role := contracts.Role(q.Get("role"))
	if role != "" && h.Role != "" && role != h.Role {
		return refuse(contracts.CodeRoleConflict, "", "the roles of query and hello differ")
	}
	if role == "" {
		role = h.Role
	}
	if role == "" {
		role = contracts.RoleViewer
	}
	if e := checkViewer(role, h, viewerForbidden...); e != nil {
		return e
	}
	if e := s.checkTools(h); e != nil {
		return e
	}
	r := s.rooms[q.Get("sessionId")]
	if r == nil {
		r = s.open(q.Get("sessionId"), false)
	}
	r.expire()
	c := r.returning(q.Get("connectionId"), token)
	if c == nil {
		if role == contracts.RoleController && r.holder != nil && q.Get("takeControl") == "" && !s.has(GrantsLeaseTwice) {
			return r.held(textHeld)
		}
		c = newClient(r, role)
		r.clients = append(r.clients, c)
	} else if c.out != nil {
		c.dismiss(contracts.CodeSuperseded.CloseCode(), string(contracts.CodeSuperseded))
	}
	c.out, c.seen, k.c = nil, time.Now(), c // what is published now is in the snapshot
	c.accept(h)
	if role == contracts.RoleController && r.holder != c && q.Get("takeControl") != "later" {
		r.grant(c, contracts.LeaseTakenOver)
	}
	c.out = k.out
	c.seq = k.seq
	k.start(c)
	c.greet()
	return nil
}

// returning finds the connection that a client comes back to.
func (r *room) returning(id, token string) *client {
	i := slices.IndexFunc(r.clients, func(c *client) bool { return !c.web && c.id == id })
	if i < 0 || r.clients[i].token != token && !r.s.has(TokenNotChecked) {
		return nil
	}
	return r.clients[i]
}

// start sends ws.attached and where the client begins.
func (k *socket) start(c *client) {
	r, s := c.room, k.s
	cursor, resume, why := r.position(k.query.Get("cursor"), k.query.Get("epoch"))
	c.control(&contracts.Attached{SessionID: r.id, ConnectionID: c.id, ConnectionToken: c.token, SubscriptionID: c.sub,
		Role: c.role, ControllerLeaseGranted: r.holder == c || s.has(GrantsLeaseTwice) && c.role == contracts.RoleController,
		ControllerConnectionID: r.holderID(), LeaseExpiresAt: c.leaseEnd().Value,
		HeartbeatIntervalMS: s.opts.Heartbeat.Milliseconds(), Epoch: r.epoch, Resume: resume,
		Limits: contracts.AttachLimits{MaxFrameBytes: contracts.MaxSocketBytes, Mailbox: maxQueue}})
	at := r.head
	if s.has(WrongSnapshotCursor) {
		at += 3
	}
	switch resume {
	case "snapshot":
		c.control(&contracts.SnapshotEnvelope{Snapshot: r.snapshot(at)})
	case "reset":
		c.control(&contracts.ResetEnvelope{Reason: why, Snapshot: r.snapshot(at)})
	default:
		k.replay(c, cursor)
	}
}

// position decides how a client begins that was at a cursor of an epoch, both
// as it gave them: with a snapshot, with a reset, or with what it missed.
func (r *room) position(given, epoch string) (cursor uint64, resume string, why contracts.ResetReason) {
	if given == "" {
		return 0, "snapshot", ""
	}
	n, err := strconv.ParseInt(given, 10, 64)
	wrongEpoch := epoch != "" && epoch != r.epoch && !r.s.has(IgnoresEpoch)
	switch {
	case err != nil || n < 0 || n > int64(r.head) && !r.s.has(SilentFutureCursor):
		return 0, "reset", contracts.ResetGap
	case r.restored && (wrongEpoch || uint64(n) <= r.floor):
		return 0, "reset", contracts.ResetRestored
	case wrongEpoch || uint64(n) < r.floor:
		return 0, "reset", contracts.ResetGap
	}
	return uint64(n), "replay", ""
}

// replay sends what came after a cursor.
func (k *socket) replay(c *client, cursor uint64) {
	skip := 0
	if k.s.has(LosesEventOnResume) {
		skip = 1
	}
	if k.s.has(ReplaysOldItems) && cursor > 0 {
		cursor--
	}
	for _, e := range c.room.log {
		if e.cursor <= cursor {
			continue
		}
		if skip > 0 && e.kind != "connection_info" { // which a server may leave out
			skip--
			continue
		}
		c.deliver(e)
	}
}

// frame handles one frame after the handshake. A refusal it returns ends the
// connection.
func (k *socket) frame(text []byte) *contracts.Error {
	kind := typeOf(text)
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	c := k.c
	if c.out != k.out || c.room.closed {
		return errGone
	}
	c.seq, c.seen = k.seq, time.Now()
	if strings.HasPrefix(kind, "ws.") {
		return k.control(kind, text)
	}
	if kind == "" {
		return refuse(contracts.CodeBadRequest, "", "not a frame")
	}
	k.command(nil, text)
	return k.tooManyViolations()
}

// tooManyViolations ends a viewer that keeps trying to act.
func (k *socket) tooManyViolations() *contracts.Error {
	if k.c.violations >= 10 {
		return refuse(contracts.CodeAccessDenied, "", "too many refusals")
	}
	return nil
}

// command handles a message and answers it.
func (k *socket) command(id *string, text []byte) []byte {
	at := len(k.out.queue)
	cmd, e := k.s.decode(text)
	if e == nil {
		e = k.c.admit(cmd)
	}
	return k.c.answer(id, e, at)
}

// control handles a ws.* frame.
func (k *socket) control(kind string, text []byte) *contracts.Error {
	c := k.c
	var head struct {
		ID *string `json:"id"`
	}
	_ = json.Unmarshal(text, &head)
	var f contracts.Frame
	switch kind {
	case "ws.send":
		return k.send(text)
	case "ws.ping":
		c.control(&contracts.Pong{ID: head.ID, LeaseExpiresAt: c.leaseEnd().Value})
		return nil
	case "ws.ack":
		return nil
	case "ws.bye":
		return k.bye(text)
	case "ws.take_control":
		f = &contracts.TakeControl{}
	case "ws.release_control":
		f = &contracts.ReleaseControl{}
	case "ws.ask_control":
		f = &contracts.AskControl{}
	case "ws.grant_control":
		f = &contracts.GrantControl{}
	case "ws.deny_control":
		f = &contracts.DenyControl{}
	default:
		return refuse(contracts.CodeBadRequest, "", "unknown frame "+kind)
	}
	at := len(k.out.queue)
	if err := json.Unmarshal(text, f); err != nil {
		return refuse(contracts.CodeBadRequest, "", "malformed "+kind)
	}
	c.answer(head.ID, c.lease(f), at)
	return nil
}

// send handles a message with an id, once.
func (k *socket) send(text []byte) *contracts.Error {
	var f contracts.Send
	if err := json.Unmarshal(text, &f); err != nil || f.ID == "" {
		return refuse(contracts.CodeBadRequest, "", "malformed ws.send")
	}
	c := k.c
	if len(f.ID) > contracts.MaxSendIDBytes {
		c.answer(nil, badRequest("the id is too long"), 0)
		return nil
	}
	if stored := c.stored[f.ID]; stored != nil && !k.s.has(RunsRepeats) {
		c.out.push(stored)
		return nil
	}
	c.stored[f.ID] = k.command(&f.ID, f.Message)
	return k.tooManyViolations()
}

// bye ends the connection as the client wishes.
func (k *socket) bye(text []byte) *contracts.Error {
	var f contracts.Bye
	_ = json.Unmarshal(text, &f)
	c, out := k.c, k.out
	c.seen = time.Now()
	if f.Keep {
		c.out = nil
	} else {
		c.room.leave(c)
	}
	out.finish(1000, "")
	return nil
}
