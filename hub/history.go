package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// Limits of one request for history, beside those in contracts.
const (
	maxHistoryScanned = 16 << 20 // bytes of entries that a request reads; the index reads on to a first prompt
	entryBytes        = 64       // what an entry counts beside its body
	maxTurnLine       = 200      // characters of the first line of a prompt
	maxExcerpt        = 200      // bytes
)

// History reads a part of the history for an HTTP client. The caller may name a
// connection, whose opt-outs then apply. Many requests wait for one another; the wait
// ends with ctx.
func (h *Hub) History(
	ctx context.Context, req *contracts.HistoryRequest, by contracts.Caller,
) (*contracts.HistoryPage, error) {
	skip := classRaw
	err := h.request(opRequest, func(tx *tx) error {
		if !tx.credentialValid(by.Principal) {
			return ErrExpired
		}
		if by.ConnectionID == "" && by.SubscriptionID == "" {
			return nil
		}
		c, err := tx.identify(by)
		if err != nil {
			return err
		}
		sub := tx.clients.subs[by.SubscriptionID]
		if sub == nil {
			sub = &subscription{optOuts: c.terms.OptOuts}
		}
		skip = sub.skips(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	page, err := h.readHistory(*req, by.Principal.ID, skip, ctx.Done())
	return page, h.refusedOr(err)
}

// answerHistory answers a ws.history frame, or such a line of the local client. It is
// called by the goroutine that reads from the client, so a client has one request at a
// time.
func (r *reader) answerHistory(req *contracts.HistoryRequest) {
	h, b := r.hub, r.box
	var page *contracts.HistoryPage
	err := h.aside(b.conn, func() (err error) {
		page, err = h.readHistory(*req, b.sub.conn.principal.ID, journal.Class(b.skip.Load()), b.stopped)
		return err
	})
	var frame []byte
	if err == nil {
		frame, err = historyFrame(b.form, req.ID, page)
	}
	h.update(func(tx *tx) {
		switch {
		case r.isSuperseded(tx):
			return
		case err == nil && b.privateBytes+len(frame) > tx.opts.MaxPrivateBytes:
			err = &contracts.Error{
				Code: contracts.CodeOverloaded, Message: "too many unread answers for a page of the history",
			}
		}
		if err != nil {
			refusal := *h.refusal(err)
			refusal.RequestID = req.ID // on stdio
			r.answer(tx, &req.ID, &refusal)
			return
		}
		tx.push(b, parcel{at: tx.head(), frame: frame})
	})
}

func historyFrame(form Form, id string, page *contracts.HistoryPage) ([]byte, error) {
	text, err := contracts.EncodeFrame(&contracts.HistoryEnvelope{ID: id, Page: *page})
	return form.AppendHistory(nil, text), err
}

// openingPage returns the page that an attaching client asked for. It ends where the
// client's snapshot is, and for the local client where this process began.
func (h *Hub) openingPage(b *mailbox, p parcel) ([]byte, error) {
	end := p.at
	if b.bare {
		end = h.startCursor
	}
	req := contracts.HistoryRequest{Before: end + 1, Turns: int64(p.turns), Limit: contracts.MaxHistoryLimit}
	page, err := h.readHistory(req, b.sub.conn.principal.ID, journal.Class(b.skip.Load()), b.stopped)
	if err != nil {
		return nil, h.refusal(err)
	}
	return historyFrame(b.form, "", page)
}

// readHistory checks a request of a principal and reads its page. A closed stop ends the
// wait for other requests. It takes no lock: the entries are immutable.
func (h *Hub) readHistory(
	req contracts.HistoryRequest, principal string, skip journal.Class, stop <-chan struct{},
) (*contracts.HistoryPage, error) {
	if err := prepareHistory(&req); err != nil {
		return nil, err
	}
	leave, ok := h.opts.Memory.historyReads.enter(principal, stop, h.done)
	if !ok {
		return nil, errGone
	}
	defer leave()
	r := historyReader{hub: h, req: req, raw: skip&classRaw == 0, stop: stop}
	r.skip = skip &^ (classRaw | classPeople) // which may be prompts
	switch req.Kind {
	case contracts.HistoryTurns:
		return r.turns()
	case contracts.HistorySearch:
		return r.search()
	}
	return r.entries()
}

// prepareHistory sets the defaults of a request and refuses values out of bounds.
func prepareHistory(req *contracts.HistoryRequest) error {
	var refusal error
	refuse := func(format string, args ...any) {
		refusal = &contracts.Error{Code: contracts.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	check := func(name string, value *int64, def, most int64) {
		if *value == 0 {
			*value = def
		}
		if *value < 0 || *value > most {
			refuse("%s must be 1 to %d", name, most)
		}
	}
	check("limit", &req.Limit, 100, contracts.MaxHistoryLimit)
	check("bytes", &req.Bytes, contracts.MaxHistoryBytes/2, contracts.MaxHistoryBytes)
	check("turns", &req.Turns, 0, contracts.MaxHistoryTurns)
	search, size := req.Kind == contracts.HistorySearch, len(req.Query)
	switch {
	case search && (size == 0 || size > contracts.MaxHistoryQuery || !utf8.ValidString(req.Query)):
		refuse("a search needs a text of 1 to %d bytes", contracts.MaxHistoryQuery)
	case !search && size > 0:
		refuse("only a search takes a query")
	}
	if req.Before == 0 {
		req.Before = ^uint64(0)
	}
	req.Kind = cmp.Or(req.Kind, contracts.HistoryEntries)
	return refusal
}

// A historyReader reads the journal backwards for one request. Nobody but the request
// waits for it.
type historyReader struct {
	hub  *Hub
	req  contracts.HistoryRequest
	raw  bool          // raw agent events are shown
	skip journal.Class // of other events
	stop <-chan struct{}
	page contracts.HistoryPage
}

// read calls take with the passages before the cursor of the request, the newest
// first. It ends when take returns false, or when it has read maxHistoryScanned bytes
// and pause allows it. Then it sets where the next page begins.
func (r *historyReader) read(take takeFunc, pause func() bool) error {
	r.page.Epoch = r.hub.Epoch()
	l := promptLinker{take: take}
	var held *passage // older pieces may join it
	scanned, last := 0, uint64(0)
	for e, err := range r.hub.journal.Backward(r.req.Before) {
		if err != nil {
			return err
		}
		lost := last != 0 && e.Cursor != last-1 && r.req.Kind == contracts.HistoryEntries
		if lost || scanned > maxHistoryScanned && pause() || r.stopped() {
			if l.add(held) && (!lost || l.flush(true)) {
				l.next, r.page.Gap = l.from(last), lost
			}
			r.page.Before = &l.next
			return nil
		}
		last, scanned = e.Cursor, scanned+len(e.Body)+entryBytes
		e, seen := e.Seen(r.skip)
		if !seen || e.Kind != journal.Message || held != nil && !r.req.Pieces && held.join(&e) {
			continue
		}
		if !l.add(held) {
			r.page.Before = &l.next
			return nil
		}
		held = newPassage(e)
	}
	if !l.add(held) || !l.flush(true) {
		r.page.Before = &l.next
		return nil
	}
	r.page.Gap = r.hub.journal.First() > 1
	return nil
}

func (r *historyReader) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func always() bool { return true }

// entries reads a page of events.
func (r *historyReader) entries() (*contracts.HistoryPage, error) {
	size, prompts := 0, int64(0)
	err := r.read(func(p *passage) bool {
		if r.req.Turns > 0 && prompts == r.req.Turns {
			return false
		}
		if !r.raw && p.newest.Class == classRaw && !p.prompt {
			return true
		}
		e := r.entry(p)
		n := len(r.page.Entries)
		if int64(n) == r.req.Limit || n > 0 && int64(size+len(e.Message)) > r.req.Bytes {
			return false
		}
		r.page.Entries, size = append(r.page.Entries, e), size+len(e.Message)
		if p.prompt {
			prompts++
		}
		return true
	}, always)
	slices.Reverse(r.page.Entries)
	r.page.Cut = r.req.Turns > prompts && r.page.Before != nil
	return &r.page, err
}

// complete puts the whole prompt into a prompt_accepted that has only its beginning. The raw
// message_start has the prompt. It is at most three entries later.
func (r *historyReader) complete(p *passage) {
	if !p.prompt || !bytes.Contains(p.newest.Body, []byte(`"truncated":true`)) {
		return
	}
	ev, ok := p.event().(*contracts.PromptAccepted)
	if !ok || !ev.Truncated {
		return
	}
	for e, err := range r.hub.journal.Backward(p.newest.Cursor + 4) {
		if err != nil || e.Cursor <= p.newest.Cursor {
			break
		}
		whole, by := newPassage(e).said()
		if by == nil && strings.HasPrefix(whole, ev.Content) {
			ev.Content, ev.Truncated = whole, false
		}
	}
	if enc, err := contracts.EncodeEvent(ev); err == nil {
		p.newest.Body = enc.Body
	}
}

// entry returns the entry of a page. It shortens a long output.
func (r *historyReader) entry(p *passage) contracts.HistoryEntry {
	e := contracts.HistoryEntry{Cursor: p.newest.Cursor, At: p.at()}
	if r.req.Full {
		r.complete(p)
	}
	if p.text > contracts.MaxHistoryOutput && !r.req.Full {
		if short, omitted := shorten(p.event()); short != nil {
			e.Message, e.Omitted = encode(nil, short).Body, int64(omitted)
			return e
		}
	}
	if e.Message = p.body(); len(e.Message) > contracts.MaxHistoryBytes {
		e.Message, e.Omitted = nil, int64(len(e.Message))
	}
	return e
}

// shorten returns an event with a shorter output, or nil if the event has none or a
// short one.
func shorten(ev contracts.Event) (short contracts.Event, omitted int) {
	cut := func(content *string) {
		omitted = len(*content)
		*content = abridge.Head(*content, contracts.MaxHistoryOutput/2)
		omitted -= len(*content)
	}
	switch e := ev.(type) {
	case *contracts.ToolOutput:
		cut(&e.Content)
	case *contracts.UtilityCommandOutput:
		cut(&e.Content)
	default:
		return nil, 0
	}
	return ev, omitted
}

// turns reads a page of the index of prompts. The prompts are found by reading the
// events, so the index needs neither memory nor a file.
func (r *historyReader) turns() (*contracts.HistoryPage, error) {
	var ended time.Time // when the run ended whose prompt comes next; zero if its end was not read
	var outcome contracts.TurnOutcome
	var end uint64         // its cursor
	var questions []uint64 // of the run, the newest first
	ending := false        // only what belongs to the end of the run was read since
	steering := false      // the oldest turn of the page steers the run of the next one, whose end was read
	err := r.read(func(p *passage) bool {
		if len(r.page.Turns) >= int(r.req.Limit) && !steering {
			return false
		}
		switch p.kind() {
		case "agent_end":
			if ended.IsZero() { // else a later run went on with an answer
				ended, outcome, ending = time.UnixMilli(p.newest.Time), contracts.TurnCompleted, true
				end = p.newest.Cursor
			}
		case "error":
			if e, ok := p.event().(*contracts.ErrorEvent); ok && ending && e.RequestID == "" {
				outcome, ending = contracts.TurnFailed, false
				if e.ErrorType == contracts.ErrorCancelled {
					outcome = contracts.TurnCancelled
				}
			}
		case "server_request":
			if len(questions) < contracts.MaxTurnQuestions {
				questions = append(questions, p.newest.Cursor)
			}
		case "response_start", "tool_call":
			ending = false
		}
		if p.prompt {
			outcome = r.turn(p, outcome, ended)
			if n := len(r.page.Turns); n > 0 && r.page.Turns[n-1].Cursor == p.newest.Cursor {
				slices.Reverse(questions)
				r.page.Turns[n-1].End, r.page.Turns[n-1].Questions = end, questions
			}
			questions = nil
			if steering = p.steers; !steering {
				ended, outcome, ending, end = time.Time{}, "", false, 0
			}
		}
		return true
	}, func() bool { return len(r.page.Turns) > 0 })
	if n := len(r.page.Turns); n > 0 && r.page.Before != nil {
		r.page.Before = new(r.page.Turns[n-1].Cursor) // a copy, because the turns are reversed
	}
	slices.Reverse(r.page.Turns)
	return &r.page, err
}

// turn adds a turn to the page, unless a part of it is after the page. It returns the
// outcome of the run.
func (r *historyReader) turn(p *passage, outcome contracts.TurnOutcome, ended time.Time) contracts.TurnOutcome {
	newest := len(r.page.Turns) == 0
	if newest && ended.IsZero() && r.req.Before <= r.hub.journal.Visible() {
		return ""
	}
	text, by := p.said()
	t := contracts.HistoryTurn{
		Cursor: p.newest.Cursor, At: p.at(), Author: by, Line: abridge.Line(text, maxTurnLine), Outcome: outcome,
	}
	switch {
	case !ended.IsZero():
		t.DurationMS = new(max(0, ended.UnixMilli()-p.newest.Time))
	case outcome != "": // a later prompt steered the run
	case newest:
		t.Outcome = contracts.TurnRunning
	default:
		t.Outcome = contracts.TurnCancelled // its end was not stored
	}
	r.page.Turns = append(r.page.Turns, t)
	return t.Outcome
}

// search reads a page of the entries that contain a text.
func (r *historyReader) search() (*contracts.HistoryPage, error) {
	query := strings.ToLower(r.req.Query)
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(query); err != nil {
		return nil, err
	}
	escaped := encoded.Bytes()[1 : encoded.Len()-2] // without quotes and line end
	untold, oldest := 0, uint64(0)                  // hits whose prompt was not read; cursor of the oldest hit
	err := r.read(func(p *passage) bool {
		full := len(r.page.Hits) == int(r.req.Limit)
		if full && untold == 0 {
			return false
		}
		r.complete(p)
		// Most events are ruled out before they are decoded.
		lower := bytes.ToLower(p.body())
		if !full && (bytes.Contains(lower, escaped) || bytes.Contains(lower, []byte(`\u`))) {
			if excerpt, ok := find(searchable(p), query); ok {
				hit := contracts.HistoryHit{Cursor: p.newest.Cursor, At: p.at(), Of: p.kind(), Excerpt: excerpt}
				r.page.Hits = append(r.page.Hits, hit)
				untold, oldest = untold+1, p.oldest
			}
		}
		if p.prompt {
			for i := len(r.page.Hits) - untold; i < len(r.page.Hits); i++ {
				r.page.Hits[i].Turn = new(p.newest.Cursor)
			}
			untold = 0
		}
		return true
	}, always)
	if len(r.page.Hits) == int(r.req.Limit) { // what is before the oldest hit was not looked at
		r.page.Before, r.page.Gap = &oldest, false
	}
	slices.Reverse(r.page.Hits)
	return &r.page, err
}

// searchable returns the text of an event that a search looks at.
func searchable(p *passage) string {
	if p.prompt {
		text, _ := p.said()
		return text
	}
	switch e := p.event().(type) {
	case *contracts.ResponseChunk:
		return e.Content
	case *contracts.ToolCall:
		return e.Tool + " " + string(e.Args)
	case *contracts.ToolOutput:
		return e.Content
	case *contracts.UtilityCommandStarted:
		return e.Command
	case *contracts.UtilityCommandOutput:
		return e.Content
	case *contracts.ErrorEvent:
		return e.Message
	case *contracts.Compaction:
		return e.Summary
	}
	return ""
}

// find returns the text around the first place that contains a query, which is in lower
// case. The result is one line.
func find(text, query string) (excerpt string, ok bool) {
	lower := strings.ToLower(text)
	at := strings.Index(lower, query)
	if at < 0 {
		return "", false
	}
	if len(lower) != len(text) { // a letter has another length in lower case
		text = lower
	}
	from := max(at-maxExcerpt/3, 0)
	for from > 0 && from < at && !utf8.RuneStart(text[from]) {
		from++
	}
	return strings.Join(strings.Fields(abridge.Head(text[from:], maxExcerpt)), " "), true
}
