package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

// A Message is a request of the peer or, without an ID, a notification.
type Message struct {
	ID     json.RawMessage // a string or a number; nil in a notification
	Method string
	Params json.RawMessage
}

// A Reply is the outcome of a call.
type Reply struct {
	Result json.RawMessage
	Err    error // an *Error if the peer refused, a *BadLine if the answer was not kept, or why the connection ended
}

// Options configures a connection. Send, Serve and Bad are required.
type Options struct {
	// Send writes a line with its end. It is called once at a time; while it
	// blocks, nothing else is sent.
	Send func(line []byte) error

	// Serve handles a message. The reader calls it, so it must not wait for an
	// answer of the peer.
	Serve func(Message)

	// Bad handles a line that is no message. The reader calls it; its error ends
	// the reading.
	Bad func(*BadLine) error

	// Withdraw is the notification that tells the peer that a call was
	// abandoned, with the params {"requestId": id}. If it is empty, the peer is
	// not told.
	Withdraw string

	// MaxBad bounds the bad lines in a row; one more ends the reading. Zero
	// means no bound.
	MaxBad int

	// MaxLine bounds a line read, in bytes without its end. Zero means
	// [contracts.MaxLineBytes]. A longer line is bad and not kept.
	MaxLine int
}

// ErrEnded is the error of a call when the peer's output has ended.
var ErrEnded = errors.New("the output of the other side ended")

// A Conn is a connection. Read is for one goroutine; the other methods may be
// called from any.
type Conn struct {
	opts Options

	sending sync.Mutex // orders the lines sent

	mu      sync.Mutex // guards the following
	last    int64
	waiting map[int64]*Call // bounded by the callers
	down    error           // set when the connection has ended
}

// New returns a connection. Read must be called to receive.
func New(o Options) *Conn {
	if o.MaxLine == 0 {
		o.MaxLine = contracts.MaxLineBytes
	}
	return &Conn{opts: o, waiting: map[int64]*Call{}}
}

// Read processes the peer's messages until its output ends, which is no error,
// or the connection was closed. Then every waiting call has ended.
func (c *Conn) Read(r io.Reader) error {
	return c.ReadTexts(line.NewReader(r, c.opts.MaxLine).Next)
}

// ReadTexts is Read for a peer whose messages are not lines. next returns the next
// message, which is valid until it is called again, or io.EOF at the end.
func (c *Conn) ReadTexts(next func() ([]byte, error)) error {
	defer c.Close(ErrEnded)
	for bad := 0; ; {
		text, err := next()
		var wrong *BadLine
		switch {
		case c.closed() || errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, line.ErrLong):
			wrong = c.overlong(text)
		case err != nil:
			return err
		default:
			wrong = c.take(text)
		}
		if wrong == nil {
			bad = 0
			continue
		}
		text = bytes.TrimSpace(text)
		wrong.Head = string(bytes.ToValidUTF8(text[:min(len(text), maxBeginning)], nil))
		if bad++; c.opts.MaxBad > 0 && bad > c.opts.MaxBad {
			return fmt.Errorf("%d lines in a row are no messages", bad)
		}
		if err := c.opts.Bad(wrong); err != nil {
			return err
		}
	}
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

// take processes one line, and returns it if it is bad.
func (c *Conn) take(line []byte) *BadLine {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF")))
	if len(line) == 0 {
		return nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		code := CodeParse
		if json.Valid(line) {
			code = CodeInvalid
		}
		return &BadLine{Text: "the line is no JSON-RPC message", Code: code}
	}
	if isNull(m.ID) {
		m.ID = nil
	}
	switch {
	case m.ID != nil && !isID(m.ID):
		return &BadLine{Text: "an id is a text or a number", Code: CodeInvalid}
	case m.Method != "":
		c.opts.Serve(Message{ID: m.ID, Method: m.Method, Params: m.Params})
	case m.ID != nil && (c.deliver(m.ID, Reply{Result: m.Result, Err: problem(m.Error)}) || m.Result != nil || m.Error != nil):
	case m.ID == nil && !isNull(m.Error):
		return &BadLine{Text: "the peer reports: " + problem(m.Error).Error()}
	default:
		return &BadLine{Text: "the message neither asks nor answers", Code: CodeInvalid, ID: m.ID}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// overlong handles a line that is too long by its head. If the line is an
// answer, its call gets an error.
func (c *Conn) overlong(head []byte) *BadLine {
	id, asks := sniff(head[:min(len(head), headBytes)])
	wrong := &BadLine{Text: fmt.Sprintf("the message is too long: its line has more than %d bytes", c.opts.MaxLine), Code: CodeInvalid}
	switch {
	case asks && id != nil:
		wrong.ID = id
	case asks: // a notification, or a request whose id comes later in the line
	case id != nil:
		wrong.Code = 0
		c.deliver(id, Reply{Err: wrong})
	default:
		wrong.Lost = true
	}
	return wrong
}

// deliver delivers the outcome of a call, and reports whether a call waits for
// it. Otherwise the outcome is dropped: its call was abandoned or answered
// before.
func (c *Conn) deliver(id json.RawMessage, r Reply) bool {
	n, err := strconv.ParseInt(string(bytes.Trim(id, `"`)), 10, 64)
	if err != nil {
		return false
	}
	c.mu.Lock()
	call := c.waiting[n]
	delete(c.waiting, n)
	c.mu.Unlock()
	if call == nil {
		return false
	}
	if call.first != nil {
		call.first()
	}
	call.Reply <- r
	return true
}

func (c *Conn) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down != nil
}

// Close ends every waiting call with cause, unless the connection has ended
// before. Read returns after the line that it is reading.
func (c *Conn) Close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down == nil {
		c.down = cause
	}
	for id, call := range c.waiting {
		delete(c.waiting, id)
		call.Reply <- Reply{Err: c.down}
	}
}

// headBytes is the size of the beginning of a too long line that is checked for
// its kind.
const headBytes = 4 << 10

// maxBeginning bounds the shown part of a bad line, in bytes.
const maxBeginning = 80

// sniff returns the id of a message that begins with head, and whether it has a
// method, as far as head contains them.
func sniff(head []byte) (id json.RawMessage, asks bool) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for {
		key, err := dec.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		switch key {
		case "id":
			id = value
		case "method":
			asks = true
		}
	}
	if !isID(id) {
		id = nil
	}
	return id, asks
}

// isID reports whether a value is a valid request id.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
