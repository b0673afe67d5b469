package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	maxReads     = 20                    // envelopes read while waiting for one
	patience     = 10 * time.Second      // for one envelope
	probeFor     = 50 * time.Millisecond // how long a replay may take to arrive
	maxEventLine = 16 << 20              // bytes
	maxWaiting   = 4096                  // envelopes not yet looked at; then no more are read
)

// An item is one envelope of a stream, or the end.
type item struct {
	text []byte
	err  error
}

// A stream is an open event stream. Its goroutine ends when it is closed.
type stream struct {
	s      *stage
	stop   context.CancelFunc
	items  chan item // closed when the reader has ended
	held   []object  // to be read before items
	number int       // in the trace
}

// open opens an event stream. Without a cursor, the state as of now comes
// first, as a snapshot.
func (s *stage) open(cursor *int64) *stream {
	path := route("events")
	var held []object
	if cursor == nil {
		held = []object{{"type": "snapshot", "snapshot": map[string]any(s.state())}}
	} else {
		path += "?cursor=" + strconv.FormatInt(*cursor, 10)
	}
	ctx, stop := context.WithCancel(s.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		stop()
		s.fail("GET %s: %w", path, err)
	}
	req.Header.Set("Accept", "text/event-stream")
	t := &stream{s: s, stop: stop, items: make(chan item, maxWaiting), held: held, number: len(s.streams) + 1}
	s.trace.add("> GET %s (stream %d)", path, t.number)
	resp, err := s.client.Do(req)
	if err != nil {
		stop()
		s.fail("GET %s: %w", path, err)
	}
	s.streams = append(s.streams, t)
	go t.read(ctx, resp.Body) // ends with the stream, or with ctx, which closing ends
	s.want(resp.StatusCode == http.StatusOK, "GET %s: got status %d, want 200", path, resp.StatusCode)
	return t
}

// read passes the stream on, event by event.
func (t *stream) read(ctx context.Context, body io.ReadCloser) {
	defer close(t.items)
	defer func() { _ = body.Close() }()
	err := eachEvent(body, func(data []byte) bool {
		t.s.trace.add("< (stream %d) %s", t.number, data)
		select {
		case t.items <- item{text: data}:
			return true
		case <-ctx.Done():
			return false
		}
	})
	if err == nil {
		err = io.EOF
	}
	t.s.trace.add("< (stream %d) ended: %v", t.number, err)
	select {
	case t.items <- item{err: err}:
	case <-ctx.Done():
	}
}

// eachEvent splits an event stream on blank lines and hands on the joined data
// lines of each event that has some, until f returns false or the stream ends.
// Other fields and comments mean nothing here.
func eachEvent(r io.Reader, f func(data []byte) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEventLine)
	var data []byte
	has := false
	for lines.Scan() {
		line := lines.Bytes() // without a carriage return at its end
		if len(line) == 0 {
			if has && !f(data) {
				return nil
			}
			data, has = nil, false
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
		}
	}
	return lines.Err()
}

// next returns the next envelope, after holding it against its schema.
func (t *stream) next(what string) object {
	if len(t.held) > 0 {
		first := t.held[0]
		t.held = t.held[1:]
		return first
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case i, ok := <-t.items:
		if !ok {
			i.err = errors.New("the stream has been closed")
		}
		return t.envelope(i, what)
	case <-late.C:
	case <-t.s.ctx.Done():
	}
	t.s.fail("waited for %s on stream %d, but nothing came", what, t.number)
	return nil
}

func (t *stream) envelope(i item, what string) object {
	if i.err != nil {
		t.s.fail("waited for %s on stream %d, but it ended: %w", what, t.number, i.err)
	}
	o, err := parse(i.text)
	if err != nil {
		t.s.fail("an event of stream %d is no JSON object: %w", t.number, err)
	}
	t.s.valid("an envelope", envelope, o)
	return o
}

// find reads on to the envelope that f describes.
func (t *stream) find(what string, f func(object) bool) object {
	for range maxReads {
		if o := t.next(what); f(o) {
			return o
		}
	}
	t.s.fail("read %d envelopes on stream %d, none of them %s", maxReads, t.number, what)
	return nil
}

// message reads on to a message of a type, with given fields, and returns it
// with its envelope's cursor.
func (t *stream) message(kind string, with object) (object, int64) {
	o := t.find("message "+kind, func(o object) bool { return isMessage(o, kind, with) })
	m, _ := o.at("message").(map[string]any)
	return m, o.number("cursor")
}

// isMessage reports whether an envelope carries such a message.
func isMessage(o object, kind string, with object) bool {
	if o.str("type") != "message" || o.str("message", "type") != kind {
		return false
	}
	for key, value := range with {
		if o.at("message", key) != value {
			return false
		}
	}
	return true
}

// probe returns what the runner replays after a cursor. It waits no longer
// than a replay may take.
func (s *stage) probe(cursor int64) []object {
	t := s.open(&cursor)
	over := time.NewTimer(probeFor)
	defer over.Stop()
	select {
	case <-over.C:
	case <-s.ctx.Done():
	}
	arrived := len(t.items)
	var envelopes []object
	for range arrived {
		envelopes = append(envelopes, t.envelope(<-t.items, "a replay"))
	}
	t.close()
	return envelopes
}

// close ends the stream and waits for its reader.
func (t *stream) close() {
	t.stop()
	for range t.items {
	}
}

func (s *stage) closeStreams() {
	for _, t := range s.streams {
		t.close()
	}
	s.streams = nil
}
