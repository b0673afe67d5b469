package hub

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A passage is an event, or adjacent pieces of one text.
type passage struct {
	newest journal.Entry
	oldest uint64   // cursor of the oldest piece
	older  [][]byte // texts of the pieces before newest, the newest first
	text   int      // bytes of all texts
	prompt bool     // it is the event that has a prompt: prompt_accepted, or the raw event where that is missing
	steers bool     // it is a prompt that the agent took during the run of an earlier one
}

func newPassage(e journal.Entry) *passage {
	return &passage{newest: e, oldest: e.Cursor, text: int(e.TextEnd - e.TextStart)}
}

// join adds the next older entry, unless it does not belong to the text.
func (p *passage) join(e *journal.Entry) bool {
	text := e.Body[e.TextStart:e.TextEnd]
	if !p.newest.Continues(e) || p.text+len(text) > journal.MaxMergedText {
		return false
	}
	p.oldest, p.older, p.text = e.Cursor, append(p.older, text), p.text+len(text)
	return true
}

// body returns the JSON of the event, with the whole text.
func (p *passage) body() []byte {
	e := &p.newest
	if len(p.older) == 0 {
		return e.Body
	}
	out := make([]byte, 0, len(e.Body)+p.text)
	out = append(out, e.Body[:e.TextStart]...)
	for _, text := range slices.Backward(p.older) {
		out = append(out, text...)
	}
	return append(out, e.Body[e.TextStart:]...)
}

func (p *passage) at() string { return timestamp(time.UnixMilli(p.newest.Time)) }

// event decodes the event. It returns nil for one that this version does not know.
func (p *passage) event() contracts.Event {
	ev, err := (&contracts.Decoder{}).Event(p.body())
	if err != nil {
		return nil
	}
	return ev
}

// kind returns the type of the event, or of the event in a raw agent event. The
// encoder puts them first.
func (p *passage) kind() string {
	rest := p.newest.Body
	if p.newest.Class == classRaw {
		_, rest, _ = bytes.Cut(rest, []byte(`,"event_type":"`))
	} else {
		rest = bytes.TrimPrefix(rest, []byte(`{"type":"`))
	}
	kind, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(kind)
}

// said returns the text of a prompt, and its author if the event has one.
func (p *passage) said() (text string, by *contracts.Author) {
	switch e := p.event().(type) {
	case *contracts.PromptAccepted:
		return e.Content, &e.Author
	case *contracts.RawAgentEvent:
		text, _ = e.UserMessage()
	}
	return text, nil
}

// A takeFunc adds a passage to a page, unless the page is full.
type takeFunc func(*passage) bool

// A promptLinker finds out which passages are prompts. A run begins with
// prompt_accepted, queue_changed if the prompt was in the queue, and the raw events
// agent_start and message_start. A prompt that steers a run has no agent_start. In
// sessions of earlier versions, only message_start has the prompt.
type promptLinker struct {
	take    takeFunc
	waiting []*passage // message_start, and what may follow prompt_accepted before it, the newest first
	next    uint64     // before which the next page begins, once take has returned false
}

// add adds the next older passage; nil is none. It returns false if the page is full.
func (l *promptLinker) add(p *passage) bool {
	if p == nil {
		return true
	}
	kind := p.kind()
	if l.links(kind) {
		l.waiting = append(l.waiting, p)
		return true
	}
	p.prompt = kind == "prompt_accepted"
	p.steers = p.prompt && len(l.waiting) > 0 && !l.waits("agent_start")
	if !l.flush(!p.prompt) {
		return false
	}
	if p.newest.Class == classRaw && kind == "message_start" {
		if raw, ok := p.event().(*contracts.RawAgentEvent); ok {
			if _, user := raw.UserMessage(); user {
				l.waiting = append(l.waiting, p)
				return true
			}
		}
	}
	return l.pass(p)
}

// links reports whether an event of the kind may be between prompt_accepted and the
// passages that wait.
func (l *promptLinker) links(kind string) bool {
	return len(l.waiting) == 1 && kind == "agent_start" ||
		len(l.waiting) > 0 && kind == "queue_changed" && !l.waits(kind)
}

// waits reports whether an event of the kind waits.
func (l *promptLinker) waits(kind string) bool {
	return slices.ContainsFunc(l.waiting, func(p *passage) bool { return p.kind() == kind })
}

// flush passes the waiting passages on. alone says that message_start is the prompt.
func (l *promptLinker) flush(alone bool) bool {
	waiting := l.waiting
	l.waiting = nil
	for i, p := range waiting {
		p.prompt = alone && i == 0
		if !l.pass(p) {
			return false
		}
	}
	return true
}

func (l *promptLinker) pass(p *passage) bool {
	if l.take(p) {
		return true
	}
	l.next = p.newest.Cursor + 1
	return false
}

// from returns where the next page begins if this one ends before the entry last.
func (l *promptLinker) from(last uint64) uint64 {
	if len(l.waiting) > 0 {
		return l.waiting[0].newest.Cursor + 1
	}
	return last
}
