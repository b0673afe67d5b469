package acp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	acp "github.com/coder/acp-go-sdk"
)

// maxGarbage is how many lines in a row may be no messages. Programs print
// notices where they should not; one that prints nothing else is ended.
const maxGarbage = 1000

// A request is what the program asks or, without an id, tells.
type request struct {
	id     json.RawMessage // nil of a notification
	method string
	params json.RawMessage
}

// A reply is what came of a call of ours.
type reply struct {
	result json.RawMessage
	err    error // a *rejection if the program refused, errStreamEnded if it is about to end
}

// A message is a JSON-RPC message of any kind.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// A conn speaks JSON-RPC 2.0, one message a line.
//
// What comes in is handled by the reader itself, in order: an answer to a call
// is handed over only after everything that came before it was served, and a
// reader that is busy holds the writer of the pipe back.
type conn struct {
	// Static.
	send  func(line []byte) error // must not block
	serve func(request)           // called by the reader; must not wait for an answer
	fault func(error)             // called by the reader for what it cannot make sense of
	kill  func(error)             // ends the program

	mu      sync.Mutex
	last    int64
	waiting map[int64]waiter
	down    error // set once the reader has ended
}

// A waiter waits for what comes of a call.
type waiter struct {
	reply chan reply // 1-buffered; gets one value
	first func()     // called by the reader before it goes on; may be nil
}

// read serves what comes in until its end.
func (c *conn) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, 64<<10)
	garbage := 0
	for {
		err := c.next(lines)
		switch {
		case err == nil:
			garbage = 0
			continue
		case errors.Is(err, errStreamEnded):
			c.close(err)
			return
		}
		if garbage++; garbage > maxGarbage {
			c.kill(fmt.Errorf("agent process killed: %d lines in a row are no messages", garbage))
			c.close(errStreamEnded)
			return
		}
		c.fault(err)
	}
}

var errStreamEnded = errors.New("the agent's output ended")

// next serves one line.
func (c *conn) next(lines *bufio.Reader) error {
	line, err := readLine(lines, maxLine)
	if long, ok := errors.AsType[*longLine](err); ok {
		return c.overlong(long)
	}
	if err != nil {
		return errStreamEnded
	}
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF")))
	if len(line) == 0 {
		return nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return errors.New("agent process wrote a line that is no JSON-RPC message")
	}
	if isNull(m.ID) {
		m.ID = nil
	}
	switch {
	case m.Method != "":
		c.serve(request{id: m.ID, method: m.Method, params: m.Params})
	case m.ID != nil:
		c.answered(m.ID, reply{result: m.Result, err: problem(m.Error)})
	case !isNull(m.Error):
		return fmt.Errorf("agent process reports: %w", problem(m.Error))
	default:
		return errors.New("agent process wrote a message that neither asks nor answers")
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// A rejection is an error that the program answers with.
type rejection struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// maxRejection bounds the text of a rejection, in bytes.
const maxRejection = 1 << 10

// Error returns what the program says, with its details if it gives any in words.
func (e *rejection) Error() string {
	text, details := cmp.Or(e.Message, "error "+strconv.Itoa(e.Code)), ""
	switch data := e.Data.(type) {
	case string:
		details = data
	case map[string]any:
		for _, key := range []string{"details", "message", "error"} {
			if s, ok := data[key].(string); ok && details == "" {
				details = s
			}
		}
	}
	if details != "" && details != text {
		text += ": " + details
	}
	return head(text, maxRejection)
}

// problem decodes the error of a response, nil if it has none.
func problem(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	e := &rejection{}
	if decode(raw, e) != nil {
		e.Message = "an error that cannot be read"
	}
	return e
}

// overlong deals with a message that was too long to be kept, so that nobody
// waits for it.
func (c *conn) overlong(long *longLine) error {
	id, method := sniff(long.head)
	err := fmt.Errorf("agent process wrote a message that is too long: %w", long)
	switch {
	case id != nil && method != "":
		c.refuse(id, acp.NewInvalidRequest(long.Error()))
	case id != nil:
		c.answered(id, reply{err: err})
	case method == "":
		c.kill(fmt.Errorf("agent process killed: %w", err))
	}
	return err
}

// answered hands over what came of a call. An answer that nobody waits for is
// dropped: its call was given up.
func (c *conn) answered(id json.RawMessage, r reply) {
	n, err := strconv.ParseInt(strings.Trim(string(id), `"`), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	wait, ok := c.waiting[n]
	delete(c.waiting, n)
	c.mu.Unlock()
	if !ok {
		return
	}
	if wait.first != nil {
		wait.first()
	}
	wait.reply <- r
}

// close ends every call that still waits.
func (c *conn) close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = cause
	for id, wait := range c.waiting {
		delete(c.waiting, id)
		wait.reply <- reply{err: cause}
	}
}

// ask makes a call. The channel gets its one reply, after the reader has called
// first unless that is nil; forget gives the call up.
func (c *conn) ask(method string, params any, first func()) (wait <-chan reply, forget func(), err error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	if c.down != nil {
		err = c.down
	} else {
		c.waiting[id] = waiter{ch, first}
	}
	c.mu.Unlock()
	forget = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}
	if err == nil {
		err = c.write(message{ID: strconv.AppendInt(nil, id, 10), Method: method}, params, nil)
	}
	if err != nil {
		forget()
		return nil, nil, err
	}
	return ch, forget, nil
}

// call makes a call and waits for its result, which it decodes leniently: what
// has the wrong type is left out.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	wait, forget, err := c.ask(method, params, nil)
	if err != nil {
		return err
	}
	select {
	case r := <-wait:
		if r.err != nil {
			return r.err
		}
		return decode(r.result, result)
	case <-ctx.Done():
		forget()
		return context.Cause(ctx)
	}
}

// notify tells the program something.
func (c *conn) notify(method string, params any) error {
	return c.write(message{Method: method}, params, nil)
}

// answer answers a request of the program.
func (c *conn) answer(id json.RawMessage, result any) error {
	return c.write(message{ID: id}, nil, result)
}

// refuse answers a request with an error.
func (c *conn) refuse(id json.RawMessage, e *acp.RequestError) {
	raw, err := json.Marshal(e)
	if err == nil {
		err = c.write(message{ID: id, Error: raw}, nil, nil)
	}
	if err != nil {
		c.fault(fmt.Errorf("refuse a request of the agent: %w", err))
	}
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
	return c.send(append(line, '\n'))
}

// decode decodes JSON of the program into v. Values of the wrong type are left
// out: an agent newer or looser than the schema is still understood.
func decode(raw json.RawMessage, v any) error {
	if isNull(raw) {
		return nil
	}
	err := json.Unmarshal(raw, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}
