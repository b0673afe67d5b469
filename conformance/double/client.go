package double

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A client is one connection's identity, which outlives its socket for a while.
type client struct {
	room       *room
	id, token  string
	sub        string
	role       contracts.Role
	hello      contracts.Hello
	out        *outlet // nil while detached
	seen       time.Time
	asked      bool // wants the lease
	seq        uint64
	stored     map[string][]byte // answers to ws.send by id
	violations int

	// Over HTTP.
	web     bool            // made there: it has subs instead of out
	subs    []*subscription // in order of their making
	adopted bool            // by a subscribe that named no connection
}

// An outlet is a queue of texts with a writer at its other end. It is guarded
// by Server.mu.
type outlet struct {
	queue  [][]byte
	size   int
	wake   chan struct{} // 1-buffered; never closed
	code   int           // nonzero: write the queue, then close
	reason string
}

// maxQueue bounds the bytes that wait for a reader.
const maxQueue = 64 << 20

func newOutlet() *outlet { return &outlet{wake: make(chan struct{}, 1)} }

func (o *outlet) push(text []byte) {
	if o.code != 0 {
		return
	}
	o.queue, o.size = append(o.queue, text), o.size+len(text)
	if o.size > maxQueue {
		o.finish(contracts.CodeSlowConsumer.CloseCode(), string(contracts.CodeSlowConsumer))
	}
	o.signal()
}

// finish makes the writer close the link after what is queued.
func (o *outlet) finish(code int, reason string) {
	if o.code == 0 {
		o.code, o.reason = code, reason
	}
	o.signal()
}

func (o *outlet) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (o *outlet) take() ([][]byte, int, string) {
	q := o.queue
	o.queue, o.size = nil, 0
	return q, o.code, o.reason
}

func newClient(r *room, role contracts.Role) *client {
	return &client{room: r, id: "conn_" + rand.Text(), token: rand.Text(), sub: "sub_" + rand.Text(), role: role,
		out: newOutlet(), seen: time.Now(), stored: map[string][]byte{}}
}

// leaseEnd is when the connection's liveness runs out; on stdio never.
func (c *client) leaseEnd() contracts.NullString {
	if c.room.bare {
		return contracts.Null()
	}
	return contracts.String(stamp(c.seen.Add(c.room.s.opts.LeaseTTL)))
}

// wants reports whether the client is to be shown a kind of message.
func (c *client) wants(kind string) bool {
	if kind == "raw_agent_event" {
		return c.hello.Capabilities != nil && c.hello.Capabilities.RawAgentEvents
	}
	return c.room.s.has(IgnoresOptOuts) || !slices.Contains(c.hello.OptOutNotifications, contracts.Notification(kind))
}

// deliver shows one entry.
func (c *client) deliver(e entry) {
	if c.out == nil || !c.wants(e.kind) || e.to != nil && e.to != c {
		return
	}
	if c.room.bare {
		c.out.push(e.body)
		return
	}
	c.out.push(envelope(c.room.s, e))
}

// envelope renders an entry for a socket.
func envelope(s *Server, e entry) []byte {
	if e.kind == "" {
		return fmt.Appendf(nil, `{"type":"snapshot","snapshot":%s}`, e.body)
	}
	extra := ""
	if s.has(ExtraKey) {
		extra = `"session_id":"x",`
	}
	return fmt.Appendf(nil, `{"type":"message",%s"cursor":%d,"message":%s}`, extra, e.cursor, e.body)
}

// private shows an event to this client alone.
func (c *client) private(ev contracts.Event) {
	body := encode(ev.EventType(), ev)
	if c.room.bare {
		c.out.push(body)
		return
	}
	c.room.head++
	e := entry{cursor: c.room.head, kind: ev.EventType(), body: body, to: c}
	switch {
	case c.web:
		c.room.record(e)
	case c.out != nil:
		c.out.push(envelope(c.room.s, e))
	}
}

// control sends a ws.* frame.
func (c *client) control(f contracts.Frame) {
	if c.out != nil {
		c.out.push(encode(f.FrameType(), f))
	}
}

// dismiss says goodbye and closes.
func (c *client) dismiss(code int, reason string) {
	if c.out == nil {
		return
	}
	if !c.room.bare {
		c.control(&contracts.Goodbye{Code: int64(code), Reason: reason})
	}
	c.out.finish(code, reason)
}

// greet answers a hello.
func (c *client) greet() {
	h, r := &c.hello, c.room
	ok := &contracts.HelloOK{ProtocolVersion: contracts.ProtocolVersion, ConnectionID: c.id,
		ClientProtocolVersion: h.ProtocolVersion, ClientInfo: h.ClientInfo, Capabilities: h.Capabilities,
		OptOutNotifications: h.OptOutNotifications, Role: c.role, ControllerConnectionID: contracts.NullableString(r.holderID()),
		LeaseExpiresAt: c.leaseEnd()}
	if !r.s.public() {
		ok.ServerCapabilities = &contracts.ServerCapabilities{ServerRequests: contracts.RequestTypes(),
			UtilityOperations: r.s.operations(), ConnectionRoles: []contracts.Role{contracts.RoleViewer, contracts.RoleController}}
	}
	if r.s.has(HelloOKToAll) {
		for _, other := range r.clients {
			other.private(ok)
		}
	} else {
		c.private(ok)
	}
	r.announce(c)
	if v := h.ProtocolVersion; v != "" && v != contracts.ProtocolVersion {
		r.publish(&contracts.Status{Message: "Client protocol " + v + " attached to server " + contracts.ProtocolVersion})
	}
}

// answer responds to a frame on a socket: a result, or the refusal. at is
// where in the queue the answer goes if it comes too early (a defect).
func (c *client) answer(id *string, e *contracts.Error, at int) []byte {
	var text []byte
	if e == nil {
		text = encode("ws.result", &contracts.Result{ID: id, Seq: c.seq, Cursor: c.room.head})
	} else {
		text = encode("ws.error", &contracts.Refusal{ID: id, Seq: c.seq, Message: e.Message, Code: e.Code,
			ErrorType: e.Code, Retryable: e.Code.Retryable(), Details: e.Details()})
	}
	switch {
	case c.out == nil:
	case c.room.s.has(ResultBeforeEvents) && at <= len(c.out.queue):
		c.out.queue = slices.Insert(c.out.queue, at, text)
		c.out.signal()
	default:
		c.out.push(text)
	}
	return bytes.Clone(text)
}
