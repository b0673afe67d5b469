package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

const (
	maxQuestions      = 4096 // questions of all sessions in an inbox; further ones are left out
	maxScopeQuestions = 1024 // of one scope, so that one scope cannot use up all
	maxListed         = 256  // questions of one list
	maxStored         = 16   // questions of one session in its stored summary
)

// questions returns the questions of the row that an inbox lists.
func (r *row) questions() []contracts.InboxQuestion {
	if !r.Marks.Deleted.IsZero() {
		return nil
	}
	return r.Questions
}

// shownQuestion returns a question of the row as clients see it.
func (r *row) shownQuestion(q contracts.InboxQuestion) *contracts.InboxQuestion {
	q.SessionID, q.SessionTitle = r.key.ID, r.title()
	return &q
}

// compareQuestions queues events about the questions of a row that changed. before are
// those that were listed, ended says how some of them ended. The caller holds mu.
func (o *Overview) compareQuestions(r *row, before []contracts.InboxQuestion, ended []contracts.InboxEnding) {
	after := r.questions()
	old := make(map[string]contracts.InboxQuestion, len(before))
	for _, q := range before {
		old[q.RequestID] = q
	}
	for _, q := range after {
		was, known := old[q.RequestID]
		delete(old, q.RequestID)
		if was == q {
			continue
		}
		ev := contracts.InboxEvent{Type: "question", Question: r.shownQuestion(q)}
		o.queueInbox(r, q.RequestType, ev)
		if !known {
			o.opts.Notify(r.key.Scope, ev)
		}
	}
	for _, q := range before {
		if _, gone := old[q.RequestID]; !gone {
			continue
		}
		end := contracts.InboxEnding{RequestID: q.RequestID}
		if i := slices.IndexFunc(ended, func(e contracts.InboxEnding) bool { return e.RequestID == q.RequestID }); i >= 0 {
			end = ended[i]
		}
		end.SessionID = r.key.ID
		ev := contracts.InboxEvent{Type: "ended", Ended: &end}
		o.queueInbox(r, q.RequestType, ev)
		o.opts.Notify(r.key.Scope, ev)
	}
	o.questions += len(after) - len(before)
	o.scope(r.key.Scope).questions += len(after) - len(before)
}

// queueInbox queues an event for the followers of an inbox. Above maxBatchEvents they get
// a new list instead. The caller holds mu.
func (o *Overview) queueInbox(r *row, kind contracts.RequestType, ev contracts.InboxEvent) {
	sc := o.scope(r.key.Scope)
	if sc.inbox.followers() > 0 && len(sc.asked) <= maxBatchEvents {
		sc.asked = append(sc.asked, event{part{id: r.key.ID, kind: kind}, &ev})
		signal(o.wake)
	}
}

// Inbox lists the open questions that a client may answer.
func (o *Overview) Inbox(by contracts.Caller) (*contracts.Inbox, error) {
	if err := handshake.MayAnswer(by, ""); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inbox(by), nil
}

// inbox lists the questions. The caller holds mu.
func (o *Overview) inbox(by contracts.Caller) *contracts.Inbox {
	list := &contracts.Inbox{Questions: []contracts.InboxQuestion{}}
	sc := o.scopes[by.Principal.Scope]
	if sc == nil {
		return list
	}
	list.Truncated = sc.leftOut
	for _, r := range sc.order {
		if r.status() != contracts.SessionWaiting { // waiting sessions come first
			break
		}
		if id := by.Principal.SessionID; id != "" && id != r.key.ID {
			continue
		}
		for _, q := range r.questions() {
			if handshake.MayAnswer(by, q.RequestType) == nil {
				list.Questions = append(list.Questions, *r.shownQuestion(q))
			}
		}
	}
	slices.SortStableFunc(list.Questions, func(a, b contracts.InboxQuestion) int { return cmp.Compare(a.AskedAt, b.AskedAt) })
	if len(list.Questions) > maxListed {
		list.Questions, list.Truncated = list.Questions[:maxListed], true
	}
	return list
}

// AtRest counts the open questions of the sessions that are not open, by type. oldest is
// when the first of them was asked, or zero.
func (o *Overview) AtRest() (waiting map[contracts.RequestType]int, oldest time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting = map[contracts.RequestType]int{}
	for _, sc := range o.scopes {
		for _, r := range sc.order {
			if r.status() != contracts.SessionWaiting { // waiting sessions come first
				break
			}
			if r.hub != nil {
				continue
			}
			for _, q := range r.questions() {
				waiting[q.RequestType]++
				if at, err := time.Parse(time.RFC3339, q.AskedAt); err == nil && (oldest.IsZero() || at.Before(oldest)) {
					oldest = at
				}
			}
		}
	}
	return waiting, oldest
}

// Looking reports whether a principal, or the "owner" of the server, follows the inbox.
func (o *Overview) Looking(principalID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.followers {
		follows := func(p position) bool { return p.list == contracts.ListInbox }
		p := f.by.Principal
		if (p.ID == principalID || principalID == "owner" && p.Owner()) && slices.ContainsFunc(f.positions, follows) {
			return true
		}
	}
	return false
}
