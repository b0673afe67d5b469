package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// events is a link to a stream of server-sent events. Its texts are whole
// events, as they came: the lines up to a blank one.
type events struct {
	header http.Header
	body   io.ReadCloser
	lines  *bufio.Reader
	end    func() // drops the connection
}

// errOneWay is what sending on an event stream returns.
var errOneWay = errors.New("an event stream only goes one way")

func (*events) Send(context.Context, []byte) error    { return errOneWay }
func (*events) SendRaw(context.Context, []byte) error { return errOneWay }
func (*events) Wait(context.Context) (int, error)     { return 0, errNoProcess }
func (*events) Diagnostics() string                   { return "" }

// Recv returns the next event; io.EOF when the server ended the stream after a
// whole one. It does not look at ctx: Close ends the wait.
func (e *events) Recv(context.Context) ([]byte, error) {
	var event []byte
	for {
		line, err := e.lines.ReadSlice('\n')
		event = append(event, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(event) > 0:
			return nil, fmt.Errorf("the stream ends in the middle of an event: %q", abridge(event, 80))
		case err != nil:
			return nil, err
		case len(event) > maxServerFrame:
			return nil, fmt.Errorf("an event longer than %d bytes", maxServerFrame)
		case bytes.HasSuffix(event, []byte("\n\n")) || bytes.HasSuffix(event, []byte("\n\r\n")) || len(event) <= 2:
			if event = bytes.TrimRight(event, "\r\n"); len(event) > 0 {
				return event, nil
			}
		}
	}
}

func (e *events) CloseInput() error { return e.Close() }

// Close drops the stream.
func (e *events) Close() error {
	err := e.body.Close()
	e.end()
	return err
}

// An Event is what surrounds the data of a server-sent event.
type Event struct {
	ID       string
	Retry    string
	Name     string // of the event field
	Comments []string
	Data     []string // one for each data line
	Unknown  []string // lines of other fields
}

func parseEvent(text []byte) *Event {
	e := &Event{}
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			e.Comments = append(e.Comments, value)
		case "id":
			e.ID = value
		case "retry":
			e.Retry = value
		case "event":
			e.Name = value
		case "data":
			e.Data = append(e.Data, value)
		default:
			e.Unknown = append(e.Unknown, line)
		}
	}
	return e
}

// Kinds of frames that are events without data.
const (
	kindComment = "sse.comment"
	kindRetry   = "sse.retry"
)

// parseStream takes an event apart into a frame and checks its framing (1.11).
func (p *Peer) parseStream(a arrival) *Frame {
	e := parseEvent(a.text)
	f := &Frame{Raw: a.text, At: a.at, Event: e, Fields: map[string]any{}, Body: map[string]any{}}
	p.s.adviseIf(len(e.Unknown) > 0 || len(e.Data) > 1 || len(e.Data) == 1 && e.Name != "", "1.11:framing",
		"%s: expected an envelope to be one data line of the default event, got %q", p.name, abridge(a.text, maxTraceText))
	switch {
	case len(e.Data) > 0:
		f.Body = p.object([]byte(strings.Join(e.Data, "\n")))
		p.unwrap(f)
		p.identified(f)
	case e.Retry != "":
		f.Kind, f.Type = kindRetry, kindRetry
	default:
		f.Kind, f.Type = kindComment, kindComment
	}
	return f
}

// identified checks the id of an event: the place in the journal, where it has
// one of its own.
func (p *Peer) identified(f *Frame) {
	want := p.epoch + "." + strconv.FormatInt(f.Cursor, 10)
	if f.Kind == "heartbeat" || f.Kind == "history" {
		want = ""
	}
	p.s.failIf(strings.HasPrefix(f.Kind, "ws."), "A47", "%s: %s is no envelope of an event stream", p.name, f.Kind)
	p.s.adviseIf(f.Event.ID != want, "1.11:ids",
		"%s: expected the id %q on this %s, got %q", p.name, want, f.Kind, f.Event.ID)
}

// A follow is how a client opens an event stream. Its zero value is a stream
// without a cursor, which begins with a snapshot.
type follow struct {
	session      string // empty means the scenario's own
	subscription string // in the query
	cursor       *int64
	epoch        string
	optOuts      []string
	silent       bool // optOuts are known already: they are not in the query
	header       http.Header
	raw          bool // raw events were negotiated
	turns        int  // of history after the snapshot
	people       bool // people was negotiated
}

func (o *follow) request(s *Session, name string) request {
	query := parameters(map[string]string{"subscriptionId": o.subscription, "epoch": o.epoch}, o.cursor, o.turns)
	if o.optOuts != nil && !o.silent {
		query.Set("optOutNotifications", strings.Join(o.optOuts, ","))
	}
	path := routeOf(cmp.Or(o.session, s.ID), "events")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	h := http.Header{"Accept": {"text/event-stream"}}
	maps.Copy(h, o.header)
	return request{who: name, method: http.MethodGet, path: path, header: h}
}

func (s *Session) follow(name string, o follow) *Peer {
	p, a := s.tryFollow(o.request(s, name), o)
	if p == nil {
		s.fail("1.11", "%s: expected a stream, got %s", name, a.said())
	}
	return p
}

// tryFollow opens an event stream unless the server refuses to; then it returns
// the refusal.
func (s *Session) tryFollow(r request, o follow) (*Peer, *Answer) {
	for try := 1; ; try++ {
		p, a := s.tryFollowOnce(r, o)
		if p != nil || a.Status != http.StatusTooManyRequests || try == maxTries {
			return p, a
		}
		s.pause("A74", a.comeBack())
	}
}

func (s *Session) tryFollowOnce(r request, o follow) (*Peer, *Answer) {
	s.trace.add(s.now(), r.who, ">", []byte(r.method+" "+r.path+summary(r.header)))
	ctx, cancel := context.WithCancel(s.ctx)
	overdue := time.AfterFunc(2*s.config.Patience, cancel)
	own := newWire(s.wire.base, s.wire.token)
	end := func() { cancel(); own.close() }
	resp, err := own.open(ctx, r)
	if !overdue.Stop() || err != nil {
		end()
		s.fail("1.11", "%s: expected an answer to %s, got: %v", r.who, r.path, err)
	}
	s.trace.add(s.now(), r.who, "<", fmt.Appendf(nil, "%d%s", resp.StatusCode, summary(resp.Header)))
	if resp.StatusCode == http.StatusOK {
		link := &events{header: resp.Header, body: resp.Body, lines: bufio.NewReaderSize(resp.Body, 64<<10), end: end}
		return s.streamPeer(r.who, link, o), nil
	}
	defer end()
	a, err := readAnswer(r, resp)
	s.failIf(err != nil, "1.11", "%v", err)
	a.s, a.At = s, s.now()
	s.trace.add(a.At, r.who, "<", a.Raw)
	a.check()
	return nil, a
}

func (s *Session) streamPeer(name string, link *events, o follow) *Peer {
	p := s.newPeer(name, link)
	p.stream = link
	p.watch.optOuts, p.watch.raw, p.watch.people = slices.Clone(o.optOuts), o.raw, o.people
	if o.cursor != nil {
		p.watch.cursor, p.watch.asked = *o.cursor, *o.cursor
	}
	p.epoch = link.header.Get(epochHeader)
	s.adviseIf(p.epoch == "", "1.11:epoch", "%s: expected the header %s on a stream, got none", name, epochHeader)
	got := link.header.Get("Content-Type")
	s.failIf(!strings.HasPrefix(got, "text/event-stream"), "1.11", "%s: expected text/event-stream, got %q", name, got)
	p.read()
	return p
}

// anyItem wants an envelope, as opposed to a comment, a retry or a heartbeat.
var anyItem = anyOf(control("snapshot"), control("reset"), control("message"))

func (p *Peer) first(rule string) *Frame { return p.await(rule, 0, anyItem) }

// begins fails unless the first item of a stream is a snapshot. A published server
// shows what it has kept instead, if anything: then the state takes its place.
func (p *Peer) begins(rule string) *Frame {
	if p.s.published() { // one must come soon: a replay comes at once (A62)
		if f := p.seek(0, anyItem, p.s.openTime()); f == nil || f.Kind != "snapshot" {
			p.s.advise("A42:first", "%s: expected a snapshot first", p.name)
			f = p.s.state()
			p.log, p.pos = slices.Insert(p.log, 0, f), p.pos+1
			return f
		}
	}
	f := p.first(rule)
	p.s.failIf(f.Kind != "snapshot", rule, "%s: expected a snapshot first, got %s", p.name, f.said())
	return f
}

// openTime is how long a client waits for what a published server may leave out.
func (s *Session) openTime() time.Duration { return max(time.Second, s.config.Patience/10) }

// resetTo fails unless the first item of a stream is a reset for a reason.
func (p *Peer) resetTo(rule, reason string) *Frame {
	f := p.first(rule)
	p.s.failIf(f.Kind != "reset" || f.Body["reason"] != reason, rule,
		"%s: expected a reset %q first, got %s", p.name, reason, f.said())
	return f
}

func (p *Peer) finishes(rule string) { p.finishesWithin(rule, p.s.config.Patience) }

func (p *Peer) finishesWithin(rule string, patience time.Duration) {
	p.readAll(patience)
	p.s.failIf(p.ended == nil, rule, "%s: expected the server to end the stream, but it is open after %s", p.name, patience)
	p.s.failIf(!errors.Is(p.ended, io.EOF), rule, "%s: expected the server to end the stream, got: %v", p.name, p.ended)
}

// readAll reads until the link ends, or for so long.
func (p *Peer) readAll(patience time.Duration) {
	ctx, cancel := p.s.within(patience)
	defer cancel()
	for p.pull(ctx) {
	}
}
