package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A pilot is a controller on whichever transport the target has, and what it
// sees there. It belongs to the scenario's goroutine.
type pilot struct {
	mirror // what it sees and did, to be held against the server's state
	s      *Session
	c      *Caller                // over HTTP; else nil
	spoke  int                    // index in the log at which its last run began
	mode   contracts.ApprovalMode // as it set it; empty if it did not
}

// pilot returns a controller of a session of its own.
func (s *Session) pilot() *pilot {
	d := &pilot{s: s}
	if s.wire != nil {
		d.c = s.controllerOnly()
		d.follows(d.c.subscribed(nil))
	} else {
		d.p = s.controller()
	}
	return d
}

// follows opens the stream of a subscription that was just made.
func (d *pilot) follows(a *Answer) {
	d.begin = a.snapshot()
	d.p = d.c.follow(d.begin.Cursor)
	d.p.attached = a.Body
	d.p.watch.adopt(d.begin)
}

// successor returns a controller that takes the lease from whoever holds it.
func (s *Session) successor(name string) *pilot {
	d := &pilot{s: s}
	if s.wire != nil {
		d.c = s.caller(name, contracts.RoleController)
		d.c.connected(fields{"takeControl": true}).has("A25", fields{"controller_lease_granted": true})
		d.follows(d.c.subscribed(nil))
	} else {
		d.p = s.attach(name, entry{role: contracts.RoleController, take: "1"})
	}
	return d
}

// onlooker returns a viewer whose log begins with a snapshot.
func (s *Session) onlooker(name string) *Peer {
	if s.wire == nil {
		return s.viewer(name)
	}
	p := s.follow(name, follow{})
	p.begins("A42")
	return p
}

// latecomer returns a viewer that has seen everything up to a cursor.
func (s *Session) latecomer(name string, cursor int64, epoch string) *Peer {
	if s.wire != nil {
		return s.backOn(name, cursor, epoch)
	}
	p := s.back(name, cursor, epoch)
	if got := p.attached["resume"]; got != "replay" { // it may show snapshots of an interrupt
		s.fail("A114", "%s: expected resume \"replay\", got %s", name, show(got))
	}
	return p
}

// now asks for the session's state; networked transports only.
func (d *pilot) now() *Frame {
	if d.s.wire != nil {
		return d.s.state()
	}
	d.s.ids++
	v := d.s.viewer(fmt.Sprintf("judge-%d", d.s.ids))
	defer v.close()
	return v.last(control("snapshot"))
}

// catchUp reads what the server has said so far. A stream has no answers, so
// there an empty init is sent, whose status is waited for.
func (d *pilot) catchUp() (moved []move) {
	switch {
	case d.c == nil:
		d.p.fence()
		return nil
	case d.s.published(): // which need not say anything of an init
		d.p.readsTo(d.s.state().Cursor)
		return nil
	}
	from := len(d.p.log)
	d.c.posted("R33", initNothing())
	return []move{{d.p.indexAfter(d.p.await("R33", from, initNothingReply)) - 1, initNothing()}}
}

func (d *pilot) leaves() {
	if d.c != nil {
		d.c.disconnect(nil).ok("A15")
		return
	}
	d.p.send([]byte(`{"type":"ws.bye","keep":false}`))
	d.p.closes("9.5", 1000)
}

// readsTo reads to an entry with a cursor, or until nothing comes: the last
// entries may be for others.
func (p *Peer) readsTo(cursor int64) {
	for p.watch.cursor < cursor && p.pullBefore(time.Now().Add(p.s.openTime())) {
	}
}

// settle is catchUp that keeps what it did.
func (d *pilot) settle() { d.moves = append(d.moves, d.catchUp()...) }

// do sends a command that must be accepted, once everything before it has been
// received.
func (d *pilot) do(cmd contracts.Command) {
	d.settle()
	d.moves = append(d.moves, move{len(d.p.log), cmd})
	d.tell("R79", cmd)
}

func (d *pilot) tell(rule string, cmd contracts.Command) {
	if d.c != nil {
		d.c.posted(rule, cmd)
		return
	}
	d.p.accepted(rule, d.p.command(cmd))
}

// refused sends a command that must be refused.
func (d *pilot) refused(cmd contracts.Command, r refusal) {
	if d.c != nil {
		a := d.c.post(cmd).refused(r.rule, r.code, r.text)
		d.s.failIf(!d.s.published() && !r.fits(a.str("error")), r.rule,
			"expected a refusal with %s, got %s", r.describe("error"), a.said())
		return
	}
	d.p.pos = len(d.p.log)
	d.p.refused(d.p.command(cmd), r)
}

// prompt begins a run as soon as the one before it has ended, however long that
// takes.
func (d *pilot) prompt(content string) { d.send(&contracts.Prompt{Content: content}) }

func (d *pilot) send(cmd *contracts.Prompt) {
	d.s.onceFree(d.p.name, func() bool {
		d.settle()
		d.spoke = len(d.p.log)
		return d.try(cmd)
	})
	at := d.spoke
	if d.c == nil && d.s.socket() { // what came before the answer is of an earlier run
		at = d.p.indexAfter(d.p.last(control("ws.result"))) - 1
	}
	d.moves = append(d.moves, move{at, cmd})
}

// triggers sends a prompt to the conformance agent until it is accepted.
func (d *pilot) triggers(content string) {
	if d.c != nil {
		d.c.prompt(content)
	} else {
		d.p.prompt(content)
	}
}

// poses makes the conformance agent ask, and waits for the question.
func (d *pilot) poses(kind contracts.RequestType, id string) {
	if d.c != nil {
		d.c.ask(kind, id)
	} else {
		d.p.ask(kind, id)
	}
}

// cursor is that of what was said last.
func (d *pilot) cursor() int64 {
	if d.c != nil {
		return d.s.state().Cursor
	}
	d.p.fence()
	return d.p.watch.cursor
}

// head is cursor once no run goes on.
func (d *pilot) head() int64 {
	if d.c != nil {
		d.c.finishRun()
	}
	return d.cursor()
}

// quietly fails unless what f does leaves the session's cursor alone.
func (d *pilot) quietly(rule string, f func()) { d.s.unmoved(rule, d.cursor, f) }

// unmoved is quietly for a cursor that is got in another way.
func (s *Session) unmoved(rule string, cursor func() int64, f func()) {
	before := cursor()
	f()
	after := cursor()
	s.failIf(after != before, rule, "expected what is refused to do nothing, but the cursor went from %d to %d", before, after)
}

// end drives until every peer has seen a last status, so that their logs end at the
// same entry.
func (d *pilot) end(peers ...*Peer) {
	d.triggers("the end")
	endTogether(append(peers, d.p)...)
}

// comesBack attaches a viewer that has seen everything up to a cursor.
func (d *pilot) comesBack(name string, cursor int64) *Peer {
	if d.c != nil {
		return d.s.backOn(name, cursor, "")
	}
	return d.s.back(name, cursor, d.p.epoch)
}

// try sends a prompt and reports false if a run is still active.
func (d *pilot) try(cmd *contracts.Prompt) bool {
	if d.c == nil {
		return d.p.tryPrompt(cmd)
	}
	return d.c.try(cmd).Status == http.StatusOK
}

// signOfWork wants anything that an agent shows of a run.
var signOfWork = anyOf(message("response_start"), message("tool_call"), message("tool_start"), message("server_request"))

// awaits returns what w wants of the present run. An agent may be silent for a
// while; the scenario's timeout bounds the whole.
func (d *pilot) awaits(rule string, w want) *Frame {
	return d.p.awaitFor(rule, d.spoke, w, 3*d.s.config.Patience)
}

// after is awaits for what comes after a frame.
func (d *pilot) after(rule string, f *Frame, w want) *Frame {
	return d.p.awaitFor(rule, d.p.indexAfter(f), w, 3*d.s.config.Patience)
}

// decide has approvals decided in a mode from here on.
func (d *pilot) decide(mode contracts.ApprovalMode) {
	if d.mode != mode {
		d.mode = mode
		d.do(&contracts.Init{ApprovalMode: mode})
	}
}

// says begins a run that is answered, in which nothing is asked.
func (d *pilot) says() {
	d.decide(contracts.ApprovalAuto)
	d.prompt(d.s.say())
}

// calls begins a run in which a tool is called, and nothing asked.
func (d *pilot) calls() {
	d.decide(contracts.ApprovalAuto)
	d.prompt(d.s.ask())
}

// works begins a run that takes a while, in which nothing is asked, and returns
// its first sign.
func (d *pilot) works() *Frame {
	d.decide(contracts.ApprovalAuto)
	d.prompt(d.s.long())
	return d.awaits("R37", signOfWork)
}

func (d *pilot) question() *Frame {
	return d.awaits("R50", message("server_request").with("request_type", contracts.RequestApproval))
}

// asks begins a run that asks for an approval, and returns the question. A run
// before it must be over: the mode would change in its midst.
func (d *pilot) asks() *Frame {
	d.decide(contracts.ApprovalPrompt)
	d.prompt(d.s.ask())
	return d.question()
}

// ends drives until the session takes another prompt and holds the run before it
// against what every run promises: R37 and R46.
func (d *pilot) ends(rule string) {
	began := d.spoke
	d.says()
	d.settle()
	d.s.failIf(countOf(d.p.log[began:], message("response_end")) == 0, "R37",
		"%s: expected a response_end before another prompt was accepted, got none", d.p.name)
	d.closed(began, d.spoke)
	d.awaits(rule, message("response_end"))
}

// closed fails unless every call that was announced in a part of the log has
// ended once. Those of the conformance agent may wait for an answer.
func (d *pilot) closed(from, to int) {
	for _, f := range d.p.log[from:to] {
		if f.Kind != "message" || f.Type != "tool_call" || !d.s.any() {
			continue
		}
		id := f.str("call_id")
		d.p.count("R46", d.p.log[from:], message("tool_end").with("call_id", id), 1)
	}
}

// idle waits until the state shows that nothing goes on.
func (d *pilot) idle(rule string) {
	if !d.s.socket() {
		return
	}
	d.s.until(rule, "a state without a response and tools", func() (bool, string) {
		f := d.now()
		return f.at("state.is_responding") == false && len(listOf(f, "state.active_tools")) == 0, f.said()
	})
	checkIdle(d.s, rule, d.now())
}

// finish has every peer read up to one common entry, and forget what follows.
func (d *pilot) finish(peers ...*Peer) {
	if d.c != nil && d.s.published() {
		last := d.s.state().Cursor
		for _, p := range append(peers, d.p) {
			p.readsTo(last)
			p.log = slices.DeleteFunc(p.log, func(f *Frame) bool { return f.Cursor > last })
		}
		return
	}
	from := len(d.p.log)
	d.tell("R33", initNothing())
	last := d.p.await("R33", from, initNothingReply)
	end := initNothingReply.where(fmt.Sprintf("with cursor %d", last.Cursor), func(f *Frame) bool { return f.Cursor == last.Cursor })
	for _, p := range append(peers, d.p) {
		p.await("A49", 0, end)
		p.cut(end)
	}
}

// compare holds a fresh snapshot against the fold of what the pilot saw and did.
func (d *pilot) compare(rule string) {
	f := d.now()
	late := d.catchUp()
	d.differs(rule, f)
	d.moves = append(d.moves, late...)
}

// answers approves or denies a question, giving a reason.
func (d *pilot) answers(q *Frame, yes bool) {
	d.do(&contracts.ServerRequestResponse{RequestID: q.str("request_id"), RequestType: contracts.RequestApproval, Approved: &yes,
		Result: &contracts.ToolResult{Success: yes, Output: "Go ahead", Error: "Not on a Friday"}})
}

// resolved returns how a question ended, which must be in this way.
func (d *pilot) resolved(rule string, q *Frame, verdict, by string) *Frame {
	f := d.after(rule, q, resolved(q.str("request_id")))
	d.s.shows(rule, f, fields{"resolution": verdict, "resolved_by": by, "call_id": q.at("call_id")})
	return f
}

// toolEnd returns the end of the call that a question was about.
func (d *pilot) toolEnd(q *Frame) *Frame {
	return d.after("R46", q, message("tool_end").with("call_id", q.str("call_id")))
}

// notStarted fails if the call of a question was started.
func (d *pilot) notStarted(q *Frame) {
	if i := slices.IndexFunc(d.p.log, message("tool_start").with("call_id", q.str("call_id")).ok); i >= 0 {
		d.s.fail("R46:gated", "%s: expected a call that was not approved to stay unstarted, got %s", d.p.name, d.p.log[i].said())
	}
}
