package hecate

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// Bounds of what a client reads.
const (
	maxAnswer = 64 << 20 // bytes of a body
	maxLine   = 16 << 20 // bytes of a line of a stream
)

// A wire is the way to a server. It is safe for concurrent use.
type wire struct{ conformance.Wire }

// An answer is a response with its body.
type answer struct {
	what   string // the request
	status int
	header http.Header
	body   []byte
}

func (w *wire) do(ctx context.Context, method, path string, header http.Header, body []byte) (*answer, error) {
	resp, err := w.Open(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the body of %s %s: %w", method, path, err)
	}
	return &answer{method + " " + path, resp.StatusCode, resp.Header, text}, nil
}

// reach returns an error if the server does not answer or refuses the credential.
func (w *wire) reach(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a, err := w.do(ctx, http.MethodGet, feedList+"?limit=1", acceptList, nil)
	if err == nil && a.status == http.StatusUnauthorized {
		err = fmt.Errorf("the credential is refused: %s", short(a.body))
	}
	return err
}

// The paths of the protocol.
const (
	feedList   = "/hecate/v1/events"
	feedStream = "/hecate/v1/events/stream"
)

func (r ref) path() string { return "/hecate/v1/tasks/" + r.task + "/runs/" + r.run }
func (r ref) url() string  { return r.path() + "/events" }

var (
	acceptList   = http.Header{"Accept": {"application/json"}}
	acceptStream = http.Header{"Accept": {"text/event-stream"}}
)

// A page is the body of a list.
type page struct {
	Object string             `json:"object"`
	Data   *[]json.RawMessage `json:"data"`
	Next   json.Number        `json:"next_after_sequence"`
}

// call sends a request and returns the answer, whatever its status. A server that does not
// answer breaks the rule.
func (s *play) call(rule, method, path string, body []byte) *answer {
	a, err := s.send(method, path, body)
	s.failIf(err != nil, rule, "%s %s: expected an answer, got: %v", method, path, err)
	return a
}

// send is call for any goroutine.
func (s *play) send(method, path string, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*s.config.Patience)
	defer cancel()
	s.note(">", method+" "+path+" "+string(body))
	a, err := s.suite.wire.do(ctx, method, path, acceptList, body)
	if err != nil {
		s.note("<", err.Error())
		return nil, err
	}
	s.note("<", fmt.Sprintf("%d %s", a.status, short(a.body)))
	return a, nil
}

// list returns the elements of a list, and the page.
func (s *play) list(rule, path string) ([]*event, page) {
	a := s.call(rule, http.MethodGet, path, nil)
	s.failIf(a.status != http.StatusOK, rule, "%s: expected 200, got %d %s", a.what, a.status, short(a.body))
	var p page
	err := json.Unmarshal(a.body, &p)
	s.failIf(err != nil, rule, "%s: expected a list, got %v: %s", a.what, err, short(a.body))
	s.failIf(p.Data == nil, "E10", "%s: expected data to be an array, got %s", a.what, short(a.body))
	events := make([]*event, len(*p.Data))
	for i, raw := range *p.Data {
		events[i] = parseEvent(raw)
	}
	return events, p
}

// maxEvents bounds the events that the suite reads of one run, and of all runs it judges.
const maxEvents = 100_000

// whole returns all events of a run after a sequence, in as many pages as the server makes.
func (s *play) whole(rule string, r ref, after int64) []*event {
	var all []*event
	for {
		path := r.url() + "?limit=500"
		if after >= 0 {
			path += fmt.Sprintf("&after_sequence=%d", after)
		}
		events, _ := s.list(rule, path)
		if len(events) == 0 || len(all) > maxEvents {
			return all
		}
		last := events[len(events)-1].sequence
		s.failIf(last <= after, "E8", "%s after %d: expected greater sequences, got %s", r.url(), after, events[len(events)-1])
		all, after = append(all, events...), last
	}
}

// A frame is one event of a stream, or one comment.
type frame struct {
	id      string
	name    string // of an event: line
	data    string
	comment bool
}

// A stream is a stream of events being read. A goroutine reads it; the stream's context ends that.
type stream struct {
	what   string
	frames chan frame // closed at the end
	err    error      // valid once frames is closed; nil if the server ended the stream
	cancel context.CancelFunc
}

// stream opens a stream. Closing it is left to the caller.
func (w *wire) stream(ctx context.Context, path, lastEventID string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	header := acceptStream
	if lastEventID != "" {
		header = http.Header{"Accept": acceptStream["Accept"], "Last-Event-Id": {lastEventID}}
	}
	resp, err := w.Open(ctx, http.MethodGet, path, header, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxShown)) // only for the message
		_ = resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("expected 200 and text/event-stream, got %d, %q: %s", resp.StatusCode, kind, short(text))
	}
	st := &stream{what: "GET " + path, frames: make(chan frame), cancel: cancel}
	go func() { // ends with ctx or the stream
		defer close(st.frames)
		defer func() { _ = resp.Body.Close() }() // it is over
		st.err = st.read(ctx, resp.Body)
	}()
	return st, nil
}

// close ends the stream and waits for its reader.
func (st *stream) close() {
	st.cancel()
	for range st.frames { // what was read meanwhile
	}
}

// read sends the frames of a body until it ends.
func (st *stream) read(ctx context.Context, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	var f frame
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if (f.data != "" || f.id != "") && !st.send(ctx, f) {
				return ctx.Err()
			}
			f = frame{}
		case name == "":
			if !st.send(ctx, frame{comment: true, id: f.id, data: value}) {
				return ctx.Err()
			}
		case name == "id":
			f.id = value
		case name == "event":
			f.name = value
		case name == "data" && f.data != "":
			f.data += "\n" + value
		case name == "data":
			f.data = value
		}
	}
	return lines.Err()
}

func (st *stream) send(ctx context.Context, f frame) bool {
	select {
	case st.frames <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// envelope returns the event of a frame. The cross-run stream of some servers wraps it.
func (f frame) envelope() *event {
	var wrapped struct {
		Object string          `json:"object"`
		Data   json.RawMessage `json:"data"`
	}
	if json.Unmarshal([]byte(f.data), &wrapped) == nil && wrapped.Object == "event" && wrapped.Data != nil {
		return parseEvent(wrapped.Data)
	}
	return parseEvent([]byte(f.data))
}

// stream opens a stream that ends with the scenario. A server that has none breaks the rule.
func (s *play) stream(rule, path, lastEventID string) *stream {
	s.note(">", strings.TrimSpace("GET "+path+" "+lastEventID))
	st, err := s.suite.wire.stream(s.ctx, path, lastEventID)
	s.failIf(err != nil, rule, "GET %s: %v", path, err)
	return st
}

// next returns the next event of a stream, or nil if the server ended it or nothing came
// within patience.
func (s *play) next(st *stream, patience time.Duration) *frame {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case f, open := <-st.frames:
			if !open {
				return nil
			}
			if s.note("<", strings.TrimSpace(f.id+" "+f.data)); !f.comment {
				return &f
			}
		case <-deadline.C:
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// readUntil returns the events of a stream up to the one that is accepted, or up to the end of
// the stream, or until none came within the configured patience.
func (s *play) readUntil(st *stream, last func(*event) bool) (frames []frame, events []*event) {
	for {
		f := s.next(st, s.config.Patience)
		if f == nil {
			return frames, events
		}
		e := f.envelope()
		frames, events = append(frames, *f), append(events, e)
		if last(e) {
			return frames, events
		}
	}
}
