package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// A Call is a request that waits for its answer.
type Call struct {
	// Reply gets the outcome of the call, once. It is never closed.
	Reply chan Reply

	conn  *Conn
	id    int64
	first func() // called by the reader before it goes on; may be nil
}

// Ask makes a call. If first is not nil, the reader calls it before it delivers
// the reply and reads on, so that later messages find it done.
func (c *Conn) Ask(method string, params any, first func()) (*Call, error) {
	c.mu.Lock()
	if c.down != nil {
		defer c.mu.Unlock()
		return nil, c.down
	}
	c.last++
	call := &Call{Reply: make(chan Reply, 1), conn: c, id: c.last, first: first}
	c.waiting[call.id] = call
	c.mu.Unlock()
	err := c.write(message{ID: strconv.AppendInt(nil, call.id, 10), Method: method}, params)
	if err != nil {
		call.Forget()
		return nil, err
	}
	return call, nil
}

// Forget abandons a call: its answer is dropped.
func (w *Call) Forget() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	delete(w.conn.waiting, w.id)
}

// Call makes a call and waits for its result. If ctx ends first, the call is
// abandoned, and the peer is told.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	call, err := c.Ask(method, params, nil)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-call.Reply:
		return r.Result, r.Err
	case <-ctx.Done():
		call.Forget()
		err := context.Cause(ctx)
		if c.opts.Withdraw != "" {
			err = errors.Join(err, c.Notify(c.opts.Withdraw, map[string]int64{"requestId": call.id}))
		}
		return nil, err
	}
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params any) error {
	return c.write(message{Method: method}, params)
}

// Answer answers a request of the peer.
func (c *Conn) Answer(id json.RawMessage, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return c.write(message{ID: id, Result: raw}, nil)
}

// Refuse answers a request with an error. A nil id is for a message without
// one.
func (c *Conn) Refuse(id json.RawMessage, e *Error) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode error: %w", err)
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	return c.write(message{ID: id, Error: raw}, nil)
}

func (c *Conn) write(m message, params any) (err error) {
	m.JSONRPC = "2.0"
	if params != nil {
		if m.Params, err = json.Marshal(params); err != nil {
			return fmt.Errorf("encode %s: %w", m.Method, err)
		}
	}
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.opts.Send(append(line, '\n'))
}
