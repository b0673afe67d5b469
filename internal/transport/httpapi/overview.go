package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// An Overview lists the sessions of the server, and changes what lists show of them. A
// *contracts.Error is a refusal: the call has changed nothing.
type Overview interface {
	// Page returns one page of the sessions that a principal may reach.
	Page(p contracts.Principal, q contracts.OverviewQuery) (*contracts.Overview, error)

	// Follow sends a list and then its changes on conn until conn ends. The list has at
	// most limit sessions; zero means the default. ctx ends when the limiter is closed.
	Follow(ctx context.Context, conn *sse.Conn, p contracts.Principal, limit int) error

	// Inbox lists the open questions that a client may answer.
	Inbox(by contracts.Caller) (*contracts.Inbox, error)

	// FollowInbox sends this list and then its changes, as Follow does.
	FollowInbox(ctx context.Context, conn *sse.Conn, by contracts.Caller) error

	Update(id string, by contracts.Caller, u *contracts.SessionUpdate) (*contracts.SessionSummary, error)

	// Delete ends a session, and removes it later unless Restore comes before.
	Delete(ctx context.Context, id string, by contracts.Caller) (*contracts.SessionSummary, error)
	Restore(id string, by contracts.Caller) (*contracts.SessionSummary, error)
}

// overviewRoutes adds the routes of the overview to mux. can has the other methods of
// a session. Without an overview they answer 404.
func (h *Handler) overviewRoutes(mux *http.ServeMux, session string, can httperr.Methods) {
	asks := func(do endpoint) http.HandlerFunc { return h.listing(RateLimiter.Request, do) }
	can["PATCH"], can["DELETE"] = asks(h.updateSession), asks(h.deleteSession)
	mount(mux, session, can)
	mount(mux, session+"/restore", httperr.Methods{"POST": asks(h.restoreSession)})
	mount(mux, "/api/headless/overview", reads(asks(h.overview)))
	mount(mux, "/api/headless/overview/events", httperr.Methods{"GET": h.listing(RateLimiter.Attach, h.followOverview)})
	h.inboxRoutes(mux)
}

// listing is authenticated for a route that needs an overview. Without one it answers 404.
func (h *Handler) listing(count limit, do endpoint) http.HandlerFunc {
	if h.opts.Overview == nil {
		do = func(http.ResponseWriter, *http.Request, contracts.Caller) (any, error) { return nil, errNoRoute }
	}
	return h.authenticated(count)(do)
}

func (h *Handler) overview(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	q, err := overviewQuery(r)
	if err != nil {
		return nil, err
	}
	page, err := h.opts.Overview.Page(by.Principal, q)
	if err != nil {
		return nil, err
	}
	return nil, answerLong(w, r, page)
}

// answerLong sends an answer that may be long.
func answerLong(w http.ResponseWriter, r *http.Request, body any) error {
	text, err := contracts.EncodeBody(body)
	if err == nil {
		err = connlimit.ReserveAnswer(r, len(text))
	}
	if err == nil {
		httperr.WriteJSON(w, http.StatusOK, text)
	}
	return err
}

// maxQuery is the most bytes of a text in the query of an overview.
const maxQuery = 512

func overviewQuery(r *http.Request) (q contracts.OverviewQuery, err error) {
	p, err := readParams(r)
	if err != nil {
		return q, err
	}
	status := p.text("status")
	if q.Text, q.After = p.text("q"), p.text("after"); max(len(status), len(q.Text), len(q.After)) > maxQuery {
		return q, badRequest(fmt.Sprintf("status, q and after may have at most %d bytes", maxQuery))
	}
	if status != "" {
		for word := range strings.SplitSeq(status, ",") {
			q.Statuses = append(q.Statuses, contracts.SessionStatus(word))
			if !slices.Contains(contracts.SessionStatuses(), contracts.SessionStatus(word)) {
				p.refuse("status: unknown status")
			}
		}
	}
	switch p.text("archived") {
	case "", "false":
	case "true":
		q.Archived = true
	default:
		p.refuse("archived must be true or false")
	}
	if p.text("limit") != "" {
		if q.Limit = int(p.integer("limit")); q.Limit < 1 {
			p.refuse("limit must be an integer from 1")
		}
	}
	return q, p.err
}

// followOverview answers with the stream of the overview.
func (h *Handler) followOverview(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	q, err := overviewQuery(r)
	if err != nil {
		return nil, err
	}
	follow := func(ctx context.Context, conn *sse.Conn, by contracts.Caller) error {
		return h.opts.Overview.Follow(ctx, conn, by.Principal, q.Limit)
	}
	return nil, h.opts.Streams.Serve(w, r, listStream(follow), contracts.StreamRequest{}, by)
}

// A listStream sends a list and its changes on one stream.
type listStream func(ctx context.Context, conn *sse.Conn, by contracts.Caller) error

// Epoch implements [sse.Session]. A list has no cursors.
func (listStream) Epoch() string { return "" }

// MayStream implements [sse.Session].
func (listStream) MayStream(contracts.StreamRequest, contracts.Caller) error { return nil }

// Stream implements [sse.Session].
func (follow listStream) Stream(ctx context.Context, conn *sse.Conn, _ contracts.StreamRequest, by contracts.Caller) error {
	return follow(ctx, conn, by)
}

func (h *Handler) updateSession(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	var update contracts.SessionUpdate
	if err := h.body(w, r, &update, false); err != nil {
		return nil, err
	}
	return bodyOf(h.opts.Overview.Update(r.PathValue("id"), by, &update))
}

func (h *Handler) deleteSession(_ http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	return bodyOf(h.opts.Overview.Delete(r.Context(), r.PathValue("id"), by))
}

func (h *Handler) restoreSession(_ http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	return bodyOf(h.opts.Overview.Restore(r.PathValue("id"), by))
}

// bodyOf makes an answer of a body and an error.
func bodyOf[T any](body *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return body, nil
}
