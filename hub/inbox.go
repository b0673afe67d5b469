package hub

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

const (
	maxQuestions      = 4096    // questions of all sessions in an inbox; further ones are left out
	maxScopeQuestions = 1024    // of one scope, so that one scope cannot use up all
	maxListed         = 256     // questions of one list
	maxStored         = 16      // questions of one session in its stored summary
	maxQuestionText   = 2 << 10 // bytes of the display; the other texts have a quarter
	maxUnreadEndings  = 256     // endings of a session between two rounds of publish; older ones show no author
)

// questions returns the open questions of a session that people answer, without the id
// and the title of the session.
func (s *state) questions() (list []contracts.InboxQuestion) {
	if s.work.table.Len() == 0 {
		return nil
	}
	shown := map[string]contracts.ShownRecord{}
	for _, r := range s.log.events.People().Requests {
		shown[r.RequestID] = r
	}
	for _, row := range s.work.table.Pending() {
		req, r := row.Request, shown[row.Request.RequestID]
		if req.RequestType == contracts.RequestClientTool { // a program answers it
			continue
		}
		q := contracts.InboxQuestion{
			RequestID: req.RequestID, RequestType: req.RequestType, CallID: req.CallID, Tool: req.Tool,
			Description: req.ActionDescription, Reason: req.Reason,
			Display: r.Display, Escaped: r.Escaped, Truncated: r.Truncated, Digest: cmp.Or(row.Digest, r.Digest),
			Votes: int64(len(row.Votes)), VotesNeeded: int64(row.Needed), AskedAt: timestamp(row.Opened),
		}
		for text, limit := range map[*string]int{
			&q.Tool: maxQuestionText / 4, &q.Description: maxQuestionText / 4, &q.Reason: maxQuestionText / 4,
			&q.Display: maxQuestionText,
		} {
			if len(*text) > limit {
				*text, q.Truncated = strings.Clone(contracts.SplitText(*text, limit)[0]), true
			}
		}
		if !row.Deadline.IsZero() {
			q.ExpiresAt = timestamp(row.Deadline)
		}
		list = append(list, q)
	}
	return list
}

// noteEnding keeps how a question ended until an overview takes the record.
func (tx *tx) noteEnding(ev *contracts.ServerRequestResolved, by *contracts.Author) {
	if tx.opts.Changed == nil {
		return
	}
	end := contracts.InboxEnding{RequestID: ev.RequestID, Resolution: ev.Resolution, ResolvedBy: ev.ResolvedBy, Author: by}
	tx.log.endings = append(tx.log.endings, end)
	tx.log.endings = tx.log.endings[max(len(tx.log.endings)-maxUnreadEndings, 0):]
}

// An inboxEvent is an event of an inbox before it is encoded.
type inboxEvent struct {
	part // without its end
	contracts.InboxEvent
}

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
		if !known && q.AskedAt >= o.started { // else an earlier process has notified
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
	if sc.inbox.followers > 0 && len(sc.asked) <= maxBatchEvents {
		sc.asked = append(sc.asked, inboxEvent{part{id: r.key.ID, kind: kind}, ev})
		signal(o.wake)
	}
}

// publishInbox makes a batch for the followers of an inbox. The caller holds mu.
func (o *Overview) publishInbox(sc *scope) {
	if len(sc.asked) == 0 {
		return
	}
	var b batch
	flood := len(sc.asked) > maxBatchEvents
	for i := range sc.asked {
		if !flood {
			o.appendEvent(&b, sc.asked[i].part, &sc.asked[i].InboxEvent)
		}
	}
	sc.asked = nil
	sc.inbox.publish(b, flood)
}

// answersQuestions refuses a caller that answers no questions of the type. An empty type
// stands for approvals.
func answersQuestions(by contracts.Caller, kind contracts.RequestType) error {
	role := cmp.Or(by.Principal.Role, contracts.RoleController)
	if by.Role != "" && by.Role != contracts.RoleController {
		role = by.Role
	}
	if err := by.Principal.CheckRole(role); err != nil {
		return err
	}
	switch {
	case role == contracts.RoleViewer:
		return errViewerAnswers
	case role == contracts.RoleApprover && kind != "" && !handshake.ApproverAnswers(kind):
		return errApproverSends
	}
	return nil
}

var errViewerAnswers = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "viewers answer no questions"}

// Inbox lists the open questions that a client may answer.
func (o *Overview) Inbox(by contracts.Caller) (*contracts.Inbox, error) {
	if err := answersQuestions(by, ""); err != nil {
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
			if answersQuestions(by, q.RequestType) == nil {
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

// FollowInbox sends a list of the open questions that a client may answer, and then new
// questions and how questions ended, until conn or ctx ends.
func (o *Overview) FollowInbox(ctx context.Context, conn Conn, by contracts.Caller) error {
	if err := answersQuestions(by, ""); err != nil {
		return err
	}
	return o.follow(ctx, &follower{by: by, conn: conn, inbox: true})
}

// Looking reports whether a principal follows the inbox. The owner of the server has the
// id "owner" too.
func (o *Overview) Looking(principalID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.followers {
		p := f.by.Principal
		if f.inbox && (p.ID == principalID || p.Owner() && principalID == "owner") {
			return true
		}
	}
	return false
}

// Answer answers a pending question for a principal that has no connection, whoever holds
// the lease. The first answer that fits the question decides: Answer refuses with
// request_not_found if the question is not pending any more. cursor is where the answer
// is in the history. ended reports whether the question ended: it stays pending if it
// needs more votes. Without a type, the answer has that of the question.
func (h *Hub) Answer(answer *contracts.ServerRequestResponse, by contracts.Caller) (cursor uint64, ended bool, err error) {
	if err := answersQuestions(by, ""); err != nil {
		return 0, false, err
	}
	a := *answer
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opMessage); err != nil {
			return
		}
		tx.answering = &sender{Principal: by.Principal}
		if a.RequestType == "" {
			a.RequestType = tx.work.table.TypeOf(a.RequestID)
		}
		row, _, refusal := tx.work.table.Target(&a, false)
		if err = refusal; err == nil {
			err = answersQuestions(by, row.Request.RequestType)
		}
		if err == nil {
			err = checkFit(&a)
		}
		if err == nil {
			err = tx.checkAnswer(row, &a)
		}
		if err == nil {
			ended, err = tx.endByAnswer(row, &a, &a, principalAuthor(by.Principal))
			cursor = tx.head()
		}
	})
	if err == nil {
		err = h.awaitVisible(cursor)
	}
	return cursor, ended, err
}

// checkFit refuses an answer that says nothing about a question of its type.
func checkFit(a *contracts.ServerRequestResponse) error {
	fits := true
	switch a.RequestType {
	case contracts.RequestApproval:
		fits = a.Approved != nil
	case contracts.RequestToolRetry:
		fits = a.DecisionAction != ""
	case contracts.RequestClientTool:
		fits = false
	default:
		fits = len(a.Content) > 0 || a.IsError
	}
	if fits {
		return nil
	}
	return &contracts.Error{
		Code: contracts.CodeBadRequest, Type: contracts.ErrorTool, RequestID: a.RequestID,
		Message: "the answer does not fit a question of the type " + string(a.RequestType),
	}
}
