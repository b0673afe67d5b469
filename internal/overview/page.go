package overview

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// statuses are in the order of an overview.
var statuses = contracts.SessionStatuses()

func (r *row) status() contracts.SessionStatus {
	switch {
	case !r.Marks.Deleted.IsZero():
		return contracts.SessionDeleted
	case r.Pending > 0:
		return contracts.SessionWaiting
	case r.Running && r.hub != nil:
		return contracts.SessionRunning
	case r.Digest.Failed || r.Running: // the second: the server was killed during the run
		return contracts.SessionFailed
	case r.hub != nil:
		return contracts.SessionIdle
	}
	return contracts.SessionAtRest
}

func (r *row) title() string { return cmp.Or(r.Marks.Title, r.Digest.Title) }

// summary returns the row as clients see it. The caller holds mu.
func (o *Overview) summary(r *row) contracts.SessionSummary {
	s := contracts.SessionSummary{
		SessionID: r.key.ID, Revision: r.revision, Status: r.status(), Title: r.title(),
		Author: r.Digest.Author, UpdatedAt: timestamp(r.Digest.At), Pending: int64(r.Pending),
		Tokens: r.Digest.Tokens, CostUSD: r.Digest.CostUSD, Cursor: r.Cursor, Archived: r.Marks.Archived,
	}
	if r.hub != nil {
		s.Controller = r.Controller
	}
	if at := r.Marks.Deleted; !at.IsZero() {
		s.RemovedAt = timestamp(at.Add(o.opts.Undo))
	}
	return s
}

// A place is a position in the order of an overview.
type place struct {
	rank int   // of the status
	at   int64 // Unix time of the last change in ms
	id   string
}

func (r *row) newPlace() place {
	return place{slices.Index(statuses, r.status()), r.Digest.At.UnixMilli(), r.key.ID}
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(q.at, p.at), strings.Compare(p.id, q.id))
}

// String returns the place as the key of a page.
func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%s", p.rank, p.at, p.id))
}

// parsePlace parses the key of a page. Before the first page the key is empty and the
// place is before all others.
func parsePlace(key string) (p place, err error) {
	if key == "" {
		return place{rank: -1}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(key)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d.%d.%s", &p.rank, &p.at, &p.id)
	}
	if err != nil {
		return p, &contracts.Error{
			Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol, Message: "after must be the next of an earlier page",
		}
	}
	return p, nil
}

// Page returns one page of the sessions that a principal may reach.
func (o *Overview) Page(p contracts.Principal, q contracts.OverviewQuery) (*contracts.Overview, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.page(p, q)
}

func (o *Overview) page(p contracts.Principal, q contracts.OverviewQuery) (*contracts.Overview, error) {
	last, err := parsePlace(q.After)
	if err != nil {
		return nil, err
	}
	limit := min(positive(q.Limit, 100), contracts.MaxOverviewPage)
	q.Text = strings.ToLower(q.Text)
	page := &contracts.Overview{Sessions: []contracts.SessionSummary{}, Loading: o.loading, Truncated: o.truncated}
	sc := o.scopes[p.Scope]
	if sc == nil {
		return page, nil
	}
	for _, r := range sc.order[sc.after(last):] {
		if p.SessionID != "" && r.key.ID != p.SessionID || !r.matches(q) {
			continue
		}
		if len(page.Sessions) == limit {
			page.Next = last.String()
			break
		}
		page.Sessions = append(page.Sessions, o.summary(r))
		last = r.place
	}
	return page, nil
}

// matches reports whether a query selects the row. The text of the query is in lower
// case.
func (r *row) matches(q contracts.OverviewQuery) bool {
	status := r.status()
	wanted := r.Marks.Archived == q.Archived && status != contracts.SessionDeleted
	if len(q.Statuses) > 0 {
		wanted = slices.Contains(q.Statuses, status) && (wanted || status == contracts.SessionDeleted)
	}
	return wanted && (q.Text == "" || strings.Contains(r.lower, q.Text) ||
		strings.Contains(strings.ToLower(r.key.ID), q.Text))
}
