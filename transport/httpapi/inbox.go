package httpapi

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

func (h *Handler) inbox(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	list, err := h.opts.Overview.Inbox(by)
	if err != nil {
		return nil, err
	}
	return nil, answerLong(w, r, list)
}

// followInbox answers with the stream of the inbox. A client that answers no questions is
// refused before the stream begins.
func (h *Handler) followInbox(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	if _, err := h.opts.Overview.Inbox(by); err != nil {
		return nil, err
	}
	return nil, h.opts.Streams.Serve(w, r, listStream(h.opts.Overview.FollowInbox), contracts.StreamRequest{}, by)
}

// answerQuestion answers a question of the inbox. It opens a session at rest.
func (h *Handler) answerQuestion(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	var body contracts.InboxAnswer
	if err := h.body(w, r, &body, false); err != nil {
		return nil, err
	}
	request := r.PathValue("request")
	if tooLong(request) {
		return nil, badRequest("malformed request id")
	}
	session, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	cursor, ended, err := session.Answer(&contracts.ServerRequestResponse{
		RequestID: request, Approved: body.Approved, DecisionAction: body.DecisionAction, Reason: body.Note,
		Content: body.Content, IsError: body.IsError, Digest: body.Digest,
	}, by)
	if err != nil {
		return nil, err
	}
	return &contracts.InboxReceipt{SessionID: r.PathValue("id"), RequestID: request, Ended: ended, Cursor: cursor}, nil
}
