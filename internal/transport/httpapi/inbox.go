package httpapi

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// A Notifier tells people outside of open pages that a question waits.
type Notifier interface {
	// States returns what was sent to the receivers.
	States() *contracts.DeliveryList

	// PushKey returns what a browser needs to subscribe.
	PushKey(p contracts.Principal) (*contracts.PushAnswer, error)

	// Subscribe registers a browser, Unsubscribe ends the registration, and TestPush sends a
	// test notification to a registered browser.
	Subscribe(p contracts.Principal, req *contracts.PushRequest) error
	Unsubscribe(p contracts.Principal, endpoint string) error
	TestPush(p contracts.Principal, endpoint string) error
}

// inboxRoutes adds the routes of the inbox to mux. Those of notifications answer 404 without
// a notifier.
func (h *Handler) inboxRoutes(mux *http.ServeMux) {
	asks := func(do endpoint) http.HandlerFunc { return h.listing(RateLimiter.Request, do) }
	mount(mux, "/api/headless/inbox", reads(asks(h.inbox)))
	mount(mux, "/api/headless/inbox/events", httperr.Methods{"GET": h.listing(RateLimiter.Attach, h.followInbox)})
	mount(mux, "/api/headless/inbox/{id}/{request}", httperr.Methods{"POST": asks(h.answerQuestion)})
	notifies := func(do endpoint) http.HandlerFunc {
		if h.opts.Notifier == nil {
			do = func(http.ResponseWriter, *http.Request, contracts.Caller) (any, error) { return nil, errNoRoute }
		}
		return asks(do)
	}
	mount(mux, "/api/headless/inbox/deliveries", reads(notifies(h.deliveries)))
	mount(mux, "/api/headless/inbox/push", httperr.Methods{
		"GET": notifies(h.pushKey), "POST": notifies(h.push(beginPush)), "DELETE": notifies(h.push(endPush)),
	})
}

// deliveries shows what was sent to the receivers. They are the owner's.
func (h *Handler) deliveries(_ http.ResponseWriter, _ *http.Request, by contracts.Caller) (any, error) {
	if !by.Principal.Owner() {
		return nil, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "the deliveries are for the server's owner"}
	}
	return h.opts.Notifier.States(), nil
}

func (h *Handler) pushKey(_ http.ResponseWriter, _ *http.Request, by contracts.Caller) (any, error) {
	if _, err := h.opts.Overview.Inbox(by); err != nil {
		return nil, err
	}
	return bodyOf(h.opts.Notifier.PushKey(by.Principal))
}

// push registers a browser of a client that answers questions, or ends the registration.
func (h *Handler) push(do func(Notifier, contracts.Principal, *contracts.PushRequest) error) endpoint {
	return func(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
		var body contracts.PushRequest
		err := h.body(w, r, &body, false)
		if err == nil {
			_, err = h.opts.Overview.Inbox(by)
		}
		if err == nil {
			err = do(h.opts.Notifier, by.Principal, &body)
		}
		if err != nil {
			return nil, err
		}
		return &contracts.SuccessAnswer{Success: true}, nil
	}
}

func beginPush(n Notifier, p contracts.Principal, req *contracts.PushRequest) error {
	if req.Test {
		return n.TestPush(p, req.Endpoint)
	}
	return n.Subscribe(p, req)
}

func endPush(n Notifier, p contracts.Principal, req *contracts.PushRequest) error {
	return n.Unsubscribe(p, req.Endpoint)
}

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
