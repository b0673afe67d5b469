package double

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A stream is one SSE response. Its place is that of its subscription: there
// is no queue, it reads the room's log from there on.
type stream struct {
	sub   *subscription
	begin []byte        // what comes before the entries after sub.at
	wake  chan struct{} // 1-buffered; never closed
	ended bool
}

// finish ends the stream after what is in the log by then.
func (t *stream) finish() {
	t.ended = true
	t.signal()
}

func (t *stream) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// events serves a stream until the client leaves or something ends it.
func (s *Server) events(w http.ResponseWriter, c *call) {
	s.mu.Lock()
	t, e := c.openStream()
	var epoch string
	if e == nil {
		epoch = t.sub.client.room.epoch
	}
	s.mu.Unlock()
	if e != nil {
		refuseHTTP(w, s, e)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "keep-alive")
	if !s.has(NoEpochs) {
		h.Set("X-Maestro-Headless-Epoch", epoch)
	}
	t.run(c.req.Context(), w, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.leave()
}

// run writes what there is to say.
func (t *stream) run(ctx context.Context, w http.ResponseWriter, s *Server) {
	control := http.NewResponseController(w)
	beat := time.NewTicker(s.opts.Heartbeat)
	defer beat.Stop()
	text, beats, first := t.begin, false, true
	if !s.has(NoRetryHint) {
		text = append([]byte("retry: 2000\n\n"), text...)
	}
	for {
		s.mu.Lock()
		text = t.gather(text)
		if beats {
			text = t.heartbeat(text)
		}
		done := t.ended
		s.mu.Unlock()
		// A writer without deadlines, such as a recorder, is no slow client.
		if err := control.SetWriteDeadline(time.Now().Add(contracts.DefaultWriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		if _, err := w.Write(text); err != nil || control.Flush() != nil || done {
			return
		}
		if first && s.has(LosesBetween) {
			t.oversleep(s)
		}
		text, beats, first = nil, false, false
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			beats = true
		case <-t.wake:
		}
	}
}

// oversleep joins the live feed later than the replay ended.
func (t *stream) oversleep(s *Server) {
	time.Sleep(150 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.sub.at = t.sub.client.room.head
}

// openStream attaches to a subscription, or to a new implicit one.
func (c *call) openStream() (*stream, *contracts.Error) {
	r, e := c.room()
	var sub string
	if e == nil {
		_, sub, e = c.ids()
	}
	if e != nil {
		return nil, e
	}
	query := c.req.URL.Query()
	if query.Has("subscriptionId") {
		sub = query.Get("subscriptionId")
	}
	cursor, epoch := query.Get("cursor"), query.Get("epoch")
	if c.s.has(AnyCursor) && !isCursor(cursor) {
		cursor = ""
	}
	if before, after, ok := strings.Cut(c.req.Header.Get("Last-Event-ID"), "."); ok && isCursor(after) && before != "" && !c.s.has(IgnoresLastEventID) {
		epoch, cursor = before, after
	}
	if cursor != "" && !isCursor(cursor) {
		return nil, refuse(contracts.CodeBadRequest, "", "cursor must be an integer")
	}
	s, e := c.stand(r, sub)
	if e != nil {
		return nil, e
	}
	t := &stream{sub: s, wake: make(chan struct{}, 1)}
	t.position(cursor, epoch)
	if !c.s.has(StreamsShare) {
		for _, old := range s.streams {
			old.finish()
		}
	}
	s.streams = append(s.streams, t)
	s.client.touch()
	if s.implicit { // after its beginning, which is as of before it came
		r.arriveImplicitly(s.client)
	}
	r.sweep()
	return t, nil
}

func isCursor(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

// stand finds a subscription, or makes an implicit one.
func (c *call) stand(r *room, id string) (*subscription, *contracts.Error) {
	if id != "" || c.req.URL.Query().Has("subscriptionId") {
		s := r.findSub(id)
		if s == nil {
			return nil, staleSubscription()
		}
		return s, c.proven(s.client)
	}
	var outs []contracts.Notification
	if list := c.req.URL.Query().Get("optOutNotifications"); list != "" && !c.s.has(IgnoresQueryOptOuts) {
		for word := range strings.SplitSeq(list, ",") {
			outs = append(outs, contracts.Notification(strings.TrimSpace(word)))
		}
	}
	if _, e := c.s.asHello(&order{OptOutNotifications: outs}); e != nil {
		return nil, e
	}
	k := newClient(r, contracts.RoleViewer)
	if r.s.has(ImplicitDrives) {
		k.role = contracts.RoleController
	}
	k.web, k.out = true, nil
	k.hello = contracts.Hello{Role: k.role, OptOutNotifications: outs}
	r.clients = append(r.clients, k)
	s := newSubscription(k)
	s.implicit = true
	return s, nil
}

// arriveImplicitly tells everybody of a stream's own connection.
func (r *room) arriveImplicitly(k *client) {
	if r.s.has(ImplicitDrives) && r.holder == nil {
		r.grant(k, contracts.LeaseGranted)
		return
	}
	r.announce(k)
}

// position decides how the stream begins. A stream on a subscription goes on
// where that is, unless the client says where it is itself.
func (t *stream) position(cursor, epoch string) {
	s, r := t.sub, t.sub.client.room
	if !s.implicit && (cursor == "" || r.s.has(ShowsOldItems)) {
		return
	}
	if cursor == "" && r.s.has(BeginsWithReplay) {
		cursor = "0"
	}
	n, resume, why := r.position(cursor, epoch)
	snapshot := r.snapshot(r.head)
	switch resume {
	case "snapshot":
		s.at = r.head
		t.begin = t.frame(nil, r.head, fmt.Appendf(nil, `{"type":"snapshot","snapshot":%s}`, snapshot))
	case "reset":
		s.at = r.head
		t.begin = t.frame(nil, r.head, encode("reset", &contracts.ResetEnvelope{Reason: why, Snapshot: snapshot}))
	default:
		s.at = n
		if s.at > 0 && r.s.has(ReplaysOneTooMany) {
			s.at--
		}
	}
}

// gather appends everything after the subscription's place and moves it on.
func (t *stream) gather(text []byte) []byte {
	s, r := t.sub, t.sub.client.room
	if s.at < r.floor {
		s.at = r.head
		return t.frame(text, r.head, encode("reset", &contracts.ResetEnvelope{Reason: contracts.ResetLagged, Snapshot: r.snapshot(r.head)}))
	}
	i, _ := slices.BinarySearchFunc(r.log, s.at+1, func(e entry, c uint64) int { return int(int64(e.cursor) - int64(c)) })
	for _, e := range r.log[i:] {
		s.at = e.cursor
		if (e.to == nil || e.to == s.client) && s.wants(e.kind) {
			text = t.frame(text, e.cursor, envelope(r.s, e))
		}
		if r.s.has(StreamsShare) && len(s.streams) > 1 {
			t.yield()
			break
		}
	}
	return text
}

// yield leaves the rest to the other streams of the subscription, in turn.
func (t *stream) yield() {
	i := slices.Index(t.sub.streams, t)
	t.sub.streams[(i+1)%len(t.sub.streams)].signal()
}

// wants reports whether a kind of message is for this subscription.
func (s *subscription) wants(kind string) bool {
	if kind == "raw_agent_event" || s.client.room.s.has(IgnoresOptOuts) {
		return s.client.wants(kind)
	}
	return !slices.Contains(s.wanted(), contracts.Notification(kind))
}

// frame appends one event of the stream.
func (t *stream) frame(text []byte, cursor uint64, data []byte) []byte {
	r := t.sub.client.room
	if r.s.has(NoEventIDs) {
		return fmt.Appendf(text, "data: %s\n\n", data)
	}
	if r.s.has(BareEventIDs) {
		return fmt.Appendf(text, "id: %s\ndata: %s\n\n", r.epoch, data)
	}
	return fmt.Appendf(text, "id: %s.%d\ndata: %s\n\n", r.epoch, cursor, data)
}

// heartbeat appends one, or a comment for those who want none.
func (t *stream) heartbeat(text []byte) []byte {
	r := t.sub.client.room
	switch data := encode("heartbeat", &contracts.HeartbeatEnvelope{Cursor: r.head}); {
	case r.s.has(NeverBeats):
		return text
	case !t.sub.wants("heartbeat"):
		return append(text, ": ka\n\n"...)
	case r.s.has(HeartbeatsWithID):
		return t.frame(text, r.head, data)
	default:
		return fmt.Appendf(text, "data: %s\n\n", data)
	}
}

// leave detaches from the subscription; an implicit one is gone with it.
func (t *stream) leave() {
	s := t.sub
	k, r := s.client, s.client.room
	s.streams = slices.DeleteFunc(s.streams, func(o *stream) bool { return o == t })
	if r.closed || !slices.Contains(r.clients, k) {
		return
	}
	if s.implicit {
		r.leave(k)
	} else {
		k.touch()
	}
	r.sweep()
}
