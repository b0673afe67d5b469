package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
)

// A Peer is one client played by a scenario. Everything it received stays in
// log; expectations look at the log from pos on, so that reading ahead for one
// purpose loses nothing for another.
//
// All fields but in belong to the scenario's goroutine.
type Peer struct {
	s    *Session
	name string // in the exchange, and as client_info.name
	link Link

	stream *events // the link, if it is a stream over HTTP; else nil

	// Filled by the reader goroutine, which ends with the link. It holds
	// maxWaiting texts; then the server is no longer read from.
	in     chan arrival
	cancel context.CancelFunc
	reader chan struct{} // closed when the reader has ended; nil if it never ran
	gate   chan struct{} // 1-buffered; the reader goes on only while the token is in it

	log     []*Frame
	pos     int   // log[:pos] has been used by expectations
	ended   error // why the link ended, once it was seen
	stalled bool  // the gate's token is with us

	sent  int // texts sent: the ordinal of the last one on this link
	watch watch

	refusing string // rule that a hello_ok breaks, whatever its shape; empty for none

	// From ws.attached; empty on stdio. A stream over HTTP has the epoch. That of a
	// Caller also has its connection, and that of a pilot the answer to its subscription.
	connection, token, epoch string
	attached                 map[string]any
}

// maxWaiting is more than any scenario leaves unread on purpose.
const maxWaiting = 8192

// An arrival is one text, or the end of the link.
type arrival struct {
	at   time.Duration
	text []byte
	err  error
}

// A Frame is one text from the server, taken apart.
type Frame struct {
	Kind   string         // message on stdio; on sockets the envelope or control type
	Type   string         // a message's own type, else Kind
	Cursor int64          // of messages, snapshots, resets and heartbeats on sockets
	Fields map[string]any // the message, the snapshot, or the control frame
	Body   map[string]any // the whole text
	Raw    []byte
	At     time.Duration
	Event  *Event // what surrounded it on an event stream; else nil
}

// newPeer takes charge of a link. It reads nothing until read is called.
func (s *Session) newPeer(name string, link Link) *Peer {
	p := &Peer{s: s, name: name, link: link, in: make(chan arrival, maxWaiting), cancel: func() {}, gate: make(chan struct{}, 1)}
	p.gate <- struct{}{}
	p.watch.init()
	p.watch.complete = !s.socket()
	s.peers = append(s.peers, p)
	return p
}

// read starts taking texts from the link.
func (p *Peer) read() {
	if p.reader != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.s.ctx)
	p.cancel, p.reader = cancel, make(chan struct{})
	go func() { // ends when the link does; close waits for it
		defer close(p.reader)
		for {
			select {
			case <-p.gate:
				p.gate <- struct{}{}
			case <-ctx.Done():
				return
			}
			text, err := p.link.Recv(ctx)
			a := arrival{p.s.now(), text, err}
			switch {
			case err == nil:
				p.s.trace.add(a.at, p.name, "<", text)
			case ctx.Err() != nil:
				p.s.trace.add(a.at, p.name, "<", []byte("(the suite closed it)"))
			default:
				p.s.trace.add(a.at, p.name, "<", []byte("("+err.Error()+")"))
			}
			select {
			case p.in <- a:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
}

// stall makes the peer a client that stops reading, but for the one text its
// reader may be waiting for already.
func (p *Peer) stall() {
	<-p.gate
	p.stalled = true
}

func (p *Peer) resumeReading() {
	if p.stalled {
		p.stalled = false
		p.gate <- struct{}{}
	}
}

func (p *Peer) close() {
	p.resumeReading()
	p.cancel()
	_ = p.link.Close() // a link that is already gone is what we want
	if p.reader != nil {
		<-p.reader
	}
}

// within bounds a wait by d and by the scenario's own time.
func (s *Session) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, d)
}

// drain takes what has arrived without waiting.
func (p *Peer) drain() {
	for p.ended == nil {
		select {
		case a := <-p.in:
			p.take(a)
		default:
			return
		}
	}
}

// pull waits for one more text, until ctx ends. It reports false when none came
// or the link has ended.
func (p *Peer) pull(ctx context.Context) bool {
	if p.ended != nil {
		return false
	}
	p.read()
	select {
	case a := <-p.in:
		p.take(a)
		return p.ended == nil
	case <-ctx.Done():
	}
	return false
}

// take files one arrival after holding it against shapes and invariants.
func (p *Peer) take(a arrival) {
	if a.err != nil {
		p.ended = a.err
		p.watch.end(p, a.err)
		return
	}
	f := p.parse(a)
	p.log = append(p.log, f)
	p.watch.observe(p, f)
}

// parse takes a text apart and checks it against the closed shapes.
func (p *Peer) parse(a arrival) *Frame {
	if p.stream != nil {
		return p.parseStream(a)
	}
	f := &Frame{Body: p.object(a.text), Raw: a.text, At: a.at}
	if p.refusing != "" {
		said, enveloped := f.Body["message"].(map[string]any)
		if !enveloped {
			said = f.Body
		}
		p.s.failIf(said["type"] == "hello_ok", p.refusing, "%s: expected a refusal, got %s", p.name, f.said())
	}
	if p.s.socket() || f.Body["type"] == "history" { // a page has its envelope on stdio too
		p.unwrap(f)
		return f
	}
	p.s.checkShape("R15", "a message", shape.Event(f.Body, p.s.config.Profile), f.said())
	f.Kind, f.Fields = "message", f.Body
	f.Type, _ = f.Body["type"].(string)
	return f
}

// object parses a text that must be one JSON object.
func (p *Peer) object(text []byte) map[string]any {
	rule := "R1"
	if p.s.socket() {
		rule = "A47"
	}
	v, err := shape.Parse(text)
	body, isObject := v.(map[string]any)
	if err != nil || !isObject {
		p.s.fail(rule, "expected one JSON object, got %s (%v)", abridge(text, 120), err)
	}
	return body
}

// unwrap fills in the parts of a frame on a socket.
func (p *Peer) unwrap(f *Frame) {
	p.s.checkShape("A47", "a frame", shape.Frame(f.Body, p.s.config.Profile), f.said())
	f.Kind, _ = f.Body["type"].(string)
	f.Type, f.Fields = f.Kind, f.Body
	switch f.Kind {
	case "message":
		f.Fields = f.Body["message"].(map[string]any) // the shape was checked
		f.Type = f.Fields["type"].(string)
		f.Cursor = number(f.Body["cursor"])
	case "snapshot", "reset":
		f.Fields = f.Body["snapshot"].(map[string]any)
		f.Cursor = number(f.Fields["cursor"])
	case "heartbeat":
		f.Cursor = number(f.Body["cursor"])
	}
}

// send sends one text as it is. A text that can no longer be sent shows in the
// exchange; why the link ended is learned by reading.
func (p *Peer) send(text []byte) { p.sendBy(p.link.Send, text) }

// sendRaw sends bytes that are not a text of the protocol.
func (p *Peer) sendRaw(data []byte) { p.sendBy(p.link.SendRaw, data) }

func (p *Peer) sendBy(send func(context.Context, []byte) error, data []byte) {
	p.sent++
	p.s.trace.add(p.s.now(), p.name, ">", data)
	if err := send(p.s.ctx, data); err != nil {
		p.s.trace.add(p.s.now(), p.name, ">", []byte("("+err.Error()+")"))
	}
}

// frame sends a control frame with a fresh id and returns the id.
func (p *Peer) frame(kind string, fields map[string]any) string {
	p.s.ids++
	id := p.name + "-" + strconv.Itoa(p.s.ids)
	body := map[string]any{"type": kind, "id": id}
	maps.Copy(body, fields)
	if kind != "ws.ping" {
		p.watch.await(id, p.sent+1)
	}
	p.send(encode(body))
	return id
}

// command sends a message: bare on stdio, in a ws.send on sockets, whose id it
// returns.
func (p *Peer) command(cmd contracts.Command) string { return p.commandText(encodeCommand(cmd)) }

// commandText is command for a message that no type of ours can express.
func (p *Peer) commandText(text []byte) string {
	if p.s.socket() {
		return p.frame("ws.send", map[string]any{"message": json.RawMessage(text)})
	}
	p.send(text)
	return ""
}

// fence waits until the server has dealt with everything sent so far and we
// have read what it said about that.
func (p *Peer) fence() {
	from := len(p.log)
	if p.s.socket() {
		id := p.frame("ws.ping", nil)
		p.await("9.2", from, control("ws.pong").with("id", id))
		return
	}
	p.send([]byte(`{"type":"conformance_fence"}`))
	p.await("R6", from, message("error").with("message", textUnknownType))
}

// answersFence reports whether the frame is what a fence waits for.
func (f *Frame) answersFence() bool {
	return f.Kind == "ws.pong" || f.Type == "error" && f.str("message") == textUnknownType
}

// encode renders a value that is made here and therefore can be rendered.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("conformance: encode %T: %v", v, err))
	}
	return text
}

// encodeCommand renders a message with its type key first.
func encodeCommand(cmd contracts.Command) []byte {
	head := `{"type":` + strconv.Quote(cmd.CommandType())
	body := encode(cmd)
	if len(body) > len(`{}`) {
		head += ","
	}
	return append([]byte(head), body[1:]...)
}

// number returns a JSON number as an integer; shapes were checked before.
func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

// numberOf returns a JSON number, or -1.
func numberOf(v any) int64 {
	if v == nil {
		return -1
	}
	return number(v)
}

// closeCode returns the close code that ended the link, or 0 if it ended in
// another way or not at all.
func (p *Peer) closeCode() int {
	if closed, ok := errors.AsType[*Closed](p.ended); ok {
		return closed.Code
	}
	return 0
}
