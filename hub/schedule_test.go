package hub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// TestEachQuestionEndsOnceWithItsAuthor plays random schedules of questions, answers over
// sockets and HTTP and in the inbox, votes, take-overs, disconnects, restarts, drains and
// kills. After each step it holds the session and its inbox against the model: each
// question ends once, with the right author.
func TestEachQuestionEndsOnceWithItsAuthor(t *testing.T) {
	does := []string{
		"join", "join", "join", "prompt", "prompt", "prompt", "ask", "ask", "ask", "ask", "ask", "ask",
		"answer", "answer", "answer", "answer", "answer", "answer", "answer", "answer", "post", "post", "post", "post",
		"inbox", "inbox", "inbox", "inbox", "inbox", "inbox", "inbox", "inbox", "connect", "subscribe",
		"take", "take", "leave", "resume", "disconnect", "release", "ask control", "grant",
		"restart", "restart", "kill", "kill", "drain", "init", "interrupt", "end", "wait",
	}
	done := tally{}
	for seed := range uint64(*schedules) {
		r := rand.New(rand.NewPCG(seed, 38))
		approval := contracts.RequestApproval
		kinds := append(contracts.RequestTypes(), approval, approval, approval)
		deeds := []deed{{Do: "join", How: 2}, {Do: "prompt"}, {Do: "ask", Kind: approval, Whom: int(seed % 4)}}
		for range 25 {
			d := deed{Do: does[r.IntN(len(does))], Who: r.IntN(8), Whom: r.IntN(4), How: r.IntN(6)}
			d.Kind = kinds[r.IntN(len(kinds))]
			deeds = append(deeds, d)
		}
		synctest.Test(t, func(t *testing.T) {
			if err := live(setting{resumes: seed%4 > 0, cancels: seed%3 == 0, inbox: true, listSocket: seed%2 > 0, done: done}, deeds); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
	t.Logf("%d schedules: %v", *schedules, done)
	for _, what := range []string{
		"vote", "end by votes", "end by a connection", "end in the inbox", "end without an answer",
		"take-over", "leave", "disconnect", "restart", "drain", "kill",
	} {
		if done[what] == 0 {
			t.Errorf("got no %s in any schedule", what)
		}
	}
}

// A tally counts what happened in schedules.
type tally map[string]int

// add counts what a deed did. before is who held the lease before it.
func (y tally) add(w *world, d deed, before string) {
	if y == nil {
		return
	}
	switch d.Do {
	case "restart", "drain", "kill", "leave", "disconnect":
		y[d.Do]++
	default:
		if before != "" && w.holder != "" && before != w.holder {
			y["take-over"]++
		}
	}
	y["vote"] += w.votes
	w.votes = 0
	for id, verdict := range w.resolved {
		if w.counted[id] {
			continue
		}
		w.counted[id] = true
		y["question"]++
		switch by := w.authors[id]; {
		case by == "":
			y["end without an answer"]++
		case strings.HasSuffix(by, "/"):
			y["end in the inbox"]++
		default:
			y["end by a connection"]++
		}
		if verdict == contracts.VerdictApproved && w.voted[id] {
			y["end by votes"]++
		}
	}
}

func memberName(who int) string { return fmt.Sprint("member-", who) }

// question returns the question that a deed puts.
func (w *world) question(d deed) *contracts.ServerRequest {
	req := question(d.Kind, w.nextID())
	if w.setting.inbox && d.Kind == contracts.RequestApproval && d.Whom > 1 {
		req.Tool = toolOfTwo
	}
	return req
}

// answerInInbox answers a question without a connection, rightly or not.
func (w *world) answerInInbox(d deed) error {
	answer, by, want, effect := w.planInbox(d)
	_, ended, err := w.Answer(answer, by)
	open := len(w.pending)
	if err := w.ends(err, want, effect); err != nil {
		return fmt.Errorf("%+v by %s: %w", answer, by.Principal.ID, err)
	}
	if ended != (len(w.pending) < open) {
		return fmt.Errorf("%+v by %s: got ended %t, %d questions open before and %d after",
			answer, by.Principal.ID, ended, open, len(w.pending))
	}
	return nil
}

// planInbox returns an answer in the inbox, how it should end and, if it is accepted, what
// it does. Some who answer have connections too, and vote once all the same.
func (w *world) planInbox(d deed) (
	answer *contracts.ServerRequestResponse, by contracts.Caller, want contracts.Code, effect func(),
) {
	who := []string{"inbox-0", "inbox-1", memberName(0), memberName(1), "guest-0", "guest-1"}[d.Who%6]
	by = contracts.Caller{Principal: contracts.Principal{ID: who}}
	yes := d.How%2 == 0
	if len(w.pending) == 0 || d.How == 0 {
		answer = &contracts.ServerRequestResponse{RequestID: "none", RequestType: contracts.RequestApproval, Approved: &yes}
		return answer, by, contracts.CodeRequestNotFound, nil
	}
	q := w.pending[d.Whom%len(w.pending)]
	kind, verdict := q.req.RequestType, contracts.VerdictFailed
	answer = &contracts.ServerRequestResponse{RequestID: q.req.RequestID, IsError: !yes}
	switch kind {
	case contracts.RequestApproval:
		answer.Approved, verdict = &yes, contracts.VerdictDenied
		if yes {
			verdict = contracts.VerdictApproved
			want, _ = q.approve(who)
		}
	case contracts.RequestToolRetry:
		answer.DecisionAction, verdict = contracts.RetryActionAbort, contracts.VerdictAborted
		if yes {
			answer.DecisionAction, verdict = contracts.RetryActionRetry, contracts.VerdictRetried
		}
	case contracts.RequestClientTool:
		want = contracts.CodeBadRequest // a program answers it
	default:
		if answer.Content = []contracts.ContentBlock{{Type: "text", Text: "blue"}}; yes {
			verdict = contracts.VerdictAnswered
		}
	}
	if by.Principal.Role = contracts.RoleApprover; d.How > 3 {
		by.Principal.Role = contracts.RoleController
	} else if kind != contracts.RequestApproval && kind != contracts.RequestUserInput {
		want = contracts.CodeAccessDenied
	}
	return answer, by, want, func() { w.answer(q, verdict, who, "") }
}

// kill lets the process die while it stores what a step does. Nobody may be told that the
// step was done, and the next process knows nothing of it.
func (w *world) kill(d deed) error {
	w.disk.dead.Store(true)
	learned := w.agent.learned()
	m := w.members[d.Who]
	switch {
	case d.How < 2 && w.agent.active() > 0:
		w.agent.orders <- w.agent.ask(w.question(d), contracts.AskOptions{})
		synctest.Wait()
	case d.How < 4 && m != nil && !m.ended:
		text, want, _ := w.plan(deed{Do: "answer", Whom: d.Whom, How: 2}, m.id)
		if want != "" {
			break
		}
		m.seq++
		if err := m.peer.Send(text); err != nil {
			return err
		}
		synctest.Wait()
		if err := m.read(); err != nil {
			return err
		}
		for _, f := range m.control {
			if f, ok := f.(*contracts.Result); ok && f.Seq == m.seq {
				return fmt.Errorf("%s: got accepted, and it was not stored", text)
			}
		}
	default:
		answer, by, _, _ := w.planInbox(deed{Who: d.Who, Whom: d.Whom, How: 4})
		if _, _, err := w.Answer(answer, by); err == nil {
			return fmt.Errorf("%+v: got accepted, and it was not stored", answer)
		}
	}
	for id, outs := range w.agent.learned() { // in a process that lives on without its disk
		for _, out := range outs[len(learned[id]):] {
			if out.By == contracts.ResolvedByUser {
				return fmt.Errorf("the agent learned %+v of %s, and it was not stored", out, id)
			}
		}
	}
	w.agent = newPuppet()
	w.agent.outcomes = learned
	return w.restart(true)
}

// An office is the overview of a world's process, with somebody who follows its inbox.
type office struct {
	*overview.Overview
	peer   *memconn.Peer
	before map[string]contracts.Verdict       // questions that ended before this process
	open   map[string]contracts.InboxQuestion // as the follower was told
	ended  map[string]string                  // how, and by whom, as the follower was told
}

// listing is how long news of a session may wait for others.
const listing = 200 * time.Millisecond

var chief = contracts.Caller{Principal: contracts.Principal{ID: "chief"}}

// openOffice opens the session of a new process in its overview.
func (w *world) openOffice(opts *hub.Options, start func() (*hub.Hub, error)) (err error) {
	key := hub.Key{ID: opts.SessionID}
	w.desk.lost.Store(false)
	o := &office{
		before: maps.Clone(w.resolved), open: map[string]contracts.InboxQuestion{}, ended: map[string]string{},
	}
	o.Overview, err = overview.New(overview.Options{
		Store: w.desk, Frame: func(dst, text []byte) []byte { return append(append(dst, text...), '\n') },
		SocketForm: memconn.Lines, Find: func(context.Context, string, contracts.Principal) (*hub.Hub, error) { return w.Hub, nil },
	})
	if err != nil {
		return err
	}
	w.office = o
	opts.Changed = func() { o.Changed(key) }
	if _, err := o.Open(key, start); err != nil {
		return err
	}
	w.pass(listing)
	conn, peer := memconn.New(memconn.Options{Stream: !w.setting.listSocket})
	o.peer = peer
	if w.setting.listSocket {
		go func() { _ = o.Serve(context.Background(), conn, chief) }() // ends when the peer closes the connection
		return peer.Send(`{"type":"ws.follow","lists":["inbox"]}`)
	}
	go func() { // ends when the peer closes the connection
		_ = o.FollowInbox(context.Background(), conn, chief)
		conn.Close(nil)
	}()
	return nil
}

// inboxEvent returns the event that a follower of the inbox was sent; nil if it is none.
func inboxEvent(text string) (*contracts.InboxEvent, error) {
	d := &contracts.Decoder{Strict: true}
	if f, err := d.ServerFrame([]byte(text)); err == nil { // of a socket
		if f, ok := f.(*contracts.ListEnvelope); ok {
			return f.Inbox, nil
		}
		return nil, nil
	}
	var ev contracts.InboxEvent
	return &ev, d.Body([]byte(text), &ev)
}

func (w *world) closeOffice() {
	if w.office != nil {
		w.office.peer.Close()
		synctest.Wait()
		w.office.Close()
		w.office = nil
	}
}

// read takes what the follower of the inbox was told.
func (o *office) read() error {
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for {
		text, err := o.peer.Next(now)
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil && err != io.EOF:
			return err
		case err == io.EOF:
			return errors.New("the stream of the inbox has ended")
		case text == memconn.Opening || text == memconn.Comment:
			continue
		}
		ev, err := inboxEvent(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if ev == nil {
			continue
		}
		switch ev.Type {
		case "questions":
			for _, q := range ev.Inbox.Questions {
				o.open[q.RequestID] = q
			}
		case "question":
			o.open[ev.Question.RequestID] = *ev.Question
		case "ended":
			id := ev.Ended.RequestID
			if _, open := o.open[id]; !open || o.ended[id] != "" {
				return fmt.Errorf("%s ended, and was not open", id)
			}
			delete(o.open, id)
			by := ""
			if a := ev.Ended.Author; a != nil {
				by = byline(a.Principal, a.ConnectionID)
			}
			o.ended[id] = fmt.Sprintf("%s by %s", ev.Ended.Resolution, by)
		}
	}
}

// checkOffice holds the inbox, and what its follower was told, against the model.
func (w *world) checkOffice() error {
	o := w.office
	if o == nil {
		return nil
	}
	if err := o.read(); err != nil {
		return err
	}
	list, err := o.Inbox(chief)
	if err != nil {
		return err
	}
	listed, told, want := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, q := range list.Questions {
		listed[q.RequestID] = q.Votes
	}
	for id, q := range o.open {
		told[id] = q.Votes
	}
	for _, q := range w.pending {
		if q.req.RequestType != contracts.RequestClientTool {
			want[q.req.RequestID] = int64(len(q.votes))
		}
	}
	if !maps.Equal(listed, want) || !maps.Equal(told, want) {
		return fmt.Errorf("inbox: got %v listed and %v told, want %v, with their votes", listed, told, want)
	}
	ended := map[string]string{}
	for id, verdict := range w.resolved {
		if _, before := o.before[id]; !before && w.kinds[id] != contracts.RequestClientTool {
			ended[id] = fmt.Sprintf("%s by %s", verdict, w.authors[id])
		}
	}
	if !maps.Equal(o.ended, ended) {
		return fmt.Errorf("inbox: got told that %v ended, want %v", o.ended, ended)
	}
	return nil
}

// A desk keeps the summary of a world's session.
type desk struct {
	text atomic.Pointer[string]
	lost atomic.Bool // the process was killed: what it saves is lost
}

// Keys implements [overview.Store], as do the next three.
func (d *desk) Keys() iter.Seq[hub.Key] { return slices.Values([]hub.Key{{ID: "s"}}) }

func (d *desk) Load(hub.Key) ([]byte, time.Time, error) {
	if text := d.text.Load(); text != nil {
		return []byte(*text), time.Now(), nil
	}
	return nil, time.Time{}, fs.ErrNotExist
}

func (d *desk) Save(_ hub.Key, text []byte, _ bool) error {
	if !d.lost.Load() {
		d.text.Store(new(string(text)))
	}
	return nil
}

func (d *desk) Remove(hub.Key) error { return errors.New("nobody removes it") }
