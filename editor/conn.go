package editor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	acp "github.com/coder/acp-go-sdk"
)

// cancelRequest tells the other side that a request needs no answer any more.
const cancelRequest = "$/cancel_request"

// A message is a JSON-RPC message of any kind.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// asks reports whether the message wants an answer.
func (m *message) asks() bool { return m.ID != nil }

// A reply is what came of a request of ours.
type reply struct {
	result json.RawMessage
	err    error
}

// A conn speaks JSON-RPC 2.0 with the editor, one message a line.
type conn struct {
	writing sync.Mutex // orders what is written
	out     io.Writer

	mu      sync.Mutex // guards the following
	last    int64
	waiting map[int64]chan reply // 1-buffered; gets one value. Bounded by those who ask
}

func newConn(out io.Writer) *conn {
	return &conn{out: out, waiting: map[int64]chan reply{}}
}

// parse makes a message of a line. A line that is none is answered, and the
// message is nil.
func (c *conn) parse(line []byte) *message {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF")))
	if len(line) == 0 {
		return nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		wrong := acp.NewParseError(nil)
		if json.Valid(line) {
			wrong = acp.NewInvalidRequest("the line is no JSON-RPC message")
		}
		c.refuse(nil, wrong)
		return nil
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	switch {
	case m.ID != nil && !isID(m.ID):
		c.refuse(nil, acp.NewInvalidRequest("an id is a text or a number"))
	case m.Method != "":
		return &m
	case m.ID != nil && (m.Result != nil || m.Error != nil):
		c.answered(&m)
	default:
		c.refuse(m.ID, acp.NewInvalidRequest("the message neither asks nor answers"))
	}
	return nil
}

// answered hands over what came of a request. An answer that nobody waits for is
// dropped: its request was given up.
func (c *conn) answered(m *message) {
	id, err := strconv.ParseInt(string(bytes.Trim(m.ID, `"`)), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	wait, ok := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if !ok {
		return
	}
	r := reply{result: m.Result}
	if len(m.Error) > 0 && string(m.Error) != "null" {
		e := &acp.RequestError{}
		if json.Unmarshal(m.Error, e) != nil {
			e.Message = "an error that cannot be read"
		}
		r.err = e
	}
	wait <- r
}

// call asks the editor something and waits for the answer. When ctx ends the
// request is withdrawn.
func (c *conn) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	wait := make(chan reply, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = wait
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
	if err := c.write(message{ID: strconv.AppendInt(nil, id, 10), Method: method}, params, nil); err != nil {
		return nil, err
	}
	select {
	case r := <-wait:
		return r.result, r.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.notify(cancelRequest, map[string]int64{"requestId": id}))
	}
}

// notify tells the editor something.
func (c *conn) notify(method string, params any) error {
	return c.write(message{Method: method}, params, nil)
}

// answer answers a request of the editor. A write that fails is found by the
// reader: the editor is gone.
func (c *conn) answer(id json.RawMessage, result any) {
	_ = c.write(message{ID: id}, nil, result)
}

// refuse answers a request with an error; without an id it is about a message
// that has none.
func (c *conn) refuse(id json.RawMessage, e *acp.RequestError) {
	raw, err := json.Marshal(e)
	if err != nil {
		raw = json.RawMessage(`{"code":-32603,"message":"Internal error"}`)
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	_ = c.write(message{ID: id, Error: raw}, nil, nil) // as in answer
}

func (c *conn) write(m message, params, result any) (err error) {
	m.JSONRPC = "2.0"
	if params != nil {
		if m.Params, err = json.Marshal(params); err != nil {
			return fmt.Errorf("encode %s: %w", m.Method, err)
		}
	}
	if result != nil {
		if m.Result, err = json.Marshal(result); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
	}
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.out.Write(append(line, '\n'))
	return err
}
