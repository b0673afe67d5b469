package hub

import (
	"cmp"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

const (
	maxQuestionText  = 2 << 10 // bytes of the display; the other texts have a quarter
	maxUnreadEndings = 256     // endings of a session between two calls of Record; older ones show no author
)

// Answer answers a pending question for a principal that has no connection, whoever holds
// the lease. The first answer that fits the question decides: Answer refuses with
// request_not_found if the question is not pending any more. cursor is where the answer
// is in the history. ended reports whether the question ended: it stays pending if it
// needs more votes. Without a type, the answer has that of the question.
func (h *Hub) Answer(answer *contracts.ServerRequestResponse, by contracts.Caller) (cursor uint64, ended bool, err error) {
	if err := handshake.MayAnswer(by, ""); err != nil {
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
			err = handshake.MayAnswer(by, row.Request.RequestType)
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
