package foreign

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// Options configure [Serve].
type Options struct {
	Translator dialect.Translator

	// Open opens a session for the client.
	Open func(ctx context.Context, start dialect.Start) (Attach, error)

	// Pings says that the client answers the pings that conn's form appends as
	// heartbeats. A client that is silent for three heartbeat intervals is then closed.
	Pings bool

	// Handshake is how long a client may be without a session, as before its first one;
	// zero means for ever.
	Handshake time.Duration

	Log *slog.Logger // of panics; nil discards it
}

// An Attach attaches a client to an open session. It returns when the attachment has
// ended, at the latest soon after conn or ctx has ended.
type Attach func(ctx context.Context, conn *Port) error

// Limits of the lines in bytes that the client has not read.
const (
	pauseEvents = 256 << 10         // at more, the session's events wait
	pauseInput  = 2 * pauseEvents   // at more, the client's lines are not read
	maxUnread   = 128 * pauseEvents // at more, the connection ends: the translator writes more by itself
)

const (
	maxQueued   = 64              // frames that the session has not read; at more, the client's lines are not read
	readTime    = time.Minute     // for one write, after the client's input has ended
	goodbyeTime = 5 * time.Second // for the last lines
)

// Serve serves the client on conn until the translator ends the connection, conn fails
// or ctx ends. Each frame is one line of the client's protocol. Serve owns conn. code is the translator's exit code; err says why the
// connection ended otherwise. All goroutines have ended when Serve returns, except one
// of a conn whose ReadFrame Close does not unblock.
func Serve(ctx context.Context, conn contracts.Conn, o Options) (code int, err error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &client{conn: conn, options: o, ctx: ctx, done: make(chan struct{})}
	c.changed.L = &c.mu
	defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()
	if o.Handshake > 0 {
		c.handshake = time.AfterFunc(o.Handshake, func() { c.fail(errNoSession) })
		defer c.handshake.Stop()
	}
	c.step(dialect.Translator.Begin)
	c.work.Go(c.read)  // ends with the input, at the latest when conn is closed
	c.work.Go(c.write) // ends with the connection
	<-c.done
	closeIn := goodbyeTime
	if c.err != nil || ctx.Err() != nil {
		closeIn = 0
	}
	defer time.AfterFunc(closeIn, func() { conn.Close(nil) }).Stop() // a write may wait for a client that does not read
	cancel()
	c.work.Wait()
	c.timer.stop()
	c.slow.stop()
	return c.code, c.err
}

// A client is one connection. Its translator and all it decides are guarded by mu.
type client struct {
	conn    contracts.Conn
	options Options
	ctx     context.Context
	work    sync.WaitGroup
	done    chan struct{} // closed when ended is set

	mu      sync.Mutex
	changed sync.Cond   // of everything below
	out     dialect.Out // owned by the translator while it runs
	unread  []byte      // lines for the client, encoded by conn's form
	port    *Port       // of the session that was opened last, or nil
	timer   alarm
	eof     bool  // the client sends no more
	writing bool  // lines are being written
	slow    alarm // ends a write that takes readTime after eof
	ended   bool
	code    int
	err     error

	reason    *contracts.Error // why the session has ended; nil if that is unknown
	handshake *time.Timer      // ends a client without a session; nil if it may stay
}

// step calls the translator once and does what it decided.
func (c *client) step(call func(t dialect.Translator, out *dialect.Out)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepLocked(call)
}

func (c *client) stepLocked(call func(t dialect.Translator, out *dialect.Out)) {
	if c.ended {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.options.Log.Error("translator panicked", "panic", p, "stack", string(debug.Stack()))
			c.end(1, fmt.Errorf("translator panicked: %v", p))
		}
	}()
	c.out.Now = time.Now()
	call(c.options.Translator, &c.out)
	d := c.out.Take()
	for _, l := range d.Lines {
		c.unread = c.conn.Form().AppendControl(c.unread, l)
	}
	if d.Start != nil {
		c.open(*d.Start)
	}
	if c.port != nil {
		c.port.queue = append(c.port.queue, d.Frames...)
	}
	c.timer.set(d.Wake, c.wake)
	c.changed.Broadcast()
	switch {
	case d.Ended:
		c.end(d.Code, nil)
	case len(c.unread) > maxUnread:
		c.unread = nil
		c.end(1, errUnread)
	}
}

var (
	errUnread    = errors.New("the client does not read")
	errNoSession = errors.New("the client has asked for no session")
)

func (c *client) wake() { c.step(dialect.Translator.Wake) }

// limitWrite limits the write in progress, if the client sends no more: such a client may
// have gone although the other end of its output is open.
func (c *client) limitWrite() {
	var end time.Time
	if c.writing && c.eof {
		end = time.Now().Add(readTime)
	}
	c.slow.set(end, func() {
		c.mu.Lock()
		late := !c.slow.at.IsZero() && !time.Now().Before(c.slow.at)
		c.mu.Unlock()
		if late {
			c.fail(errUnread)
		}
	})
}

// open leaves the present session and opens another one.
func (c *client) open(start dialect.Start) {
	if c.port != nil {
		c.port.close()
	}
	if c.handshake != nil {
		c.handshake.Stop()
	}
	c.reason = nil
	before, port := c.port, &Port{client: c, detached: make(chan struct{})}
	c.port = port
	c.work.Go(func() { // ends with the attachment, which ends with the port
		defer close(port.detached)
		if before != nil {
			<-before.detached // the client has left it before it gets another
		}
		attach, err := c.options.Open(c.ctx, start)
		if err == nil {
			err = attach(c.ctx, port)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if port.reason != nil {
			err = port.reason
		}
		port.close()
		if c.port == port && !c.ended {
			c.reason, _ = errors.AsType[*contracts.Error](err)
			if c.handshake != nil {
				c.handshake.Reset(c.options.Handshake)
			}
			c.stepLocked(func(t dialect.Translator, out *dialect.Out) { t.Detached(out, err) })
		}
	})
}

// fail ends the connection because of err, without waiting for the client to read.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended { // else the last lines are still being written
		c.unread = nil
	}
	c.end(1, err)
}

// end ends the connection once the client has read what it was sent.
func (c *client) end(code int, err error) {
	if c.ended {
		return
	}
	c.ended, c.code, c.err = true, code, err
	if c.port != nil {
		c.port.close()
	}
	close(c.done)
	c.changed.Broadcast()
}

// read reads the client's lines.
func (c *client) read() {
	for {
		text, err := c.conn.ReadFrame()
		_, long := errors.AsType[*contracts.Error](err)
		switch {
		case err == nil:
			c.step(func(t dialect.Translator, out *dialect.Out) { t.Line(out, text) })
		case long:
			c.step(dialect.Translator.LongLine)
		case errors.Is(err, io.EOF):
			c.step(func(t dialect.Translator, out *dialect.Out) {
				c.eof = true
				c.limitWrite()
				t.EOF(out)
			})
			return
		default:
			c.fail(err)
			return
		}
		if !c.awaitRoom() {
			return
		}
	}
}

// awaitRoom waits until the client has read its answers and the session its frames. It
// returns false if the connection has ended.
func (c *client) awaitRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ended && (len(c.unread) > pauseInput || c.port != nil && len(c.port.queue) > maxQueued) {
		c.changed.Wait()
	}
	return !c.ended
}

// write writes the client's lines, and closes conn in the end.
func (c *client) write() {
	defer func() {
		c.mu.Lock()
		reason := c.reason
		c.mu.Unlock()
		c.conn.Close(reason)
	}()
	var unwritten []byte
	for {
		c.mu.Lock()
		c.writing = false
		c.limitWrite()
		for len(c.unread) == 0 && !c.ended {
			c.changed.Wait()
		}
		last := c.ended
		unwritten, c.unread = c.unread, unwritten[:0]
		c.changed.Broadcast()
		c.writing = len(unwritten) > 0
		c.limitWrite()
		c.mu.Unlock()
		if len(unwritten) > 0 {
			if err := c.conn.Write(unwritten); err != nil {
				c.fail(err)
				return
			}
		}
		if last {
			return
		}
		if cap(unwritten) > pauseEvents {
			unwritten = nil
		}
	}
}

// A Port is the client's side of one attachment to a session: what the session writes
// is translated, and what the translator decides is read. It implements the Conn of
// package hub.
type Port struct {
	client   *client
	detached chan struct{} // closed when the session no longer uses the port

	// Guarded by client.mu.
	queue   [][]byte
	closed  bool
	saidBye bool             // the session has read ws.bye
	reason  *contracts.Error // given to Close
}

// Form returns the form of all ports.
func (p *Port) Form() contracts.Form { return form{} }

var bye = []byte(`{"type":"ws.bye"}`)

// ReadFrame returns the next frame for the session.
func (p *Port) ReadFrame() ([]byte, error) {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p.queue) == 0 && !p.closed {
		c.changed.Wait()
	}
	switch {
	case len(p.queue) > 0:
		next := p.queue[0]
		p.queue = p.queue[1:]
		c.changed.Broadcast()
		return next, nil
	case !p.saidBye:
		p.saidBye = true
		return bye, nil
	}
	return nil, io.EOF
}

// Write translates frames of the session. It waits while the client has too much to
// read.
func (p *Port) Write(frames []byte) error {
	for text := range bytes.Lines(frames) {
		var decoder contracts.Decoder
		frame, err := decoder.ServerFrame(text)
		if err != nil {
			return fmt.Errorf("read a frame of the session: %w", err)
		}
		var ev contracts.Event
		if m, ok := frame.(*contracts.MessageEnvelope); ok {
			if ev, err = decoder.Event(m.Message); err != nil {
				return fmt.Errorf("read an event of the session: %w", err)
			}
		}
		if !p.translate(frame, ev) {
			return net.ErrClosed
		}
	}
	return nil
}

func (p *Port) translate(frame contracts.Frame, ev contracts.Event) bool {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unread) > pauseEvents && !p.closed {
		c.changed.Wait()
	}
	if p.closed {
		return false
	}
	if _, ok := frame.(*contracts.HeartbeatEnvelope); ok {
		c.unread = c.conn.Form().AppendHeartbeat(c.unread, 0, true)
		c.changed.Broadcast()
		return true
	}
	c.stepLocked(func(t dialect.Translator, out *dialect.Out) { t.Frame(out, frame, ev) })
	return !p.closed
}

// LastSeen returns when the client was last seen. One that need not send anything is
// seen as long as it is connected.
func (p *Port) LastSeen() time.Time {
	if p.client.options.Pings {
		return p.client.conn.LastSeen()
	}
	return time.Now()
}

// Close ends the attachment. Only the reason of the first call counts.
func (p *Port) Close(reason *contracts.Error) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if !p.closed {
		p.reason = reason
	}
	p.close()
}

func (p *Port) close() {
	p.closed = true
	p.client.changed.Broadcast()
}

// An alarm calls a function at one time.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// set replaces the time; the zero time means never. A call for an earlier time may still
// come.
func (a *alarm) set(at time.Time, call func()) {
	if at.Equal(a.at) {
		return
	}
	a.stop()
	if a.at = at; !at.IsZero() {
		a.timer = time.AfterFunc(time.Until(at), call)
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
