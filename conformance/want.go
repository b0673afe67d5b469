package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A want describes a text from the server, for finding it and for saying what
// was missing.
type want struct {
	text string
	ok   func(*Frame) bool
}

func message(kind string) want {
	return want{kind, func(f *Frame) bool { return f.Kind == "message" && f.Type == kind }}
}

// control wants an envelope or a control frame of a type; sockets only.
func control(kind string) want { return want{kind, func(f *Frame) bool { return f.Kind == kind }} }

func prompted(content string) want { return message("status").with("message", "Prompt: "+content) }

func requested(id string) want { return message("server_request").with("request_id", id) }

func resolved(id string) want { return message("server_request_resolved").with("request_id", id) }

func anyOf(wants ...want) want {
	texts := make([]string, len(wants))
	for i, w := range wants {
		texts[i] = w.text
	}
	return want{strings.Join(texts, " or "), func(f *Frame) bool {
		return slices.ContainsFunc(wants, func(w want) bool { return w.ok(f) })
	}}
}

// with also wants a field to have a value: a string, bool, int or nil. Nested
// fields are written a.b.
func (w want) with(path string, value any) want {
	return w.where(fmt.Sprintf("%s %s", path, show(value)), func(f *Frame) bool { return same(f.at(path), value) })
}

func (w want) where(text string, f func(*Frame) bool) want {
	return want{w.text + ", " + text, func(frame *Frame) bool { return w.ok(frame) && f(frame) }}
}

func (f *Frame) at(path string) any {
	if f == nil {
		return nil
	}
	var v any = f.Fields
	for step := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[step]
	}
	return v
}

// said shows the text in messages.
func (f *Frame) said() string { return abridge(f.Raw, maxTraceText) }

func (f *Frame) str(path string) string {
	s, _ := f.at(path).(string)
	return s
}

func same(got, want any) bool {
	switch want.(type) {
	case nil, bool, string:
		return got == want
	}
	return bytes.Equal(encode(got), encode(want))
}

// failIf fails if the server broke a rule. The arguments are those of [Session.fail].
func (s *Session) failIf(broken bool, rule, format string, args ...any) {
	if broken {
		s.fail(rule, format, args...)
	}
}

// adviseIf is failIf for what a scenario goes on after, as with [Session.advise].
func (s *Session) adviseIf(broken bool, rule, format string, args ...any) {
	if broken {
		s.advise(rule, format, args...)
	}
}

func (s *Session) equal(rule, what string, got, want any) {
	s.failIf(!same(got, want), rule, "expected %s to be %s, got %s", what, show(want), show(got))
}

// shows fails unless the frame has these fields; their names are paths, as in [Frame.at].
func (s *Session) shows(rule string, f *Frame, want fields) {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		s.failIf(!same(f.at(path), want[path]), rule, "expected %s %s, got %s in %s", path, show(want[path]), show(f.at(path)), f.said())
	}
}

// lists fails unless an entry of a list has these keys.
func (s *Session) lists(rule string, entry map[string]any, want fields) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		s.failIf(!same(entry[key], want[key]), rule, "expected %s %s in the entry, got %s", key, show(want[key]), show(entry))
	}
}

// has is shows for an answer.
func (a *Answer) has(rule string, want fields) *Answer {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		a.s.failIf(!same(a.at(path), want[path]), rule, "%s: expected %s %s, got %s", a.what(), path, show(want[path]), a.said())
	}
	return a
}

// count fails unless w wants exactly n of the frames.
func (p *Peer) count(rule string, frames []*Frame, w want, n int) {
	got := countOf(frames, w)
	p.s.failIf(got != n, rule, "%s: expected %d of %s, got %d", p.name, n, w.text, got)
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return abridge(text, 200)
}

// expect returns the next text that w wants, passing over others. If the
// server is silent for as long as the configured patience, it broke rule.
func (p *Peer) expect(rule string, w want) *Frame {
	f := p.await(rule, p.pos, w)
	p.pos = p.indexAfter(f)
	return f
}

// seek returns the first text from an index on that w wants, or nil if none comes. A busy
// machine makes a long response slow, so patience is measured from the last text that was
// no sign of life; the scenario's timeout bounds the whole.
func (p *Peer) seek(from int, w want, patience time.Duration) *Frame {
	deadline := time.Now().Add(patience)
	for i := from; ; i++ {
		if i >= len(p.log) {
			if !p.pullBefore(deadline) {
				return nil
			}
			if k := p.log[len(p.log)-1].Kind; k != "heartbeat" && k != kindComment {
				deadline = time.Now().Add(patience)
			}
		}
		if w.ok(p.log[i]) {
			return p.log[i]
		}
	}
}

func expectAll(rule string, w want, peers ...*Peer) {
	for _, p := range peers {
		p.expect(rule, w)
	}
}

// await is expect on the log from an index on, without using it up.
func (p *Peer) await(rule string, from int, w want) *Frame {
	return p.awaitFor(rule, from, w, p.s.config.Patience)
}

// awaitFor is await with a patience of its own.
func (p *Peer) awaitFor(rule string, from int, w want, patience time.Duration) *Frame {
	f := p.seek(from, w, patience)
	if f == nil {
		p.missing(rule, w, patience)
	}
	return f
}

func (p *Peer) pullBefore(deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(p.s.ctx, deadline)
	defer cancel()
	return p.pull(ctx)
}

// missing fails because what was wanted did not come. It names the last text, whose
// time is also in the exchange: later ones there came after the wait.
func (p *Peer) missing(rule string, w want, patience time.Duration) {
	p.s.failIf(p.ended != nil, rule, "%s: expected %s, but the connection ended: %v", p.name, w.text, p.ended)
	waited := fmt.Sprintf("%s: expected %s, and waited up to %s for it, until %.3fs", p.name, w.text, patience, p.s.now().Seconds())
	said := slices.DeleteFunc(slices.Clone(p.log), (*Frame).answersFence)
	if len(said) == 0 {
		p.s.fail(rule, "%s; nothing was received before", waited)
	}
	last := said[len(said)-1]
	p.s.fail(rule, "%s; the last text received before was, at %.3fs: %s", waited, last.At.Seconds(), last.said())
}

// none fails if the log holds, from an index on, what must not be there.
func (p *Peer) none(rule string, from int, w want) {
	p.drain()
	for _, f := range p.log[from:] {
		p.s.failIf(w.ok(f), rule, "%s: expected no %s, got %s", p.name, w.text, f.said())
	}
}

// quiet is how long a scenario waits before it believes that nothing comes.
const quiet = 150 * time.Millisecond

// still fails if within a moment something comes that must not.
func (p *Peer) still(rule string, from int, w want) {
	if p.stream == nil { // nothing can be asked on a stream
		p.fence()
	}
	p.readAll(quiet)
	p.none(rule, from, w)
}

// closes waits for the server to end a socket with one of the codes.
func (p *Peer) closes(rule string, codes ...int) { p.closesWithin(rule, p.s.config.Patience, codes...) }

func (p *Peer) closesWithin(rule string, patience time.Duration, codes ...int) {
	p.readAll(patience)
	p.s.failIf(p.ended == nil, rule, "%s: expected a close with %v, got none within %s", p.name, codes, patience)
	p.s.failIf(!slices.Contains(codes, p.closeCode()), rule,
		"%s: expected a close with %v, got: %v", p.name, codes, p.ended)
}

// A refusal is how the server says no: an error message on stdio, ws.error on
// sockets.
type refusal struct {
	rule   string
	text   string              // the exact text; empty accepts any
	prefix string              // how the text begins; for texts with a free end
	names  string              // what the text must contain
	id     string              // request_id on stdio; empty accepts any
	idRule string              // that asks for the id; empty means 2.2:request-id
	kind   contracts.ErrorType // error_type on stdio
	code   contracts.Code      // code on sockets; empty accepts any
}

// want returns the refusal of the frame with an id as a want.
func (r refusal) want(socket bool, id string) want {
	w, field := message("error").with("error_type", string(r.kind)).with("fatal", false), "message"
	if r.id != "" {
		w = w.with("request_id", r.id)
	}
	if socket {
		w, field = control("ws.error").with("id", id), "error"
		if r.code != "" {
			w = w.with("code", r.code)
		}
	}
	return w.where(r.describe(field), func(f *Frame) bool { return r.fits(f.str(field)) })
}

func (r refusal) fits(text string) bool {
	return (r.text == "" || text == r.text) && strings.HasPrefix(text, r.prefix) && strings.Contains(text, r.names)
}

func (r refusal) describe(field string) string {
	switch {
	case r.text != "":
		return fmt.Sprintf("%s %q", field, r.text)
	case r.names != "":
		return fmt.Sprintf("%s %q... naming %q", field, r.prefix, r.names)
	}
	return fmt.Sprintf("%s %q...", field, r.prefix)
}

// refused expects the refusal of a command sent as id. On sockets another
// answer to it is reported at once instead of waited out.
func (p *Peer) refused(id string, r refusal) *Frame {
	if p.s.socket() {
		w := r.want(true, id)
		f := p.expect(r.rule, p.answer(id))
		p.s.failIf(!w.ok(f), r.rule, "%s: expected %s, got %s", p.name, w.text, f.said())
		return f
	}
	if p.s.published() {
		return p.refusedAsPublished(r)
	}
	return p.expect(r.rule, r.want(false, ""))
}

// refusedAsPublished is refused on stdio, where a published server takes the type
// of an error from its text, and the words about tools are its own.
func (p *Peer) refusedAsPublished(r refusal) *Frame {
	f := p.expect(r.rule, message("error").with("fatal", false).where("that answers no fence", func(f *Frame) bool {
		return r.text == textUnknownType || f.str("message") != textUnknownType
	}))
	if got := f.str("message"); !r.fits(got) && !p.s.sameText(got, r.text) {
		rule := r.rule
		if r.kind == contracts.ErrorTool {
			rule = "5.1:words"
		}
		p.s.advise(rule, "%s: expected %s, got %q", p.name, r.describe("message"), got)
	}
	if got := f.str("error_type"); got != string(r.kind) {
		p.s.advise("R103", "%s: expected error_type %s, got %s", p.name, r.kind, f.said())
	}
	p.s.adviseIf(r.id != "" && f.str("request_id") != r.id, cmp.Or(r.idRule, "2.2:request-id"),
		"%s: expected request_id %q, got %s", p.name, r.id, f.said())
	return f
}

// answer wants the ws.result or ws.error for an id.
func (p *Peer) answer(id string) want {
	return anyOf(control("ws.result"), control("ws.error")).with("id", id)
}

// accepted expects the ws.result for a command sent as id. Stdio has no
// acknowledgements, so there it only expects no refusal.
func (p *Peer) accepted(rule, id string) *Frame {
	if !p.s.socket() {
		return nil
	}
	f := p.await(rule, p.pos, p.answer(id))
	p.s.failIf(f.Kind != "ws.result", rule, "%s: expected ws.result for %s, got %s", p.name, id, f.said())
	return f
}
