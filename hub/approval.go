package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

// A VoteRule says how many principals must approve the calls of a tool before they
// run. One denial is enough.
type VoteRule struct {
	Votes int
	Tool  string // name of the tool, in which * stands for any text; empty means every tool
}

// MaxVotes is the greatest number of votes that a rule may demand.
const MaxVotes = 32

// Matches reports whether the rule is about a tool.
func (r VoteRule) Matches(tool string) bool {
	parts := strings.Split(r.Tool, "*")
	rest, ok := strings.CutPrefix(tool, parts[0])
	if len(parts) == 1 {
		return r.Tool == "" || ok && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

// votesNeeded returns how many principals must approve a request. It returns zero if
// one answer decides. Of several rules the one with most votes counts.
func (o *Options) votesNeeded(req *contracts.ServerRequest) (votes int) {
	for _, r := range o.Votes {
		if req.RequestType == contracts.RequestApproval && r.Votes > 1 && r.Matches(req.Tool) {
			votes = max(votes, r.Votes)
		}
	}
	return votes
}

// shownRequest returns the event that comes before a request.
func (h *Hub) shownRequest(req *contracts.ServerRequest) *contracts.RequestShown {
	display := contracts.DisplayRequest(req)
	return &contracts.RequestShown{
		RequestID: req.RequestID, Digest: contracts.RequestDigest(h.opts.SessionID, req),
		Display: display.Text, Escaped: display.Escaped, Truncated: display.Cut,
		VotesNeeded: int64(h.opts.votesNeeded(req)),
	}
}

// showAdopted binds a question of a session that was drained elsewhere, and adds it to
// the state. The rules of this process may demand more votes.
func (tx *tx) showAdopted(row contracts.KeptRequest) {
	shown := tx.shownRequest(row.Request)
	shown.Digest = cmp.Or(row.Digest, shown.Digest)
	shown.VotesNeeded = max(shown.VotesNeeded, int64(row.Needed))
	tx.work.table.Bind(row.Request.RequestID, shown.Digest, int(shown.VotesNeeded))
	tx.log.events.Apply(shown)
	for _, principal := range row.Votes {
		voter := contracts.Author{Principal: principal, Name: principal}
		tx.log.events.Apply(&contracts.RequestVoted{RequestID: row.Request.RequestID, Approved: true, Author: voter})
	}
}

const errDigest = "An answer to an approval must have the digest of the request, which this server shows to clients with the capability people"

// checkAnswer refuses an answer to a pending request with another digest, without a
// digest if approvals must have one, and a second approval by one principal. The
// client of the answer is tx.answering.
func (tx *tx) checkAnswer(row contracts.KeptRequest, answer *contracts.ServerRequestResponse) error {
	req := row.Request
	// A row of an earlier version has no digest.
	digest := cmp.Or(row.Digest, contracts.RequestDigest(tx.opts.SessionID, req))
	refusal := &contracts.Error{Type: contracts.ErrorTool, RequestID: req.RequestID}
	switch {
	case answer.Digest != "" && answer.Digest != digest:
		refusal.Code, refusal.Message = contracts.CodeDigestMismatch, "The digest is not that of request "+req.RequestID
	case answer.Digest == "" && tx.opts.RequireDigest && req.RequestType == contracts.RequestApproval:
		refusal.Code, refusal.Message = contracts.CodeDigestRequired, errDigest
	case row.Needed > 1 && approves(answer) && slices.Contains(row.Votes, tx.answering.ID):
		refusal.Code, refusal.Message = contracts.CodeAlreadyVoted, "This principal has approved request "+req.RequestID+" already"
	default:
		tx.answering.echoed = answer.Digest != ""
		return nil
	}
	return refusal
}

func approves(answer *contracts.ServerRequestResponse) bool {
	return answer.Approved != nil && *answer.Approved
}

// endByAnswer ends a request by an answer that checkAnswer allowed: cmd, and answer,
// which is cmd in its newest form. If the request needs more votes, endByAnswer only
// counts the vote, and a status tells it to clients that do not know votes. The text
// and content of an approval by several are not passed to the agent, because only one
// of them wrote it.
func (tx *tx) endByAnswer(row contracts.KeptRequest, answer *contracts.ServerRequestResponse, cmd contracts.Command, by *contracts.Author) (ended bool, err error) {
	if row.Needed > 1 {
		approved := approves(answer)
		votes := len(row.Votes)
		if approved {
			if votes, err = tx.work.table.Vote(row.Request.RequestID, by.Principal); err != nil {
				return false, err
			}
		}
		voted := &contracts.RequestVoted{
			RequestID: row.Request.RequestID, Approved: approved, Author: *by,
			Votes: int64(votes), VotesNeeded: int64(row.Needed), Timestamp: timestamp(tx.now),
		}
		if !approved || votes >= row.Needed {
			tx.publish(voted)
		} else {
			record := aboutRequest(AuditVoted, row.Request, row.Digest)
			record.Verdict = contracts.VerdictApproved
			tx.noteWith(note{Audit: tx.audit(record, tx.answering)}, voted)
			tx.publish(&contracts.Status{Message: fmt.Sprintf("%s approved %s: %d of %d votes",
				by.Name, contracts.CleanLabel(row.Request.Tool, contracts.MaxLabelBytes), votes, row.Needed)})
			return false, nil
		}
		if approved {
			cmd = &contracts.ServerRequestResponse{RequestID: row.Request.RequestID, RequestType: row.Request.RequestType, Approved: &approved}
		}
	}
	from := cmp.Or(by.ConnectionID, by.Principal)
	res, err := tx.work.table.Answer(cmd, from, tx.now, from == localID)
	if err != nil {
		return false, err
	}
	tx.log.events.ApplyCommand(cmd)
	tx.resolveBy(by, res)
	return true, nil
}

// publishEnd publishes how a request ended, and who answered it unless by is nil, and
// adds it to the audit.
func (tx *tx) publishEnd(res *serverreq.Resolution, by *contracts.Author) {
	record := aboutRequest(AuditEnded, res.Request, res.Digest)
	record.Verdict, record.ResolvedBy = res.Event.Resolution, res.Event.ResolvedBy
	var sender *sender
	if by != nil {
		sender = tx.answering
	}
	tx.publishWith(&res.Event, tx.withAuthor(&res.Event, by), note{Audit: tx.audit(record, sender)})
	tx.noteEnding(&res.Event, by)
}
