package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A guest is a client over HTTP: it makes requests, and follows on streams that
// it cannot speak on.
type guest struct {
	*room
	by contracts.Caller
}

// inRoom runs a test in a bubble with a room.
func inRoom(t *testing.T, opts hub.Options, test func(t *testing.T, r *room)) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, opts)
		defer r.close()
		test(t, r)
	})
}

// guest returns a client that authenticates as somebody.
func (r *room) guest(principal string) *guest {
	return &guest{r, contracts.Caller{Principal: contracts.Principal{ID: principal}}}
}

var (
	asController = contracts.AttachRequest{Role: contracts.RoleController}
	asViewer     = contracts.AttachRequest{Role: contracts.RoleViewer}
	byForce      = contracts.AttachRequest{Role: contracts.RoleController, TakeControl: true}
)

// connects makes a connection, for which the guest speaks from then on.
func (g *guest) connects(req contracts.AttachRequest) contracts.ConnectionAnswer {
	g.t.Helper()
	answer, token, err := g.Connect(&req, g.by)
	if err != nil {
		g.t.Fatalf("connect: %v", err)
	}
	g.by.ConnectionID = answer.ConnectionID
	if token != "" {
		g.by.Token = token
	}
	return *answer
}

// subscribes makes a subscription, for which the guest speaks from then on.
func (g *guest) subscribes(req contracts.AttachRequest) contracts.SubscriptionAnswer {
	g.t.Helper()
	answer, token, err := g.Subscribe(&req, g.by)
	if err != nil {
		g.t.Fatalf("subscribe: %v", err)
	}
	g.by.ConnectionID, g.by.SubscriptionID = answer.ConnectionID, answer.SubscriptionID
	if token != "" {
		g.by.Token = token
	}
	return *answer
}

// posts sends a message, which must be accepted.
func (g *guest) posts(text string) contracts.MessageAnswer {
	g.t.Helper()
	body, err := g.Send([]byte(text), "", g.by)
	if err != nil {
		g.t.Fatalf("send %s: %v", text, err)
	}
	return decodeAnswer(g.t, body)
}

func decodeAnswer(t *testing.T, body []byte) (answer contracts.MessageAnswer) {
	t.Helper()
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("answer %s: %v", body, err)
	}
	return answer
}

// refusedPost sends a message, which must be refused.
func (g *guest) refusedPost(text string, code contracts.Code) {
	g.t.Helper()
	_, err := g.Send([]byte(text), "", g.by)
	wantCode(g.t, err, code)
}

func (g *guest) beats() contracts.HeartbeatAnswer {
	g.t.Helper()
	answer, err := g.Heartbeat(g.by)
	if err != nil {
		g.t.Fatalf("heartbeat: %v", err)
	}
	return *answer
}

// disconnects ends the guest's connection.
func (g *guest) disconnects() contracts.DisconnectAnswer {
	g.t.Helper()
	answer, err := g.Disconnect(g.by)
	if err != nil {
		g.t.Fatalf("disconnect: %v", err)
	}
	return *answer
}

// streams opens a stream and returns the client's end. What Stream returns
// arrives on ended.
func (g *guest) streams(req contracts.StreamRequest) (peer *memconn.Peer, ended chan error) {
	conn, peer := memconn.New(memconn.Options{Stream: true})
	ended = make(chan error, 1)
	go func() { ended <- g.Stream(context.Background(), conn, req, g.by) }() // ends when the peer or the hub closes the stream
	return peer, ended
}

// follows opens a stream on the guest's subscription, or one without, and reads
// its opening.
func (g *guest) follows(req contracts.StreamRequest) *memconn.Peer {
	g.t.Helper()
	peer, _ := g.streams(req)
	if got := g.next(peer); got != memconn.Opening {
		g.t.Fatalf("first line: got %s, want %s", got, memconn.Opening)
	}
	return peer
}

// next returns the next line.
func (r *room) next(p *memconn.Peer) string {
	r.t.Helper()
	text, err := p.Next(r.t.Context())
	if err != nil {
		r.t.Fatalf("next line: %v", err)
	}
	return text
}

// arrived returns the lines that have arrived, in the order they were sent.
func (r *room) arrived(p *memconn.Peer) (lines []string) {
	r.t.Helper()
	synctest.Wait()
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for {
		text, err := p.Next(now)
		if err != nil {
			return lines
		}
		lines = append(lines, text)
	}
}

// wantEnd reads until a connection has ended and fails unless that was for the
// reason; empty is a normal end.
func (r *room) wantEnd(p *memconn.Peer, code contracts.Code) (lines string) {
	r.t.Helper()
	lines = r.rest(p)
	why, closed := p.Closed()
	if !closed || why == nil && code != "" || why != nil && why.Code != code {
		r.t.Errorf("end: got %v, closed %t, want %q", why, closed, code)
	}
	return lines
}

// place is the subscription that the guest has, to be continued from a cursor; a
// negative one stands for none.
func (g *guest) place(cursor int64) contracts.StreamRequest {
	req := contracts.StreamRequest{SubscriptionID: g.by.SubscriptionID}
	if cursor >= 0 {
		req.Cursor = &cursor
	}
	return req
}

// from is a stream of its own that starts at a cursor.
func from(cursor int64) contracts.StreamRequest { return contracts.StreamRequest{Cursor: &cursor} }

// entry returns what the state says of a connection, nil if it has none of that
// id.
func (r *room) entry(id string) *contracts.ConnectionState {
	for _, c := range r.Snapshot().State.Connections {
		if c.ConnectionID == id {
			return &c
		}
	}
	return nil
}

// controller returns the holder of the lease, or "".
func (r *room) controller() string { return r.Snapshot().State.ControllerConnectionID.Get() }

// wantHolder fails unless the connection holds the lease; "" stands for nobody.
func (r *room) wantHolder(id string) {
	r.t.Helper()
	if got := r.controller(); got != id {
		r.t.Errorf("holder: got %q, want %q", got, id)
	}
}

// wantRefusal fails unless err is a refusal with code and text.
func wantRefusal(t *testing.T, err error, code contracts.Code, text string) {
	t.Helper()
	refusal, ok := errors.AsType[*contracts.Error](err)
	if !ok || refusal.Code != code || refusal.Message != text {
		t.Errorf("got %v, want %s: %s", err, code, text)
	}
}

// wireTime is a time as the wire has it.
func wireTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// stateIn decodes an encoded snapshot.
func stateIn(t *testing.T, body []byte) *contracts.Snapshot {
	t.Helper()
	snap, err := (&contracts.Decoder{}).Snapshot(body)
	if err != nil {
		t.Fatalf("snapshot %s: %v", body, err)
	}
	return snap
}

// snapshotIn decodes a line with a snapshot or a reset.
func (r *room) snapshotIn(line string) (snap *contracts.Snapshot, reason contracts.ResetReason) {
	r.t.Helper()
	switch f := r.decode(line).(type) {
	case *contracts.SnapshotEnvelope:
		return stateIn(r.t, f.Snapshot), ""
	case *contracts.ResetEnvelope:
		return stateIn(r.t, f.Snapshot), f.Reason
	}
	r.t.Fatalf("got %s, want a snapshot or a reset", line)
	return nil, ""
}
