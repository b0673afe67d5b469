package hub_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
)

// A deed is one operation on a world, drawn before it is done: what it means
// depends on who is there.
type deed struct {
	Do   string
	Who  int // a member; from 4 on, the one who holds the lease
	Whom int // another member, or a question
	Kind contracts.RequestType
	How  int
}

// dos are the operations, as often as they are to be drawn.
var dos = []string{
	"join", "join", "join", "resume", "leave", "prompt", "prompt", "interrupt", "answer", "answer", "answer", "answer", "again",
	"take", "release", "ask control", "ask control", "grant", "grant", "deny", "init", "wait", "wait",
	"ask", "ask", "ask", "ask", "say", "call", "end", "restart", "drain",
	"connect", "subscribe", "subscribe", "stream", "stream", "stream", "stream", "hang up", "hang up", "unsubscribe", "disconnect",
	"beat", "beat", "hello", "post", "post", "post", "post", "post",
}

var drawDeed = rapid.Custom(func(t *rapid.T) deed {
	kinds := contracts.RequestTypes()
	return deed{
		Do: dos[even(len(dos)).Draw(t, "do")], Who: even(8).Draw(t, "who"), Whom: even(4).Draw(t, "whom"),
		Kind: kinds[even(len(kinds)).Draw(t, "kind")], How: even(6).Draw(t, "how"),
	}
})

// even generates numbers below n, each about as often. The generators of rapid
// prefer small ones, so that most of a list would hardly ever be drawn.
func even(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) (i int) {
		for range 8 {
			i *= 2
			if rapid.Bool().Draw(t, "bit") {
				i++
			}
		}
		return i % n
	})
}

// TestHubDoesWhatItsModelSays plays random histories of several clients, an
// agent, the clock and restarts on a hub, and after each step holds it against
// a small model: every frame is answered once and as it should be, one
// connection drives, each question ends once and for agent and clients alike,
// each call ends once, and every client has the state of a fresh snapshot.
func TestHubDoesWhatItsModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		resumes, cancels := even(4).Draw(rt, "agent resumes") > 0, even(4).Draw(rt, "drain cancels") == 0
		deeds := rapid.SliceOfN(drawDeed, 25, 70).Draw(rt, "deeds")
		var err error
		synctest.Test(t, func(*testing.T) { err = live(setting{resumes: resumes, cancels: cancels}, deeds) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// TestDroppedSubscriptionDoesNotBringItsConnectionBack plays the schedule of a defect: the
// stream of a subscription that its client had ended, ended later. When its expiry came, the
// destroyed connection was stored again, and existed after a crash.
func TestDroppedSubscriptionDoesNotBringItsConnectionBack(t *testing.T) {
	deeds := []deed{
		{Do: "subscribe", How: 2}, {Do: "subscribe", How: 1}, {Do: "stream", Who: 3, Whom: 1, How: 1},
		{Do: "unsubscribe", Whom: 1}, {Do: "disconnect", Who: 3}, {Do: "wait", How: 2}, {Do: "restart"},
	}
	synctest.Test(t, func(t *testing.T) {
		if err := live(setting{}, deeds); err != nil {
			t.Error(err)
		}
	})
}

// live plays deeds and then ends the session, after which no call is open.
func live(s setting, deeds []deed) (err error) {
	w, err := newWorld(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	for i, d := range deeds {
		before := w.holder
		if err := w.do(d); err != nil {
			return fmt.Errorf("deed %d, %+v: %w", i, d, err)
		}
		if d.Do == "restart" || d.Do == "drain" || d.Do == "kill" {
			before = w.holder
		}
		if err := w.check(before); err != nil {
			return fmt.Errorf("after deed %d, %+v: %w", i, d, err)
		}
		s.done.add(w, d, before)
	}
	return w.checkEnd()
}

// checkEnd closes the hub: that ends every run, question and call.
func (w *world) checkEnd() error {
	if err := w.Close(context.Background()); err != nil {
		return err
	}
	if err := w.ledger.refresh(); err != nil {
		return err
	}
	events, err := w.events()
	if err != nil {
		return err
	}
	if open, stray := openCalls(events); len(open)+len(stray) > 0 {
		return fmt.Errorf("calls after the end: got open %q, ended twice %q, want none", open, stray)
	}
	return nil
}

// do does a deed and tells the model, or does nothing where it makes no sense.
func (w *world) do(d deed) error {
	d.Who = w.actor(d.Who)
	if w.agent.active() == 0 && (d.Do == "say" || d.Do == "call") {
		d.Do = "prompt" // most of what there is to see happens in runs
	}
	m := w.members[d.Who]
	here := m != nil && !m.ended
	switch d.Do {
	case "join":
		if here {
			return nil
		}
		return w.doJoin(d)
	case "resume":
		if m == nil || m.id == "" {
			return nil
		}
		return w.doResume(d, m)
	case "wait":
		w.pass([]time.Duration{time.Second, 10 * time.Second, 31 * time.Second, 61 * time.Second, time.Hour, time.Millisecond}[d.How])
		return nil
	case "restart":
		return w.restart(d.How%2 == 0)
	case "kill":
		return w.kill(d)
	case "inbox":
		return w.answerInInbox(d)
	case "drain":
		return w.doDrain(d)
	case "connect", "subscribe", "stream", "hang up", "unsubscribe", "disconnect", "beat", "hello", "post":
		return w.visit(d, w.guests[d.Who%len(w.guests)])
	case "ask", "say", "call", "end":
		if w.agent.active() == 0 {
			return nil
		}
		w.order(d)
		return nil
	}
	if !here {
		return nil
	}
	switch d.Do {
	case "leave":
		return w.doLeave(d, m)
	case "take", "release", "ask control", "grant", "deny":
		return w.steer(d, m)
	}
	return w.command(d, m)
}

// actor returns which member a deed means.
func (w *world) actor(who int) int {
	if who < len(w.members) {
		return who
	}
	for i, m := range w.members {
		if m != nil && !m.ended && m.id == w.holder {
			return i
		}
	}
	return who - len(w.members)
}

// doJoin attaches somebody as a new connection.
func (w *world) doJoin(d deed) error {
	role := contracts.RoleController
	if d.How == 0 {
		role = contracts.RoleViewer
	}
	how := []contracts.Takeover{contracts.TakeoverRefuse, contracts.TakeoverForce, contracts.TakeoverLater}[d.Whom%3]
	able := role == contracts.RoleController && d.How%2 == 1
	if err := w.join(d.Who, role, how, nil, "", false, able); err != nil {
		return err
	}
	m := w.members[d.Who]
	if want := role == contracts.RoleController && how == contracts.TakeoverRefuse && w.holder != ""; m.refused != want {
		return fmt.Errorf("refused: got %t, want %t", m.refused, want)
	} else if want {
		return nil
	}
	w.enter(m.id, memberName(d.Who), role, how, able)
	return nil
}

// doResume lets somebody come back to an earlier connection, perhaps while its
// socket is still open, and perhaps with a wrong token.
func (w *world) doResume(d deed, m *member) error {
	token, role := m.token, contracts.RoleController
	if d.How == 5 {
		token = "wrong"
	}
	c := w.conns[m.id]
	if c != nil {
		role = c.role
	}
	known := c != nil && token == m.token
	able := role == contracts.RoleController && d.How%2 == 1
	old := m
	if err := w.join(d.Who, role, contracts.TakeoverRefuse, m, token, d.Whom%2 == 0, able); err != nil {
		return err
	}
	m = w.members[d.Who]
	m.sent = old.sent // an id that was used before is a repetition
	refused := role == contracts.RoleController && w.holder != "" && !(known && w.holder == old.id)
	if m.refused != refused {
		return fmt.Errorf("refused: got %t, want %t", m.refused, refused)
	}
	if refused {
		if !old.ended { // the earlier socket is still there
			w.members[d.Who] = old
		}
		return nil
	}
	if known != (m.id == old.id) {
		return fmt.Errorf("resumed %s with token %q: got connection %s, want the same: %t", old.id, token, m.id, known)
	}
	if !known && !old.ended {
		w.leave(old)
	}
	w.enter(m.id, memberName(d.Who), role, contracts.TakeoverRefuse, able)
	return nil
}

// leave drops somebody's socket.
func (w *world) leave(m *member) {
	m.peer.Close()
	m.ended = true
	synctest.Wait()
	w.detach(m.id, "")
}

func (w *world) doLeave(d deed, m *member) error {
	keep := d.How%3 == 1
	switch d.How % 3 {
	case 0:
		w.leave(m)
		return nil
	case 1, 2:
		m.ended = true
		if err := m.peer.Send(fmt.Sprintf(`{"type":"ws.bye","keep":%t}`, keep)); err != nil {
			return err
		}
	}
	synctest.Wait()
	if keep {
		w.detach(m.id, "")
	} else {
		w.destroy(m.id)
	}
	return nil
}

// order lets the agent do something in its run.
func (w *world) order(d deed) {
	p := w.agent
	switch d.Do {
	case "say":
		p.orders <- p.publish(&contracts.ResponseStart{ResponseID: "r"}, &contracts.ResponseChunk{ResponseID: "r", Content: "x"})
	case "call":
		id := w.nextID()
		events := []contracts.Event{&contracts.ToolCall{CallID: id, Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: id}}
		if d.How%2 == 0 {
			events = append(events, &contracts.ToolEnd{CallID: id, Success: true})
		}
		p.orders <- p.publish(events...)
	case "end":
		if d.How == 0 {
			p.orders <- end(errors.New("as told"))
		} else {
			p.orders <- end(nil)
		}
		w.endRun()
	case "ask":
		req := w.question(d)
		timeout := []time.Duration{0, 0, 20 * time.Second, 5 * time.Minute, -1, -1}[d.How]
		var after []contracts.Event
		if d.Whom%2 == 0 { // else the agent forgets, and the hub ends the call
			after = []contracts.Event{&contracts.ToolEnd{CallID: req.CallID}}
		}
		p.orders <- p.ask(req, contracts.AskOptions{Timeout: timeout}, after...)
		w.model.ask(req, w.deadline(d.Kind, timeout))
	}
	synctest.Wait()
}

func (m *model) nextID() string {
	m.ids++
	return fmt.Sprint("q", m.ids)
}

func (m *model) deadline(kind contracts.RequestType, timeout time.Duration) time.Time {
	switch {
	case timeout < 0:
		return time.Time{}
	case timeout == 0 && kind == contracts.RequestClientTool:
		timeout = time.Minute
	case timeout == 0:
		timeout = time.Hour
	}
	return m.now.Add(timeout)
}

// command sends a command, as ws.send or bare.
func (w *world) command(d deed, m *member) error {
	text, want, effect := w.plan(d, m.id)
	if text == "" {
		return nil
	}
	if want == "" {
		if w.holder == "" {
			w.grant(m.id)
		}
		effect()
	}
	if d.Do == "again" || d.Who%2 == 0 {
		m.sent++
		text = fmt.Sprintf(`{"type":"ws.send","id":"%d","message":%s}`, m.sent, text)
	}
	if err := w.answered(m, text, want); err != nil {
		return err
	}
	if d.Do == "again" { // a repeat is answered likewise and does nothing
		if c := w.conns[m.id]; want == contracts.CodeAccessDenied && !c.tooMany() {
			c.denials = append(c.denials, w.now)
		} else if c.tooMany() {
			w.detach(m.id, "")
			return nil
		}
		if err := w.answered(m, text, want); err != nil {
			return err
		}
	}
	if w.conns[m.id].tooMany() {
		w.detach(m.id, "")
	}
	return nil
}

// TestGivenUpQuestionEndsItsCallOnce: an agent that stops waiting for an answer
// ends the call itself. The hub tells clients that the question is over, once,
// and does not end the call too.
func TestGivenUpQuestionEndsItsCallOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(setting{resumes: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.join(0, contracts.RoleController, "", nil, "", false, false); err != nil {
			t.Fatal(err)
		}
		if err := w.answered(w.members[0], `{"type":"prompt","content":"go"}`, ""); err != nil {
			t.Fatal(err)
		}
		p := w.agent
		p.orders <- func(ctx context.Context) (bool, error) {
			patience, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := p.host.Ask(patience, question(contracts.RequestApproval, "c1"), contracts.AskOptions{}); err == nil {
				return true, errors.New("got an outcome, want an error")
			}
			return true, p.host.Publish(ctx, &contracts.ToolEnd{CallID: "c1"})
		}
		time.Sleep(2 * time.Second)
		if err := w.checkEnd(); err != nil {
			t.Error(err)
		}
		events, err := w.ledger.events()
		if err != nil {
			t.Fatal(err)
		}
		var got []contracts.Event
		for _, ev := range events {
			switch ev.(type) {
			case *contracts.ServerRequestResolved, *contracts.ToolEnd, *contracts.ErrorEvent:
				got = append(got, ev)
			}
		}
		want := []contracts.Event{
			&contracts.ServerRequestResolved{
				RequestID: "c1", RequestType: contracts.RequestApproval, CallID: "c1", Resolution: contracts.VerdictCancelled,
				Reason: "Run ended before request completed", ResolvedBy: contracts.ResolvedByRuntime,
			},
			&contracts.ToolEnd{CallID: "c1"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		w.members[0].peer.Close()
	})
}
